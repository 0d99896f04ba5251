//! Which revisions each key has: the index in memory over values on disk.
//!
//! ```text
//! put a@2, put a@3, delete a@4, put a@6, put a@7      (current revision 9)
//! older: 2 3 4† 6   latest: 7  create 6 version 2
//! at 3 -> 3     at 5 -> nothing (4 is a tombstone)     at 9 -> 7
//! after compaction at 4:  older: 4† 6      4† stays: a watch from 4 must see it
//! after compaction at 5:  older: 6
//! ```
//!
//! (etcd keeps the same facts as generations, `mvcc/key_index.go`; the rule for
//! the tombstone at the compacted revision is its issue 19179.)

use bytes::Bytes;

use crate::counted_map::{CountedMap, Range, Weigh};

/// Names one change: the transaction's revision and the place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Rev {
    pub(crate) main: i64,
    pub(crate) sub: u32,
}

impl Rev {
    pub(crate) fn new(main: i64, sub: u32) -> Self {
        Self { main, sub }
    }
}

/// Is one revision of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(crate) main: i64,
    pub(crate) sub: u32,
    pub(crate) tombstone: bool,
}

impl Mark {
    pub(crate) fn rev(&self) -> Rev {
        Rev::new(self.main, self.sub)
    }

    fn if_live(self) -> Option<Rev> {
        (!self.tombstone && self.main != 0).then(|| self.rev())
    }
}

/// Is what is known of one key. `latest.main == 0` only while being inserted.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyEntry {
    /// The revision at which the present generation began.
    pub(crate) create: i64,
    /// The writes in the present generation; 0 after a tombstone.
    pub(crate) version: i64,
    /// The attached lease.
    pub(crate) lease: i64,
    /// Forgotten values that are still in some block. While there are any, a
    /// tombstone over them stays: a restart that found them without it would
    /// bring the key back to life.
    pub(crate) buried: u32,
    /// The newest revision.
    pub(crate) latest: Mark,
    /// The ones before, ascending, back to what compaction left.
    older: Vec<Mark>,
}

impl Weigh for KeyEntry {
    fn weight(&self) -> u64 {
        u64::from(self.is_live())
    }
}

impl KeyEntry {
    pub(crate) fn is_live(&self) -> bool {
        !self.latest.tombstone && self.latest.main != 0
    }

    /// Records a write.
    pub(crate) fn put(&mut self, rev: Rev, lease: i64) {
        if self.is_live() {
            self.version += 1;
        } else {
            self.create = rev.main;
            self.version = 1;
        }
        self.lease = lease;
        self.push(rev, false);
    }

    /// Records a deletion.
    pub(crate) fn delete(&mut self, rev: Rev) {
        self.create = 0;
        self.version = 0;
        self.lease = 0;
        self.push(rev, true);
    }

    /// Records a revision whose numbers come from storage.
    pub(crate) fn restore(
        &mut self,
        rev: Rev,
        tombstone: bool,
        create: i64,
        version: i64,
        lease: i64,
    ) {
        self.create = create;
        self.version = version;
        self.lease = lease;
        self.push(rev, tombstone);
    }

    fn push(&mut self, rev: Rev, tombstone: bool) {
        debug_assert!(self.latest.main == 0 || self.latest.rev() < rev);
        let mark = Mark {
            main: rev.main,
            sub: rev.sub,
            tombstone,
        };
        let last = std::mem::replace(&mut self.latest, mark);
        if last.main != 0 {
            self.older.push(last);
        }
    }

    /// Finds the change visible at a revision; `None` if absent or deleted then.
    pub(crate) fn at(&self, main: i64) -> Option<Rev> {
        if self.latest.main <= main {
            return self.latest.if_live();
        }
        let upto = self.older.partition_point(|m| m.main <= main);
        self.older[..upto].last().and_then(|m| m.if_live())
    }

    /// Reports whether the change is still on record, that is, not compacted.
    pub(crate) fn has(&self, rev: Rev) -> bool {
        self.latest.rev() == rev || self.older.binary_search_by_key(&rev, Mark::rev).is_ok()
    }

    /// Walks the changes at or after a revision, ascending.
    pub(crate) fn since(&self, main: i64) -> impl Iterator<Item = Mark> + '_ {
        let from = self.older.partition_point(|m| m.main < main);
        let latest = (self.latest.main >= main).then_some(self.latest);
        self.older[from..].iter().copied().chain(latest)
    }

    /// Forgets the changes before one; returns them.
    pub(crate) fn forget_before(&mut self, rev: Rev) -> Vec<Mark> {
        let upto = self.older.partition_point(|m| m.rev() < rev);
        let gone = self.older.drain(..upto).collect();
        if self.older.capacity() > 4 * self.older.len() + 8 {
            self.older.shrink_to_fit();
        }
        gone
    }

    /// Returns the oldest change, if it is a tombstone that nothing needs: below
    /// the compacted revision, with no forgotten value left to cover.
    pub(crate) fn idle_tombstone(&self, compacted: i64) -> Option<Rev> {
        let oldest = self.older.first().unwrap_or(&self.latest);
        let idle = oldest.tombstone && oldest.main < compacted && self.buried == 0;
        idle.then(|| oldest.rev())
    }

    /// Forgets the oldest change; returns whether the key has none left.
    pub(crate) fn forget_oldest(&mut self) -> bool {
        if self.older.is_empty() {
            return true;
        }
        self.older.remove(0);
        false
    }
}

