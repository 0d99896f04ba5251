//! Clients that write all the time, each noting what it asked for, when, and
//! what it was told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::harness::until;
use crate::history::{Ledger, Write};
use crate::members::Cluster;
use faults::client::{Client, runtime};

/// How long a writer waits for an answer before it tries another member.
const WRITE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a probe waits; it stands for nobody who would go elsewhere.
const PROBE_PATIENCE: Duration = Duration::from_secs(10);
/// How often every member is probed with a write.
const PROBE_EVERY: Duration = Duration::from_millis(25);
/// The pause of a writer whose write failed.
const PAUSE: Duration = Duration::from_millis(20);
/// Every so many writes a writer reads its key at another member.
const READ_EVERY: u64 = 4;
/// How many writers share a connection.
const WRITERS_PER_CONNECTION: usize = 20;

/// What kind of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// How many write at the same time.
    pub(crate) writers: usize,
    /// How long each rests between two writes.
    pub(crate) rest: Duration,
    /// How many bytes each value has in front of what tells it from others.
    pub(crate) padding: usize,
}

/// The members as some writers reach them, over connections of their own.
type Members = Arc<RwLock<Vec<Client>>>;

/// Running writers and probes.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
    groups: Vec<Members>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Load {
    /// Starts writers over all members that run now.
    pub(crate) fn start(cluster: &Cluster, shape: Shape) -> Self {
        let groups = shape.writers.div_ceil(WRITERS_PER_CONNECTION);
        let mut load = Self {
            stop: Arc::default(),
            tasks: Vec::new(),
            groups: (0..groups).map(|_| Members::default()).collect(),
            ledger: Arc::default(),
        };
        load.follow(cluster);
        for id in 0..shape.writers {
            let writer = Writer {
                id,
                members: load.groups[id / WRITERS_PER_CONNECTION].clone(),
                shape,
                stop: load.stop.clone(),
                ledger: load.ledger.clone(),
            };
            load.tasks.push(runtime().spawn(writer.run()));
        }
        let probes = probe(
            load.groups[0].clone(),
            load.stop.clone(),
            load.ledger.clone(),
        );
        load.tasks.push(runtime().spawn(probes));
        load.wrote_since(Instant::now());
        load
    }

    /// Goes on with the members that run now, as clients do that ask for the
    /// list of members.
    pub(crate) fn follow(&self, cluster: &Cluster) {
        for group in &self.groups {
            let members = cluster.members.iter().filter(|m| m.is_up());
            *group.write().unwrap() = members.map(|m| Client::new(&m.client_url)).collect();
        }
    }

    /// Waits for the first write that was asked for after a moment and is
    /// acknowledged; returns how long after that moment it was.
    pub(crate) fn wrote_since(&self, moment: Instant) -> Duration {
        until("a write to be acknowledged", || {
            let ledger = self.ledger.lock().unwrap();
            let recent = ledger.writes.iter().filter(|w| w.started >= moment);
            let acknowledged = recent.filter(|w| w.told.is_ok());
            let first = acknowledged.map(|w| w.ended).min();
            first.map(|at| at - moment).ok_or_else(|| "none".to_owned())
        })
    }

    /// Returns how many writes were acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        let ledger = self.ledger.lock().unwrap();
        ledger.writes.iter().filter(|w| w.told.is_ok()).count()
    }

    /// Waits until so many more writes were acknowledged.
    pub(crate) fn write_more(&self, count: usize) {
        let enough = self.acknowledged() + count;
        until("more acknowledged writes", || {
            let so_far = self.acknowledged();
            if so_far >= enough {
                Ok(())
            } else {
                Err(so_far.to_string())
            }
        });
    }

    /// Returns the latencies of the acknowledged writes that a member was asked for in
    /// a span.
    pub(crate) fn latencies(&self, member: usize, from: Instant, to: Instant) -> Vec<Duration> {
        let ledger = self.ledger.lock().unwrap();
        let within = ledger
            .writes
            .iter()
            .filter(|w| w.member == member && w.started >= from && w.ended <= to);
        let mut took: Vec<Duration> = within
            .filter(|w| w.told.is_ok())
            .map(|w| w.ended - w.started)
            .collect();
        took.sort_unstable();
        took
    }

    /// Returns the longest time between two acknowledgements in a span.
    pub(crate) fn longest_silence(&self, from: Instant, to: Instant) -> Duration {
        let ledger = self.ledger.lock().unwrap();
        let told = ledger.writes.iter().filter(|w| w.told.is_ok());
        let mut at: Vec<Instant> = told
            .map(|w| w.ended)
            .filter(|t| (from..to).contains(t))
            .collect();
        at.extend([from, to]);
        at.sort_unstable();
        at.windows(2).map(|w| w[1] - w[0]).max().unwrap_or_default()
    }

    /// Returns what writers were told of writes that ended after a moment and
    /// failed, by writer. A connection that is refused is no answer: every
    /// client library goes on to the next address by itself.
    pub(crate) fn errors_since(&self, moment: Instant) -> BTreeMap<String, Vec<String>> {
        let ledger = self.ledger.lock().unwrap();
        let mut errors: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let ended = ledger.writes.iter().filter(|w| w.ended >= moment);
        for write in ended.filter(|w| w.key.starts_with("writer/")) {
            if let Err(told) = &write.told
                && !told.contains("tcp connect error")
            {
                errors
                    .entry(write.key.clone())
                    .or_default()
                    .push(told.clone());
            }
        }
        errors
    }

    /// Stops, and returns what everybody noted.
    pub(crate) fn finish(self) -> Ledger {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            runtime().block_on(task).unwrap();
        }
        std::mem::take(&mut *self.ledger.lock().unwrap())
    }
}

