//! The hub against the model: every watcher gets exactly what happened to its
//! keys, once, in order, whole revisions at a time, however slow it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use mvcc::watch::{StreamId, WatchCreate, WatchHub, WatchLimits, WatchReply};
use mvcc::*;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::gen_ops::{command, key, range_end};
use crate::model::{Change, inside};
use crate::world::{World, tiny};

#[derive(Debug, Clone)]
enum Op {
    Apply(Command),
    Create(StreamId, WatchCreate),
    Cancel(StreamId, i64),
    Poll(StreamId, usize),
    RequestProgress(StreamId),
    Tick(StreamId),
    Drop(StreamId),
    WriteAndForget,
}

fn create() -> impl Strategy<Value = WatchCreate> {
    let start = prop_oneof![3 => Just(0i64), 3 => 1..40i64];
    let end = prop_oneof![1 => range_end(), 1 => Just(Bytes::from_static(b"\0"))];
    (key(), end, start, any::<[bool; 2]>(), 0..6).prop_map(
        |(key, range_end, start_revision, f, filter)| WatchCreate {
            key,
            range_end,
            start_revision,
            watch_id: 0,
            progress_notify: f[0],
            prev_kv: f[1],
            filter_put: filter == 0,
            filter_delete: filter == 1,
            fragment: false,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let stream = || 0..3u64;
    prop_oneof![
        16 => command().prop_map(Op::Apply),
        4 => (stream(), create()).prop_map(|(s, c)| Op::Create(s, c)),
        1 => (stream(), 0..4i64).prop_map(|(s, id)| Op::Cancel(s, id)),
        6 => (stream(), 1..6usize).prop_map(|(s, max)| Op::Poll(s, max)),
        2 => stream().prop_map(Op::RequestProgress),
        1 => stream().prop_map(Op::Tick),
        1 => stream().prop_map(Op::Drop),
        2 => Just(Op::WriteAndForget),
    ]
}

/// Is what a client knows about one of its watches.
#[derive(Debug)]
struct Client {
    create: WatchCreate,
    /// The first revision it must hear of.
    from: i64,
    confirmed: bool,
    events: Vec<Arc<Event>>,
    ended: bool,
}

struct Hall {
    world: World,
    hub: WatchHub,
    clients: BTreeMap<(StreamId, i64), Client>,
}

impl Hall {
    fn new() -> Self {
        Self {
            world: World::new(tiny()),
            hub: WatchHub::with_limits(
                1,
                WatchLimits {
                    events: 3,
                    bytes: 200,
                },
            ),
            clients: BTreeMap::new(),
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Apply(command) => {
                let applied = self.world.apply(command);
                self.hub
                    .publish(&applied.events, applied.revision, &self.world.machine)
                    .unwrap();
            }
            Op::Create(stream, create) => {
                let id = self.hub.create(stream, create.clone());
                let bad =
                    create.range_end.len() > 1 || create.range_end.first().is_some_and(|b| *b != 0);
                assert_eq!(id == -1, bad && create.key >= create.range_end);
                if id >= 0 {
                    let from = if create.start_revision == 0 {
                        self.world.model.revision + 1
                    } else {
                        create.start_revision
                    };
                    let client = Client {
                        create,
                        from,
                        confirmed: false,
                        events: vec![],
                        ended: false,
                    };
                    assert!(self.clients.insert((stream, id), client).is_none());
                }
            }
            Op::Cancel(stream, id) => {
                // One that compaction ended is known until it is cancelled, as in etcd.
                let known = self.clients.remove(&(stream, id)).is_some();
                assert_eq!(self.hub.cancel(stream, id), known);
            }
            Op::Poll(stream, max) => {
                self.poll(stream, max);
            }
            Op::RequestProgress(stream) => self.hub.request_progress(stream),
            Op::Tick(stream) => {
                self.hub.progress_tick(stream);
            }
            Op::Drop(stream) => {
                self.hub.drop_stream(stream);
                self.clients.retain(|(s, _), _| *s != stream);
            }
            Op::WriteAndForget => {
                self.world.take(usize::MAX);
                self.world.done();
                self.world.compact_all(50);
            }
        }
    }

    fn poll(&mut self, stream: StreamId, max: usize) -> bool {
        let polled = self.hub.poll(stream, &self.world.machine, max).unwrap();
        for reply in polled.replies {
            self.receive(stream, reply);
        }
        polled.more
    }

    fn receive(&mut self, stream: StreamId, reply: WatchReply) {
        let revision = self.world.model.revision;
        if reply.watch_id == -1 {
            if !reply.created {
                assert!(reply.revision <= revision);
                // It speaks of the watches that the client knows to be there.
                for ((s, _), c) in &self.clients {
                    assert!(
                        *s != stream
                            || c.ended
                            || !c.confirmed
                            || self.missing(c, reply.revision).is_none(),
                        "progress overtook events"
                    );
                }
            }
            return;
        }
        let Some(client) = self.clients.get(&(stream, reply.watch_id)) else {
            // A cancellation is confirmed after the client forgot; and a created
            // reply may be on its way for a watch canceled at once.
            assert!(reply.events.is_empty());
            return;
        };
        assert!(!client.ended, "nothing follows the end");
        if reply.created {
            self.clients
                .get_mut(&(stream, reply.watch_id))
                .unwrap()
                .confirmed = true;
            return;
        }
        assert!(client.confirmed, "created comes first");
        if reply.canceled {
            assert_eq!(reply.compact_revision, self.world.model.compacted);
            assert_eq!(reply.revision, 0);
            assert!(
                self.next_from(client) < reply.compact_revision
                    || client.from < reply.compact_revision
            );
            self.clients
                .get_mut(&(stream, reply.watch_id))
                .unwrap()
                .ended = true;
            return;
        }
        if reply.events.is_empty() {
            assert!(client.create.progress_notify);
            assert!(
                self.missing(client, reply.revision).is_none(),
                "progress overtook events"
            );
            return;
        }
        self.check_events(client, &reply);
        self.clients
            .get_mut(&(stream, reply.watch_id))
            .unwrap()
            .events
            .extend(reply.events);
    }

    fn check_events(&self, client: &Client, reply: &WatchReply) {
        let last = reply.events.last().unwrap().kv.mod_revision;
        assert!(reply.revision >= last);
        let wanted: Vec<_> = self.wanted(client).collect();
        let start = client.events.len();
        let end = start + reply.events.len();
        assert!(end <= wanted.len(), "more than happened");
        for (event, change) in reply.events.iter().zip(&wanted[start..end]) {
            assert_eq!(
                (event.kv.mod_revision, &event.kv.key),
                (change.main, &change.key)
            );
            assert_eq!(event.kind == EventKind::Put, change.kv.is_some());
            if let Some(kv) = &change.kv {
                assert_eq!(&event.kv, kv);
            }
            if client.create.prev_kv {
                // A key may be there before its creation: in a transaction that deletes it
                // first.
                let before = match event.is_create() {
                    true => None,
                    false => self.world.model.at(change.main - 1).remove(&change.key),
                };
                let compacted = change.main - 1 < self.world.model.compacted;
                assert!(
                    event.prev_kv() == before.as_ref() || (compacted && event.prev_kv().is_none())
                );
            }
        }
        let split = wanted.get(end).is_some_and(|next| next.main == last);
        assert!(!split, "a revision is split");
        // The header promises no more than was delivered.
        let behind = wanted
            .get(end)
            .is_some_and(|next| next.main <= reply.revision);
        assert!(!behind, "the header runs ahead of the events");
    }

    fn wanted<'a>(&'a self, client: &'a Client) -> impl Iterator<Item = &'a Change> {
        let c = &client.create;
        self.world.model.changes.iter().filter(move |change| {
            let kind = if change.kv.is_some() {
                !c.filter_put
            } else {
                !c.filter_delete
            };
            kind && change.main >= client.from && inside(&change.key, &c.key, &c.range_end)
        })
    }

    /// Returns the first wanted change up to a revision that was not delivered.
    fn missing<'a>(&'a self, client: &'a Client, revision: i64) -> Option<&'a Change> {
        self.wanted(client)
            .nth(client.events.len())
            .filter(|change| change.main <= revision)
    }

    fn next_from(&self, client: &Client) -> i64 {
        self.wanted(client)
            .nth(client.events.len())
            .map_or(i64::MAX, |c| c.main)
    }

    /// Polls until nobody has anything to say; then everybody knows everything.
    fn settle(&mut self) {
        for stream in 0..3 {
            let mut rounds = 0;
            while self.poll(stream, 2) {
                rounds += 1;
                assert!(rounds < 10_000, "never done");
            }
        }
        assert_eq!(self.hub.unsynced_count(), 0);
        for client in self.clients.values() {
            assert!(client.confirmed);
            assert!(
                client.ended || self.missing(client, i64::MAX).is_none(),
                "lost: {client:?}"
            );
        }
        let live = self.clients.values().filter(|c| !c.ended).count();
        assert_eq!(self.hub.watcher_count(), live);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_watcher_hears_everything_once(ops in vec(op(), 1..150)) {
        let mut hall = Hall::new();
        for op in ops {
            hall.step(op);
        }
        hall.settle();
    }
}

fn put(world: &mut World, hub: &mut WatchHub, key: &str, value: &str) -> Vec<StreamId> {
    let (key, value) = (Bytes::from(key.to_owned()), Bytes::from(value.to_owned()));
    let applied = world.apply(Command::Put(PutRequest {
        key,
        value,
        ..PutRequest::default()
    }));
    hub.publish(&applied.events, applied.revision, &world.machine)
        .unwrap()
}

#[test]
fn an_event_is_one_allocation_for_all_watchers() {
    let mut world = World::new(tiny());
    let mut hub = WatchHub::new(1);
    for stream in 0..10 {
        let watch = WatchCreate {
            key: "a".into(),
            range_end: "b".into(),
            prev_kv: true,
            ..WatchCreate::default()
        };
        hub.create(stream, watch);
    }
    let told = put(&mut world, &mut hub, "a1", "x");
    assert_eq!(told, (0..10).collect::<Vec<_>>());
    let again = put(&mut world, &mut hub, "a1", "y");
    assert!(again.is_empty(), "nobody has read the first yet");
    let mut seen = Vec::new();
    for stream in 0..10 {
        let polled = hub.poll(stream, &world.machine, 100).unwrap();
        assert_eq!(polled.replies.len(), 2, "created, then both events");
        seen.push(polled.replies[1].events[1].clone());
    }
    assert!(seen.iter().all(|e| Arc::ptr_eq(e, &seen[0])));
    assert_eq!(seen[0].prev_kv().unwrap().value, "x");
    let told = put(&mut world, &mut hub, "a1", "z");
    assert_eq!(told.len(), 10, "who has read is told of what is new");
}

#[test]
fn a_watcher_of_other_keys_is_not_told() {
    let mut world = World::new(tiny());
    let mut hub = WatchHub::new(1);
    hub.create(
        1,
        WatchCreate {
            key: "a".into(),
            ..WatchCreate::default()
        },
    );
    hub.create(
        2,
        WatchCreate {
            key: "b".into(),
            ..WatchCreate::default()
        },
    );
    assert_eq!(put(&mut world, &mut hub, "b", ""), [2]);
    hub.drop_stream(2);
    assert!(put(&mut world, &mut hub, "b", "").is_empty());
}

/// Few keys are looked up in the index and many are not; both ways tell all of
/// it, piece by piece.
#[test]
fn a_long_past_is_told_in_pieces_however_many_keys_it_has() {
    for keys in [3, 1_100] {
        let mut world = World::new(tiny());
        let mut hub = WatchHub::new(1);
        for number in 0..1_200 {
            put(&mut world, &mut hub, &format!("k{}", number % keys), "");
        }
        let watch = WatchCreate {
            key: "k".into(),
            range_end: "l".into(),
            start_revision: 2,
            ..WatchCreate::default()
        };
        hub.create(1, watch);
        let mut told = Vec::new();
        loop {
            let polled = hub.poll(1, &world.machine, 100).unwrap();
            let events = polled.replies.iter().flat_map(|r| &r.events);
            let before = told.len();
            told.extend(events.map(|e| e.kv.mod_revision));
            assert!(told.len() - before <= 100, "more than was asked for");
            if !polled.more {
                break;
            }
        }
        let all: Vec<i64> = (2..=world.machine.revision()).collect();
        assert_eq!(told, all, "{keys} keys");
    }
}
