//! Transactions on lists and registers, judged by the cycles among them, after Elle
//! (Kingsbury and Alvaro, VLDB 2020).
//!
//! Every list element is appended once, so the longest list read of a key is the
//! order of its versions, and each other read is a place in it. From that follows
//! who came before whom: by writing over (ww), by reading what was written (wr), by
//! reading what was written over later (rw), by being the same process, by being over
//! in time. If that has a cycle, no order of the transactions explains them; the
//! shortest is named after Adya's phenomena, with the weakest edges it can be built of.

mod graph;
mod infer;

#[cfg(test)]
mod tests;

use crate::{
    history::{History, ListTxn},
    verdict::{Anomaly, Verdict, names},
};

use graph::{Cycle, Graph, Kind, Kinds};

/// How many knots of cycles are taken apart; a broken store ties thousands, all alike.
const KNOTS_MAX: usize = 8;

/// Checks the transactions of a history.
pub fn check(history: &History) -> Verdict {
    let txns = &history.lists;
    let inferred = infer::infer(txns);
    if let Some(why) = inferred.unknown {
        return Verdict::Unknown(why);
    }
    let mut anomalies = inferred.anomalies;
    let graph = inferred.graph;
    let mut nameless = 0;
    for knot in graph.knots().iter().take(KNOTS_MAX) {
        match name(&graph, knot, txns) {
            Some((name, cycle)) => anomalies.push(|| describe(&graph, name, &cycle, txns)),
            None => nameless += 1,
        }
    }
    match anomalies.verdict() {
        // Whatever is knotted has a cycle of all kinds of edges, so this is a mistake of
        // the search: nothing to call valid.
        Verdict::Valid if nameless > 0 => Verdict::Unknown(format!(
            "{nameless} knots of transactions in which no cycle was found"
        )),
        verdict => verdict,
    }
}

/// The levels, from what any database promises to what etcd does: a cycle is named by
/// the first that forbids it.
const LEVELS: [(Kinds, [&str; 4]); 3] = [
    (Kinds::NONE, ["G0", "G1c", "G-single", "G2-item"]),
    (
        Kinds::PROCESS,
        [
            "G0-process",
            "G1c-process",
            "G-single-process",
            "G2-item-process",
        ],
    ),
    (
        Kinds::PROCESS.and(Kinds::REALTIME),
        [
            "G0-realtime",
            "G1c-realtime",
            "G-single-realtime",
            "G2-item-realtime",
        ],
    ),
];

/// Finds the shortest cycle of the weakest kind in a knot.
fn name(graph: &Graph, knot: &[usize], txns: &[ListTxn]) -> Option<(&'static str, Cycle)> {
    for (extra, [g0, g1c, single, g2]) in LEVELS {
        let writes = Kinds::WW.and(extra);
        let reads = writes.and(Kinds::WR);
        let any = reads.and(Kinds::RW);
        if let Some(cycle) = graph.cycle(knot, writes) {
            return Some((g0, cycle));
        }
        if let Some(cycle) = graph.cycle(knot, reads) {
            return Some((g1c, cycle));
        }
        if let Some(cycle) = graph.cycle_through(knot, Kind::Rw, reads) {
            let lost = is_lost_update(graph, &cycle, txns);
            return Some((if lost { names::LOST_UPDATE } else { single }, cycle));
        }
        if let Some(cycle) = graph.cycle(knot, any) {
            return Some((g2, cycle));
        }
    }
    None
}

/// Two that read one version of a key and both write on it.
fn is_lost_update(graph: &Graph, cycle: &Cycle, txns: &[ListTxn]) -> bool {
    let [one, other] = &cycle[..] else {
        return false;
    };
    let (rw, ww) = match (one.kind, other.kind) {
        (Kind::Rw, Kind::Ww) => (one, other),
        (Kind::Ww, Kind::Rw) => (other, one),
        _ => return false,
    };
    let reads = |at: usize| infer::reads_and_writes(&txns[graph.txn(at)], rw.key);
    rw.key == ww.key && reads(rw.from) && reads(rw.to)
}

fn describe(graph: &Graph, name: &'static str, cycle: &Cycle, txns: &[ListTxn]) -> Anomaly {
    let told: Vec<_> = cycle
        .iter()
        .map(|edge| {
            let (from, to) = (&txns[graph.txn(edge.from)], &txns[graph.txn(edge.to)]);
            let why = match edge.kind {
                Kind::Ww => format!("wrote key {} before", edge.key),
                Kind::Wr => format!("wrote what was read of key {} by", edge.key),
                Kind::Rw => format!("read key {} before it was written by", edge.key),
                Kind::Process => "is of the same process and before".to_owned(),
                Kind::Realtime => "was over before the call of".to_owned(),
            };
            format!("[{from}] {why} [{to}]")
        })
        .collect();
    let mut anomaly = Anomaly::new(name, told.join(", "));
    let nodes: Vec<_> = cycle
        .iter()
        .map(|edge| {
            let txn = &txns[graph.txn(edge.from)];
            anomaly.node(txn.span, txn.to_string())
        })
        .collect();
    for (at, edge) in cycle.iter().enumerate() {
        let label = match edge.kind {
            Kind::Process | Kind::Realtime => edge.kind.word().to_owned(),
            kind => format!("{} {}", kind.word(), edge.key),
        };
        anomaly.edge(nodes[at], nodes[(at + 1) % nodes.len()], label);
    }
    anomaly
}
