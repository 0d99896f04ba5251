//! What the edge does with bytes: requests read, and events written for watchers.
//! `cargo bench -p kvserver`.

#![allow(
    clippy::unwrap_used,
    reason = "a bench fails where it finds a surprise"
)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput};
use kvserver::fuzzing::{Method, take, watch_bytes};
use mvcc::watch::WatchReply;
use mvcc::{Command, Config, Event, MemoryBackend, Proposal, PutRequest, StateMachine};
use prost::Message as _;
use proto::etcdserverpb as pb;

const KEY: &str = "/registry/pods/default/web-00000001";
const VALUE: &[u8] = &[b'v'; 300];

/// etcd's limit of operations in a transaction.
const TXN_OPS_MAX: usize = 128;

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    let put = pb::PutRequest {
        key: KEY.into(),
        value: VALUE.into(),
        ..pb::PutRequest::default()
    };
    let range = pb::RangeRequest {
        key: KEY.into(),
        ..pb::RangeRequest::default()
    };
    let op = |request| pb::RequestOp {
        request: Some(request),
    };
    let update = pb::TxnRequest {
        compare: vec![pb::Compare {
            result: pb::compare::CompareResult::Equal.into(),
            target: pb::compare::CompareTarget::Mod.into(),
            key: KEY.into(),
            target_union: Some(pb::compare::TargetUnion::ModRevision(17)),
            ..pb::Compare::default()
        }],
        success: vec![op(pb::request_op::Request::RequestPut(put.clone()))],
        failure: vec![op(pb::request_op::Request::RequestRange(range.clone()))],
    };
    let requests = [
        ("put", Method::Put, put.encode_to_vec()),
        ("range", Method::Range, range.encode_to_vec()),
        ("update", Method::Txn, update.encode_to_vec()),
    ];
    for (name, method, bytes) in requests {
        group.bench_function(name, |b| {
            b.iter(|| take(method, black_box(&bytes), TXN_OPS_MAX));
        });
    }
    group.finish();
}

fn events(count: u64) -> Vec<Arc<Event>> {
    let rows = Box::new(MemoryBackend::new());
    let mut machine = StateMachine::open(rows, Config::default()).unwrap();
    let put = |id: u64| Proposal {
        id,
        since: None,
        identity: None,
        command: Command::Put(PutRequest {
            key: format!("/registry/pods/default/web-{id:08}").into(),
            value: VALUE.into(),
            ..PutRequest::default()
        }),
    };
    let apply = |id| machine.apply(id, 1, put(id)).unwrap().events;
    (1..=count).flat_map(apply).collect()
}

fn reply(events: Vec<Arc<Event>>) -> WatchReply {
    WatchReply {
        watch_id: 3,
        revision: 1_000_000,
        events,
        ..WatchReply::default()
    }
}

/// Replies with events that nobody has encoded yet, and with such as another watcher
/// was told before.
fn watch(c: &mut Criterion) {
    let mut group = c.benchmark_group("watch reply");
    for count in [1, 100] {
        group.throughput(Throughput::Elements(count));
        let mut out = BytesMut::with_capacity(64 << 10);
        let mut write = |reply: WatchReply| {
            out.clear();
            watch_bytes(reply, &mut out);
            out.len()
        };
        group.bench_function(format!("{count} events, to the first"), |b| {
            let fresh = || reply(events(count));
            b.iter_batched(fresh, &mut write, BatchSize::SmallInput);
        });
        let known = events(count);
        group.bench_function(format!("{count} events, to another"), |b| {
            let again = || reply(known.clone());
            b.iter_batched(again, &mut write, BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    requests(&mut criterion);
    watch(&mut criterion);
    criterion.final_summary();
}
