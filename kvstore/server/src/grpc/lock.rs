//! Service Lock: mutual exclusion made of leases and transactions.
//!
//! Semantics, key layout and errors are etcd's (server/etcdserver/api/v3lock,
//! client/v3/concurrency/mutex.go): the name's oldest key holds the lock.

use mvcc::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};
use proto::v3lockpb::{self as pb, lock_server::Lock};
use tonic::{Request, Response, Status};

use super::queue::{self, Leaving, plain};
use crate::handle::Handle;

/// Tells a waiter that its own key, with its lease, went while it waited.
const SESSION_EXPIRED: &str = "mutex: session is expired";

#[tonic::async_trait]
impl Lock for Handle {
    async fn lock(
        &self,
        request: Request<pb::LockRequest>,
    ) -> Result<Response<pb::LockResponse>, Status> {
        let this = self.for_caller(&request);
        let pb::LockRequest { name, lease } = request.into_inner();
        let stop = self.shared.stop.clone();
        let (revision, key) = tokio::select! {
            locked = lock(&this, &name, lease) => locked?,
            () = stop.cancelled() => return Err(plain(mvcc::Error::Stopped.into())),
        };
        let header = self.header(revision);
        Ok(Response::new(pb::LockResponse { header, key }))
    }

    async fn unlock(
        &self,
        request: Request<pb::UnlockRequest>,
    ) -> Result<Response<pb::UnlockResponse>, Status> {
        let this = self.for_caller(&request);
        let delete = DeleteRangeRequest {
            key: request.into_inner().key,
            ..DeleteRangeRequest::default()
        };
        let reply = this.delete_range(delete).await.map_err(plain)?;
        let header = self.header(reply.revision);
        Ok(Response::new(pb::UnlockResponse { header }))
    }
}

/// Queues for a lock and waits for it; returns its key, and the revision of the
/// store when it was got.
async fn lock(handle: &Handle, name: &[u8], lease: i64) -> Result<(i64, bytes::Bytes), Status> {
    let lease = queue::session(handle, lease).await?;
    let prefix = queue::prefix(name);
    let key = queue::key(&prefix, lease);
    let put = PutRequest {
        key: key.clone(),
        lease,
        ..PutRequest::default()
    };
    // The holder is asked for along the way: a free lock takes one round.
    let holder = || RequestOp::Range(queue::first(&prefix));
    let enter = TxnRequest {
        compare: vec![queue::created_at(&key, 0)],
        success: vec![RequestOp::Put(put), holder()],
        failure: vec![RequestOp::Range(queue::only(&key)), holder()],
    };
    let entered = handle.txn(enter).await.map_err(plain)?;
    let ours = match entered.succeeded {
        true => entered.revision,
        // The session queued before, and perhaps holds the lock already.
        false => queue::found(&entered, 0).map_or(entered.revision, |kv| kv.create_revision),
    };
    if queue::found(&entered, 1).is_none_or(|kv| kv.create_revision == ours) {
        return Ok((entered.revision, key));
    }
    let leaving = Leaving::new(handle, queue::leave(&key, 0));
    queue::wait_for_turn(handle, &prefix, ours - 1).await?;
    let still = handle.range(queue::only(&key)).await.map_err(plain)?;
    leaving.stay();
    if still.kvs.is_empty() {
        return Err(Status::unknown(SESSION_EXPIRED));
    }
    Ok((still.revision, key))
}
