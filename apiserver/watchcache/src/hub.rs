//! The cacher with the lines of its watchers: from a change in the store to
//! every queue it belongs in, without waiting for anybody.
//!
//! A change is taken in under the lock of its owner, and put into the queues
//! without it. That keeps the order because one dispatcher does both, one
//! [`Round`] after the other: whoever begins between the two begins after the
//! change, and whoever leaves is not there any more to see it.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use meta::Object;

use crate::cacher::{Cacher, Change, Config, Overtaken};
use crate::event::{Event, EventType};
use crate::index::WatcherId;
use crate::line::{Line, QUEUE_MAX};
use crate::watchers::WatchSpec;
use crate::window::TooOld;

/// The most bytes of changes that wait for the clients of one resource, each
/// change counted once however many wait for it, and of the room in their
/// queues. Beyond it the lines of those who are furthest behind are severed,
/// until it is kept again.
pub const HELD_BYTES_MAX: u64 = 64 << 20;

/// A round gives its memory back if it has room for more deliveries than this.
const DELIVERIES_KEPT: usize = 16_384;

/// The bounds of a hub.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most items in the queue of a client that is not late.
    pub queue: usize,
    /// The most bytes in all of them.
    pub held_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue: QUEUE_MAX,
            held_bytes: HELD_BYTES_MAX,
        }
    }
}

/// A change on its way into a queue.
#[derive(Debug)]
struct Delivery {
    id: WatcherId,
    line: Arc<Line>,
    event_type: EventType,
    event: Arc<Event>,
}

/// What was taken in and is to be put into queues. Reused from one to the next.
#[derive(Debug, Default)]
pub struct Round(Vec<Delivery>);

/// What sending a round did.
#[derive(Debug, Default)]
pub struct Sent {
    /// How many changes were queued.
    pub count: usize,
    /// Whose queues have grown beyond their limit.
    pub late: Vec<(WatcherId, Arc<Line>)>,
}

impl Round {
    /// Puts everything into the queues.
    pub fn send(&mut self) -> Sent {
        let mut sent = Sent {
            count: self.0.len(),
            late: Vec::new(),
        };
        for delivery in self.0.drain(..) {
            let Delivery {
                id,
                line,
                event_type,
                event,
            } = delivery;
            if line.push(event_type, event) {
                sent.late.push((id, line));
            }
        }
        if self.0.capacity() > DELIVERIES_KEPT {
            self.0 = Vec::new();
        }
        sent
    }
}

/// A cacher and the lines of its watchers.
#[derive(Debug)]
pub struct Hub {
    /// The cacher. Its watchers are the hub's to add and to remove.
    pub cacher: Cacher<Arc<Line>>,
    /// Those who were cut off and have not been read to their end.
    ended: BTreeMap<WatcherId, Arc<Line>>,
    /// Those who may not have read their initial events, by the revision of
    /// these.
    beginning: BTreeSet<(u64, WatcherId)>,
    limits: Limits,
}

impl Hub {
    /// Creates a hub without watchers over a cacher that knows nothing.
    pub fn new(config: Config, limits: Limits) -> Self {
        Self {
            cacher: Cacher::new(config),
            ended: BTreeMap::new(),
            beginning: BTreeSet::new(),
            limits,
        }
    }

    /// Registers a watch; `marked` if a bookmark ends its initial events.
    pub fn watch(
        &mut self,
        spec: WatchSpec,
        marked: bool,
        now: Duration,
    ) -> Result<(WatcherId, Arc<Line>), TooOld> {
        let WatchSpec {
            selector,
            start,
            bookmarks,
        } = spec;
        let begun = self.cacher.begin(&selector, start)?;
        let (from, held) = (begun.revision, self.cacher.held().clone());
        let line = Line::new(begun.initial, from, marked, self.limits.queue, held);
        let line = Arc::new(line);
        let handle = line.clone();
        let id = self
            .cacher
            .join(selector, begun.after, bookmarks, handle, now);
        self.beginning.insert((from, id));
        Ok((id, line))
    }

    /// Forgets a watcher whose client went away. Returns its line, to be severed:
    /// that may take a while, and needs no hub.
    pub fn unwatch(&mut self, id: WatcherId) -> Option<Arc<Line>> {
        let line = self.cacher.unwatch(id);
        let line = line.or_else(|| self.ended.remove(&id))?;
        self.beginning.remove(&(line.from(), id));
        Some(line)
    }

    /// Cuts off a watcher that is too slow. Returns whether it was there.
    pub fn cut(&mut self, id: WatcherId) -> bool {
        let Some(line) = self.cacher.unwatch(id) else {
            return false;
        };
        line.cut();
        self.ended.insert(id, line);
        true
    }

