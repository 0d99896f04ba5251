//! Makes valid histories: the model is run by many clients at once, each operation
//! taking effect somewhere between its call and its return.
//!
//! What checkers are tested with must itself be right, and is: every answer is the
//! model's, at a moment that really lies within the operation. The same seed gives
//! the same history.

mod clients;
mod random;
mod watchers;

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    history::{
        Blob, Body, Event, Final, History, LeaseId, Op, Outcome, Refusal, Reply, Request, Time,
        Told, WatchRequest,
    },
    model::Store,
    witness::is_stale,
};

pub use random::Random;
use watchers::Watcher;

/// Says what kind of history to make.
#[derive(Debug, Clone)]
pub struct Shape {
    /// How many clients there are at any time.
    pub clients: u32,
    /// How many operations.
    pub ops: usize,
    /// How many keys.
    pub keys: u64,
    /// Of a thousand operations, how many have an unknown outcome.
    pub unknown: u64,
    /// Only reads, writes and compare-and-swap of single keys.
    pub registers: bool,
    /// How many clients' watches there are at any time.
    pub watchers: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            clients: 5,
            ops: 100,
            keys: 3,
            unknown: 50,
            registers: false,
            watchers: 2,
        }
    }
}

/// How many past states a lagging member may answer from.
const LAG_MAX: i64 = 5;

/// Times are drawn in milliseconds.
const UNIT: Time = 1_000_000;

/// How long leases are granted for.
const LEASE_SECONDS: u64 = 2;

/// The members that answer.
const MEMBERS: u8 = 3;

/// Makes a history.
pub fn history(seed: u64, shape: &Shape) -> History {
    let mut world = World::new(seed, shape);
    while let Some(Reverse((now, _, what))) = world.todo.pop() {
        world.now = now;
        match what {
            What::Ask(client) => world.ask(client),
            What::Happen(at) => world.happen(at),
            What::Answer(client, at) => world.answer(client, at),
        }
    }
    world.finish()
}

/// Is what is to be done next; the order of variants does not matter, each moment
/// has its own number.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Ask(u32),
    Happen(usize),
    Answer(u32, usize),
}

struct World<'a> {
    shape: &'a Shape,
    random: Random,
    now: Time,
    todo: BinaryHeap<Reverse<(Time, u64, What)>>,
    moments: u64,
    store: Store,
    /// The process that each client is now.
    processes: Vec<u32>,
    next_process: u32,
    /// Operations; an answer that has not been given is `None`.
    ops: Vec<(Op, Option<Outcome>)>,
    /// Values are used once.
    values: u64,
    /// Leases, and the time before which they do not end by themselves.
    leases: Vec<(LeaseId, Time)>,
    /// What each revision changed, from revision 2 on.
    log: Vec<Vec<Event>>,
    compacted: i64,
    watchers: Vec<Watcher>,
    done: History,
}

impl<'a> World<'a> {
    fn new(seed: u64, shape: &'a Shape) -> Self {
        let mut world = World {
            shape,
            random: Random::new(seed),
            now: 0,
            todo: BinaryHeap::new(),
            moments: 0,
            store: Store::new(),
            processes: (0..shape.clients).collect(),
            next_process: shape.clients,
            ops: Vec::with_capacity(shape.ops),
            values: 0,
            leases: Vec::new(),
            log: Vec::new(),
            compacted: 0,
            watchers: Vec::new(),
            done: History::default(),
        };
        for client in 0..shape.clients {
            world.later(1 + u64::from(client), What::Ask(client));
        }
        world
    }

    fn later(&mut self, after: Time, what: What) {
        self.moments += 1;
        let at = self.now + after * UNIT;
        self.todo.push(Reverse((at, self.moments, what)));
    }

    fn ask(&mut self, client: u32) {
        if self.ops.len() >= self.shape.ops {
            return;
        }
        let request = self.request();
        let at = self.ops.len();
        let process = self.processes[client as usize];
        let member = self.random.below(u64::from(MEMBERS)) as u8;
        let until = self.random.between(2, 1000);
        let unknown = self.random.below(1000) < self.shape.unknown;
        self.ops.push((
            Op {
                process,
                member,
                user: None,
                call: self.now,
                ret: self.now + until * UNIT,
                request,
                outcome: Outcome::Info("timeout".into()),
            },
            None,
        ));
        if unknown {
            // It happens late, or never.
            if self.random.below(2) == 0 {
                let late = self.random.between(1, 4 * until);
                self.later(late, What::Happen(at));
            }
        } else {
            let moment = self.random.between(1, until - 1);
            self.later(moment, What::Happen(at));
        }
        self.later(until, What::Answer(client, at));
        if unknown {
            // The answer, should it come in time, is lost.
            self.ops[at].1 = Some(Outcome::Info("timeout".into()));
        }
    }

