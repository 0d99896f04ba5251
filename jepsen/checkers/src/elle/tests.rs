//! One small history for each phenomenon, and many that are right.

use super::check;
use crate::{
    generate::Random,
    history::{History, Known, ListTxn, Micro, Span},
};

fn txn(process: u32, call: u64, ret: u64, ops: Vec<Micro>) -> ListTxn {
    ListTxn {
        span: Span { process, call, ret },
        ops,
        outcome: Known::Ok,
    }
}

fn word(lists: Vec<ListTxn>) -> &'static str {
    let history = History {
        lists,
        ..History::default()
    };
    check(&history).word()
}

fn add(key: u64, value: u64) -> Micro {
    Micro::Append(key, value)
}

fn list(key: u64, list: &[u64]) -> Micro {
    Micro::Read(key, Some(list.to_vec()))
}

#[test]
fn dirty_writes_are_g0() {
    let found = word(vec![
        txn(0, 1, 9, vec![add(1, 1), add(2, 1)]),
        txn(1, 1, 9, vec![add(1, 2), add(2, 2)]),
        txn(2, 10, 11, vec![list(1, &[1, 2]), list(2, &[2, 1])]),
    ]);
    assert_eq!(found, "G0");
}

#[test]
fn what_was_aborted_must_not_be_read() {
    let mut aborted = txn(0, 1, 2, vec![add(1, 1)]);
    aborted.outcome = Known::Fail;
    assert_eq!(
        word(vec![aborted, txn(1, 3, 4, vec![list(1, &[1])])]),
        "G1a"
    );
}

#[test]
fn the_middle_of_a_transaction_must_not_be_read() {
    let found = word(vec![
        txn(0, 1, 9, vec![add(1, 1), add(1, 2)]),
        txn(1, 1, 9, vec![list(1, &[1])]),
        txn(2, 1, 9, vec![list(1, &[1, 2])]),
    ]);
    assert_eq!(found, "G1b");
}

#[test]
fn information_must_not_flow_in_circles() {
    let found = word(vec![
        txn(0, 1, 9, vec![add(1, 1), list(2, &[2])]),
        txn(1, 1, 9, vec![add(2, 2), list(1, &[1])]),
    ]);
    assert_eq!(found, "G1c");
}

#[test]
fn read_skew_is_g_single() {
    let found = word(vec![
        txn(0, 1, 9, vec![add(1, 1), add(2, 1)]),
        txn(1, 1, 9, vec![list(1, &[]), list(2, &[1])]),
        txn(2, 1, 9, vec![list(1, &[1])]),
    ]);
    assert_eq!(found, "G-single");
}

#[test]
fn write_skew_is_g2() {
    let found = word(vec![
        txn(0, 1, 9, vec![list(1, &[]), add(2, 1)]),
        txn(1, 1, 9, vec![list(2, &[]), add(1, 1)]),
        txn(2, 10, 11, vec![list(1, &[1]), list(2, &[1])]),
    ]);
    assert_eq!(found, "G2-item");
}

#[test]
fn two_that_read_the_same_and_append_lose_an_update() {
    let found = word(vec![
        txn(0, 1, 9, vec![list(1, &[]), add(1, 1)]),
        txn(1, 1, 9, vec![list(1, &[]), add(1, 2)]),
        txn(2, 10, 11, vec![list(1, &[1, 2])]),
    ]);
    assert_eq!(found, "lost-update");
}

#[test]
fn a_stale_read_is_a_cycle_in_real_time_only() {
    let stale = |process: u32| {
        word(vec![
            txn(0, 1, 2, vec![add(1, 1)]),
            txn(process, 3, 4, vec![list(1, &[])]),
            txn(2, 5, 6, vec![list(1, &[1])]),
        ])
    };
    assert_eq!(stale(1), "G-single-realtime");
    assert_eq!(stale(0), "G-single-process");
}

#[test]
fn an_acknowledged_append_that_is_never_read_is_lost() {
    let found = word(vec![
        txn(0, 1, 2, vec![add(1, 1)]),
        txn(1, 3, 4, vec![list(1, &[])]),
    ]);
    assert_eq!(found, "G-single-realtime");
    let overlapping = word(vec![
        txn(0, 1, 5, vec![add(1, 1)]),
        txn(1, 3, 4, vec![list(1, &[])]),
    ]);
    assert_eq!(overlapping, "valid");
}

