//! Knows whether a cache shows a controller's own last write yet.
//!
//! A controller that acts on a copy older than its own last write would decide
//! the same again and lose the race for the object against itself. It waits for
//! the cache instead: the change that catches up enqueues the key (KEP-5647, and
//! KEP-5504 for comparing versions).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use client::{KubeObject, ObjectKey};
use jiff::SignedDuration;
use serde_json::Value;

/// Is how soon a key is looked at again whose object is behind, in case the
/// change that would wake it is the one that was lost.
pub(crate) const CATCH_UP: SignedDuration = SignedDuration::from_secs(1);

/// Remembers the version each object had after the last write of this process.
///
/// Holds one entry per object until its cache has caught up.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    written: Mutex<BTreeMap<ObjectKey, Written>>,
}

#[derive(Debug, PartialEq)]
struct Written {
    uid: String,
    version: u64,
}

impl OwnWrites {
    /// Notes the object a write left. One without metadata is ignored.
    pub(crate) fn note(&self, object: &Value) {
        let metadata = &object["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        if let Ok(version) = text("resourceVersion").parse() {
            let key = ObjectKey::new(text("namespace"), text("name"));
            self.lock().insert(
                key,
                Written {
                    uid: text("uid").to_owned(),
                    version,
                },
            );
        }
    }

    /// Tells whether a cached object is older than this process's last write to it.
    pub(crate) fn is_behind(&self, cached: &impl KubeObject) -> bool {
        let key = cached.key();
        let mut written = self.lock();
        let Some(last) = written.get(&key) else {
            return false;
        };
        let behind = last.uid == cached.uid()
            && cached
                .resource_version()
                .parse::<u64>()
                .is_ok_and(|seen| seen < last.version);
        if !behind {
            written.remove(&key);
        }
        behind
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::PartialObject;
    use serde_json::json;

    fn object(uid: &str, version: &str) -> Value {
        json!({"metadata": {"name": "a", "namespace": "d", "uid": uid, "resourceVersion": version}})
    }

    fn cached(uid: &str, version: &str) -> PartialObject {
        serde_json::from_value(object(uid, version)).unwrap()
    }

    #[test]
    fn a_cache_is_behind_until_it_shows_the_write() {
        let writes = OwnWrites::default();
        assert!(!writes.is_behind(&cached("u", "1")));
        writes.note(&object("u", "10"));
        assert!(writes.is_behind(&cached("u", "9")), "compared as numbers");
        assert!(!writes.is_behind(&cached("u", "10")));
        assert!(
            !writes.is_behind(&cached("u", "9")),
            "caught up once, known no more"
        );
        writes.note(&object("u", "20"));
        assert!(
            !writes.is_behind(&cached("other", "5")),
            "another object of that name"
        );
        writes.note(&Value::Null);
    }
}
