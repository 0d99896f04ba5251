//! What must be refused, with etcd's codes and messages, leaving the store as it was.

use proto::etcdserverpb::{self as pb, request_op::Request};

use crate::store::{Store, bytes, delete, op, put, put_op, range, refused};

#[tokio::test]
async fn puts() {
    let store = Store::start().await;
    let mut kv = store.kv().await.0;
    refused(
        kv.put(put("", "x")).await,
        3,
        "etcdserver: key is not provided",
    );
    let both = pb::PutRequest {
        ignore_value: true,
        ..put("a", "x")
    };
    refused(kv.put(both).await, 3, "etcdserver: value is provided");
    let both = pb::PutRequest {
        ignore_lease: true,
        lease: 5,
        ..put("a", "x")
    };
    refused(kv.put(both).await, 3, "etcdserver: lease is provided");
    let missing = pb::PutRequest {
        ignore_value: true,
        ..put("a", "")
    };
    refused(kv.put(missing).await, 3, "etcdserver: key not found");
    let lease = pb::PutRequest {
        lease: 77,
        ..put("a", "x")
    };
    refused(
        kv.put(lease).await,
        5,
        "etcdserver: requested lease not found",
    );
    let large = put("a", &"x".repeat(1_600_000));
    refused(kv.put(large).await, 3, "etcdserver: request is too large");
    assert_eq!(store.running().handle.revision(), 1);
}

#[tokio::test]
async fn ranges_and_compactions() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    for _ in 0..4 {
        kv.put("a", "x").await;
    }
    let at = |revision| pb::RangeRequest {
        revision,
        ..range("a", "")
    };
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    let future = "etcdserver: mvcc: required revision is a future revision";
    refused(
        kv.range(range("", "")).await,
        3,
        "etcdserver: key is not provided",
    );
    let sorted = pb::RangeRequest {
        sort_order: 9,
        ..range("a", "")
    };
    refused(kv.range(sorted).await, 3, "etcdserver: invalid sort option");
    refused(kv.range(at(6)).await, 11, future);
    refused(kv.compact(6).await, 11, future);
    kv.compact(3).await.unwrap();
    refused(kv.range(at(2)).await, 11, compacted);
    refused(kv.compact(3).await, 11, compacted);
    refused(kv.compact(2).await, 11, compacted);
    refused(
        kv.0.delete_range(delete("", "")).await,
        3,
        "etcdserver: key is not provided",
    );
    assert_eq!(store.running().handle.revision(), 5);
}

#[tokio::test]
async fn txns() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let duplicate = "etcdserver: duplicate key given in txn request";
    let txn = |success| pb::TxnRequest {
        success,
        ..pb::TxnRequest::default()
    };
    refused(
        kv.txn(txn(vec![put_op("a", "1"), put_op("a", "2")])).await,
        3,
        duplicate,
    );
    let deleted = op(Request::RequestDeleteRange(delete("a", "c")));
    refused(
        kv.txn(txn(vec![put_op("b", "1"), deleted])).await,
        3,
        duplicate,
    );
    let many = (0..129)
        .map(|key| put_op(&format!("k{key}"), "x"))
        .collect();
    refused(
        kv.txn(txn(many)).await,
        3,
        "etcdserver: too many operations in txn request",
    );
    let empty = pb::RequestOp { request: None };
    refused(
        kv.txn(txn(vec![empty])).await,
        3,
        "etcdserver: key not found",
    );
    let lease = op(Request::RequestPut(pb::PutRequest {
        lease: 77,
        ..put("b", "x")
    }));
    refused(
        kv.txn(txn(vec![put_op("a", "1"), lease])).await,
        5,
        "etcdserver: requested lease not found",
    );
    let compare = vec![pb::Compare {
        key: bytes(""),
        ..pb::Compare::default()
    }];
    let keyless = pb::TxnRequest {
        compare,
        ..pb::TxnRequest::default()
    };
    refused(kv.txn(keyless).await, 3, "etcdserver: key is not provided");
    assert_eq!(store.running().handle.revision(), 1);
    assert_eq!(
        kv.get("a").await,
        None,
        "the put beside the refused one is not there either"
    );
}

