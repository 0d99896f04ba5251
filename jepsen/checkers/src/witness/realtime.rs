//! Real time: nothing is ordered before what was over when it began.
//!
//! One sweep by the time of the call, with the furthest place in the order that is
//! known to have been reached. A place is twice the revision for the write that made
//! it, and one more for whoever saw it.

use crate::{
    history::{History, Op, Time, Told},
    log::Log,
    verdict::{Anomalies, Anomaly, names},
};

use super::place::{Role, role};

/// Is a proof that a place was reached.
#[derive(Clone, Copy)]
struct Reached {
    at: Time,
    place: i64,
    by: By,
}

#[derive(Clone, Copy)]
enum By {
    Op(usize),
    Watch(usize),
}

/// Checks the order against real time. `made` has the revision that each operation
/// made, or 0.
pub(super) fn check(history: &History, log: &Log<'_>, made: &[i64]) -> Anomalies {
    let mut anomalies = Anomalies::default();
    let places: Vec<_> = history.ops.iter().zip(made).map(place).collect();
    let reached = proofs(history, log, &places);
    let mut calls: Vec<_> = (0..history.ops.len())
        .filter(|at| places[*at].is_some_and(|(_, bound)| bound))
        .collect();
    calls.sort_unstable_by_key(|at| (history.ops[*at].call, *at));
    let mut next = 0;
    let mut furthest: Option<Reached> = None;
    for at in calls {
        let op = &history.ops[at];
        while let Some(proof) = reached.get(next)
            && proof.at < op.call
        {
            if furthest.is_none_or(|far| far.place < proof.place) {
                furthest = Some(*proof);
            }
            next += 1;
        }
        if let (Some((mine, _)), Some(far)) = (places[at], furthest)
            && mine < far.place
        {
            anomalies.push(|| describe(history, op, mine, far, made));
        }
    }
    anomalies
}

/// Returns the place of an operation, and whether real time binds it: an answer
/// that may be old only proves how far the store was.
fn place((op, made): (&Op, &i64)) -> Option<(i64, bool)> {
    if *made > 0
        && op
            .reply()
            .is_none_or(|r| role(&op.request, r) != Role::Stale)
    {
        return Some((2 * made, true));
    }
    let reply = op.reply()?;
    let seen = 2 * reply.revision + 1;
    match role(&op.request, reply) {
        Role::Wrote => Some((2 * reply.revision, true)),
        Role::Saw => Some((seen, true)),
        Role::Loose | Role::Stale => Some((seen, false)),
    }
}

/// Collects what proves how far the store was, in order of time.
fn proofs(history: &History, log: &Log<'_>, places: &[Option<(i64, bool)>]) -> Vec<Reached> {
    let mut proofs = Vec::with_capacity(history.ops.len() + history.watches.len());
    for (at, op) in history.ops.iter().enumerate() {
        // The answer's header proves even where what was made is unknown.
        let header = op.reply().map(|reply| (reply.revision, &op.request, reply));
        let place = match (places[at], header) {
            (_, None) => continue,
            (Some((place, true)), Some(_)) => place,
            (_, Some((revision, ..))) => 2 * revision + 1,
        };
        proofs.push(Reached {
            at: op.ret,
            place,
            by: By::Op(at),
        });
    }
    for (at, watch) in history.watches.iter().enumerate() {
        for (time, told) in &watch.told {
            let revision = match told {
                // A header may tell of what this watch has yet to deliver, and proves
                // that it happened all the same.
                Told::Events { revision, .. }
                | Told::Created { revision }
                | Told::Progress { revision } => *revision,
                _ => continue,
            };
            if *time < Time::MAX && revision <= log.until {
                proofs.push(Reached {
                    at: *time,
                    place: 2 * revision + 1,
                    by: By::Watch(at),
                });
            }
        }
    }
    proofs.sort_unstable_by_key(|proof| (proof.at, proof.place));
    proofs
}

fn describe(history: &History, op: &Op, mine: i64, far: Reached, made: &[i64]) -> Anomaly {
    let writes = mine % 2 == 0;
    let revision = far.place / 2;
    let name = if writes {
        names::REAL_TIME
    } else {
        names::STALE_READ
    };
    let says = match far.by {
        By::Op(at) => history.ops[at].to_string(),
        By::Watch(at) => format!("watch {}", history.watches[at].id),
    };
    let text = format!("{op} began after {says} had reached revision {revision}");
    let mut anomaly = Anomaly::new(name, text);
    let last = anomaly.op(op);
    let first = match far.by {
        By::Op(at) => anomaly.op(&history.ops[at]),
        By::Watch(at) => {
            let watch = &history.watches[at];
            let label = format!("watch {} tells of revision {revision}", watch.id);
            anomaly.moment(watch.process, far.at, label)
        }
    };
    anomaly.edge(first, last, "over before it began");
    anomaly.edge(
        last,
        first,
        format!("revision {} before {revision}", mine / 2),
    );
    // Who made the revision that was missed, if it is neither of the two.
    let maker = made.iter().position(|made| *made == revision);
    if let Some(maker) = maker
        && !matches!(far.by, By::Op(at) if at == maker)
    {
        let maker = anomaly.op(&history.ops[maker]);
        anomaly.edge(maker, first, format!("made revision {revision}"));
    }
    anomaly
}
