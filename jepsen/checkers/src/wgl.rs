//! Linearizability without revisions: a search for an order that explains what was
//! read, one key at a time (Wing and Gong 1993, with Lowe's cache, 2017).
//!
//! It is the second opinion on the witness and shares nothing of what that takes for
//! granted: revisions are used as names only ("the value that was read with mod
//! revision 7"), never as an order. Looking at each key by itself is right for
//! registers (linearizability is local, Herlihy and Wing 1990), and for operations on
//! several keys it asks less than they promise, never more.
//!
//! The search is exponential where many clients meet on one key. It stops after a
//! number of steps and then says `Unknown`.

mod project;
mod search;

#[cfg(test)]
mod tests;

use crate::{
    history::History,
    verdict::{Anomalies, Anomaly, Verdict, names},
};

use project::{Projection, Register};
use search::Outcome;

/// Says how long to search.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Steps for one key; a step takes some hundred nanoseconds.
    pub steps_per_key: u64,
    /// Steps for all keys.
    pub steps: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            steps_per_key: 2_000_000,
            steps: 50_000_000,
        }
    }
}

/// How many operations shown with a counterexample are enough to see it.
const SHOWN_MAX: usize = 12;

/// How many operations on one key are shrunk to a smaller counterexample.
const SHRUNK_MAX: usize = 400;

/// Is what a search found.
#[derive(Debug, Clone)]
pub struct Report {
    /// What it says.
    pub verdict: Verdict,
    /// How many keys were decided.
    pub keys: usize,
    /// How many operations were on these.
    pub ops: usize,
}

/// Checks every key of a history.
pub fn check(history: &History, budget: Budget) -> Report {
    let projection = Projection::of(history);
    let mut left = budget.steps;
    let mut anomalies = Anomalies::default();
    let mut given_up = 0;
    let (mut keys, mut ops) = (0, 0);
    for register in &projection.registers {
        let mut steps = budget.steps_per_key.min(left);
        let before = steps;
        let outcome = search::run(&register.steps, &mut steps, false);
        left -= before - steps;
        match outcome {
            Outcome::Linearizable => {}
            Outcome::GivenUp => {
                given_up += 1;
                continue;
            }
            Outcome::Impossible(_) => {
                anomalies.push(|| describe(history, &projection, register, budget));
            }
        }
        keys += 1;
        ops += register.steps.len();
    }
    let verdict = if !anomalies.is_empty() {
        Verdict::Invalid(anomalies)
    } else if given_up > 0 {
        let all = projection.registers.len();
        Verdict::Unknown(format!(
            "gave up on {given_up} of {all} keys after {} steps each",
            budget.steps_per_key
        ))
    } else {
        Verdict::Valid
    };
    Report { verdict, keys, ops }
}

/// Leaves out what is not needed to see the contradiction, and draws it.
fn describe(
    history: &History,
    projection: &Projection,
    register: &Register,
    budget: Budget,
) -> Anomaly {
    let mut steps = register.steps.clone();
    let fails = |steps: &[project::Step]| {
        let mut budget = budget.steps_per_key;
        match search::run(steps, &mut budget, true) {
            Outcome::Impossible(stuck) => Some(stuck),
            _ => None,
        }
    };
    let mut stuck = fails(&steps).unwrap_or_default();
    // What began after the one that fits nowhere was over cannot matter.
    if let Some(end) = stuck.blocked.map(|at| steps[at].ret) {
        let cut: Vec<_> = steps.iter().filter(|s| s.call <= end).cloned().collect();
        if let Some(smaller) = fails(&cut) {
            (steps, stuck) = (cut, smaller);
        }
    }
    // Any read may be left out, and the rest must still make sense.
    let mut at = steps.len();
    while at > 0 && steps.len() <= SHRUNK_MAX {
        at -= 1;
        if steps[at].writes() {
            continue;
        }
        let mut without = steps.clone();
        without.remove(at);
        if let Some(smaller) = fails(&without) {
            (steps, stuck) = (without, smaller);
        }
    }
    let key = &register.key;
    let state = projection.show(stuck.state);
    let mut text = format!("no order explains what was read of {key}");
    if let Some(at) = stuck.blocked {
        let op = &history.ops[steps[at].op];
        text = format!(
            "no order explains what was read of {key}: with {} operations in order {key} is {state}, and there is no place for {op}",
            stuck.placed.len()
        );
    }
    let mut anomaly = Anomaly::new(names::NOT_LINEARIZABLE, text);
    let mut shown: Vec<_> = stuck.blocked.into_iter().chain(stuck.waiting).collect();
    let room = SHOWN_MAX.saturating_sub(shown.len());
    shown.extend(stuck.placed.iter().rev().take(room));
    let mut nodes: Vec<_> = shown
        .iter()
        .map(|at| (*at, anomaly.op(&history.ops[steps[*at].op])))
        .collect();
    // The order that was found, and what must be before the one that is stuck.
    nodes.sort_by_key(|(at, _)| stuck.placed.iter().position(|placed| placed == at));
    let in_order: Vec<_> = nodes
        .iter()
        .filter(|(at, _)| stuck.placed.contains(at))
        .collect();
    for pair in in_order.windows(2) {
        if let [(_, one), (_, next)] = pair {
            anomaly.edge(*one, *next, "in order");
        }
    }
    if let (Some((_, last)), Some(blocked)) = (in_order.last(), stuck.blocked)
        && let Some((_, node)) = nodes.iter().find(|(at, _)| *at == blocked)
    {
        anomaly.edge(*last, *node, format!("does not fit: {key} is {state}"));
    }
    anomaly
}
