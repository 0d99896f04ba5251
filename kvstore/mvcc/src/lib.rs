//! The etcd v3 state machine, pure: commands in, replies and events out.
//!
//! This crate is the whole meaning of the store. It knows no clock, thread,
//! file or socket; the same entries applied in the same order give the same
//! state, bit for bit, on every member.
//!
//! ```text
//! Proposal --apply--> StateMachine --> Applied { result, events }
//!                        |   ^                      |
//!              WriteBack |   | Backend::get         v
//!                        v   |                  WatchHub --> WatchReply
//!                      the shell's engine
//! ```
//!
//! Words, as etcd uses them: a *revision* numbers a state of the whole store,
//! one per transaction that changed something; within it *sub* numbers the
//! changes. A *generation* of a key runs from its creation to its *tombstone*.
//! *Compaction* at revision C forgets what no read at C or later can see.
//!
//! Who may call what: [`StateMachine::apply`] is the only way to change
//! replicated state and is called from one place, in log order. Reads take
//! `&self`. Lease clocks ([`StateMachine::renew`], [`StateMachine::expired`],
//! [`StateMachine::promote`]) belong to the leader and are not replicated.
//! Users and what they may do ([`auth`]) are replicated like keys, and every
//! proposal of a client is checked against them as it is applied. So is who the
//! members are ([`membership`]), which raft hears of through
//! [`StateMachine::apply_change`].
//!
//! Deliberately absent: consensus, I/O, wire formats of clients, Kubernetes.

pub mod auth;
pub mod backend;
mod block;
mod block_cache;
pub mod check;
pub mod codec;
pub mod command;
mod compaction;
mod counted_map;
mod crc32c;
mod dedupe;
mod durable;
pub mod error;
mod hash;
pub mod import;
mod key_index;
mod key_list;
mod lessor;
pub mod machine;
pub mod membership;
mod opened;
mod page;
mod range;
mod records;
pub mod replica;
pub mod response;
mod tail;
mod txn;
mod values;
pub mod view;
pub mod watch;
mod wire;
mod write;

pub use auth::{
    Access, AuthCommand, AuthImage, AuthStore, Identity, Permission, PermissionKind, Role, Secret,
    User,
};
pub use backend::{Backend, BackendError, MemoryBackend, WriteBack};
pub use codec::CodecError;
pub use command::{
    Alarm, AlarmKind, Command, CompactRequest, Compare, CompareResult, CompareTarget,
    DeleteRangeRequest, LeaseCheckpointRequest, LeaseGrantRequest, LeaseId, LeaseRevokeRequest,
    Proposal, PutRequest, RangeRequest, RequestOp, SortOrder, SortTarget, TxnRequest,
};
pub use crc32c::Crc32c;
pub use dedupe::WINDOW as PROPOSAL_WINDOW;
pub use durable::{PackJob, Written};
pub use error::Error;
pub use hash::KvHash;
pub use import::{Import, ImportError, Start};
pub use lessor::LEASE_TTL_MAX;
pub use machine::{CompactStep, Config, LeaseStatus, Renewed, StateMachine};
pub use membership::{
    BOOTSTRAP_INDEX, BOOTSTRAP_TERM, ConfState, MemberCommand, MemberInfo, Membership,
};
pub use page::{Page, PageRequest};
pub use replica::{Replica, ReplicaError, ReplicaFrames, ReplicaHead, ReplicaImport};
pub use response::{
    AlarmReply, Applied, AuthReply, CompactReply, DeleteReply, Event, EventKind, KeyValue,
    LeaseGrantReply, LeaseReply, Pair, PutReply, RangeEnd, RangeReply, Reply, ResponseOp, TxnReply,
};
pub use view::{Change, Facts, History, HistoryCursor, LeaseFact, View};
