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
    eraftpb::{Entry, HardState as RaftHardState, Snapshot},
};

use crate::{
    conf::ConfState,
    entry::{HardState, LogEntry, raft_entry_size},
    snapshot::SnapshotMeta,
};

/// Most entries given out at once where raft limits their bytes: a message or a
/// batch to apply of many small ones stays short too.
const ENTRIES_GIVEN_MAX: usize = 2_048;

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

    /// Returns whether the log goes on from a snapshot: it holds the snapshot's last
    /// entry, or begins right behind it. A log for which this is not so is void
    /// (what [`Persist::snapshot`](crate::Persist) asked for was not finished).
    pub fn goes_on_from(&self, index: u64, term: u64) -> bool {
        if index == self.base_index {
            return term == self.base_term;
        }
        let at = |first: &LogEntry| usize::try_from(index.checked_sub(first.index)?).ok();
        let found = self.entries.first().and_then(at);
        found
            .and_then(|at| self.entries.get(at))
            .is_some_and(|entry| entry.term == term)
    }
}

#[derive(Debug)]
pub(crate) struct LogView {
    hard_state: RaftHardState,
    /// As of `applied`, and so is everything a snapshot says.
    conf_state: ConfState,
    applied: u64,
    base_index: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
    /// Bytes of all entries, about.
    bytes: u64,
}

impl LogView {
    pub(crate) fn new(recovered: Recovered, conf_state: ConfState, applied: u64) -> Self {
        let entries: VecDeque<Entry> = recovered.entries.into_iter().map(Entry::from).collect();
        Self {
            hard_state: recovered.hard_state.into(),
            conf_state,
            applied,
            base_index: recovered.base_index,
            base_term: recovered.base_term,
            bytes: entries.iter().map(raft_entry_size).sum(),
            entries,
        }
    }

    pub(crate) fn conf_state(&self) -> &ConfState {
        &self.conf_state
    }

    pub(crate) fn set_conf_state(&mut self, conf_state: ConfState) {
        self.conf_state = conf_state;
    }

    pub(crate) fn set_applied(&mut self, applied: u64) {
        self.applied = applied;
    }

    /// Begins anew behind a snapshot.
    pub(crate) fn reset(&mut self, meta: &SnapshotMeta) {
        self.entries.clear();
        self.bytes = 0;
        self.base_index = meta.index;
        self.base_term = meta.term;
        self.applied = meta.index;
        self.conf_state = meta.conf_state.clone();
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
        for gone in self.entries.drain(keep..) {
            self.bytes -= raft_entry_size(&gone);
        }
        self.bytes += entries.iter().map(raft_entry_size).sum::<u64>();
        self.entries.extend(entries.iter().cloned());
    }

    /// Forgets all entries up to `index`, which must have been applied.
    pub(crate) fn release(&mut self, index: u64) {
        while let Some(first) = self.entries.front() {
            if first.index > index {
                break;
            }
            self.pop_first();
        }
    }

    /// Forgets entries up to `index`, oldest first, until all take at most `bytes`.
    pub(crate) fn release_bytes(&mut self, index: u64, bytes: u64) {
        while self.bytes > bytes
            && let Some(first) = self.entries.front()
            && first.index <= index
        {
            self.pop_first();
        }
    }

    fn pop_first(&mut self) {
        if let Some(first) = self.entries.pop_front() {
            self.base_index = first.index;
            self.base_term = first.term;
            self.bytes -= raft_entry_size(&first);
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
            self.conf_state.clone().into(),
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
        // Without a limit raft looks for something among all of them.
        let max_size = max_size.into().filter(|max| *max != raft::NO_LIMIT);
        let (bytes_max, count_max) =
            max_size.map_or((u64::MAX, usize::MAX), |max| (max, ENTRIES_GIVEN_MAX));
        let mut found = Vec::new();
        let mut bytes = 0;
        for entry in (low..high).map_while(|index| self.at(index)) {
            bytes += raft_entry_size(entry);
            if !found.is_empty() && (bytes > bytes_max || found.len() >= count_max) {
                break;
            }
            found.push(entry.clone());
        }
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
        // Only what it would be: the caller makes it, from the state machine as it is
        // by then. Nothing applied is nothing to send.
        let term = self.term(self.applied);
        let (Ok(term), true) = (term, self.applied > 0) else {
            return Err(RaftError::Store(
                StorageError::SnapshotTemporarilyUnavailable,
            ));
        };
        let meta = SnapshotMeta {
            index: self.applied,
            term,
            conf_state: self.conf_state.clone(),
        };
        let mut snapshot = Snapshot::default();
        snapshot.set_metadata(meta.into());
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::entry::EntryKind;

    fn recovered(base: (u64, u64), terms: &[u64]) -> Recovered {
        let indexes = base.0 + 1..;
        let entries = indexes.zip(terms).map(|(index, term)| LogEntry {
            term: *term,
            index,
            kind: EntryKind::Normal,
            data: Bytes::from_static(b"1234"),
        });
        Recovered {
            base_index: base.0,
            base_term: base.1,
            entries: entries.collect(),
            ..Recovered::default()
        }
    }

    #[test]
    fn a_log_goes_on_from_a_snapshot_it_holds_the_end_of() {
        let log = recovered((4, 2), &[2, 3, 3]);
        assert!(log.goes_on_from(4, 2) && log.goes_on_from(5, 2) && log.goes_on_from(7, 3));
        assert!(
            !log.goes_on_from(4, 1) && !log.goes_on_from(6, 2),
            "another's entry"
        );
        assert!(
            !log.goes_on_from(8, 3) && !log.goes_on_from(3, 2),
            "not there"
        );
        assert!(!recovered((0, 0), &[]).goes_on_from(1, 1));
    }

    #[test]
    fn memory_is_counted_and_bounded() {
        let mut view = LogView::new(recovered((0, 0), &[1; 10]), ConfState::default(), 10);
        let all = view.bytes;
        view.release_bytes(4, 0);
        assert_eq!((view.first_index().unwrap(), view.bytes), (5, all / 10 * 6));
        let mut again = view.entries[3].clone();
        again.term = 2;
        view.append(&[again]);
        assert_eq!((view.last(), view.bytes), (8, all / 10 * 4));
        view.release_bytes(10, all / 10 * 3);
        assert_eq!(view.len(), 3);
        view.release(8);
        assert_eq!((view.bytes, view.term(8).unwrap()), (0, 2));
    }

    #[test]
    fn a_limit_counts_and_without_one_everything_is_given() {
        let view = LogView::new(recovered((0, 0), &[1; 5_000]), ConfState::default(), 0);
        let given = |max: Option<u64>| {
            let context = GetEntriesContext::empty(false);
            view.entries(1, 5_001, max, context).unwrap().len()
        };
        assert_eq!(given(Some(1 << 30)), ENTRIES_GIVEN_MAX);
        assert_eq!(given(Some(0)), 1, "one always");
        assert_eq!(given(Some(360)), 10);
        assert_eq!(
            given(None),
            5_000,
            "raft looks for a membership change in all"
        );
    }
}
