//! Is the cache what the store is? Read from time to time and compared; if not,
//! the cache is not believed any more and is loaded anew.

use std::sync::Arc;

use watchcache::{Audit, Verdict, next_audit};

use super::resource::ResourceStore;
use super::store::{Kv, PageRequest, StoreError};

/// How many keys are read at once.
const AUDIT_PAGE: usize = 10_000;

/// Audits a resource until its token is cancelled.
pub(super) async fn run(this: Arc<ResourceStore>) {
    loop {
        let now = this.now();
        let due = next_audit(now, rand::random());
        tokio::select! {
            () = this.token.cancelled() => return,
            () = tokio::time::sleep(due.saturating_sub(now)) => {}
        }
        this.audit().await;
    }
}

impl ResourceStore {
    /// Compares the cache with the store now, and acts on what is found. `None`
    /// when that could not be done.
    pub async fn audit(&self) -> Option<Verdict> {
        let resource = &self.config.resource;
        let generation = *self.serving.borrow();
        let verdict = match self.compare().await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(%resource, %error, "the cache could not be compared with the store");
                self.metrics.audits_failed.add(1);
                return None;
            }
        };
        let mut hub = self.lock();
        // Another generation is not what was compared.
        if generation == 0 || hub.cacher.generation() != generation {
            drop(hub);
            self.metrics.audits_failed.add(1);
            return None;
        }
        hub.cacher.trust_snapshots(verdict.difference.is_none());
        drop(hub);
        let Verdict {
            revision,
            cached,
            stored,
            difference,
        } = &verdict;
        match difference {
            None => {
                tracing::debug!(%resource, revision, digest = %format_args!("{cached:016x}"), "the cache is as the store");
                self.metrics.audits_passed.add(1);
            }
            Some(difference) => {
                tracing::error!(
                    %resource, revision, ?difference,
                    cached = %format_args!("{cached:016x}"),
                    stored = %format_args!("{stored:016x}"),
                    "the cache differs from the store, loading it anew"
                );
                self.metrics.audits_differed.add(1);
                self.signals.reload.notify_one();
            }
        }
        Some(verdict)
    }

    async fn compare(&self) -> Result<Verdict, StoreError> {
        let mut audit = Audit::new(self.lock().cacher.snapshot());
        if audit.revision() == 0 {
            return Err(StoreError::Other("it was not filled yet".to_owned()));
        }
        let mut page = PageRequest {
            prefix: self.root.clone(),
            limit: AUDIT_PAGE,
            revision: audit.revision(),
            keys_only: true,
            ..PageRequest::default()
        };
        loop {
            let got = self.store.list(page.clone()).await?;
            for kv in &got.kvs {
                let Some(key) = kv.key.strip_prefix(&self.root) else {
                    continue;
                };
                // What cannot be decoded is rightly not in the cache.
                if audit.has(key) || self.can_decode(kv, audit.revision()).await? {
                    audit.stored(key, kv.mod_revision);
                }
            }
            match got.kvs.last() {
                Some(last) if got.more => page.start = format!("{}\0", last.key),
                _ => return Ok(audit.finish()),
            }
        }
    }

    /// Tells whether what lay under a key can be decoded.
    async fn can_decode(&self, kv: &Kv, revision: u64) -> Result<bool, StoreError> {
        let page = PageRequest {
            prefix: kv.key.clone(),
            limit: 1,
            revision,
            ..PageRequest::default()
        };
        let found = self.store.list(page).await?.kvs.into_iter().next();
        Ok(found.is_some_and(|kv| self.decode_parts(kv.value, kv.mod_revision).is_ok()))
    }
}
