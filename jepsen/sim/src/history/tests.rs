//! Each of the checkers bites on what the simulator gives it: one thing in the history
//! of a run that held is changed, and the checker that is there for it says so.

#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use checkers::history as h;

use crate::{
    plan::{Plan, SECOND},
    sim::Sim,
};

fn lived() -> Sim {
    let mut plan = Plan::of(1, Some(3));
    plan.kinds.clear();
    plan.length = 4 * SECOND;
    let mut sim = Sim::new(plan, false, false);
    sim.live_through();
    sim
}

/// Returns the checkers that complain.
fn blamed(sim: &mut Sim, history: &h::History) -> Vec<&'static str> {
    sim.truth.get().forget_violations();
    sim.judge_this(history);
    let truth = sim.truth.get();
    let mut blamed: Vec<_> = truth.violations().iter().map(|v| v.checker).collect();
    blamed.dedup();
    blamed
}

/// Returns the first pair without a lease that was read of the present.
fn read(history: &mut h::History) -> &mut h::Kv {
    let found = history.ops.iter_mut().find_map(|op| {
        let h::Request::Range(range) = &op.request else {
            return None;
        };
        if range.revision != 0 || range.serializable || range.limit != 0 {
            return None;
        }
        match &mut op.outcome {
            h::Outcome::Ok(h::Reply {
                body: h::Body::Range { kvs, .. },
                ..
            }) => kvs.iter_mut().find(|kv| kv.key.ends_with(b"1")),
            _ => None,
        }
    });
    found.unwrap()
}

#[test]
fn every_checker_has_something_to_look_at_and_bites() {
    let mut sim = lived();
    assert_eq!(sim.truth.get().violations(), []);
    let whole = sim.history();
    assert_eq!(blamed(&mut sim, &whole), [""; 0]);
    for checker in ["witness", "wgl", "elle", "watch", "lease", "finals"] {
        let looked = sim.judged.get(checker).copied().unwrap_or(0);
        assert!(looked > 0, "{checker} had nothing to look at");
    }

    let mut history = whole.clone();
    read(&mut history).value = "nobody's".into();
    let found = blamed(&mut sim, &history);
    assert!(found.starts_with(&["witness", "wgl"]), "{found:?}");

    let mut history = whole.clone();
    let got = history.lists.iter_mut().flat_map(|txn| &mut txn.ops);
    let mut got = got.filter_map(|op| match op {
        h::Micro::Get(_, Some(Some(value))) => Some(value),
        _ => None,
    });
    *got.next().unwrap() = u64::MAX;
    assert_eq!(blamed(&mut sim, &history), ["elle", "disagreement"]);

    let mut history = whole.clone();
    let watches = history.watches.iter_mut().filter(|watch| !watch.whole);
    let mut told = watches.flat_map(|watch| &mut watch.told);
    let events = told.find_map(|(_, told)| match told {
        h::Told::Events { events, .. } => Some(events),
        _ => None,
    });
    events.unwrap().clear();
    assert_eq!(blamed(&mut sim, &history), ["watch"]);

    let mut history = whole.clone();
    history.finals[1].hash ^= 1;
    assert_eq!(blamed(&mut sim, &history), ["finals"]);
}
