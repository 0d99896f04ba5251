//! Everything the key-value service does, on a few keys, so that clients meet.

use checkers::history::{Blob, Compare, Delete, Is, Put, Range, Request, Target, Txn, TxnOp};
use rand::Rng;

use super::super::client::{Client, get, in_txn, put, txn};

/// How many keys there are.
const KEYS: u32 = 10;
/// How far back reads of the past go.
const PAST_REVISIONS: i64 = 60;

/// Does one thing after the other.
pub(super) async fn run(mut client: Client) {
    // One prefix for each run of it, though several share the store.
    let prefix = "kv/";
    while !client.world.stopped() {
        let request = draw(&mut client, prefix);
        client.ask(request).await;
    }
}

fn key(client: &mut Client, prefix: &str) -> Blob {
    let number = client.rng.random_range(0..KEYS);
    format!("{prefix}{number}").into()
}

/// Draws a span of keys.
fn range(client: &mut Client, prefix: &str) -> Range {
    let first = client.rng.random_range(0..KEYS);
    let whole = Blob::from(prefix);
    let (key, end) = match client.rng.random_range(0..3) {
        0 => (whole.clone(), whole.prefix_end()),
        1 => (format!("{prefix}{first}").into(), whole.prefix_end()),
        _ => {
            let last = client.rng.random_range(first..=KEYS);
            (
                format!("{prefix}{first}").into(),
                format!("{prefix}{last}").into(),
            )
        }
    };
    Range {
        key,
        end,
        limit: [0, 0, 1, 3][client.rng.random_range(0..4)],
        ..Range::default()
    }
}

fn draw(client: &mut Client, prefix: &str) -> Request {
    match client.rng.random_range(0..100) {
        0..34 => {
            let put = put(key(client, prefix), client.unique());
            let prev_kv = client.rng.random_bool(0.3);
            Request::Put(Put { prev_kv, ..put })
        }
        34..54 => get(key(client, prefix)),
        54..64 => Request::Range(range(client, prefix)),
        64..67 => Request::Range(Range {
            count_only: true,
            ..range(client, prefix)
        }),
        67..70 => Request::Range(Range {
            keys_only: true,
            ..range(client, prefix)
        }),
        70..75 => {
            let back = client.rng.random_range(-3..PAST_REVISIONS);
            Request::Range(Range {
                revision: (client.world.newest() - back).max(1),
                ..range(client, prefix)
            })
        }
        75..80 => Request::Range(Range {
            serializable: true,
            ..range(client, prefix)
        }),
        80..85 => Request::Delete(Delete {
            key: key(client, prefix),
            prev_kv: client.rng.random_bool(0.5),
            ..Delete::default()
        }),
        85..87 => {
            let range = range(client, prefix);
            Request::Delete(Delete {
                key: range.key,
                end: range.end,
                prev_kv: client.rng.random_bool(0.5),
            })
        }
        _ => txn(transaction(client, prefix, 1)),
    }
}

fn compare(client: &mut Client, prefix: &str) -> Compare {
    let newest = client.world.newest();
    let near = newest - client.rng.random_range(0..30);
    let to = match client.rng.random_range(0..5) {
        0 => Target::Version(client.rng.random_range(0..4)),
        1 => Target::Create(near),
        2 => Target::Mod(near),
        3 => Target::Mod(0),
        _ => Target::Value(client.world.count("compared").to_string().into()),
    };
    let is = [Is::Equal, Is::NotEqual, Is::Greater, Is::Less][client.rng.random_range(0..4)];
    Compare {
        key: key(client, prefix),
        end: Blob::EMPTY,
        is,
        to,
    }
}

/// Draws a transaction; one in it may nest another, so deep.
fn transaction(client: &mut Client, prefix: &str, deep: u32) -> Txn {
    let compares = client.rng.random_range(0..3);
    let compare = (0..compares).map(|_| compare(client, prefix)).collect();
    Txn {
        compare,
        success: branch(client, prefix, deep),
        failure: branch(client, prefix, deep),
    }
}

/// Draws what a transaction does; no key is written twice, which the store refuses.
fn branch(client: &mut Client, prefix: &str, deep: u32) -> Vec<TxnOp> {
    let mut ops = Vec::new();
    let first = client.rng.random_range(0..KEYS);
    for number in 0..client.rng.random_range(0..4) {
        // Each has keys of its own, which a nested one shares with nobody.
        let own = (first + number * 3 + 5 * (1 - deep)) % KEYS;
        let own = Blob::from(format!("{prefix}{own}"));
        ops.push(match client.rng.random_range(0..10) {
            0..5 => TxnOp::Put(put(own, client.unique())),
            5..8 => in_txn(own),
            8 => TxnOp::Delete(Delete {
                key: own,
                ..Delete::default()
            }),
            _ if deep > 0 && number == 0 => {
                TxnOp::Txn(Box::new(transaction(client, "kv/nested/", deep - 1)))
            }
            _ => in_txn(own),
        });
    }
    ops
}
