//! The sorted keys of one tree node, searched without touching most of them.
//!
//! Keys of a node share a long prefix (`/registry/pods/...`) and differ soon
//! after it. Beside the keys stand their *heads*: the eight bytes after the
//! common prefix as a big-endian number. A search compares the prefix once,
//! then numbers that lie side by side, and looks at a key only among equal
//! heads; it waits for memory once or twice a node instead of at every step.

use std::cmp::Ordering;

use bytes::Bytes;

/// Invariants: `keys` strictly ascending; all begin with the same `prefix`
/// bytes; `heads[i]` is `head(keys[i], prefix)`, so `heads` ascends too.
#[derive(Debug, Default, Clone)]
pub(super) struct Keys {
    keys: Vec<Bytes>,
    heads: Vec<u64>,
    prefix: usize,
}

impl Keys {
    pub(super) fn new(keys: Vec<Bytes>) -> Self {
        let mut this = Self {
            keys,
            heads: Vec::new(),
            prefix: 0,
        };
        this.index();
        this
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn get(&self, at: usize) -> &Bytes {
        &self.keys[at]
    }

    /// Finds a key: its place, or the place where it would be.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(first) = self.keys.first() else {
            return Err(0);
        };
        let shared = key.len().min(self.prefix);
        match key[..shared].cmp(&first[..self.prefix]) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal => {}
        }
        let head = head(key, self.prefix);
        let from = self.heads.partition_point(|h| *h < head);
        let ties = self.heads[from..]
            .iter()
            .take_while(|h| **h == head)
            .count();
        let found = self.keys[from..from + ties]
            .binary_search_by(|k| k[self.prefix..].cmp(&key[self.prefix..]));
        match found {
            Ok(at) => Ok(from + at),
            Err(at) => Err(from + at),
        }
    }

    /// Inserts a key at the place `search` gave.
    pub(super) fn insert(&mut self, at: usize, key: Bytes) {
        let fits = self
            .keys
            .first()
            .is_some_and(|first| key.starts_with(&first[..self.prefix]));
        if fits {
            self.heads.insert(at, head(&key, self.prefix));
            self.keys.insert(at, key);
        } else {
            self.keys.insert(at, key);
            self.index();
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> Bytes {
        self.heads.remove(at);
        self.keys.remove(at)
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.heads.pop();
        self.keys.pop()
    }

    /// Cuts in two; both halves find their longer prefix.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let right = Self::new(self.keys.split_off(at));
        self.index();
        right
    }

    pub(super) fn push(&mut self, key: Bytes) {
        self.insert(self.len(), key);
    }

    pub(super) fn append(&mut self, mut right: Self) {
        self.keys.append(&mut right.keys);
        self.index();
    }

    /// Finds the common prefix and the heads anew.
    fn index(&mut self) {
        self.prefix = match (self.keys.first(), self.keys.last()) {
            // Sorted: what the ends share, all share.
            (Some(first), Some(last)) => first.iter().zip(last).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        self.heads.clear();
        self.heads
            .extend(self.keys.iter().map(|k| head(k, self.prefix)));
    }

    #[cfg(test)]
    pub(super) fn audit(&self) {
        assert!(self.keys.is_sorted_by(|a, b| a < b));
        assert_eq!(self.keys.len(), self.heads.len());
        for (key, h) in self.keys.iter().zip(&self.heads) {
            assert!(key.starts_with(&self.keys[0][..self.prefix]));
            assert_eq!(*h, head(key, self.prefix));
        }
    }
}

/// Reads the eight bytes after the prefix, filled up with zeros. Equal heads
/// say nothing (`"a"` and `"a\0"` have one head), unequal ones say all.
fn head(key: &[u8], prefix: usize) -> u64 {
    let rest = &key[prefix..];
    let mut bytes = [0; 8];
    match rest.first_chunk::<8>() {
        Some(chunk) => bytes = *chunk,
        None => bytes[..rest.len()].copy_from_slice(rest),
    }
    u64::from_be_bytes(bytes)
}
