//! What the answers of transactions tell about their order, and what in them is wrong
//! without looking at any order.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Graph, Kind};
use crate::{
    history::{Known, ListTxn, Micro},
    verdict::{Anomalies, Anomaly, names},
};

/// Is all that follows from the answers.
#[derive(Default)]
pub(super) struct Inferred {
    pub(super) graph: Graph,
    pub(super) anomalies: Anomalies,
    pub(super) unknown: Option<String>,
}

/// A register is a list of which only the last element is read; its keys are numbered
/// apart from the lists'.
type Key = (bool, u64);

#[derive(Clone, Copy)]
struct Writer {
    txn: usize,
    /// Whether the transaction writes this key again after it.
    middle: bool,
}

struct Inference<'a> {
    txns: &'a [ListTxn],
    writers: BTreeMap<(Key, u64), Writer>,
    /// What each transaction read of each key from outside: the last element.
    reads: Vec<(usize, Key, Option<u64>)>,
    /// For each list, the longest that was read, and by whom.
    longest: BTreeMap<u64, (Vec<u64>, usize)>,
    /// For each register, which value was written by who had read which other.
    follows: BTreeSet<(u64, Option<u64>, u64)>,
    seen: Vec<bool>,
    anomalies: Anomalies,
}

/// Says whether a transaction reads a key from outside and then writes it.
pub(super) fn reads_and_writes(txn: &ListTxn, key: u64) -> bool {
    let reads =
        |op: &Micro| matches!(op, Micro::Read(k, Some(_)) | Micro::Get(k, Some(_)) if *k == key);
    let writes = |op: &Micro| matches!(op, Micro::Append(k, _) | Micro::Write(k, _) if *k == key);
    let read = txn.ops.iter().position(reads);
    let written = txn.ops.iter().position(writes);
    read.zip(written)
        .is_some_and(|(read, written)| read < written)
}

pub(super) fn infer(txns: &[ListTxn]) -> Inferred {
    let mut inference = Inference {
        txns,
        writers: BTreeMap::new(),
        reads: Vec::new(),
        longest: BTreeMap::new(),
        follows: BTreeSet::new(),
        seen: txns.iter().map(|txn| txn.outcome == Known::Ok).collect(),
        anomalies: Anomalies::default(),
    };
    if let Err(why) = inference.collect_writers() {
        return Inferred {
            unknown: Some(why),
            ..Inferred::default()
        };
    }
    for (at, txn) in txns.iter().enumerate() {
        if txn.outcome == Known::Ok {
            inference.look(at);
        }
    }
    inference.prefixes();
    let graph = inference.graph();
    Inferred {
        graph,
        anomalies: inference.anomalies,
        unknown: None,
    }
}

