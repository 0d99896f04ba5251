//! Leases: each client has one at a time, with keys on it, and renews it, gives it
//! back, or lets it expire.

use std::time::Duration;

use checkers::history::{Body, LeaseId, Put, Request};
use rand::Rng;

use super::super::client::{Client, get, put};

/// The shortest lease there is depends on the election timeout; a store may grant more.
const TTLS: std::ops::RangeInclusive<i64> = 2..=5;
/// How long after its time a lease is looked at again.
const AFTER: Duration = Duration::from_secs(2);
/// The pause between two steps.
const STEP: Duration = Duration::from_millis(200);
/// How many steps a lease is used for at most.
const STEPS_MAX: u32 = 12;

/// Has one lease after the other.
pub(super) async fn run(mut client: Client) {
    while !client.world.stopped() {
        // Large, so that no store chooses the same by itself.
        let id = (1 << 40) + i64::try_from(client.world.count("lease")).unwrap_or(0);
        let ttl = client.rng.random_range(TTLS);
        let granted = client.get_reply(Request::Grant { id, ttl }).await;
        let Some(Body::Lease { ttl, .. }) = granted.map(|r| r.body) else {
            continue;
        };
        use_it(&mut client, id, ttl).await;
    }
}

async fn use_it(client: &mut Client, id: LeaseId, ttl: i64) {
    let key = |n: u32| format!("lease/{id}/{n}");
    let keys = client.rng.random_range(1..4);
    for n in 0..keys {
        let write = put(key(n), client.unique());
        client.ask(Request::Put(Put { lease: id, ..write })).await;
    }
    for _ in 0..client.rng.random_range(0..STEPS_MAX) {
        if client.world.stopped() {
            return;
        }
        let n = client.rng.random_range(0..keys);
        let request = match client.rng.random_range(0..6) {
            0..3 => Request::KeepAlive { id },
            3 => Request::TimeToLive { id },
            4 => get(key(n)),
            // Now and then a key leaves its lease, and stays.
            _ => {
                let write = put(key(n), client.unique());
                let lease = if client.rng.random_bool(0.7) { id } else { 0 };
                Request::Put(Put { lease, ..write })
            }
        };
        client.ask(request).await;
        tokio::time::sleep(STEP).await;
    }
    if client.rng.random_bool(0.4) {
        client.ask(Request::Revoke { id }).await;
    } else {
        let left = Duration::from_secs(u64::try_from(ttl).unwrap_or(0)) + AFTER;
        let until = tokio::time::Instant::now() + left;
        while tokio::time::Instant::now() < until && !client.world.stopped() {
            tokio::time::sleep(STEP).await;
        }
    }
    for n in 0..keys {
        client.ask(get(key(n))).await;
    }
    client.ask(Request::TimeToLive { id }).await;
}
