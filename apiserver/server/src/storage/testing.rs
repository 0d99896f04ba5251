//! The conformance suite: what every [`Store`] must do, and what a
//! [`ResourceStore`] over any store must do.
//!
//! Functions, not tests, so that the same ones run over the reference store,
//! the embedded one and a real etcd. Each panics at the first broken promise,
//! and keeps to keys of its own, so that one store serves them all.

#[cfg(test)]
pub(crate) mod faulty;
mod raw;
mod reads;
mod scopes;
mod watches;
mod writes;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meta::{GroupResource, Object};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use watchcache::Limits;

use super::request::{ReadVersion, WatchRequest};
use super::resource::{ResourceConfig, ResourceStore};
use super::store::Store;

pub use raw::{
    run_compaction, run_compare_and_swap, run_expiry, run_pages, run_progress, run_watch,
};
pub use reads::{
    run_consistency, run_gets, run_list_compacted, run_list_expiry, run_list_later, run_list_pages,
    run_list_rare, run_list_selectors, run_list_versions,
};
pub use scopes::{
    run_watch_bookmark_versions, run_watch_ends, run_watch_late, run_watch_scopes,
    run_watch_semantics,
};
pub use watches::{
    run_slow_watcher, run_watch_bookmarks, run_watch_future, run_watch_selectors, run_watch_starts,
    run_watch_too_old,
};
pub use writes::{
    run_counter, run_hot_object, run_preconditions, run_shared, run_stale_suggestions,
    run_time_to_live, run_trees, run_write_cycle,
};

/// How long anything here may take before it counts as hanging.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Runs what every store must do.
pub async fn run_store(store: &dyn Store) {
    run_compare_and_swap(store).await;
    run_pages(store).await;
    run_watch(store).await;
    run_progress(store).await;
    run_compaction(store).await;
}

/// Runs what a resource over any store must do.
pub async fn run_resource(store: &Arc<dyn Store>) {
    run_write_cycle(store).await;
    run_preconditions(store).await;
    run_counter(store).await;
    run_stale_suggestions(store).await;
    run_trees(store).await;
    run_shared(store).await;
    run_hot_object(store).await;
    run_gets(store).await;
    run_consistency(store).await;
    run_list_versions(store).await;
    run_list_pages(store).await;
    run_list_selectors(store).await;
    run_list_rare(store).await;
    run_watch_starts(store).await;
    run_watch_selectors(store).await;
    run_watch_bookmarks(store).await;
    run_watch_scopes(store).await;
    run_watch_semantics(store).await;
    run_watch_late(store).await;
    run_watch_bookmark_versions(store).await;
    run_watch_ends(store).await;
    run_watch_too_old(store).await;
    run_watch_future(store).await;
    run_slow_watcher(store).await;
    // These compact, and so come last.
    run_list_expiry(store).await;
    run_list_later(store).await;
    run_list_compacted(store).await;
}

/// Waits for a future, but not for ever.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_elapsed) => panic!("{what} did not happen in {DEADLINE:?}"),
    }
}

/// Returns a name no other call returns in this process, and hardly another
/// process on the same store.
pub(crate) fn unique(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{n}", std::process::id())
}

/// A resource that lives as long as this.
pub(crate) struct Fixture {
    pub(crate) resource: Arc<ResourceStore>,
    _stop: DropGuard,
}

fn selectable(value: &Value) -> Vec<(&'static str, String)> {
    let node = meta::value::str_at(value, "spec.nodeName").to_owned();
    vec![("spec.nodeName", node)]
}

/// Starts a resource under a prefix of its own and waits until it is ready.
pub(crate) async fn resource(store: &Arc<dyn Store>) -> Fixture {
    let prefix = unique("things");
    start(store, &prefix).await
}

pub(crate) async fn start(store: &Arc<dyn Store>, prefix: &str) -> Fixture {
    let fixture = start_unready(store, prefix, Limits::default());
    within("ready", fixture.resource.ready()).await;
    fixture
}

/// Starts a resource and does not wait.
pub(crate) fn start_unready(store: &Arc<dyn Store>, prefix: &str, limits: Limits) -> Fixture {
    let token = CancellationToken::new();
    let config = ResourceConfig {
        resource: GroupResource::new("", "things"),
        storage_prefix: prefix.to_owned(),
        namespaced: true,
        selectable,
        index_field: Some("spec.nodeName"),
        ttl: None,
        reader: None,
    };
    let resource = ResourceStore::start_within(store.clone(), config, limits, token.clone());
    Fixture {
        resource,
        _stop: token.drop_guard(),
    }
}

/// A watch of everything after a revision.
pub(crate) fn from_version(revision: u64) -> WatchRequest {
    WatchRequest {
        version: ReadVersion::At(revision),
        ..WatchRequest::default()
    }
}

pub(crate) fn thing(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Thing",
        "metadata": {"name": name, "namespace": namespace, "uid": unique("uid")}})
}

impl Fixture {
    pub(crate) async fn create(&self, namespace: &str, name: &str) -> Arc<Object> {
        self.create_value(thing(namespace, name)).await
    }

    pub(crate) async fn create_value(&self, body: Value) -> Arc<Object> {
        let (ns, name) = (meta::value::namespace(&body), meta::value::name(&body));
        let (ns, name) = (ns.to_owned(), name.to_owned());
        let created = self.resource.create(Some(&ns), &name, body, None).await;
        created.expect("create")
    }

    /// Sets a member at a path, `spec.nodeName` or `metadata.labels.a`.
    pub(crate) async fn set(
        &self,
        namespace: &str,
        name: &str,
        path: &str,
        to: &str,
    ) -> Arc<Object> {
        let pre = Default::default();
        let outcome = self
            .resource
            .guaranteed_update(Some(namespace), name, &pre, |_, mut value| {
                let mut slot = &mut value;
                let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
                for part in parents.split('.').filter(|p| !p.is_empty()) {
                    let map = slot.as_object_mut().expect("an object");
                    slot = map.entry(part.to_owned()).or_insert(json!({}));
                }
                slot[last] = to.into();
                Ok(Some(value))
            })
            .await;
        outcome.expect("update").object
    }

    pub(crate) async fn delete(&self, namespace: &str, name: &str) -> Arc<Object> {
        let pre = Default::default();
        let gone = self
            .resource
            .delete(Some(namespace), name, &pre, |_| Ok(()));
        gone.await.expect("delete")
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryStore;
    use super::*;

    #[tokio::test]
    async fn reference_store() {
        run_store(&MemoryStore::default()).await;
    }

    #[tokio::test]
    async fn resource_over_reference_store() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        run_resource(&store).await;
    }

    #[tokio::test]
    async fn resource_over_a_store_without_progress_reports() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(false));
        run_resource(&store).await;
    }
}
