//! Put, range, delete, txn, compact as a client sees them.

use proto::etcdserverpb::{self as pb, compare, request_op::Request, response_op::Response};

use crate::store::{Store, bytes, delete, op, put, put_op, range, refused};

#[tokio::test]
async fn headers_and_revisions_are_etcds() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let fresh = kv.range(range("a", "")).await.unwrap().header.unwrap();
    assert_eq!(fresh.revision, 1, "a fresh store");
    assert_eq!(format!("{:x}", fresh.member_id), "8e9e05c52164694d");
    assert_eq!(format!("{:x}", fresh.cluster_id), "cdf818194e3a8c32");
    assert!(fresh.raft_term >= 1);
    assert_eq!(kv.put("a", "1").await, 2);
    assert_eq!(kv.put("a", "2").await, 3);
    let old = pb::RangeRequest {
        revision: 2,
        ..range("a", "")
    };
    let reply = kv.range(old).await.unwrap();
    assert_eq!(
        reply.header.unwrap().revision,
        3,
        "the present, even for the past"
    );
    assert_eq!(reply.kvs[0].value, "1");
    let before = pb::PutRequest {
        prev_kv: true,
        ..put("a", "3")
    };
    let reply = kv.0.put(before).await.unwrap().into_inner();
    assert_eq!(reply.prev_kv.unwrap().value, "2");
    let none =
        kv.0.delete_range(delete("zzz", ""))
            .await
            .unwrap()
            .into_inner();
    assert_eq!(
        (none.deleted, none.header.unwrap().revision),
        (0, 4),
        "nothing deleted, no revision"
    );
    let all =
        kv.0.delete_range(delete("a", "\0"))
            .await
            .unwrap()
            .into_inner();
    assert_eq!((all.deleted, all.header.unwrap().revision), (1, 5));
}

#[tokio::test]
async fn a_range_is_limited_counted_and_sorted() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    for key in ["a", "b", "c", "d"] {
        kv.put(key, key).await;
    }
    let limited = pb::RangeRequest {
        limit: 2,
        ..range("a", "\0")
    };
    let reply = kv.range(limited).await.unwrap();
    assert_eq!((reply.kvs.len(), reply.more, reply.count), (2, true, 4));
    let counted = pb::RangeRequest {
        count_only: true,
        ..range("b", "d")
    };
    let reply = kv.range(counted).await.unwrap();
    assert_eq!((reply.kvs.len(), reply.count), (0, 2));
    let sorted = pb::RangeRequest {
        sort_order: pb::range_request::SortOrder::Descend.into(),
        sort_target: pb::range_request::SortTarget::Mod.into(),
        keys_only: true,
        ..range("a", "\0")
    };
    let keys: Vec<_> = kv
        .range(sorted)
        .await
        .unwrap()
        .kvs
        .into_iter()
        .map(|kv| (kv.key, kv.value))
        .collect();
    assert_eq!(keys.first().unwrap().0, "d");
    assert!(keys.iter().all(|(_, value)| value.is_empty()));
    let serializable = pb::RangeRequest {
        serializable: true,
        ..range("a", "")
    };
    assert_eq!(kv.range(serializable).await.unwrap().count, 1);
}

#[tokio::test]
async fn a_txn_runs_one_branch_as_one_revision() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    kv.put("a", "1").await;
    let is = |value: &str| pb::Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Value.into(),
        key: bytes("a"),
        target_union: Some(compare::TargetUnion::Value(bytes(value))),
        ..pb::Compare::default()
    };
    let txn = |value: &str| pb::TxnRequest {
        compare: vec![is(value)],
        success: vec![
            put_op("a", "2"),
            put_op("b", "2"),
            op(Request::RequestRange(range("a", "\0"))),
            op(Request::RequestTxn(pb::TxnRequest {
                success: vec![op(Request::RequestDeleteRange(delete("c", "")))],
                ..pb::TxnRequest::default()
            })),
        ],
        failure: vec![op(Request::RequestRange(range("a", "")))],
    };
    let reply = kv.txn(txn("1")).await.unwrap();
    assert!(reply.succeeded);
    assert_eq!(reply.header.unwrap().revision, 3);
    let Some(Response::ResponseRange(seen)) = &reply.responses[2].response else {
        panic!("{reply:?}")
    };
    assert_eq!(seen.count, 2, "a range sees what came before it in the txn");
    let header = seen.header.unwrap();
    assert_eq!(
        (header.revision, header.cluster_id, header.member_id),
        (3, 0, 0)
    );
    let Some(Response::ResponseTxn(nested)) = &reply.responses[3].response else {
        panic!("{reply:?}")
    };
    assert!(nested.succeeded);
    let reply = kv.txn(txn("1")).await.unwrap();
    assert!(!reply.succeeded);
    assert_eq!(reply.header.unwrap().revision, 3, "nothing changed");
    assert_eq!(kv.get("b").await.unwrap(), "2");
}