#[tokio::test]
async fn leases() {
    let store = Store::start().await;
    let mut lease = store.lease().await;
    lease
        .lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 5 })
        .await
        .unwrap();
    let again = lease
        .lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 5 })
        .await;
    refused(again, 9, "etcdserver: lease already exists");
    let long = lease
        .lease_grant(pb::LeaseGrantRequest {
            ttl: 9_000_000_001,
            id: 6,
        })
        .await;
    refused(long, 11, "etcdserver: too large lease TTL");
    let unknown = lease.lease_revoke(pb::LeaseRevokeRequest { id: 77 }).await;
    refused(unknown, 5, "etcdserver: requested lease not found");
}

#[tokio::test]
async fn a_full_store_refuses_writes_and_lets_space_be_made() {
    let store = Store::start_with(|config| config.quota_backend_bytes = 200_000).await;
    let mut kv = store.kv().await;
    let full = "etcdserver: mvcc: database space exceeded";
    let mut written = 0;
    let error = loop {
        match kv
            .0
            .put(put(&format!("k{written}"), &"x".repeat(10_000)))
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the quota is never reached");
    };
    assert_eq!((error.code() as i32, error.message()), (8, full));
    let mut maintenance = store.maintenance().await;
    let get = pb::AlarmRequest::default();
    let alarms = || async {
        let mut maintenance = store.maintenance().await;
        maintenance
            .alarm(pb::AlarmRequest::default())
            .await
            .unwrap()
            .into_inner()
            .alarms
    };
    let deadline = tokio::time::Instant::now() + crate::store::DEADLINE;
    while alarms().await.is_empty() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "no alarm was raised"
        );
        tokio::task::yield_now().await;
    }
    refused(kv.0.put(put("small", "x")).await, 8, full);
    assert_eq!(kv.get("k0").await.unwrap().len(), 10_000, "reads go on");
    kv.0.delete_range(delete("k", "l")).await.unwrap();
    let revision = store.running().handle.revision();
    kv.compact(revision).await.unwrap();
    let member_id = store.running().handle.ids().0;
    let clear = pb::AlarmRequest {
        action: pb::alarm_request::AlarmAction::Deactivate.into(),
        member_id,
        alarm: pb::AlarmType::Nospace.into(),
    };
    maintenance.alarm(clear).await.unwrap();
    assert!(
        maintenance
            .alarm(get)
            .await
            .unwrap()
            .into_inner()
            .alarms
            .is_empty()
    );
    kv.put("small", "x").await;
}

#[tokio::test]
async fn unknown_methods_and_hostile_frames_hurt_nobody() {
    let store = Store::start().await;
    let channel = store.channel().await;
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<pb::RangeRequest, pb::RangeResponse>::default();
    let path = http::uri::PathAndQuery::from_static("/etcdserverpb.KV/Nonsense");
    let status = client
        .unary(tonic::Request::new(range("a", "")), path, codec)
        .await
        .unwrap_err();
    assert_eq!(status.code() as i32, 12);
    let codec = tonic_prost::ProstCodec::<pb::RangeRequest, pb::RangeResponse>::default();
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/nobody.Knows/Me");
    let status = client
        .unary(tonic::Request::new(range("a", "")), path, codec)
        .await
        .unwrap_err();
    assert_eq!(status.code() as i32, 12);
    // Transactions nested ten thousand deep overflow no stack: decoding stops first.
    let mut deep = pb::TxnRequest::default();
    for _ in 0..90 {
        deep = pb::TxnRequest {
            success: vec![op(Request::RequestTxn(deep))],
            ..pb::TxnRequest::default()
        };
    }
    assert!(store.kv().await.txn(deep).await.is_err());
    store.kv().await.put("a", "still here").await;
}
