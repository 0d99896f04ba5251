//! What may be asked of the store: plain requests, and the one enum of
//! commands that travel through the log.
//!
//! Field meanings are etcd v3's (`api/etcdserverpb/rpc.proto`). Reads are not
//! commands; a [`RangeRequest`] appears here because a transaction may hold one.

use bytes::Bytes;

use crate::auth::{AuthCommand, Identity};
use crate::membership::MemberCommand;

/// Names the server-chosen or client-chosen number of a lease; 0 is "no lease".
pub type LeaseId = i64;

/// Stores a value under a key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PutRequest {
    /// The key; never empty.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The lease to attach to, 0 for none (which also detaches).
    pub lease: LeaseId,
    /// Asks for the pair as it was before.
    pub prev_kv: bool,
    /// Keeps the present value; an error if the key is absent.
    pub ignore_value: bool,
    /// Keeps the present lease; an error if the key is absent.
    pub ignore_lease: bool,
}

/// Deletes a key or a range of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteRangeRequest {
    /// The key or the start of the range.
    pub key: Bytes,
    /// Empty for one key, `"\0"` for every key from `key` on, else exclusive end.
    pub range_end: Bytes,
    /// Asks for the deleted pairs.
    pub prev_kv: bool,
}

/// Orders a range reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortOrder {
    /// Leaves key order, unless the target is not the key: then ascending.
    #[default]
    None,
    /// Sorts upwards.
    Ascend,
    /// Sorts downwards.
    Descend,
}

/// Chooses what a range reply is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortTarget {
    /// By key.
    #[default]
    Key,
    /// By version.
    Version,
    /// By create revision.
    Create,
    /// By mod revision.
    Mod,
    /// By value.
    Value,
}

impl SortOrder {
    /// Maps the protobuf number, or `None` for an unknown one ("invalid sort option").
    pub fn from_i32(n: i32) -> Option<Self> {
        Some(match n {
            0 => Self::None,
            1 => Self::Ascend,
            2 => Self::Descend,
            _ => return None,
        })
    }
}

impl SortTarget {
    /// Maps the protobuf number, or `None` for an unknown one ("invalid sort option").
    pub fn from_i32(n: i32) -> Option<Self> {
        Some(match n {
            0 => Self::Key,
            1 => Self::Version,
            2 => Self::Create,
            3 => Self::Mod,
            4 => Self::Value,
            _ => return None,
        })
    }
}

/// Reads a key or a range of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RangeRequest {
    /// The key or the start of the range.
    pub key: Bytes,
    /// Empty for one key, `"\0"` for every key from `key` on, else exclusive end.
    pub range_end: Bytes,
    /// The most pairs to return; 0 or less means all.
    pub limit: i64,
    /// The revision to read at; 0 (and, outside a txn, less) means now.
    pub revision: i64,
    /// The order of the reply.
    pub sort_order: SortOrder,
    /// What to order by.
    pub sort_target: SortTarget,
    /// Permits an answer from this member without asking the others.
    pub serializable: bool,
    /// Leaves the values out.
    pub keys_only: bool,
    /// Returns only the count.
    pub count_only: bool,
    /// The smallest mod revision to return, 0 for no bound.
    pub min_mod_revision: i64,
    /// The largest mod revision to return, 0 for no bound.
    pub max_mod_revision: i64,
    /// The smallest create revision to return, 0 for no bound.
    pub min_create_revision: i64,
    /// The largest create revision to return, 0 for no bound.
    pub max_create_revision: i64,
}

/// Says which way a comparison must come out: `stored <result> given`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompareResult {
    /// Stored equals given.
    #[default]
    Equal,
    /// Stored is greater than given.
    Greater,
    /// Stored is less than given.
    Less,
    /// Stored differs from given.
    NotEqual,
}

impl CompareResult {
    /// Maps the protobuf number, or `None` for an unknown one.
    pub fn from_i32(n: i32) -> Option<Self> {
        Some(match n {
            0 => Self::Equal,
            1 => Self::Greater,
            2 => Self::Less,
            3 => Self::NotEqual,
            _ => return None,
        })
    }
}

/// Says what is compared, and with which given value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompareTarget {
    /// The number of writes since creation; 0 when the key is absent.
    Version(i64),
    /// The revision of creation; 0 when absent.
    CreateRevision(i64),
    /// The revision of the last write; 0 when absent.
    ModRevision(i64),
    /// The value; always false when the key is absent.
    Value(Bytes),
    /// The lease; 0 when absent.
    Lease(i64),
}

/// Is one condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key or the start of the range.
    pub key: Bytes,
    /// Empty for one key, else every key in the range must hold.
    pub range_end: Bytes,
    /// The way the comparison must come out.
    pub result: CompareResult,
    /// What is compared.
    pub target: CompareTarget,
}

/// Is one operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOp {
    /// Reads.
    Range(RangeRequest),
    /// Writes.
    Put(PutRequest),
    /// Deletes.
    DeleteRange(DeleteRangeRequest),
    /// Nests.
    Txn(TxnRequest),
    /// Stands for a `RequestOp` whose oneof is unset; always refused with
    /// [`crate::Error::KeyNotFound`], as etcd does.
    Empty,
}

/// Runs `success` if every condition holds, else `failure`, as one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TxnRequest {
    /// The conditions, all of which must hold.
    pub compare: Vec<Compare>,
    /// What to do when they do.
    pub success: Vec<RequestOp>,
    /// What to do when one does not.
    pub failure: Vec<RequestOp>,
}

