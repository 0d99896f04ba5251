//! The hub in a storm: writes, a feed that breaks, repeats, lies and loses its
//! place, compaction, stores put back from a backup, clients that read slowly or
//! not at all, and memory that runs out; against a naive store that keeps its
//! whole history. Each seed is one run, the same every time.

mod client;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use client::Client;
use store::Store;

use crate::model::{NAMES, SELECTORS, object, selector};
use crate::{
    Audit, BUDGET_MAX, Bookmarks, Change, Config, Hub, LATE_MIN, Laggards, Limits, Line, Round,
    Start, WatchSpec, WatcherId,
};

const WINDOW: (usize, usize) = (8, 32);
const LIMITS: Limits = Limits {
    queue: 4,
    held_bytes: 32_000,
};
/// How many steps one run has.
const RUN: u64 = 400;
/// How many steps there are unless more are asked for.
const STEPS: u64 = 60_000;
/// The most clients at once.
const CLIENTS: usize = 12;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

/// How often something that is rare was seen, so that a storm that has become
/// a calm is noticed.
#[derive(Debug, Default)]
struct Seen {
    shown: u64,
    cut: u64,
    severed: u64,
    lost: u64,
    resumed: u64,
    too_old: u64,
    compacted: u64,
    overtaken: u64,
    differed: u64,
    bookmarks: u64,
    marks: u64,
    past: u64,
}

struct Storm {
    dice: Dice,
    now: Duration,
    store: Store,
    hub: Hub,
    round: Round,
    laggards: Laggards,
    /// Since when lines are late, by what they themselves said.
    late: BTreeMap<WatcherId, (Duration, Arc<Line>)>,
    clients: BTreeMap<WatcherId, Client>,
    /// The next entry of the store's history that the feed is told.
    at: usize,
    listed_at: u64,
    /// Progress was reported that was not true; nothing can be expected until
    /// the state is loaded anew.
    deceived: bool,
    /// What dispatched events were encoded to.
    frames: BTreeMap<(u64, Arc<str>, u8), Bytes>,
    seen: Seen,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let config = Config {
            index_field: Some("spec.nodeName"),
            window: WINDOW,
        };
        let now = Duration::from_secs(1);
        Self {
            dice: Dice(seed),
            now,
            store: Store::new(),
            hub: Hub::new(config, LIMITS),
            round: Round::default(),
            laggards: Laggards::new(now),
            late: BTreeMap::new(),
            clients: BTreeMap::new(),
            at: 0,
            listed_at: 0,
            deceived: false,
            frames: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    fn step(&mut self) {
        match self.dice.roll(100) {
            0..19 => self.write(),
            19..21 => self.store.revision += 1 + self.dice.roll(3),
            21..39 => self.deliver(),
            39..46 => self.progress(),
            46..55 => self.begin(),
            55..86 => self.read_some(),
            86 => self.leave(),
            87..89 => self.pass_time(),
            89..92 => self.past(),
            92..94 => self.break_stream(),
            94 => self.compact(),
            95..98 => self.audit(),
            98 if self.dice.one_in(4) => self.restore(),
            _ => self.load(),
        }
        self.check();
    }

    fn write(&mut self) {
        let changes = 1 + self.dice.roll(2);
        let first = self.dice.roll(NAMES.len() as u64) as usize;
        let mut what = Vec::new();
        for n in 0..changes as usize {
            let at = (first + n) % NAMES.len();
            let (label, node) = (self.dice.roll(3) as u8, self.dice.roll(3) as u8);
            what.push((at, (!self.dice.one_in(4)).then_some((label, node))));
        }
        let revision = self.store.revision + 1;
        let what: Vec<_> = what
            .into_iter()
            .map(|(at, to)| (at, to.map(|(l, n)| object(at, l, n, revision))))
            .collect();
        self.store.write(what);
    }

    /// Tells the feed some of what happened, by whole revisions.
    fn deliver(&mut self) {
        if !self.hub.cacher.is_ready() {
            return self.load();
        }
        let mut end = self.at;
        for _ in 0..=self.dice.roll(6) {
            end = self.store.end_of_revision(end);
        }
        let changes: Vec<Change> = self.store.history[self.at..end]
            .iter()
            .map(|e| Change {
                key: e.key.clone(),
                revision: e.revision,
                object: e.now.clone(),
                received: self.now,
            })
            .collect();
        self.at = end;
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let round = &mut self.round;
            if let Err(overtaken) = self.hub.take_in(&mut changes, self.now, round) {
                assert!(self.deceived, "{overtaken}");
                self.seen.overtaken += 1;
                return self.lose();
            }
            // Nobody waits until it is sent.
            match self.dice.roll(8) {
                0 => self.begin(),
                1 => self.leave(),
                2 | 3 => self.read_some(),
                4 => self.past(),
                _ => {}
            }
            self.send();
        }
    }