/// Is a half-open range of keys, decoded from `key` and `range_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span<'a> {
    /// One key.
    One(&'a [u8]),
    /// From a key up to, not including, another; `None` is without end.
    Many(&'a [u8], Option<&'a [u8]>),
}

impl<'a> Span<'a> {
    /// Reads etcd's convention: no end is one key, `"\0"` is without end.
    pub(crate) fn new(key: &'a [u8], range_end: &'a [u8]) -> Self {
        match range_end {
            [] => Self::One(key),
            [0] => Self::Many(key, None),
            _ => Self::Many(key, Some(range_end)),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::One(k) => *k == key,
            Self::Many(from, to) => *from <= key && to.is_none_or(|to| key < to),
        }
    }
}

/// Is the index of all keys, deleted ones included until compaction.
///
/// A clone shares the nodes of the map; see there.
#[derive(Clone)]
pub(crate) struct KeyIndex {
    map: CountedMap<KeyEntry>,
}

impl KeyIndex {
    pub(crate) fn new() -> Self {
        Self {
            map: CountedMap::new(),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&KeyEntry> {
        self.map.get(key)
    }

    /// Returns the entry of a key that exists now.
    pub(crate) fn live(&self, key: &[u8]) -> Option<&KeyEntry> {
        self.map.get(key).filter(|e| e.is_live())
    }

    pub(crate) fn upsert<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&Bytes, &mut KeyEntry) -> R,
    ) -> R {
        self.map.upsert(key, change)
    }

    pub(crate) fn modify<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&Bytes, &mut KeyEntry) -> R,
    ) -> Option<R> {
        self.map.modify(key, change)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.map.remove(key);
    }

    /// Counts the live keys in a span now.
    pub(crate) fn count(&self, span: Span<'_>) -> u64 {
        match span {
            Span::One(key) => u64::from(self.live(key).is_some()),
            Span::Many(from, to) => self.map.count(from, to),
        }
    }

    /// Counts all live keys.
    pub(crate) fn live_len(&self) -> u64 {
        self.map.weight()
    }

    /// Walks the entries of a span in key order, deleted ones included.
    pub(crate) fn walk<'a>(&'a self, span: Span<'a>) -> Walk<'a> {
        match span {
            Span::One(key) => Walk::One(self.map.get_entry(key)),
            Span::Many(from, to) => Walk::Many(self.map.range(from, to)),
        }
    }
}

/// Walks a span.
pub(crate) enum Walk<'a> {
    One(Option<(&'a Bytes, &'a KeyEntry)>),
    Many(Range<'a, KeyEntry>),
}

impl<'a> Iterator for Walk<'a> {
    type Item = (&'a Bytes, &'a KeyEntry);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(one) => one.take(),
            Self::Many(many) => many.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> KeyEntry {
        let mut e = KeyEntry::default();
        e.put(Rev::new(2, 0), 0);
        e.put(Rev::new(3, 0), 0);
        e.delete(Rev::new(4, 0));
        e.put(Rev::new(6, 1), 7);
        e.put(Rev::new(7, 0), 7);
        e
    }

    #[test]
    fn the_example_of_the_module_page() {
        let e = example();
        assert_eq!((e.create, e.version, e.lease), (6, 2, 7));
        assert_eq!(e.at(1), None);
        assert_eq!(e.at(3), Some(Rev::new(3, 0)));
        assert_eq!(e.at(5), None);
        assert_eq!(e.at(6), Some(Rev::new(6, 1)));
        assert_eq!(e.at(9), Some(Rev::new(7, 0)));
        assert!(e.has(Rev::new(4, 0)) && !e.has(Rev::new(4, 1)));
        assert_eq!(e.since(4).map(|m| m.main).collect::<Vec<_>>(), [4, 6, 7]);
    }

    #[test]
    fn forgetting() {
        let mut e = example();
        assert_eq!(e.forget_before(Rev::new(4, 0)).len(), 2);
        assert_eq!(e.since(0).map(|m| m.main).collect::<Vec<_>>(), [4, 6, 7]);
        assert_eq!(e.idle_tombstone(4), None, "a watch may start there");
        assert_eq!(e.idle_tombstone(5), Some(Rev::new(4, 0)));
        e.buried = 1;
        assert_eq!(e.idle_tombstone(5), None, "it covers something");
        assert!(!e.forget_oldest());
        assert_eq!(e.since(0).map(|m| m.main).collect::<Vec<_>>(), [6, 7]);

        let mut e = KeyEntry::default();
        e.put(Rev::new(2, 0), 0);
        e.delete(Rev::new(3, 0));
        e.forget_before(Rev::new(3, 0));
        assert!(e.forget_oldest());
    }

    #[test]
    fn spans() {
        assert!(Span::new(b"a", b"").contains(b"a"));
        assert!(!Span::new(b"a", b"").contains(b"aa"));
        assert!(Span::new(b"a", b"\0").contains(b"zz"));
        assert!(Span::new(b"a", b"b").contains(b"aa"));
        assert!(!Span::new(b"a", b"b").contains(b"b"));
        assert!(!Span::new(b"b", b"a").contains(b"b"));
    }
}
