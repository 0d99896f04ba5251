//! What one command costs in the state machine: finding keys, writing one, a
//! transaction as the API server makes them, telling watchers, and a proposal's bytes.
//!
//! `cargo bench -p mvcc`; what changed since the last run is said beside each figure.

#![allow(
    clippy::unwrap_used,
    reason = "a bench fails where it finds a surprise"
)]

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput};
use mvcc::watch::{StreamId, WatchCreate, WatchHub};
use mvcc::{
    Applied, Command, CompactRequest, CompactStep, Compare, CompareResult, CompareTarget, Config,
    DeleteRangeRequest, MemoryBackend, Proposal, PutRequest, RangeRequest, RequestOp, StateMachine,
    TxnRequest,
};

const KEYS: u64 = 100_000;

/// What the API server writes for a small object.
const VALUE: &[u8] = &[b'v'; 300];

/// Changes after which history is written back and compacted, outside of what is timed.
const TIDY_EVERY: u64 = 20_000;

fn key(n: u64) -> Bytes {
    format!("/registry/pods/default/web-{n:08}").into()
}

fn put(n: u64) -> PutRequest {
    PutRequest {
        key: key(n),
        value: Bytes::from_static(VALUE),
        ..PutRequest::default()
    }
}

/// A machine with keys, over rows in memory.
struct Store {
    machine: StateMachine,
    rows: MemoryBackend,
    index: u64,
    /// Which key is next; strides over all of them.
    at: u64,
}

impl Store {
    fn new() -> RefCell<Self> {
        let rows = MemoryBackend::new();
        let machine = StateMachine::open(Box::new(rows.clone()), Config::default()).unwrap();
        let mut store = Self {
            machine,
            rows,
            index: 0,
            at: 0,
        };
        for n in 0..KEYS {
            store.apply(Command::Put(put(n)));
        }
        store.tidy();
        RefCell::new(store)
    }

    fn apply(&mut self, command: Command) -> Applied {
        self.index += 1;
        let proposal = Proposal {
            id: self.index,
            since: Some(self.index - 1),
            identity: None,
            command,
        };
        self.machine.apply(self.index, 1, proposal).unwrap()
    }

    fn next(&mut self) -> u64 {
        self.at += 1;
        if self.at.is_multiple_of(TIDY_EVERY) {
            self.tidy();
        }
        (self.at * 7_919) % KEYS
    }

    fn mod_revision(&self, n: u64) -> i64 {
        let request = RangeRequest {
            key: key(n),
            ..RangeRequest::default()
        };
        let reply = self.machine.range(&request).unwrap();
        reply.kvs.first().map_or(0, |kv| kv.mod_revision)
    }

    fn tidy(&mut self) {
        self.write_back();
        let revision = self.machine.revision();
        self.apply(Command::Compact(CompactRequest {
            revision,
            physical: false,
        }));
        while self.machine.compact_step(1_000).unwrap() != CompactStep::Done {
            self.write_back();
        }
        self.write_back();
    }

    fn write_back(&mut self) {
        while let Some(job) = self.machine.take_writeback(8 << 20) {
            let (batch, written) = job.pack();
            self.rows.write(&batch);
            self.machine.writeback_done(written);
        }
    }
}

/// Reads that the index alone answers, or nearly.
fn key_index(c: &mut Criterion) {
    let store = Store::new();
    let mut group = c.benchmark_group("key_index");
    let one = |store: &RefCell<Store>| RangeRequest {
        key: key(store.borrow_mut().next()),
        ..RangeRequest::default()
    };
    let read = |request: RangeRequest| store.borrow().machine.range(&request).unwrap();
    group.bench_function("get", |b| {
        b.iter_batched(|| one(&store), read, BatchSize::NumIterations(1_000));
    });
    let all = RangeRequest {
        key: "/registry/".into(),
        range_end: "/registry0".into(),
        ..RangeRequest::default()
    };
    let count = RangeRequest {
        count_only: true,
        ..all.clone()
    };
    group.bench_function("count of 100,000", |b| {
        b.iter(|| {
            store
                .borrow()
                .machine
                .range(black_box(&count))
                .unwrap()
                .count
        });
    });
    let page = RangeRequest {
        limit: 500,
        ..all.clone()
    };
    group.throughput(Throughput::Elements(500));
    group.bench_function("page of 500", |b| {
        b.iter(|| store.borrow().machine.range(black_box(&page)).unwrap());
    });
    group.finish();
}