    fn happen(&mut self, at: usize) {
        let request = self.ops[at].0.request.clone();
        let lag = self.random.below(LAG_MAX as u64 + 1) as i64;
        let revision = self.store.revision();
        let seen = (revision - lag).max(1);
        let stale = match &request {
            Request::Range(range) if is_stale(&request) && range.revision == 0 => {
                let mut range = range.clone();
                range.revision = seen;
                Some(Request::Range(range))
            }
            _ => None,
        };
        // The model refuses what was compacted; a member that lags does not know yet.
        let outcome = match stale {
            Some(past) if seen >= self.compacted => self.store.apply(&past).map(|applied| Reply {
                revision: seen,
                body: applied.body,
            }),
            _ => {
                let applied = self.store.apply(&request);
                let revision = self.store.revision();
                applied.map(|applied| {
                    self.happened(applied.events);
                    Reply {
                        revision,
                        body: applied.body,
                    }
                })
            }
        };
        self.compacted = self.store.compacted();
        self.keep_lease(&request, &outcome);
        let outcome = outcome.map_or_else(Outcome::Fail, Outcome::Ok);
        self.ops[at].1.get_or_insert(outcome);
    }

    fn keep_lease(&mut self, request: &Request, outcome: &Result<Reply, Refusal>) {
        let Ok(Reply { body, .. }) = outcome else {
            return;
        };
        if let (Request::Grant { .. } | Request::KeepAlive { .. }, Body::Lease { id, ttl: 1.. }) =
            (request, body)
        {
            let until = self.now + LEASE_SECONDS * 1000 * UNIT;
            self.leases.retain(|(other, _)| other != id);
            self.leases.push((*id, until));
        }
    }

    /// Tells the log and the watchers what changed.
    fn happened(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        self.tend_watchers();
        for watcher in &mut self.watchers {
            watcher.tell(self.now, self.store.revision(), &events, &mut self.random);
        }
        self.log.push(events);
    }

    fn answer(&mut self, client: u32, at: usize) {
        let (op, outcome) = &mut self.ops[at];
        if let Some(outcome) = outcome.take() {
            op.outcome = outcome;
        }
        if op.unknown() {
            self.processes[client as usize] = self.next_process;
            self.next_process += 1;
        }
        let pause = self.random.between(1, 200);
        self.later(pause, What::Ask(client));
        self.end_a_lease();
    }

    /// Now and then a lease ends by itself, once its time is over.
    fn end_a_lease(&mut self) {
        let now = self.now;
        let over = self.leases.iter().position(|(_, until)| *until < now);
        let Some(over) = over.filter(|_| self.random.below(10) == 0) else {
            return;
        };
        let (id, _) = self.leases.swap_remove(over);
        if let Ok(applied) = self.store.apply(&Request::Revoke { id }) {
            self.happened(applied.events);
        }
    }

    fn finish(mut self) -> History {
        let mut history = self.done;
        history.about.title = "made by running the model".to_owned();
        let ops = self.ops.into_iter().map(|(op, _)| op);
        history.ops = ops
            .filter(|op| !matches!(op.outcome, Outcome::Fail(Refusal::Other(_))))
            .collect();
        for mut watcher in self.watchers {
            watcher.end(self.now, self.store.revision(), &mut self.random);
            history.watches.push(watcher.watch);
        }
        let end = self.now + UNIT;
        for member in 0..MEMBERS {
            history.log(member, Vec::new());
            let log = history.watches.last_mut().expect("added just now");
            log.request.revision = 1;
            log.request.prev_kv = true;
            for events in &self.log {
                let revision = events[0].kv.modified;
                let told = Told::Events {
                    revision,
                    events: events.clone(),
                    fragment: false,
                };
                log.told.push((end, told));
            }
            let revision = self.store.revision();
            log.told.push((end, Told::Progress { revision }));
            history.finals.push(Final {
                member,
                revision,
                compacted: self.compacted,
                hash: 7,
                answered: true,
            });
        }
        history
    }

    /// Opens watches where there are too few, of the past, the present and the future.
    fn tend_watchers(&mut self) {
        self.watchers.retain_mut(|watcher| {
            let over = watcher.over();
            if over {
                self.done.watches.push(std::mem::take(&mut watcher.watch));
            }
            !over
        });
        if self.watchers.len() < self.shape.watchers {
            // The revision in `self.store` has just been made, and is not in the log.
            let next = self.store.revision();
            let from = match self.random.below(3) {
                0 => 0,
                1 => next + self.random.below(6) as i64,
                _ => (next - self.random.below(20) as i64).max(1),
            };
            let id = self.done.watches.len() as u64 + self.watchers.len() as u64;
            let (key, end) = match self.random.below(2) {
                0 => (self.key(), Blob::EMPTY),
                _ => ("\0".into(), "\0".into()),
            };
            let request = WatchRequest {
                key,
                end,
                revision: from,
                prev_kv: true,
                progress: true,
                ..WatchRequest::default()
            };
            let mut watcher = Watcher::open(id, self.now, request, &mut self.random);
            watcher.catch_up(self.now, next - 1, self.compacted, &self.log);
            self.watchers.push(watcher);
        }
    }
}
