//! Who is interested in a key: an index from keys and ranges to watchers, so
//! that an event costs what its watchers cost, not what all watchers cost.
//!
//! Single keys are a map. Ranges are a treap ordered by their start, each node
//! knowing the furthest end below it, so that a search leaves out every subtree
//! that ends before the key. Watchers of equal ranges share a node.
//!
//! ```text
//!            [d,m) max z          who sees "k"?  [d,m) does; left of it [a,c)
//!            /         \          ends too early and is not entered; right of
//!      [a,c) max c   [p,z) max z  it [p,z) begins too late.
//! ```

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// Names a watcher by its place in the hub.
pub(crate) type Slot = u32;

/// Is the index.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    keys: BTreeMap<Bytes, BTreeSet<Slot>>,
    ranges: RangeTree,
}

/// Is what a watcher watches; `"\0"` has become "without end".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Key(Bytes),
    Range(Bytes, Option<Bytes>),
}

impl Interest {
    pub(crate) fn insert(&mut self, target: &Target, slot: Slot) {
        match target {
            Target::Key(key) => {
                self.keys.entry(key.clone()).or_default().insert(slot);
            }
            Target::Range(from, to) => self.ranges.insert(from, to, slot),
        }
    }

    pub(crate) fn remove(&mut self, target: &Target, slot: Slot) {
        match target {
            Target::Key(key) => {
                if let Some(slots) = self.keys.get_mut(key) {
                    slots.remove(&slot);
                    if slots.is_empty() {
                        self.keys.remove(key);
                    }
                }
            }
            Target::Range(from, to) => self.ranges.remove(from, to, slot),
        }
    }

    /// Calls `found` with every watcher of a key.
    pub(crate) fn each(&self, key: &[u8], mut found: impl FnMut(Slot)) {
        if let Some(slots) = self.keys.get(key) {
            slots.iter().copied().for_each(&mut found);
        }
        self.ranges.stab(self.ranges.root, key, &mut found);
    }
}

/// Stands for "no node".
const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct RangeTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    /// Feeds the priorities; any fixed sequence without pattern will do.
    seed: u64,
}

impl Default for RangeTree {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NIL,
            seed: 0,
        }
    }
}

/// Invariants: a heap by `priority`, ordered by `(from, to)`; `furthest` is the
/// greatest `to` in the subtree.
#[derive(Debug)]
struct Node {
    from: Bytes,
    to: Option<Bytes>,
    furthest: Option<Bytes>,
    priority: u64,
    left: u32,
    right: u32,
    slots: BTreeSet<Slot>,
}

/// Orders ends: "without end" is last.
fn cmp_end(a: &Option<Bytes>, b: &Option<Bytes>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
    }
}

fn ends_after(end: &Option<Bytes>, key: &[u8]) -> bool {
    end.as_ref().is_none_or(|end| key < end.as_ref())
}

impl RangeTree {
    fn node(&self, t: u32) -> &Node {
        &self.nodes[t as usize]
    }

    fn node_mut(&mut self, t: u32) -> &mut Node {
        &mut self.nodes[t as usize]
    }

    fn insert(&mut self, from: &Bytes, to: &Option<Bytes>, slot: Slot) {
        self.root = self.insert_at(self.root, from, to, slot);
    }

    fn insert_at(&mut self, t: u32, from: &Bytes, to: &Option<Bytes>, slot: Slot) -> u32 {
        if t == NIL {
            return self.alloc(from, to, slot);
        }
        let node = self.node(t);
        let (left, right) = (node.left, node.right);
        let top = match self.compare(t, from, to) {
            Ordering::Equal => {
                self.node_mut(t).slots.insert(slot);
                return t;
            }
            Ordering::Less => {
                let child = self.insert_at(left, from, to, slot);
                self.node_mut(t).left = child;
                self.lift(t, child)
            }
            Ordering::Greater => {
                let child = self.insert_at(right, from, to, slot);
                self.node_mut(t).right = child;
                self.lift(t, child)
            }
        };
        self.update(t);
        self.update(top);
        top
    }

    /// Rotates a child above its parent if its priority says so.
    fn lift(&mut self, t: u32, child: u32) -> u32 {
        if self.node(child).priority <= self.node(t).priority {
            return t;
        }
        if self.node(t).left == child {
            self.node_mut(t).left = self.node(child).right;
            self.node_mut(child).right = t;
        } else {
            self.node_mut(t).right = self.node(child).left;
            self.node_mut(child).left = t;
        }
        child
    }

