//! Histories written by hand, small enough to see why each is right or wrong.

use super::check;
use crate::history::*;

fn word(history: &History) -> &'static str {
    check(history).word()
}

fn at(revision: i64, key: &str, value: &str, create: i64, version: i64) -> Told {
    let pair = kv(key, value, create, revision, version);
    events(revision, [was_put(pair)])
}

#[test]
fn a_quiet_history_is_valid() {
    let mut history = History::default();
    history.ok(0, (1, 2), put("a", "1"), wrote(2));
    history.ok(1, (3, 4), get("a"), found(2, [kv("a", "1", 2, 2, 1)]));
    history.ok(1, (5, 6), delete("a"), deleted(3, 1));
    history.ok(0, (7, 8), get("a"), found(3, []));
    let log = [at(2, "a", "1", 2, 1), events(3, [was_deleted("a", 3)])];
    history.log(0, log.clone());
    history.log(1, log);
    assert_eq!(word(&history), "valid");
}

#[test]
fn without_a_log_nothing_is_known() {
    let mut history = History::default();
    history.ok(0, (1, 2), put("a", "1"), wrote(2));
    assert_eq!(word(&history), "unknown");
}

#[test]
fn a_read_after_a_write_must_see_it() {
    let mut history = History::default();
    history.log(0, [at(2, "a", "1", 2, 1)]);
    history.ok(0, (1, 2), put("a", "1"), wrote(2));
    history.ok(1, (3, 4), get("a"), found(1, []));
    assert_eq!(word(&history), "stale-read");
    history.ops[1].call = 2;
    assert_eq!(word(&history), "valid", "they overlap now");
    history.ops[1].call = 3;
    history.ops[1].request = get("a").stale().into();
    assert_eq!(word(&history), "valid", "an old answer was permitted");
}

#[test]
fn a_watch_proves_that_a_write_happened() {
    let mut history = History::default();
    history.log(0, [at(2, "a", "1", 2, 1)]);
    history.info(0, (1, 9), put("a", "1"), "timeout");
    let watch = history.watch(1, 0, WatchRequest::default());
    watch.told.push((5, at(2, "a", "1", 2, 1)));
    history.ok(2, (6, 7), get("a"), found(1, []));
    assert_eq!(word(&history), "stale-read");
}

#[test]
fn a_write_of_unknown_outcome_may_happen_once() {
    let mut history = History::default();
    history.info(0, (1, 9), put("a", "1"), "timeout");
    history.log(0, []);
    assert_eq!(word(&history), "valid");
    history.watches[0]
        .told
        .push((Time::MAX, at(2, "a", "1", 2, 1)));
    assert_eq!(word(&history), "valid");
    history.watches[0]
        .told
        .push((Time::MAX, at(3, "a", "1", 2, 2)));
    assert_eq!(word(&history), "double-apply");
    history.ops[0].outcome = Outcome::Fail(Refusal::Other("no connection".into()));
    assert_eq!(word(&history), "aborted-write");
    history.ops.clear();
    assert_eq!(word(&history), "phantom");
}

#[test]
fn a_lease_that_ends_explains_what_it_takes_along() {
    let mut history = History::default();
    history.info(0, (1, 9), grant(7, 5), "timeout");
    history.ok(1, (2, 3), put("a", "1").with(7), wrote(2));
    let mut pair = kv("a", "1", 2, 2, 1);
    pair.lease = 7;
    history.log(
        0,
        [events(2, [was_put(pair)]), events(3, [was_deleted("a", 3)])],
    );
    assert_eq!(word(&history), "valid");
    history.ok(2, (10, 11), put("b", "1").with(7), wrote(4));
    let mut pair = kv("b", "1", 4, 4, 1);
    pair.lease = 7;
    history.watches[0]
        .told
        .push((Time::MAX, events(4, [was_put(pair)])));
    assert_eq!(
        word(&history),
        "not-refused",
        "it ended, and was granted once"
    );
}

#[test]
fn unknown_deletes_are_matched_in_the_order_they_were_asked() {
    let mut history = History::default();
    history.ok(0, (1, 2), put("a", "1"), wrote(2));
    // The later one stands first: only the earlier can have made revision 3.
    history.info(1, (20, 30), delete("a"), "timeout");
    history.info(2, (3, 30), delete("a"), "timeout");
    history.ok(0, (10, 11), put("a", "2"), wrote(4));
    let told = [
        at(2, "a", "1", 2, 1),
        events(3, [was_deleted("a", 3)]),
        at(4, "a", "2", 4, 1),
        events(5, [was_deleted("a", 5)]),
    ];
    history.log(0, told);
    assert_eq!(word(&history), "valid");
}

#[test]
fn compaction_forbids_and_excuses() {
    let mut history = History::default();
    history.log(0, [at(2, "a", "1", 2, 1), at(3, "a", "2", 2, 2)]);
    history.ok(0, (1, 2), put("a", "1"), wrote(2));
    history.ok(0, (3, 4), put("a", "2"), wrote(3));
    history.fail(1, (5, 6), get("a").at(2), Refusal::Compacted);
    assert_eq!(word(&history), "wrong-refusal");
    history.ok(0, (5, 7), Request::Compact { revision: 3 }, done(3));
    assert_eq!(word(&history), "valid");
    let old = found(3, [kv("a", "1", 2, 2, 1)]);
    history.ok(0, (8, 9), get("a").at(2), old);
    assert_eq!(word(&history), "not-refused");
}

#[test]
fn whatever_the_model_does_is_valid() {
    for seed in 0..200 {
        let history = crate::generate::history(seed, &crate::generate::Shape::default());
        let verdict = check(&history);
        assert!(verdict.is_valid(), "seed {seed}: {verdict:#?}");
    }
}
