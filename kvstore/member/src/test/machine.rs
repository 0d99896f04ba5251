//! A state machine small enough to compare whole: which proposal was applied where,
//! and who is a member.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Change, ConfState, EntryKind, LogEntry, Member, SnapshotMeta, decode_change};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) applied: u64,
    pub(super) term: u64,
    pub(super) conf: ConfState,
    /// Proposals by their id: the index of their first copy.
    pub(super) values: BTreeMap<u64, u64>,
    /// Those who left; they never come back.
    pub(super) removed: BTreeSet<u64>,
}

impl Machine {
    pub(super) fn new(conf: ConfState) -> Self {
        Self {
            conf,
            ..Self::default()
        }
    }

    pub(super) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta {
            index: self.applied,
            term: self.term,
            conf_state: self.conf.clone(),
        }
    }

    /// Applies an entry, as a server does; returns the proposal in it.
    pub(super) fn apply(&mut self, entry: &LogEntry, member: &mut Member) -> Option<u64> {
        assert_eq!(entry.index, self.applied + 1, "a gap, or twice");
        (self.applied, self.term) = (entry.index, entry.term);
        if entry.kind == EntryKind::Normal {
            let id = id_in(&entry.data)?;
            self.values.entry(id).or_insert(entry.index);
            return Some(id);
        }
        let found = decode_change(entry).unwrap();
        if let Some(change) = found.change {
            if !self.accepts(change) {
                return id_in(&found.context);
            }
            member.check_change(change).unwrap();
            if let Change::Remove(id) = change {
                self.removed.insert(id);
            }
        }
        self.conf = member.apply_change(entry).unwrap();
        id_in(&found.context)
    }

    /// Validates a change (etcd: membership/cluster.go, ValidateConfigurationChange).
    pub(super) fn accepts(&self, change: Change) -> bool {
        match change {
            Change::AddVoter(id) | Change::AddLearner(id) => {
                !self.conf.contains(id) && !self.removed.contains(&id)
            }
            Change::Promote(id) => self.conf.is_learner(id),
            Change::Remove(id) => {
                let alone = self.conf.voters.len() == 1 && self.conf.is_voter(id);
                self.conf.contains(id) && !self.removed.contains(&id) && !alone
            }
        }
    }
}

fn id_in(data: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(data.try_into().ok()?))
}
