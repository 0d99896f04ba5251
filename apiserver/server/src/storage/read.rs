//! Reading one object, and waiting until the cache is fresh enough to be read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use meta::{Object, Reason, Status};
use watchcache::Snapshot;

use super::request::ReadVersion;
use super::resource::{ResourceStore, WAIT_FOR_REVISION};
use super::store::PageRequest;

/// How often a reader of a revision that does not exist yet asks whether it
/// does now; it gives up after [`WAIT_FOR_REVISION`].
const FUTURE_POLL: Duration = Duration::from_millis(100);

impl ResourceStore {
    /// Reads one object.
    pub async fn get(
        &self,
        namespace: Option<&str>,
        name: &str,
        version: ReadVersion,
    ) -> Result<Arc<Object>, Status> {
        let key = self.key(namespace, name);
        match version {
            ReadVersion::Any if self.is_ready() => {}
            ReadVersion::At(n) if self.is_ready() => self.reach(n).await?,
            // Not from a cache that is not ready: the store has it.
            _ => {
                let (found, revision) = self.read_at(&key).await?;
                if let ReadVersion::At(n) = version
                    && revision < n
                {
                    return Err(Status::too_large_resource_version(n, revision));
                }
                return found.ok_or_else(|| self.not_found(name));
            }
        }
        self.cached(&key).ok_or_else(|| self.not_found(name))
    }

    /// Reads one object from the store, linearizably; decodes only what is not
    /// known here.
    pub(super) async fn read(&self, key: &str) -> Result<Option<Arc<Object>>, Status> {
        self.read_at(key).await.map(|(found, _)| found)
    }

    async fn read_at(&self, key: &str) -> Result<(Option<Arc<Object>>, u64), Status> {
        let got = self
            .store
            .get(&self.full(key))
            .await
            .map_err(|e| e.into_status())?;
        let Some(kv) = got.kv else {
            return Ok((None, got.revision));
        };
        let object = match self.known(key, &kv) {
            Some(known) => known,
            None => self.decode_one(&kv)?,
        };
        Ok((Some(object), got.revision))
    }

    /// Waits until the cache has reached a revision a client named; 504 with
    /// `ResourceVersionTooLarge` when it does not exist in time.
    pub(super) async fn reach(&self, revision: u64) -> Result<(), Status> {
        let began = Instant::now();
        let reached = self.reach_in_time(revision).await;
        self.metrics.read_wait.observe(began.elapsed());
        reached
    }

    async fn reach_in_time(&self, revision: u64) -> Result<(), Status> {
        if *self.reached.borrow() >= revision {
            return Ok(());
        }
        let exists = async {
            // Progress is asked for only up to what exists: asking for more
            // would be a loop without pause.
            loop {
                let newest = self.store.current_revision().await;
                let newest = newest.map_err(|e| e.into_status())?;
                if newest >= revision || *self.reached.borrow() >= revision {
                    break;
                }
                tokio::time::sleep(FUTURE_POLL).await;
            }
            self.arrive(revision).await;
            Ok(())
        };
        match tokio::time::timeout(WAIT_FOR_REVISION, exists).await {
            Ok(result) => result,
            Err(_elapsed) => Err(Status::too_large_resource_version(
                revision,
                *self.reached.borrow(),
            )),
        }
    }

    /// Waits until the cache has reached a revision that exists.
    async fn arrive(&self, revision: u64) {
        let mut reached = self.reached.subscribe();
        if *reached.borrow_and_update() >= revision {
            return;
        }
        self.signals.want(revision);
        // Never an error: the sender lives in `self`.
        let _ = reached.wait_for(|r| *r >= revision).await;
    }

    /// Waits until the cache is as fresh as the store was when this was called;
    /// 429 when that takes too long. Returns the state that was found to be so, where
    /// that was found by comparing.
    pub(super) async fn fresh(&self) -> Result<Option<Snapshot>, Status> {
        let began = Instant::now();
        let wait = async {
            if self.store.reports_progress() {
                let newest = self.store.current_revision().await;
                self.arrive(newest.map_err(|e| e.into_status())?).await;
                Ok(None)
            } else {
                self.same_as_store().await.map(Some)
            }
        };
        let done = tokio::time::timeout(WAIT_FOR_REVISION, wait).await;
        self.metrics.read_wait.observe(began.elapsed());
        let (counted, result) = match done {
            Ok(Ok(proven)) => (&self.metrics.consistent_reads, Ok(proven)),
            Ok(Err(status)) => (&self.metrics.consistent_reads_failed, Err(status)),
            Err(_elapsed) => {
                let late = Status::failure(
                    Reason::TooManyRequests,
                    "the watch cache did not catch up with the store in time",
                );
                let late = Err(late.with_retry_after(1));
                (&self.metrics.consistent_reads_late, late)
            }
        };
        counted.add(1);
        result
    }

    /// Waits until the cache holds exactly what the store held when this was
    /// called. The way of stores whose progress reports cannot be relied on:
    /// it costs a list of all keys (without values), but it cannot be wrong.
    async fn same_as_store(&self) -> Result<Snapshot, Status> {
        let mut reached = self.reached.subscribe();
        let page = PageRequest {
            prefix: self.root.clone(),
            keys_only: true,
            ..PageRequest::default()
        };
        let heads = self.store.list(page).await.map_err(|e| e.into_status())?;
        loop {
            reached.borrow_and_update();
            let (mut now, serves) = {
                let hub = self.lock();
                (hub.cacher.snapshot(), hub.cacher.is_ready())
            };
            // Past the list's revision, or short of it with nothing missing.
            let same = now.revision >= heads.revision
                || now.len() == heads.kvs.len()
                    && heads.kvs.iter().all(|kv| {
                        kv.key
                            .strip_prefix(&self.root)
                            .and_then(|key| now.get(key))
                            .is_some_and(|o| o.resource_version.0 == kv.mod_revision)
                    });
            // It may have ceased to serve while it was waited for.
            if same && !serves {
                return Err(self.not_ready());
            }
            if same {
                // At either revision this is the state; who asks must hear the newer.
                now.revision = now.revision.max(heads.revision);
                return Ok(now);
            }
            // Never an error: the sender lives in `self`.
            let _ = reached.changed().await;
        }
    }
}
