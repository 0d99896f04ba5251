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

/// The beginning of a watch.
#[derive(Debug)]
pub struct Beginning {
    /// Everything up to here is in `initial`, everything after is dispatched.
    pub revision: u64,
    /// What it sees first.
    pub initial: Initial,
    /// What happens up to here is not shown beside that; it may be yet to come.
    pub(crate) after: u64,
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
struct Watcher<T> {
    selector: Selector,
    /// It sees only what happens after this revision.
    after: u64,
    /// What the owner keeps of it.
    handle: T,
}

#[derive(Debug)]
struct Member<T> {
    watcher: Arc<Watcher<T>>,
    bookmarks: Option<Bookmarks>,
    due: Option<Duration>,
}

/// All watchers of a resource. Whatever is done here costs what those whom it
/// concerns cost, not what all do.
#[derive(Debug)]
pub(crate) struct Watchers<T> {
    index: Index<Arc<Watcher<T>>>,
    by_id: BTreeMap<WatcherId, Member<T>>,
    due: BTreeSet<(Duration, WatcherId)>,
    next_id: WatcherId,
}

impl<T: Clone> Watchers<T> {
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
        handle: T,
        now: Duration,
    ) -> WatcherId {
        let id = self.next_id;
        self.next_id += 1;
        let due = bookmarks.and_then(|b| b.due_after(now));
        self.due.extend(due.map(|due| (due, id)));
        let watcher = Arc::new(Watcher {
            selector,
            after,
            handle,
        });
        self.index.insert(id, &watcher.selector, watcher.clone());
        let member = Member {
            watcher,
            bookmarks,
            due,
        };
        self.by_id.insert(id, member);
        id
    }

    /// Removes one; returns what its owner keeps of it, if it was there.
    pub(crate) fn remove(&mut self, id: WatcherId) -> Option<T> {
        let Member { watcher, due, .. } = self.by_id.remove(&id)?;
        self.index.remove(id, &watcher.selector);
        if let Some(due) = due {
            self.due.remove(&(due, id));
        }
        Some(watcher.handle.clone())
    }

    /// Removes all; returns them.
    pub(crate) fn clear(&mut self) -> Vec<(WatcherId, T)> {
        let all: Vec<_> = self.handles().map(|(id, t)| (id, t.clone())).collect();
        for (id, _) in &all {
            self.remove(*id);
        }
        all
    }

    /// Returns what the owner keeps of a watcher.
    pub(crate) fn handle(&self, id: WatcherId) -> Option<&T> {
        self.by_id.get(&id).map(|member| &member.watcher.handle)
    }

    /// Visits everyone.
    pub(crate) fn handles(&self) -> impl Iterator<Item = (WatcherId, &T)> {
        let members = self.by_id.iter();
        members.map(|(id, member)| (*id, &member.watcher.handle))
    }

    /// Calls `visit` for everyone who must see a change, with what it is to it.
    pub(crate) fn concerned(
        &self,
        revision: u64,
        before: Option<&Object>,
        now: Option<&Object>,
        mut visit: impl FnMut(WatcherId, &T, EventType),
    ) {
        self.index.interested(before, now, |id, watcher| {
            if watcher.after >= revision {
                return;
            }
            let selected = |o: Option<&Object>| o.is_some_and(|o| watcher.selector.matches(o));
            if let Some(event_type) = EventType::of(selected(before), selected(now)) {
                visit(id, &watcher.handle, event_type);
            }
        });
    }

    /// Returns when the next bookmark is due.
    pub(crate) fn next_bookmark(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns who is due a bookmark with a revision, and plans their next. One
    /// that waits for a later revision gets none: it would lead backwards.
    pub(crate) fn due_bookmarks(&mut self, now: Duration, revision: u64) -> Vec<(WatcherId, T)> {
        let mut who = Vec::new();
        while let Some(&(due, id)) = self.due.first() {
            if due > now {
                break;
            }
            self.due.pop_first();
            let Some(member) = self.by_id.get_mut(&id) else {
                continue;
            };
            if member.watcher.after <= revision {
                who.push((id, member.watcher.handle.clone()));
            }
            member.due = member.bookmarks.and_then(|b| b.due_after(now));
            self.due.extend(member.due.map(|due| (due, id)));
        }
        who
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::object;
    use meta::FieldSelector;

    const FIELD: &str = "spec.nodeName";

    fn of_node(n: usize) -> Selector {
        Selector {
            fields: FieldSelector::one(FIELD, &format!("n{n}")),
            ..Selector::default()
        }
    }

    /// However many watch, a change visits those whose bucket it falls into, and
    /// nothing is left of who went.
    #[test]
    fn a_change_visits_as_many_among_ten_thousand_as_among_ten() {
        let (first, second) = (object(0, 0, 1, 5), object(0, 0, 2, 6));
        for count in [10, 10_000] {
            let mut watchers = Watchers::new(Some(FIELD));
            let add = |w: &mut Watchers<usize>, n| {
                let bookmarks = Bookmarks {
                    every: BOOKMARK_EVERY,
                    end: None,
                };
                let at = Duration::from_millis(n as u64);
                w.add(of_node(n), 0, Some(bookmarks), n, at)
            };
            let ids: Vec<_> = (0..count).map(|n| add(&mut watchers, n)).collect();
            assert_eq!((watchers.len(), watchers.index.buckets()), (count, count));
            for (before, now, want) in [
                (None, Some(&*first), vec![(1, EventType::Added)]),
                (Some(&*first), Some(&*first), vec![(1, EventType::Modified)]),
                (
                    Some(&*first),
                    Some(&*second),
                    vec![(1, EventType::Deleted), (2, EventType::Added)],
                ),
                (Some(&*second), None, vec![(2, EventType::Deleted)]),
            ] {
                let mut visited = Vec::new();
                watchers
                    .index
                    .interested(before, now, |_, watcher| visited.push(watcher.handle));
                let mut seen = Vec::new();
                watchers.concerned(7, before, now, |_, n, t| seen.push((*n, t)));
                assert_eq!(seen, want);
                assert_eq!(visited.len(), want.len(), "others were visited");
            }
            let due = watchers.next_bookmark().unwrap();
            assert_eq!(watchers.due_bookmarks(due, 9), [(ids[0], 0)]);
            for (n, id) in ids.into_iter().enumerate() {
                assert_eq!((watchers.remove(id), watchers.remove(id)), (Some(n), None));
            }
            assert_eq!((watchers.len(), watchers.index.buckets()), (0, 0));
            assert_eq!(watchers.next_bookmark(), None);
        }
    }

    #[test]
    fn bookmarks_come_every_minute_and_before_the_end() {
        let at = Duration::from_secs;
        let mut watchers = Watchers::new(None);
        let mut add = |after, end| {
            let bookmarks = Bookmarks {
                every: BOOKMARK_EVERY,
                end: Some(at(end)),
            };
            watchers.add(Selector::default(), after, Some(bookmarks), (), at(0))
        };
        let (long, short) = (add(0, 150), add(0, 30));
        // Too short for any, and waiting for what has not come.
        add(0, 2);
        add(9, 30);
        let mut seen = Vec::new();
        while let Some(due) = watchers.next_bookmark() {
            for (id, ()) in watchers.due_bookmarks(due, 8) {
                seen.push((due.as_secs(), id));
            }
        }
        assert_eq!(seen, [(28, short), (60, long), (120, long), (148, long)]);
    }
}
