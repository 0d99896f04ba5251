//! The cacher: present state, recent changes, and who wants to know.

use std::sync::Arc;
use std::time::Duration;

use meta::Object;

use crate::event::{Event, EventType, Held};
use crate::index::WatcherId;
use crate::readiness::Readiness;
use crate::selector::Selector;
use crate::snapshot::{Snapshot, State};
use crate::watchers::{Beginning, Bookmarks, Initial, Start, Watchers};
use crate::window::{CAPACITY_MAX, CAPACITY_MIN, Entry, Missed, TooOld, Window};

/// How a cacher is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The selectable field whose watchers are indexed by value.
    pub index_field: Option<&'static str>,
    /// The fewest and the most changes the window keeps.
    pub window: (usize, usize),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            index_field: None,
            window: (CAPACITY_MIN, CAPACITY_MAX),
        }
    }
}

/// One change as the store reports it.
#[derive(Clone, Debug)]
pub struct Change {
    /// `namespace/name`, or `name` at cluster scope.
    pub key: Arc<str>,
    /// The revision of the change.
    pub revision: u64,
    /// The new state; `None` for a deletion.
    pub object: Option<Arc<Object>>,
    /// When the report was read.
    pub received: Duration,
}

/// The store said that everything up to a revision had been reported, and then
/// reported a change before it. Nothing it said can be relied on: the state must
/// be loaded anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a change at revision {revision} came after progress to {progress}")]
pub struct Overtaken {
    /// The revision of the change.
    pub revision: u64,
    /// The revision that was said to be reached.
    pub progress: u64,
}

/// The watch cache of one resource. Of each watcher it keeps a handle for its
/// owner.
#[derive(Debug)]
pub struct Cacher<T> {
    state: State,
    /// Everything up to here is known.
    revision: u64,
    /// The revision of the last change, or of the list before the first.
    changed: u64,
    window: Window,
    watchers: Watchers<T>,
    readiness: Readiness,
    compacted: u64,
    held: Arc<Held>,
}

impl<T: Clone> Cacher<T> {
    /// Creates a cacher that knows nothing and is not ready.
    pub fn new(config: Config) -> Self {
        Self {
            state: State::new(),
            revision: 0,
            changed: 0,
            window: Window::new(config.window),
            watchers: Watchers::new(config.index_field),
            readiness: Readiness::new(Duration::ZERO),
            compacted: 0,
            held: Arc::default(),
        }
    }

    /// Tells whether the cacher may be read and watched.
    pub fn is_ready(&self) -> bool {
        self.readiness.is_serving()
    }

    /// Returns how often state was loaded; zero before the first time. What was
    /// begun in one generation must not go on in another.
    pub fn generation(&self) -> u64 {
        self.readiness.generation()
    }

    /// Returns after how many seconds a client of a cacher that is not ready
    /// should ask again.
    pub fn retry_after(&self, now: Duration) -> u32 {
        self.readiness.retry_after(now)
    }

    /// Returns the revision up to which everything is known.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns how many changes the window can hold now.
    pub fn capacity(&self) -> usize {
        self.window.capacity()
    }

    /// Returns how often that number grew, and how often it shrank.
    pub fn resized(&self) -> (u64, u64) {
        self.window.resized()
    }

    /// Counts the watchers.
    pub fn watcher_count(&self) -> usize {
        self.watchers.len()
    }

    /// Returns what the events that were ingested and are still shown hold.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Replaces everything by a list taken at `revision`, and serves a new
    /// generation. What happened between is unknown, so every watcher is
    /// forgotten and must be told that its position is gone (410); they are
    /// returned.
    pub fn reset(
        &mut self,
        objects: impl IntoIterator<Item = (Arc<str>, Arc<Object>)>,
        revision: u64,
        now: Duration,
    ) -> Vec<(WatcherId, T)> {
        self.state = objects.into_iter().collect();
        self.revision = revision;
        self.changed = revision;
        self.window.reset(revision);
        // What another store compacted means nothing in one that was restored.
        self.compacted = self.compacted.min(revision);
        self.readiness.serve(now);
        self.watchers.clear()
    }

    /// Ceases to serve until the next [`Self::reset`]: the store has forgotten
    /// what came after [`Self::revision`], or is not what it was. Returns whom
    /// to tell that its position is gone.
    pub fn lose(&mut self, now: Duration) -> Vec<(WatcherId, T)> {
        self.readiness.cease(now);
        self.watchers.clear()
    }

