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
async fn who_is_told_that_a_lease_is_gone_finds_its_keys_gone() {
    let store = Store::start().await;
    let (mut lease, mut kv) = (store.lease().await, store.kv().await);
    let (ask, asked) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut renewed = lease.lease_keep_alive(requests).await.unwrap().into_inner();
    // Time is looked at ten times a second, so most of these come in between.
    for id in 1..=5 {
        lease.lease_grant(grant(2, id)).await.unwrap();
        let granted = tokio::time::Instant::now();
        let put = pb::PutRequest {
            lease: id,
            ..put("k", "x")
        };
        kv.0.put(put).await.unwrap();
        tokio::time::sleep_until(granted + std::time::Duration::from_secs(2)).await;
        ask.send(pb::LeaseKeepAliveRequest { id }).await.unwrap();
        let reply = renewed.next().await.unwrap().unwrap();
        assert_eq!((reply.id, reply.ttl), (id, 0));
        assert_eq!(kv.get("k").await, None, "lease {id}");
    }
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

#[tokio::test]
async fn odd_grants_and_questions_are_answered_as_etcd_does() {
    let store = Store::start().await;
    let mut lease = store.lease().await;
    for (ttl, id) in [(0, 11), (-5, -7), (2, 12)] {
        let granted = lease.lease_grant(grant(ttl, id)).await.unwrap();
        let granted = granted.into_inner();
        assert_eq!((granted.id, granted.ttl), (id, 2), "raised to the minimum");
    }
    let most = lease.lease_grant(grant(9_000_000_000, 13)).await.unwrap();
    assert_eq!(most.into_inner().ttl, 9_000_000_000);
    let ask = |id| pb::LeaseTimeToLiveRequest { id, keys: false };
    let told = lease
        .lease_time_to_live(ask(13))
        .await
        .unwrap()
        .into_inner();
    let left = 8_999_999_999 - told.ttl;
    assert!(
        (0..5).contains(&left),
        "whole seconds left, rounded down: {told:?}"
    );
    let told = lease
        .lease_time_to_live(ask(77))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((told.id, told.ttl, told.granted_ttl), (77, -1, 0));
    let asked = tokio_stream::iter([pb::LeaseKeepAliveRequest { id: 77 }]);
    let mut renewed = lease.lease_keep_alive(asked).await.unwrap().into_inner();
    let reply = renewed.next().await.unwrap().unwrap();
    assert_eq!((reply.id, reply.ttl), (77, 0));
    assert_eq!(reply.header.unwrap().revision, 1);
    assert!(
        renewed.next().await.is_none(),
        "the stream ends with its requests"
    );
}

#[tokio::test]
async fn a_key_hangs_on_the_lease_of_its_last_put() {
    let store = Store::start().await;
    let (mut lease, mut kv) = (store.lease().await, store.kv().await);
    for id in [1, 2] {
        lease.lease_grant(grant(600, id)).await.unwrap();
    }
    let put_on = |key, lease| pb::PutRequest {
        lease,
        ..put(key, "x")
    };
    let mut keys_of = async |id| {
        let ask = pb::LeaseTimeToLiveRequest { id, keys: true };
        lease
            .lease_time_to_live(ask)
            .await
            .unwrap()
            .into_inner()
            .keys
    };
    for key in ["d", "b", "a", "c"] {
        kv.0.put(put_on(key, 1)).await.unwrap();
    }
    assert_eq!(keys_of(1).await, ["a", "b", "c", "d"]);
    kv.0.put(put_on("a", 2)).await.unwrap();
    kv.0.put(put_on("b", 0)).await.unwrap();
    kv.0.delete_range(crate::store::delete("c", ""))
        .await
        .unwrap();
    assert_eq!(keys_of(1).await, ["d"], "moved, detached, deleted");
    assert_eq!(keys_of(2).await, ["a"]);
    let keep = pb::PutRequest {
        ignore_lease: true,
        ..put("a", "y")
    };
    kv.0.put(keep).await.unwrap();
    assert_eq!(keys_of(2).await, ["a"], "kept when asked to");
    let first = kv.range(crate::store::range("a", "")).await.unwrap();
    assert_eq!(first.kvs[0].lease, 2);
}

#[tokio::test]
async fn a_revoked_lease_deletes_its_keys_in_order_in_one_revision() {
    let store = Store::start().await;
    let (mut lease, mut kv) = (store.lease().await, store.kv().await);
    lease.lease_grant(grant(600, 1)).await.unwrap();
    for key in ["z", "m", "a"] {
        let on = pb::PutRequest {
            lease: 1,
            ..put(key, "x")
        };
        kv.0.put(on).await.unwrap();
    }
    let mut client = crate::watch::Client::open(&store).await;
    client.create(crate::watch::on("a", "\0")).await;
    let revoke = pb::LeaseRevokeRequest { id: 1 };
    let revoked = lease.lease_revoke(revoke).await.unwrap().into_inner();
    assert_eq!(revoked.header.unwrap().revision, 5);
    let reply = client.next().await;
    let key = |event: &proto::mvccpb::Event| {
        let kv = event.kv.clone().unwrap();
        (kv.key, kv.mod_revision)
    };
    let keys: Vec<_> = reply.events.iter().map(key).collect();
    assert_eq!(keys, [("a".into(), 5), ("m".into(), 5), ("z".into(), 5)]);
    // A lease without keys takes no revision.
    lease.lease_grant(grant(600, 1)).await.unwrap();
    let revoked = lease.lease_revoke(revoke).await.unwrap().into_inner();
    assert_eq!(revoked.header.unwrap().revision, 5);
}
