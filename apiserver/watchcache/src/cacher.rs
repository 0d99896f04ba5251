//! The cacher: present state, recent changes, and who wants to know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use meta::Object;

use crate::event::{Event, EventType};
use crate::index::{Index, WatcherId};
use crate::selector::Selector;
use crate::snapshot::{Snapshot, State};
use crate::window::{CAPACITY_MAX, CAPACITY_MIN, Entry, TooOld, Window};

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
}

/// A change and the watchers who must see it.
#[derive(Debug)]
pub struct Dispatch {
    /// The change, to be shared by all of them.
    pub event: Arc<Event>,
    /// Who must see it, and as what.
    pub targets: Vec<(WatcherId, EventType)>,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the present state as ADDED events, then changes.
    State,
    /// With the changes from now on.
    Now,
    /// With the changes after a revision, which the cacher need not have reached.
    After(u64),
}

/// A watch to be registered.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// What it wants to see.
    pub selector: Selector,
    /// Where it begins.
    pub start: Start,
    /// When its first bookmark is due and in which interval others follow;
    /// `None` for no bookmarks.
    pub bookmarks: Option<(Duration, Duration)>,
}

/// A registered watch.
#[derive(Debug)]
pub struct Started {
    /// Its name in later dispatches.
    pub id: WatcherId,
    /// Everything up to here is in `initial`, everything after is dispatched.
    pub revision: u64,
    /// What it sees first.
    pub initial: Initial,
}

/// What a new watch sees first; an iterator of events.
#[derive(Debug)]
pub enum Initial {
    /// The selected objects of a state, found while iterating and not before,
    /// so that registering is quick however large the state.
    State {
        /// The state.
        snapshot: Snapshot,
        /// What is selected.
        selector: Selector,
        /// The key to go on from; `None` at the end.
        at: Option<String>,
    },
    /// Changes missed.
    Changes(std::vec::IntoIter<(EventType, Arc<Event>)>),
}

impl Iterator for Initial {
    type Item = (EventType, Arc<Event>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Changes(events) => events.next(),
            Self::State {
                snapshot,
                selector,
                at,
            } => {
                let found = snapshot.next_match(selector, at.as_deref()?);
                // The smallest key after this one: itself and a zero byte.
                *at = found.as_ref().map(|(key, _)| format!("{key}\0"));
                found.map(|(_, o)| (EventType::Added, Arc::new(Event::synthetic(o))))
            }
        }
    }
}

#[derive(Debug)]
struct Watcher {
    selector: Selector,
    /// It sees nothing up to this revision, which may be yet to come.
    after: u64,
    /// (due, interval)
    bookmarks: Option<(Duration, Duration)>,
}

/// The watch cache of one resource.
#[derive(Debug)]
pub struct Cacher {
    state: State,
    revision: u64,
    window: Window,
    index: Index,
    watchers: BTreeMap<WatcherId, Watcher>,
    due: BTreeSet<(Duration, WatcherId)>,
    next_id: WatcherId,
    generation: u64,
    compacted: u64,
}

impl Cacher {
    /// Creates a cacher that knows nothing and is not ready.
    pub fn new(config: Config) -> Self {
        Self {
            state: State::new(),
            revision: 0,
            window: Window::new(config.window),
            index: Index::new(config.index_field),
            watchers: BTreeMap::new(),
            due: BTreeSet::new(),
            next_id: 1,
            generation: 0,
            compacted: 0,
        }
    }

    /// Tells whether state was ever loaded.
    pub fn is_ready(&self) -> bool {
        self.generation > 0
    }

    /// Returns how often state was loaded anew; zero before the first time.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the revision up to which everything is known.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns how many changes the window can hold now.
    pub fn capacity(&self) -> usize {
        self.window.capacity()
    }

    /// Counts the watchers.
    pub fn watcher_count(&self) -> usize {
        self.watchers.len()
    }

    /// Replaces everything by a list taken at `revision`. What happened between
    /// is unknown, so every watcher is forgotten and must be told that its
    /// position is gone (410); their ids are returned.
    pub fn reset(
        &mut self,
        objects: impl IntoIterator<Item = (Arc<str>, Arc<Object>)>,
        revision: u64,
    ) -> Vec<WatcherId> {
        self.state = objects.into_iter().collect();
        self.revision = revision;
        self.window.reset(revision);
        self.generation += 1;
        let ids: Vec<_> = self.watchers.keys().copied().collect();
        for id in &ids {
            self.unwatch(*id);
        }
        ids
    }

