//! Locks and elections on the server. What is expected here is what etcd 3.5.1
//! answers to the same calls, codes and texts included.

use std::time::Duration;

use futures::StreamExt as _;
use proto::{
    etcdserverpb as pb,
    v3electionpb::{self as epb, election_client::ElectionClient},
    v3lockpb::{LockRequest, UnlockRequest, lock_client::LockClient},
};
use tokio::time::{Instant, timeout};

use crate::store::{DEADLINE, Store, bytes, put, range, refused};

const UNKNOWN: i32 = 2;

async fn grant(store: &Store, id: i64) {
    let request = pb::LeaseGrantRequest { ttl: 600, id };
    store.lease().await.lease_grant(request).await.unwrap();
}

async fn revoke(store: &Store, id: i64) {
    let request = pb::LeaseRevokeRequest { id };
    store.lease().await.lease_revoke(request).await.unwrap();
}

/// Waits until so many keys are there under a prefix that ends in a slash.
async fn until_keys(store: &Store, prefix: &str, count: i64) {
    let mut kv = store.kv().await;
    let deadline = Instant::now() + DEADLINE;
    let end = prefix.replace('/', "0");
    loop {
        let found = kv.range(range(prefix, &end)).await.unwrap().count;
        if found == count {
            return;
        }
        assert!(Instant::now() < deadline, "{found} keys, not {count}");
        tokio::task::yield_now().await;
    }
}

fn ask(name: &str, lease: i64) -> LockRequest {
    LockRequest {
        name: bytes(name),
        lease,
    }
}

