//! The cacher with the lines of its watchers: from a change in the store to
//! every queue it belongs in, without waiting for anybody.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use meta::Object;

use crate::cacher::{Cacher, Change, Config, Overtaken};
use crate::event::EventType;
use crate::index::WatcherId;
use crate::line::{Item, Line, QUEUE_MAX};
use crate::watchers::{Started, WatchSpec};
use crate::window::TooOld;

/// The most bytes of changes that wait for the clients of one resource, each
/// change counted once however many wait for it. Beyond it the lines of those
/// who are furthest behind are severed, until it is kept again.
pub const HELD_BYTES_MAX: u64 = 64 << 20;

/// A watcher whose queue is full, and what it must get next, in order.
#[derive(Debug)]
pub struct Blocked {
    /// Who.
    pub id: WatcherId,
    /// Its line.
    pub line: Arc<Line>,
    /// What it must get.
    pub items: Vec<Item>,
}

/// What a dispatch did.
#[derive(Debug, Default)]
pub struct Dispatched {
    /// How many items were queued.
    pub sent: u64,
    /// Who has no room. The rest of the changes waits until they got theirs, or
    /// were [cut](Hub::cut).
    pub blocked: Vec<Blocked>,
}

/// The bounds of a hub.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most items in one queue.
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

/// A cacher and the lines of its watchers.
#[derive(Debug)]
pub struct Hub {
    /// The cacher. Its watchers are the hub's to add and to remove.
    pub cacher: Cacher,
    lines: BTreeMap<WatcherId, Arc<Line>>,
    limits: Limits,
    /// Reused from change to change.
    targets: Vec<(WatcherId, EventType)>,
}

impl Hub {
    /// Creates a hub without watchers over a cacher that knows nothing.
    pub fn new(config: Config, limits: Limits) -> Self {
        Self {
            cacher: Cacher::new(config),
            lines: BTreeMap::new(),
            limits,
            targets: Vec::new(),
        }
    }

    /// Registers a watch; `marked` if a bookmark ends its initial events.
    pub fn watch(
        &mut self,
        spec: WatchSpec,
        marked: bool,
        now: Duration,
    ) -> Result<(WatcherId, Arc<Line>), TooOld> {
        let Started {
            id,
            revision,
            initial,
        } = self.cacher.watch(spec, now)?;
        let line = Arc::new(Line::new(initial, revision, marked, self.limits.queue));
        self.lines.insert(id, line.clone());
        Ok((id, line))
    }

    /// Forgets a watcher whose client went away.
    pub fn unwatch(&mut self, id: WatcherId) {
        self.cacher.unwatch(id);
        if let Some(line) = self.lines.remove(&id) {
            line.sever();
        }
    }

    /// Cuts off a watcher that is too slow, for whom there are `unsent` items.
    pub fn cut(&mut self, id: WatcherId, unsent: impl IntoIterator<Item = Item>) {
        self.cacher.unwatch(id);
        if let Some(line) = self.lines.get(&id) {
            line.cut(unsent);
        }
    }

    /// Dispatches changes until none is left or some queue is full; never stops
    /// within a revision, so that no reader sees half a transaction.
    pub fn dispatch(
        &mut self,
        changes: &mut Peekable<impl Iterator<Item = Change>>,
        now: Duration,
    ) -> Result<Dispatched, Overtaken> {
        let mut done = Dispatched::default();
        // By number among `done.blocked`.
        let mut blocked: BTreeMap<WatcherId, usize> = BTreeMap::new();
        while let Some(change) = changes.next() {
            let revision = change.revision;
            if let Some(event) = self.cacher.ingest(change, now, &mut self.targets)? {
                for (id, event_type) in &self.targets {
                    let item = Item::Event(*event_type, event.clone());
                    if !blocked.is_empty()
                        && let Some(n) = blocked.get(id)
                    {
                        done.blocked[*n].items.push(item);
                        continue;
                    }
                    let Some(line) = self.lines.get(id) else {
                        continue;
                    };
                    match line.push(item) {
                        Ok(()) => done.sent += 1,
                        Err(item) => {
                            blocked.insert(*id, done.blocked.len());
                            done.blocked.push(Blocked {
                                id: *id,
                                line: line.clone(),
                                items: vec![item],
                            });
                        }
                    }
                }
            }
            let more_of_it = changes.peek().is_some_and(|c| c.revision == revision);
            if !blocked.is_empty() && !more_of_it {
                break;
            }
        }
        Ok(done)
    }

    /// Gives a bookmark to whoever is due one.
    pub fn bookmarks(&mut self, now: Duration) {
        let revision = self.cacher.revision();
        for id in self.cacher.due_bookmarks(now) {
            if let Some(line) = self.lines.get(&id) {
                // A full queue needs no bookmark: it will end in newer events.
                let _ = line.push(Item::Bookmark {
                    revision,
                    initial_events_end: false,
                });
            }
        }
    }

    /// Keeps to the limit of memory, whatever the clients do: severs the lines
    /// of those who hold more than may be held, and of those who read a state
    /// so old that it is no use to them. Returns how many that were.
    pub fn tidy(&mut self) -> u64 {
        let mut severed = 0;
        let oldest = self.cacher.oldest();
        let hopeless: Vec<WatcherId> = self
            .lines
            .iter()
            .filter(|(_, line)| line.is_hopeless(oldest))
            .map(|(id, _)| *id)
            .collect();
        for id in hopeless {
            self.unwatch(id);
            severed += 1;
        }
        if self.cacher.held().bytes() <= self.limits.held_bytes {
            return severed;
        }
        let mut behind: Vec<(u64, WatcherId)> = self
            .lines
            .iter()
            .filter_map(|(id, line)| Some((line.waits_since()?, *id)))
            .collect();
        behind.sort_unstable();
        for (_, id) in behind {
            if self.cacher.held().bytes() <= self.limits.held_bytes {
                break;
            }
            self.unwatch(id);
            severed += 1;
        }
        severed
    }

    /// Tells whether more is held than may be.
    pub fn is_over(&self) -> bool {
        self.cacher.held().bytes() > self.limits.held_bytes
    }

    /// Ceases to serve: see [`Cacher::lose`]. Every watcher is told.
    pub fn lose(&mut self, now: Duration) {
        self.cacher.lose(now);
        for line in std::mem::take(&mut self.lines).into_values() {
            line.lose();
        }
    }

    /// Serves a state loaded anew: see [`Cacher::reset`]. Every watcher that is
    /// left is told that its position is gone.
    pub fn reset(
        &mut self,
        objects: impl IntoIterator<Item = (Arc<str>, Arc<Object>)>,
        revision: u64,
        now: Duration,
    ) {
        self.cacher.reset(objects, revision, now);
        for line in std::mem::take(&mut self.lines).into_values() {
            line.lose();
        }
    }

    /// Ends every watch without an error: clients resume elsewhere.
    pub fn close(&mut self, now: Duration) {
        self.cacher.lose(now);
        for line in std::mem::take(&mut self.lines).into_values() {
            line.close();
        }
    }
}