impl Inference<'_> {
    fn collect_writers(&mut self) -> Result<(), String> {
        for (at, txn) in self.txns.iter().enumerate() {
            let mut last: BTreeMap<Key, u64> = BTreeMap::new();
            for op in &txn.ops {
                let (key, value) = match op {
                    Micro::Append(key, value) => ((false, *key), *value),
                    Micro::Write(key, value) => ((true, *key), *value),
                    Micro::Read(..) | Micro::Get(..) => continue,
                };
                let writer = Writer {
                    txn: at,
                    middle: false,
                };
                if self.writers.insert((key, value), writer).is_some() {
                    return Err(format!("{value} is written to key {} twice", key.1));
                }
                if let Some(before) = last.insert(key, value)
                    && let Some(writer) = self.writers.get_mut(&(key, before))
                {
                    writer.middle = true;
                }
            }
        }
        Ok(())
    }

    /// Looks at one transaction's reads.
    fn look(&mut self, at: usize) {
        let txns = self.txns;
        let mut lists: BTreeMap<u64, (Option<Vec<u64>>, Vec<u64>)> = BTreeMap::new();
        let mut registers: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        let mut outside: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        for op in &txns[at].ops {
            match op {
                Micro::Append(key, value) => lists.entry(*key).or_default().1.push(*value),
                Micro::Read(key, Some(list)) => {
                    let (before, own) = lists.entry(*key).or_default();
                    let from = list.len().saturating_sub(own.len());
                    let fits = list.ends_with(own)
                        && before.as_ref().is_none_or(|before| *before == list[..from]);
                    if fits && before.is_none() {
                        *before = Some(list[..from].to_vec());
                        let list = &list[..from];
                        self.external_list(at, *key, list);
                    } else if !fits {
                        self.internal(at, op);
                    }
                }
                Micro::Write(key, value) => {
                    if let Some(before) = outside.remove(key) {
                        self.follows.insert((*key, before, *value));
                    }
                    registers.insert(*key, Some(*value));
                }
                Micro::Get(key, Some(value)) => match registers.insert(*key, *value) {
                    Some(before) if before != *value => self.internal(at, op),
                    Some(_) => {}
                    None => {
                        outside.insert(*key, *value);
                        self.external(at, (true, *key), *value);
                    }
                },
                Micro::Read(_, None) | Micro::Get(_, None) => {}
            }
        }
    }

    fn internal(&mut self, at: usize, op: &Micro) {
        let txn = &self.txns[at];
        self.anomalies.push(|| {
            let text = format!("[{txn}] reads {op}, which is not what it read and wrote before");
            let mut anomaly = Anomaly::new(names::INTERNAL, text);
            anomaly.node(txn.span, txn.to_string());
            anomaly
        });
    }

    fn external_list(&mut self, at: usize, key: u64, list: &[u64]) {
        let mut once = BTreeSet::new();
        if let Some(twice) = list.iter().find(|value| !once.insert(**value)) {
            let text = format!("{twice} is in the list of key {key} twice");
            self.wrong(names::DUPLICATE_ELEMENT, at, None, text);
        }
        for value in list {
            self.origin(at, (false, key), *value);
        }
        self.external(at, (false, key), list.last().copied());
        let longest = self.longest.entry(key).or_default();
        if longest.0.len() < list.len() {
            *longest = (list.to_vec(), at);
        }
    }

    /// Takes note of what was read from outside.
    fn external(&mut self, at: usize, key: Key, last: Option<u64>) {
        self.reads.push((at, key, last));
        let Some(last) = last else {
            return;
        };
        if key.0 {
            self.origin(at, key, last);
        }
        if let Some(writer) = self.writers.get(&(key, last)).copied()
            && writer.middle
            && writer.txn != at
        {
            let text = format!("{last} is not the last that was written to key {}", key.1);
            self.wrong(names::G1B, at, Some(writer.txn), text);
        }
    }

    /// Says where an element comes from, if from nowhere good.
    fn origin(&mut self, at: usize, key: Key, value: u64) {
        match self.writers.get(&(key, value)).copied() {
            None => {
                let text = format!("nobody wrote {value} to key {}", key.1);
                self.wrong(names::PHANTOM_ELEMENT, at, None, text);
            }
            Some(writer) => {
                self.seen[writer.txn] = true;
                if self.txns[writer.txn].outcome == Known::Fail {
                    let text = format!("{value} of key {} was aborted", key.1);
                    self.wrong(names::G1A, at, Some(writer.txn), text);
                }
            }
        }
    }

    fn wrong(&mut self, name: &'static str, at: usize, other: Option<usize>, why: String) {
        let txns = self.txns;
        self.anomalies.push(|| {
            let txn = &txns[at];
            let mut anomaly = Anomaly::new(name, format!("[{txn}]: {why}"));
            let reader = anomaly.node(txn.span, txn.to_string());
            if let Some(other) = other {
                let writer = anomaly.node(txns[other].span, txns[other].to_string());
                anomaly.edge(writer, reader, "wr");
            }
            anomaly
        });
    }

    /// Checks that every list read is the beginning of the longest.
    fn prefixes(&mut self) {
        let txns = self.txns;
        for (at, txn) in txns.iter().enumerate() {
            if txn.outcome != Known::Ok {
                continue;
            }
            for op in &txn.ops {
                let Micro::Read(key, Some(list)) = op else {
                    continue;
                };
                let Some((longest, by)) = self.longest.get(key) else {
                    continue;
                };
                // Its own appends may be more than anybody else saw.
                let own = |value: &u64| {
                    self.writers
                        .get(&((false, *key), *value))
                        .is_some_and(|w| w.txn == at)
                };
                let outside: Vec<_> = list.iter().copied().take_while(|v| !own(v)).collect();
                if !longest.starts_with(&outside) {
                    let by = *by;
                    let text = format!("and [{}] do not agree on the order of key {key}", txns[by]);
                    self.wrong(names::INCOMPATIBLE_ORDER, at, Some(by), text);
                }
            }
        }
    }

    fn graph(&self) -> Graph {
        let nodes: Vec<_> = (0..self.txns.len()).filter(|at| self.seen[*at]).collect();
        let mut place = vec![usize::MAX; self.txns.len()];
        for (node, at) in nodes.iter().enumerate() {
            place[*at] = node;
        }
        let mut graph = Graph::new(nodes.clone());
        self.list_edges(&mut graph, &place);
        self.register_edges(&mut graph, &place);
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        let mut by_call = nodes.clone();
        by_call.sort_by_key(|at| self.txns[*at].span.call);
        for at in by_call {
            if let Some(before) = last.insert(self.txns[at].span.process, at) {
                graph.edge(place[before], place[at], Kind::Process, 0);
            }
        }
        let spans: Vec<_> = nodes
            .iter()
            .map(|at| {
                let txn = &self.txns[*at];
                let over = txn.outcome == Known::Ok;
                (txn.span.call, over.then_some(txn.span.ret))
            })
            .collect();
        graph.real_time(&spans);
        graph
    }

    fn list_edges(&self, graph: &mut Graph, place: &[usize]) {
        let mut next: BTreeMap<(u64, Option<u64>), Vec<usize>> = BTreeMap::new();
        let writer = |key: u64, value: u64| {
            let writer = self.writers.get(&((false, key), value))?;
            Some(place[writer.txn]).filter(|node| *node != usize::MAX)
        };
        for (key, (longest, _)) in &self.longest {
            let mut before = None;
            for value in longest {
                if let Some(node) = writer(*key, *value) {
                    next.entry((*key, before)).or_default().push(node);
                }
                before = Some(*value);
            }
        }
        // What was appended, acknowledged and never read comes after all that was.
        for ((key, value), by) in &self.writers {
            let longest = self.longest.get(&key.1).map_or(&[][..], |(list, _)| list);
            if !key.0 && self.txns[by.txn].outcome == Known::Ok && !longest.contains(value) {
                let last = longest.last().copied();
                next.entry((key.1, last)).or_default().push(place[by.txn]);
            }
        }
        for ((key, before), nodes) in &next {
            if let Some(from) = before.and_then(|before| writer(*key, before)) {
                for node in nodes {
                    graph.edge(from, *node, Kind::Ww, *key);
                }
            }
        }
        for (at, key, last) in self.reads.iter().filter(|(_, key, _)| !key.0) {
            let reader = place[*at];
            if let Some(from) = last.and_then(|last| writer(key.1, last)) {
                graph.edge(from, reader, Kind::Wr, key.1);
            }
            for node in next.get(&(key.1, *last)).into_iter().flatten() {
                graph.edge(reader, *node, Kind::Rw, key.1);
            }
        }
    }

    /// Registers have only the order that their own readers made: a write follows
    /// what the same transaction read before ("wfr-keys"), and nothing is first.
    fn register_edges(&self, graph: &mut Graph, place: &[usize]) {
        let writer = |key: u64, value: u64| {
            let writer = self.writers.get(&((true, key), value))?;
            Some(place[writer.txn]).filter(|node| *node != usize::MAX)
        };
        let mut after: BTreeMap<(u64, Option<u64>), Vec<usize>> = BTreeMap::new();
        for (key, before, value) in &self.follows {
            let Some(to) = writer(*key, *value) else {
                continue;
            };
            if let Some(from) = before.and_then(|before| writer(*key, before)) {
                graph.edge(from, to, Kind::Ww, *key);
            }
            after.entry((*key, *before)).or_default().push(to);
        }
        let mut all: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for ((key, _), by) in &self.writers {
            if key.0 && place[by.txn] != usize::MAX {
                all.entry(key.1).or_default().push(place[by.txn]);
            }
        }
        for (at, key, value) in self.reads.iter().filter(|(_, key, _)| key.0) {
            let reader = place[*at];
            match value {
                Some(value) => {
                    if let Some(from) = writer(key.1, *value) {
                        graph.edge(from, reader, Kind::Wr, key.1);
                    }
                    for node in after.get(&(key.1, Some(*value))).into_iter().flatten() {
                        graph.edge(reader, *node, Kind::Rw, key.1);
                    }
                }
                // Registers are never emptied: every write comes after nothing.
                None => {
                    for node in all.get(&key.1).into_iter().flatten() {
                        graph.edge(reader, *node, Kind::Rw, key.1);
                    }
                }
            }
        }
    }
}
