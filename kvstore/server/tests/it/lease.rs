//! Leases: granted, renewed, expired, revoked.

use futures::StreamExt as _;
use proto::etcdserverpb as pb;

use crate::store::{DEADLINE, Store, put};

fn grant(ttl: i64, id: i64) -> pb::LeaseGrantRequest {
    pb::LeaseGrantRequest { ttl, id }
}

#[tokio::test]
async fn a_lease_takes_its_keys_with_it() {
    let store = Store::start().await;
    let (mut lease, mut kv) = (store.lease().await, store.kv().await);
    let granted = lease.lease_grant(grant(60, 0)).await.unwrap().into_inner();
    assert!(granted.id > 0 && granted.ttl == 60 && granted.error.is_empty());
    for key in ["b", "a"] {
        kv.0.put(pb::PutRequest {
            lease: granted.id,
            ..put(key, "x")
        })
        .await
        .unwrap();
    }
    let ask = pb::LeaseTimeToLiveRequest {
        id: granted.id,
        keys: true,
    };
    let told = lease.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!((told.granted_ttl, told.keys.len()), (60, 2));
    assert!((58..=60).contains(&told.ttl), "{}", told.ttl);
    let leases = lease
        .lease_leases(pb::LeaseLeasesRequest {})
        .await
        .unwrap()
        .into_inner()
        .leases;
    assert_eq!(leases, [pb::LeaseStatus { id: granted.id }]);
    let before = store.running().handle.revision();
    let revoked = lease
        .lease_revoke(pb::LeaseRevokeRequest { id: granted.id })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        revoked.header.unwrap().revision,
        before + 1,
        "all keys in one revision"
    );
    assert_eq!(kv.get("a").await, None);
    let told = lease.lease_time_to_live(ask).await.unwrap().into_inner();
    assert_eq!((told.id, told.ttl, told.keys.len()), (granted.id, -1, 0));
}

#[tokio::test]
async fn an_expired_lease_is_revoked_and_a_renewed_one_is_not() {
    let store = Store::start().await;
    let (mut lease, mut kv) = (store.lease().await, store.kv().await);
    assert_eq!(
        lease
            .lease_grant(grant(1, 7))
            .await
            .unwrap()
            .into_inner()
            .ttl,
        2,
        "raised to the minimum"
    );
    lease.lease_grant(grant(2, 8)).await.unwrap();
    kv.0.put(pb::PutRequest {
        lease: 7,
        ..put("short", "x")
    })
    .await
    .unwrap();
    kv.0.put(pb::PutRequest {
        lease: 8,
        ..put("kept", "x")
    })
    .await
    .unwrap();
    let (ask, asked) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut renewed = lease.lease_keep_alive(requests).await.unwrap().into_inner();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while kv.get("short").await.is_some() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the lease did not expire"
        );
        ask.send(pb::LeaseKeepAliveRequest { id: 8 }).await.unwrap();
        let reply = renewed.next().await.unwrap().unwrap();
        assert_eq!((reply.id, reply.ttl), (8, 2));
    }
    assert_eq!(kv.get("kept").await.unwrap(), "x");
    ask.send(pb::LeaseKeepAliveRequest { id: 7 }).await.unwrap();
    let reply = renewed.next().await.unwrap().unwrap();
    assert_eq!((reply.id, reply.ttl), (7, 0), "gone");
}

#[tokio::test]
async fn leases_survive_a_restart() {
    let mut store = Store::start().await;
    store
        .lease()
        .await
        .lease_grant(grant(600, 9))
        .await
        .unwrap();
    store
        .kv()
        .await
        .0
        .put(pb::PutRequest {
            lease: 9,
            ..put("a", "x")
        })
        .await
        .unwrap();
    store.lose_power().await;
    let ask = pb::LeaseTimeToLiveRequest { id: 9, keys: true };
    let told = store
        .lease()
        .await
        .lease_time_to_live(ask)
        .await
        .unwrap()
        .into_inner();
    assert_eq!((told.granted_ttl, told.keys.len()), (600, 1));
}
