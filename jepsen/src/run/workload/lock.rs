//! Locks: a client takes one, writes under it, and gives it back. With a fence it
//! writes only if the lock's key is still there; without, it trusts its own belief,
//! as so many do, and a pause of its own makes that wrong.

use std::time::Duration;

use checkers::history::{
    Blob, Body, Compare, Held, Is, Outcome, Range, Record, Request, Span, Target, Txn, TxnOp,
};

use rand::Rng;

use super::super::client::{Client, PATIENCE, first, put, txn};

/// How long a lock's lease lasts, in seconds.
const TTL: i64 = 2;
/// How long a client waits for a lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How long one step of the work takes.
const STEP: Duration = Duration::from_millis(150);
/// How long a client now and then does nothing at all, as programs do that collect
/// garbage or wait for a disk: longer than its lease lasts.
const ABSENCE: Duration = Duration::from_secs(4);
/// How many steps there are under a lock.
const STEPS: usize = 6;

/// Whether writes under a lock are guarded by it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// By the existence of its key, in the same transaction.
    Fence,
    /// By nothing.
    None,
}

/// Takes the lock, works, gives it back.
pub(super) async fn run(mut client: Client, guard: Guard) {
    let name = Blob::from(if guard == Guard::Fence {
        "lock"
    } else {
        "lock-alone"
    });
    while !client.world.stopped() {
        let id = (1 << 41) + i64::try_from(client.world.count("lock")).unwrap_or(0);
        if client
            .get_reply(Request::Grant { id, ttl: TTL })
            .await
            .is_none()
        {
            continue;
        }
        client.patience = LOCK_PATIENCE;
        let lock = Request::Lock {
            name: name.clone(),
            lease: id,
        };
        // Somebody renews the lease while its client waits.
        let renewing = renew(&client, id);
        let told = tokio::select! {
            told = client.ask(lock) => told,
            () = renewing => continue,
        };
        client.patience = PATIENCE;
        if let Outcome::Ok(reply) = told
            && let Body::Lock { key } = reply.body
        {
            hold(&mut client, &name, key, id, guard).await;
        }
        client.ask(Request::Revoke { id }).await;
    }
}

/// Renews a lease for as long as this is polled, as a process of its own.
fn renew(client: &Client, id: i64) -> impl Future<Output = ()> + use<> {
    let mut other = Client::new(&client.world, client.member, id.unsigned_abs());
    other.member = client.member;
    async move {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            other.ask(Request::KeepAlive { id }).await;
        }
    }
}

async fn hold(client: &mut Client, name: &Blob, key: Blob, lease: i64, guard: Guard) {
    let (process, call) = (client.process, client.world.now());
    // The fence is the revision that made the key; it grows with every holder.
    let Some(Some(kv)) = client.read(&key).await else {
        return;
    };
    let fence = kv.create;
    let (mut guarded, mut unguarded) = (Vec::new(), Vec::new());
    let until = tokio::time::Instant::now() + STEP * u32::try_from(STEPS).unwrap_or(1);
    while tokio::time::Instant::now() < until && !client.world.stopped() {
        if client.rng.random_bool(0.05) {
            // It does not know, and goes on as if nothing had been.
            tokio::time::sleep(ABSENCE).await;
        }
        if !work(
            client,
            name,
            &key,
            fence,
            guard,
            &mut guarded,
            &mut unguarded,
        )
        .await
        {
            break;
        }
        client.ask(Request::KeepAlive { id: lease }).await;
        tokio::time::sleep(STEP).await;
    }
    let held = Held {
        span: Span {
            process,
            call,
            ret: client.world.now(),
        },
        name: name.clone(),
        key: key.clone(),
        lease,
        fence,
        guarded,
        unguarded,
    };
    client.world.record(Record::Held(held));
    client.ask(Request::Unlock { key }).await;
}

/// Does one step of work; returns whether the lock is still held for all this client
/// knows.
async fn work(
    client: &mut Client,
    name: &Blob,
    key: &Blob,
    fence: i64,
    guard: Guard,
    guarded: &mut Vec<i64>,
    unguarded: &mut Vec<u64>,
) -> bool {
    let target = format!("work/{name}");
    let write = put(target.as_str(), client.unique());
    if guard == Guard::None {
        // When it begins to write is when it must hold the lock.
        let at = client.world.now();
        if client.get_reply(Request::Put(write)).await.is_some() {
            unguarded.push(at);
        }
        return true;
    }
    let fenced = Txn {
        compare: vec![Compare {
            key: key.clone(),
            end: Blob::EMPTY,
            is: Is::Equal,
            to: Target::Create(fence),
        }],
        success: vec![TxnOp::Put(write)],
        failure: vec![TxnOp::Range(Range {
            key: target.as_str().into(),
            ..Range::default()
        })],
    };
    match client.get_reply(txn(fenced)).await {
        Some(reply) => {
            let Body::Txn { succeeded, results } = reply.body else {
                return false;
            };
            if succeeded {
                guarded.push(reply.revision);
            } else {
                // It was fenced off: what others did is there to be seen.
                let _by_others = results.first().and_then(first);
            }
            succeeded
        }
        None => true,
    }
}
