//! What a member tells its caller to do.

use crate::{
    entry::{HardState, LogEntry},
    input::PeerMessage,
    reads::{ReadId, ReadRefusal},
    snapshot::SnapshotMeta,
};

/// What the caller must do, in order.
#[derive(Debug)]
pub enum Output {
    /// Sends these messages, at once; losing one is allowed, and reported by
    /// [`Input::Unreachable`](crate::Input::Unreachable) when it is noticed.
    Send(Vec<PeerMessage>),
    /// Sends this peer a snapshot of the state machine as it is now, or later:
    /// [`snapshot_message`](crate::snapshot_message) puts its metadata into the
    /// message. The end is reported by
    /// [`Input::SnapshotSent`](crate::Input::SnapshotSent).
    SendSnapshot {
        /// To whom.
        peer: u64,
        /// The message that goes with it.
        message: Box<PeerMessage>,
    },
    /// Asks the leader, by a note that may be lost, for an index that is safe to
    /// read at; its answer is [`Input::ReadAnswer`](crate::Input::ReadAnswer).
    AskLeader {
        /// Whom to ask.
        leader: u64,
        /// The question's number.
        attempt: u64,
    },
    /// Answers a peer's question, by a note that may be lost.
    AnswerRead {
        /// Who asked.
        peer: u64,
        /// Its number for the question.
        attempt: u64,
        /// The index; none when this member does not lead.
        index: Option<u64>,
    },
    /// Takes the state machine of the snapshot whose message was just given in
    /// ([`Input::Peer`](crate::Input::Peer)) instead of the one so far. Comes before
    /// the [`Output::Persist`] that says the same to the log. A snapshot for which
    /// the step has no such output was not needed, and is thrown away.
    Install(SnapshotMeta),
    /// Writes this to the log and reports
    /// [`Input::Persisted`](crate::Input::Persisted) when it is there.
    Persist(Persist),
    /// Applies these entries to the state machine: at most
    /// [`APPLY_ENTRIES_MAX`](crate::APPLY_ENTRIES_MAX) in one step.
    Apply(Vec<LogEntry>),
    /// Answers these reads from the state machine as it is now.
    ReadReady(Vec<ReadId>),
    /// Tells these readers that they get no answer.
    ReadRefused {
        /// The reads.
        ids: Vec<ReadId>,
        /// Why.
        reason: ReadRefusal,
    },
    /// Tells these proposers that nothing was appended.
    Refused {
        /// The proposals.
        ids: Vec<u64>,
        /// Why.
        reason: Refusal,
    },
    /// Term, role or leader changed: proposals not answered yet may be lost and are
    /// to be sent again, to whoever leads now.
    Standing(Standing),
    /// This member is not one any more: its removal is applied, nobody waits for
    /// it. Said once.
    Removed,
    /// A leader knows that this member once had more of the log than it has: what
    /// it promised is lost, and it must not go on.
    LogLost {
        /// The index known to be committed here.
        commit: u64,
        /// Where the log ends.
        last: u64,
    },
}

/// One write to the log.
#[derive(Debug)]
pub struct Persist {
    /// Ascending; names the write in [`Input::Persisted`](crate::Input::Persisted).
    pub number: u64,
    /// The log begins anew behind this snapshot: whatever it held is void. To be
    /// written first, once the snapshot's rows are durable.
    pub snapshot: Option<SnapshotMeta>,
    /// The new hard state, if it changed. To be written before the entries.
    pub hard_state: Option<HardState>,
    /// New entries; they replace all entries from the first one's index on.
    pub entries: Vec<LogEntry>,
    /// Whether the write must be synced. Otherwise only a commit index changed,
    /// which may be lost.
    pub must_sync: bool,
    /// Whether the member waits to be told.
    pub report: bool,
}

/// Why a proposal was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This member does not lead.
    NotLeader,
    /// Too much is appended but not committed, or too many changes wait.
    TooMany,
    /// Leadership is being handed over; it may be proposed again at the next
    /// [`Output::Standing`], or after a tick if none comes.
    Transferring,
}

/// What a member is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its term.
    pub term: u64,
    /// Its role.
    pub role: Role,
    /// The leader it knows; zero is none.
    pub leader: u64,
}
