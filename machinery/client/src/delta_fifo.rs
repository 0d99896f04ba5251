//! The queue between a reflector and the store: changes per key, in order.
//!
//! ```text
//! add a; update a; add b     a: [Added, Updated]   b: [Added]     queue [a, b]
//! pop → a with both deltas   the consumer sees every change, per key in order
//! replace {b, c}             a known: Deleted (final state unknown); b, c: Replaced
//! ```
//!
//! Follows client-go's `DeltaFIFO`. Bounded by the number of objects times what
//! arrives between two pops; the informer pops after each batch it reads.

use std::collections::{BTreeMap, VecDeque};

use crate::resource::ObjectKey;

/// Is one change to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<T> {
    /// Came into view.
    Added(T),
    /// Changed.
    Updated(T),
    /// Left the view; this is its last state.
    Deleted(T),
    /// Was missing from a relist: it left the view unseen, and this is only the last
    /// state that was known (client-go's `DeletedFinalStateUnknown`).
    DeletedUnknown(T),
    /// Was in a relist.
    Replaced(T),
    /// Is re-sent by a resync.
    Sync(T),
}

impl<T> Delta<T> {
    fn is_deletion(&self) -> bool {
        matches!(self, Delta::Deleted(_) | Delta::DeletedUnknown(_))
    }
}

/// Looks up what the store holds, for finding what a relist no longer names.
pub trait KnownObjects<T> {
    /// Returns the keys of the store.
    fn known_keys(&self) -> Vec<ObjectKey>;
    /// Returns an object of the store.
    fn known(&self, key: &ObjectKey) -> Option<T>;
}

/// Queues deltas by key.
#[derive(Debug)]
pub struct DeltaFifo<T> {
    items: BTreeMap<ObjectKey, Vec<Delta<T>>>,
    queue: VecDeque<ObjectKey>,
    populated: bool,
    /// Counts keys of the first replace that were not popped yet.
    initial_population: usize,
}

impl<T> Default for DeltaFifo<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            queue: VecDeque::new(),
            populated: false,
            initial_population: 0,
        }
    }
}

impl<T: Clone> DeltaFifo<T> {
    /// Queues a change of one object.
    pub fn push(&mut self, key: ObjectKey, delta: Delta<T>) {
        self.populated = true;
        self.queue_delta(key, delta);
    }

    fn queue_delta(&mut self, key: ObjectKey, delta: Delta<T>) {
        let deltas = self.items.entry(key.clone()).or_default();
        if deltas.is_empty() {
            self.queue.push_back(key);
        }
        // Two deletions in a row are one; the one with the real last state is kept.
        if let Some(last) = deltas.last_mut()
            && last.is_deletion()
            && delta.is_deletion()
        {
            if matches!(last, Delta::DeletedUnknown(_)) {
                *last = delta;
            }
            return;
        }
        deltas.push(delta);
    }

    /// Queues the result of a list: every object of it, and a deletion for each known
    /// or queued object that it no longer names.
    pub fn replace(&mut self, list: Vec<(ObjectKey, T)>, known: &impl KnownObjects<T>) {
        let mut present: Vec<ObjectKey> = Vec::with_capacity(list.len());
        for (key, object) in list {
            present.push(key.clone());
            self.queue_delta(key, Delta::Replaced(object));
        }
        present.sort();
        let absent = |key: &ObjectKey| present.binary_search(key).is_err();

        let mut deletions = 0;
        // Queued but in neither the list nor the store: the last queued state is all
        // that is known of it.
        let queued: Vec<ObjectKey> = self.items.keys().filter(|k| absent(k)).cloned().collect();
        for key in queued {
            let last = self.items.get(&key).and_then(|d| d.last()).cloned();
            if let Some(delta) = last
                && let Some(object) = live(delta)
            {
                self.queue_delta(key, Delta::DeletedUnknown(object));
                deletions += 1;
            }
        }
        for key in known.known_keys().into_iter().filter(|k| absent(k)) {
            if self.items.contains_key(&key) {
                continue;
            }
            if let Some(object) = known.known(&key) {
                self.queue_delta(key, Delta::DeletedUnknown(object));
                deletions += 1;
            }
        }
        if !self.populated {
            self.populated = true;
            self.initial_population = present.len() + deletions;
        }
    }

    /// Queues a re-send of every known object that has no change queued.
    pub fn resync(&mut self, known: &impl KnownObjects<T>) {
        for key in known.known_keys() {
            if !self.items.contains_key(&key)
                && let Some(object) = known.known(&key)
            {
                self.queue_delta(key, Delta::Sync(object));
            }
        }
    }

    /// Takes the key that was queued first, with all its changes.
    pub fn pop(&mut self) -> Option<(ObjectKey, Vec<Delta<T>>)> {
        let key = self.queue.pop_front()?;
        self.initial_population = self.initial_population.saturating_sub(1);
        let deltas = self.items.remove(&key).unwrap_or_default();
        Some((key, deltas))
    }

    /// Tells whether everything of the first list was popped.
    pub fn has_synced(&self) -> bool {
        self.populated && self.initial_population == 0
    }

