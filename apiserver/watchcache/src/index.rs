//! Who is interested in a change: an index, so that the work per change is
//! proportional to the watchers it may concern and not to all of them.
//!
//! Each watcher lies in exactly one bucket, the narrowest its selector pins: a
//! name, the value of the indexed field, a namespace, or everything. Buckets
//! only narrow; the selector decides.

use std::collections::{BTreeMap, BTreeSet};

use meta::Object;

use crate::selector::Selector;

/// Names a watcher; never used twice within a cacher.
pub type WatcherId = u64;

type Ids = BTreeSet<WatcherId>;

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The field whose values get buckets, such as `spec.nodeName`.
    field: Option<&'static str>,
    all: Ids,
    by_namespace: BTreeMap<String, Ids>,
    /// By name, in any namespace.
    by_name: BTreeMap<String, Ids>,
    by_namespace_and_name: BTreeMap<String, BTreeMap<String, Ids>>,
    by_field: BTreeMap<String, Ids>,
}

impl Index {
    pub(crate) fn new(field: Option<&'static str>) -> Self {
        Self {
            field,
            ..Self::default()
        }
    }

    pub(crate) fn insert(&mut self, id: WatcherId, selector: &Selector) {
        self.bucket(selector).insert(id);
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

    fn bucket(&mut self, selector: &Selector) -> &mut Ids {
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
        mut visit: impl FnMut(WatcherId),
    ) {
        let Some(any) = now.or(before) else { return };
        let (ns, name) = (any.meta.namespace.as_str(), any.meta.name.as_str());
        let mut visit_all =
            |ids: Option<&Ids>| ids.into_iter().flatten().copied().for_each(&mut visit);
        visit_all(Some(&self.all));
        visit_all(self.by_namespace.get(ns));
        visit_all(self.by_name.get(name));
        visit_all(self.by_namespace_and_name.get(ns).and_then(|n| n.get(name)));
        if let Some(field) = self.field
            && !self.by_field.is_empty()
        {
            let value =
                |o: Option<&Object>| o.map(|o| o.field(field).unwrap_or_default().to_owned());
            let (old, new) = (value(before), value(now));
            visit_all(old.as_ref().and_then(|v| self.by_field.get(v)));
            if old != new {
                visit_all(new.as_ref().and_then(|v| self.by_field.get(v)));
            }
        }
    }
}

fn drop_if_empty(buckets: &mut BTreeMap<String, Ids>, key: &str) {
    if buckets.get(key).is_some_and(BTreeSet::is_empty) {
        buckets.remove(key);
    }
}