#[test]
fn lists_must_make_sense_by_themselves() {
    let one = || txn(0, 1, 2, vec![add(1, 1)]);
    let two = || txn(1, 1, 2, vec![add(1, 2)]);
    let read = |lists: &[u64]| txn(2, 1, 9, vec![list(1, lists)]);
    assert_eq!(word(vec![one(), read(&[1, 1])]), "duplicate-element");
    assert_eq!(word(vec![one(), read(&[7])]), "phantom-element");
    let orders = vec![one(), two(), read(&[1, 2]), read(&[2])];
    assert_eq!(word(orders), "incompatible-order");
    let own = txn(3, 1, 2, vec![add(1, 3), list(1, &[])]);
    assert_eq!(word(vec![own]), "internal");
    let twice = vec![one(), one()];
    assert_eq!(word(twice), "unknown", "the test is wrong, not the store");
}

#[test]
fn what_nobody_knows_may_have_happened_or_not() {
    let mut unknown = txn(0, 1, 2, vec![add(1, 1)]);
    unknown.outcome = Known::Info;
    let never = txn(1, 3, 4, vec![list(1, &[])]);
    let late = txn(1, 5, 6, vec![list(1, &[1])]);
    assert_eq!(word(vec![unknown.clone(), never.clone()]), "valid");
    assert_eq!(word(vec![unknown.clone(), never, late.clone()]), "valid");
    let mut gone = txn(1, 7, 8, vec![list(1, &[])]);
    gone.span.process = 3;
    assert_eq!(word(vec![unknown, late, gone]), "G-single-realtime");
}

#[test]
fn registers_are_ordered_by_who_read_before_writing() {
    let get = |key, value| Micro::Get(key, Some(value));
    let found = word(vec![
        txn(0, 1, 9, vec![get(1, None), Micro::Write(1, 1)]),
        txn(1, 1, 9, vec![get(1, None), Micro::Write(1, 2)]),
    ]);
    assert_eq!(found, "G2-item");
    let circle = word(vec![
        txn(0, 1, 9, vec![Micro::Write(1, 1), get(2, Some(2))]),
        txn(1, 1, 9, vec![Micro::Write(2, 2), get(1, Some(1))]),
    ]);
    assert_eq!(circle, "G1c");
    let right = word(vec![
        txn(0, 1, 2, vec![get(1, None), Micro::Write(1, 1)]),
        txn(1, 3, 4, vec![get(1, Some(1)), Micro::Write(1, 2)]),
        txn(2, 5, 6, vec![get(1, Some(2))]),
    ]);
    assert_eq!(right, "valid");
}

/// Runs transactions one after another, each at a moment within its span.
fn serial(seed: u64) -> Vec<ListTxn> {
    let mut random = Random::new(seed);
    let mut lists = vec![Vec::new(); 3];
    let mut txns = Vec::new();
    for at in 0..60 {
        let moment = 10 * (at + 1);
        let mut ops = Vec::new();
        for step in 0..random.between(1, 4) {
            let key = random.below(3);
            let list = &mut lists[key as usize];
            if random.below(2) == 0 {
                list.push(at * 10 + step);
                ops.push(add(key, at * 10 + step));
            } else {
                ops.push(Micro::Read(key, Some(list.clone())));
            }
        }
        let call = moment - random.between(1, 40).min(moment);
        let ret = moment + random.between(0, 40);
        // One process each: nobody is before anybody but in time.
        let process = u32::try_from(at).unwrap();
        txns.push(txn(process, call, ret, ops));
    }
    txns
}

#[test]
fn whatever_is_done_one_after_another_is_valid() {
    for seed in 0..300 {
        assert_eq!(word(serial(seed)), "valid", "seed {seed}");
    }
}

#[test]
fn a_read_that_misses_what_was_over_is_found() {
    let mut found = 0;
    for seed in 0..1000 {
        let mut txns = serial(seed);
        let mut random = Random::new(seed ^ 0xbad);
        let at = random.below(txns.len() as u64) as usize;
        let span = txns[at].span;
        // Cut the last element off a list whose append was over before this began.
        let over: Vec<_> = txns
            .iter()
            .filter(|txn| txn.span.before(&span))
            .flat_map(|txn| txn.ops.clone())
            .collect();
        let reads = |op: &&mut Micro| matches!(op, Micro::Read(..));
        let Some(Micro::Read(key, Some(list))) = txns[at].ops.iter_mut().find(reads) else {
            continue;
        };
        if list
            .last()
            .is_some_and(|last| over.contains(&add(*key, *last)))
        {
            list.pop();
            found += 1;
            assert_ne!(word(txns), "valid", "seed {seed}");
        }
    }
    assert!(found > 30, "only {found} histories were broken");
}
