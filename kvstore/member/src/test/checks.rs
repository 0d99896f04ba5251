//! What must hold whatever the network, the disks and the clients do.

use std::collections::BTreeMap;

use crate::{LogEntry, ReadId, Role, Standing};

/// Looks on from outside, as no member can.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// What was applied at which index, by whoever was first.
    log: BTreeMap<u64, LogEntry>,
    leaders: BTreeMap<u64, u64>,
    /// Proposals whose client was told, and where they were applied.
    acknowledged: BTreeMap<u64, u64>,
    /// The highest index of those.
    acknowledged_max: u64,
    /// For each read under way: what was acknowledged when it arrived.
    reads: BTreeMap<(u64, ReadId), u64>,
    /// How often what happened, so that a test can see that it happened at all.
    pub(super) seen: BTreeMap<&'static str, u64>,
}

impl Checks {
    pub(super) fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(super) fn count(&self, what: &str) -> u64 {
        self.seen.get(what).copied().unwrap_or(0)
    }

    /// One member applies an entry: everybody who applies that index applies this.
    pub(super) fn applied(&mut self, member: u64, entry: &LogEntry) {
        let first = self.log.entry(entry.index).or_insert_with(|| entry.clone());
        assert_eq!(first, entry, "member {member} applies another entry");
    }

    pub(super) fn stands(&mut self, member: u64, standing: Standing) {
        if standing.role == Role::Leader {
            let leader = *self.leaders.entry(standing.term).or_insert(member);
            assert_eq!(leader, member, "two lead in term {}", standing.term);
        }
    }

    pub(super) fn acknowledged(&mut self, id: u64, index: u64) {
        self.saw("acknowledged");
        self.acknowledged.insert(id, index);
        self.acknowledged_max = self.acknowledged_max.max(index);
    }

    pub(super) fn read_arrives(&mut self, member: u64, id: ReadId) {
        self.reads.insert((member, id), self.acknowledged_max);
    }

    pub(super) fn read_answered(&mut self, member: u64, id: ReadId, applied: u64) {
        let floor = self.reads.remove(&(member, id));
        let floor = floor.expect("a read is answered once");
        assert!(
            applied >= floor,
            "member {member} answers {id:?} as of {applied}, but {floor} was acknowledged before"
        );
        self.saw("read");
    }

    pub(super) fn read_refused(&mut self, member: u64, id: ReadId) {
        assert!(self.reads.remove(&(member, id)).is_some());
        self.saw("read refused");
    }

    /// A member crashes: nobody answers its clients.
    pub(super) fn forget_reads(&mut self, member: u64) {
        self.reads.retain(|(of, _), _| *of != member);
    }

    pub(super) fn reads_open(&self) -> usize {
        self.reads.len()
    }

    /// Whoever was told that a proposal is done finds it.
    pub(super) fn nothing_lost(&self, member: u64, values: &BTreeMap<u64, u64>) {
        for (id, index) in &self.acknowledged {
            assert_eq!(values.get(id), Some(index), "member {member} lost {id}");
        }
    }
}