    /// Returns how many keys are queued.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Tells whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Returns the object unless its last change was a deletion already.
fn live<T>(delta: Delta<T>) -> Option<T> {
    match delta {
        Delta::Added(o) | Delta::Updated(o) | Delta::Replaced(o) | Delta::Sync(o) => Some(o),
        Delta::Deleted(_) | Delta::DeletedUnknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stands in for the store.
    struct Known(BTreeMap<ObjectKey, u32>);

    impl KnownObjects<u32> for Known {
        fn known_keys(&self) -> Vec<ObjectKey> {
            self.0.keys().cloned().collect()
        }
        fn known(&self, key: &ObjectKey) -> Option<u32> {
            self.0.get(key).copied()
        }
    }

    fn k(name: &str) -> ObjectKey {
        ObjectKey::new("", name)
    }

    fn known(items: &[(&str, u32)]) -> Known {
        Known(items.iter().map(|(name, v)| (k(name), *v)).collect())
    }

    fn drain(fifo: &mut DeltaFifo<u32>) -> Vec<(String, Vec<Delta<u32>>)> {
        std::iter::from_fn(|| fifo.pop())
            .map(|(key, d)| (key.name, d))
            .collect()
    }

    use Delta::*;

    #[test]
    fn keys_keep_their_first_place_and_all_changes() {
        let mut fifo = DeltaFifo::default();
        fifo.push(k("a"), Added(1));
        fifo.push(k("b"), Added(2));
        fifo.push(k("a"), Updated(3));
        let popped = drain(&mut fifo);
        assert_eq!(
            popped,
            [
                ("a".into(), vec![Added(1), Updated(3)]),
                ("b".into(), vec![Added(2)])
            ]
        );
    }

    #[test]
    fn consecutive_deletions_are_one() {
        let mut fifo = DeltaFifo::default();
        fifo.push(k("a"), Deleted(1));
        fifo.push(k("a"), DeletedUnknown(0));
        assert_eq!(drain(&mut fifo), [("a".into(), vec![Deleted(1)])]);

        fifo.push(k("a"), DeletedUnknown(0));
        fifo.push(k("a"), Deleted(1));
        assert_eq!(drain(&mut fifo), [("a".into(), vec![Deleted(1)])]);

        fifo.push(k("a"), Deleted(1));
        fifo.push(k("a"), Added(2));
        fifo.push(k("a"), Deleted(3));
        assert_eq!(drain(&mut fifo)[0].1.len(), 3, "only neighbours are joined");
    }

    #[test]
    fn replace_makes_deletions() {
        let mut fifo = DeltaFifo::default();
        fifo.push(k("queued"), Added(9));
        fifo.replace(
            vec![(k("foo"), 5)],
            &known(&[("foo", 4), ("bar", 6), ("baz", 7)]),
        );
        assert_eq!(
            drain(&mut fifo),
            [
                ("queued".into(), vec![Added(9), DeletedUnknown(9)]),
                ("foo".into(), vec![Replaced(5)]),
                ("bar".into(), vec![DeletedUnknown(6)]),
                ("baz".into(), vec![DeletedUnknown(7)]),
            ]
        );
    }

    #[test]
    fn replace_with_delete_delta_in() {
        let mut fifo = DeltaFifo::default();
        fifo.push(k("foo"), Deleted(5));
        fifo.replace(vec![(k("bar"), 6)], &known(&[("foo", 5)]));
        assert_eq!(
            drain(&mut fifo),
            [
                ("foo".into(), vec![Deleted(5)]),
                ("bar".into(), vec![Replaced(6)])
            ]
        );
    }

    #[test]
    fn update_resync_race() {
        let mut fifo = DeltaFifo::default();
        fifo.push(k("foo"), Updated(6));
        fifo.resync(&known(&[("foo", 5), ("bar", 1)]));
        assert_eq!(
            drain(&mut fifo),
            [
                ("foo".into(), vec![Updated(6)]),
                ("bar".into(), vec![Sync(1)])
            ],
            "a resync never sends an older state after a newer one"
        );
    }

    #[test]
    fn has_synced() {
        let none = known(&[]);
        let mut fifo: DeltaFifo<u32> = DeltaFifo::default();
        assert!(!fifo.has_synced(), "nothing listed yet");
        fifo.replace(vec![], &none);
        assert!(fifo.has_synced(), "an empty list is complete at once");

        let mut fifo = DeltaFifo::default();
        fifo.replace(vec![(k("a"), 1), (k("b"), 2)], &none);
        fifo.pop();
        assert!(!fifo.has_synced());
        fifo.pop();
        assert!(fifo.has_synced());
        fifo.replace(vec![(k("c"), 1)], &none);
        assert!(fifo.has_synced(), "later lists do not count");
    }

    #[test]
    fn has_synced_correct_on_deletion() {
        let mut fifo = DeltaFifo::default();
        fifo.replace(vec![(k("a"), 1)], &known(&[("gone", 2)]));
        fifo.pop();
        assert!(!fifo.has_synced(), "the deletion belongs to the first list");
        fifo.pop();
        assert!(fifo.has_synced());
    }
}
