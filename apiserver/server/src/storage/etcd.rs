//! The store over the network: etcd v3 gRPC, ours or a real etcd.
//!
//! Several endpoints may be given; one is used until it fails. Reads are tried
//! again elsewhere; a write if the connection was never made, because then it
//! cannot have been carried out, or if its fate is unknown and it expects a
//! revision, because then only one of the attempts can be.

mod channel;
mod watch;

use async_trait::async_trait;
use bytes::Bytes;
use meta::keys;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use proto::etcdserverpb::lease_client::LeaseClient;
use proto::etcdserverpb::maintenance_client::MaintenanceClient;
use proto::mvccpb;

use self::channel::{Call, Channels};
use super::leases::Leases;
use super::store::{Cas, Got, Kv, Page, PageRequest, Store, StoreError, StoreWatch, words};

pub use self::channel::{EtcdConfig, EtcdTls};

/// The largest answer taken: a page of a list of big objects. Lists are paged,
/// so this bounds the memory of one answer, not the size of a resource.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Reaches etcd servers.
#[derive(Debug)]
pub struct EtcdStore {
    channels: Channels,
    leases: Leases,
    reports_progress: bool,
}

impl EtcdStore {
    /// Connects to a store: waits until one endpoint answers, and learns from
    /// every endpoint's version whether its progress reports can be relied on.
    pub async fn connect(config: &EtcdConfig) -> Result<Self, StoreError> {
        let channels = Channels::new(config)?;
        let status = channels
            .call(Call::Repeatable, |channel| async move {
                let mut client = MaintenanceClient::new(channel);
                client.status(pb::StatusRequest {}).await
            })
            .await?;
        let mut reports_progress = progress_is_reliable(&status.version);
        for channel in channels.others() {
            let mut client = MaintenanceClient::new(channel);
            let status = client.status(pb::StatusRequest {}).await;
            // One that cannot be asked may be one that cannot be trusted.
            reports_progress &=
                status.is_ok_and(|status| progress_is_reliable(&status.get_ref().version));
        }
        tracing::info!(version = %status.version, reports_progress, "connected to the store");
        Ok(Self {
            channels,
            leases: Leases::default(),
            reports_progress,
        })
    }

    async fn range(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, StoreError> {
        self.channels
            .call(Call::Repeatable, |channel| {
                let request = request.clone();
                async move {
                    KvClient::new(channel)
                        .max_decoding_message_size(ANSWER_BYTES_MAX)
                        .range(request)
                        .await
                }
            })
            .await
    }

    async fn swap(
        &self,
        key: &str,
        expected: u64,
        then: pb::request_op::Request,
    ) -> Result<Cas, StoreError> {
        use pb::compare::{CompareResult, CompareTarget, TargetUnion};
        let key = Bytes::copy_from_slice(key.as_bytes());
        let value = match &then {
            pb::request_op::Request::RequestPut(put) => Some(put.value.clone()),
            _ => None,
        };
        let request = pb::TxnRequest {
            compare: vec![pb::Compare {
                result: CompareResult::Equal.into(),
                target: CompareTarget::Mod.into(),
                key: key.clone(),
                range_end: Bytes::new(),
                target_union: Some(TargetUnion::ModRevision(signed(expected))),
            }],
            success: vec![pb::RequestOp {
                request: Some(then),
            }],
            failure: vec![pb::RequestOp {
                request: Some(pb::request_op::Request::RequestRange(pb::RangeRequest {
                    key,
                    ..pb::RangeRequest::default()
                })),
            }],
        };
        match self.txn(Call::Once, &request).await {
            Err(StoreError::Unknown(why)) => {
                let learnt = self.learn_swap(&request, expected, value).await;
                learnt.ok_or(StoreError::Unknown(why))
            }
            reply => Ok(swapped(reply?, expected, value.is_none())),
        }
    }

    /// Finds out about a swap of which nobody knows whether it was carried out.
    async fn learn_swap(
        &self,
        request: &pb::TxnRequest,
        expected: u64,
        value: Option<Bytes>,
    ) -> Option<Cas> {
        if expected > 0 {
            // Nobody gives the key its old revision again: of all attempts one
            // at most is carried out, and this one says so if it was.
            let reply = self.txn(Call::Repeatable, request).await.ok()?;
            return match swapped(reply, expected, value.is_none()) {
                Cas::Done(revision) => Some(Cas::Done(revision)),
                Cas::Conflict(_) => None,
            };
        }
        // Tried again, it could bring back what was made and is deleted by now.
        // But objects are born with an id of their own: if it is there, it is ours.
        let key = &request.compare.first()?.key;
        let found = self.get(std::str::from_utf8(key).ok()?).await.ok()?.kv?;
        (Some(found.value) == value).then_some(Cas::Done(found.mod_revision))
    }

    async fn txn(
        &self,
        call: Call,
        request: &pb::TxnRequest,
    ) -> Result<pb::TxnResponse, StoreError> {
        self.channels
            .call(call, |channel| {
                let request = request.clone();
                async move {
                    KvClient::new(channel)
                        .max_decoding_message_size(ANSWER_BYTES_MAX)
                        .txn(request)
                        .await
                }
            })
            .await
    }

    async fn lease(&self, ttl: Option<u64>) -> Result<i64, StoreError> {
        let Some(ttl) = ttl else { return Ok(0) };
        let grant = |ttl| async move {
            let granted = self
                .channels
                // One granted twice ends by itself.
                .call(Call::Repeatable, |channel| async move {
                    let request = pb::LeaseGrantRequest { ttl, id: 0 };
                    LeaseClient::new(channel).lease_grant(request).await
                })
                .await?;
            Ok(granted.id)
        };
        self.leases.lease(ttl, grant).await
    }
}

/// Reads what a swap did.
fn swapped(reply: pb::TxnResponse, expected: u64, deletes: bool) -> Cas {
    let revision = revision(reply.header.as_ref());
    let first = reply.responses.into_iter().next().and_then(|r| r.response);
    match first {
        Some(pb::response_op::Response::ResponseRange(range)) if !reply.succeeded => {
            Cas::Conflict(range.kvs.into_iter().next().map(kv))
        }
        // It was expected absent and is: there was nothing to delete.
        _ if deletes && expected == 0 => Cas::Conflict(None),
        _ => Cas::Done(revision),
    }
}

/// Tells whether an etcd of this version reports progress only after the events
/// it covers (fixed in 3.4.31 and 3.5.13; etcd issue 15220).
fn progress_is_reliable(version: &str) -> bool {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = numbers.split('.').map(|n| n.parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    match (next(), next(), next()) {
        (Some(3), Some(4), Some(patch)) => patch >= 31,
        (Some(3), Some(5), Some(patch)) => patch >= 13,
        (Some(major), Some(minor), _) => (major, minor) > (3, 5),
        _ => false,
    }
}

/// Revisions are positive; the wire's type is signed.
fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

fn revision(header: Option<&pb::ResponseHeader>) -> u64 {
    header.map_or(0, |h| unsigned(h.revision))
}

fn kv(from: mvccpb::KeyValue) -> Kv {
    Kv {
        key: String::from_utf8_lossy(&from.key).into_owned(),
        value: own(&from.value),
        mod_revision: unsigned(from.mod_revision),
    }
}

/// Copies a value out of the receive buffer it is a slice of: kept for as long
/// as an object lives, the slice would keep the whole answer in memory.
fn own(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        let request = pb::RangeRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            ..pb::RangeRequest::default()
        };
        let reply = self.range(request).await?;
        Ok(Got {
            revision: revision(reply.header.as_ref()),
            kv: reply.kvs.into_iter().next().map(kv),
        })
    }

