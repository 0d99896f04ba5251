//! Who is interested in a change: an index, so that the work per change is
//! proportional to the watchers it may concern and not to all of them.
//!
//! Each watcher lies in exactly one bucket, the narrowest its selector pins: a
//! name, the value of the indexed field, a namespace, or everything. Buckets
//! only narrow; the selector decides.

use std::collections::BTreeMap;

use meta::Object;

use crate::selector::Selector;

/// Names a watcher; never used twice within a cacher.
pub type WatcherId = u64;

/// Watchers themselves, not only their names: whoever is dispatched to is not
/// looked up.
type Bucket<T> = BTreeMap<WatcherId, T>;

#[derive(Debug)]
pub(crate) struct Index<T> {
    /// The field whose values get buckets, such as `spec.nodeName`.
    field: Option<&'static str>,
    all: Bucket<T>,
    by_namespace: BTreeMap<String, Bucket<T>>,
    /// By name, in any namespace.
    by_name: BTreeMap<String, Bucket<T>>,
    by_namespace_and_name: BTreeMap<String, BTreeMap<String, Bucket<T>>>,
    by_field: BTreeMap<String, Bucket<T>>,
}

impl<T> Index<T> {
    pub(crate) fn new(field: Option<&'static str>) -> Self {
        Self {
            field,
            all: BTreeMap::new(),
            by_namespace: BTreeMap::new(),
            by_name: BTreeMap::new(),
            by_namespace_and_name: BTreeMap::new(),
            by_field: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, id: WatcherId, selector: &Selector, watcher: T) {
        self.bucket(selector).insert(id, watcher);
    }

    pub(crate) fn remove(&mut self, id: WatcherId, selector: &Selector) {
        self.bucket(selector).remove(&id);
        // Names and values come and go without end; empty buckets must not stay.
        match (selector.pinned_namespace(), selector.pinned_name()) {
            (Some(ns), Some(name)) => {
                if let Some(names) = self.by_namespace_and_name.get_mut(ns) {
                    drop_if_empty(names, name);
                    if names.is_empty() {
                        self.by_namespace_and_name.remove(ns);
                    }
                }
            }
            (None, Some(name)) => drop_if_empty(&mut self.by_name, name),
            (ns, None) => {
                if let Some(value) = self.field.and_then(|f| selector.fields.exact(f)) {
                    drop_if_empty(&mut self.by_field, value);
                } else if let Some(ns) = ns {
                    drop_if_empty(&mut self.by_namespace, ns);
                }
            }
        }
    }

    fn bucket(&mut self, selector: &Selector) -> &mut Bucket<T> {
        match (selector.pinned_namespace(), selector.pinned_name()) {
            (Some(ns), Some(name)) => self
                .by_namespace_and_name
                .entry(ns.to_owned())
                .or_default()
                .entry(name.to_owned())
                .or_default(),
            (None, Some(name)) => self.by_name.entry(name.to_owned()).or_default(),
            (ns, None) => {
                if let Some(value) = self.field.and_then(|f| selector.fields.exact(f)) {
                    self.by_field.entry(value.to_owned()).or_default()
                } else if let Some(ns) = ns {
                    self.by_namespace.entry(ns.to_owned()).or_default()
                } else {
                    &mut self.all
                }
            }
        }
    }

    /// Calls `visit` once for every watcher whom a change from `before` to
    /// `now` may concern. Name and namespace are the same on both sides.
    pub(crate) fn interested(
        &self,
        before: Option<&Object>,
        now: Option<&Object>,
        mut visit: impl FnMut(WatcherId, &T),
    ) {
        let Some(any) = now.or(before) else { return };
        let (ns, name) = (any.meta.namespace.as_str(), any.meta.name.as_str());
        let mut visit_all = |bucket: Option<&Bucket<T>>| {
            for (id, watcher) in bucket.into_iter().flatten() {
                visit(*id, watcher);
            }
        };
        visit_all(Some(&self.all));
        visit_all(self.by_namespace.get(ns));
        visit_all(self.by_name.get(name));
        visit_all(self.by_namespace_and_name.get(ns).and_then(|n| n.get(name)));
        if let Some(field) = self.field
            && !self.by_field.is_empty()
        {
            fn value<'a>(object: Option<&'a Object>, field: &str) -> Option<&'a str> {
                object.map(|o| o.field(field).unwrap_or_default())
            }
            let (old, new) = (value(before, field), value(now, field));
            visit_all(old.and_then(|v| self.by_field.get(v)));
            if old != new {
                visit_all(new.and_then(|v| self.by_field.get(v)));
            }
        }
    }

    /// Counts the buckets that exist for somebody.
    #[cfg(test)]
    pub(crate) fn buckets(&self) -> usize {
        let names = self.by_namespace_and_name.values().map(BTreeMap::len);
        self.by_namespace.len()
            + self.by_name.len()
            + self.by_field.len()
            + self.by_namespace_and_name.len()
            + names.sum::<usize>()
    }
}

fn drop_if_empty<T>(buckets: &mut BTreeMap<String, Bucket<T>>, key: &str) {
    if buckets.get(key).is_some_and(BTreeMap::is_empty) {
        buckets.remove(key);
    }
}