impl TxnRequest {
    /// Reports whether both branches only range. Such a txn is answered by
    /// [`crate::StateMachine::txn_readonly`] after a read index and never enters
    /// the log. One inside another enters it, as in etcd (`IsTxnReadonly`), and
    /// is refused with all else that does under an alarm.
    pub fn is_readonly(&self) -> bool {
        self.ops()
            .all(|op| matches!(op, RequestOp::Range(_) | RequestOp::Empty))
    }

    /// Reports whether every range at any depth is serializable, so that a
    /// read-only txn may be answered without a read index.
    pub fn is_serializable(&self) -> bool {
        self.ops().all(|op| match op {
            RequestOp::Range(r) => r.serializable,
            RequestOp::Put(_)
            | RequestOp::DeleteRange(_)
            | RequestOp::Txn(_)
            | RequestOp::Empty => false,
        })
    }

    fn ops(&self) -> impl Iterator<Item = &RequestOp> {
        self.success.iter().chain(&self.failure)
    }
}

/// Forgets history below a revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompactRequest {
    /// The revision that becomes the oldest readable one.
    pub revision: i64,
    /// Asks that the reply waits for physical deletion; the shell's concern.
    pub physical: bool,
}

/// Creates a lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseGrantRequest {
    /// The lease; the proposer has already replaced 0 by a number of its choice.
    pub id: LeaseId,
    /// Seconds to live as asked; raised to the configured minimum.
    pub ttl: i64,
}

/// Ends a lease and deletes its keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseRevokeRequest {
    /// The lease.
    pub id: LeaseId,
}

/// Records what was left of some leases, so that a new leader does not give
/// them their full time again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseCheckpointRequest {
    /// Lease and seconds left; 0 clears the record.
    pub checkpoints: Vec<(LeaseId, i64)>,
}

/// Names a kind of alarm; the numbers are the protobuf ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmKind {
    /// A member ran out of quota.
    NoSpace = 1,
    /// A member's data disagrees with the others'.
    Corrupt = 2,
}

impl AlarmKind {
    /// Maps the protobuf number; `None` for 0 (NONE) and unknown ones.
    pub fn from_i32(n: i32) -> Option<Self> {
        Some(match n {
            1 => Self::NoSpace,
            2 => Self::Corrupt,
            _ => return None,
        })
    }
}

/// Is one raised alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    /// The member it is about.
    pub member: u64,
    /// What is wrong.
    pub kind: AlarmKind,
}

/// Is everything that can change replicated state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Stores a value.
    Put(PutRequest),
    /// Deletes keys.
    DeleteRange(DeleteRangeRequest),
    /// Runs a transaction.
    Txn(TxnRequest),
    /// Compacts history.
    Compact(CompactRequest),
    /// Creates a lease.
    LeaseGrant(LeaseGrantRequest),
    /// Ends a lease.
    LeaseRevoke(LeaseRevokeRequest),
    /// Records remaining times.
    LeaseCheckpoint(LeaseCheckpointRequest),
    /// Raises an alarm.
    AlarmActivate(Alarm),
    /// Clears an alarm.
    AlarmDeactivate(Alarm),
    /// Changes users, roles, or whether callers are checked.
    Auth(AuthCommand),
    /// Announces that the cluster goes back to an older version; `None` calls it off.
    Downgrade(Option<String>),
    /// Changes who the members are.
    Member(MemberCommand),
}

impl Command {
    /// Estimates how much the command would add to the store, as etcd's quota
    /// does: 256 bytes over key and value per put, 1 KiB per lease.
    pub fn quota_cost(&self) -> u64 {
        match self {
            Self::Put(p) => put_cost(p),
            Self::Txn(t) => txn_cost(t),
            Self::LeaseGrant(_) => LEASE_OVERHEAD_BYTES,
            Self::DeleteRange(_)
            | Self::Compact(_)
            | Self::LeaseRevoke(_)
            | Self::LeaseCheckpoint(_)
            | Self::AlarmActivate(_)
            | Self::AlarmDeactivate(_)
            | Self::Auth(_)
            | Self::Downgrade(_)
            | Self::Member(_) => 0,
        }
    }
}

/// What a key costs beside its bytes (etcd `storage/quota.go`, kvOverhead).
const KV_OVERHEAD_BYTES: u64 = 256;
/// What a lease costs (etcd `storage/quota.go`, leaseOverhead 64 + key 40, rounded up).
const LEASE_OVERHEAD_BYTES: u64 = 1024;

fn put_cost(p: &PutRequest) -> u64 {
    KV_OVERHEAD_BYTES + p.key.len() as u64 + p.value.len() as u64
}

fn txn_cost(t: &TxnRequest) -> u64 {
    let branch = |ops: &[RequestOp]| -> u64 {
        ops.iter()
            .map(|op| match op {
                RequestOp::Put(p) => put_cost(p),
                RequestOp::Txn(t) => txn_cost(t),
                RequestOp::Range(_) | RequestOp::DeleteRange(_) | RequestOp::Empty => 0,
            })
            .sum()
    };
    branch(&t.success).max(branch(&t.failure))
}

/// Is a command with the number that tells its copies apart from itself: raft
/// may deliver a forwarded or retried proposal twice, apply does it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Unique over the cluster's life; 0 opts out of de-duplication.
    pub id: u64,
    /// The index its proposer had applied when it made this; every copy lies behind
    /// it. An entry much further behind is refused, see [`crate::PROPOSAL_WINDOW`].
    /// `None` is what older builds wrote, and is never refused for its age.
    pub since: Option<u64>,
    /// Who asked for it, if callers are checked. `None` is the member itself and
    /// what embeds it, which may do everything.
    pub identity: Option<Identity>,
    /// What to do.
    pub command: Command,
}