    async fn list(&self, page: PageRequest) -> Result<Page, StoreError> {
        let start = page.start.max(page.prefix.clone());
        let request = pb::RangeRequest {
            key: start.into_bytes().into(),
            range_end: keys::prefix_end(page.prefix.as_bytes()).into(),
            limit: i64::try_from(page.limit).unwrap_or(i64::MAX),
            revision: signed(page.revision),
            keys_only: page.keys_only,
            ..pb::RangeRequest::default()
        };
        let reply = self.range(request).await?;
        Ok(Page {
            revision: match page.revision {
                0 => revision(reply.header.as_ref()),
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
            let put = pb::request_op::Request::RequestPut(pb::PutRequest {
                key: Bytes::copy_from_slice(key.as_bytes()),
                value: value.clone(),
                lease: self.lease(ttl).await?,
                ..pb::PutRequest::default()
            });
            match self.swap(key, expected, put).await {
                Err(StoreError::Other(e)) if !last && e == words::LEASE_NOT_FOUND => {
                    self.leases.forget().await;
                }
                done => return done,
            }
        }
        unreachable!("the second round returns")
    }

    async fn delete(&self, key: &str, expected: u64) -> Result<Cas, StoreError> {
        let delete = pb::request_op::Request::RequestDeleteRange(pb::DeleteRangeRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            ..pb::DeleteRangeRequest::default()
        });
        self.swap(key, expected, delete).await
    }

    async fn watch(&self, prefix: &str, from: u64) -> Result<Box<dyn StoreWatch>, StoreError> {
        let (at, channel) = self.channels.current();
        let opened = watch::open(channel, prefix, from).await;
        if matches!(
            opened,
            Err(StoreError::Ended(_) | StoreError::Unavailable(_))
        ) {
            self.channels.leave(at);
        }
        Ok(Box::new(opened?))
    }

    async fn current_revision(&self) -> Result<u64, StoreError> {
        // A linearizable read of a key nobody writes: its header is the answer.
        self.get("\0").await.map(|got| got.revision)
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        let request = pb::CompactionRequest {
            revision: signed(revision),
            physical: false,
        };
        let done = self
            .channels
            .call(Call::Once, |channel| async move {
                KvClient::new(channel).compact(request).await
            })
            .await;
        done.map(drop)
    }

    fn reports_progress(&self) -> bool {
        self.reports_progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_whose_progress_to_trust() {
        for (version, reliable) in [
            ("3.4.23", false),
            ("3.4.31", true),
            ("3.5.1", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-alpha.0", true),
            ("4.0.0", true),
            ("3.3.27", false),
            ("", false),
            ("x.y", false),
        ] {
            assert_eq!(progress_is_reliable(version), reliable, "{version}");
        }
    }
}
