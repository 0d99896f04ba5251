//! Trees of the objects that this process wrote last: who changes one of them again
//! need not parse what was just encoded.
//!
//! A tree is found by key, and given out only for the very bytes and the revision it
//! belongs to. It can be missing, never stale.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use meta::Object;
use serde_json::Value;

/// How many bytes the objects whose trees are kept may have in all, as they are
/// stored. Their trees take some ten times as much.
const BYTES_MAX: usize = 512 << 10;
/// The most trees that are kept.
const TREES_MAX: usize = 256;

#[derive(Debug)]
struct Kept {
    body: Bytes,
    revision: u64,
    tree: Arc<Value>,
    /// When it was last put or asked for.
    used: u64,
}

/// The trees of one resource's objects, those longest out of use dropped first.
#[derive(Debug, Default)]
pub(super) struct Trees {
    kept: HashMap<String, Kept>,
    /// The lengths of all bodies together.
    bytes: usize,
    clock: u64,
}

impl Trees {
    /// Returns the tree of an object, resource version included.
    pub(super) fn get(&mut self, key: &str, object: &Object) -> Option<Arc<Value>> {
        let kept = self.kept.get_mut(key)?;
        let version = object.resource_version.0;
        // The same revision in another history is another state.
        if kept.revision != version || object.renewed || kept.body != *object.body() {
            return None;
        }
        self.clock += 1;
        kept.used = self.clock;
        Some(kept.tree.clone())
    }

    /// Keeps the tree of an object in place of what was kept under its key. Returns
    /// what is not kept any more, to be dropped where nobody waits for it.
    pub(super) fn put(&mut self, key: &str, object: &Object, Tree(tree): Tree) -> Vec<Arc<Value>> {
        self.clock += 1;
        let kept = Kept {
            body: object.body().clone(),
            revision: object.resource_version.0,
            tree,
            used: self.clock,
        };
        // Of two that were written one after the other, either may come first here.
        let newest = self.kept.get(key).map_or(0, |before| before.revision);
        if newest > kept.revision || kept.body.len() > BYTES_MAX {
            return vec![kept.tree];
        }
        let mut gone = Vec::new();
        self.bytes += kept.body.len();
        match self.kept.get_mut(key) {
            Some(slot) => {
                let before = std::mem::replace(slot, kept);
                self.bytes -= before.body.len();
                gone.push(before.tree);
            }
            None => {
                self.kept.insert(key.to_owned(), kept);
            }
        }
        while self.bytes > BYTES_MAX || self.kept.len() > TREES_MAX {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            gone.extend(self.forget(&oldest));
        }
        gone
    }

    /// Forgets, and returns, what is kept under a key.
    pub(super) fn forget(&mut self, key: &str) -> Option<Arc<Value>> {
        let kept = self.kept.remove(key)?;
        self.bytes -= kept.body.len();
        Some(kept.tree)
    }
}

/// An object as JSON, resource version included, that is the same once it was written
/// and read again.
#[derive(Debug)]
pub(super) struct Tree(Arc<Value>);

impl Tree {
    /// Takes a tree, unless it is no such: a number that is no integer may be another
    /// once it was written and read again.
    pub(super) fn of(tree: Value, has_float: bool) -> Option<Self> {
        (!has_float).then(|| Self(Arc::new(tree)))
    }
}

#[cfg(test)]
mod tests {
    use meta::{Encoded, ResourceVersion};
    use serde_json::json;

    use super::*;

    fn object(body: &Value, revision: u64) -> Object {
        let encoded = Encoded::of(body, 0).unwrap();
        encoded.stored(ResourceVersion(revision), Vec::new())
    }

    fn tree(value: Value) -> Tree {
        Tree::of(value, false).unwrap()
    }

    fn named(n: usize) -> Value {
        json!({"metadata": {"name": "x"}, "spec": n})
    }

    #[test]
    fn a_tree_is_that_of_the_very_object() {
        let mut trees = Trees::default();
        let first = object(&named(1), 5);
        assert_eq!(trees.get("a/x", &first), None);
        trees.put("a/x", &first, tree(named(1)));
        assert_eq!(*trees.get("a/x", &first).unwrap(), named(1));
        assert_eq!(trees.get("b/x", &first), None);
        // Another revision of the same, and the same revision of another history.
        assert_eq!(trees.get("a/x", &object(&named(1), 6)), None);
        assert_eq!(trees.get("a/x", &object(&named(2), 5)), None);
        trees.put("a/x", &object(&named(2), 6), tree(named(2)));
        assert_eq!(trees.get("a/x", &first), None);
        trees.put("a/x", &first, tree(named(1)));
        assert_eq!(*trees.get("a/x", &object(&named(2), 6)).unwrap(), named(2));
        trees.forget("a/x");
        assert_eq!((trees.kept.len(), trees.bytes), (0, 0));
    }

    #[test]
    fn what_writing_may_change_is_not_kept() {
        for (spec, kept) in [
            (json!([{"a": 0.1}]), false),
            (json!([{"a": -1, "b": u64::MAX}]), true),
        ] {
            let body = json!({"metadata": {"name": "x"}, "spec": spec});
            let has_float = Encoded::of(&body, 0).unwrap().has_float();
            assert_eq!(Tree::of(body, has_float).is_some(), kept);
        }
    }

    #[test]
    fn what_is_long_out_of_use_goes_first() {
        let mut trees = Trees::default();
        let first = object(&named(0), 1);
        for n in 0..TREES_MAX + 9 {
            trees.put(&n.to_string(), &object(&named(n), 1), tree(named(n)));
            assert!(trees.get("0", &first).is_some());
        }
        assert_eq!(trees.kept.len(), TREES_MAX);
        assert!(!trees.kept.contains_key("9") && trees.kept.contains_key("10"));
        let long = json!({"metadata": {"name": "x"}, "spec": "x".repeat(BYTES_MAX / 2)});
        for key in ["l", "m", "n"] {
            trees.put(key, &object(&long, 1), tree(long.clone()));
        }
        let sum: usize = trees.kept.values().map(|kept| kept.body.len()).sum();
        assert!(trees.bytes == sum && sum <= BYTES_MAX);
        assert!(trees.get("n", &object(&long, 1)).is_some());
    }
}
