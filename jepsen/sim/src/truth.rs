//! What the log says, seen from above: the first member to apply an entry makes it
//! known, and every other, and every replay, must agree with it.
//!
//! Log agreement (Raft thesis, 3.5: state machine safety), state agreement, leaders
//! unique per term, values written once. From the same log comes the history that
//! answers of clients and events of watchers are held against.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use kvserver::sim::Tap;
use member::LogEntry;
use mvcc::{Applied, Command, Event, EventKind, KeyValue, LeaseId, Proposal, StateMachine};

use crate::{
    plan::Time,
    trace::{Violation, hash},
};

/// Every so many entries the states of members are compared; hashing at each would
/// take longer than all else.
const DIGEST_STRIDE: u64 = 16;

/// Violations kept; more say nothing new.
const VIOLATIONS_MAX: usize = 8;

/// One revision: what changed, in order.
#[derive(Debug, Default)]
pub(crate) struct Revision {
    /// The entry that made it.
    pub(crate) index: u64,
    /// The changes.
    pub(crate) events: Vec<Arc<Event>>,
}

/// What of a state is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest {
    revision: i64,
    compacted: i64,
    keys: u32,
    beside: u32,
}

/// A version of a key: the revision, and the pair unless it was deleted.
pub(crate) type Version = (i64, Option<KeyValue>);

/// The one history.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    now: Time,
    /// Term and hash of each entry.
    entries: BTreeMap<u64, (u64, u64)>,
    last_index: u64,
    /// From revision 2 on.
    revisions: Vec<Revision>,
    keys: BTreeMap<Bytes, Vec<Version>>,
    /// Where each value was written.
    values: BTreeMap<Bytes, i64>,
    digests: BTreeMap<u64, (u64, Digest)>,
    /// Who led in each term.
    leaders: BTreeMap<u64, u64>,
    /// The compacted revision, and since when it was at least what.
    compacted: i64,
    /// When each lease was first known to be revoked.
    revoked: BTreeMap<LeaseId, Time>,
    violations: Vec<Violation>,
    /// Comparisons made, to show that there were some.
    pub(crate) compared: u64,
}

/// The history, shared with the members' taps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Mutex<Truth>>);

impl Shared {
    /// Looks at it.
    pub(crate) fn get(&self) -> MutexGuard<'_, Truth> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what a member shows it by.
    pub(crate) fn tap(&self, member: u64) -> Box<dyn Tap> {
        Box::new(MemberTap {
            member,
            truth: self.clone(),
            first: false,
        })
    }
}

