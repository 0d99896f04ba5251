//! The bottom layer: which keys wait, which are worked on.

use std::collections::{BTreeSet, VecDeque};

/// Is a first-in first-out queue of distinct keys.
///
/// Invariants:
/// - a key is in `queue` if and only if it is in `dirty` and not in `processing`;
/// - `queue` holds no key twice.
#[derive(Debug)]
pub struct BasicQueue<K> {
    queue: VecDeque<K>,
    dirty: BTreeSet<K>,
    processing: BTreeSet<K>,
    shutting_down: bool,
}

impl<K> Default for BasicQueue<K> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            dirty: BTreeSet::new(),
            processing: BTreeSet::new(),
            shutting_down: false,
        }
    }
}

impl<K: Clone + Ord> BasicQueue<K> {
    /// Marks a key as needing work. Tells whether a worker can take it now.
    pub fn add(&mut self, key: K) -> bool {
        if self.shutting_down || !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return false;
        }
        self.queue.push_back(key);
        true
    }

    /// Takes the key that waited longest.
    pub fn get(&mut self) -> Option<K> {
        let key = self.queue.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }

    /// Ends the work on a key. Tells whether it was queued again.
    pub fn done(&mut self, key: &K) -> bool {
        if !self.processing.remove(key) || !self.dirty.contains(key) {
            return false;
        }
        self.queue.push_back(key.clone());
        true
    }

    /// Ignores keys from now on; queued ones may still be taken.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Tells whether the queue is shut down.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Returns how many keys wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Tells whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns how many keys are worked on.
    pub fn processing(&self) -> usize {
        self.processing.len()
    }
}
