//! An ordered map that knows how many of its entries count: a B+ tree whose
//! inner nodes hold, beside each child, the sum of that child's weights.
//!
//! etcd counts a range by walking it, which makes every page of a paginated
//! list pay for the whole (KEP-5966). Here `count` adds up the weights left of
//! two paths: O(log n).
//!
//! ```text
//!              [ g | p ]            separators: first key of the right child
//!          3  /  2 |  1 \           weights: live entries below
//!     [a b c d]  [g h]  [p q]       b and q are tombstones: weight 0
//! count(b, q) = rank(q) - rank(b) = (3+2+1) - 1 = 5
//! ```
//!
//! Keys are copied on insertion, so that the map never keeps alive the buffer
//! a key was a slice of.
//!
//! A clone shares every node and costs nothing. Afterwards a change copies the
//! nodes on its path that are still shared, each once, so a clone taken for a
//! long read never holds up whoever writes.

mod keys;

use std::sync::Arc;

use bytes::Bytes;

use keys::Keys;

/// Entries of a leaf; a leaf that grows past it splits.
const LEAF_MAX: usize = 64;
/// Children of an inner node; a node that grows past it splits.
const INNER_MAX: usize = 64;

/// Says how much an entry adds to counts.
pub(crate) trait Weigh {
    fn weight(&self) -> u64;
}

/// Is the map.
#[derive(Clone)]
pub(crate) struct CountedMap<V> {
    root: Arc<Node<V>>,
    len: usize,
    weight: u64,
}

#[derive(Clone)]
enum Node<V> {
    Leaf(Leaf<V>),
    Inner(Inner<V>),
}

/// Invariants: `keys` strictly ascending, `values[i]` belongs to `keys[i]`.
#[derive(Clone)]
struct Leaf<V> {
    keys: Keys,
    values: Vec<V>,
}

/// Invariants: `children[i]` holds keys `>= keys[i-1]` and `< keys[i]`;
/// `weights[i]` is the sum of the weights below `children[i]`.
#[derive(Clone)]
struct Inner<V> {
    keys: Keys,
    children: Vec<Arc<Node<V>>>,
    weights: Vec<u64>,
}

struct Split<V> {
    key: Bytes,
    right: Arc<Node<V>>,
    weight: u64,
}

struct Upserted<V, R> {
    result: R,
    inserted: bool,
    before: u64,
    after: u64,
    split: Option<Split<V>>,
}

impl<V: Weigh + Clone> CountedMap<V> {
    pub(crate) fn new() -> Self {
        Self {
            root: Arc::new(Node::empty()),
            len: 0,
            weight: 0,
        }
    }

    /// Counts all entries, whatever their weight.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sums all weights.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        self.get_entry(key).map(|(_, v)| v)
    }

    pub(crate) fn get_entry(&self, key: &[u8]) -> Option<(&Bytes, &V)> {
        let mut node: &Node<V> = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let at = leaf.search(key).ok()?;
                    return Some((leaf.keys.get(at), &leaf.values[at]));
                }
                Node::Inner(inner) => node = &inner.children[inner.child_of(key)],
            }
        }
    }

    /// Changes the entry under `key`, inserting a default one first if absent.
    pub(crate) fn upsert<R>(&mut self, key: &[u8], change: impl FnOnce(&Bytes, &mut V) -> R) -> R
    where
        V: Default,
    {
        let done = Arc::make_mut(&mut self.root).upsert(key, change);
        self.len += usize::from(done.inserted);
        self.weight = self.weight - done.before + done.after;
        if let Some(split) = done.split {
            let left_weight = self.weight - split.weight;
            let left = Arc::clone(&self.root);
            self.root = Arc::new(Node::Inner(Inner {
                keys: Keys::new(vec![split.key]),
                children: vec![left, split.right],
                weights: vec![left_weight, split.weight],
            }));
        }
        done.result
    }

    /// Changes the entry under `key`, if there is one.
    pub(crate) fn modify<R>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&Bytes, &mut V) -> R,
    ) -> Option<R> {
        let (result, before, after) = Arc::make_mut(&mut self.root).modify(key, change)?;
        self.weight = self.weight - before + after;
        Some(result)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let removed = Arc::make_mut(&mut self.root).remove(key)?;
        self.len -= 1;
        self.weight -= removed.weight();
        while let Node::Inner(inner) = &*self.root
            && inner.children.len() == 1
        {
            self.root = Arc::clone(&inner.children[0]);
        }
        Some(removed)
    }

    /// Sums the weights of `from <= key < to`; `None` is "to the end".
    pub(crate) fn count(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        let upper = to.map_or(self.weight, |to| self.rank(to));
        upper.saturating_sub(self.rank(from))
    }

    /// Sums the weights of the keys below `key`.
    fn rank(&self, key: &[u8]) -> u64 {
        let mut node: &Node<V> = &self.root;
        let mut sum = 0;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let (Ok(at) | Err(at)) = leaf.search(key);
                    return sum + leaf.values[..at].iter().map(V::weight).sum::<u64>();
                }
                Node::Inner(inner) => {
                    let at = inner.child_of(key);
                    sum += inner.weights[..at].iter().sum::<u64>();
                    node = &inner.children[at];
                }
            }
        }
    }

    /// Walks `from <= key < to` in order; `None` is "to the end".
    pub(crate) fn range<'a>(&'a self, from: &[u8], to: Option<&'a [u8]>) -> Range<'a, V> {
        let mut stack = Vec::new();
        let mut node: &Node<V> = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let (Ok(at) | Err(at)) = leaf.search(from);
                    return Range {
                        stack,
                        leaf,
                        at,
                        to,
                    };
                }
                Node::Inner(inner) => {
                    let at = inner.child_of(from);
                    stack.push((inner, at + 1));
                    node = &inner.children[at];
                }
            }
        }
    }
}