    /// Takes in one change and tells `visit` who must see it, and as what.
    /// Returns whether it was news: a store's stream that was resumed may repeat
    /// itself.
    pub fn ingest(
        &mut self,
        change: Change,
        now: Duration,
        mut visit: impl FnMut(WatcherId, &T, EventType, &Arc<Event>),
    ) -> Result<bool, Overtaken> {
        let Change {
            key,
            revision,
            object,
            received,
        } = change;
        // One transaction of the store may change several keys at one revision
        // (a lease that ends does), so an equal revision is not yet a repeat.
        let previous = self.state.get(&key).cloned();
        let known = match (&object, &previous) {
            (Some(_), Some(p)) => p.resource_version.0 >= revision,
            (None, None) => true,
            _ => false,
        };
        if known || revision < self.changed {
            self.revision = self.revision.max(revision);
            return Ok(false);
        }
        if revision <= self.revision && revision > self.changed {
            return Err(Overtaken {
                revision,
                progress: self.revision,
            });
        }
        self.revision = self.revision.max(revision);
        self.changed = revision;
        match &object {
            Some(o) => self.state.insert(key.clone(), o.clone()),
            None => self.state.remove(&key),
        };
        // Made for the first who must see it.
        let mut event = None;
        let make = || {
            let times = (received, now);
            let (object, previous) = (object.clone(), previous.clone());
            Arc::new(Event::counted(
                revision, object, previous, times, &self.held,
            ))
        };
        let (before, after) = (previous.as_deref(), object.as_deref());
        self.watchers
            .concerned(revision, before, after, |id, handle, event_type| {
                visit(id, handle, event_type, event.get_or_insert_with(make));
            });
        let entry = Entry {
            key,
            revision,
            object,
            previous,
            at: now,
        };
        self.window.push(entry, &self.state);
        Ok(true)
    }

    /// Learns that nothing of this resource happened up to `revision` beyond
    /// what was ingested. Returns whether that is news.
    pub fn progress(&mut self, revision: u64) -> bool {
        let news = revision > self.revision;
        self.revision = self.revision.max(revision);
        news
    }

    /// Learns that the store has forgotten what was before `revision`. States
    /// before it are not served any more, so that all servers agree on what is
    /// gone; changes still are.
    pub fn compacted(&mut self, revision: u64) {
        if revision > self.compacted {
            self.compacted = revision;
            self.window.compact(revision);
        }
    }

    /// Gives out past states, or ceases to: whoever was found to differ from
    /// the store must not be believed about what was.
    pub fn trust_snapshots(&mut self, trusted: bool) {
        self.window.remember(trusted);
    }

    /// Returns the newest state of an object.
    pub fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.state.get(key)
    }

    /// Returns the newest state of everything.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            revision: self.revision,
            state: self.state.clone(),
        }
    }

    /// Returns the state at a revision the cacher has reached.
    pub fn snapshot_at(&self, revision: u64) -> Result<Snapshot, TooOld> {
        let oldest = self.compacted.max(self.window.floor());
        if revision < oldest {
            return Err(TooOld {
                asked: revision,
                oldest,
            });
        }
        Ok(Snapshot {
            revision,
            state: self.window.state_at(revision, &self.state)?,
        })
    }

    /// Returns what a watch sees first. [`Start::After`] a revision that has not
    /// come yet begins when it has.
    pub fn begin(&self, selector: &Selector, start: Start) -> Result<Beginning, TooOld> {
        let (initial, after) = match start {
            Start::State => {
                let initial = Initial::State {
                    snapshot: self.snapshot(),
                    selector: selector.clone(),
                    at: Some(String::new()),
                };
                (initial, self.revision)
            }
            Start::Now => (Initial::Changes(Missed::nothing()), self.revision),
            Start::After(revision) => {
                let missed = self.window.after(revision, selector.clone())?;
                (Initial::Changes(missed), revision.max(self.revision))
            }
        };
        Ok(Beginning {
            revision: self.revision,
            initial,
            after,
        })
    }

    /// Registers a watch, which has just begun after a revision. Returns its name in
    /// later dispatches.
    pub(crate) fn join(
        &mut self,
        selector: Selector,
        after: u64,
        bookmarks: Option<Bookmarks>,
        handle: T,
        now: Duration,
    ) -> WatcherId {
        self.watchers.add(selector, after, bookmarks, handle, now)
    }

    /// Forgets a watch. Returns its handle if it was known.
    pub fn unwatch(&mut self, id: WatcherId) -> Option<T> {
        self.watchers.remove(id)
    }

    /// Returns the handle of a watch.
    pub fn handle(&self, id: WatcherId) -> Option<&T> {
        self.watchers.handle(id)
    }

    /// Visits all watches.
    pub fn handles(&self) -> impl Iterator<Item = (WatcherId, &T)> {
        self.watchers.handles()
    }

    /// Returns when the next bookmark is due.
    pub fn next_bookmark(&self) -> Option<Duration> {
        self.watchers.next_bookmark()
    }

    /// Returns the watchers that are due a bookmark with [`Self::revision`],
    /// and plans their next. One that began after a revision which is yet to come
    /// gets none: it would lead back.
    pub fn due_bookmarks(&mut self, now: Duration) -> Vec<(WatcherId, T)> {
        self.watchers.due_bookmarks(now, self.revision)
    }

    /// Returns the oldest revision a watch may start after.
    pub fn oldest(&self) -> u64 {
        self.window.floor()
    }
}