#[tokio::test]
async fn many_writers_each_get_a_revision_of_their_own() {
    const WRITERS: usize = 50;
    const WRITES: usize = 20;
    let store = Store::start().await;
    let channel = store.channel().await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let mut kv = crate::store::Kv::new(channel.clone());
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                for write in 0..WRITES {
                    revisions.push(kv.put(&format!("{writer}/{write}"), "x").await);
                }
                revisions
            })
        })
        .collect();
    let mut all = Vec::new();
    for writer in writers {
        let revisions = writer.await.unwrap();
        assert!(revisions.is_sorted());
        all.extend(revisions);
    }
    all.sort_unstable();
    let expected: Vec<_> = (2..).take(WRITERS * WRITES).collect();
    assert_eq!(all, expected);
    let count = store
        .kv()
        .await
        .range(range("\0", "\0"))
        .await
        .unwrap()
        .count;
    assert_eq!(count, i64::try_from(WRITERS * WRITES).unwrap());
}

#[tokio::test]
async fn compaction_forgets_the_past_only() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    for value in 0..500 {
        kv.put("a", &value.to_string()).await;
    }
    kv.compact(400).await.unwrap();
    let at = |revision| pb::RangeRequest {
        revision,
        ..range("a", "")
    };
    assert!(kv.range(at(399)).await.is_err());
    assert_eq!(kv.range(at(400)).await.unwrap().kvs[0].value, "398");
    assert_eq!(kv.get("a").await.unwrap(), "499");
    // A defragmentation has nothing to wait for and answers.
    store
        .maintenance()
        .await
        .defragment(pb::DefragmentRequest {})
        .await
        .unwrap();
}

#[tokio::test]
async fn a_corrupt_alarm_closes_the_store_to_writes_until_it_is_cleared() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut maintenance = store.maintenance().await;
    kv.put("a", "1").await;
    let alarm = |action: pb::alarm_request::AlarmAction| pb::AlarmRequest {
        action: action.into(),
        member_id: 7,
        alarm: pb::AlarmType::Corrupt.into(),
    };
    let raise = alarm(pb::alarm_request::AlarmAction::Activate);
    let raised = maintenance.alarm(raise).await.unwrap().into_inner();
    assert_eq!(raised.alarms.len(), 1);
    // What does not go through the log is still answered, as etcd does.
    assert_eq!(kv.get("a").await.unwrap(), "1");
    refused(
        kv.0.put(put("a", "2")).await,
        15,
        "etcdserver: corrupt cluster",
    );
    let status = maintenance
        .status(pb::StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.errors, ["memberID:7 alarm:CORRUPT "]);
    let clear = alarm(pb::alarm_request::AlarmAction::Deactivate);
    maintenance.alarm(clear).await.unwrap();
    assert_eq!(kv.get("a").await.unwrap(), "1");
}

#[tokio::test]
async fn equal_histories_have_equal_hashes() {
    let mut hashes = Vec::new();
    for last in ["x", "x", "y"] {
        let store = Store::start().await;
        let mut kv = store.kv().await;
        kv.put("a", "1").await;
        kv.put("a", last).await;
        let mut maintenance = store.maintenance().await;
        let reply = maintenance.hash_kv(pb::HashKvRequest { revision: 0 }).await;
        hashes.push(reply.unwrap().into_inner().hash);
    }
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}
