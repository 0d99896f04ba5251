//! A store that is nothing but its history.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::Object;

use crate::model::key;

pub(super) type State = BTreeMap<Arc<str>, Arc<Object>>;

/// A change of one key.
pub(super) struct Entry {
    pub(super) key: Arc<str>,
    pub(super) revision: u64,
    pub(super) before: Option<Arc<Object>>,
    pub(super) now: Option<Arc<Object>>,
}

pub(super) struct Store {
    pub(super) history: Vec<Entry>,
    pub(super) revision: u64,
    pub(super) compacted: u64,
    /// What the cacher was told of that.
    pub(super) told_compacted: u64,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            history: Vec::new(),
            revision: 1,
            compacted: 0,
            told_compacted: 0,
        }
    }

    /// Changes keys in one transaction; what is not there is not deleted.
    pub(super) fn write(&mut self, what: Vec<(usize, Option<Arc<Object>>)>) {
        let present = self.state_at(self.revision);
        let revision = self.revision + 1;
        for (at, now) in what {
            let key = key(at);
            let before = present.get(&key).cloned();
            if before.is_none() && now.is_none() {
                continue;
            }
            self.revision = revision;
            self.history.push(Entry {
                key,
                revision,
                before,
                now,
            });
        }
    }

    pub(super) fn state_at(&self, revision: u64) -> State {
        let mut state = State::new();
        for entry in self.history.iter().filter(|e| e.revision <= revision) {
            match &entry.now {
                Some(o) => state.insert(entry.key.clone(), o.clone()),
                None => state.remove(&entry.key),
            };
        }
        state
    }

    /// Checks that what the cache has is the state at a revision.
    pub(super) fn same<'a>(
        &self,
        revision: u64,
        cached: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)>,
    ) {
        let facts = |(key, o): (&Arc<str>, &Arc<Object>)| {
            (key.clone(), o.resource_version, o.body().clone())
        };
        let state = self.state_at(revision);
        let want: Vec<_> = state.iter().map(facts).collect();
        let got: Vec<_> = cached.map(facts).collect();
        assert_eq!(got, want, "at {revision}");
    }

    /// Returns where the entries after a revision begin.
    pub(super) fn first_after(&self, revision: u64) -> usize {
        self.history.partition_point(|e| e.revision <= revision)
    }

    /// Returns where the revision ends that begins at an entry.
    pub(super) fn end_of_revision(&self, at: usize) -> usize {
        match self.history.get(at) {
            Some(entry) => self.first_after(entry.revision),
            None => at,
        }
    }

    pub(super) fn count_after(&self, from: u64, to: u64) -> usize {
        self.first_after(to).saturating_sub(self.first_after(from))
    }

    /// Forgets everything after a revision.
    pub(super) fn restore(&mut self, revision: u64) {
        self.history.truncate(self.first_after(revision));
        self.revision = revision;
        self.compacted = self.compacted.min(revision);
    }
}
