//! From a seed that fails to the least that still fails: kinds of faults off one at a
//! time, less time, fewer clients.

use crate::{Lines, Plan, Report, plan::SECOND, run};

/// Most runs that are tried; what is left then is reported.
const RUNS_MAX: usize = 150;

/// Shrinks a plan that fails as long as something the same checker finds is left.
/// Returns the smallest and what came of it.
pub fn shrink(plan: Plan) -> (Plan, Report) {
    let mut best = plan;
    let mut report = run(best.clone(), Lines::Last);
    let Some(checker) = report.violations.first().map(|found| found.checker) else {
        return (best, report);
    };
    let mut runs = 0;
    loop {
        let mut smaller = None;
        for candidate in candidates(&best, &report) {
            if runs >= RUNS_MAX {
                break;
            }
            runs += 1;
            let tried = run(candidate.clone(), Lines::Last);
            if tried
                .violations
                .first()
                .is_some_and(|found| found.checker == checker)
            {
                smaller = Some((candidate, tried));
                break;
            }
        }
        match smaller {
            Some(smaller) => (best, report) = smaller,
            None => return (best, report),
        }
    }
}

fn candidates(plan: &Plan, report: &Report) -> Vec<Plan> {
    let mut plans = Vec::new();
    let found = report
        .violations
        .first()
        .map_or(plan.length, |found| found.at);
    for length in [found + SECOND / 10, plan.length / 2, plan.length * 3 / 4] {
        if length + SECOND / 10 < plan.length {
            plans.push(Plan {
                length,
                ..plan.clone()
            });
        }
    }
    for off in 0..plan.kinds.len() {
        let mut smaller = plan.clone();
        smaller.kinds.remove(off);
        plans.push(smaller);
    }
    for clients in [1, plan.clients / 2, plan.clients.saturating_sub(1)] {
        if clients > 0 && clients < plan.clients {
            plans.push(Plan {
                clients,
                ..plan.clone()
            });
        }
    }
    if plan.watchers > 1 {
        plans.push(Plan {
            watchers: 1,
            ..plan.clone()
        });
    }
    plans
}
