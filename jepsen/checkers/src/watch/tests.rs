//! Each rule broken by hand, and none by the model.

use super::check;
use crate::{
    generate::{self, Shape},
    history::*,
};

/// Writes a, b, then both at once; `told` is what a watch of everything is told.
fn word(revision: i64, told: Vec<Told>) -> &'static str {
    let mut history = History::default();
    history.log(0, [one(), two(), both(true, true)]);
    let request = WatchRequest {
        key: "a".into(),
        end: "c".into(),
        revision,
        prev_kv: true,
        ..WatchRequest::default()
    };
    let watch = history.watch(1, 0, request);
    watch.told.push((1, Told::Created { revision: 1 }));
    watch.told.extend((2..).zip(told));
    check(&history).word()
}

fn one() -> Told {
    events(2, [was_put(kv("a", "1", 2, 2, 1))])
}

fn two() -> Told {
    events(3, [was_put(kv("b", "1", 3, 3, 1))])
}

fn with_prev(mut event: Event, prev: Kv) -> Event {
    event.prev = Some(Box::new(prev));
    event
}

fn a4() -> Event {
    with_prev(was_put(kv("a", "2", 2, 4, 2)), kv("a", "1", 2, 2, 1))
}

fn both(a: bool, b: bool) -> Told {
    let mut list = Vec::new();
    if a {
        list.push(a4());
    }
    if b {
        list.push(with_prev(was_deleted("b", 4), kv("b", "1", 3, 3, 1)));
    }
    events(4, list)
}

#[test]
fn what_happened_in_order_is_valid() {
    assert_eq!(word(1, vec![one(), two(), both(true, true)]), "valid");
    assert_eq!(word(3, vec![two(), both(true, true)]), "valid");
    assert_eq!(
        word(0, vec![one(), Told::Progress { revision: 2 }]),
        "valid"
    );
    assert_eq!(word(1, vec![]), "valid", "events may be late");
}

#[test]
fn each_rule_has_its_name() {
    assert_eq!(word(3, vec![one()]), "unfiltered-event");
    assert_eq!(word(9, vec![one()]), "unfiltered-event");
    assert_eq!(word(1, vec![two(), one()]), "reordered-event");
    assert_eq!(word(1, vec![one(), one()]), "duplicate-event");
    let split = vec![one(), two(), both(true, false), both(false, true)];
    assert_eq!(word(1, split), "split-revision");
    assert_eq!(word(1, vec![two()]), "skipped-start");
    assert_eq!(word(1, vec![one(), both(true, true)]), "skipped-event");
    let partly = vec![one(), two(), both(false, true)];
    assert_eq!(word(1, partly), "skipped-event");
    let progress = |revision| Told::Progress { revision };
    assert_eq!(word(1, vec![one(), progress(3), two()]), "progress-ahead");
    assert_eq!(word(1, vec![one(), progress(3)]), "progress-ahead");
    assert_eq!(word(1, vec![one(), progress(1)]), "progress-ahead");
    let phantom = events(2, [was_put(kv("a", "9", 2, 2, 1))]);
    assert_eq!(word(1, vec![phantom]), "phantom-event");
    let never = events(7, [was_put(kv("a", "9", 2, 7, 1))]);
    assert_eq!(word(1, vec![never]), "phantom-event");
}

#[test]
fn the_pair_before_is_the_one_that_was_there() {
    let told = |prev: Option<Kv>| {
        let mut event = a4();
        event.prev = prev.map(Box::new);
        let rest = with_prev(was_deleted("b", 4), kv("b", "1", 3, 3, 1));
        vec![one(), two(), events(4, [event, rest])]
    };
    assert_eq!(word(1, told(None)), "wrong-prev");
    assert_eq!(word(1, told(Some(kv("a", "9", 2, 2, 1)))), "wrong-prev");
    assert_eq!(word(1, told(Some(kv("a", "1", 2, 2, 1)))), "valid");
}

#[test]
fn an_event_creates_what_was_not_there() {
    let created = events(2, [was_put(kv("a", "1", 1, 2, 2))]);
    assert_eq!(word(1, vec![created]), "wrong-create");
}

#[test]
fn nothing_ends_as_compacted_that_was_not() {
    let compacted = |revision| vec![Told::Compacted { revision }];
    assert_eq!(word(1, compacted(3)), "wrong-compaction");
}

#[test]
fn fragments_of_a_revision_are_one_piece() {
    let mut first = both(true, false);
    if let Told::Events { fragment, .. } = &mut first {
        *fragment = true;
    }
    let told = vec![one(), two(), first, both(false, true)];
    assert_eq!(word(1, told), "valid");
}

#[test]
fn whatever_the_model_tells_is_valid() {
    let mut watches = 0;
    for seed in 0..100 {
        let shape = Shape {
            ops: 300,
            watchers: 4,
            ..Shape::default()
        };
        let history = generate::history(seed, &shape);
        watches += history.watches.len();
        let verdict = check(&history);
        assert!(verdict.is_valid(), "seed {seed}: {verdict:#?}");
    }
    assert!(watches > 1000, "only {watches} watches");
}