    /// Takes in the changes of the next revision, all of them, so that no reader
    /// sees half a transaction. They must be [sent](Round::send) before the hub
    /// is asked for anything that goes into queues. An error leaves nothing to
    /// be sent.
    pub fn take_in(
        &mut self,
        changes: &mut Peekable<impl Iterator<Item = Change>>,
        now: Duration,
        round: &mut Round,
    ) -> Result<(), Overtaken> {
        round.0.clear();
        while let Some(change) = changes.next() {
            let revision = change.revision;
            let taken = self
                .cacher
                .ingest(change, now, |id, line, event_type, event| {
                    round.0.push(Delivery {
                        id,
                        line: line.clone(),
                        event_type,
                        event: event.clone(),
                    });
                });
            if let Err(overtaken) = taken {
                round.0.clear();
                return Err(overtaken);
            }
            if changes.peek().is_none_or(|c| c.revision != revision) {
                break;
            }
        }
        Ok(())
    }

    /// Gives a bookmark to whoever is due one.
    pub fn bookmarks(&mut self, now: Duration) {
        let revision = self.cacher.revision();
        for (_, line) in self.cacher.due_bookmarks(now) {
            line.bookmark(revision);
        }
    }

    /// Keeps to the limit of memory, whatever the clients do: severs the lines
    /// of those who hold more than may be held, and of those who read a state
    /// so old that it is no use to them. Returns how many that were.
    pub fn tidy(&mut self) -> u64 {
        let mut severed = self.sever_the_hopeless();
        if !self.is_over() {
            return severed;
        }
        let ended = self.ended.iter().map(|(id, line)| (*id, line));
        let lines = self.cacher.handles().chain(ended);
        let mut behind: Vec<(u64, WatcherId)> = lines
            .filter_map(|(id, line)| Some((line.waits_since()?, id)))
            .collect();
        behind.sort_unstable();
        for (_, id) in behind {
            if !self.is_over() {
                break;
            }
            severed += self.sever(id);
        }
        severed
    }

    /// Severs those who have not read their initial events, though nobody could
    /// go on from there any more: the window begins later. Looks at nobody else,
    /// and once at those who have read them.
    fn sever_the_hopeless(&mut self) -> u64 {
        let oldest = self.cacher.oldest();
        let beginning = self.beginning.range(..(oldest, 0));
        let (mut begun, mut hopeless) = (Vec::new(), Vec::new());
        for &(from, id) in beginning {
            let line = self.cacher.handle(id).or_else(|| self.ended.get(&id));
            match line.map(|line| line.has_begun()) {
                Some(Some(false)) => hopeless.push(id),
                // Who reads is not stuck.
                Some(None) => {}
                Some(Some(true)) | None => begun.push((from, id)),
            }
        }
        for place in begun {
            self.beginning.remove(&place);
        }
        hopeless.into_iter().map(|id| self.sever(id)).sum()
    }

    fn sever(&mut self, id: WatcherId) -> u64 {
        let line = self.unwatch(id);
        if let Some(line) = &line {
            line.sever();
        }
        u64::from(line.is_some())
    }

    /// Tells whether more is held than may be.
    pub fn is_over(&self) -> bool {
        self.cacher.held().bytes() > self.limits.held_bytes
    }

    /// Returns the bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Ceases to serve: see [`Cacher::lose`]. Every watcher is told.
    pub fn lose(&mut self, now: Duration) {
        let lines = self.cacher.lose(now);
        self.end(lines, Line::lose);
    }

    /// Serves a state loaded anew: see [`Cacher::reset`]. Every watcher that is
    /// left is told that its position is gone.
    pub fn reset(
        &mut self,
        objects: impl IntoIterator<Item = (Arc<str>, Arc<Object>)>,
        revision: u64,
        now: Duration,
    ) {
        let lines = self.cacher.reset(objects, revision, now);
        self.end(lines, Line::lose);
    }

    /// Ends every watch without an error: clients resume elsewhere.
    pub fn close(&mut self, now: Duration) {
        let lines = self.cacher.lose(now);
        self.end(lines, Line::close);
    }

    fn end(&mut self, lines: Vec<(WatcherId, Arc<Line>)>, how: fn(&Line)) {
        self.beginning.clear();
        let ended = std::mem::take(&mut self.ended).into_values();
        let lines = lines.into_iter().map(|(_, line)| line);
        lines.chain(ended).for_each(|line| how(&line));
    }
}
