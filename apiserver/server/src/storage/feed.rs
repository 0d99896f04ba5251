//! The one task per resource that moves changes from the store into the cacher
//! and from there into the queues of the watchers.
//!
//! It lists once, then watches from the list's revision on. A stream that
//! breaks is resumed after the last revision seen, and nobody notices; only if
//! the store has forgotten that revision the state is listed anew, and every
//! watcher is told that its position is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meta::{Object, Status};
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use watchcache::{Change, WatcherId};

use super::resource::{ResourceStore, Shared};
use super::store::{PageRequest, StoreError, StoreEvent, StoreWatch, WatchBatch};
use super::watch::Queued;

/// How many keys one page of the first list has (kube-apiserver: 10,000).
const LIST_PAGE: usize = 10_000;
/// The pause before the store is tried again, doubled up to the greatest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A progress report that was asked for and did not come is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// All full queues of a dispatch together are waited for this long at most;
/// the budget refills by a twentieth of the time that passes
/// (kube-apiserver `time_budget.go`: 100 ms, 50 ms a second).
const BUDGET_MAX: Duration = Duration::from_millis(100);
const BUDGET_REFILL: u32 = 20;

/// How others wake the feed.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// The highest existing revision some reader waits for.
    wanted: AtomicU64,
    progress: Notify,
    /// An earlier bookmark was planned.
    pub(super) timer: Notify,
}

impl Signals {
    /// Asks for progress up to a revision that exists in the store.
    pub(super) fn want(&self, revision: u64) {
        self.wanted.fetch_max(revision, Ordering::AcqRel);
        self.progress.notify_one();
    }
}

