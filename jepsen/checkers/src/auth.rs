//! Rights: what was taken away and acknowledged is refused from then on, what was
//! given and acknowledged is served.
//!
//! A change takes effect somewhere between its call and its return; one of unknown
//! outcome at any time after its call, or never. For each request all states of the
//! rights that are possible while it lasts are made; it is wrong only if it is wrong
//! in all of them.

mod rights;

#[cfg(test)]
mod tests;

use crate::{
    history::{History, Op, Outcome, Refusal, Request, TxnOp},
    verdict::{Anomalies, Anomaly, Verdict, names},
};

use rights::{Need, Rights};

/// How many states of the rights are followed at once. More come from many changes of
/// unknown outcome; past it the verdict is unknown.
const STATES_MAX: usize = 256;

/// Who may do everything once auth is on.
const ROOT: &str = "root";

/// Checks every request of a named user.
pub fn check(history: &History) -> Verdict {
    let mut changes: Vec<&Op> = history
        .ops
        .iter()
        .filter(|op| matches!(op.request, Request::Auth(_)))
        .filter(|op| !matches!(op.outcome, Outcome::Fail(_)))
        .collect();
    if changes.is_empty() {
        return Verdict::Valid;
    }
    changes.sort_by_key(|op| op.call);
    let mut anomalies = Anomalies::default();
    let mut requests: Vec<_> = history.ops.iter().filter(|op| op.user.is_some()).collect();
    requests.sort_by_key(|op| op.call);
    let mut past = Past::default();
    for op in requests {
        let user = op.user.as_deref().unwrap_or_default();
        let Some(needs) = needs(&op.request) else {
            continue;
        };
        let served = match &op.outcome {
            Outcome::Ok(_) => true,
            Outcome::Fail(Refusal::Denied | Refusal::Unauthenticated) => false,
            _ => continue,
        };
        let Some(states) = past.during(&changes, op) else {
            return Verdict::Unknown("too many changes of rights of unknown outcome".to_owned());
        };
        let may =
            |state: &Rights| user == ROOT || needs.iter().all(|need| state.allows(user, need));
        if states.iter().any(|state| may(state) == served) {
            continue;
        }
        let last = changes.iter().rfind(|change| change.ret < op.call).copied();
        let name = if served {
            names::UNAUTHORIZED
        } else {
            names::WRONGLY_DENIED
        };
        anomalies.push(|| describe(name, user, op, last));
    }
    anomalies.verdict()
}

fn describe(name: &'static str, user: &str, op: &Op, last: Option<&Op>) -> Anomaly {
    let may = if name == names::UNAUTHORIZED {
        "has no right to"
    } else {
        "has the right to"
    };
    let mut anomaly = Anomaly::new(name, format!("{user} {may} {op}"));
    let request = anomaly.op(op);
    if let Some(last) = last {
        let change = anomaly.op(last);
        anomaly.edge(change, request, "over before it began");
    }
    anomaly
}

/// Follows the states that the rights may be in.
#[derive(Default)]
struct Past {
    /// Possible states after all changes that were over before `done`.
    states: Option<Vec<Rights>>,
    /// How many changes, in order of call, are in `states`.
    done: usize,
    /// Changes in `states` that may still happen.
    late: Vec<usize>,
}

impl Past {
    /// Lists the states that are possible while a request lasts.
    fn during(&mut self, changes: &[&Op], op: &Op) -> Option<Vec<Rights>> {
        let mut states = self
            .states
            .take()
            .unwrap_or_else(|| vec![Rights::default()]);
        while let Some(change) = changes.get(self.done)
            && (change.ret < op.call || change.unknown())
            && change.call <= op.call
        {
            if change.unknown() {
                self.late.push(self.done);
            } else {
                states = with_late(states, &self.late, changes)?;
                states
                    .iter_mut()
                    .for_each(|state| state.change(&change.request));
            }
            self.done += 1;
        }
        states.sort();
        states.dedup();
        self.states = Some(states.clone());
        // What overlaps the request may have happened or not, in order.
        let mut possible = with_late(states, &self.late, changes)?;
        let mut front = possible.clone();
        for (at, change) in changes.iter().enumerate().skip(self.done) {
            if change.call > op.ret {
                break;
            }
            if change.unknown() {
                let again = front.clone();
                front.extend(again.into_iter().map(|state| state.after(&change.request)));
            } else {
                front
                    .iter_mut()
                    .for_each(|state| state.change(&change.request));
                front = with_late(front, &self.late, changes)?;
            }
            possible.extend(front.iter().cloned());
            if possible.len() > STATES_MAX * 4 || at > self.done + STATES_MAX {
                return None;
            }
        }
        Some(possible)
    }
}

/// Adds the states in which changes of unknown outcome have happened by now.
fn with_late(mut states: Vec<Rights>, late: &[usize], changes: &[&Op]) -> Option<Vec<Rights>> {
    // In any order, and each any number of times: that forbids less than what can be.
    let mut from = 0;
    while from < states.len() {
        let fresh: Vec<_> = states[from..].to_vec();
        from = states.len();
        for state in fresh {
            for at in late {
                let after = state.clone().after(&changes[*at].request);
                if !states.contains(&after) {
                    states.push(after);
                }
            }
        }
        if states.len() > STATES_MAX {
            return None;
        }
    }
    Some(states)
}

/// Lists what a request needs; `None` for what only root may do, or nobody is asked for.
fn needs(request: &Request) -> Option<Vec<Need>> {
    let mut needs = Vec::new();
    let mut add = |op: &TxnOp| collect(op, &mut needs);
    match request {
        Request::Range(range) => add(&TxnOp::Range(range.clone())),
        Request::Put(put) => add(&TxnOp::Put(put.clone())),
        Request::Delete(delete) => add(&TxnOp::Delete(delete.clone())),
        Request::Txn(txn) => add(&TxnOp::Txn(txn.clone())),
        _ => return None,
    }
    Some(needs)
}

/// Both branches of a transaction are asked for, and all that it compares.
fn collect(op: &TxnOp, needs: &mut Vec<Need>) {
    match op {
        TxnOp::Range(range) => needs.push(Need::read(&range.key, &range.end)),
        TxnOp::Put(put) => {
            needs.push(Need::write(&put.key, &crate::history::Blob::EMPTY));
            if put.prev_kv {
                needs.push(Need::read(&put.key, &crate::history::Blob::EMPTY));
            }
        }
        TxnOp::Delete(delete) => {
            needs.push(Need::write(&delete.key, &delete.end));
            if delete.prev_kv {
                needs.push(Need::read(&delete.key, &delete.end));
            }
        }
        TxnOp::Txn(txn) => {
            for compare in &txn.compare {
                needs.push(Need::read(&compare.key, &compare.end));
            }
            for op in txn.success.iter().chain(&txn.failure) {
                collect(op, needs);
            }
        }
    }
}
