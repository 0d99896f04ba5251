//! The queue behind locks and elections.
//!
//! Both are clients of the store's own API and nothing more, as in etcd
//! (client/v3/concurrency): whoever wants a place puts the key
//! `name + "/" + lease in hex` on its lease, and has it when no key of the prefix
//! was created earlier. With its lease the key goes, and the place with it.

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use mvcc::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, EventKind, KeyValue,
    LeaseGrantRequest, RangeReply, RangeRequest, RequestOp, ResponseOp, SortOrder, SortTarget,
    TxnReply, TxnRequest, watch::WatchCreate,
};
use tonic::Status;

use crate::{handle::Handle, rpc_error::RpcError};

/// Seconds of a lease made for a caller who brought none (etcd: defaultSessionTTL).
const SESSION_SECONDS: i64 = 60;

/// Passes an error on as etcd's lock and election services do: their inner client
/// strips the code, so that gRPC calls it Unknown.
pub(super) fn plain(error: RpcError) -> Status {
    Status::unknown(error.message)
}

/// Returns the caller's lease, or grants one if it brought none. Whether the lease
/// exists shows when a key is put on it.
pub(super) async fn session(handle: &Handle, lease: i64) -> Result<i64, Status> {
    if lease != 0 {
        return Ok(lease);
    }
    let ttl = SESSION_SECONDS;
    let granted = handle.lease_grant(LeaseGrantRequest { id: 0, ttl }).await;
    Ok(granted.map_err(plain)?.id)
}

/// Returns the start of all keys that queue under a name.
pub(super) fn prefix(name: &[u8]) -> Bytes {
    let mut prefix = BytesMut::with_capacity(name.len() + 1);
    prefix.put_slice(name);
    prefix.put_u8(b'/');
    prefix.freeze()
}

/// Returns the key by which the holder of a lease queues.
pub(super) fn key(prefix: &[u8], lease: i64) -> Bytes {
    let sign = if lease < 0 { "-" } else { "" };
    let hex = format!("{sign}{:x}", lease.unsigned_abs());
    [prefix, hex.as_bytes()].concat().into()
}

/// Returns the end of a prefix that ends with a slash.
pub(super) fn end(prefix: &[u8]) -> Bytes {
    let mut end = BytesMut::from(prefix);
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.freeze()
}

/// Asks for the key of a prefix that was created first: the holder.
pub(super) fn first(prefix: &Bytes) -> RangeRequest {
    RangeRequest {
        key: prefix.clone(),
        range_end: end(prefix),
        limit: 1,
        sort_order: SortOrder::Ascend,
        sort_target: SortTarget::Create,
        ..RangeRequest::default()
    }
}

/// Asks for one key.
pub(super) fn only(key: &Bytes) -> RangeRequest {
    RangeRequest {
        key: key.clone(),
        ..RangeRequest::default()
    }
}

/// Holds if the key was created at a revision; at 0, if it does not exist.
pub(super) fn created_at(key: &Bytes, revision: i64) -> Compare {
    Compare {
        key: key.clone(),
        range_end: Bytes::new(),
        result: CompareResult::Equal,
        target: CompareTarget::CreateRevision(revision),
    }
}

/// Returns the first pair that a range inside a transaction found.
pub(super) fn found(reply: &TxnReply, at: usize) -> Option<&KeyValue> {
    match reply.responses.get(at)? {
        ResponseOp::Range(RangeReply { kvs, .. }) => kvs.first(),
        ResponseOp::Put(_) | ResponseOp::DeleteRange(_) | ResponseOp::Txn(_) => None,
    }
}

/// Waits until nobody who queued at or before a revision is left.
///
/// Each round waits for the youngest of them only, so that one key gone wakes one
/// waiter (etcd: key.go, waitDeletes).
pub(super) async fn wait_for_turn(
    handle: &Handle,
    prefix: &Bytes,
    before: i64,
) -> Result<(), Status> {
    let ahead = RangeRequest {
        sort_order: SortOrder::Descend,
        max_create_revision: before,
        ..first(prefix)
    };
    loop {
        let reply = handle.range(ahead.clone()).await.map_err(plain)?;
        let Some(youngest) = reply.kvs.into_iter().next() else {
            return Ok(());
        };
        wait_for_delete(handle, youngest.key, reply.revision).await?;
    }
}

/// Waits until a key that existed at a revision is deleted. Returning early is
/// harmless: the caller looks again.
async fn wait_for_delete(handle: &Handle, key: Bytes, revision: i64) -> Result<(), Status> {
    let mut watch = handle.watch(WatchCreate {
        key,
        start_revision: revision + 1,
        filter_put: true,
        ..WatchCreate::default()
    });
    while let Some(reply) = watch.next().await {
        let deleted = |event: &std::sync::Arc<mvcc::Event>| event.kind == EventKind::Delete;
        // Compacted from under the watch: what is there now decides.
        if reply.events.iter().any(deleted) || reply.compact_revision != 0 {
            return Ok(());
        }
        if reply.canceled {
            return Err(Status::unknown(reply.cancel_reason));
        }
    }
    Err(plain(mvcc::Error::Stopped.into()))
}

/// Deletes a key, if it is still the one created at a revision (0: in any case).
pub(super) fn leave(key: &Bytes, created: i64) -> TxnRequest {
    let compare = match created {
        0 => Vec::new(),
        revision => vec![created_at(key, revision)],
    };
    let delete = DeleteRangeRequest {
        key: key.clone(),
        ..DeleteRangeRequest::default()
    };
    TxnRequest {
        compare,
        success: vec![RequestOp::DeleteRange(delete)],
        failure: Vec::new(),
    }
}

/// Gives a place in the queue up when the call that waits for it ends without
/// having got it: it failed, the client cancelled, or its connection broke.
pub(super) struct Leaving(Option<(Handle, TxnRequest)>);

impl Leaving {
    /// Runs `leave` when dropped.
    pub(super) fn new(handle: &Handle, leave: TxnRequest) -> Self {
        Self(Some((handle.clone(), leave)))
    }

    /// Keeps the place.
    pub(super) fn stay(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some((handle, leave)) = self.0.take() else {
            return;
        };
        // Outside of a runtime the member has ended and nothing can be proposed;
        // the lease takes the key in time. So it does if the proposal fails.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _failed = handle.txn(leave).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_laid_out_as_etcd_does() {
        let prefix = prefix(b"jobs");
        assert_eq!(key(&prefix, 0x694d_a229_b37b_5d06), "jobs/694da229b37b5d06");
        assert_eq!(
            key(&prefix, -1),
            "jobs/-1",
            "as Go prints a negative number"
        );
        assert_eq!(end(&prefix), "jobs0");
    }
}
