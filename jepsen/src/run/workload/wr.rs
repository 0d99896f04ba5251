//! Transactions that read and write registers, unguarded, every value once.

use checkers::history::{Body, Known, ListTxn, Micro, Outcome, Record, Txn, TxnOp};
use rand::Rng;

use super::super::client::{Client, first, in_txn, put, txn};

/// How many registers are in use at a time.
const ACTIVE: u64 = 3;
/// After so many transactions one of them is replaced by a new one.
const TXNS_PER_REGISTER: u64 = 100;

/// Does one transaction after the other.
pub(super) async fn run(mut client: Client) {
    while !client.world.stopped() {
        let turn = client.world.count("wr") / TXNS_PER_REGISTER;
        let mut ops = Vec::new();
        // Each register once, for the store does not write one twice in a transaction.
        for register in turn..turn + ACTIVE {
            match client.rng.random_range(0..5) {
                0..2 => ops.push(Micro::Get(register, None)),
                2..4 => {
                    let value = client.world.count(&format!("wr/{register}")) + 1;
                    ops.push(Micro::Write(register, value));
                }
                _ => {}
            }
        }
        if !ops.is_empty() {
            transact(&mut client, ops).await;
        }
    }
}

async fn transact(client: &mut Client, mut ops: Vec<Micro>) {
    let op = |op: &Micro| match op {
        Micro::Write(register, value) => {
            TxnOp::Put(put(format!("wr/{register}"), value.to_string()))
        }
        Micro::Get(register, _) | Micro::Read(register, _) | Micro::Append(register, _) => {
            in_txn(format!("wr/{register}"))
        }
    };
    let request = Txn {
        success: ops.iter().map(op).collect(),
        ..Txn::default()
    };
    let (process, call) = (client.process, client.world.now());
    let outcome = match client.ask(txn(request)).await {
        Outcome::Ok(reply) => {
            if let Body::Txn { results, .. } = reply.body {
                for (op, result) in ops.iter_mut().zip(&results) {
                    if let Micro::Get(_, found) = op {
                        let value = first(result).map(|kv| kv.value);
                        let text = value.map(|v| String::from_utf8_lossy(&v).into_owned());
                        *found = Some(text.and_then(|t| t.parse().ok()));
                    }
                }
            }
            Known::Ok
        }
        Outcome::Fail(_) => Known::Fail,
        Outcome::Info(_) => Known::Info,
    };
    client.world.record(Record::List(ListTxn {
        span: client.span(process, call),
        ops,
        outcome,
    }));
}
