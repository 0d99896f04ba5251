//! Makes the store forget old history, as a kube-apiserver does.
//!
//! Every interval the revision of one interval ago is compacted. Several API
//! servers, ours or kube-apiserver, take turns by compare-and-swap on one key;
//! whoever loses learns from the winner's value what is gone
//! (`storage/etcd3/compact.go`).
//!
//! Whoever did it, an administrator's hand among them, every server looks from
//! time to time what is forgotten, so that its caches do not serve what the
//! store would refuse.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::resource::ResourceStore;
use super::store::{Cas, Kv, Store, StoreError};

/// The key over which API servers agree on who compacts.
const KEY: &str = "compact_rev_key";
/// How long history is kept at least (`--etcd-compaction-interval`).
pub const COMPACT_EVERY: Duration = Duration::from_secs(300);

/// How often the store is asked what it has forgotten (kube-apiserver
/// `cacher/compactor.go`).
pub const COMPACTION_POLL: Duration = Duration::from_secs(15);

/// Lists who is told of a compaction, at the time of it.
pub type Told = Arc<dyn Fn() -> Vec<Arc<ResourceStore>> + Send + Sync>;

/// Tells `resources` of compactions, whoever made them; ends when `token` is
/// cancelled.
pub async fn follow(
    store: Arc<dyn Store>,
    resources: Told,
    poll: Duration,
    token: CancellationToken,
) {
    let mut known = 0;
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(poll) => {}
        }
        let compacted = tokio::select! {
            () = token.cancelled() => return,
            compacted = store.compacted_revision() => compacted,
        };
        match compacted {
            Ok(revision) if revision > known => {
                known = revision;
                tell(&resources, revision);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the store did not say what it compacted"),
        }
    }
}

fn tell(resources: &Told, revision: u64) {
    tracing::debug!(revision, "history compacted");
    for resource in resources() {
        resource.compacted(revision);
    }
}

/// Compacts a store's history from time to time.
pub struct Compactor {
    store: Arc<dyn Store>,
    resources: Told,
    /// The key's revision when last seen; 0 for absent.
    key_revision: u64,
    /// What to compact next: the revision of one interval ago.
    target: u64,
}

impl std::fmt::Debug for Compactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compactor({})", self.target)
    }
}

impl Compactor {
    /// Starts compacting every `every`, telling `resources`; ends when `token`
    /// is cancelled.
    pub fn start(
        store: Arc<dyn Store>,
        resources: Told,
        every: Duration,
        token: CancellationToken,
    ) {
        let mut compactor = Self {
            store,
            resources,
            key_revision: 0,
            target: 0,
        };
        tokio::spawn(async move {
            loop {
                if let Err(error) = compactor.turn().await {
                    tracing::warn!(%error, "history was not compacted, trying again later");
                }
                tokio::select! {
                    () = token.cancelled() => break,
                    () = tokio::time::sleep(every) => {}
                }
            }
        });
    }

    async fn turn(&mut self) -> Result<(), StoreError> {
        let newest = self.store.current_revision().await?;
        let target = std::mem::replace(&mut self.target, newest);
        let value = Bytes::from(target.to_string());
        match self.store.put(KEY, value, self.key_revision, None).await? {
            Cas::Done(revision) => {
                self.key_revision = revision;
                if target == 0 {
                    return Ok(());
                }
                match self.store.compact(target).await {
                    // Somebody else's hand; as good.
                    Ok(()) | Err(StoreError::Compacted(_)) => tell(&self.resources, target),
                    Err(error) => return Err(error),
                }
            }
            Cas::Conflict(kv) => {
                self.key_revision = kv.as_ref().map_or(0, |kv| kv.mod_revision);
                if let Some(revision) = kv.as_ref().and_then(compacted) {
                    tell(&self.resources, revision);
                }
            }
        }
        Ok(())
    }
}

fn compacted(kv: &Kv) -> Option<u64> {
    std::str::from_utf8(&kv.value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryStore;
    use super::super::store::PageRequest;
    use super::*;

    fn compactor(store: &MemoryStore) -> Compactor {
        Compactor {
            store: Arc::new(store.clone()),
            resources: Arc::new(Vec::new),
            key_revision: 0,
            target: 0,
        }
    }

    async fn write(store: &MemoryStore, key: &str) -> u64 {
        match store.put(key, Bytes::new(), 0, None).await {
            Ok(Cas::Done(revision)) => revision,
            other => panic!("{other:?}"),
        }
    }

    async fn is_gone(store: &MemoryStore, revision: u64) -> bool {
        let page = PageRequest {
            revision,
            ..PageRequest::default()
        };
        matches!(store.list(page).await, Err(StoreError::Compacted(_)))
    }

    #[tokio::test]
    async fn keeps_one_interval_and_takes_turns() {
        let store = MemoryStore::default();
        let (mut one, mut two) = (compactor(&store), compactor(&store));
        let old = write(&store, "a").await;
        one.turn().await.unwrap();
        two.turn().await.unwrap();
        assert!(!is_gone(&store, old).await);
        let newer = write(&store, "b").await;
        // The first to come compacts, the second finds it done.
        one.turn().await.unwrap();
        two.turn().await.unwrap();
        one.turn().await.unwrap();
        assert!(is_gone(&store, old - 1).await);
        assert!(is_gone(&store, old).await);
        let before = store.current_revision().await.unwrap();
        assert!(before > newer && !is_gone(&store, before).await);
    }
}
