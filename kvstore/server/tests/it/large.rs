//! Much at once: lists of many megabytes, and the space that comes back.

use std::time::Duration;

use proto::etcdserverpb as pb;

use crate::store::{Kv, Store, delete, op, put, range};

const KEYS: usize = 1_500;

/// Writes every key; values differ from key to key and from round to round.
async fn fill(store: &Store, round: usize) {
    let handle = &store.running().handle;
    for key in 0..KEYS {
        let put = mvcc::PutRequest {
            key: format!("k{key:05}").into(),
            value: value(key, round).into(),
            ..Default::default()
        };
        handle.put(put).await.unwrap();
    }
}

fn value(key: usize, round: usize) -> Vec<u8> {
    format!("{round} {key} ").repeat(1_000).into_bytes()
}

#[track_caller]
fn check(kvs: &[proto::mvccpb::KeyValue], round: usize) {
    assert_eq!(kvs.len(), KEYS);
    for (key, kv) in kvs.iter().enumerate() {
        assert_eq!(kv.key, format!("k{key:05}"));
        assert!(kv.value == value(key, round), "{key}");
    }
}

/// Whichever call brings them, all bytes arrive; small calls on the same connection
/// go on meanwhile.
#[tokio::test]
async fn large_replies_arrive_whole() {
    let store = Store::start().await;
    fill(&store, 1).await;
    let channel = store.channel().await;
    let mut kv = Kv::new(channel.clone());
    let small = tokio::spawn(async move {
        let mut kv = Kv::new(channel);
        for nth in 0..200 {
            kv.put(&format!("s{nth}"), "x").await;
        }
    });
    let found = kv.range(range("k", "l")).await.unwrap();
    check(&found.kvs, 1);
    assert_eq!(found.count, KEYS as i64);
    let inner = |request| op(pb::request_op::Request::RequestRange(request));
    let txn = pb::TxnRequest {
        success: vec![inner(range("k", "l")), inner(range("k00000", ""))],
        ..pb::TxnRequest::default()
    };
    let reply = kv.txn(txn).await.unwrap();
    let Some(pb::response_op::Response::ResponseRange(inner)) = &reply.responses[0].response else {
        panic!("{:?}", reply.header);
    };
    check(&inner.kvs, 1);
    let before = pb::DeleteRangeRequest {
        prev_kv: true,
        ..delete("k", "l")
    };
    let deleted = kv.0.delete_range(before).await.unwrap().into_inner();
    assert_eq!(deleted.deleted, KEYS as i64);
    check(&deleted.prev_kvs, 1);
    small.await.unwrap();
}

/// What many lists at once hold is bounded: each comes whole or is refused, and puts
/// go on.
#[tokio::test]
async fn many_large_lists_at_once_are_bounded() {
    let store = Store::start().await;
    fill(&store, 1).await;
    let mut lists = Vec::new();
    for _ in 0..40 {
        let mut kv = Kv::new(store.channel().await);
        let list = async move { kv.range(range("k", "l")).await };
        lists.push(tokio::spawn(list));
    }
    let mut kv = Kv::new(store.channel().await);
    for nth in 0..50 {
        let put = kv.0.put(put(&format!("s{nth}"), "x"));
        tokio::time::timeout(Duration::from_secs(60), put)
            .await
            .unwrap()
            .unwrap();
    }
    for list in lists {
        match list.await.unwrap() {
            Ok(found) => check(&found.kvs, 1),
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
                assert_eq!(status.message(), "etcdserver: too many requests");
            }
        }
    }
}

#[tokio::test]
async fn defragment_gives_space_back_and_keeps_all() {
    let mut store = Store::start().await;
    fill(&store, 1).await;
    // A third is written again: too little for a compaction to give any of it back.
    let handle = store.running().handle.clone();
    for key in (0..KEYS).step_by(3) {
        let put = mvcc::PutRequest {
            key: format!("k{key:05}").into(),
            value: value(key, 1).into(),
            ..Default::default()
        };
        handle.put(put).await.unwrap();
    }
    let mut kv = store.kv().await;
    let revision = handle.revision();
    let compaction = pb::CompactionRequest {
        revision,
        physical: true,
    };
    kv.0.compact(compaction).await.unwrap();
    let mut maintenance = store.maintenance().await;
    let live = (0..KEYS).map(|key| value(key, 1).len()).sum::<usize>() as u64;
    let writing = {
        let handle = handle.clone();
        tokio::spawn(async move {
            for nth in 0..200 {
                let put = mvcc::PutRequest {
                    key: format!("s{nth}").into(),
                    value: "x".into(),
                    ..Default::default()
                };
                handle.put(put).await.unwrap();
            }
        })
    };
    let request = pb::DefragmentRequest {};
    maintenance.defragment(request).await.unwrap();
    writing.await.unwrap();
    let size = handle.size_bytes();
    // A segment that is being filled, and what the engine needs for itself.
    assert!(size < live * 5 / 4 + (8 << 20), "{size} for {live}");
    drop((kv, maintenance, handle));
    store.restart().await;
    let found = store.kv().await.range(range("k", "l")).await.unwrap();
    check(&found.kvs, 1);
}
