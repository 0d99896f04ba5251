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
//! 3. committed entries are applied ([`Output::Apply`]), and only then are the
//!    proposer and the readers that waited for them answered
//!    ([`Output::ReadReady`]).
//!
//! The caller carries out all outputs of one step before the next step, except
//! that the disk write of a `Persist` may be finished later: it is then reported
//! by [`Input::Persisted`], in order.
//!
//! This crate is pure: no clock, thread, file, socket or random source it was not
//! given; the simulator and the server drive the same code.
//!
//! Deliberately absent: applying commands (crate `mvcc`), the log on disk (crate
//! `disk`), forwarding a follower's proposals and reads to the leader (an RPC of
//! the server, because raft's own forwarding can duplicate and lose them), and
//! membership changes and snapshots, which come with the three-member store.

mod codec;
mod core;
mod entry;
mod log;
mod reads;
mod rng;
#[cfg(test)]
mod test;

pub use crate::{
    codec::{CodecError, decode_entry, decode_hard_state, encode_entry, encode_hard_state},
    core::{Config, Input, Member, MemberError, Output, PeerMessage, Persist, Proposal, Refusal},
    core::{PROPOSALS_UNCOMMITTED_BYTES_MAX, Role, Standing},
    entry::{EntryKind, HardState, LogEntry},
    log::Recovered,
    reads::{READS_WAITING_MAX, ReadId},
};
