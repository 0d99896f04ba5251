//! Carries out so many puts or gets, one at a time, from a request's bytes to the
//! reply's: through the services, raft, the log on a simulated disk and the state
//! machine, on one thread. It prints nothing: `bench/instructions` has valgrind count
//! what it executes, and takes the difference of two counts.

#![allow(
    clippy::unwrap_used,
    reason = "a bench fails where it finds a surprise"
)]

use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use disk::SimDisk;
use kvserver::Config;
use kvserver::sim::{Clock, Node, Numbers, Setup, Tap, Wire, member_info};
use member::LogEntry;
use mvcc::watch::WatchLimits;
use mvcc::{Applied, StateMachine};
use prost::Message;
use proto::etcdserverpb as pb;

const MEMBER: u64 = 1;

/// What there is before anything is counted.
const KEYS: usize = 1_000;

/// What the API server writes for a small object.
const VALUE: &[u8] = &[b'v'; 300];

struct Nobody;

impl Tap for Nobody {
    fn entry(&mut self, _entry: &LogEntry) {}
    fn applied(&mut self, _index: u64, _applied: &Applied) {}
    fn machine(&mut self, _machine: &StateMachine) {}
}

struct Store {
    node: Node,
    wire: Wire,
}

impl Store {
    fn open() -> Self {
        let config = Config::new(PathBuf::from("/data"));
        let numbers = Numbers::new(&config, MEMBER);
        let setup = Setup {
            config,
            member: MEMBER,
            cluster: 7,
            disk: SimDisk::new(),
            first: vec![member_info(MEMBER, false)],
            others: Vec::new(),
            clock: Clock::new(1),
            numbers,
            tap: Box::new(Nobody),
        };
        let node = Node::open(setup, WatchLimits::default()).unwrap();
        let wire = node.wire();
        let mut store = Self { node, wire };
        while !store.node.standing().leads {
            store.node.tick();
            store.work();
        }
        store
    }

    /// Lets the member do whatever waits.
    fn work(&mut self) {
        loop {
            if self.node.woken() {
                self.node.turn();
            } else if self.node.log_waits() {
                self.node.work_log();
            } else if self.node.rows_wait() {
                self.node.work_rows();
            } else {
                return;
            }
        }
    }

    fn call<M: Message + Default>(&mut self, path: &'static str, request: &impl Message) -> M {
        let message = request.encode_to_vec();
        let wire = self.wire.clone();
        let mut call = pin!(wire.call(path, &message));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(reply) = call.as_mut().poll(&mut context) {
                return M::decode(reply.unwrap()).unwrap();
            }
            self.work();
        }
    }

    fn put(&mut self, n: usize) {
        let request = pb::PutRequest {
            key: key(n),
            value: Bytes::from_static(VALUE),
            ..pb::PutRequest::default()
        };
        let before = self.node.standing().revision;
        let reply: pb::PutResponse = self.call("/etcdserverpb.KV/Put", &request);
        assert_eq!(reply.header.unwrap().revision, before + 1);
    }

    fn get(&mut self, n: usize) {
        let request = pb::RangeRequest {
            key: key(n),
            ..pb::RangeRequest::default()
        };
        let reply: pb::RangeResponse = self.call("/etcdserverpb.KV/Range", &request);
        assert_eq!(reply.kvs.first().unwrap().value, VALUE);
    }
}

fn key(n: usize) -> Bytes {
    let n = n * 7_919 % KEYS;
    format!("/registry/pods/default/web-{n:08}").into()
}

fn main() {
    // `cargo bench` passes an argument of its own, and wants nothing counted.
    let mut args = std::env::args().skip(1);
    let (Some(what), Some(count)) = (args.next(), args.next()) else {
        return;
    };
    let mut store = Store::open();
    (0..KEYS).for_each(|n| store.put(n));
    let once = match what.as_str() {
        "put" => Store::put,
        "get" => Store::get,
        other => panic!("nothing counts {other}"),
    };
    (0..count.parse().unwrap()).for_each(|n| once(&mut store, n));
}
