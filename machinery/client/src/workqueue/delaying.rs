//! The middle layer: keys that become due later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Holds each key once, with the earliest moment asked for.
#[derive(Debug)]
pub struct DelayingQueue<K> {
    by_time: BTreeSet<(Duration, K)>,
    by_key: BTreeMap<K, Duration>,
}

impl<K> Default for DelayingQueue<K> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }
}

impl<K: Clone + Ord> DelayingQueue<K> {
    /// Makes a key due at a moment. Tells whether the earliest moment of the whole
    /// queue changed, so that whoever waits must look again.
    pub fn add(&mut self, key: K, due: Duration) -> bool {
        let before = self.next_due();
        match self.by_key.get(&key).copied() {
            Some(known) if known <= due => return false,
            Some(known) => {
                self.by_time.remove(&(known, key.clone()));
            }
            None => {}
        }
        self.by_key.insert(key.clone(), due);
        self.by_time.insert((due, key));
        self.next_due() != before
    }

    /// Takes the keys that are due, earliest first.
    pub fn pop_due(&mut self, now: Duration) -> Vec<K> {
        let mut due = Vec::new();
        while self.by_time.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.by_time.pop_first() else {
                break;
            };
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }

    /// Returns when the next key is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Returns how many keys wait for their moment.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Tells whether no key waits for its moment.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Drops all keys.
    pub fn clear(&mut self) {
        self.by_time.clear();
        self.by_key.clear();
    }
}
