//! Watches in great numbers and from every point of the past: nothing is lost,
//! nothing comes twice, whatever is compacted meanwhile.
//!
//! Histories are random with a fixed seed; a failing one says which.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kvserver::{Handle, WriteBehind};
use mvcc::{CompactRequest, DeleteRangeRequest, PutRequest, RequestOp, TxnRequest};
use proto::etcdserverpb::{self as pb, watch_request::RequestUnion};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::sync::watch;

use crate::{
    store::Store,
    watch::{Client, on},
};

/// One change: revision, key, value (none: deleted), value before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    revision: i64,
    key: String,
    value: Option<String>,
    before: Option<String>,
}

/// Writes at random and remembers.
struct Writer {
    handle: Handle,
    random: StdRng,
    keys: u32,
    now: BTreeMap<String, String>,
    changes: Vec<Change>,
    revision: i64,
}

impl Writer {
    fn new(handle: Handle, seed: u64, keys: u32) -> Self {
        Self {
            handle,
            random: StdRng::seed_from_u64(seed),
            keys,
            now: BTreeMap::new(),
            changes: Vec::new(),
            revision: 1,
        }
    }

    /// Runs one transaction of up to `ops` puts and deletes of different keys.
    async fn write(&mut self, ops: usize) {
        let mut request = TxnRequest::default();
        let mut touched = BTreeSet::new();
        let revision = self.revision + 1;
        let mut changed = false;
        for _ in 0..self.random.random_range(1..=ops) {
            let key = format!("k{:03}", self.random.random_range(0..self.keys));
            if !touched.insert(key.clone()) {
                continue;
            }
            let value = self.random.random_bool(0.75).then(|| {
                let len = self.random.random_range(0..40);
                format!("{revision}{}", "v".repeat(len))
            });
            request.success.push(op(&key, value.as_deref()));
            let before = match &value {
                Some(value) => self.now.insert(key.clone(), value.clone()),
                None => self.now.remove(&key),
            };
            if value.is_some() || before.is_some() {
                changed = true;
                self.changes.push(Change {
                    revision,
                    key,
                    value,
                    before,
                });
            }
        }
        let reply = self.handle.txn(request).await.unwrap();
        self.revision += i64::from(changed);
        assert_eq!(reply.revision, self.revision);
    }

    async fn compact(&self, revision: i64) {
        let physical = false;
        let request = CompactRequest { revision, physical };
        self.handle.compact(request).await.unwrap();
    }
}

fn op(key: &str, value: Option<&str>) -> RequestOp {
    let key = key.to_owned().into();
    match value {
        Some(value) => RequestOp::Put(PutRequest {
            key,
            value: value.to_owned().into(),
            ..Default::default()
        }),
        None => RequestOp::DeleteRange(DeleteRangeRequest {
            key,
            ..Default::default()
        }),
    }
}