    /// Sends what was taken in, and does what the driver does about who is late,
    /// clients reading meanwhile or not.
    fn send(&mut self) {
        let sent = self.round.send();
        for (id, line) in &sent.late {
            self.late.insert(*id, (self.now, line.clone()));
        }
        if !sent.late.is_empty() {
            self.laggards.add(sent.late, self.now);
        }
        if self.dice.one_in(4) {
            self.now += Duration::from_millis(self.dice.roll(900));
            self.read_some();
        }
        if self.dice.one_in(2) || self.laggards.due().is_some_and(|due| due <= self.now) {
            self.judge();
        }
    }

    fn judge(&mut self) {
        self.late.retain(|_, (_, line)| line.is_late());
        for id in self.laggards.judge(self.now) {
            let since = self.late.remove(&id).map(|(since, _)| since);
            assert!(since.is_none_or(|since| self.now >= since + LATE_MIN));
            if !self.hub.cut(id) {
                continue;
            }
            assert!(since.is_some(), "{id} was not late");
            self.seen.cut += 1;
            if let Some(client) = self.clients.get_mut(&id) {
                client.cut = true;
            }
        }
        // Who is late for the longest has no more time than there is.
        let most = BUDGET_MAX.max(LATE_MIN);
        let in_time = |(since, _): &(Duration, Arc<Line>)| self.now < *since + most;
        assert!(self.late.values().all(in_time));
        assert!(self.laggards.due().is_some() || self.late.is_empty());
        assert!(self.laggards.due().is_none_or(|due| due > self.now));
    }

    /// Progress comes when all was told: now, or late, or twice. Rarely it comes
    /// too early, as from stores that are not to be relied on.
    fn progress(&mut self) {
        if !self.hub.cacher.is_ready() {
            return;
        }
        let told = self.at == self.store.history.len();
        let revision = match (told, self.dice.roll(60)) {
            (true, 0..40) => self.store.revision,
            (false, 0) => {
                let known = self.store.first_after(self.hub.cacher.revision());
                self.deceived |= known < self.store.history.len();
                self.store.revision
            }
            _ => self.hub.cacher.revision().saturating_sub(self.dice.roll(3)),
        };
        self.hub.cacher.progress(revision);
        if self.deceived && self.dice.one_in(2) {
            // Resumed after the lie, the stream never tells what came before.
            self.break_stream();
        }
    }

    fn begin(&mut self) {
        if !self.hub.cacher.is_ready() || self.clients.len() >= CLIENTS {
            return;
        }
        let revision = self.hub.cacher.revision();
        let start = match self.dice.roll(8) {
            0..3 => Start::State,
            3 => Start::Now,
            4 => Start::After(revision + self.dice.roll(4)),
            _ => Start::After(revision.saturating_sub(self.dice.roll(20))),
        };
        let n = self.dice.roll(u64::from(SELECTORS)) as u8;
        let marked = start == Start::State && self.dice.one_in(2);
        let patience = 1 + self.dice.roll(4);
        if let Some(client) = self.start(n, start, marked) {
            let (id, mut client) = client;
            client.patience = patience;
            self.clients.insert(id, client);
        }
    }

    fn start(&mut self, n: u8, start: Start, marked: bool) -> Option<(WatcherId, Client)> {
        let spec = WatchSpec {
            selector: selector(n),
            start,
            bookmarks: (marked || self.dice.one_in(2)).then_some(Bookmarks {
                every: Duration::from_secs(20),
                end: Some(self.now + Duration::from_secs(30)),
            }),
        };
        let (oldest, revision) = (self.hub.cacher.oldest(), self.hub.cacher.revision());
        let remembers = self.store.count_after(self.listed_at, revision) <= WINDOW.0;
        assert!(self.deceived || !remembers || oldest == self.listed_at);
        match (self.hub.watch(spec, marked, self.now), start) {
            (Ok((id, line)), _) => {
                let mut client = Client::new(n, line);
                client.began = revision;
                match start {
                    Start::State => client.expect_state(&self.store, revision, marked),
                    Start::Now => client.expect_after(&self.store, revision),
                    Start::After(n) => {
                        assert!(n >= oldest);
                        client.expect_after(&self.store, n);
                    }
                }
                Some((id, client))
            }
            (Err(e), Start::After(n)) => {
                assert!(n < oldest && e.oldest == oldest && e.asked == n, "{e}");
                self.seen.too_old += 1;
                None
            }
            (Err(e), _) => panic!("{start:?}: {e}"),
        }
    }

