//! Sets: every element that was added and acknowledged is in every read that began
//! after that (Jepsen's `set-full`, asked to be linearizable).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::{History, Known, SetOp, SetWhat, Time},
    verdict::{Anomalies, Anomaly, Verdict, names},
};

/// Is what became of one element.
#[derive(Default)]
struct Element<'a> {
    add: Option<&'a SetOp>,
    /// When it was first known to be there: acknowledged, or read.
    known: Option<(Time, &'a SetOp)>,
}

/// Is what is said of the sets of a history beside the verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What it says.
    pub verdict: Verdict,
    /// How many reads there were.
    pub reads: usize,
    /// How many elements were acknowledged, and no read began after that.
    pub never_read: usize,
}

/// Checks every set of a history.
pub fn check(history: &History) -> Report {
    let mut sets: BTreeMap<u64, Vec<&SetOp>> = BTreeMap::new();
    for op in &history.sets {
        sets.entry(op.set).or_default().push(op);
    }
    let mut anomalies = Anomalies::default();
    let (mut reads, mut never_read) = (0, 0);
    for ops in sets.values() {
        let seen = one(ops, &mut anomalies);
        reads += seen.0;
        never_read += seen.1;
    }
    Report {
        verdict: anomalies.verdict(),
        reads,
        never_read,
    }
}

fn one(ops: &[&SetOp], anomalies: &mut Anomalies) -> (usize, usize) {
    let mut elements: BTreeMap<u64, Element<'_>> = BTreeMap::new();
    let mut reads = Vec::new();
    for op in ops {
        match &op.what {
            SetWhat::Add(value) => {
                let element = elements.entry(*value).or_default();
                element.add = Some(op);
                if op.outcome == Known::Ok {
                    know(element, op.span.ret, op);
                }
            }
            SetWhat::Read(values) if op.outcome == Known::Ok => reads.push((*op, values)),
            SetWhat::Read(_) => {}
        }
    }
    for (read, values) in &reads {
        let mut once = BTreeSet::new();
        for value in *values {
            if !once.insert(*value) {
                let text = format!("element {value} was read twice at once");
                report(anomalies, names::DUPLICATE_ELEMENT, text, &[read]);
                continue;
            }
            let element = elements.entry(*value).or_default();
            know(element, read.span.ret, read);
            origin(anomalies, *value, element, read);
        }
    }
    reads.sort_by_key(|(read, _)| read.span.call);
    let last = reads.last().map(|(read, _)| read.span.call);
    let never = elements
        .values()
        .filter(|e| {
            e.known
                .is_some_and(|(known, _)| last.is_none_or(|last| last < known))
        })
        .count();
    absences(&elements, &reads, anomalies);
    (reads.len(), never)
}

fn know<'a>(element: &mut Element<'a>, at: Time, by: &'a SetOp) {
    if element.known.is_none_or(|(known, _)| at < known) {
        element.known = Some((at, by));
    }
}

fn origin(anomalies: &mut Anomalies, value: u64, element: &Element<'_>, read: &SetOp) {
    match element.add {
        None => {
            let text = format!("nobody added element {value}");
            report(anomalies, names::PHANTOM_ELEMENT, text, &[read]);
        }
        Some(add) if add.outcome == Known::Fail => {
            let text = format!("element {value} was read, and to add it had failed");
            report(anomalies, names::G1A, text, &[add, read]);
        }
        Some(add) if add.span.call > read.span.ret => {
            let text = format!("element {value} was read before it was added");
            report(anomalies, names::FROM_THE_FUTURE, text, &[add, read]);
        }
        Some(_) => {}
    }
}

/// Looks for elements that are missing in reads which began after they were known: lost
/// if no later read has them, stale if one has.
fn absences(
    elements: &BTreeMap<u64, Element<'_>>,
    reads: &[(&SetOp, &Vec<u64>)],
    anomalies: &mut Anomalies,
) {
    // In the order of becoming known, so that each read asks for a prefix.
    let mut known: Vec<_> = elements
        .iter()
        .filter_map(|(value, element)| Some((element.known?, *value)))
        .collect();
    known.sort_by_key(|((at, _), value)| (*at, *value));
    let mut missing: BTreeMap<u64, (&SetOp, &SetOp)> = BTreeMap::new();
    let mut back: BTreeSet<u64> = BTreeSet::new();
    for (read, values) in reads {
        let there: BTreeSet<_> = values.iter().copied().collect();
        let until = known.partition_point(|((at, _), _)| *at < read.span.call);
        for ((_, by), value) in &known[..until] {
            if there.contains(value) {
                if missing.contains_key(value) {
                    back.insert(*value);
                }
            } else {
                missing.entry(*value).or_insert((by, read));
            }
        }
    }
    for (value, (by, read)) in missing {
        let (name, what) = if back.contains(&value) {
            (
                names::STALE_ELEMENT,
                "is missing in a read, and there again later",
            )
        } else {
            (names::LOST_ELEMENT, "is missing from then on")
        };
        let text = format!("element {value} was known to be there, and {what}");
        report(anomalies, name, text, &[by, read]);
    }
}

fn report(anomalies: &mut Anomalies, name: &'static str, text: String, ops: &[&SetOp]) {
    anomalies.push(|| {
        let mut anomaly = Anomaly::new(name, text);
        let nodes: Vec<_> = ops
            .iter()
            .map(|op| {
                let label = match &op.what {
                    SetWhat::Add(value) => format!("add {value}"),
                    SetWhat::Read(values) => format!("read {} elements", values.len()),
                };
                anomaly.node(op.span, format!("p{} {label}", op.span.process))
            })
            .collect();
        if let [from, to] = nodes[..] {
            anomaly.edge(from, to, "over before it began");
        }
        anomaly
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Span;

    fn op(when: (Time, Time), what: SetWhat) -> SetOp {
        SetOp {
            span: Span {
                process: 0,
                call: when.0,
                ret: when.1,
            },
            set: 0,
            what,
            outcome: Known::Ok,
        }
    }

    fn word(sets: Vec<SetOp>) -> &'static str {
        let history = History {
            sets,
            ..History::default()
        };
        check(&history).verdict.word()
    }

    #[test]
    fn what_is_known_stays() {
        let add = || op((1, 2), SetWhat::Add(1));
        let read = |at: Time, values: &[u64]| op((at, at + 1), SetWhat::Read(values.to_vec()));
        assert_eq!(word(vec![add(), read(3, &[1])]), "valid");
        assert_eq!(word(vec![add(), read(3, &[])]), "lost-element");
        assert_eq!(word(vec![add(), read(2, &[])]), "valid", "they touch");
        let comes_back = vec![add(), read(3, &[]), read(5, &[1])];
        assert_eq!(word(comes_back), "stale-element");
        assert_eq!(word(vec![read(3, &[1])]), "phantom-element");
        assert_eq!(word(vec![add(), read(3, &[1, 1])]), "duplicate-element");
        let mut unknown = add();
        unknown.outcome = Known::Info;
        assert_eq!(word(vec![unknown.clone(), read(3, &[])]), "valid");
        let read_once = vec![unknown.clone(), read(3, &[1]), read(5, &[])];
        assert_eq!(word(read_once), "lost-element");
        unknown.outcome = Known::Fail;
        assert_eq!(word(vec![unknown, read(3, &[1])]), "G1a");
    }

    #[test]
    fn elements_nobody_looked_for_are_counted() {
        let history = History {
            sets: vec![op((1, 2), SetWhat::Add(1))],
            ..History::default()
        };
        let report = check(&history);
        assert_eq!((report.reads, report.never_read), (0, 1));
    }
}
