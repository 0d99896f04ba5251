//! One member of the replicated store, as a value.
//!
//! [`Member::step`] takes one [`Input`] (a tick, proposals, reads, a peer's
//! message, "this is on disk now") and the time, and returns the [`Output`]s
//! the caller must carry out, in order. Consensus is crate `raft`; what this
//! crate adds is the order of obligations around it:
//!
//! 1. messages of a leader may leave before its own disk write ([`Output::Send`]);
//! 2. entries and hard state are persisted ([`Output::Persist`]); messages that
//!    promise something to others leave only after that;
//! 3. committed entries are applied ([`Output::Apply`]), a bounded number in one
//!    step, and only then are the proposer and the readers that waited for them
//!    answered ([`Output::ReadReady`]).
//!
//! The caller carries out all outputs of one step before the next step, except
//! that the disk write of a `Persist` may be finished later: it is then reported
//! by [`Input::Persisted`], in order. While [`Member::wants_turn`] says so there is
//! more to do without anything new happening.
//!
//! Membership ([`Input::ProposeChange`], [`Member::apply_change`]), snapshots
//! ([`Output::SendSnapshot`], [`Output::Install`]) and followers' reads
//! ([`Output::AskLeader`]) are described where they are implemented: modules
//! `change`, `snapshot` and `reads`. Where raft 0.7 has a flaw that a member could
//! meet, the workaround is beside the code it concerns, with its reason.
//!
//! This crate is pure: no clock, thread, file, socket or random source it was not
//! given; the simulator and the server drive the same code.
//!
//! Deliberately absent: applying commands (crate `mvcc`), the log on disk (crate
//! `disk`), carrying messages, forwarding a follower's proposals to the leader (the
//! server's business, because raft's own forwarding can duplicate and lose them),
//! and the content of snapshots.

mod change;
mod codec;
mod conf;
mod core;
mod entry;
mod input;
mod log;
mod output;
mod peers;
mod reads;
mod ready;
mod rng;
mod snapshot;
#[cfg(test)]
mod test;
mod wire;

pub use crate::{
    change::{CHANGES_WAITING_MAX, Change, ChangeError, ConfEntry, decode_change, encode_change},
    codec::{CodecError, decode_entry, decode_hard_state, encode_entry, encode_hard_state},
    conf::ConfState,
    core::{Member, PROPOSALS_UNCOMMITTED_BYTES_MAX},
    entry::{EntryKind, HardState, LogEntry},
    input::{Config, Input, MemberError, PeerMessage, Proposal},
    log::Recovered,
    output::{Output, Persist, Refusal, Role, Standing},
    peers::{PeerProgress, PeerState},
    reads::{READS_WAITING_MAX, ReadId, ReadRefusal},
    ready::APPLY_ENTRIES_MAX,
    snapshot::{SnapshotMeta, snapshot_message, snapshot_meta},
    wire::{decode_conf_state, decode_message, encode_conf_state, encode_message, is_append},
};