    fn read_some(&mut self) {
        let count = self.clients.len() as u64;
        if count == 0 {
            return;
        }
        let n = self.dice.roll(count) as usize;
        let Some(id) = self.clients.keys().nth(n).copied() else {
            return;
        };
        // Some hardly ever read.
        let patience = self.clients[&id].patience;
        if self.dice.one_in(patience) {
            let count = 1 + self.dice.roll(12) as usize;
            self.read(id, count);
        }
    }

    /// Lets a client read, and go on elsewhere if it was cut off.
    fn read(&mut self, id: WatcherId, count: usize) {
        for _ in 0..count {
            let Some(client) = self.clients.get_mut(&id) else {
                return;
            };
            let shown = client.read(&self.store, self.deceived, &mut self.seen);
            if let Some((event, event_type)) = &shown.event {
                // What was dispatched is encoded once for all.
                let frame = event.json_frame(*event_type);
                let kept = event.shown(*event_type);
                let key = format!("{}/{}", kept.meta.namespace, kept.meta.name).into();
                let key = (event.revision, key, *event_type as u8);
                if !event.received.is_zero() {
                    let first = self.frames.entry(key).or_insert_with(|| frame.clone());
                    assert_eq!(first.as_ptr(), frame.as_ptr());
                }
            }
            if shown.ended {
                let client = self.clients.remove(&id).expect("it has just read");
                self.unwatch(id);
                self.resume(client);
                return;
            }
        }
    }

    /// A client that was cut off goes on after the last it saw, and misses
    /// nothing.
    fn resume(&mut self, client: Client) {
        let Some(after) = client.resumes_after() else {
            return;
        };
        if !self.hub.cacher.is_ready() || self.clients.len() >= CLIENTS {
            return;
        }
        if let Some((id, mut again)) = self.start(client.selector, Start::After(after), false) {
            // What it must see is what it had still to see.
            if !self.deceived {
                again.go_on(&client, &self.store);
            }
            self.seen.resumed += 1;
            self.clients.insert(id, again);
        }
    }

    fn leave(&mut self) {
        if let Some(id) = self.clients.keys().next().copied() {
            self.clients.remove(&id);
            self.unwatch(id);
        }
    }

    fn unwatch(&mut self, id: WatcherId) {
        if let Some(line) = self.hub.unwatch(id) {
            line.sever();
        }
    }

    fn pass_time(&mut self) {
        self.now += Duration::from_secs(self.dice.roll(60));
        self.judge();
        self.hub.bookmarks(self.now);
        let next = self.hub.cacher.next_bookmark();
        assert!(next.is_none_or(|due| due > self.now));
        let severed = self.hub.tidy();
        self.seen.severed += severed;
        assert!(!self.hub.is_over(), "{}", self.hub.cacher.held().bytes());
        if severed > 0 {
            // Which, their lines say.
            for client in self.clients.values_mut() {
                client.may_be_severed = true;
            }
        }
    }

    /// Reads a past state, as a list at an exact version does.
    fn past(&mut self) {
        let revision = self.hub.cacher.revision();
        let asked = revision.saturating_sub(self.dice.roll(24));
        if !self.hub.cacher.is_ready() {
            return;
        }
        match self.hub.cacher.snapshot_at(asked) {
            Ok(snapshot) => {
                assert!(asked >= self.store.told_compacted, "{asked} was compacted");
                self.seen.past += 1;
                if !self.deceived {
                    self.store.same(asked, snapshot.from_key(""));
                }
            }
            Err(e) => assert!(asked < e.oldest),
        }
    }

