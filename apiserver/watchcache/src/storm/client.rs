//! A client in the storm: it knows what it must see, and checks every item.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use meta::Object;

use super::Seen;
use super::store::Store;
use crate::model::selector;
use crate::{Event, EventType, Item, Line};

pub(super) struct Client {
    pub(super) selector: u8,
    line: Arc<Line>,
    /// The initial objects it has still to see.
    initial: VecDeque<Arc<Object>>,
    /// The revision of the bookmark after them.
    mark: Option<u64>,
    /// The next entry of the history that it may see.
    next: usize,
    /// It sees only what comes after this, which may not have happened yet.
    after: u64,
    /// What happened until here it sees first, even when it is cut off.
    pub(super) began: u64,
    /// The revision of the last change it has seen.
    seen: u64,
    /// The greatest revision up to which it has seen everything.
    reached: u64,
    /// Whether it began with a state of which it has not seen the end.
    partial: bool,
    pub(super) cut: bool,
    pub(super) lost: bool,
    pub(super) may_be_severed: bool,
    /// It reads once in so many chances.
    pub(super) patience: u64,
}

/// What a read brought.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) event: Option<(Arc<Event>, EventType)>,
    pub(super) ended: bool,
}

impl Client {
    pub(super) fn new(selector: u8, line: Arc<Line>) -> Self {
        Self {
            selector,
            line,
            initial: VecDeque::new(),
            mark: None,
            next: 0,
            after: 0,
            began: 0,
            seen: 0,
            reached: 0,
            partial: false,
            cut: false,
            lost: false,
            may_be_severed: false,
            patience: 1,
        }
    }

    pub(super) fn expect_state(&mut self, store: &Store, revision: u64, marked: bool) {
        self.expect_after(store, revision);
        let selector = selector(self.selector);
        let state = store.state_at(revision);
        self.initial = state
            .into_values()
            .filter(|o| selector.matches(o))
            .collect();
        self.mark = marked.then_some(revision);
        self.partial = true;
    }

    pub(super) fn expect_after(&mut self, store: &Store, revision: u64) {
        self.next = store.first_after(revision);
        self.after = revision;
        self.reached = revision;
    }

    /// Goes on where another was cut off: nothing lies between.
    pub(super) fn go_on(&mut self, from: &Self, store: &Store) {
        let upcoming = from.upcoming(store);
        assert!(upcoming.is_none_or(|(revision, ..)| revision > from.reached));
        self.patience = from.patience;
    }

    /// Returns after which revision it can go on elsewhere, unless it must list
    /// again.
    pub(super) fn resumes_after(&self) -> Option<u64> {
        (!self.lost && !self.partial).then_some(self.reached)
    }

    /// Reads one item and checks it.
    pub(super) fn read(&mut self, store: &Store, deceived: bool, seen: &mut Seen) -> Shown {
        let mut shown = Shown::default();
        let cx = &mut Context::from_waker(Waker::noop());
        match self.line.poll_next(cx) {
            Poll::Pending => {
                assert!(!self.cut && !self.lost);
                assert!(deceived || self.initial.is_empty() && self.mark.is_none());
                self.partial = false;
            }
            Poll::Ready(Some(Item::Event(event_type, event))) => {
                seen.shown += 1;
                // Of another life of the store; it will hear of it.
                if !deceived && !self.lost {
                    self.check(store, event_type, &event);
                }
                shown.event = Some((event, event_type));
            }
            Poll::Ready(Some(Item::Bookmark {
                revision,
                initial_events_end,
            })) => {
                seen.bookmarks += 1;
                seen.marks += u64::from(initial_events_end);
                if initial_events_end {
                    assert!(deceived || self.lost || self.initial.is_empty());
                    assert_eq!(self.mark.take(), Some(revision));
                }
                assert!(revision >= self.reached, "a bookmark leads backwards");
                self.partial = false;
                self.reached = revision;
                if !deceived && !self.lost {
                    let missed = self.upcoming(store).filter(|e| e.0 <= revision);
                    assert!(missed.is_none(), "{missed:?} by {revision}");
                }
            }
            Poll::Ready(Some(Item::Lost)) => {
                assert!(self.lost || self.may_be_severed);
                self.lost = true;
                seen.lost += 1;
            }
            Poll::Ready(None) => {
                assert!(self.cut || self.lost || self.may_be_severed);
                let whole = self.initial.is_empty() && self.mark.is_none();
                self.partial &= !whole;
                shown.ended = true;
            }
        }
        shown
    }

    /// Checks an event against what must come next.
    fn check(&mut self, store: &Store, event_type: EventType, event: &Event) {
        let object = event.shown(event_type);
        if let Some(want) = self.initial.pop_front() {
            assert_eq!(event_type, EventType::Added);
            assert_eq!(object.resource_version, want.resource_version);
            assert_eq!(object.body(), want.body());
            return;
        }
        assert!(self.mark.is_none(), "a change before the mark");
        self.partial = false;
        let (revision, want, at) = self.upcoming(store).expect("there is nothing to see");
        let rest = revision <= self.began || revision == self.seen;
        assert!(!self.cut || rest, "something was shown after what was not");
        self.seen = revision;
        let entry = &store.history[at];
        let content = match want {
            EventType::Deleted => &entry.before,
            _ => &entry.now,
        };
        assert_eq!((event_type, object.resource_version.0), (want, revision));
        assert_eq!(Some(object.body()), content.as_ref().map(|o| o.body()));
        assert!(revision >= self.reached);
        self.next = at + 1;
        // All changes of a transaction have one revision; it can go on from
        // there only after the last.
        let more = self.upcoming(store).is_some_and(|(r, ..)| r == revision);
        self.reached = if more { self.reached } else { revision };
    }

    /// Returns revision, type and place of the next change that it must see.
    fn upcoming(&self, store: &Store) -> Option<(u64, EventType, usize)> {
        let selector = selector(self.selector);
        let selected = |o: &Option<Arc<Object>>| o.as_ref().is_some_and(|o| selector.matches(o));
        let rest = store.history.iter().enumerate().skip(self.next);
        let rest = rest.filter(|(_, e)| e.revision > self.after);
        let mut concerning = rest.filter_map(|(at, e)| {
            let event_type = match (selected(&e.before), selected(&e.now)) {
                (false, true) => EventType::Added,
                (true, true) => EventType::Modified,
                (true, false) => EventType::Deleted,
                (false, false) => return None,
            };
            Some((e.revision, event_type, at))
        });
        concerning.next()
    }
}
