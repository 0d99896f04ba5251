//! Rights given and taken, by hand.

use super::check;
use crate::history::*;

fn set_up() -> History {
    let mut history = History::default();
    let steps = [
        AuthChange::AddUser("u".into()),
        AuthChange::AddRole("r".into()),
        AuthChange::GrantRange {
            role: "r".into(),
            key: "a".into(),
            end: "b".into(),
            read: true,
            write: true,
        },
        AuthChange::GrantRole {
            user: "u".into(),
            role: "r".into(),
        },
        AuthChange::Enable,
    ];
    for (step, at) in steps.into_iter().zip(0..) {
        history.ok(0, (2 * at, 2 * at + 1), Request::Auth(step), done(1));
    }
    history
}

fn revoke() -> Request {
    Request::Auth(AuthChange::RevokeRole {
        user: "u".into(),
        role: "r".into(),
    })
}

fn ask(history: &mut History, when: (Time, Time), key: &str, served: bool) {
    if served {
        history.ok(1, when, get(key), found(1, []));
    } else {
        history.fail(1, when, get(key), Refusal::Denied);
    }
    history.ops.last_mut().unwrap().user = Some("u".into());
}

fn word(history: &History) -> &'static str {
    check(history).word()
}

#[test]
fn what_was_given_is_served_and_nothing_else() {
    let mut history = set_up();
    ask(&mut history, (20, 21), "a1", true);
    ask(&mut history, (20, 21), "b", false);
    assert_eq!(word(&history), "valid");
    ask(&mut history, (22, 23), "b", true);
    assert_eq!(word(&history), "unauthorized");
    history.ops.pop();
    ask(&mut history, (22, 23), "a1", false);
    assert_eq!(word(&history), "wrongly-denied");
}

#[test]
fn what_was_taken_is_refused_once_that_was_acknowledged() {
    let mut history = set_up();
    history.ok(0, (30, 40), revoke(), done(1));
    ask(&mut history, (35, 36), "a1", true);
    ask(&mut history, (37, 38), "a1", false);
    assert_eq!(word(&history), "valid", "they overlap the change");
    ask(&mut history, (41, 42), "a1", true);
    assert_eq!(word(&history), "unauthorized");
}

#[test]
fn a_change_of_unknown_outcome_may_come_at_any_time() {
    let mut history = set_up();
    history.info(0, (30, 40), revoke(), "timeout");
    ask(&mut history, (50, 51), "a1", true);
    ask(&mut history, (60, 61), "a1", false);
    assert_eq!(word(&history), "valid");
    ask(&mut history, (50, 51), "b", true);
    assert_eq!(word(&history), "unauthorized");
}

#[test]
fn a_transaction_needs_the_rights_of_both_branches() {
    let mut history = set_up();
    let hidden = txn().then(get("a1")).or_else(txn().then(put("b", "1")));
    let reply = decided(1, true, [found(1, [])]);
    history.ok(1, (20, 21), hidden, reply);
    history.ops.last_mut().unwrap().user = Some("u".into());
    assert_eq!(word(&history), "unauthorized");
}
