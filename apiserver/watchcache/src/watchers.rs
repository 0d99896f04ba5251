//! Who watches: what each wants, where it begins, and when bookmarks are due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use meta::Object;

use crate::event::{Event, EventType};
use crate::index::{Index, WatcherId};
use crate::selector::Selector;
use crate::snapshot::Snapshot;
use crate::window::Missed;

/// How often a watch that wants bookmarks gets one (kube-apiserver
/// `cacher.go`).
pub const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its announced end a watch gets its last one.
pub const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the present state as ADDED events, then changes.
    State,
    /// With the changes from now on.
    Now,
    /// With the changes after a revision, which may not have come yet.
    After(u64),
}

/// Which bookmarks a watch wants.
#[derive(Clone, Copy, Debug)]
pub struct Bookmarks {
    /// How often.
    pub every: Duration,
    /// When the watch will end, if that is known: a last bookmark goes out
    /// [`BOOKMARK_BEFORE_END`].
    pub end: Option<Duration>,
}

impl Bookmarks {
    /// Returns when the next one is due after now, if there will be one.
    fn due_after(&self, now: Duration) -> Option<Duration> {
        // At least a tick later, or handing them out would not end.
        let regular = now + self.every.max(Duration::from_millis(1));
        match self.end.map(|end| end.saturating_sub(BOOKMARK_BEFORE_END)) {
            Some(last) if last < regular => (last > now).then_some(last),
            _ => Some(regular),
        }
    }
}

/// A watch to be registered.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// What it wants to see.
    pub selector: Selector,
    /// Where it begins.
    pub start: Start,
    /// Which bookmarks it gets; `None` for none.
    pub bookmarks: Option<Bookmarks>,
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

/// What a new watch sees first; an iterator of events. Both forms share what
/// they hold with the cache and look for what is selected while iterating, so
/// that registering is quick however much there is.
#[derive(Debug)]
pub enum Initial {
    /// The selected objects of a state.
    State {
        /// The state.
        snapshot: Snapshot,
        /// What is selected.
        selector: Selector,
        /// The key to go on from; `None` at the end.
        at: Option<String>,
    },
    /// Changes missed.
    Changes(Missed),
}

impl Iterator for Initial {
    type Item = (EventType, Arc<Event>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Changes(missed) => missed.next(),
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
    /// It sees only what happens after this revision.
    after: u64,
    bookmarks: Option<Bookmarks>,
    due: Option<Duration>,
}

/// All watchers of a resource.
#[derive(Debug)]
pub(crate) struct Watchers {
    index: Index,
    by_id: BTreeMap<WatcherId, Watcher>,
    due: BTreeSet<(Duration, WatcherId)>,
    next_id: WatcherId,
}

impl Watchers {
    pub(crate) fn new(index_field: Option<&'static str>) -> Self {
        Self {
            index: Index::new(index_field),
            by_id: BTreeMap::new(),
            due: BTreeSet::new(),
            next_id: 1,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds one that sees only what happens after a revision.
    pub(crate) fn add(
        &mut self,
        selector: Selector,
        after: u64,
        bookmarks: Option<Bookmarks>,
        now: Duration,
    ) -> WatcherId {
        let id = self.next_id;
        self.next_id += 1;
        self.index.insert(id, &selector);
        let due = bookmarks.and_then(|b| b.due_after(now));
        self.due.extend(due.map(|due| (due, id)));
        let watcher = Watcher {
            selector,
            after,
            bookmarks,
            due,
        };
        self.by_id.insert(id, watcher);
        id
    }

    /// Removes one. Returns whether it was there.
    pub(crate) fn remove(&mut self, id: WatcherId) -> bool {
        let Some(watcher) = self.by_id.remove(&id) else {
            return false;
        };
        self.index.remove(id, &watcher.selector);
        if let Some(due) = watcher.due {
            self.due.remove(&(due, id));
        }
        true
    }

    /// Removes all; returns them.
    pub(crate) fn clear(&mut self) -> Vec<WatcherId> {
        let ids: Vec<_> = self.by_id.keys().copied().collect();
        for id in &ids {
            self.remove(*id);
        }
        ids
    }

    /// Calls `visit` for everyone who must see a change, with what it is to it.
    pub(crate) fn concerned(
        &self,
        revision: u64,
        before: Option<&Object>,
        now: Option<&Object>,
        mut visit: impl FnMut(WatcherId, EventType),
    ) {
        self.index.interested(before, now, |id| {
            let Some(watcher) = self.by_id.get(&id).filter(|w| w.after < revision) else {
                return;
            };
            let selected = |o: Option<&Object>| o.is_some_and(|o| watcher.selector.matches(o));
            if let Some(event_type) = EventType::of(selected(before), selected(now)) {
                visit(id, event_type);
            }
        });
    }

    /// Returns when the next bookmark is due.
    pub(crate) fn next_bookmark(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns who is due a bookmark with a revision, and plans their next. One
    /// that waits for a later revision gets none: it would lead backwards.
    pub(crate) fn due_bookmarks(&mut self, now: Duration, revision: u64) -> Vec<WatcherId> {
        let mut ids = Vec::new();
        while let Some(&(due, id)) = self.due.first() {
            if due > now {
                break;
            }
            self.due.pop_first();
            let Some(watcher) = self.by_id.get_mut(&id) else {
                continue;
            };
            if watcher.after <= revision {
                ids.push(id);
            }
            watcher.due = watcher.bookmarks.and_then(|b| b.due_after(now));
            self.due.extend(watcher.due.map(|due| (due, id)));
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_come_every_minute_and_before_the_end() {
        let at = Duration::from_secs;
        let mut watchers = Watchers::new(None);
        let bookmarks = |end| {
            Some(Bookmarks {
                every: BOOKMARK_EVERY,
                end: Some(at(end)),
            })
        };
        let long = watchers.add(Selector::default(), 0, bookmarks(150), at(0));
        let short = watchers.add(Selector::default(), 0, bookmarks(30), at(0));
        // Too short for any, and waiting for what has not come.
        watchers.add(Selector::default(), 0, bookmarks(2), at(0));
        watchers.add(Selector::default(), 9, bookmarks(30), at(0));
        let mut seen = Vec::new();
        while let Some(due) = watchers.next_bookmark() {
            for id in watchers.due_bookmarks(due, 8) {
                seen.push((due.as_secs(), id));
            }
        }
        assert_eq!(seen, [(28, short), (60, long), (120, long), (148, long)]);
    }
}
