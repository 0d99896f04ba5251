//! Trees of the objects that this process wrote last: who changes one of them again
//! need not parse what was just encoded.
//!
//! A tree is found by key, and given out only for the very bytes and the revision it
//! belongs to. It can be missing, never stale.
//!
//! The state before is kept too, as a draft: who replaces the object sends most of what
//! is in it, and that stays where it is when the rest is read over it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use meta::Object;
use meta::marks::{Marked, Marks};
use meta::{Encoded, value};
use serde_json::Value;

/// How many bytes the objects whose trees are kept may have in all, as they are
/// stored, their drafts among them. The trees take some ten times as much.
const BYTES_MAX: usize = 1 << 20;
/// The most trees that are kept.
const TREES_MAX: usize = 256;

/// What is kept of an object.
#[derive(Debug)]
pub(super) struct Kept {
    body: Bytes,
    revision: u64,
    tree: Tree,
    draft: Option<Draft>,
    /// When it was last put or asked for.
    used: u64,
}

/// A stored object as JSON, resource version included.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The object.
    pub tree: Arc<Value>,
    /// Where what stands in its body, if this process wrote it.
    pub(super) marks: Option<Arc<Marks>>,
    /// Whether this process has checked all of it.
    pub(super) checked: bool,
}

impl Stored {
    /// Returns the text of this object, if it is known where what stands in it.
    pub(crate) fn marked<'t>(&'t self, object: &'t Object) -> Option<Marked<'t>> {
        let marks = self.marks.as_deref()?;
        Some(Marked {
            text: object.body(),
            marks,
        })
    }
}

/// An earlier state of an object, over which the next one may be read.
#[derive(Debug)]
pub struct Draft {
    tree: Value,
    text: Text,
}

/// The text of an object.
#[derive(Debug)]
pub(crate) struct Text {
    body: Bytes,
    marks: Arc<Marks>,
    checked: bool,
}

impl Draft {
    /// Makes a draft of an object as if it had been checked and stored; `None` if it
    /// would not have been kept.
    pub(crate) fn of(mut object: Value) -> Option<Self> {
        value::metadata_mut(&mut object).remove("resourceVersion");
        let mut encoded = Encoded::of(&object, 0).ok()?;
        let (body, marks) = (encoded.bytes().clone(), encoded.take_marks());
        let Tree {
            tree,
            marks,
            checked,
        } = Tree::of(object, marks, true)?;
        Some(Self {
            tree: Arc::unwrap_or_clone(tree),
            text: Text {
                body,
                marks,
                checked,
            },
        })
    }

    /// Returns its tree, and the text of that, which has no resource version.
    pub(crate) fn into_parts(self) -> (Value, Text) {
        (self.tree, self.text)
    }
}

impl Text {
    /// Tells whether this process has checked all that it says.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked
    }

    pub(crate) fn marked(&self) -> Marked<'_> {
        Marked {
            text: &self.body,
            marks: &self.marks,
        }
    }
}

impl Kept {
    /// How many bytes it counts for.
    fn bytes(&self) -> usize {
        let draft = self.draft.as_ref().map_or(0, |draft| draft.text.body.len());
        self.body.len() + draft
    }

    /// Makes a draft of what is not kept any more, unless somebody still looks at it.
    fn into_draft(self) -> Option<Draft> {
        Some(Draft {
            tree: Arc::try_unwrap(self.tree.tree).ok()?,
            text: Text {
                body: self.body,
                marks: self.tree.marks,
                checked: self.tree.checked,
            },
        })
    }
}

/// The trees of one resource's objects, those longest out of use dropped first.
#[derive(Debug, Default)]
pub(super) struct Trees {
    kept: HashMap<String, Kept>,
    /// What all count for together.
    bytes: usize,
    clock: u64,
}

impl Trees {
    /// Returns the tree of an object, resource version included.
    pub(super) fn get(&mut self, key: &str, object: &Object) -> Option<Stored> {
        let kept = self.kept.get_mut(key)?;
        let version = object.resource_version.0;
        // The same revision in another history is another state.
        if kept.revision != version || object.renewed || kept.body != *object.body() {
            return None;
        }
        self.clock += 1;
        kept.used = self.clock;
        Some(Stored {
            tree: kept.tree.tree.clone(),
            marks: Some(kept.tree.marks.clone()),
            checked: kept.tree.checked,
        })
    }

    /// Takes the draft of the object under a key.
    pub(super) fn draft(&mut self, key: &str) -> Option<Draft> {
        let draft = self.kept.get_mut(key)?.draft.take()?;
        self.bytes -= draft.text.body.len();
        Some(draft)
    }

