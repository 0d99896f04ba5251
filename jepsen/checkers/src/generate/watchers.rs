//! What watches are told: what they asked for, whole and in order, in pieces of any
//! size and at any time after it happened.

use super::Random;
use crate::{
    history::{Event, Time, Told, Watch, WatchRequest},
    model::within,
};

/// How many revisions one response carries at most.
const BATCH_MAX: u64 = 4;

pub(super) struct Watcher {
    pub(super) watch: Watch,
    /// Told in the next response.
    waiting: Vec<Event>,
    batch: u64,
    /// How many revisions it lives to see.
    left: u64,
    /// The next revision it is to be told of.
    next: i64,
}

impl Watcher {
    pub(super) fn open(id: u64, now: Time, request: WatchRequest, random: &mut Random) -> Self {
        Self {
            watch: Watch {
                id,
                process: 1_000_000 + u32::try_from(id).unwrap_or_default(),
                opened: now,
                request,
                ..Watch::default()
            },
            waiting: Vec::new(),
            batch: random.between(1, BATCH_MAX),
            left: random.between(1, 40),
            next: 0,
        }
    }

    pub(super) fn over(&self) -> bool {
        self.left == 0
    }

    /// Is created when the store is at a revision, and is told what was before.
    pub(super) fn catch_up(
        &mut self,
        now: Time,
        revision: i64,
        compacted: i64,
        log: &[Vec<Event>],
    ) {
        self.watch.told.push((now, Told::Created { revision }));
        self.next = match self.watch.request.revision {
            0 => revision + 1,
            from => from,
        };
        if self.next < compacted {
            let revision = compacted;
            self.watch.told.push((now, Told::Compacted { revision }));
            self.left = 0;
            return;
        }
        let first = usize::try_from(self.next - 2).unwrap_or_default();
        let past: Vec<_> = log.iter().skip(first).flatten().cloned().collect();
        let past: Vec<_> = past.into_iter().filter(|event| self.asks(event)).collect();
        if !past.is_empty() {
            self.watch.told.push((
                now,
                Told::Events {
                    revision,
                    events: past,
                    fragment: false,
                },
            ));
        }
    }

    fn asks(&self, event: &Event) -> bool {
        let request = &self.watch.request;
        event.kv.modified >= self.next && within(&event.kv.key, &request.key, &request.end)
    }

    pub(super) fn tell(&mut self, now: Time, revision: i64, events: &[Event], random: &mut Random) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let asked: Vec<_> = events.iter().filter(|e| self.asks(e)).cloned().collect();
        self.waiting.extend(asked);
        self.batch = self.batch.saturating_sub(1);
        if self.batch == 0 {
            self.flush(now, revision);
            self.batch = random.between(1, BATCH_MAX);
            if random.below(3) == 0 && revision >= self.next {
                self.watch.told.push((now, Told::Progress { revision }));
            }
        }
    }

    fn flush(&mut self, now: Time, revision: i64) {
        let events = std::mem::take(&mut self.waiting);
        if !events.is_empty() {
            let told = Told::Events {
                revision,
                events,
                fragment: false,
            };
            self.watch.told.push((now, told));
        }
    }

    pub(super) fn end(&mut self, now: Time, revision: i64, random: &mut Random) {
        if random.below(2) == 0 && self.left > 0 {
            self.flush(now, revision);
        }
        self.watch.told.push((now, Told::Lost));
    }
}