    /// Takes in one change. `None` means that it was known already: a store
    /// stream that was resumed may repeat itself.
    pub fn ingest(&mut self, change: Change, now: Duration) -> Option<Dispatch> {
        let Change {
            key,
            revision,
            object,
        } = change;
        // One transaction of the store may change several keys at one revision
        // (a lease that ends does), so an equal revision is not yet a repeat.
        let previous = self.state.get(&key).cloned();
        let known = match (&object, &previous) {
            (Some(_), Some(p)) => p.resource_version.0 >= revision,
            (None, None) => true,
            _ => false,
        };
        if known || revision < self.revision {
            self.revision = self.revision.max(revision);
            return None;
        }
        self.revision = revision;
        match &object {
            Some(o) => self.state.insert(key.clone(), o.clone()),
            None => self.state.remove(&key),
        };
        let mut targets = Vec::new();
        self.index
            .interested(previous.as_deref(), object.as_deref(), |id| {
                let Some(watcher) = self.watchers.get(&id) else {
                    return;
                };
                if revision <= watcher.after {
                    return;
                }
                let selected = |o: &Option<Arc<Object>>| {
                    o.as_ref().is_some_and(|o| watcher.selector.matches(o))
                };
                if let Some(t) = EventType::of(selected(&previous), selected(&object)) {
                    targets.push((id, t));
                }
            });
        let event = Arc::new(Event::new(revision, object.clone(), previous.clone()));
        self.window.push(
            Entry {
                key,
                revision,
                object,
                previous,
                at: now,
            },
            &self.state,
        );
        Some(Dispatch { event, targets })
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
        self.compacted = self.compacted.max(revision);
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
        debug_assert!(revision <= self.revision, "the caller waits first");
        if revision < self.compacted {
            return Err(TooOld {
                asked: revision,
                oldest: self.compacted,
            });
        }
        Ok(Snapshot {
            revision,
            state: self.window.state_at(revision, &self.state)?,
        })
    }

    /// Registers a watch.
    pub fn watch(&mut self, spec: WatchSpec) -> Result<Started, TooOld> {
        let WatchSpec {
            selector,
            start,
            bookmarks,
        } = spec;
        let after = match start {
            Start::After(revision) => revision,
            Start::State | Start::Now => 0,
        };
        let initial = match start {
            Start::State => Initial::State {
                snapshot: self.snapshot(),
                selector: selector.clone(),
                at: Some(String::new()),
            },
            Start::Now => Initial::Changes(Vec::new().into_iter()),
            Start::After(revision) => Initial::Changes(self.missed(revision, &selector)?),
        };
        let id = self.next_id;
        self.next_id += 1;
        self.index.insert(id, &selector);
        if let Some((due, _)) = bookmarks {
            self.due.insert((due, id));
        }
        self.watchers.insert(
            id,
            Watcher {
                selector,
                after,
                bookmarks,
            },
        );
        Ok(Started {
            id,
            revision: self.revision,
            initial,
        })
    }

    fn missed(
        &self,
        revision: u64,
        selector: &Selector,
    ) -> Result<std::vec::IntoIter<(EventType, Arc<Event>)>, TooOld> {
        let selected = |o: &Option<Arc<Object>>| o.as_ref().is_some_and(|o| selector.matches(o));
        let events: Vec<_> = self
            .window
            .after(revision)?
            .filter_map(|e| {
                let t = EventType::of(selected(&e.previous), selected(&e.object))?;
                let event = Event::new(e.revision, e.object.clone(), e.previous.clone());
                Some((t, Arc::new(event)))
            })
            .collect();
        Ok(events.into_iter())
    }

    /// Forgets a watch. Returns whether it was known.
    pub fn unwatch(&mut self, id: WatcherId) -> bool {
        let Some(watcher) = self.watchers.remove(&id) else {
            return false;
        };
        self.index.remove(id, &watcher.selector);
        if let Some((due, _)) = watcher.bookmarks {
            self.due.remove(&(due, id));
        }
        true
    }

    /// Returns when the next bookmark is due.
    pub fn next_bookmark(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns the watchers that are due a bookmark with [`Self::revision`],
    /// and plans their next. One that began after a revision which is yet to come
    /// gets none: it would lead back.
    pub fn due_bookmarks(&mut self, now: Duration) -> Vec<WatcherId> {
        let mut ids = Vec::new();
        while let Some(&(due, id)) = self.due.first() {
            if due > now {
                break;
            }
            self.due.pop_first();
            if let Some(Watcher {
                bookmarks: Some((next, every)),
                after,
                ..
            }) = self.watchers.get_mut(&id)
            {
                if *after <= self.revision {
                    ids.push(id);
                }
                // At least a tick later, or this loop would not end.
                *next = now + (*every).max(Duration::from_millis(1));
                self.due.insert((*next, id));
            }
        }
        ids
    }

    /// Returns the oldest revision a watch may start after.
    pub fn oldest(&self) -> u64 {
        self.window.floor()
    }
}
