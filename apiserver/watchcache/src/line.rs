//! The line between the cache and one client: what the client sees first, and
//! the bounded queue of what follows.
//!
//! Whoever dispatches never waits here: a full queue says so, and can be
//! [`cut`](Line::cut). What is cut off is never skipped: nothing of what the
//! client has not taken is shown after it, so that it can go on elsewhere from
//! the last thing it saw.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::event::{Event, EventType};
use crate::watchers::Initial;

/// The most changes that wait for a slow client. When it is full the client
/// gets a share of one time budget, then its line is cut.
pub const QUEUE_MAX: usize = 1024;
/// An empty queue gives its memory back if it has room for more than this.
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

impl Item {
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
    items: VecDeque<Item>,
    /// The revision of the last change that was taken.
    taken: u64,
    end: Option<End>,
    reader: Option<Waker>,
    /// Who waits for room.
    writer: Option<Waker>,
}

/// A line to one client. The dispatcher has one handle, the client's response
/// the other.
#[derive(Debug)]
pub struct Line {
    /// What comes before the queue. Behind a lock of its own: looking for what
    /// is selected takes time, and the dispatcher must not wait for it.
    initial: Mutex<Option<Initial>>,
    /// The revision at which the queue begins.
    from: u64,
    queue: Mutex<Queue>,
    limit: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock is a bug; what is behind it is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    /// Creates the line of a watch that begins with `initial`, which ends in a
    /// bookmark if `marked`; what is queued comes after revision `from`.
    pub fn new(initial: Initial, from: u64, marked: bool, limit: usize) -> Self {
        let queue = Queue {
            marker: marked.then_some(from),
            ..Queue::default()
        };
        Self {
            initial: Mutex::new(Some(initial)),
            from,
            queue: Mutex::new(queue),
            limit,
        }
    }

    /// Puts an item into the queue; gives it back if that is full. What is put
    /// into a line that has ended goes nowhere.
    pub fn push(&self, item: Item) -> Result<(), Item> {
        let mut queue = lock(&self.queue);
        if queue.end.is_some() {
            return Ok(());
        }
        if queue.items.len() >= self.limit {
            return Err(item);
        }
        queue.items.push_back(item);
        let reader = queue.reader.take();
        drop(queue);
        wake(reader);
        Ok(())
    }

    /// Waits for room in the queue.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = lock(&self.queue);
        if queue.end.is_some() || queue.items.len() < self.limit {
            return Poll::Ready(());
        }
        queue.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Takes the next item; `None` at the end.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        {
            let mut initial = lock(&self.initial);
            if let Some(events) = &mut *initial {
                if let Some((event_type, event)) = events.next() {
                    return Poll::Ready(Some(Item::Event(event_type, event)));
                }
                *initial = None;
            }
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
                queue.items = VecDeque::new();
            }
            if let Item::Event(_, event) = &item {
                queue.taken = event.revision;
            }
            let writer = queue.writer.take();
            drop(queue);
            wake(writer);
            return Poll::Ready(Some(item));
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