/// Walks entries in key order.
pub(crate) struct Range<'a, V> {
    /// The inner nodes above the leaf, each with its next child.
    stack: Vec<(&'a Inner<V>, usize)>,
    leaf: &'a Leaf<V>,
    at: usize,
    to: Option<&'a [u8]>,
}

impl<'a, V> Iterator for Range<'a, V> {
    type Item = (&'a Bytes, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at >= self.leaf.keys.len() {
            let (inner, next) = self.stack.last_mut()?;
            let Some(child) = inner.children.get(*next) else {
                self.stack.pop();
                continue;
            };
            *next += 1;
            let mut node: &Node<V> = child;
            while let Node::Inner(inner) = node {
                self.stack.push((inner, 1));
                node = &inner.children[0];
            }
            if let Node::Leaf(leaf) = node {
                self.leaf = leaf;
                self.at = 0;
            }
        }
        let key = self.leaf.keys.get(self.at);
        if self.to.is_some_and(|to| key.as_ref() >= to) {
            return None;
        }
        let value = &self.leaf.values[self.at];
        self.at += 1;
        Some((key, value))
    }
}

// === impl Node ===

impl<V: Weigh + Clone> Node<V> {
    fn empty() -> Self {
        Node::Leaf(Leaf {
            keys: Keys::default(),
            values: Vec::new(),
        })
    }

    fn upsert<R, F>(&mut self, key: &[u8], change: F) -> Upserted<V, R>
    where
        V: Default,
        F: FnOnce(&Bytes, &mut V) -> R,
    {
        match self {
            Node::Leaf(leaf) => leaf.upsert(key, change),
            Node::Inner(inner) => {
                let at = inner.child_of(key);
                let child = Arc::make_mut(&mut inner.children[at]);
                let mut done = child.upsert(key, change);
                inner.weights[at] = inner.weights[at] - done.before + done.after;
                if let Some(split) = done.split.take() {
                    inner.insert_split(at, split);
                    if inner.children.len() > INNER_MAX {
                        let at_end = at + 2 == inner.children.len();
                        done.split = Some(inner.split(at_end));
                    }
                }
                done
            }
        }
    }

