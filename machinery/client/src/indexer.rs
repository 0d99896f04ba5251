//! The store an informer keeps: objects by key, with named indexes.
//!
//! Readers share the objects (`Arc`); nobody may change them. An object's namespace
//! needs no index: keys order by namespace, so a namespace is one range.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::api::core::v1::Pod;

use crate::delta_fifo::KnownObjects;
use crate::resource::{KubeObject, ObjectKey};

/// Names the index of objects by the UID of each of their owners.
pub const BY_OWNER_UID: &str = "ownerUid";
/// Names the index of pods by the node they run on; unassigned ones are under "".
pub const BY_NODE_NAME: &str = "nodeName";

/// Returns the values under which an index files an object.
pub type IndexFn<T> = Arc<dyn Fn(&T) -> Vec<String> + Send + Sync>;

/// Files objects by the UIDs of their owners, for [`BY_OWNER_UID`].
pub fn owner_uids<T: KubeObject>(object: &T) -> Vec<String> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.map(|owner| owner.uid.clone()).collect()
}

/// Files pods by their node, for [`BY_NODE_NAME`].
pub fn node_name(pod: &Pod) -> Vec<String> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    vec![node.unwrap_or_default()]
}

/// Holds objects by key. A clone is the same store.
pub struct Store<T> {
    inner: Arc<RwLock<Inner<T>>>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

struct Inner<T> {
    objects: BTreeMap<ObjectKey, Arc<T>>,
    indexes: BTreeMap<String, Index<T>>,
    resource_version: String,
}

struct Index<T> {
    function: IndexFn<T>,
    keys: BTreeMap<String, BTreeSet<ObjectKey>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        let inner = Inner {
            objects: BTreeMap::new(),
            indexes: BTreeMap::new(),
            resource_version: String::new(),
        };
        Self {
            inner: Arc::new(RwLock::new(inner)),
        }
    }
}

impl<T> Store<T> {
    /// Returns an object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.read().objects.get(key).cloned()
    }

    /// Returns an object by namespace ("" if cluster-scoped) and name.
    pub fn get_by(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.get(&ObjectKey::new(namespace, name))
    }

    /// Returns all objects, ordered by key.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.read().objects.values().cloned().collect()
    }

    /// Returns the objects of a namespace, ordered by name.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let first = ObjectKey::new(namespace, "");
        let inner = self.read();
        inner
            .objects
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(|(key, _)| key.namespace == namespace)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Returns the objects an index files under a value, ordered by key; none if the
    /// index does not exist.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<T>> {
        let inner = self.read();
        let keys = inner.indexes.get(index).and_then(|i| i.keys.get(value));
        let objects = keys.into_iter().flatten();
        objects
            .filter_map(|key| inner.objects.get(key).cloned())
            .collect()
    }

    /// Returns the values an index knows.
    pub fn index_values(&self, index: &str) -> Vec<String> {
        let inner = self.read();
        inner
            .indexes
            .get(index)
            .map(|i| i.keys.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Returns all keys in order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.read().objects.keys().cloned().collect()
    }

    /// Returns how many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Tells whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the resource version up to which the store is complete; empty before
    /// the first list.
    pub fn resource_version(&self) -> String {
        self.read().resource_version.clone()
    }

    /// Adds an index and files the present objects; replaces one of the same name.
    pub fn add_index(&self, name: &str, function: IndexFn<T>) {
        let mut inner = self.write();
        let mut index = Index {
            function,
            keys: BTreeMap::new(),
        };
        for (key, object) in &inner.objects {
            index.insert(key, object);
        }
        inner.indexes.insert(name.to_owned(), index);
    }

    /// Puts an object in and returns the one it replaces.
    pub fn insert(&self, key: ObjectKey, object: Arc<T>) -> Option<Arc<T>> {
        let mut inner = self.write();
        let inner = &mut *inner;
        let old = inner.objects.insert(key.clone(), Arc::clone(&object));
        for index in inner.indexes.values_mut() {
            if let Some(old) = &old {
                index.remove(&key, old);
            }
            index.insert(&key, &object);
        }
        old
    }

    /// Takes an object out.
    pub fn remove(&self, key: &ObjectKey) -> Option<Arc<T>> {
        let mut inner = self.write();
        let old = inner.objects.remove(key)?;
        for index in inner.indexes.values_mut() {
            index.remove(key, &old);
        }
        Some(old)
    }

    pub(crate) fn set_resource_version(&self, resource_version: &str) {
        let mut inner = self.write();
        inner.resource_version.clear();
        inner.resource_version.push_str(resource_version);
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner<T>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner<T>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Index<T> {
    fn insert(&mut self, key: &ObjectKey, object: &T) {
        for value in (self.function)(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &ObjectKey, object: &T) {
        for value in (self.function)(object) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

impl<T> KnownObjects<Arc<T>> for Store<T> {
    fn known_keys(&self) -> Vec<ObjectKey> {
        self.keys()
    }

    fn known(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.get(key)
    }
}

impl<T> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.read();
        f.debug_struct("Store")
            .field("objects", &inner.objects.len())
            .field("indexes", &inner.indexes.keys())
            .field("resource_version", &inner.resource_version)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store<Vec<&'static str>> {
        let store = Store::default();
        store.add_index(
            "word",
            Arc::new(|o: &Vec<&str>| o.iter().map(|w| (*w).into()).collect()),
        );
        store
    }

    fn names(store: &Store<Vec<&'static str>>, word: &str) -> Vec<String> {
        let keys = store.keys();
        let found = store.by_index("word", word);
        let name = |o: &Arc<Vec<&str>>| {
            keys.iter()
                .find(|k| store.get(k).is_some_and(|x| Arc::ptr_eq(&x, o)))
                .cloned()
        };
        found.iter().filter_map(name).map(|k| k.name).collect()
    }

    #[test]
    fn indexing_functions_with_multiple_values() {
        let store = store();
        store.insert(ObjectKey::new("", "a"), Arc::new(vec!["x", "y"]));
        store.insert(ObjectKey::new("", "b"), Arc::new(vec!["y"]));
        assert_eq!(names(&store, "y"), ["a", "b"]);
        store.insert(ObjectKey::new("", "a"), Arc::new(vec!["z"]));
        assert_eq!(names(&store, "x"), Vec::<String>::new());
        assert_eq!(names(&store, "y"), ["b"]);
        store.remove(&ObjectKey::new("", "b"));
        assert_eq!(store.index_values("word"), ["z"]);
    }

    #[test]
    fn index_added_late_files_what_is_there() {
        let store = store();
        store.insert(ObjectKey::new("", "a"), Arc::new(vec!["x"]));
        store.add_index("len", Arc::new(|o: &Vec<&str>| vec![o.len().to_string()]));
        assert_eq!(store.by_index("len", "1").len(), 1);
        assert!(store.by_index("no such index", "1").is_empty());
    }

    #[test]
    fn a_namespace_is_a_range() {
        let store = store();
        for (ns, name) in [("a", "1"), ("ab", "2"), ("a", "3"), ("", "4")] {
            store.insert(ObjectKey::new(ns, name), Arc::new(vec![]));
        }
        assert_eq!(store.list_namespace("a").len(), 2);
        assert_eq!(store.list_namespace("").len(), 1);
        assert_eq!(store.list().len(), 4);
    }
}
