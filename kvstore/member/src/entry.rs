//! The log's own types: what is written to disk and what is applied.
//!
//! They mirror raft's protobuf types without being them, so that no third
//! party's encoding is in a file. A membership change travels in raft's `context`,
//! in our own bytes (module `change`); raft reads nothing of its own form but
//! whether it is empty.

use bytes::Bytes;
use raft::eraftpb;

/// What an entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Carries a command of the state machine, or nothing: a new leader's mark.
    Normal,
    /// Carries a membership change in raft's first form.
    ConfChange,
    /// Carries a membership change ([`decode_change`](crate::decode_change)), or
    /// nothing: the end of a joint configuration.
    ConfChangeV2,
}

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Term of the leader that appended it.
    pub term: u64,
    /// Place in the log, from one, without gaps.
    pub index: u64,
    /// What it asks for.
    pub kind: EntryKind,
    /// The command; empty for a new leader's mark.
    pub data: Bytes,
}

/// What a member must never forget between two elections (Raft paper, figure 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The latest term this member has seen.
    pub term: u64,
    /// The member it voted for in that term; zero is nobody.
    pub vote: u64,
    /// The highest index known to be committed. Losing it is harmless.
    pub commit: u64,
}

/// What raft is shown of a membership change: its encoding of one change of nobody.
const CHANGE_MARK: Bytes = Bytes::from_static(&[0x12, 0x00]);

/// Bytes an entry takes in memory beside its data, about.
const ENTRY_OVERHEAD: u64 = 32;

impl LogEntry {
    /// Returns about how many bytes it takes.
    pub(crate) fn size(&self) -> u64 {
        self.data.len() as u64 + ENTRY_OVERHEAD
    }
}

/// Returns about how many bytes an entry of raft takes.
pub(crate) fn raft_entry_size(entry: &eraftpb::Entry) -> u64 {
    (entry.data.len() + entry.context.len()) as u64 + ENTRY_OVERHEAD
}

impl From<&eraftpb::Entry> for LogEntry {
    fn from(entry: &eraftpb::Entry) -> Self {
        let kind = match entry.get_entry_type() {
            eraftpb::EntryType::EntryNormal => EntryKind::Normal,
            eraftpb::EntryType::EntryConfChange => EntryKind::ConfChange,
            eraftpb::EntryType::EntryConfChangeV2 => EntryKind::ConfChangeV2,
        };
        Self {
            term: entry.term,
            index: entry.index,
            kind,
            data: match kind {
                EntryKind::ConfChangeV2 => entry.context.clone(),
                EntryKind::Normal | EntryKind::ConfChange => entry.data.clone(),
            },
        }
    }
}

impl From<LogEntry> for eraftpb::Entry {
    fn from(entry: LogEntry) -> Self {
        let kind = match entry.kind {
            EntryKind::Normal => eraftpb::EntryType::EntryNormal,
            EntryKind::ConfChange => eraftpb::EntryType::EntryConfChange,
            EntryKind::ConfChangeV2 => eraftpb::EntryType::EntryConfChangeV2,
        };
        let mut out = Self::default();
        out.set_entry_type(kind);
        out.term = entry.term;
        out.index = entry.index;
        if entry.kind == EntryKind::ConfChangeV2 && !entry.data.is_empty() {
            out.data = CHANGE_MARK;
            out.context = entry.data;
        } else {
            out.data = entry.data;
        }
        out
    }
}

impl From<&eraftpb::HardState> for HardState {
    fn from(state: &eraftpb::HardState) -> Self {
        Self {
            term: state.term,
            vote: state.vote,
            commit: state.commit,
        }
    }
}

impl From<HardState> for eraftpb::HardState {
    fn from(state: HardState) -> Self {
        Self {
            term: state.term,
            vote: state.vote,
            commit: state.commit,
            ..Self::default()
        }
    }
}
