//! Expectations stop create storms: a controller does not act on an owner again
//! until its informer has shown the creations and deletions it already asked for.
//!
//! Follows `pkg/controller/controller_utils.go`: creations are counted, deletions
//! are tracked by key so that "marked for deletion" and "gone" count once, and
//! everything is forgiven after five minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Is how long an expectation may go unfulfilled; then the informer is presumed to
/// have missed something and the controller acts again.
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Is the pure core: expectations per owner `K`, deletions named by `D` (a UID).
///
/// Bounded by the number of owners: an owner's entry is removed with the owner.
#[derive(Debug)]
pub struct ExpectationSet<K, D = String> {
    owners: BTreeMap<K, Expected<D>>,
}

#[derive(Debug)]
struct Expected<D> {
    creations: usize,
    deletions: BTreeSet<D>,
    since: Duration,
}

impl<K, D> Default for ExpectationSet<K, D> {
    fn default() -> Self {
        Self {
            owners: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord, D: Ord> ExpectationSet<K, D> {
    /// Tells whether the controller may act on the owner.
    pub fn satisfied(&self, owner: &K, now: Duration) -> bool {
        self.owners.get(owner).is_none_or(|e| {
            (e.creations == 0 && e.deletions.is_empty())
                || now.saturating_sub(e.since) >= EXPECTATIONS_TIMEOUT
        })
    }

    /// Expects `count` creations to be observed, and nothing else.
    pub fn expect_creations(&mut self, owner: K, count: usize, now: Duration) {
        let expected = Expected {
            creations: count,
            deletions: BTreeSet::new(),
            since: now,
        };
        self.owners.insert(owner, expected);
    }

    /// Expects these deletions to be observed, and nothing else.
    pub fn expect_deletions(&mut self, owner: K, ids: impl IntoIterator<Item = D>, now: Duration) {
        let deletions = ids.into_iter().collect();
        self.owners.insert(
            owner,
            Expected {
                creations: 0,
                deletions,
                since: now,
            },
        );
    }

    /// Counts one creation, or one that failed and will never be observed.
    pub fn creation_observed(&mut self, owner: &K) {
        if let Some(e) = self.owners.get_mut(owner) {
            e.creations = e.creations.saturating_sub(1);
        }
    }

    /// Counts one deletion; the second report of the same object counts nothing.
    pub fn deletion_observed(&mut self, owner: &K, id: &D) {
        if let Some(e) = self.owners.get_mut(owner) {
            e.deletions.remove(id);
        }
    }

    /// Forgets an owner that is gone.
    pub fn forget(&mut self, owner: &K) {
        self.owners.remove(owner);
    }
}

/// Shares an [`ExpectationSet`] between handlers and workers. A clone is the same
/// set.
#[derive(Debug)]
pub struct Expectations<K, D = String> {
    set: Arc<Mutex<ExpectationSet<K, D>>>,
    origin: Instant,
}

impl<K, D> Clone for Expectations<K, D> {
    fn clone(&self) -> Self {
        Self {
            set: Arc::clone(&self.set),
            origin: self.origin,
        }
    }
}

impl<K, D> Default for Expectations<K, D> {
    fn default() -> Self {
        Self {
            set: Arc::default(),
            origin: Instant::now(),
        }
    }
}

impl<K: Clone + Ord, D: Ord> Expectations<K, D> {
    /// Tells whether the controller may act on the owner.
    pub fn satisfied(&self, owner: &K) -> bool {
        self.lock().satisfied(owner, self.origin.elapsed())
    }

    /// Expects `count` creations to be observed, and nothing else.
    pub fn expect_creations(&self, owner: K, count: usize) {
        self.lock()
            .expect_creations(owner, count, self.origin.elapsed());
    }

    /// Expects these deletions to be observed, and nothing else.
    pub fn expect_deletions(&self, owner: K, ids: impl IntoIterator<Item = D>) {
        self.lock()
            .expect_deletions(owner, ids, self.origin.elapsed());
    }

    /// Counts one creation, or one that failed and will never be observed.
    pub fn creation_observed(&self, owner: &K) {
        self.lock().creation_observed(owner);
    }

    /// Counts one deletion; the second report of the same object counts nothing.
    pub fn deletion_observed(&self, owner: &K, id: &D) {
        self.lock().deletion_observed(owner, id);
    }

    /// Forgets an owner that is gone.
    pub fn forget(&self, owner: &K) {
        self.lock().forget(owner);
    }

    fn lock(&self) -> MutexGuard<'_, ExpectationSet<K, D>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::ZERO;

    #[test]
    fn creations_are_counted() {
        let mut set: ExpectationSet<&str, &str> = ExpectationSet::default();
        assert!(set.satisfied(&"rs", T0), "nothing expected");
        set.expect_creations("rs", 2, T0);
        set.creation_observed(&"rs");
        assert!(!set.satisfied(&"rs", T0));
        set.creation_observed(&"rs");
        assert!(set.satisfied(&"rs", T0));
        set.creation_observed(&"rs");
        assert!(set.satisfied(&"rs", T0), "one too many does no harm");
    }

    #[test]
    fn a_deletion_counts_once() {
        let mut set = ExpectationSet::default();
        set.expect_deletions("rs", ["a", "b"], T0);
        set.deletion_observed(&"rs", &"a");
        set.deletion_observed(&"rs", &"a");
        assert!(!set.satisfied(&"rs", T0));
        set.deletion_observed(&"rs", &"b");
        assert!(set.satisfied(&"rs", T0));
    }

    #[test]
    fn forgiven_after_five_minutes() {
        let mut set: ExpectationSet<&str, &str> = ExpectationSet::default();
        set.expect_creations("rs", 1, T0);
        assert!(!set.satisfied(&"rs", EXPECTATIONS_TIMEOUT - Duration::from_secs(1)));
        assert!(set.satisfied(&"rs", EXPECTATIONS_TIMEOUT));
        set.forget(&"rs");
        assert!(set.satisfied(&"rs", T0));
    }
}
