//! The reference store: the smallest thing that keeps the contract of
//! [`Store`], in memory, for tests and as the model the others are measured by.
//!
//! Nothing is ever really forgotten (compaction only refuses), and time passes
//! only when told: do not keep anything here that should last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::store::{
    Cas, Got, Kv, Page, PageRequest, Store, StoreError, StoreEvent, StoreWatch, WatchBatch,
};

/// The most events one batch holds; a revision is never split.
const BATCH_MAX: usize = 500;

#[derive(Debug, Default)]
struct State {
    revision: u64,
    compacted: u64,
    /// Every value a key ever had, oldest first; `None` for a deletion.
    keys: BTreeMap<String, Vec<(u64, Option<Bytes>)>>,
    log: Vec<StoreEvent>,
    /// The second at which a key vanishes.
    expires: BTreeMap<String, u64>,
    clock: u64,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// (revision, epoch of the watches)
    changed: watch::Sender<(u64, u64)>,
    reports_progress: bool,
}

/// A store in memory; clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStore(Arc<Inner>);

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(true)
    }
}

impl MemoryStore {
    /// Creates an empty store, whose progress reports are reliable or not.
    pub fn new(reports_progress: bool) -> Self {
        let state = State {
            // As etcd begins: an empty store is at revision 1.
            revision: 1,
            ..State::default()
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            changed: watch::Sender::new((1, 0)),
            reports_progress,
        }))
    }

    /// Ends every watch, as a lost connection would.
    pub fn break_watches(&self) {
        self.0.changed.send_modify(|(_, epoch)| *epoch += 1);
    }

    /// Lets seconds pass; what expires goes in one revision, as keys of one
    /// lease do.
    pub fn advance(&self, seconds: u64) {
        let mut state = self.lock();
        state.clock += seconds;
        let clock = state.clock;
        let gone: Vec<String> = state
            .expires
            .iter()
            .filter(|(_, at)| **at <= clock)
            .map(|(key, _)| key.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        state.revision += 1;
        for key in gone {
            state.record(&key, None);
        }
        self.tell(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        let revision = state.revision;
        drop(state);
        self.0.changed.send_modify(|(r, _)| *r = (*r).max(revision));
    }

    fn swap(
        &self,
        key: &str,
        expected: u64,
        value: Option<Bytes>,
        ttl: Option<u64>,
    ) -> Result<Cas, StoreError> {
        let mut state = self.lock();
        let present = state.at(key, u64::MAX);
        if present.as_ref().map_or(0, |kv| kv.mod_revision) != expected {
            return Ok(Cas::Conflict(present));
        }
        if present.is_none() && value.is_none() {
            return Ok(Cas::Conflict(None));
        }
        state.revision += 1;
        let written = value.is_some();
        state.record(key, value);
        if let Some(ttl) = ttl.filter(|_| written) {
            let at = state.clock + ttl;
            state.expires.insert(key.to_owned(), at);
        }
        let revision = state.revision;
        self.tell(state);
        Ok(Cas::Done(revision))
    }
}

impl State {
    fn record(&mut self, key: &str, value: Option<Bytes>) {
        let revision = self.revision;
        self.expires.remove(key);
        let history = self.keys.entry(key.to_owned()).or_default();
        history.push((revision, value.clone()));
        self.log.push(StoreEvent {
            key: key.to_owned(),
            value,
            revision,
        });
    }

    fn at(&self, key: &str, revision: u64) -> Option<Kv> {
        let history = self.keys.get(key)?;
        let (mod_revision, value) = history.iter().rev().find(|(r, _)| *r <= revision)?;
        Some(Kv {
            key: key.to_owned(),
            value: value.clone()?,
            mod_revision: *mod_revision,
        })
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        let state = self.lock();
        Ok(Got {
            revision: state.revision,
            kv: state.at(key, u64::MAX),
        })
    }

    async fn list(&self, page: PageRequest) -> Result<Page, StoreError> {
        let state = self.lock();
        let revision = match page.revision {
            0 => state.revision,
            r if r < state.compacted => return Err(StoreError::Compacted(Some(state.compacted))),
            r if r > state.revision => return Err(StoreError::Future),
            r => r,
        };
        let start = page.start.clone().max(page.prefix.clone());
        let mut kvs: Vec<Kv> = state
            .keys
            .range(start..)
            .take_while(|(key, _)| key.starts_with(&page.prefix))
            .filter_map(|(key, _)| state.at(key, revision))
            .collect();
        let count = kvs.len() as u64;
        let more = page.limit > 0 && kvs.len() > page.limit;
        if more {
            kvs.truncate(page.limit);
        }
        if page.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        Ok(Page {
            revision,
            kvs,
            more,
            count,
        })
    }

    async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: u64,
        ttl: Option<u64>,
    ) -> Result<Cas, StoreError> {
        self.swap(key, expected, Some(value), ttl)
    }

    async fn delete(&self, key: &str, expected: u64) -> Result<Cas, StoreError> {
        self.swap(key, expected, None, None)
    }

    async fn watch(&self, prefix: &str, from: u64) -> Result<Box<dyn StoreWatch>, StoreError> {
        let changed = self.0.changed.subscribe();
        let epoch = changed.borrow().1;
        let state = self.lock();
        if from < state.compacted {
            return Err(StoreError::Compacted(Some(state.compacted)));
        }
        Ok(Box::new(MemoryWatch {
            store: self.clone(),
            prefix: prefix.to_owned(),
            at: state.log.partition_point(|e| e.revision < from),
            wants_progress: false,
            changed,
            epoch,
        }))
    }

    async fn current_revision(&self) -> Result<u64, StoreError> {
        Ok(self.lock().revision)
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        let mut state = self.lock();
        if revision > state.revision {
            return Err(StoreError::Future);
        }
        if revision <= state.compacted {
            return Err(StoreError::Compacted(Some(state.compacted)));
        }
        state.compacted = revision;
        Ok(())
    }

    fn reports_progress(&self) -> bool {
        self.0.reports_progress
    }
}

struct MemoryWatch {
    store: MemoryStore,
    prefix: String,
    /// The next entry of the log to look at.
    at: usize,
    wants_progress: bool,
    changed: watch::Receiver<(u64, u64)>,
    epoch: u64,
}

impl MemoryWatch {
    fn poll(&mut self) -> Option<WatchBatch> {
        let state = self.store.lock();
        let mut events: Vec<StoreEvent> = Vec::new();
        while let Some(event) = state.log.get(self.at) {
            let full = events.len() >= BATCH_MAX;
            if full && events.last().is_some_and(|e| e.revision != event.revision) {
                break;
            }
            self.at += 1;
            if event.key.starts_with(&self.prefix) {
                events.push(event.clone());
            }
        }
        if !events.is_empty() {
            return Some(WatchBatch::Events(events));
        }
        std::mem::take(&mut self.wants_progress).then_some(WatchBatch::Progress(state.revision))
    }
}

#[async_trait]
impl StoreWatch for MemoryWatch {
    async fn next(&mut self) -> Result<WatchBatch, StoreError> {
        loop {
            if self.changed.borrow_and_update().1 != self.epoch {
                return Err(StoreError::Ended("connection lost".to_owned()));
            }
            if let Some(batch) = self.poll() {
                return Ok(batch);
            }
            if self.changed.changed().await.is_err() {
                return Err(StoreError::Ended("store dropped".to_owned()));
            }
        }
    }

    fn request_progress(&mut self) {
        self.wants_progress = true;
    }
}
