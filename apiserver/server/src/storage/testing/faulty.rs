//! A store that counts what is asked of it, and fails on command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::storage::memory::MemoryStore;
use crate::storage::store::{
    Cas, Got, Page, PageRequest, Store, StoreError, StoreEvent, StoreWatch, WatchBatch,
};

/// What is wrong, and what was asked.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Lists without a limit below the feed's wait while this is set.
    pub(crate) hold_loads: watch::Sender<bool>,
    /// Puts are carried out and not answered while this is set.
    pub(crate) hold_answers: watch::Sender<bool>,
    /// Puts are not carried out.
    pub(crate) refuse: AtomicBool,
    /// The next change is not reported.
    pub(crate) swallow: AtomicBool,
    /// Calls that read or write a key or a list.
    pub(crate) calls: AtomicU64,
}

/// A memory store with faults.
#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    pub(crate) faults: Arc<Faults>,
}

impl FaultyStore {
    pub(crate) fn new() -> Self {
        Self {
            inner: MemoryStore::default(),
            faults: Arc::new(Faults {
                hold_loads: watch::Sender::new(false),
                hold_answers: watch::Sender::new(false),
                refuse: AtomicBool::new(false),
                swallow: AtomicBool::new(false),
                calls: AtomicU64::new(0),
            }),
        }
    }

    /// Returns how many calls there were since this was last asked.
    pub(crate) fn calls(&self) -> u64 {
        self.faults.calls.swap(0, Ordering::SeqCst)
    }

    fn count(&self) {
        self.faults.calls.fetch_add(1, Ordering::SeqCst);
    }
}

/// A load reads pages as large as this or larger.
const LOAD_PAGE: usize = 10_000;

#[async_trait]
impl Store for FaultyStore {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        self.count();
        self.inner.get(key).await
    }

    async fn list(&self, page: PageRequest) -> Result<Page, StoreError> {
        self.count();
        if page.limit >= LOAD_PAGE && !page.keys_only {
            let mut held = self.faults.hold_loads.subscribe();
            // Never an error: the sender lives in `self`.
            let _ = held.wait_for(|held| !held).await;
        }
        self.inner.list(page).await
    }

    async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: u64,
        ttl: Option<u64>,
    ) -> Result<Cas, StoreError> {
        self.count();
        if self.faults.refuse.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("refused".to_owned()));
        }
        let done = self.inner.put(key, value, expected, ttl).await;
        let mut held = self.faults.hold_answers.subscribe();
        // Never an error: the sender lives in `self`.
        let _ = held.wait_for(|held| !held).await;
        done
    }

    async fn delete(&self, key: &str, expected: u64) -> Result<Cas, StoreError> {
        self.count();
        self.inner.delete(key, expected).await
    }

    async fn watch(&self, prefix: &str, from: u64) -> Result<Box<dyn StoreWatch>, StoreError> {
        Ok(Box::new(FaultyWatch {
            inner: self.inner.watch(prefix, from).await?,
            faults: self.faults.clone(),
        }))
    }

    async fn current_revision(&self) -> Result<u64, StoreError> {
        self.inner.current_revision().await
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        self.inner.compact(revision).await
    }

    fn reports_progress(&self) -> bool {
        true
    }
}

struct FaultyWatch {
    inner: Box<dyn StoreWatch>,
    faults: Arc<Faults>,
}

#[async_trait]
impl StoreWatch for FaultyWatch {
    async fn next(&mut self) -> Result<WatchBatch, StoreError> {
        let batch = self.inner.next().await?;
        let swallowed =
            |e: &StoreEvent| e.value.is_some() && self.faults.swallow.swap(false, Ordering::SeqCst);
        Ok(match batch {
            WatchBatch::Events(mut events) => {
                events.retain(|e| !swallowed(e));
                WatchBatch::Events(events)
            }
            progress => progress,
        })
    }

    fn request_progress(&mut self) {
        self.inner.request_progress();
    }
}