    fn modify<R, F>(&mut self, key: &[u8], change: F) -> Option<(R, u64, u64)>
    where
        F: FnOnce(&Bytes, &mut V) -> R,
    {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.search(key).ok()?;
                let before = leaf.values[at].weight();
                let result = change(leaf.keys.get(at), &mut leaf.values[at]);
                Some((result, before, leaf.values[at].weight()))
            }
            Node::Inner(inner) => {
                let at = inner.child_of(key);
                let child = Arc::make_mut(&mut inner.children[at]);
                let (result, before, after) = child.modify(key, change)?;
                inner.weights[at] = inner.weights[at] - before + after;
                Some((result, before, after))
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<V> {
        match self {
            Node::Leaf(leaf) => {
                let at = leaf.search(key).ok()?;
                leaf.keys.remove(at);
                Some(leaf.values.remove(at))
            }
            Node::Inner(inner) => {
                let at = inner.child_of(key);
                let removed = Arc::make_mut(&mut inner.children[at]).remove(key)?;
                inner.weights[at] -= removed.weight();
                if inner.children[at].is_thin() {
                    inner.thicken(at);
                }
                Some(removed)
            }
        }
    }

    /// Reports whether the node has lost three quarters of its room.
    fn is_thin(&self) -> bool {
        match self {
            Node::Leaf(leaf) => leaf.keys.len() < LEAF_MAX / 4,
            Node::Inner(inner) => inner.children.len() < INNER_MAX / 4,
        }
    }

    /// Appends the node to the right of `separator`.
    fn absorb(&mut self, separator: Bytes, right: Node<V>) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(mut right)) => {
                left.keys.append(right.keys);
                left.values.append(&mut right.values);
            }
            (Node::Inner(left), Node::Inner(mut right)) => {
                left.keys.push(separator);
                left.keys.append(right.keys);
                left.children.append(&mut right.children);
                left.weights.append(&mut right.weights);
            }
            _ => unreachable!("siblings of a B+ tree have one height"),
        }
    }

    fn split_if_full(&mut self) -> Option<Split<V>> {
        match self {
            Node::Leaf(leaf) => (leaf.keys.len() > LEAF_MAX).then(|| leaf.split(false)),
            Node::Inner(inner) => (inner.children.len() > INNER_MAX).then(|| inner.split(false)),
        }
    }
}

impl<V: Weigh + Clone> Leaf<V> {
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.keys.search(key)
    }

    fn upsert<R, F>(&mut self, key: &[u8], change: F) -> Upserted<V, R>
    where
        V: Default,
        F: FnOnce(&Bytes, &mut V) -> R,
    {
        let (at, inserted) = match self.search(key) {
            Ok(at) => (at, false),
            Err(at) => {
                self.keys.insert(at, Bytes::copy_from_slice(key));
                self.values.insert(at, V::default());
                (at, true)
            }
        };
        let before = if inserted {
            0
        } else {
            self.values[at].weight()
        };
        let result = change(self.keys.get(at), &mut self.values[at]);
        let after = self.values[at].weight();
        let at_end = at + 1 == self.keys.len();
        let split = (self.keys.len() > LEAF_MAX).then(|| self.split(at_end));
        Upserted {
            result,
            inserted,
            before,
            after,
            split,
        }
    }

    /// Moves the upper part into a new leaf: half of it, or only the last entry
    /// when that is where insertion happens, so that ascending keys fill leaves.
    fn split(&mut self, at_end: bool) -> Split<V> {
        let at = if at_end {
            self.keys.len() - 1
        } else {
            self.keys.len() / 2
        };
        let right = Leaf {
            keys: self.keys.split_off(at),
            values: self.values.split_off(at),
        };
        Split {
            key: right.keys.get(0).clone(),
            weight: right.values.iter().map(V::weight).sum(),
            right: Arc::new(Node::Leaf(right)),
        }
    }
}

impl<V: Weigh + Clone> Inner<V> {
    fn child_of(&self, key: &[u8]) -> usize {
        match self.keys.search(key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    fn insert_split(&mut self, at: usize, split: Split<V>) {
        self.weights[at] -= split.weight;
        self.keys.insert(at, split.key);
        self.children.insert(at + 1, split.right);
        self.weights.insert(at + 1, split.weight);
    }

    fn split(&mut self, at_end: bool) -> Split<V> {
        let at = if at_end {
            self.children.len() - 1
        } else {
            self.children.len() / 2
        };
        let children = self.children.split_off(at);
        let weights = self.weights.split_off(at);
        let keys = self.keys.split_off(at);
        let key = self
            .keys
            .pop()
            .expect("a node that splits has two children or more");
        Split {
            key,
            weight: weights.iter().sum(),
            right: Arc::new(Node::Inner(Inner {
                keys,
                children,
                weights,
            })),
        }
    }

    /// Merges the thin child with a neighbour, and splits the sum if it is too
    /// much for one. An only child stays: this node is thin itself then.
    fn thicken(&mut self, at: usize) {
        if self.children.len() < 2 {
            return;
        }
        let left = at.saturating_sub(1);
        let right = self.children.remove(left + 1);
        let separator = self.keys.remove(left);
        self.weights[left] += self.weights.remove(left + 1);
        let child = Arc::make_mut(&mut self.children[left]);
        child.absorb(separator, Arc::unwrap_or_clone(right));
        if let Some(split) = child.split_if_full() {
            self.insert_split(left, split);
        }
    }
}

#[cfg(test)]
mod test;
