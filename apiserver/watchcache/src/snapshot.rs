//! The state of a resource at one revision; immutable and cheap to hold.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use meta::Object;

use crate::selector::Selector;

/// Key → object, in the store's key order.
pub(crate) type State = OrdMap<Arc<str>, Arc<Object>>;

/// The objects of a resource as they were at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The revision.
    pub revision: u64,
    pub(crate) state: State,
}

impl Snapshot {
    /// Returns the object under a key (`namespace/name`, or `name` at cluster
    /// scope).
    pub fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.state.get(key)
    }

    /// Counts the objects.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// Tells whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// Visits keys and objects from a key on, in key order.
    pub fn from_key<'a>(
        &'a self,
        start: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> + 'a {
        self.state
            .range::<_, str>((Bound::Included(start), Bound::Unbounded))
    }

    /// Visits keys and objects that begin with a prefix, from a key on.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        start: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> + 'a {
        self.from_key(start.max(prefix))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Returns the first selected object whose key is `start` or later.
    pub(crate) fn next_match(
        &self,
        selector: &Selector,
        start: &str,
    ) -> Option<(Arc<str>, Arc<Object>)> {
        let prefix = selector
            .pinned_namespace()
            .map(|ns| format!("{ns}/"))
            .unwrap_or_default();
        self.range(&prefix, start)
            .find(|(_, o)| selector.matches(o))
            .map(|(k, o)| (k.clone(), o.clone()))
    }
}