impl Truth {
    /// Notes what time it is.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Notes that something did not hold.
    pub(crate) fn blame(&mut self, checker: &'static str, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation {
                checker,
                what,
                at: self.now,
            });
        }
    }

    /// Returns what did not hold.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Forgets them, to see what else does not hold.
    #[cfg(test)]
    pub(crate) fn forget_violations(&mut self) {
        self.violations.clear();
    }

    /// Returns the newest revision.
    pub(crate) fn revision(&self) -> i64 {
        self.revisions.len() as i64 + 1
    }

    /// Returns the highest compacted revision.
    pub(crate) fn compacted(&self) -> i64 {
        self.compacted
    }

    /// Returns the last entry known to be applied by anybody.
    pub(crate) fn last_index(&self) -> u64 {
        self.last_index
    }

    /// Returns what a revision changed.
    pub(crate) fn at(&self, revision: i64) -> Option<&Revision> {
        let at = usize::try_from(revision.checked_sub(2)?).ok()?;
        self.revisions.get(at)
    }

    /// Returns the pair under a key as of a revision.
    pub(crate) fn get(&self, key: &[u8], revision: i64) -> Option<&KeyValue> {
        let versions = self.keys.get(key)?;
        let upto = versions.partition_point(|(at, _)| *at <= revision);
        versions[..upto].last()?.1.as_ref()
    }

    /// Returns the pairs of a range as of a revision, in order.
    pub(crate) fn range(&self, key: &[u8], end: &[u8], revision: i64) -> Vec<&KeyValue> {
        let keys = self.keys.keys().filter(|found| covers(key, end, found));
        keys.filter_map(|key| self.get(key, revision)).collect()
    }

    /// Returns when a lease was first known to be revoked.
    pub(crate) fn revoked(&self, lease: LeaseId) -> Option<Time> {
        self.revoked.get(&lease).copied()
    }

    /// Notes who leads.
    pub(crate) fn leads(&mut self, member: u64, term: u64) {
        let leader = *self.leaders.entry(term).or_insert(member);
        if leader != member {
            self.blame(
                "leader",
                format!("members {leader} and {member} both lead in term {term}"),
            );
        }
    }

    /// Counts the terms that had a leader.
    pub(crate) fn elections(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// Takes an entry in; says whether nobody had applied it before.
    fn entry(&mut self, member: u64, entry: &LogEntry) -> bool {
        let is = (entry.term, hash(&entry.data) ^ entry.kind as u64);
        if let Some(was) = self.entries.get(&entry.index) {
            self.compared += 1;
            if *was != is {
                let index = entry.index;
                let what = format!(
                    "member {member} applies another entry {index} (term {}) than was applied \
                     before (term {})",
                    is.0, was.0
                );
                self.blame("log agreement", what);
            }
            return false;
        }
        if self.last_index != 0 && entry.index != self.last_index + 1 {
            let what = format!(
                "member {member} applies entry {}, nobody applied the one before",
                entry.index
            );
            self.blame("log agreement", what);
        }
        self.entries.insert(entry.index, is);
        self.last_index = self.last_index.max(entry.index);
        if let Ok(proposal) = Proposal::decode(entry.data.clone())
            && let Command::LeaseRevoke(revoke) = &proposal.command
        {
            self.revoked.entry(revoke.id).or_insert(self.now);
        }
        true
    }

    fn applied(&mut self, member: u64, index: u64, applied: &Applied, first: bool) {
        if first && !applied.events.is_empty() {
            if applied.revision != self.revision() + 1 {
                let what = format!(
                    "entry {index} makes revision {} after {}",
                    applied.revision,
                    self.revision()
                );
                self.blame("revisions", what);
            }
            for event in &applied.events {
                self.learn(event);
            }
            self.revisions.push(Revision {
                index,
                events: applied.events.clone(),
            });
            return;
        }
        if first {
            return;
        }
        let known = self
            .at(applied.revision)
            .filter(|known| known.index == index);
        let known = known.map_or(&[][..], |known| &known.events);
        if !same(known, &applied.events) {
            let what = format!(
                "entry {index} changes {} at revision {} on member {member}, and {} elsewhere",
                describe(&applied.events),
                applied.revision,
                describe(known)
            );
            self.blame("state agreement", what);
        }
    }

    fn learn(&mut self, event: &Arc<Event>) {
        let pair = (event.kind == EventKind::Put).then(|| event.kv.clone());
        if let Some(pair) = &pair
            && let Some(before) = self.values.insert(pair.value.clone(), pair.mod_revision)
        {
            let what = format!(
                "value {} is written at revisions {before} and {}",
                pair.value.escape_ascii(),
                pair.mod_revision
            );
            self.blame("double apply", what);
        }
        let version = (event.kv.mod_revision, pair);
        let versions = self.keys.entry(event.kv.key.clone()).or_default();
        versions.push(version);
    }

    fn machine(&mut self, member: u64, machine: &StateMachine) {
        let index = machine.applied_index();
        self.compacted = self.compacted.max(machine.compact_revision());
        if !index.is_multiple_of(DIGEST_STRIDE) {
            return;
        }
        let keys = match machine.hash_kv(0) {
            Ok(found) => found.hash,
            Err(error) => {
                self.blame("state agreement", format!("member {member}: {error}"));
                return;
            }
        };
        let digest = Digest {
            revision: machine.revision(),
            compacted: machine.compact_revision(),
            keys,
            beside: machine.hash_beside_keys(),
        };
        let (whose, known) = *self.digests.entry(index).or_insert((member, digest));
        self.compared += 1;
        if known != digest {
            let what = format!(
                "after entry {index} member {member} is {digest:?}, member {whose} was {known:?}"
            );
            self.blame("state agreement", what);
        }
    }
}

/// Says whether a range covers a key.
pub(crate) fn covers(key: &[u8], end: &[u8], found: &[u8]) -> bool {
    match end {
        [] => found == key,
        [0] => found >= key,
        end => found >= key && found < end,
    }
}

/// Says whether two lists are the same changes.
pub(crate) fn same(a: &[Arc<Event>], b: &[Arc<Event>]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.kind == b.kind && a.kv == b.kv)
}

/// Tells changes in few words.
pub(crate) fn describe(events: &[Arc<Event>]) -> String {
    let one = |event: &Arc<Event>| {
        let key = event.kv.key.escape_ascii();
        match event.kind {
            EventKind::Put => format!("{key}={}", event.kv.value.escape_ascii()),
            EventKind::Delete => format!("-{key}"),
        }
    };
    match events {
        [] => "nothing".to_owned(),
        events => events.iter().map(one).collect::<Vec<_>>().join(" "),
    }
}

struct MemberTap {
    member: u64,
    truth: Shared,
    /// Whether nobody had applied the entry before.
    first: bool,
}

impl Tap for MemberTap {
    fn entry(&mut self, entry: &LogEntry) {
        self.first = self.truth.get().entry(self.member, entry);
    }

    fn applied(&mut self, index: u64, applied: &Applied) {
        let mut truth = self.truth.get();
        truth.applied(self.member, index, applied, self.first);
    }

    fn machine(&mut self, machine: &StateMachine) {
        self.truth.get().machine(self.member, machine);
    }
}
