//! Transactions that append to lists, after Elle: what is read tells the order in
//! which everything was appended.
//!
//! The store cannot append. So a transaction reads its lists first, and writes them
//! back in a second one that holds only if none of them changed.

use std::collections::BTreeMap;

use checkers::history::{
    Blob, Body, Compare, Is, Known, Kv, ListTxn, Micro, Outcome, Record, Target, Txn, TxnOp,
};
use rand::Rng;

use super::super::client::{Client, first, in_txn, put, txn};

/// How many lists are in use at a time.
const ACTIVE: u64 = 3;
/// After so many transactions one of them is replaced by a new one.
const TXNS_PER_LIST: u64 = 60;
/// How much a transaction does at most.
const OPS_MAX: usize = 4;

/// Does one transaction after the other.
pub(super) async fn run(mut client: Client) {
    while !client.world.stopped() {
        let turn = client.world.count("append") / TXNS_PER_LIST;
        let mut ops = Vec::new();
        for _ in 0..client.rng.random_range(1..=OPS_MAX) {
            let list = turn + client.rng.random_range(0..ACTIVE);
            ops.push(match client.rng.random_bool(0.5) {
                true => Micro::Read(list, None),
                false => {
                    let element = client.world.count(&format!("append/{list}")) + 1;
                    Micro::Append(list, element)
                }
            });
        }
        transact(&mut client, ops).await;
    }
}

fn key(list: u64) -> Blob {
    format!("append/{list}").into()
}

fn list_of(op: &Micro) -> u64 {
    match op {
        Micro::Append(list, _) | Micro::Read(list, _) => *list,
        Micro::Write(register, _) | Micro::Get(register, _) => *register,
    }
}

fn elements(kv: Option<&Kv>) -> Vec<u64> {
    let text = kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    let text = text.unwrap_or_default();
    text.split(' ').filter_map(|n| n.parse().ok()).collect()
}

async fn transact(client: &mut Client, mut ops: Vec<Micro>) {
    let (process, call) = (client.process, client.world.now());
    let outcome = attempt(client, &mut ops).await;
    if outcome != Known::Ok {
        // What was read before a write that failed was not read by a transaction.
        for op in &mut ops {
            if let Micro::Read(_, found) = op {
                *found = None;
            }
        }
    }
    client.world.record(Record::List(ListTxn {
        span: client.span(process, call),
        ops,
        outcome,
    }));
}

async fn attempt(client: &mut Client, ops: &mut [Micro]) -> Known {
    // One plain read now and then, so that both ways to read are covered.
    if let [Micro::Read(list, found)] = ops
        && let Some(read) = client.read(&key(*list)).await
    {
        *found = Some(elements(read.as_ref()));
        return Known::Ok;
    }
    let mut lists: Vec<u64> = ops.iter().map(list_of).collect();
    lists.sort_unstable();
    lists.dedup();
    let read = Txn {
        success: lists.iter().map(|list| in_txn(key(*list))).collect(),
        ..Txn::default()
    };
    let Some(told) = client.get_reply(txn(read)).await else {
        return Known::Fail;
    };
    let Body::Txn { results, .. } = told.body else {
        return Known::Fail;
    };
    let before: BTreeMap<u64, Option<Kv>> = lists
        .iter()
        .copied()
        .zip(results.iter().map(first))
        .collect();
    let mut state: BTreeMap<u64, Vec<u64>> = before
        .iter()
        .map(|(list, kv)| (*list, elements(kv.as_ref())))
        .collect();
    let mut written = Vec::new();
    for op in ops.iter_mut() {
        match op {
            Micro::Append(list, element) => {
                state.entry(*list).or_default().push(*element);
                written.push(*list);
            }
            Micro::Read(list, found) => *found = state.get(list).cloned(),
            Micro::Write(..) | Micro::Get(..) => {}
        }
    }
    if written.is_empty() {
        return Known::Ok;
    }
    written.sort_unstable();
    written.dedup();
    write_back(client, &before, &written, &state).await
}

/// Writes lists back if nothing that was read has changed.
async fn write_back(
    client: &mut Client,
    before: &BTreeMap<u64, Option<Kv>>,
    written: &[u64],
    state: &BTreeMap<u64, Vec<u64>>,
) -> Known {
    let unchanged = |(list, kv): (&u64, &Option<Kv>)| Compare {
        key: key(*list),
        end: Blob::EMPTY,
        is: Is::Equal,
        to: Target::Mod(kv.as_ref().map_or(0, |kv| kv.modified)),
    };
    let text = |list: &u64| {
        let elements = state.get(list).into_iter().flatten();
        elements.map(u64::to_string).collect::<Vec<_>>().join(" ")
    };
    let write = |list: &u64| TxnOp::Put(put(key(*list), text(list)));
    let swap = Txn {
        compare: before.iter().map(unchanged).collect(),
        success: written.iter().map(write).collect(),
        failure: Vec::new(),
    };
    match client.ask(txn(swap)).await {
        Outcome::Ok(reply) => match reply.body {
            Body::Txn {
                succeeded: true, ..
            } => Known::Ok,
            _ => Known::Fail,
        },
        Outcome::Fail(_) => Known::Fail,
        Outcome::Info(_) => Known::Info,
    }
}
