//! What all clients of a run share: the members, the record, the pace.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use checkers::history::{About, History, Record, Time, WatchOpen, WatchRequest};
use tonic::transport::{Channel, Endpoint};

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// What all clients of a run share. They run on one thread.
pub(super) struct World {
    started: Instant,
    history: RefCell<History>,
    file: RefCell<BufWriter<File>>,
    /// Whether the file could not be written; said once, at the end.
    lost: RefCell<Option<String>>,
    /// The members by number; one that was removed has none.
    members: RefCell<BTreeMap<usize, Channel>>,
    /// How far the watch of everything on each member is.
    seen: RefCell<BTreeMap<usize, i64>>,
    /// Newest revision anybody was told of.
    newest: Cell<i64>,
    next_process: Cell<u32>,
    next_watch: Cell<u64>,
    counters: RefCell<BTreeMap<String, u64>>,
    stop: Cell<bool>,
    /// Whether the nemesis that compacts is at work.
    pub(super) compacting: Cell<bool>,
    /// Makes less of a value before it is kept, by its key.
    pub(super) digest: fn(&[u8], Bytes) -> Bytes,
    /// When the next request may begin, and how far apart two are.
    slot: Cell<Duration>,
    every: Duration,
    /// Requests after which the run is over; zero is never.
    ops_max: usize,
    ops: Cell<usize>,
}

impl World {
    /// Prepares the record of a run in a file.
    pub(super) fn new(
        about: About,
        file: &Path,
        rate: u32,
        ops_max: usize,
    ) -> std::io::Result<Self> {
        let world = Self {
            started: Instant::now(),
            history: RefCell::default(),
            file: RefCell::new(BufWriter::new(File::create(file)?)),
            lost: RefCell::default(),
            members: RefCell::default(),
            seen: RefCell::default(),
            newest: Cell::new(1),
            next_process: Cell::new(0),
            next_watch: Cell::new(0),
            counters: RefCell::default(),
            stop: Cell::new(false),
            compacting: Cell::new(false),
            digest: |_, value| value,
            slot: Cell::new(Duration::ZERO),
            every: match rate {
                0 => Duration::ZERO,
                rate => Duration::from_secs(1) / rate,
            },
            ops_max,
            ops: Cell::new(0),
        };
        world.record(Record::About(about));
        Ok(world)
    }

    /// Returns the time of the run.
    pub(super) fn now(&self) -> Time {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(Time::MAX)
    }

    /// Returns when the run began.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// Writes something down, in memory and in the file.
    pub(super) fn record(&self, record: Record) {
        if let Err(error) = record.write(&mut *self.file.borrow_mut()) {
            self.lost
                .borrow_mut()
                .get_or_insert_with(|| error.to_string());
        }
        if matches!(record, Record::Op(_)) {
            self.ops.set(self.ops.get() + 1);
        }
        if let Err(error) = self.history.borrow_mut().push(record) {
            self.lost
                .borrow_mut()
                .get_or_insert_with(|| error.to_string());
        }
    }

    /// Returns how many requests were made.
    pub(super) fn ops(&self) -> usize {
        self.ops.get()
    }

    /// Ends the record, and returns it.
    pub(super) fn finish(&self) -> anyhow::Result<History> {
        self.file.borrow_mut().flush()?;
        if let Some(why) = self.lost.borrow_mut().take() {
            anyhow::bail!("the history was not written: {why}");
        }
        Ok(self.history.take())
    }

    /// Tells clients where the members are now.
    pub(super) fn follow(&self, urls: &[(usize, String)]) {
        let mut members = self.members.borrow_mut();
        members.retain(|at, _| urls.iter().any(|(new, _)| new == at));
        self.seen
            .borrow_mut()
            .retain(|at, _| urls.iter().any(|(new, _)| new == at));
        for (at, url) in urls {
            let connect = || {
                Endpoint::from_shared(url.clone())
                    .expect("the URL of a member is one")
                    .connect_timeout(CONNECT_PATIENCE)
                    .tcp_nodelay(true)
                    .http2_keep_alive_interval(Duration::from_secs(5))
                    .keep_alive_timeout(Duration::from_secs(5))
                    .connect_lazy()
            };
            members.entry(*at).or_insert_with(connect);
        }
    }

    /// Returns the numbers of the members.
    pub(super) fn members(&self) -> Vec<usize> {
        self.members.borrow().keys().copied().collect()
    }

    /// Returns the connection to a member, unless it was removed.
    pub(super) fn channel(&self, at: usize) -> Option<Channel> {
        self.members.borrow().get(&at).cloned()
    }

    /// Returns a number nobody had before.
    pub(super) fn process(&self) -> u32 {
        let process = self.next_process.get();
        self.next_process.set(process + 1);
        process
    }

    /// Counts something, and returns how often that was done before.
    pub(super) fn count(&self, what: &str) -> u64 {
        let mut counters = self.counters.borrow_mut();
        let counter = counters.entry(what.to_owned()).or_default();
        *counter += 1;
        *counter - 1
    }

    /// Returns how often something was counted.
    pub(super) fn peek(&self, what: &str) -> u64 {
        self.counters.borrow().get(what).copied().unwrap_or(0)
    }

    /// Notes how new a revision somebody was told.
    pub(super) fn told(&self, revision: i64) {
        self.newest.set(self.newest.get().max(revision));
    }

    /// Returns the newest revision anybody was told.
    pub(super) fn newest(&self) -> i64 {
        self.newest.get()
    }

    /// Notes how far the watch of everything on a member is.
    pub(super) fn saw(&self, at: usize, revision: i64) {
        self.told(revision);
        let mut seen = self.seen.borrow_mut();
        let far = seen.entry(at).or_insert(1);
        *far = revision.max(*far);
    }

    /// Returns up to where all watches of everything are: no more may be compacted, or
    /// nobody could say afterwards what happened.
    pub(super) fn seen_by_all(&self) -> i64 {
        self.seen.borrow().values().copied().min().unwrap_or(1)
    }

    /// Returns which members' watches of everything are not there yet.
    pub(super) fn behind(&self, revision: i64) -> Vec<usize> {
        let seen = self.seen.borrow();
        let behind = |at: &usize| seen.get(at).is_none_or(|far| *far < revision);
        self.members().into_iter().filter(behind).collect()
    }

    /// Writes down that a watch begins, and returns its number.
    pub(super) fn open(
        &self,
        process: u32,
        member: usize,
        request: &WatchRequest,
        whole: bool,
    ) -> u64 {
        let id = self.next_watch.get();
        self.next_watch.set(id + 1);
        self.record(Record::Open(WatchOpen {
            id,
            process,
            member: u8::try_from(member).unwrap_or(u8::MAX),
            user: None,
            at: self.now(),
            request: request.clone(),
            whole,
        }));
        id
    }

    /// Waits for this request's turn.
    pub(super) async fn pace(&self) {
        if self.every.is_zero() {
            return tokio::task::yield_now().await;
        }
        let now = self.started.elapsed();
        let slot = self.slot.get().max(now);
        self.slot.set(slot + self.every);
        tokio::time::sleep(slot - now).await;
    }

    /// Asks all clients to come to an end.
    pub(super) fn stop(&self) {
        self.stop.set(true);
    }

    /// Tells whether clients are to come to an end.
    pub(super) fn stopped(&self) -> bool {
        self.stop.get()
    }

    /// Tells whether enough was asked.
    pub(super) fn enough(&self) -> bool {
        self.ops_max > 0 && self.ops() >= self.ops_max
    }
}