/// Feeds a resource until its token is cancelled.
pub(super) async fn run(this: Arc<ResourceStore>) {
    let token = this.token.clone();
    let mut feed = Feed {
        this,
        list_first: true,
        budget: Budget::new(Instant::now()),
        asked: None,
        heard: false,
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
            Err(StoreError::Compacted(_)) => {
                tracing::info!(%resource, "position compacted away, listing anew");
                feed.list_first = true;
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
    // Ends every watch without an error: clients resume elsewhere.
    feed.this.lock().queues.clear();
}

struct Feed {
    this: Arc<ResourceStore>,
    list_first: bool,
    budget: Budget,
    /// When the progress report under way was asked for.
    asked: Option<Instant>,
    /// Whether the session under way has brought anything.
    heard: bool,
}

/// What wakes the feed.
enum Wake {
    Batch(Result<WatchBatch, StoreError>),
    Ask,
    Bookmarks,
    Replan,
}

impl Feed {
    async fn session(&mut self) -> Result<std::convert::Infallible, StoreError> {
        let known = self.this.lock().cacher.revision();
        // A store restored from a backup lies behind what is known.
        if self.list_first || self.this.store.current_revision().await? < known {
            self.load().await?;
            self.list_first = false;
        }
        let from = self.this.lock().cacher.revision() + 1;
        let mut watch = self.this.store.watch(&self.this.root, from).await?;
        self.asked = None;
        self.ask(&mut *watch);
        loop {
            match self.wake(&mut *watch).await {
                Wake::Batch(batch) => match self.hear(batch)? {
                    WatchBatch::Events(events) => self.take(events).await,
                    WatchBatch::Progress(revision) => {
                        self.this.lock().cacher.progress(revision);
                        self.publish();
                        self.asked = None;
                        self.ask(&mut *watch);
                    }
                },
                Wake::Ask => self.ask(&mut *watch),
                Wake::Bookmarks => self.bookmarks(),
                Wake::Replan => {}
            }
        }
    }

    fn hear(&mut self, batch: Result<WatchBatch, StoreError>) -> Result<WatchBatch, StoreError> {
        self.heard |= batch.is_ok();
        batch
    }

    async fn wake(&self, watch: &mut dyn StoreWatch) -> Wake {
        let due = self.this.lock().cacher.next_bookmark();
        let due = due.map(|due| Instant::now() + due.saturating_sub(self.this.now()));
        let again = self.asked.map(|asked| asked + ASK_AGAIN);
        tokio::select! {
            biased;
            batch = watch.next() => Wake::Batch(batch),
            () = self.this.signals.progress.notified() => Wake::Ask,
            () = until(again) => Wake::Ask,
            () = until(due) => Wake::Bookmarks,
            () = self.this.signals.timer.notified() => Wake::Replan,
        }
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
                // Unchanged since before: keep what is decoded.
                let kept = this
                    .cached(key)
                    .filter(|o| o.resource_version.0 == kv.mod_revision);
                let object =
                    kept.or_else(|| this.decode_listed(&kv.key, &kv.value, kv.mod_revision));
                objects.extend(object.map(|o| (Arc::from(key), o)));
            }
            match got.kvs.last() {
                Some(last) if got.more => page.start = format!("{}\0", last.key),
                _ => break,
            }
        }
        {
            let mut shared = this.lock();
            for id in shared.cacher.reset(objects, page.revision) {
                if let Some(queue) = shared.queues.remove(&id) {
                    queue.ending.get_or_init(|| {
                        Status::expired("the watch's position was lost: list again")
                    });
                }
            }
        }
        this.metrics.initializations.add(1);
        self.publish();
        Ok(())
    }

    /// Tells readers how far the cache is.
    fn publish(&self) {
        let shared = self.this.lock();
        let (revision, capacity) = (shared.cacher.revision(), shared.cacher.capacity());
        drop(shared);
        self.this.reached.send_replace(revision);
        self.this.metrics.resource_version.set(revision);
        self.this.metrics.capacity.set(capacity as u64);
    }

    async fn take(&mut self, events: Vec<StoreEvent>) {
        self.this.metrics.events_received.add(events.len() as u64);
        let changes: Vec<Change> = events.into_iter().filter_map(|e| self.change(e)).collect();
        let mut changes = changes.into_iter().peekable();
        let now = self.this.now();
        while changes.peek().is_some() {
            let full = dispatch(&self.this, &mut changes, now);
            if !full.is_empty() {
                self.relieve(full).await;
            }
        }
        self.publish();
    }

    /// Decodes a change. An object that cannot be decoded counts as gone: what
    /// watchers see must not be older than what is stored.
    fn change(&self, event: StoreEvent) -> Option<Change> {
        let key = event.key.strip_prefix(&self.this.root)?;
        let object = event.value.and_then(|body| {
            self.this
                .recall(&body, event.revision)
                .or_else(|| self.this.decode_listed(&event.key, &body, event.revision))
        });
        Some(Change {
            key: Arc::from(key),
            revision: event.revision,
            object,
        })
    }

    /// Waits for full queues within the budget, then closes what is still full.
    async fn relieve(&mut self, full: Blocked) {
        let began = Instant::now();
        let deadline = began + self.budget.left(began);
        for (id, (sender, items)) in full {
            for item in items {
                // `Err` of the inner result: the client went away by itself.
                match timeout_at(deadline, sender.send(item)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_gone)) => break,
                    Err(_elapsed) => {
                        let resource = &self.this.config.resource;
                        tracing::info!(%resource, watcher = id, "closing a watch that is too slow");
                        self.this.metrics.terminated_watchers.add(1);
                        self.this.forget(id);
                        break;
                    }
                }
            }
        }
        self.budget.spend(Instant::now(), began.elapsed());
    }

    fn bookmarks(&self) {
        let mut shared = self.this.lock();
        let revision = shared.cacher.revision();
        for id in shared.cacher.due_bookmarks(self.this.now()) {
            if let Some(queue) = shared.queues.get(&id) {
                // A full queue needs no bookmark: it will end in newer events.
                let _ = queue.sender.try_send(Queued::Bookmark(revision));
            }
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Watchers whose queue is full, and what they must get next, in order.
type Blocked = BTreeMap<WatcherId, (tokio::sync::mpsc::Sender<Queued>, Vec<Queued>)>;

/// Dispatches changes under one hold of the lock, until none is left or some
/// queue is full; never stops within a revision, so that no reader sees half a
/// transaction.
fn dispatch(
    this: &ResourceStore,
    changes: &mut std::iter::Peekable<std::vec::IntoIter<Change>>,
    now: Duration,
) -> Blocked {
    let mut blocked = Blocked::new();
    let mut sent = 0;
    let mut guard = this.lock();
    let Shared { cacher, queues } = &mut *guard;
    while let Some(change) = changes.next() {
        let revision = change.revision;
        if let Some(dispatch) = cacher.ingest(change, now) {
            for (id, event_type) in dispatch.targets {
                let item = Queued::Event(event_type, dispatch.event.clone());
                if let Some((_, items)) = blocked.get_mut(&id) {
                    items.push(item);
                    continue;
                }
                let Some(queue) = queues.get(&id) else {
                    continue;
                };
                match queue.sender.try_send(item) {
                    Ok(()) => sent += 1,
                    Err(TrySendError::Full(item)) => {
                        blocked.insert(id, (queue.sender.clone(), vec![item]));
                    }
                    // Its stream is being dropped and will be forgotten.
                    Err(TrySendError::Closed(_)) => {}
                }
            }
        }
        let more_of_it = changes.peek().is_some_and(|c| c.revision == revision);
        if !blocked.is_empty() && !more_of_it {
            break;
        }
    }
    drop(guard);
    this.metrics.events_dispatched.add(sent);
    blocked
}

/// How long slow clients may hold up the others, in sum over time.
#[derive(Debug)]
struct Budget {
    left: Duration,
    at: Instant,
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self {
            left: BUDGET_MAX,
            at: now,
        }
    }

    fn left(&mut self, now: Instant) -> Duration {
        let refill = now.saturating_duration_since(self.at) / BUDGET_REFILL;
        self.left = (self.left + refill).min(BUDGET_MAX);
        self.at = now;
        self.left
    }

    fn spend(&mut self, now: Instant, spent: Duration) {
        self.left = self.left(now).saturating_sub(spent);
    }
}

#[cfg(test)]
mod test;
