//! What the store answers: pairs, replies, and the events watchers see.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::command::{Alarm, LeaseId};
use crate::error::Error;
use crate::key_index::Rev;
use crate::membership::MemberInfo;

/// Is a key with its value and its history in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The revision at which it last came into being.
    pub create_revision: i64,
    /// The revision at which it was last written.
    pub mod_revision: i64,
    /// The number of writes since it came into being.
    pub version: i64,
    /// The value.
    pub value: Bytes,
    /// The attached lease, 0 for none.
    pub lease: LeaseId,
}

/// Is a [`KeyValue`] where it lies in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// See [`KeyValue::key`].
    pub key: &'a [u8],
    /// See [`KeyValue::create_revision`].
    pub create_revision: i64,
    /// See [`KeyValue::mod_revision`].
    pub mod_revision: i64,
    /// See [`KeyValue::version`].
    pub version: i64,
    /// See [`KeyValue::value`].
    pub value: &'a [u8],
    /// See [`KeyValue::lease`].
    pub lease: LeaseId,
}

impl KeyValue {
    /// Looks at it as at one that lies in the store.
    pub fn pair(&self) -> Pair<'_> {
        Pair {
            key: &self.key,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            value: &self.value,
            lease: self.lease,
        }
    }
}

/// Answers a put.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutReply {
    /// The header's revision.
    pub revision: i64,
    /// The pair before, if asked for and present.
    pub prev_kv: Option<KeyValue>,
}

/// Answers a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RangeReply {
    /// The header's revision: the present one, even for a read of the past.
    pub revision: i64,
    /// The pairs.
    pub kvs: Vec<KeyValue>,
    /// How many keys are in the range, whatever limit and filters left.
    pub count: i64,
    /// Whether the limit cut something off.
    pub more: bool,
}

/// Is a [`RangeReply`] but for its pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeEnd {
    /// See [`RangeReply::revision`].
    pub revision: i64,
    /// See [`RangeReply::count`].
    pub count: i64,
    /// See [`RangeReply::more`].
    pub more: bool,
}

/// Answers a delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteReply {
    /// The header's revision.
    pub revision: i64,
    /// How many keys were deleted.
    pub deleted: i64,
    /// The deleted pairs, if asked for.
    pub prev_kvs: Vec<KeyValue>,
}

/// Answers one operation of a txn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseOp {
    /// Answers a read.
    Range(RangeReply),
    /// Answers a write.
    Put(PutReply),
    /// Answers a delete.
    DeleteRange(DeleteReply),
    /// Answers a nested txn; its own `revision` is 0, as in etcd.
    Txn(TxnReply),
}

/// Answers a txn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TxnReply {
    /// The header's revision; 0 in a nested reply.
    pub revision: i64,
    /// Which branch ran.
    pub succeeded: bool,
    /// The branch's answers, in order. Their headers carry only `revision`.
    pub responses: Vec<ResponseOp>,
}

/// Answers a compaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactReply {
    /// The header's revision.
    pub revision: i64,
}

/// Answers a lease grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseGrantReply {
    /// The header's revision.
    pub revision: i64,
    /// The lease.
    pub id: LeaseId,
    /// The seconds granted.
    pub ttl: i64,
}

/// Answers a lease revocation or checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseReply {
    /// The header's revision.
    pub revision: i64,
}

/// Answers an alarm change with the alarms it touched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlarmReply {
    /// The header's revision.
    pub revision: i64,
    /// The alarm raised or cleared; empty when there was nothing to clear.
    pub alarms: Vec<Alarm>,
}

/// Answers a change of users, roles or the switch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthReply {
    /// The header's revision.
    pub revision: i64,
    /// The auth revision afterwards.
    pub auth_revision: u64,
    /// The index of the log entry: the part of a token that makes it unlike any other.
    pub index: u64,
}

/// Answers a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `Put`.
    Put(PutReply),
    /// To `DeleteRange`.
    DeleteRange(DeleteReply),
    /// To `Txn`.
    Txn(TxnReply),
    /// To `Compact`.
    Compact(CompactReply),
    /// To `LeaseGrant`.
    LeaseGrant(LeaseGrantReply),
    /// To `LeaseRevoke`.
    LeaseRevoke(LeaseReply),
    /// To `LeaseCheckpoint`.
    LeaseCheckpoint(LeaseReply),
    /// To `Downgrade`.
    Downgrade,
    /// To `AlarmActivate` and `AlarmDeactivate`.
    Alarm(AlarmReply),
    /// To `Auth`.
    Auth(AuthReply),
    /// To `Member`: all members afterwards, by id.
    Members(Vec<MemberInfo>),
}

/// Is what came of applying one log entry.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The proposal's id, by which the waiting caller is found.
    pub id: u64,
    /// The store's revision afterwards, for headers.
    pub revision: i64,
    /// The answer. `Err(Error::DuplicateProposal)` means an earlier copy was applied.
    pub result: Result<Reply, Error>,
    /// The changes, all of one revision, in order; for [`crate::watch::WatchHub::publish`].
    pub events: Vec<Arc<Event>>,
}

/// Tells a write from a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key was written.
    Put,
    /// The key was deleted.
    Delete,
}

/// Is one change, made once and shared by every watcher it concerns.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The pair after a put; only key and mod revision after a delete.
    pub kv: KeyValue,
    /// The change that made the pair before.
    pub(crate) previous: Option<Rev>,
    /// The pair before; filled by the hub when the first watcher wants it.
    pub(crate) prev: OnceLock<Option<KeyValue>>,
    /// Room for the edge to keep the encoded event without `prev_kv`, so that
    /// it is encoded once however many watchers there are.
    pub wire: OnceLock<Bytes>,
    /// The same with `prev_kv`.
    pub wire_prev: OnceLock<Bytes>,
}

impl Event {
    /// Builds an event that nobody has looked at yet.
    ///
    /// `previous` is the record before. What a creation replaced, in a transaction
    /// that deleted the key first, is nobody's previous pair (etcd: v3rpc/watch.go,
    /// IsCreateEvent).
    pub(crate) fn after(kind: EventKind, kv: KeyValue, previous: Option<Rev>) -> Self {
        let creates = kind == EventKind::Put && kv.create_revision == kv.mod_revision;
        Self {
            kind,
            kv,
            previous: previous.filter(|_| !creates),
            prev: OnceLock::new(),
            wire: OnceLock::new(),
            wire_prev: OnceLock::new(),
        }
    }

    /// Reports whether the event brought the key into being.
    pub fn is_create(&self) -> bool {
        self.kind == EventKind::Put && self.kv.create_revision == self.kv.mod_revision
    }

    /// Returns the pair before. Filled in every reply of a watcher created with
    /// `prev_kv`; `None` for a creation or when compaction took it.
    pub fn prev_kv(&self) -> Option<&KeyValue> {
        self.prev.get().and_then(Option::as_ref)
    }
}