fn apply(c: &mut Criterion) {
    let store = Store::new();
    let mut group = c.benchmark_group("apply");
    let run = |command: Command| store.borrow_mut().apply(command);
    let mut bench = |name: &str, command: &dyn Fn(&mut Store) -> Command| {
        group.bench_function(name, |b| {
            let next = || command(&mut store.borrow_mut());
            b.iter_batched(next, run, BatchSize::NumIterations(1_000));
        });
    };
    bench("put", &|store| Command::Put(put(store.next())));
    bench("update by mod revision", &|store| {
        let n = store.next();
        Command::Txn(update(n, store.mod_revision(n)))
    });
    bench("update that is too late", &|store| {
        Command::Txn(update(store.next(), 1))
    });
    // Keys that were never there, each once.
    bench("create", &|store| {
        let n = KEYS + store.at;
        store.next();
        Command::Txn(guarded(
            n,
            CompareTarget::ModRevision(0),
            RequestOp::Put(put(n)),
        ))
    });
    group.finish();
}

/// Is how the API server updates an object.
fn update(n: u64, revision: i64) -> TxnRequest {
    guarded(
        n,
        CompareTarget::ModRevision(revision),
        RequestOp::Put(put(n)),
    )
}

fn guarded(n: u64, target: CompareTarget, then: RequestOp) -> TxnRequest {
    let found = RangeRequest {
        key: key(n),
        ..RangeRequest::default()
    };
    TxnRequest {
        compare: vec![Compare {
            key: key(n),
            range_end: Bytes::new(),
            result: CompareResult::Equal,
            target,
        }],
        success: vec![then],
        failure: vec![RequestOp::Range(found)],
    }
}

/// Is a number of watchers, and what the nth of them watches.
type Watchers = (&'static str, u64, fn(u64) -> WatchCreate);

/// An event to whoever watches its key, from the change to the replies.
fn watch(c: &mut Criterion) {
    let mut group = c.benchmark_group("watch");
    let cases: [Watchers; 3] = [
        ("one of 10,000 keys", 10_000, |n| WatchCreate {
            key: key(n),
            ..WatchCreate::default()
        }),
        ("100 of the same prefix", 100, |_| everything()),
        ("one of 1,000 ranges", 1_000, |n| WatchCreate {
            key: key(n * 100),
            range_end: key(n * 100 + 100),
            ..WatchCreate::default()
        }),
    ];
    for (name, watchers, create) in cases {
        let store = Store::new();
        let hub = RefCell::new(WatchHub::new(store.borrow().machine.revision()));
        for n in 0..watchers {
            hub.borrow_mut().open_stream(n);
            hub.borrow_mut().create(n, create(n));
            poll(&mut hub.borrow_mut(), n, &store.borrow().machine);
        }
        let change = || {
            let mut store = store.borrow_mut();
            let n = store.next() % if watchers == 10_000 { 10_000 } else { KEYS };
            store.apply(Command::Put(put(n)))
        };
        let tell = |applied: Applied| {
            let (mut hub, store) = (hub.borrow_mut(), store.borrow());
            let told = hub
                .publish(&applied.events, applied.revision, &store.machine)
                .unwrap();
            told.into_iter()
                .map(|stream| poll(&mut hub, stream, &store.machine))
                .sum::<usize>()
        };
        assert_eq!(
            tell(change()),
            if watchers == 100 { 100 } else { 1 },
            "{name}"
        );
        group.bench_function(name, |b| {
            // One at a time: an event is told before the next change is applied.
            b.iter_batched(change, tell, BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn everything() -> WatchCreate {
    WatchCreate {
        key: "/registry/".into(),
        range_end: "/registry0".into(),
        ..WatchCreate::default()
    }
}

/// Takes what a stream should send; counts the events.
fn poll(hub: &mut WatchHub, stream: StreamId, machine: &StateMachine) -> usize {
    let polled = hub.poll(stream, machine, 1_000).unwrap();
    polled.replies.iter().map(|reply| reply.events.len()).sum()
}

/// What goes into the log, and comes out of it.
fn proposal(c: &mut Criterion) {
    let mut group = c.benchmark_group("proposal");
    let delete = DeleteRangeRequest {
        key: key(1),
        ..DeleteRangeRequest::default()
    };
    let commands = [
        ("put", Command::Put(put(1))),
        ("update", Command::Txn(update(1, 17))),
        ("delete", Command::DeleteRange(delete)),
    ];
    for (name, command) in commands {
        let proposal = Proposal {
            id: 7,
            since: Some(5),
            identity: None,
            command,
        };
        group.bench_function(format!("{name}: encode"), |b| {
            b.iter(|| black_box(&proposal).encode());
        });
        let bytes = proposal.encode();
        group.bench_function(format!("{name}: decode"), |b| {
            b.iter(|| Proposal::decode(black_box(&bytes).clone()).unwrap());
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(500))
        .sample_size(30)
        .configure_from_args();
    key_index(&mut criterion);
    apply(&mut criterion);
    watch(&mut criterion);
    proposal(&mut criterion);
    criterion.final_summary();
}
