//! Registers by hand, and by the model.

use super::{Budget, check};
use crate::{
    generate::{self, Random, Shape},
    history::*,
};

fn word(history: &History) -> &'static str {
    check(history, Budget::default()).verdict.word()
}

/// Reads a register; the revisions are all wrong, and do not matter.
fn read(history: &mut History, process: u32, when: (Time, Time), value: &str) {
    let kvs = (!value.is_empty()).then(|| kv("a", value, 9, 9, 9));
    history.ok(process, when, get("a"), found(9, kvs));
}

#[test]
fn a_stale_read_has_no_place() {
    let mut history = History::default();
    history.ok(0, (1, 2), put("a", "1"), wrote(9));
    history.ok(0, (3, 4), put("a", "2"), wrote(9));
    read(&mut history, 1, (5, 6), "1");
    let report = check(&history, Budget::default());
    assert_eq!(report.verdict.word(), "not-linearizable");
    let anomaly = &report.verdict.anomalies()[0];
    assert!(
        anomaly.text.contains("no place for p1 get a"),
        "{}",
        anomaly.text
    );
    history.ops[2].call = 4;
    assert_eq!(word(&history), "valid", "it overlaps the second write");
}

#[test]
fn a_write_of_unknown_outcome_may_come_late_but_once() {
    let mut history = History::default();
    history.info(0, (1, 2), put("a", "1"), "timeout");
    history.ok(1, (3, 4), put("a", "2"), wrote(9));
    read(&mut history, 1, (5, 6), "2");
    read(&mut history, 1, (7, 8), "1");
    assert_eq!(word(&history), "valid");
    read(&mut history, 1, (9, 10), "2");
    assert_eq!(word(&history), "not-linearizable");
}

#[test]
fn compare_and_swap_is_decided_by_what_was_there() {
    let mut history = History::default();
    history.ok(0, (1, 2), put("a", "1"), wrote(2));
    let swap = |new: &str| {
        txn()
            .when("a", Is::Equal, Target::Mod(2))
            .then(put("a", new))
            .or_else(get("a"))
    };
    history.ok(1, (3, 8), swap("2"), decided(3, true, [wrote(3)]));
    history.ok(2, (3, 8), swap("3"), decided(4, true, [wrote(4)]));
    assert_eq!(word(&history), "not-linearizable", "a lost update");
    let failed = decided(3, false, [found(3, [kv("a", "2", 2, 3, 2)])]);
    history.ops[2].outcome = Outcome::Ok(failed);
    assert_eq!(word(&history), "valid");
}

#[test]
fn giving_up_is_not_refusing() {
    let mut history = History::default();
    for process in 0..30 {
        let value = process.to_string();
        history.info(process, (1, 2), put("a", &value), "timeout");
        history.ok(
            100 + process,
            (1, 1000),
            put("a", &format!("x{value}")),
            wrote(9),
        );
    }
    read(&mut history, 200, (2000, 2001), "nobody wrote this");
    let budget = Budget {
        steps_per_key: 10_000,
        steps: 10_000,
    };
    assert_eq!(check(&history, budget).verdict.word(), "unknown");
}

fn shape() -> Shape {
    Shape {
        clients: 4,
        ops: 60,
        keys: 2,
        unknown: 40,
        registers: true,
        watchers: 0,
    }
}

#[test]
fn whatever_the_model_does_is_valid() {
    for seed in 0..200 {
        for shape in [
            shape(),
            Shape {
                clients: 3,
                ..Shape::default()
            },
        ] {
            let history = generate::history(seed, &shape);
            let verdict = check(&history, Budget::default()).verdict;
            assert!(verdict.is_valid(), "seed {seed}: {verdict:#?}");
        }
    }
}

/// Tries every order of a few operations that are over.
fn by_force(history: &History) -> bool {
    fn go(ops: &[Op], done: &mut Vec<usize>, state: Option<&Blob>) -> bool {
        if done.len() == ops.len() {
            return true;
        }
        (0..ops.len()).any(|at| {
            let first = |at: usize| {
                let later = (0..ops.len()).filter(|other| !done.contains(other));
                later
                    .into_iter()
                    .all(|other| ops[other].ret >= ops[at].call)
            };
            if done.contains(&at) || !first(at) {
                return false;
            }
            let next = match (&ops[at].request, ops[at].reply().map(|reply| &reply.body)) {
                (Request::Put(put), _) => Some(&put.value),
                (_, Some(Body::Range { kvs, .. })) => {
                    if kvs.first().map(|kv| &kv.value) != state {
                        return false;
                    }
                    state
                }
                _ => state,
            };
            done.push(at);
            let found = go(ops, done, next);
            done.pop();
            found
        })
    }
    go(&history.ops, &mut Vec::new(), None)
}

#[test]
fn the_search_agrees_with_trying_everything() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut history = History::default();
        for process in 0..6 {
            let call = random.between(1, 12);
            let when = (call, call + random.below(6));
            // Two values, so that reads have several writes to choose from.
            let value = random.between(1, 2).to_string();
            if random.below(2) == 0 {
                history.ok(process, when, put("a", &value), wrote(9));
            } else {
                let value = if random.below(4) == 0 { "" } else { &value };
                read(&mut history, process, when, value);
            }
        }
        let expected = by_force(&history);
        let verdict = check(&history, Budget::default()).verdict;
        assert_eq!(verdict.is_valid(), expected, "seed {seed}: {history:#?}");
        right += usize::from(expected);
        wrong += usize::from(!expected);
    }
    assert!(right > 200 && wrong > 200, "{right} right, {wrong} wrong");
}
