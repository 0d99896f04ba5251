//! The line between the cache and one client: what the client sees first, and
//! the queue of what follows.
//!
//! Whoever dispatches never waits here. A queue that has grown beyond its limit
//! is late, and who is late for too long is [`cut`](Line::cut). What is cut off
//! is never skipped: nothing of what the client has not taken is shown after
//! it, so that it can go on elsewhere from the last thing it saw.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::event::{Event, EventType, Held};
use crate::watchers::Initial;

/// The most changes that wait for a client that keeps up. One with more is
/// late: it is served on, but not for long.
pub const QUEUE_MAX: usize = 1024;
/// An empty queue gives its memory back if it has room for more than this; so
/// much room is not counted as held.
const QUEUE_KEPT: usize = 32;

/// One thing a watch is shown.
#[derive(Clone, Debug)]
pub enum Item {
    /// A change, and what it is to this watch.
    Event(EventType, Arc<Event>),
    /// Everything up to this revision has been shown.
    Bookmark {
        /// The revision.
        revision: u64,
        /// Whether this ends the initial events.
        initial_events_end: bool,
    },
    /// The watch's position is gone; nothing follows.
    Lost,
}

/// What waits in a queue; small, as there are many.
#[derive(Debug)]
enum Queued {
    Event(EventType, Arc<Event>),
    Bookmark(u64),
}

impl Queued {
    fn is_of(&self, revision: u64) -> bool {
        matches!(self, Self::Event(_, event) if event.revision == revision)
    }
}

/// Why nothing more is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client resumes from what it last saw.
    Closed,
    /// The client must list again.
    Lost,
}

#[derive(Debug, Default)]
struct Queue {
    /// The revision of the bookmark that ends the initial events.
    marker: Option<u64>,
    items: VecDeque<Queued>,
    /// The revision of the last change that was taken.
    taken: u64,
    end: Option<End>,
    /// Whether more waits than the limit.
    late: bool,
    reader: Option<Waker>,
}

impl Queue {
    /// Returns what its room counts as held.
    fn room(&self) -> u64 {
        match self.items.capacity() {
            kept if kept <= QUEUE_KEPT => 0,
            more => (more * size_of::<Queued>()) as u64,
        }
    }
}

/// A line to one client. The dispatcher has one handle, the client's response
/// the other.
#[derive(Debug)]
pub struct Line {
    /// What comes before the queue. Behind a lock of its own: looking for what
    /// is selected takes time, and the dispatcher must not wait for it.
    initial: Mutex<Option<Box<Initial>>>,
    /// Whether there is none left, so that nobody need lock it.
    begun: AtomicBool,
    /// The revision at which the queue begins.
    from: u64,
    queue: Mutex<Queue>,
    limit: usize,
    held: Arc<Held>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock is a bug; what is behind it is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    /// Creates the line of a watch that begins with `initial`, which ends in a
    /// bookmark if `marked`; what is queued comes after revision `from`. It is
    /// late with more than `limit` in its queue, whose room counts as `held`.
    pub fn new(initial: Initial, from: u64, marked: bool, limit: usize, held: Arc<Held>) -> Self {
        let queue = Queue {
            marker: marked.then_some(from),
            ..Queue::default()
        };
        Self {
            initial: Mutex::new(Some(Box::new(initial))),
            begun: AtomicBool::new(false),
            from,
            queue: Mutex::new(queue),
            limit,
            held,
        }
    }

    /// Returns the revision at which the queue begins.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Queues a change. Returns whether the line is late from now on. What is
    /// put into a line that has ended goes nowhere.
    pub fn push(&self, event_type: EventType, event: Arc<Event>) -> bool {
        let mut queue = lock(&self.queue);
        if queue.end.is_some() {
            return false;
        }
        self.put(&mut queue, Queued::Event(event_type, event));
        let late = !queue.late && queue.items.len() > self.limit;
        queue.late |= late;
        let reader = queue.reader.take();
        drop(queue);
        wake(reader);
        late
    }

    /// Queues a bookmark, unless the queue is full: what waits there is as good.
    pub fn bookmark(&self, revision: u64) {
        let mut queue = lock(&self.queue);
        if queue.end.is_some() || queue.items.len() >= self.limit {
            return;
        }
        self.put(&mut queue, Queued::Bookmark(revision));
        let reader = queue.reader.take();
        drop(queue);
        wake(reader);
    }

    fn put(&self, queue: &mut Queue, item: Queued) {
        let before = queue.room();
        queue.items.push_back(item);
        self.held.grow(queue.room() - before);
    }

