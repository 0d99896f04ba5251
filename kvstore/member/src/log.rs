//! raft's view of the log: the recent entries in memory.
//!
//! raft asks its storage synchronously inside a step, so the answer must be in
//! memory. Entries leave this view once the state machine's write-back covers
//! them ([`LogView::release`]); the term of the last released entry stays, because
//! raft still compares against it.
//!
//! Invariant: `entries[i].index == base_index + 1 + i`.

use std::collections::VecDeque;

use raft::{
    Error as RaftError, GetEntriesContext, RaftState, Result as RaftResult, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState as RaftHardState, Snapshot},
    util::limit_size,
};

use crate::entry::{HardState, LogEntry};

/// What the disk remembered: the start of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Term, vote and commit as last written.
    pub hard_state: HardState,
    /// Index of the entry just before [`Recovered::entries`]; zero at the beginning.
    pub base_index: u64,
    /// Term of that entry.
    pub base_term: u64,
    /// The entries after it, without gaps.
    pub entries: Vec<LogEntry>,
}

impl Recovered {
    /// Returns the index of the last entry known.
    pub fn last_index(&self) -> u64 {
        self.entries
            .last()
            .map_or(self.base_index, |entry| entry.index)
    }
}

#[derive(Debug)]
pub(crate) struct LogView {
    hard_state: RaftHardState,
    conf_state: ConfState,
    base_index: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
}

impl LogView {
    pub(crate) fn new(recovered: Recovered, voters: Vec<u64>) -> Self {
        let mut conf_state = ConfState::default();
        conf_state.set_voters(voters);
        Self {
            hard_state: recovered.hard_state.into(),
            conf_state,
            base_index: recovered.base_index,
            base_term: recovered.base_term,
            entries: recovered.entries.into_iter().map(Entry::from).collect(),
        }
    }

    /// Appends `entries`, replacing whatever conflicts with them.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index > self.base_index,
            "raft overwrites a released entry"
        );
        let keep = first.index - self.base_index - 1;
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        assert!(keep <= self.entries.len(), "raft leaves a gap in the log");
        self.entries.truncate(keep);
        self.entries.extend(entries.iter().cloned());
    }

    /// Forgets all entries up to `index`, which must have been applied.
    pub(crate) fn release(&mut self, index: u64) {
        while let Some(first) = self.entries.front() {
            if first.index > index {
                break;
            }
            self.base_index = first.index;
            self.base_term = first.term;
            self.entries.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn at(&self, index: u64) -> Option<&Entry> {
        let at = index.checked_sub(self.base_index + 1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    fn last(&self) -> u64 {
        self.entries
            .back()
            .map_or(self.base_index, |entry| entry.index)
    }
}

impl Storage for LogView {
    fn initial_state(&self) -> RaftResult<RaftState> {
        Ok(RaftState::new(
            self.hard_state.clone(),
            self.conf_state.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> RaftResult<Vec<Entry>> {
        if low <= self.base_index {
            return Err(RaftError::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(RaftError::Store(StorageError::Unavailable));
        }
        let mut found: Vec<Entry> = (low..high)
            .filter_map(|index| self.at(index).cloned())
            .collect();
        limit_size(&mut found, max_size.into());
        Ok(found)
    }

    fn term(&self, index: u64) -> RaftResult<u64> {
        if index == self.base_index {
            return Ok(self.base_term);
        }
        if index < self.base_index {
            return Err(RaftError::Store(StorageError::Compacted));
        }
        let entry = self
            .at(index)
            .ok_or(RaftError::Store(StorageError::Unavailable))?;
        Ok(entry.term)
    }

    fn first_index(&self) -> RaftResult<u64> {
        Ok(self.base_index + 1)
    }

    fn last_index(&self) -> RaftResult<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> RaftResult<Snapshot> {
        // Asked for only by a leader with a follower that fell behind; streaming
        // snapshots come with the three-member store.
        Err(RaftError::Store(
            StorageError::SnapshotTemporarilyUnavailable,
        ))
    }
}
