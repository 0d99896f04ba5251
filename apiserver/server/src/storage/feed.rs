//! The one task per resource that moves changes from the store into the cacher
//! and from there into the queues of the watchers.
//!
//! It lists once, then watches from the list's revision on. A stream that
//! breaks is resumed after the last revision seen, and nobody notices; only if
//! the store has forgotten that revision, or cannot be what it was, the cache
//! ceases to serve, every watcher is told that its position is gone, and the
//! state is listed anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meta::Object;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use watchcache::{Change, Held, Laggards, Overtaken, Round};

use super::resource::ResourceStore;
use super::store::{PageRequest, StoreError, StoreEvent, StoreWatch, WatchBatch};

/// How many keys one page of the first list has (kube-apiserver: 10,000).
const LIST_PAGE: usize = 10_000;
/// The pause before the store is tried again, doubled up to the greatest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A progress report that was asked for and did not come is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How often it is looked for clients that hold memory and do not read, beside
/// the times when a dispatch finds too much held.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// After so many changes put into queues those who read them get their turn: a
/// feed that went on while there is something to feed would only make them late.
const TURN: usize = 1024;

/// How others wake the feed.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// The highest existing revision some reader waits for.
    wanted: AtomicU64,
    progress: Notify,
    /// An earlier bookmark was planned.
    pub(super) timer: Notify,
    /// The cache was found to differ from the store.
    pub(super) reload: Notify,
}