    /// Tells whether more waits than the limit; who has ended is not late.
    pub fn is_late(&self) -> bool {
        let queue = lock(&self.queue);
        queue.late && queue.end.is_none()
    }

    /// Takes the next item; `None` at the end.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Some((event_type, event)) = self.next_initial() {
            return Poll::Ready(Some(Item::Event(event_type, event)));
        }
        let mut queue = lock(&self.queue);
        if let Some(revision) = queue.marker.take() {
            return Poll::Ready(Some(Item::Bookmark {
                revision,
                initial_events_end: true,
            }));
        }
        if let Some(item) = queue.items.pop_front() {
            if queue.items.is_empty() && queue.items.capacity() > QUEUE_KEPT {
                self.held.shrink(queue.room());
                queue.items = VecDeque::new();
            }
            queue.late &= queue.items.len() > self.limit;
            return Poll::Ready(Some(match item {
                Queued::Event(event_type, event) => {
                    queue.taken = event.revision;
                    Item::Event(event_type, event)
                }
                Queued::Bookmark(revision) => Item::Bookmark {
                    revision,
                    initial_events_end: false,
                },
            }));
        }
        match queue.end {
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(End::Closed) => Poll::Ready(None),
            Some(End::Lost) => {
                queue.end = Some(End::Closed);
                Poll::Ready(Some(Item::Lost))
            }
        }
    }

    fn next_initial(&self) -> Option<(EventType, Arc<Event>)> {
        if self.begun.load(Ordering::Acquire) {
            return None;
        }
        let mut initial = lock(&self.initial);
        let next = initial.as_mut().and_then(|events| events.next());
        if next.is_none() {
            *initial = None;
            self.begun.store(true, Ordering::Release);
        }
        next
    }

    /// Cuts off a client that is too slow. One that still reads its initial
    /// events gets them to their end, and can go on from there elsewhere; else
    /// it would begin again and again. One that has seen a part of a transaction
    /// gets the rest: all changes of it have one revision, and who resumes after
    /// that would miss some.
    pub fn cut(&self) {
        self.end(|queue| {
            let rest = std::mem::take(&mut queue.items);
            let (part, gone) = rest.into_iter().partition(|item| item.is_of(queue.taken));
            queue.items = part;
            (End::Closed, gone)
        });
    }

    /// Cuts off a client and lets go of everything that is kept for it.
    pub fn sever(&self) {
        self.end(|queue| {
            let gone = std::mem::take(&mut queue.items);
            let part = gone.front().is_some_and(|item| item.is_of(queue.taken));
            (if part { End::Lost } else { End::Closed }, gone)
        });
        self.forget_initial();
    }

    /// Ends the line after what is queued.
    pub fn close(&self) {
        self.end(|_| (End::Closed, VecDeque::new()));
    }

    /// Ends the line: its position is gone.
    pub fn lose(&self) {
        self.end(|queue| (End::Lost, std::mem::take(&mut queue.items)));
        self.forget_initial();
    }

    fn forget_initial(&self) {
        // Who holds it now is reading, and so not stuck: it finds the end.
        if let Ok(mut initial) = self.initial.try_lock() {
            *initial = None;
            lock(&self.queue).marker = None;
        }
    }

    /// Ends the line as `how` says, which also takes out what is not shown.
    fn end(&self, how: impl FnOnce(&mut Queue) -> (End, VecDeque<Queued>)) {
        let mut queue = lock(&self.queue);
        let before = queue.room();
        let (end, gone) = how(&mut queue);
        // Who was cut off and is severed amid a transaction has lost its place.
        if queue.end.is_none() || end == End::Lost {
            queue.end = Some(end);
        }
        let after = queue.room();
        self.held.grow(after.saturating_sub(before));
        let reader = queue.reader.take();
        drop(queue);
        // Freeing them may take a while, and so is done without the lock.
        drop(gone);
        self.held.shrink(before.saturating_sub(after));
        wake(reader);
    }

    /// Tells whether the initial events were read to their end, or let go;
    /// `None` while somebody is reading them.
    pub fn has_begun(&self) -> Option<bool> {
        if self.begun.load(Ordering::Acquire) {
            return Some(true);
        }
        let initial = self.initial.try_lock().ok()?;
        Some(initial.is_none())
    }

    /// Returns the revision of the oldest change that waits.
    pub fn waits_since(&self) -> Option<u64> {
        let queue = lock(&self.queue);
        queue.items.iter().find_map(|item| match item {
            Queued::Event(_, event) => Some(event.revision),
            Queued::Bookmark(_) => None,
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.held.shrink(queue.room());
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Missed;

    fn line(marked: bool) -> Line {
        let initial = Initial::Changes(Missed::nothing());
        Line::new(initial, 7, marked, 2, Arc::default())
    }

    fn event(revision: u64) -> Arc<Event> {
        let object = crate::model::object(0, 0, 0, revision);
        Arc::new(Event::new(revision, Some(object), None))
    }

    fn push(line: &Line, revision: u64) -> bool {
        line.push(EventType::Added, event(revision))
    }

    fn next(line: &Line) -> String {
        match line.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => "-".to_owned(),
            Poll::Ready(None) => "end".to_owned(),
            Poll::Ready(Some(Item::Lost)) => "lost".to_owned(),
            Poll::Ready(Some(Item::Bookmark {
                revision,
                initial_events_end,
            })) => format!("{revision}{}", if initial_events_end { "!" } else { "?" }),
            Poll::Ready(Some(Item::Event(_, event))) => event.revision.to_string(),
        }
    }

    fn shown<const N: usize>(line: &Line) -> [String; N] {
        [(); N].map(|()| next(line))
    }

    #[test]
    fn shows_everything_in_order_and_says_when_it_is_late() {
        let line = line(true);
        assert_eq!(
            [8, 9, 10, 11].map(|n| push(&line, n)),
            [false, false, true, false]
        );
        assert!(line.is_late());
        // Newer changes will come to say so.
        line.bookmark(11);
        assert_eq!(shown::<2>(&line), ["7!", "8"]);
        assert!(line.is_late());
        assert_eq!(next(&line), "9");
        assert!(!line.is_late());
        assert!(push(&line, 12), "late again");
        assert_eq!(shown::<2>(&line), ["10", "11"]);
        line.bookmark(13);
        line.close();
        assert!(!push(&line, 14));
        line.bookmark(14);
        assert_eq!(shown::<4>(&line), ["12", "13?", "end", "end"]);
    }

    #[test]
    fn the_room_of_a_long_queue_is_held_until_it_is_given_back() {
        assert_eq!(size_of::<Queued>(), 16);
        let line = line(false);
        let held = line.held.clone();
        let fill = |line: &Line, to| (8..to).filter(|n| push(line, *n)).count();
        let room = || held.bytes() as usize / size_of::<Queued>();
        fill(&line, 8 + QUEUE_KEPT as u64);
        assert_eq!(room(), 0);
        fill(&line, 108);
        assert!((132..=264).contains(&room()), "{}", room());
        while next(&line) != "-" {}
        assert_eq!(room(), 0);
        for end in [Line::cut, Line::sever, Line::lose] {
            let initial = Initial::Changes(Missed::nothing());
            let line = Line::new(initial, 7, false, 2, held.clone());
            fill(&line, 108);
            assert!(room() > 99);
            end(&line);
            assert_eq!(room(), 0);
        }
        fill(&line, 108);
        assert!(room() > 99);
        drop(line);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn an_idle_line_is_small() {
        assert!(size_of::<Line>() <= 200, "{}", size_of::<Line>());
        let line = line(false);
        assert_eq!((line.has_begun(), next(&line).as_str()), (Some(false), "-"));
        assert_eq!(line.has_begun(), Some(true));
        assert_eq!(lock(&line.queue).items.capacity(), 0);
        assert!(lock(&line.initial).is_none());
    }

    #[test]
    fn a_transaction_is_shown_whole_or_its_position_is_lost() {
        for sever in [false, true] {
            let line = line(false);
            assert!([8, 8, 8, 9].map(|n| push(&line, n))[2]);
            assert_eq!(next(&line), "8");
            if sever {
                line.sever();
                assert_eq!(shown::<2>(&line), ["lost", "end"]);
            } else {
                line.cut();
                assert_eq!(shown::<3>(&line), ["8", "8", "end"]);
            }
        }
        let untouched = line(false);
        assert_eq!([8, 8].map(|n| push(&untouched, n)), [false; 2]);
        untouched.cut();
        assert_eq!(next(&untouched), "end");
    }

    #[test]
    fn what_is_cut_off_shows_nothing_more_but_its_beginning() {
        let waiting = line(true);
        push(&waiting, 8);
        waiting.cut();
        assert_eq!(shown::<2>(&waiting), ["7!", "end"]);

        let under_way = line(false);
        under_way.bookmark(8);
        under_way.cut();
        assert_eq!(next(&under_way), "end");

        let severed = line(true);
        severed.sever();
        assert_eq!(next(&severed), "end");

        let lost = line(true);
        lost.bookmark(8);
        lost.lose();
        assert_eq!(shown::<2>(&lost), ["lost", "end"]);
    }
}