    /// The stream is lost, and resumed after what is known; it may repeat some.
    fn break_stream(&mut self) {
        if !self.hub.cacher.is_ready() {
            return;
        }
        let known = self.hub.cacher.revision();
        if known + 1 < self.store.compacted {
            return self.lose();
        }
        self.at = self.store.first_after(known);
        if self.dice.one_in(3) {
            self.at = self
                .store
                .first_after(known.saturating_sub(self.dice.roll(5)));
            self.at = self.at.min(self.store.first_after(known));
        }
    }

    fn compact(&mut self) {
        let revision = self.store.revision.saturating_sub(self.dice.roll(10));
        self.store.compacted = self.store.compacted.max(revision);
        if self.dice.one_in(2) && self.hub.cacher.is_ready() {
            let told = self.store.compacted.min(self.hub.cacher.revision());
            self.store.told_compacted = self.store.told_compacted.max(told);
            self.hub.cacher.compacted(told);
            self.seen.compacted += 1;
        }
    }

    /// Compares cache and store as the driver does.
    fn audit(&mut self) {
        if !self.hub.cacher.is_ready() || self.hub.cacher.revision() < self.store.compacted {
            return;
        }
        let mut audit = Audit::new(self.hub.cacher.snapshot());
        let revision = audit.revision();
        for (key, object) in self.store.state_at(revision) {
            audit.stored(&key, object.resource_version.0);
        }
        let verdict = audit.finish();
        assert_eq!(
            verdict.difference.is_none(),
            verdict.cached == verdict.stored
        );
        self.hub
            .cacher
            .trust_snapshots(verdict.difference.is_none());
        if let Some(difference) = verdict.difference {
            assert!(self.deceived, "{difference:?}");
            self.seen.differed += 1;
            self.lose();
        } else if self.at == self.store.first_after(revision) {
            // Whoever was deceived and is right again was lucky, and whoever
            // waits for the rest will be told.
            let state = self.hub.cacher.snapshot();
            self.store.same(revision, state.from_key(""));
        }
    }

    /// The store is put back to what it was.
    fn restore(&mut self) {
        let to = self.store.revision.saturating_sub(self.dice.roll(12));
        self.store.restore(to.max(1));
        self.lose();
        self.load();
    }

    fn lose(&mut self) {
        self.hub.lose(self.now);
        for client in self.clients.values_mut() {
            client.lost = true;
        }
        assert!(!self.hub.cacher.is_ready());
    }

    fn load(&mut self) {
        if self.hub.cacher.is_ready() {
            return;
        }
        let generation = self.hub.cacher.generation();
        let revision = self.store.revision;
        self.hub
            .reset(self.store.state_at(revision), revision, self.now);
        assert_eq!(self.hub.cacher.generation(), generation + 1);
        assert!(self.hub.cacher.is_ready());
        self.at = self.store.history.len();
        self.listed_at = revision;
        self.store.told_compacted = 0;
        self.deceived = false;
        self.frames.clear();
    }

    /// What holds after every step: the state is what the store's was at the
    /// revision that the cache says it has reached.
    fn check(&mut self) {
        if self.hub.cacher.is_ready() && !self.deceived {
            let state = self.hub.cacher.snapshot();
            self.store.same(state.revision, state.from_key(""));
        }
        if self.frames.len() > 256 {
            self.frames.clear();
        }
    }
}

fn run(steps: u64) -> Seen {
    let mut seen = Seen::default();
    for seed in 0..steps.div_ceil(RUN) {
        let mut storm = Storm::new(seed);
        storm.seen = seen;
        for _ in 0..RUN {
            storm.step();
        }
        seen = storm.seen;
    }
    println!("{steps} steps: {seen:?}");
    seen
}

/// `KEELSON_STORM_STEPS=5000000 cargo test -p watchcache storm -- --nocapture`
#[test]
fn the_promises_hold_in_a_storm() {
    #[allow(
        clippy::disallowed_methods,
        reason = "how long a test runs is asked for"
    )]
    let asked = std::env::var("KEELSON_STORM_STEPS");
    let steps = asked.map_or(STEPS, |n| n.parse().expect("a number of steps"));
    let s = run(steps.max(STEPS));
    assert!(s.shown > 10_000 && s.bookmarks > 100 && s.marks > 100);
    assert!(s.cut > 100 && s.severed > 50 && s.lost > 100 && s.resumed > 100);
    assert!(s.past > 100 && s.too_old > 100 && s.compacted > 100);
    assert!(s.overtaken > 5 && s.differed > 2);
}