    fn remove(&mut self, from: &Bytes, to: &Option<Bytes>, slot: Slot) {
        self.root = self.remove_at(self.root, from, to, slot);
    }

    fn remove_at(&mut self, t: u32, from: &Bytes, to: &Option<Bytes>, slot: Slot) -> u32 {
        if t == NIL {
            return NIL;
        }
        let (left, right) = (self.node(t).left, self.node(t).right);
        match self.compare(t, from, to) {
            Ordering::Equal => {
                self.node_mut(t).slots.remove(&slot);
                if self.node(t).slots.is_empty() {
                    self.free.push(t);
                    return self.merge(left, right);
                }
                return t;
            }
            Ordering::Less => self.node_mut(t).left = self.remove_at(left, from, to, slot),
            Ordering::Greater => self.node_mut(t).right = self.remove_at(right, from, to, slot),
        }
        self.update(t);
        t
    }

    /// Joins two trees, every range of the first before every one of the second.
    fn merge(&mut self, a: u32, b: u32) -> u32 {
        if a == NIL {
            return b;
        }
        if b == NIL {
            return a;
        }
        let top = if self.node(a).priority > self.node(b).priority {
            self.node_mut(a).right = self.merge(self.node(a).right, b);
            a
        } else {
            self.node_mut(b).left = self.merge(a, self.node(b).left);
            b
        };
        self.update(top);
        top
    }

    fn compare(&self, t: u32, from: &Bytes, to: &Option<Bytes>) -> Ordering {
        let node = self.node(t);
        from.cmp(&node.from).then_with(|| cmp_end(to, &node.to))
    }

    fn update(&mut self, t: u32) {
        let node = self.node(t);
        let mut furthest = &node.to;
        for child in [node.left, node.right] {
            if child != NIL && cmp_end(&self.node(child).furthest, furthest).is_gt() {
                furthest = &self.node(child).furthest;
            }
        }
        let furthest = furthest.clone();
        self.node_mut(t).furthest = furthest;
    }

    fn alloc(&mut self, from: &Bytes, to: &Option<Bytes>, slot: Slot) -> u32 {
        // splitmix64
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let node = Node {
            from: from.clone(),
            to: to.clone(),
            furthest: to.clone(),
            priority: z ^ (z >> 31),
            left: NIL,
            right: NIL,
            slots: BTreeSet::from([slot]),
        };
        match self.free.pop() {
            Some(t) => {
                self.nodes[t as usize] = node;
                t
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    fn stab(&self, t: u32, key: &[u8], found: &mut impl FnMut(Slot)) {
        if t == NIL || !ends_after(&self.node(t).furthest, key) {
            return;
        }
        let node = self.node(t);
        self.stab(node.left, key, found);
        if node.from.as_ref() <= key {
            if ends_after(&node.to, key) {
                node.slots.iter().copied().for_each(&mut *found);
            }
            self.stab(node.right, key, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn target() -> impl Strategy<Value = Target> {
        let key = || "[a-d]{1,3}".prop_map(Bytes::from);
        prop_oneof![
            key().prop_map(Target::Key),
            (key(), prop::option::of(key())).prop_map(|(from, to)| Target::Range(from, to)),
        ]
    }

    fn sees(t: &Target, key: &[u8]) -> bool {
        match t {
            Target::Key(k) => k.as_ref() == key,
            Target::Range(from, to) => from.as_ref() <= key && ends_after(to, key),
        }
    }

    proptest! {
        #[test]
        fn finds_what_a_linear_scan_finds(
            targets in vec(target(), 1..80),
            gone in vec(any::<prop::sample::Index>(), 0..40),
            keys in vec("[a-d]{1,4}", 1..20),
        ) {
            let mut index = Interest::default();
            let mut model = BTreeMap::new();
            for (slot, t) in targets.iter().enumerate() {
                index.insert(t, slot as Slot);
                model.insert(slot as Slot, t);
            }
            for g in gone {
                let slot = g.index(targets.len()) as Slot;
                index.remove(&targets[slot as usize], slot);
                model.remove(&slot);
            }
            for key in keys {
                let mut got = Vec::new();
                index.each(key.as_bytes(), |s| got.push(s));
                got.sort_unstable();
                let want: Vec<_> = model.iter().filter(|(_, t)| sees(t, key.as_bytes())).map(|(s, _)| *s).collect();
                prop_assert_eq!(got, want);
            }
        }
    }
}
