//! Watchers and writers: watches begin in the past, now, in the future and before
//! what was compacted, ask for all or a part, and go on elsewhere where they ended.

use std::time::Duration;

use checkers::history::{Blob, Delete, Request, Txn, TxnOp, WatchRequest};
use rand::Rng;

use super::super::client::{Client, put, txn};
use super::super::watching::watch;

/// How many keys there are.
const KEYS: u32 = 5;
/// How far from now a watch may begin.
const REVISIONS_MAX: i64 = 100;
/// How long a watch lasts.
const LASTS: std::ops::Range<Duration> = Duration::from_millis(300)..Duration::from_secs(4);
/// Every so many clients one writes; the others watch.
const WRITES_EVERY: usize = 3;

/// Writes or watches.
pub(super) async fn run(client: Client) {
    match client.number % WRITES_EVERY {
        0 => write(client).await,
        _ => keep_watching(client).await,
    }
}

async fn write(mut client: Client) {
    while !client.world.stopped() {
        let key = |n: u32| Blob::from(format!("watch/{}", n % KEYS));
        let n = client.rng.random_range(0..KEYS);
        let request = match client.rng.random_range(0..10) {
            0..5 => Request::Put(put(key(n), client.unique())),
            5..7 => Request::Delete(Delete {
                key: key(n),
                ..Delete::default()
            }),
            // Several events of one revision, which belong together.
            _ => txn(Txn {
                success: vec![
                    TxnOp::Put(put(key(n), client.unique())),
                    TxnOp::Delete(Delete {
                        key: key(n + 1),
                        ..Delete::default()
                    }),
                    TxnOp::Put(put(key(n + 2), client.unique())),
                ],
                ..Txn::default()
            }),
        };
        client.ask(request).await;
    }
}

async fn keep_watching(mut client: Client) {
    let mut resume = None;
    while !client.world.stopped() {
        let newest = client.world.newest();
        let prefix = Blob::from("watch/");
        let one = Blob::from(format!("watch/{}", client.rng.random_range(0..KEYS)));
        let (key, end) = match client.rng.random_range(0..3) {
            0 => (one, Blob::EMPTY),
            1 => (prefix.clone(), prefix.prefix_end()),
            _ => (one, Blob::from(vec![0])),
        };
        let (key, end, revision) = match resume.take() {
            // As a client does that goes on with another member.
            Some((key, end, revision)) if client.rng.random_bool(0.5) => (key, end, revision),
            _ => {
                let away = client.rng.random_range(-REVISIONS_MAX..=REVISIONS_MAX);
                let revision = match client.rng.random_range(0..4) {
                    0 => 0,
                    1 => (newest - away.abs()).max(1),
                    _ => (newest + away).max(1),
                };
                (key, end, revision)
            }
        };
        let request = WatchRequest {
            key: key.clone(),
            end: end.clone(),
            revision,
            prev_kv: client.rng.random_bool(0.5),
            progress: client.rng.random_bool(0.5),
            no_put: client.rng.random_bool(0.1),
            no_delete: client.rng.random_bool(0.1),
            fragment: client.rng.random_bool(0.2),
        };
        let lasts = client.rng.random_range(LASTS);
        client.process = client.world.process();
        client.move_on();
        let Some(channel) = client.world.channel(client.member) else {
            continue;
        };
        let at = (client.process, client.member);
        let over = tokio::time::sleep(lasts);
        let ended = watch(&client.world, at, channel, &request, false, over).await;
        if ended.next > 0 && !request.no_put && !request.no_delete {
            resume = Some((key, end, ended.next));
        }
        // A member that is down refuses at once.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
