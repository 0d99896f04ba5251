//! What clients were told, compared with what the members remember.
//!
//! Nothing is compacted and no value is written twice, so the history of each
//! member is the whole truth: every acknowledged write is in it at its
//! revision; what nobody could tell is in it once or not at all; and what was
//! acknowledged before something else was asked for comes before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use crate::members::Cluster;
use faults::client::{Change, runtime};

/// A write and what its client was told.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The place of the member that was asked.
    pub(crate) member: usize,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    /// Its revision, or why nobody knows.
    pub(crate) told: Result<i64, String>,
}

/// All that clients noted.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) writes: Vec<Write>,
    /// What linearizable reads found: a value and its revision.
    pub(crate) reads: Vec<(String, i64)>,
    /// Those that found what was there no longer.
    pub(crate) stale: Vec<String>,
}

/// What a comparison found, when it found nothing wrong.
pub(crate) struct Verdict {
    revision: i64,
    acknowledged: usize,
    unknown: usize,
    unknown_but_there: usize,
    reads: usize,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged writes all there, {} of {} unanswered ones there once, \
             {} linearizable reads never stale, members equal at revision {}",
            self.acknowledged, self.unknown_but_there, self.unknown, self.reads, self.revision
        )
    }
}

impl Ledger {
    /// Compares with every running member once they are at one revision;
    /// panics with what is wrong.
    pub(crate) fn check(&self, cluster: &Cluster) -> Verdict {
        cluster.await_healthy();
        let revision = cluster.settled();
        cluster.assert_same_hash(revision);
        let mut first: Option<Vec<Change>> = None;
        for member in cluster.members.iter().filter(|m| m.is_up()) {
            let history = runtime().block_on(member.client.history(revision)).unwrap();
            match &first {
                None => first = Some(history),
                Some(first) => assert_same(first, &history, &member.name),
            }
        }
        self.check_against(&first.unwrap(), revision)
    }

    fn check_against(&self, history: &[Change], revision: i64) -> Verdict {
        assert!(self.stale.is_empty(), "stale reads: {:#?}", self.stale);
        let mut by_value: BTreeMap<&str, &Change> = BTreeMap::new();
        for change in history {
            if let Some(before) = by_value.insert(&change.value, change) {
                panic!("carried out twice: {before:?} and {change:?}");
            }
        }
        let mut verdict = Verdict {
            revision,
            acknowledged: 0,
            unknown: 0,
            unknown_but_there: 0,
            reads: self.reads.len(),
        };
        let mut revisions = BTreeSet::new();
        let mut asked = BTreeSet::new();
        for write in &self.writes {
            asked.insert(write.value.as_str());
            let found = by_value.get(write.value.as_str());
            match write.told {
                Ok(at) => {
                    assert!(
                        revisions.insert(at),
                        "acknowledged twice: revision {at}, {write:?}"
                    );
                    let there = found.is_some_and(|c| c.revision == at && c.key == write.key);
                    assert!(there, "acknowledged and lost: {write:?}; found {found:?}");
                    verdict.acknowledged += 1;
                }
                Err(_) => {
                    verdict.unknown += 1;
                    verdict.unknown_but_there += usize::from(found.is_some());
                }
            }
        }
        let invented = history.iter().find(|c| !asked.contains(c.value.as_str()));
        assert!(invented.is_none(), "nobody wrote {invented:?}");
        for (value, at) in &self.reads {
            let there = by_value
                .get(value.as_str())
                .is_some_and(|c| c.revision == *at);
            assert!(there, "read and not there: {value:?} at revision {at}");
        }
        self.check_order();
        verdict
    }

    /// A write asked for after another was acknowledged has a later revision.
    fn check_order(&self) {
        let acknowledged: Vec<(&Write, i64)> = self
            .writes
            .iter()
            .filter_map(|w| Some((w, *w.told.as_ref().ok()?)))
            .collect();
        let mut by_start = acknowledged.clone();
        by_start.sort_by_key(|(w, _)| w.started);
        let mut by_end = acknowledged;
        by_end.sort_by_key(|(w, _)| w.ended);
        let mut ended = by_end.into_iter().peekable();
        let mut newest: Option<(&Write, i64)> = None;
        for (write, at) in by_start {
            while let Some(before) = ended.next_if(|(w, _)| w.ended < write.started) {
                if newest.is_none_or(|(_, revision)| before.1 > revision) {
                    newest = Some(before);
                }
            }
            let in_order = newest.is_none_or(|(_, revision)| revision < at);
            assert!(
                in_order,
                "out of order: {newest:?} was told before {write:?}"
            );
        }
    }
}

fn assert_same(one: &[Change], other: &[Change], name: &str) {
    assert_eq!(one.len(), other.len(), "changes at {name}");
    for (a, b) in one.iter().zip(other) {
        assert_eq!(a, b, "a change at the first member and at {name}");
    }
}
