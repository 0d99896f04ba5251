//! A set in one key: an element is added by reading it, and writing it back if
//! nobody else did meanwhile.

use checkers::history::{
    Blob, Body, Compare, Is, Known, Kv, Outcome, Record, SetOp, SetWhat, Target, Txn, TxnOp,
};
use rand::Rng;

use super::super::client::{Client, put, txn};

/// After so many elements the next set takes its turn.
const ELEMENTS_PER_SET: u64 = 200;
/// How often an add that lost a race is begun again with what is there now. Nothing
/// was written then, so that this is no retry of a write.
const RACES_MAX: usize = 5;

/// Adds and reads.
pub(super) async fn run(mut client: Client) {
    while !client.world.stopped() {
        let count = client.world.count("set");
        let set = count / ELEMENTS_PER_SET;
        if client.rng.random_bool(0.3) {
            read(&mut client, set).await;
        } else {
            add(&mut client, set, count).await;
        }
    }
}

fn key(set: u64) -> Blob {
    format!("set/{set}").into()
}

fn elements(kv: Option<&Kv>) -> Vec<u64> {
    let text = kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    let text = text.unwrap_or_default();
    text.split(' ').filter_map(|n| n.parse().ok()).collect()
}

async fn read(client: &mut Client, set: u64) {
    let (process, call) = (client.process, client.world.now());
    let found = client.read(&key(set)).await;
    let outcome = match &found {
        Some(_) => Known::Ok,
        None => Known::Fail,
    };
    let found = elements(found.flatten().as_ref());
    note(client, process, call, set, SetWhat::Read(found), outcome);
}

async fn add(client: &mut Client, set: u64, element: u64) {
    let (process, call) = (client.process, client.world.now());
    let mut outcome = Known::Fail;
    for _ in 0..RACES_MAX {
        let Some(found) = client.read(&key(set)).await else {
            break;
        };
        let mut text: Vec<String> = elements(found.as_ref())
            .iter()
            .map(u64::to_string)
            .collect();
        text.push(element.to_string());
        let swap = guarded(key(set), found.as_ref(), text.join(" ").into());
        match client.ask(swap).await {
            Outcome::Ok(reply)
                if matches!(
                    reply.body,
                    Body::Txn {
                        succeeded: true,
                        ..
                    }
                ) =>
            {
                outcome = Known::Ok;
                break;
            }
            Outcome::Ok(_) => {}
            Outcome::Fail(_) => break,
            Outcome::Info(_) => {
                outcome = Known::Info;
                break;
            }
        }
    }
    note(client, process, call, set, SetWhat::Add(element), outcome);
}

/// Writes a key unless it changed since it was read.
pub(super) fn guarded(key: Blob, found: Option<&Kv>, value: Blob) -> checkers::history::Request {
    txn(Txn {
        compare: vec![Compare {
            key: key.clone(),
            end: Blob::EMPTY,
            is: Is::Equal,
            to: Target::Mod(found.map_or(0, |kv| kv.modified)),
        }],
        success: vec![TxnOp::Put(put(key, value))],
        failure: Vec::new(),
    })
}

fn note(client: &Client, process: u32, call: u64, set: u64, what: SetWhat, outcome: Known) {
    client.world.record(Record::Set(SetOp {
        span: client.span(process, call),
        set,
        what,
        outcome,
    }));
}
