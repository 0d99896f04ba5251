//! What API servers do to a store: optimistic writes guarded by the revision that was
//! read, lists in pages at one revision, and a watch from there.

use std::time::Duration;

use checkers::history::{
    Blob, Body, Compare, Delete, Is, Kv, Range, Request, Target, Txn, TxnOp, WatchRequest,
};
use rand::Rng;

use super::super::client::{Client, get, in_txn, put, txn};
use super::super::watching::watch;

/// Where pods are kept.
const PREFIX: &str = "/registry/pods/default/";
/// About how many there are.
const PODS: u32 = 10;
/// How many a page has.
const PAGE: i64 = 3;
/// How long a watch after a list lasts.
const WATCH: std::ops::Range<Duration> = Duration::from_millis(300)..Duration::from_secs(3);
/// Every so many clients one lists and watches; the others write.
const WATCHES_EVERY: usize = 4;

/// Writes, or lists and watches.
pub(super) async fn run(mut client: Client) {
    let watches = client.number % WATCHES_EVERY == WATCHES_EVERY - 1;
    while !client.world.stopped() {
        if watches {
            list_and_watch(&mut client).await;
        } else {
            write(&mut client).await;
        }
    }
}

fn pod(client: &mut Client) -> Blob {
    let number = client.rng.random_range(0..PODS);
    format!("{PREFIX}{number:05}").into()
}

async fn write(client: &mut Client) {
    let key = pod(client);
    let Some(found) = client.read(&key).await else {
        return;
    };
    let guard = |found: Option<&Kv>| Compare {
        key: key.clone(),
        end: Blob::EMPTY,
        is: Is::Equal,
        to: Target::Mod(found.map_or(0, |kv| kv.modified)),
    };
    let success = match &found {
        None => TxnOp::Put(put(key.clone(), client.unique())),
        Some(_) if client.rng.random_bool(0.1) => TxnOp::Delete(Delete {
            key: key.clone(),
            ..Delete::default()
        }),
        Some(_) => TxnOp::Put(put(key.clone(), client.unique())),
    };
    let request = Txn {
        compare: vec![guard(found.as_ref())],
        success: vec![success],
        // Whoever loses the race is told what is there.
        failure: vec![in_txn(key.clone())],
    };
    client.ask(txn(request)).await;
    // One read in between, of the past now and then.
    match client.rng.random_range(0..3) {
        0 => {
            client.ask(get(key)).await;
        }
        1 => {
            let revision = found.map_or(0, |kv| kv.modified);
            let read = Range {
                key,
                revision,
                ..Range::default()
            };
            client.ask(Request::Range(read)).await;
        }
        _ => {}
    }
}

async fn list_and_watch(client: &mut Client) {
    let end = Blob::from(PREFIX).prefix_end();
    let mut revision = 0;
    let mut from = Blob::from(PREFIX);
    loop {
        let page = Range {
            key: from.clone(),
            end: end.clone(),
            limit: PAGE,
            revision,
            ..Range::default()
        };
        let Some(told) = client.get_reply(Request::Range(page)).await else {
            return;
        };
        if revision == 0 {
            revision = told.revision;
        }
        let Body::Range { kvs, more, .. } = told.body else {
            return;
        };
        match kvs.last() {
            Some(last) if more => {
                let mut next = last.key.to_vec();
                next.push(0);
                from = next.into();
            }
            _ => break,
        }
    }
    let request = WatchRequest {
        key: PREFIX.into(),
        end,
        revision: revision + 1,
        prev_kv: true,
        progress: true,
        ..WatchRequest::default()
    };
    let lasts = client.rng.random_range(WATCH);
    let Some(channel) = client.world.channel(client.member) else {
        client.move_on();
        return;
    };
    // A watch is at work while its client does something else.
    let at = (client.world.process(), client.member);
    let over = tokio::time::sleep(lasts);
    watch(&client.world, at, channel, &request, false, over).await;
    client.move_on();
}