/// One client with one key of its own, which nobody else writes.
struct Writer {
    id: usize,
    members: Members,
    shape: Shape,
    stop: Arc<AtomicBool>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Writer {
    async fn run(self) {
        let key = format!("writer/{}", self.id);
        let mut at = self.id;
        let mut newest = 0;
        for number in 1_u64.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // Nothing is written twice.
            let value = format!("{}{key} {number}", ".".repeat(self.shape.padding));
            let write = put(self.member(at), &key, value, WRITE_PATIENCE).await;
            let told = write.told.clone();
            self.ledger.lock().unwrap().writes.push(write);
            match told {
                Ok(revision) => {
                    newest = revision;
                    if number % READ_EVERY == 0 {
                        self.read(at + 1, &key, newest).await;
                    }
                    sleep(self.shape.rest).await;
                }
                Err(_) => {
                    at += 1;
                    self.read(at, &key, newest).await;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Chooses a member: its place, and the way to it.
    fn member(&self, at: usize) -> (usize, Client) {
        let members = self.members.read().unwrap();
        let place = at % members.len();
        (place, members[place].clone())
    }

    /// Reads the key, which must not be older than the last acknowledged write.
    /// (It may be another than the last value: one that was given up can still
    /// be carried out later.)
    async fn read(&self, at: usize, key: &str, newest: i64) {
        let found = self.member(at).1.get(key, false, WRITE_PATIENCE).await;
        let Ok(found) = found else { return };
        let mut ledger = self.ledger.lock().unwrap();
        if found.as_ref().map_or(0, |(_, revision)| *revision) < newest {
            let what = format!("{key} at member {at}: {found:?}, written at {newest}");
            ledger.stale.push(what);
        }
        ledger.reads.extend(found);
    }
}

async fn put(
    (member, client): (usize, Client),
    key: &str,
    value: String,
    patience: Duration,
) -> Write {
    let started = Instant::now();
    let told = client.put(key, &value, patience).await;
    Write {
        member,
        key: key.to_owned(),
        value,
        started,
        ended: Instant::now(),
        told: told.map_err(|s| format!("{:?}: {}", s.code(), s.message())),
    }
}

/// Writes to every member at an even pace, whether or not earlier writes were
/// answered: what shows from when on writes are taken again.
async fn probe(members: Members, stop: Arc<AtomicBool>, ledger: Arc<Mutex<Ledger>>) {
    let mut asked = tokio::task::JoinSet::new();
    let mut pace = tokio::time::interval(PROBE_EVERY);
    for number in 1_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let clients = members.read().unwrap().clone();
        for member in clients.into_iter().enumerate() {
            let ledger = ledger.clone();
            asked.spawn(async move {
                let key = format!("probe/{}", member.0);
                let value = format!("{key} {number}");
                let write = put(member, &key, value, PROBE_PATIENCE).await;
                ledger.lock().unwrap().writes.push(write);
            });
        }
        while asked.try_join_next().is_some() {}
        pace.tick().await;
    }
    asked.join_all().await;
}