    /// Cuts off a client that is too slow, for whom there are `unsent` changes.
    /// One that still reads its initial events gets them to their end, and can
    /// go on from there elsewhere; else it would begin again and again. One that
    /// has seen a part of a transaction gets the rest: all changes of it have
    /// one revision, and who resumes after that would miss some.
    pub fn cut(&self, unsent: impl IntoIterator<Item = Item>) {
        self.end(|queue| {
            let rest = std::mem::take(&mut queue.items);
            let (part, gone) = rest
                .into_iter()
                .chain(unsent)
                .partition(|item| item.is_of(queue.taken));
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
    fn end(&self, how: impl FnOnce(&mut Queue) -> (End, VecDeque<Item>)) {
        let mut queue = lock(&self.queue);
        let (end, gone) = how(&mut queue);
        // Who was cut off and is severed amid a transaction has lost its place.
        if queue.end.is_none() || end == End::Lost {
            queue.end = Some(end);
        }
        let wakers = (queue.reader.take(), queue.writer.take());
        drop(queue);
        // Freeing them may take a while, and so is done without the lock.
        drop(gone);
        wake(wakers.0);
        wake(wakers.1);
    }

    /// Tells whether the initial events have not been read to their end, though
    /// nobody could go on from there any more: the window begins later.
    pub fn is_hopeless(&self, oldest: u64) -> bool {
        self.from < oldest
            && self
                .initial
                .try_lock()
                .is_ok_and(|initial| initial.is_some())
    }

    /// Returns the revision of the oldest change that waits.
    pub fn waits_since(&self) -> Option<u64> {
        let queue = lock(&self.queue);
        queue.items.iter().find_map(|item| match item {
            Item::Event(_, event) => Some(event.revision),
            _ => None,
        })
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
        Line::new(Initial::Changes(Missed::nothing()), 7, marked, 2)
    }

    fn bookmark(revision: u64) -> Item {
        Item::Bookmark {
            revision,
            initial_events_end: false,
        }
    }

    fn next(line: &Line) -> String {
        match line.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => "-".to_owned(),
            Poll::Ready(None) => "end".to_owned(),
            Poll::Ready(Some(Item::Lost)) => "lost".to_owned(),
            Poll::Ready(Some(Item::Bookmark {
                revision,
                initial_events_end,
            })) => format!("{revision}{}", if initial_events_end { "!" } else { "" }),
            Poll::Ready(Some(other)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn queues_up_to_the_limit_and_in_order() {
        let line = line(true);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(line.push(bookmark(8)).is_ok());
        assert!(line.push(bookmark(9)).is_ok());
        assert!(line.push(bookmark(10)).is_err());
        assert!(line.poll_room(cx).is_pending());
        assert_eq!(next(&line), "7!");
        assert_eq!(next(&line), "8");
        assert!(line.poll_room(cx).is_ready());
        assert!(line.push(bookmark(10)).is_ok());
        line.close();
        assert!(line.push(bookmark(11)).is_ok());
        let rest = [(); 4].map(|()| next(&line));
        assert_eq!(rest, ["9", "10", "end", "end"]);
    }

    fn change(revision: u64) -> Item {
        let object = crate::model::object(0, 0, 0, revision);
        let event = Event::new(revision, Some(object), None);
        Item::Event(EventType::Added, Arc::new(event))
    }

    fn taken(line: &Line) -> Option<u64> {
        match line.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Item::Event(_, event))) => Some(event.revision),
            Poll::Ready(None) => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_transaction_is_shown_whole_or_its_position_is_lost() {
        for sever in [false, true] {
            let line = line(false);
            assert!(line.push(change(8)).is_ok());
            assert!(line.push(change(8)).is_ok());
            assert_eq!(taken(&line), Some(8));
            if sever {
                line.sever();
                assert_eq!(next(&line), "lost");
            } else {
                line.cut([change(8), change(9)]);
                assert_eq!([taken(&line), taken(&line)], [Some(8); 2]);
            }
            assert_eq!(taken(&line), None);
        }
        let untouched = line(false);
        assert!(untouched.push(change(8)).is_ok());
        untouched.cut([change(8)]);
        assert_eq!(taken(&untouched), None);
    }

    #[test]
    fn what_is_cut_off_shows_nothing_more_but_its_beginning() {
        let waiting = line(true);
        assert!(waiting.push(bookmark(8)).is_ok());
        waiting.cut([]);
        assert_eq!([(); 2].map(|()| next(&waiting)), ["7!", "end"]);

        let under_way = line(false);
        assert!(under_way.push(bookmark(8)).is_ok());
        under_way.cut([bookmark(9)]);
        assert_eq!(next(&under_way), "end");

        let severed = line(true);
        severed.sever();
        assert_eq!(next(&severed), "end");

        let lost = line(true);
        assert!(lost.push(bookmark(8)).is_ok());
        lost.lose();
        assert_eq!([(); 2].map(|()| next(&lost)), ["lost", "end"]);
    }
}