fn change(event: pb::WatchResponse) -> impl Iterator<Item = Change> {
    let text = |bytes: bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    event.events.into_iter().map(move |event| {
        let kv = event.kv.unwrap();
        Change {
            revision: kv.mod_revision,
            key: text(kv.key),
            value: (event.r#type == 0).then(|| text(kv.value)),
            before: event.prev_kv.map(|kv| text(kv.value)),
        }
    })
}

fn small(config: &mut kvserver::Config) {
    config.wal_segment_bytes = 256 << 10;
    config.write_behind = WriteBehind {
        bytes: 16 << 10,
        interval: Duration::from_millis(5),
        block_bytes: 2 << 10,
        window_bytes: 8 << 10,
    };
}

/// What a watch of this test asks for.
#[derive(Clone, Debug)]
struct Asked {
    key: String,
    range_end: String,
    start: i64,
}

impl Asked {
    fn wants(&self, change: &Change) -> bool {
        let inside = match self.range_end.as_str() {
            "" => change.key == self.key,
            end => self.key <= change.key && change.key.as_str() < end,
        };
        inside && change.revision >= self.start
    }

    fn create(&self, watch_id: i64) -> RequestUnion {
        RequestUnion::CreateRequest(pb::WatchCreateRequest {
            watch_id,
            prev_kv: true,
            start_revision: self.start,
            ..on(&self.key, &self.range_end)
        })
    }
}

/// Asks for a random range of keys from every revision that can be asked for.
fn ask_from_everywhere(writer: &mut Writer, compacted: i64) -> Vec<Asked> {
    let asked = (compacted..=writer.revision + 1).map(|start| {
        let from = writer.random.random_range(0..writer.keys);
        let range_end = match writer.random.random_range(0..3) {
            0 => String::new(),
            1 => format!("k{:03}", writer.random.random_range(from + 1..=writer.keys)),
            _ => "l".to_owned(),
        };
        let key = format!("k{from:03}");
        Asked {
            key,
            range_end,
            start,
        }
    });
    asked.collect()
}

/// Creates the watches without waiting for their confirmations; ids are from 1.
fn create_all(client: &Client, asked: &[Asked]) {
    let ask = client.ask.clone();
    let requests = (1..).zip(asked).map(|(id, asked)| asked.create(id));
    let requests: Vec<_> = requests.collect();
    tokio::spawn(async move {
        for request in requests {
            let request_union = Some(request);
            ask.send(pb::WatchRequest { request_union }).await.unwrap();
        }
    });
}

/// What each watch must hear of.
fn wanted(writer: &Writer, asked: &[Asked]) -> Vec<Vec<Change>> {
    let of_one = |asked: &Asked| {
        let changes = writer.changes.iter().filter(|change| asked.wants(change));
        changes.cloned().collect()
    };
    asked.iter().map(of_one).collect()
}

/// What each watch heard of.
struct Heard(Vec<Vec<Change>>);

impl Heard {
    fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Takes a reply in.
    fn take(&mut self, reply: pb::WatchResponse) {
        assert!(!reply.canceled && reply.compact_revision == 0, "{reply:?}");
        let revision = reply.header.unwrap().revision;
        let at = usize::try_from(reply.watch_id - 1).unwrap();
        let known = self.0[at].len();
        self.0[at].extend(change(reply));
        assert!(
            self.0[at][known..]
                .iter()
                .all(|change| change.revision <= revision)
        );
    }

    /// Listens until so many changes were heard of.
    async fn listen(&mut self, client: &mut Client, count: usize) {
        while self.count() < count {
            self.take(client.next().await);
        }
        assert_eq!(self.count(), count, "more than happened");
    }
}

async fn replay(seed: u64) {
    let mut store = Store::start_with(small).await;
    let mut writer = Writer::new(store.running().handle.clone(), seed, 12);
    for _ in 0..120 {
        writer.write(4).await;
    }
    let compacted = writer.random.random_range(2..writer.revision / 2);
    writer.compact(compacted).await;
    if seed.is_multiple_of(2) {
        // All of it comes from rows then, nothing from memory.
        store.restart().await;
        writer.handle = store.running().handle.clone();
    }
    let asked = ask_from_everywhere(&mut writer, compacted);
    let mut client = Client::open(&store).await;
    create_all(&client, &asked);
    // Some of it is history, some happens while the watches catch up.
    for _ in 0..20 {
        writer.write(4).await;
    }
    let mut wanted = wanted(&writer, &asked);
    let count = wanted.iter().map(Vec::len).sum();
    let mut heard = Heard(vec![Vec::new(); asked.len()]);
    heard.listen(&mut client, count).await;
    for ((heard, wanted), asked) in heard.0.iter_mut().zip(&mut wanted).zip(&asked) {
        // The pair before a change at the compacted revision is gone.
        for change in heard.iter_mut().chain(wanted.iter_mut()) {
            if change.revision == compacted {
                change.before = None;
            }
        }
        assert_eq!(
            heard, wanted,
            "seed {seed}, compacted {compacted}, {asked:?}"
        );
    }
}

#[tokio::test]
async fn a_watch_opened_at_any_revision_not_compacted_replays_exactly() {
    for seed in 1..=4 {
        replay(seed).await;
    }
}

/// Watches of a test on everything; the others are on one key each.
const WIDE: usize = 8;

/// Returns the last revision that all wide watches heard of.
fn heard_by_wide(heard: &Heard) -> i64 {
    let wide = heard.0.iter().take(WIDE);
    let last = wide.map(|changes| changes.last().map_or(0, |change| change.revision));
    last.min().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_on_one_stream_lose_nothing_under_compaction() {
    const WATCHES: usize = 1_000;
    const WRITES: usize = 1_500;
    /// How far the writer may be ahead: no watch is so slow that compaction, which
    /// follows the writer closely, could cancel it.
    const AHEAD_MAX: i64 = 300;
    let seed = 20_261_129;
    let store = Store::start_with(small).await;
    let mut client = Client::open(&store).await;
    let one = |id: usize| Asked {
        key: format!("k{:03}", id % 500),
        range_end: String::new(),
        start: 0,
    };
    let all = || Asked {
        key: "k".to_owned(),
        range_end: "l".to_owned(),
        start: 0,
    };
    let asked = (0..WATCHES).map(|id| if id < WIDE { all() } else { one(id) });
    let asked: Vec<_> = asked.collect();
    create_all(&client, &asked);
    for id in 1..=WATCHES {
        assert_eq!(client.next().await.watch_id as usize, id);
    }
    let (read, mut reading) = watch::channel(1);
    let mut writer = Writer::new(store.running().handle.clone(), seed, 500);
    let mut writing = tokio::spawn(async move {
        for round in 0..WRITES {
            writer.write(3).await;
            let revision = writer.revision;
            let near = reading.wait_for(|read| revision - read < AHEAD_MAX);
            near.await.unwrap();
            if round % 20 == 19 {
                writer.compact(revision).await;
            }
        }
        writer
    });
    let mut heard = Heard(vec![Vec::new(); WATCHES]);
    let writer = loop {
        tokio::select! {
            writer = &mut writing => break writer.unwrap(),
            reply = client.next() => heard.take(reply),
        }
        read.send_replace(heard_by_wide(&heard));
    };
    let wanted = wanted(&writer, &asked);
    let count = wanted.iter().map(Vec::len).sum();
    heard.listen(&mut client, count).await;
    for ((heard, wanted), asked) in heard.0.iter().zip(&wanted).zip(&asked) {
        assert_eq!(heard, wanted, "seed {seed}, {asked:?}");
    }
}
