//! The store in this process: no socket, no encoding.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use kvserver::{Handle, RpcError, WatchStream};
use meta::keys;
use mvcc::watch::WatchCreate;
use mvcc::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, EventKind, KeyValue,
    LeaseGrantRequest, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnReply, TxnRequest,
};

use super::leases::Leases;
use super::store::{
    Cas, Got, Kv, Page, PageRequest, Store, StoreError, StoreEvent, StoreWatch, WatchBatch, words,
};

/// Reaches a member of the store in this process.
#[derive(Debug)]
pub struct EmbeddedStore {
    handle: Handle,
    leases: Leases,
}

impl EmbeddedStore {
    /// Wraps a running member's handle.
    pub fn new(handle: Handle) -> Self {
        Self {
            handle,
            leases: Leases::default(),
        }
    }

    async fn swap(&self, key: &str, expected: u64, then: RequestOp) -> Result<Cas, RpcError> {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let request = TxnRequest {
            compare: vec![Compare {
                key: key.clone(),
                range_end: Bytes::new(),
                result: CompareResult::Equal,
                target: CompareTarget::ModRevision(signed(expected)),
            }],
            success: vec![then],
            failure: vec![RequestOp::Range(RangeRequest {
                key,
                ..RangeRequest::default()
            })],
        };
        self.handle
            .txn(request)
            .await
            .map(|reply| cas(reply, expected))
    }

    async fn lease(&self, ttl: Option<u64>) -> Result<i64, StoreError> {
        let Some(ttl) = ttl else { return Ok(0) };
        let grant = |ttl| async move {
            let request = LeaseGrantRequest { id: 0, ttl };
            let granted = self.handle.lease_grant(request).await;
            granted.map(|g| g.id).map_err(write_error)
        };
        self.leases.lease(ttl, grant).await
    }
}

/// Revisions are positive; the wire's type is signed.
fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

fn kv(from: KeyValue) -> Kv {
    Kv {
        key: String::from_utf8_lossy(&from.key).into_owned(),
        value: from.value,
        mod_revision: unsigned(from.mod_revision),
    }
}

/// Reads a compare-and-swap's outcome. A deletion that expects absence holds
/// its comparison and deletes nothing: that is a conflict too.
fn cas(reply: TxnReply, expected: u64) -> Cas {
    match reply.responses.into_iter().next() {
        Some(ResponseOp::Range(range)) => Cas::Conflict(range.kvs.into_iter().next().map(kv)),
        Some(ResponseOp::DeleteRange(_)) if expected == 0 => Cas::Conflict(None),
        _ => Cas::Done(unsigned(reply.revision)),
    }
}

/// gRPC's UNAVAILABLE.
const UNAVAILABLE: u32 = 14;

fn read_error(error: RpcError) -> StoreError {
    words::recognise(&error.message).unwrap_or(match error.code {
        UNAVAILABLE => StoreError::Unavailable(error.message),
        _ => StoreError::Other(error.message),
    })
}

fn write_error(error: RpcError) -> StoreError {
    words::recognise(&error.message).unwrap_or(match error.code {
        UNAVAILABLE => StoreError::Unknown(error.message),
        _ => StoreError::Other(error.message),
    })
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        let request = RangeRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            ..RangeRequest::default()
        };
        let reply = self.handle.range(request).await.map_err(read_error)?;
        Ok(Got {
            revision: unsigned(reply.revision),
            kv: reply.kvs.into_iter().next().map(kv),
        })
    }

    async fn list(&self, page: PageRequest) -> Result<Page, StoreError> {
        let start = page.start.max(page.prefix.clone());
        let request = RangeRequest {
            key: start.into_bytes().into(),
            range_end: keys::prefix_end(page.prefix.as_bytes()).into(),
            limit: i64::try_from(page.limit).unwrap_or(i64::MAX),
            revision: signed(page.revision),
            keys_only: page.keys_only,
            ..RangeRequest::default()
        };
        let reply = self.handle.range(request).await.map_err(read_error)?;
        Ok(Page {
            revision: match page.revision {
                0 => unsigned(reply.revision),
                r => r,
            },
            kvs: reply.kvs.into_iter().map(kv).collect(),
            more: reply.more,
            count: unsigned(reply.count),
        })
    }

    async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: u64,
        ttl: Option<u64>,
    ) -> Result<Cas, StoreError> {
        // Twice: a lease that ended meanwhile refuses the write, and so proves
        // that it was not carried out.
        for last in [false, true] {
            let put = RequestOp::Put(PutRequest {
                key: Bytes::copy_from_slice(key.as_bytes()),
                value: value.clone(),
                lease: self.lease(ttl).await?,
                ..PutRequest::default()
            });
            match self.swap(key, expected, put).await {
                Err(e) if !last && e.message == words::LEASE_NOT_FOUND => {
                    self.leases.forget().await;
                }
                done => return done.map_err(write_error),
            }
        }
        unreachable!("the second round returns")
    }

    async fn delete(&self, key: &str, expected: u64) -> Result<Cas, StoreError> {
        let delete = RequestOp::DeleteRange(DeleteRangeRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            ..DeleteRangeRequest::default()
        });
        self.swap(key, expected, delete).await.map_err(write_error)
    }

    async fn watch(&self, prefix: &str, from: u64) -> Result<Box<dyn StoreWatch>, StoreError> {
        let mut stream = self.handle.watch(WatchCreate {
            key: Bytes::copy_from_slice(prefix.as_bytes()),
            range_end: keys::prefix_end(prefix.as_bytes()).into(),
            start_revision: signed(from),
            progress_notify: true,
            ..WatchCreate::default()
        });
        match stream.next().await {
            Some(reply) if reply.created && !reply.canceled => {
                Ok(Box::new(EmbeddedWatch { stream }))
            }
            Some(reply) => Err(ended(&reply)),
            None => Err(StoreError::Ended("the member stopped".to_owned())),
        }
    }

    async fn current_revision(&self) -> Result<u64, StoreError> {
        // A linearizable read of a key nobody writes: its header is the answer.
        self.get("\0").await.map(|got| got.revision)
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        let request = mvcc::CompactRequest {
            revision: signed(revision),
            physical: false,
        };
        let done = self.handle.compact(request).await;
        done.map(drop).map_err(write_error)
    }

    fn reports_progress(&self) -> bool {
        true
    }
}

fn ended(reply: &mvcc::watch::WatchReply) -> StoreError {
    match unsigned(reply.compact_revision) {
        0 => StoreError::Ended(reply.cancel_reason.clone()),
        compacted => StoreError::Compacted(Some(compacted)),
    }
}

struct EmbeddedWatch {
    stream: WatchStream,
}

#[async_trait]
impl StoreWatch for EmbeddedWatch {
    async fn next(&mut self) -> Result<WatchBatch, StoreError> {
        let Some(reply) = self.stream.next().await else {
            return Err(StoreError::Ended("the member stopped".to_owned()));
        };
        if reply.canceled {
            return Err(ended(&reply));
        }
        if reply.events.is_empty() {
            return Ok(WatchBatch::Progress(unsigned(reply.revision)));
        }
        let events = reply.events.iter().map(|event| StoreEvent {
            key: String::from_utf8_lossy(&event.kv.key).into_owned(),
            value: (event.kind == EventKind::Put).then(|| event.kv.value.clone()),
            revision: unsigned(event.kv.mod_revision),
        });
        Ok(WatchBatch::Events(events.collect()))
    }

    fn request_progress(&mut self) {
        self.stream.request_progress();
    }
}