impl Signals {
    /// Asks for progress up to a revision that exists in the store.
    pub(super) fn want(&self, revision: u64) {
        self.wanted.fetch_max(revision, Ordering::AcqRel);
        self.progress.notify_one();
    }
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    /// The store or its stream failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its reports contradict each other.
    #[error(transparent)]
    Overtaken(#[from] Overtaken),
    /// The cache is not what the store is.
    #[error("the cache differs from the store")]
    Differs,
}

impl Ended {
    /// Tells whether what is cached cannot be carried on from.
    fn loses_position(&self) -> bool {
        !matches!(self, Self::Store(e) if !matches!(e, StoreError::Compacted(_)))
    }
}

/// Feeds a resource until its token is cancelled.
pub(super) async fn run(this: Arc<ResourceStore>) {
    let token = this.token.clone();
    let (held, limits) = {
        let hub = this.lock();
        (hub.cacher.held().clone(), hub.limits())
    };
    let mut feed = Feed {
        list_first: true,
        round: Round::default(),
        laggards: Laggards::new(this.now()),
        queued: 0,
        held,
        held_max: limits.held_bytes,
        this,
        asked: None,
        heard: false,
        tidied: Duration::ZERO,
    };
    let mut pause = PAUSE_MIN;
    loop {
        feed.heard = false;
        let end = tokio::select! {
            () = token.cancelled() => break,
            end = feed.session() => end,
        };
        let resource = &feed.this.config.resource;
        match end {
            Err(error) if error.loses_position() => {
                tracing::warn!(%resource, %error, "the cache's position is lost, listing anew");
                feed.list_first = true;
                feed.this.lose();
            }
            Err(error) => tracing::warn!(%resource, %error, "store watch broke, resuming"),
            Ok(never) => match never {},
        }
        // A session that brought something was good; begin with short pauses.
        if feed.heard {
            pause = PAUSE_MIN;
        }
        tokio::select! {
            () = token.cancelled() => break,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
    feed.this.close();
}

struct Feed {
    this: Arc<ResourceStore>,
    list_first: bool,
    /// What was taken in and is not sent.
    round: Round,
    laggards: Laggards,
    /// How much was queued since others had their turn.
    queued: usize,
    held: Arc<Held>,
    held_max: u64,
    /// When the progress report under way was asked for.
    asked: Option<Instant>,
    /// Whether the session under way has brought anything.
    heard: bool,
    /// When memory was last looked after.
    tidied: Duration,
}

/// What wakes the feed.
enum Wake {
    Batch(Result<WatchBatch, StoreError>),
    Ask,
    Bookmarks,
    Judge,
    Replan,
    Reload,
}

impl Feed {
    async fn session(&mut self) -> Result<std::convert::Infallible, Ended> {
        let known = self.this.lock().cacher.revision();
        // A store restored from a backup lies behind what is known.
        if self.list_first || self.this.store.current_revision().await? < known {
            self.this.lose();
            self.list_first = true;
            if let Err(error) = self.load().await {
                self.this.metrics.initialization_errors.add(1);
                return Err(error.into());
            }
            self.list_first = false;
        }
        let from = self.this.lock().cacher.revision() + 1;
        let mut watch = self.this.store.watch(&self.this.root, from).await?;
        self.asked = None;
        self.ask(&mut *watch);
        loop {
            match self.wake(&mut *watch).await {
                Wake::Batch(batch) => match self.hear(batch)? {
                    WatchBatch::Events(events) => self.take(events).await?,
                    WatchBatch::Progress(revision) => {
                        self.this.lock().cacher.progress(revision);
                        self.publish();
                        self.asked = None;
                        self.ask(&mut *watch);
                    }
                },
                Wake::Ask => self.ask(&mut *watch),
                Wake::Bookmarks => {
                    let now = self.this.now();
                    self.this.lock().bookmarks(now);
                }
                // Nothing else to do, as after everything.
                Wake::Judge | Wake::Replan => {}
                Wake::Reload => return Err(Ended::Differs),
            }
            self.look_after();
        }
    }

    fn hear(&mut self, batch: Result<WatchBatch, StoreError>) -> Result<WatchBatch, StoreError> {
        self.heard |= batch.is_ok();
        batch
    }

    async fn wake(&self, watch: &mut dyn StoreWatch) -> Wake {
        let bookmark = self.this.lock().cacher.next_bookmark();
        let (bookmark, judgement) = (self.instant(bookmark), self.instant(self.laggards.due()));
        let again = self.asked.map(|asked| asked + ASK_AGAIN);
        tokio::select! {
            biased;
            () = self.this.signals.reload.notified() => Wake::Reload,
            batch = watch.next() => Wake::Batch(batch),
            () = self.this.signals.progress.notified() => Wake::Ask,
            () = until(again) => Wake::Ask,
            () = until(bookmark) => Wake::Bookmarks,
            () = until(judgement) => Wake::Judge,
            () = self.this.signals.timer.notified() => Wake::Replan,
        }
    }

    /// Turns a time as the cacher counts it into one to sleep until.
    fn instant(&self, at: Option<Duration>) -> Option<Instant> {
        at.map(|at| Instant::now() + at.saturating_sub(self.this.now()))
    }

    /// Asks for progress if a reader waits for it and no report is under way.
    fn ask(&mut self, watch: &mut dyn StoreWatch) {
        let wanted = self.this.signals.wanted.load(Ordering::Acquire);
        if wanted <= *self.this.reached.borrow() {
            self.asked = None;
            return;
        }
        let now = Instant::now();
        if self.this.store.reports_progress() && self.asked.is_none_or(|a| now >= a + ASK_AGAIN) {
            watch.request_progress();
            self.asked = Some(now);
        }
    }

    /// Loads the whole state at one revision.
    async fn load(&mut self) -> Result<(), StoreError> {
        let this = &self.this;
        let began = this.now();
        let mut page = PageRequest {
            prefix: this.root.clone(),
            limit: LIST_PAGE,
            ..PageRequest::default()
        };
        let mut objects: Vec<(Arc<str>, Arc<Object>)> = Vec::new();
        loop {
            let got = this.store.list(page.clone()).await?;
            page.revision = got.revision;
            for kv in &got.kvs {
                let Some(key) = kv.key.strip_prefix(&this.root) else {
                    continue;
                };
                // The same revision in another history is another state, and
                // so the bytes decide about what is decoded already.
                let kept = this.cached(key).filter(|o| {
                    o.resource_version.0 == kv.mod_revision && !o.renewed && *o.body() == kv.value
                });
                let object =
                    kept.or_else(|| this.decode_listed(&kv.key, &kv.value, kv.mod_revision));
                objects.extend(object.map(|o| (Arc::from(key), o)));
            }
            match got.kvs.last() {
                Some(last) if got.more => page.start = format!("{}\0", last.key),
                _ => break,
            }
        }
        let now = this.now();
        this.lock().reset(objects, page.revision, now);
        this.metrics.initializations.add(1);
        this.metrics.initialization.observe(now - began);
        self.publish();
        this.serving.send_replace(this.lock().cacher.generation());
        Ok(())
    }

    /// Tells readers how far the cache is.
    fn publish(&self) {
        let hub = self.this.lock();
        let (revision, capacity) = (hub.cacher.revision(), hub.cacher.capacity());
        let (grown, shrunk) = hub.cacher.resized();
        drop(hub);
        self.this.reached.send_replace(revision);
        self.this.own.reached(revision);
        let metrics = &self.this.metrics;
        metrics.resource_version.set(revision);
        metrics.capacity.set(capacity as u64);
        metrics.capacity_increases.set(grown);
        metrics.capacity_decreases.set(shrunk);
    }

    async fn take(&mut self, events: Vec<StoreEvent>) -> Result<(), Overtaken> {
        let received = self.this.now();
        let count = events.len() as u64;
        self.this.metrics.events_received.add(count);
        let changes: Vec<Change> = events
            .into_iter()
            .filter_map(|e| self.change(e, received))
            .collect();
        let mut changes = changes.into_iter().peekable();
        let now = self.this.now();
        let to_cache = &self.this.metrics.stages.storage_to_cache;
        to_cache.observe_many(now.saturating_sub(received), count);
        while changes.peek().is_some() {
            let before = changes.len();
            let round = &mut self.round;
            self.this.lock().take_in(&mut changes, now, round)?;
            let events = (before - changes.len()) as u64;
            self.this.metrics.events_dispatched.add(events);
            self.send();
            if self.queued >= TURN {
                self.queued = 0;
                self.publish();
                yield_now().await;
            }
        }
        self.publish();
        Ok(())
    }

    /// Sends what was taken in. Waits for nobody, and holds no lock that readers
    /// of the cache need.
    fn send(&mut self) {
        let sent = self.round.send();
        self.queued += sent.count;
        if !sent.late.is_empty() {
            self.laggards.add(sent.late, self.this.now());
        }
        if self.laggards.due().is_some() || self.held.bytes() > self.held_max {
            self.look_after();
        }
    }

    /// Decodes a change. An object that cannot be decoded counts as gone: what
    /// watchers see must not be older than what is stored.
    fn change(&self, event: StoreEvent, received: Duration) -> Option<Change> {
        let key = event.key.strip_prefix(&self.this.root)?;
        let object = event.value.and_then(|body| {
            self.this
                .own
                .recall(key, &body, event.revision)
                .or_else(|| self.this.decode_listed(&event.key, &body, event.revision))
        });
        Some(Change {
            key: Arc::from(key),
            revision: event.revision,
            object,
            received,
        })
    }

    /// Closes the watches of those who are too slow, and keeps to the limit of
    /// memory.
    fn look_after(&mut self) {
        let now = self.this.now();
        if self.laggards.due().is_some_and(|due| due <= now) {
            self.judge(now);
        }
        if now >= self.tidied + TIDY_EVERY || self.held.bytes() > self.held_max {
            self.tidy(now);
        }
    }

    fn judge(&mut self, now: Duration) {
        let slow = self.laggards.judge(now);
        if slow.is_empty() {
            return;
        }
        let mut hub = self.this.lock();
        let slow: Vec<_> = slow.into_iter().filter(|id| hub.cut(*id)).collect();
        drop(hub);
        let resource = &self.this.config.resource;
        tracing::info!(%resource, watchers = ?slow, "closing watches that are too slow");
        self.this.metrics.terminated_watchers.add(slow.len() as u64);
    }

    fn tidy(&mut self, now: Duration) {
        self.tidied = now;
        let severed = self.this.lock().tidy();
        self.this.metrics.held_bytes.set(self.held.bytes());
        if severed > 0 {
            let resource = &self.this.config.resource;
            tracing::info!(%resource, severed, "closing watches that hold too much");
            self.this.metrics.terminated_watchers.add(severed);
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod test;
