//! What a member is told: its configuration and what can happen to it.

use std::time::Duration;

use bytes::Bytes;
use raft::{Error as RaftError, eraftpb::Message};
use thiserror::Error;

use crate::{change::Change, conf::ConfState, reads::ReadId};

/// A message between members. The caller carries it as the bytes that
/// [`encode_message`](crate::encode_message) makes, in its own frames.
pub type PeerMessage = Message;

/// Says how a member behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member; not zero.
    pub id: u64,
    /// All members as of `applied`. Empty for one that joins and has not been sent
    /// its first snapshot yet.
    pub conf_state: ConfState,
    /// Differs between two starts of the same member, at random over all 64 bits:
    /// read attempts are counted from it.
    pub boot_id: u64,
    /// Highest index the state machine holds on disk.
    pub applied: u64,
    /// Ticks without a leader until an election, at least.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// Whether it asks before it stands for election, so that a member that was cut
    /// off does not disturb the others.
    pub pre_vote: bool,
    /// Seed of the election timeouts.
    pub seed: u64,
    /// After how long an unanswered read is asked again, with a fresh number.
    pub read_retry: Duration,
    /// After how long a read is given up ([`ReadRefusal::Timeout`](crate::ReadRefusal)).
    pub read_timeout: Duration,
    /// Applied entries kept in memory for peers that lag. A lone member keeps none.
    pub catch_up_entries: u64,
}

/// Something a client wants in the log. The caller makes the id unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Names it in [`Output::Refused`](crate::Output::Refused).
    pub id: u64,
    /// What will be in [`LogEntry::data`](crate::LogEntry::data); not empty.
    pub data: Bytes,
}

/// What can happen to a member.
#[derive(Debug)]
pub enum Input {
    /// One tick of time passed.
    Tick,
    /// Nothing new; goes on with what the step before left
    /// ([`Member::wants_turn`](crate::Member::wants_turn)).
    Turn,
    /// A leader is wanted now, without waiting for an election timeout.
    Campaign,
    /// Clients want these in the log, in this order.
    Propose(Vec<Proposal>),
    /// Somebody wants the membership changed. One change at a time is under way;
    /// others wait, [`CHANGES_WAITING_MAX`](crate::CHANGES_WAITING_MAX) at most.
    ProposeChange {
        /// Names it in [`Output::Refused`](crate::Output::Refused).
        id: u64,
        /// The change.
        change: Change,
        /// What the state machine makes of it; comes back in
        /// [`ConfEntry::context`](crate::ConfEntry::context).
        context: Bytes,
    },
    /// A client wants to read everything acknowledged before now.
    Read(ReadId),
    /// A peer asks for an index that is safe to read at, on behalf of its clients.
    ReadFor {
        /// Who asks.
        peer: u64,
        /// Its number for the question.
        attempt: u64,
    },
    /// The leader answered a question of [`Output::AskLeader`](crate::Output::AskLeader).
    ReadAnswer {
        /// The question.
        attempt: u64,
        /// The index; none when whoever was asked does not lead.
        index: Option<u64>,
    },
    /// A peer sent a message.
    Peer(Box<PeerMessage>),
    /// A message to this peer was lost.
    Unreachable(u64),
    /// The snapshot of an [`Output::SendSnapshot`](crate::Output::SendSnapshot) was
    /// taken in by the peer, or it failed. To be reported for each one: until then
    /// the peer is sent nothing.
    SnapshotSent {
        /// To whom it was sent.
        peer: u64,
        /// Whether it got there.
        ok: bool,
    },
    /// This voter should lead instead, as soon as it has the whole log. Of no
    /// effect on a member that does not lead; given up after an election timeout.
    Transfer(u64),
    /// The [`Persist`](crate::Persist) of this number and all before it are on disk.
    Persisted(u64),
    /// The state machine's own storage holds everything up to this index.
    Covered(u64),
}

/// Says why a member cannot be.
#[derive(Debug, Error)]
pub enum MemberError {
    /// The log ends before what the state machine already holds: synced data
    /// was lost, and voting with it would break the cluster.
    #[error("log ends at index {last} but index {applied} was already applied: its tail is lost")]
    TailLost {
        /// Last index of the log.
        last: u64,
        /// Highest index the state machine holds.
        applied: u64,
    },
    /// The log begins after the first entry the state machine needs.
    #[error("log begins at index {first} but the state machine needs {needed}")]
    HeadLost {
        /// First index of the log.
        first: u64,
        /// First index needed.
        needed: u64,
    },
    /// raft refuses the configuration.
    #[error("raft: {0}")]
    Raft(#[from] RaftError),
}
