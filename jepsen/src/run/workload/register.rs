//! Registers: a few clients read, write and compare-and-swap one key, until it has
//! seen enough and the next takes its turn. Short, so that a search for an order of
//! all of it comes to an end.

use checkers::history::{Compare, Is, Request, Target, Txn};
use rand::Rng;

use super::super::client::{Client, get, in_txn, put, txn};

/// After so many operations a register is left alone.
const OPS_PER_KEY: u64 = 200;

/// Reads, writes and swaps.
pub(super) async fn run(mut client: Client) {
    let mut last = None;
    let mut at = u64::MAX;
    while !client.world.stopped() {
        let now = client.world.count("register") / OPS_PER_KEY;
        if now != at {
            (at, last) = (now, None);
        }
        let key = format!("register/{at}");
        match client.rng.random_range(0..10) {
            0..5 => {
                if let Some(found) = client.read(&key.into()).await {
                    last = found.map(|kv| kv.value);
                }
            }
            5..7 => {
                let value = client.unique();
                let write = Request::Put(put(key, value.clone()));
                if client.get_reply(write).await.is_some() {
                    last = Some(value);
                }
            }
            _ => {
                let Some(expected) = last.clone() else {
                    client.ask(get(key)).await;
                    continue;
                };
                let value = client.unique();
                let swap = Txn {
                    compare: vec![Compare {
                        key: key.as_str().into(),
                        end: checkers::history::Blob::EMPTY,
                        is: Is::Equal,
                        to: Target::Value(expected),
                    }],
                    success: vec![checkers::history::TxnOp::Put(put(
                        key.as_str(),
                        value.clone(),
                    ))],
                    failure: vec![in_txn(key)],
                };
                let told = client.get_reply(txn(swap)).await;
                if let Some(checkers::history::Body::Txn { succeeded, results }) =
                    told.map(|r| r.body)
                {
                    last = match succeeded {
                        true => Some(value),
                        false => results
                            .first()
                            .and_then(super::super::client::first)
                            .map(|kv| kv.value),
                    };
                }
            }
        }
    }
}