    /// Keeps the tree of an object in place of what was kept under its key, which is a
    /// draft then. Returns what is not kept any more, to be dropped where nobody waits
    /// for it.
    pub(super) fn put(
        &mut self,
        key: &str,
        object: &Object,
        tree: Tree,
    ) -> (Vec<Kept>, Option<Draft>) {
        self.clock += 1;
        let kept = Kept {
            body: object.body().clone(),
            revision: object.resource_version.0,
            tree,
            draft: None,
            used: self.clock,
        };
        // Of two that were written one after the other, either may come first here.
        let newest = self.kept.get(key).map_or(0, |before| before.revision);
        if newest > kept.revision || kept.body.len() > BYTES_MAX {
            return (vec![kept], None);
        }
        let (mut gone, mut draft) = (Vec::new(), None);
        match self.kept.get_mut(key) {
            Some(slot) => {
                let mut before = std::mem::replace(slot, kept);
                self.bytes -= before.bytes();
                draft = before.draft.take();
                // What is much longer would be memory for nothing.
                if before.body.len() <= 2 * slot.body.len() {
                    slot.draft = before.into_draft();
                } else {
                    gone.push(before);
                }
                self.bytes += slot.bytes();
            }
            None => {
                self.bytes += kept.bytes();
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
        (gone, draft)
    }

    /// Forgets, and returns, what is kept under a key.
    pub(super) fn forget(&mut self, key: &str) -> Option<Kept> {
        let kept = self.kept.remove(key)?;
        self.bytes -= kept.bytes();
        Some(kept)
    }
}

/// An object as JSON, resource version included, that is the same once it was written
/// and read again.
#[derive(Debug)]
pub(super) struct Tree {
    tree: Arc<Value>,
    /// Where what stands in its body.
    marks: Arc<Marks>,
    /// Whether this process has checked all of it.
    checked: bool,
}

impl Tree {
    /// Takes a tree that was written; none without the marks of a text that says the same.
    pub(super) fn of(tree: Value, marks: Option<Marks>, checked: bool) -> Option<Self> {
        marks.map(|marks| Self {
            tree: Arc::new(tree),
            marks: Arc::new(marks),
            checked,
        })
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
        Tree::of(value, Some(Marks::default()), true).unwrap()
    }

    fn got(trees: &mut Trees, key: &str, object: &Object) -> Option<Value> {
        let stored = trees.get(key, object)?;
        Some(Value::clone(&stored.tree))
    }

    fn named(n: usize) -> Value {
        json!({"metadata": {"name": "x"}, "spec": n})
    }

    #[test]
    fn a_tree_is_that_of_the_very_object() {
        let mut trees = Trees::default();
        let first = object(&named(1), 5);
        assert_eq!(got(&mut trees, "a/x", &first), None);
        trees.put("a/x", &first, tree(named(1)));
        assert_eq!(got(&mut trees, "a/x", &first), Some(named(1)));
        assert_eq!(got(&mut trees, "b/x", &first), None);
        // Another revision of the same, and the same revision of another history.
        assert_eq!(got(&mut trees, "a/x", &object(&named(1), 6)), None);
        assert_eq!(got(&mut trees, "a/x", &object(&named(2), 5)), None);
        trees.put("a/x", &object(&named(2), 6), tree(named(2)));
        assert_eq!(got(&mut trees, "a/x", &first), None);
        trees.put("a/x", &first, tree(named(1)));
        assert_eq!(
            got(&mut trees, "a/x", &object(&named(2), 6)),
            Some(named(2))
        );
        trees.forget("a/x");
        assert_eq!((trees.kept.len(), trees.bytes), (0, 0));
    }

    #[test]
    fn the_state_before_is_a_draft() {
        let mut trees = Trees::default();
        let (first, second, third) = (named(1), named(2), named(3));
        trees.put("a", &object(&first, 1), tree(first.clone()));
        assert!(trees.draft("a").is_none() && trees.draft("b").is_none());
        trees.put("a", &object(&second, 2), tree(second.clone()));
        let draft = trees.draft("a").unwrap();
        let (tree_of_draft, text) = draft.into_parts();
        assert_eq!(tree_of_draft, first);
        assert_eq!(text.marked().text, object(&first, 1).body());
        assert!(trees.draft("a").is_none());
        // Who still looks at it keeps it.
        let looked_at = trees.get("a", &object(&second, 2)).unwrap();
        trees.put("a", &object(&third, 3), tree(third));
        assert!(trees.draft("a").is_none());
        assert_eq!(*looked_at.tree, second);
    }

    #[test]
    fn what_writing_may_change_is_not_kept() {
        for (spec, kept) in [
            (json!([{"a": 0.1}]), false),
            (json!([{"a": -1, "b": u64::MAX}]), true),
        ] {
            let body = json!({"metadata": {"name": "x"}, "spec": spec});
            let marks = Encoded::of(&body, 0).unwrap().take_marks();
            assert_eq!(Tree::of(body, marks, true).is_some(), kept);
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
        let long = |bytes| json!({"metadata": {"name": "x"}, "spec": "x".repeat(bytes)});
        let part = long(BYTES_MAX / 5);
        for (key, revision) in [("l", 1), ("m", 1), ("n", 1), ("n", 2), ("m", 2), ("n", 3)] {
            trees.put(key, &object(&part, revision), tree(part.clone()));
            let sum: usize = trees.kept.values().map(Kept::bytes).sum();
            assert!(trees.bytes == sum && sum <= BYTES_MAX);
        }
        assert!(trees.get("n", &object(&part, 3)).is_some());
        assert!(trees.draft("n").is_some() && !trees.kept.contains_key("l"));
        assert_eq!(
            trees.bytes,
            trees.kept.values().map(Kept::bytes).sum::<usize>()
        );
        // What was much longer is no draft.
        trees.put("n", &object(&long(9), 4), tree(long(9)));
        assert!(trees.draft("n").is_none());
    }
}