#[tokio::test]
async fn a_lock_has_one_holder_and_the_others_wait_in_turn() {
    let store = Store::start().await;
    for lease in [0xa1, 0xb2, 0xc3] {
        grant(&store, lease).await;
    }
    let mut first = LockClient::new(store.channel().await);
    let held = first.lock(ask("l", 0xa1)).await.unwrap().into_inner();
    assert_eq!(held.key, "l/a1");
    assert_eq!(held.header.unwrap().revision, 2);
    let again = first.lock(ask("l", 0xa1)).await.unwrap().into_inner();
    assert_eq!(again.header.unwrap().revision, 2, "held already");
    let channel = store.channel().await;
    let wait = |lease| {
        let mut client = LockClient::new(channel.clone());
        tokio::spawn(async move { client.lock(ask("l", lease)).await })
    };
    let second = wait(0xb2);
    until_keys(&store, "l/", 2).await;
    let third = wait(0xc3);
    until_keys(&store, "l/", 3).await;
    assert!(!second.is_finished() && !third.is_finished());
    first.unlock(UnlockRequest { key: held.key }).await.unwrap();
    let held = timeout(DEADLINE, second).await.unwrap().unwrap().unwrap();
    assert_eq!(held.into_inner().key, "l/b2");
    assert!(!third.is_finished());
    revoke(&store, 0xb2).await;
    let held = timeout(DEADLINE, third).await.unwrap().unwrap().unwrap();
    assert_eq!(
        held.into_inner().key,
        "l/c3",
        "the lease took the lock along"
    );
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_queue() {
    let store = Store::start().await;
    for lease in [1, 2, 3] {
        grant(&store, lease).await;
    }
    let mut client = LockClient::new(store.channel().await);
    client.lock(ask("l", 1)).await.unwrap();
    let mut impatient = client.clone();
    let waiting = tokio::spawn(async move { impatient.lock(ask("l", 2)).await });
    until_keys(&store, "l/", 2).await;
    waiting.abort();
    until_keys(&store, "l/", 1).await;
    let mut short = tonic::Request::new(ask("l", 3));
    short.set_timeout(Duration::from_millis(100));
    client.lock(short).await.unwrap_err();
    until_keys(&store, "l/", 1).await;
}

#[tokio::test]
async fn a_waiter_whose_session_ends_is_told() {
    let store = Store::start().await;
    for lease in [1, 2, 3] {
        grant(&store, lease).await;
    }
    let mut client = LockClient::new(store.channel().await);
    let held = client.lock(ask("l", 1)).await.unwrap().into_inner();
    let mut waiter = client.clone();
    let waiting = tokio::spawn(async move { waiter.lock(ask("l", 2)).await });
    until_keys(&store, "l/", 2).await;
    revoke(&store, 2).await;
    client
        .unlock(UnlockRequest { key: held.key })
        .await
        .unwrap();
    let told = timeout(DEADLINE, waiting).await.unwrap().unwrap();
    refused(told, UNKNOWN, "mutex: session is expired");
}

#[tokio::test]
async fn locks_refuse_as_etcd_does() {
    let store = Store::start().await;
    let mut client = LockClient::new(store.channel().await);
    let unknown = "etcdserver: requested lease not found";
    refused(client.lock(ask("l", 77)).await, UNKNOWN, unknown);
    let nothing = UnlockRequest { key: bytes("") };
    let empty = "etcdserver: key is not provided";
    refused(client.unlock(nothing).await, UNKNOWN, empty);
    let nobodys = UnlockRequest { key: bytes("l/x") };
    client.unlock(nobodys).await.unwrap();
    let held = client.lock(ask("l", 0)).await.unwrap().into_inner();
    let mut lease = store.lease().await;
    let leases = lease.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap();
    let leases = leases.into_inner().leases;
    assert_eq!(held.key, format!("l/{:x}", leases[0].id), "a new session");
    let ask = pb::LeaseTimeToLiveRequest {
        id: leases[0].id,
        keys: true,
    };
    let told = lease.lease_time_to_live(ask).await.unwrap();
    assert_eq!(told.get_ref().granted_ttl, 60);
    assert_eq!(told.get_ref().keys, [held.key]);
}

fn candidate(lease: i64, value: &str) -> epb::CampaignRequest {
    epb::CampaignRequest {
        name: bytes("e"),
        lease,
        value: bytes(value),
    }
}

fn of(name: &str) -> epb::LeaderRequest {
    epb::LeaderRequest { name: bytes(name) }
}

#[tokio::test]
async fn an_election_has_one_leader_at_a_time() {
    let store = Store::start().await;
    for lease in [99, 98] {
        grant(&store, lease).await;
    }
    let mut client = ElectionClient::new(store.channel().await);
    let no_leader = "election: no leader";
    refused(client.leader(of("e")).await, UNKNOWN, no_leader);
    refused(client.leader(of("")).await, UNKNOWN, no_leader);
    let won = client.campaign(candidate(99, "v1")).await.unwrap();
    let won = won.into_inner();
    assert_eq!(won.header.unwrap().revision, 2);
    let leader = won.leader.unwrap();
    assert_eq!(leader.key, "e/63");
    assert_eq!((leader.rev, leader.lease), (2, 99));
    // The same session again, with another value: it proclaims.
    let again = client.campaign(candidate(99, "v2")).await.unwrap();
    let again = again.into_inner();
    assert_eq!(again.header.unwrap().revision, 2, "when it entered");
    assert_eq!(again.leader.as_ref(), Some(&leader));
    let found = client.leader(of("e")).await.unwrap().into_inner();
    let kv = found.kv.unwrap();
    assert_eq!((kv.value.as_ref(), kv.mod_revision), (&b"v2"[..], 3));
    let mut other = client.clone();
    let next = tokio::spawn(async move { other.campaign(candidate(98, "w")).await });
    until_keys(&store, "e/", 2).await;
    let proclaim = epb::ProclaimRequest {
        leader: Some(leader.clone()),
        value: bytes("v3"),
    };
    let said = client.proclaim(proclaim.clone()).await.unwrap();
    assert_eq!(said.into_inner().header.unwrap().revision, 5);
    assert!(!next.is_finished());
    let resign = epb::ResignRequest {
        leader: Some(leader),
    };
    let gone = client.resign(resign.clone()).await.unwrap();
    assert_eq!(gone.into_inner().header.unwrap().revision, 6);
    let won = timeout(DEADLINE, next).await.unwrap().unwrap().unwrap();
    assert_eq!(won.into_inner().leader.unwrap().key, "e/62");
    let not_leader = "election: not leader";
    refused(client.proclaim(proclaim).await, UNKNOWN, not_leader);
    // To resign twice is harmless.
    let gone = client.resign(resign).await.unwrap();
    assert_eq!(gone.into_inner().header.unwrap().revision, 6);
}

#[tokio::test]
async fn elections_refuse_as_etcd_does() {
    let store = Store::start().await;
    grant(&store, 99).await;
    let mut client = ElectionClient::new(store.channel().await);
    let field = r#""leader" field must be provided"#;
    let nobody = epb::ProclaimRequest::default();
    refused(client.proclaim(nobody).await, UNKNOWN, field);
    let nobody = epb::ResignRequest::default();
    refused(client.resign(nobody).await, UNKNOWN, field);
    let keyless = Some(epb::LeaderKey {
        lease: 99,
        ..epb::LeaderKey::default()
    });
    let empty = "etcdserver: key is not provided";
    let request = epb::ProclaimRequest {
        leader: keyless.clone(),
        value: bytes("x"),
    };
    refused(client.proclaim(request).await, UNKNOWN, empty);
    let request = epb::ResignRequest { leader: keyless };
    refused(client.resign(request).await, UNKNOWN, empty);
    let unknown = "etcdserver: requested lease not found";
    refused(client.campaign(candidate(77, "x")).await, UNKNOWN, unknown);
    assert_eq!(store.running().handle.revision(), 1);
}

#[tokio::test]
async fn a_candidate_that_hangs_up_is_none_any_more() {
    let store = Store::start().await;
    for lease in [1, 2] {
        grant(&store, lease).await;
    }
    let mut client = ElectionClient::new(store.channel().await);
    client.campaign(candidate(1, "a")).await.unwrap();
    let mut other = client.clone();
    let waiting = tokio::spawn(async move { other.campaign(candidate(2, "b")).await });
    until_keys(&store, "e/", 2).await;
    waiting.abort();
    until_keys(&store, "e/", 1).await;
}

#[tokio::test]
async fn observers_hear_of_every_leader_in_order() {
    let store = Store::start().await;
    for lease in [1, 2] {
        grant(&store, lease).await;
    }
    let mut client = ElectionClient::new(store.channel().await);
    let mut heard = client.observe(of("e")).await.unwrap().into_inner();
    let mut next = async || {
        let heard = timeout(DEADLINE, heard.next()).await.unwrap();
        let heard = heard.unwrap().unwrap();
        let kv = heard.kv.unwrap();
        let value = String::from_utf8(kv.value.to_vec()).unwrap();
        (value, kv.mod_revision, heard.header.unwrap().revision)
    };
    let won = client.campaign(candidate(1, "a")).await.unwrap();
    let first = won.into_inner().leader;
    assert_eq!(next().await, ("a".to_owned(), 2, 2));
    let proclaim = epb::ProclaimRequest {
        leader: first.clone(),
        value: bytes("b"),
    };
    client.proclaim(proclaim).await.unwrap();
    assert_eq!(next().await, ("b".to_owned(), 3, 3));
    store.kv().await.0.put(put("other", "x")).await.unwrap();
    let resign = epb::ResignRequest { leader: first };
    client.resign(resign).await.unwrap();
    client.campaign(candidate(2, "c")).await.unwrap();
    let (value, modified, _) = next().await;
    assert_eq!((value.as_str(), modified), ("c", 6));
}
