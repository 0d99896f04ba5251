//! Gets and lists: each shows what was there at its version, and its version is new
//! enough for what was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{
    history::{Answer, Ask, Call, Came, History, Read, Refused, Scope, Seen},
    verdict::{Anomalies, names},
};

use super::{View, describe, past::Change};

pub(super) fn check(view: &View<'_>) -> Anomalies {
    let mut found = Anomalies::default();
    for call in &view.history.calls {
        match (&call.ask, &call.came) {
            (
                Ask::Get {
                    resource,
                    key,
                    read,
                },
                came,
            ) => get(view, call, (resource, key), *read, came, &mut found),
            (Ask::List { scope, read }, Came::Ok(answer)) => {
                list(view, call, scope, *read, answer, &mut found);
            }
            (Ask::List { read, .. }, Came::Refused(Refused::Expired)) => {
                expired(view, call, *read, &mut found);
            }
            (Ask::Dump(resource), Came::Ok(answer)) => {
                let scope = Scope {
                    resource: resource.clone(),
                    ..Scope::default()
                };
                matches_past(view, call, &scope, answer, &mut found);
            }
            _ => {}
        }
    }
    sessions(view.history, &mut found);
    found
}

/// Checks one object, or that there was none.
fn get(
    view: &View<'_>,
    call: &Call,
    (resource, key): (&str, &str),
    read: Read,
    came: &Came,
    found: &mut Anomalies,
) {
    let shown = match came {
        Came::Ok(answer) => answer.objects.first(),
        Came::Refused(Refused::NotFound) => None,
        _ => return,
    };
    if let Some(seen) = shown
        && !real(view, call, resource, seen, found)
    {
        return;
    }
    let least = match read {
        Read::Fresh => view.know.before(call.call),
        Read::AtLeast(rv) | Read::Exact(rv) => rv,
        Read::Any => return,
    };
    let lives = view
        .past
        .lives(resource, key, least, view.know.until(call.ret));
    let fits = lives.iter().any(|life| match shown {
        Some(seen) => life.from == seen.rv,
        None => life.now.is_none(),
    });
    if fits {
        return;
    }
    let of_key = view.past.of_key(resource, key);
    let shown_at = shown.map_or(0, |seen| seen.rv);
    let missed = of_key
        .iter()
        .find(|c| c.revision > shown_at && c.revision <= least)
        .or(of_key.iter().find(|c| c.revision > shown_at));
    let why = format!("revision {least} was known before, and {key} was not so then or later");
    let change = missed.map(|c| (*c, "known before"));
    found.push(|| describe(names::STALE_READ, why, call, change));
}

/// Checks that an object is one that was ever there.
fn real(view: &View<'_>, call: &Call, resource: &str, seen: &Seen, found: &mut Anomalies) -> bool {
    let change = view.past.at(resource, &seen.key, seen.rv);
    let same = change.is_some_and(|c| c.now.as_deref() == Some(&seen.content));
    if !same {
        let why = match change {
            Some(_) => format!("{} was something else at {}", seen.key, seen.rv),
            None => format!("nothing happened to {} at {}", seen.key, seen.rv),
        };
        let change = change.map(|c| (c, "is"));
        found.push(|| describe(names::WRONG_ANSWER, why, call, change));
    }
    same
}

/// Checks a list, whole or put together from pages.
fn list(
    view: &View<'_>,
    call: &Call,
    scope: &Scope,
    read: Read,
    answer: &Answer,
    found: &mut Anomalies,
) {
    let rv = answer.rv;
    if let Some(other) = answer.pages.iter().find(|page| **page != rv) {
        let why = format!("a page of the list at {rv} is at {other}");
        found.push(|| describe(names::TORN_LIST, why, call, None));
    }
    let too_old = match read {
        Read::Fresh => {
            let known = view.know.before(call.call);
            let missed = missed(view, scope, rv, known);
            missed.map(|c| (c, format!("{known} was known before, the list is at {rv}")))
        }
        Read::AtLeast(least) | Read::Exact(least) if rv < least => {
            let why = format!("it is at {rv}, and {least} was asked for");
            found.push(|| describe(names::TIME_TRAVEL, why, call, None));
            None
        }
        Read::Exact(exact) if rv != exact => {
            let why = format!("it is at {rv}, and exactly {exact} was asked for");
            found.push(|| describe(names::WRONG_ANSWER, why, call, None));
            None
        }
        _ => None,
    };
    if let Some((change, why)) = too_old {
        let change = Some((change, "known before"));
        found.push(|| describe(names::STALE_READ, why, call, change));
    }
    let future = view.know.until(call.ret);
    if rv > future && missed(view, scope, future, rv).is_some() {
        let why = format!("it is at {rv}, and {} was asked for later", future + 1);
        found.push(|| describe(names::FROM_THE_FUTURE, why, call, None));
    }
    matches_past(view, call, scope, answer, found);
}

/// Finds a change of what a list shows after one revision, up to another.
fn missed<'a>(view: &View<'a>, scope: &Scope, after: i64, until: i64) -> Option<&'a Change> {
    let changes = view.past.after(&scope.resource, after).iter();
    let mut near = changes.take_while(|c| c.revision <= until);
    near.find(|c| {
        let shows = |content: &crate::history::Content| scope.selects(content);
        let was = c.before.as_ref().is_some_and(|(_, b)| shows(b));
        scope.holds(&c.key) && (was || c.now.as_deref().is_some_and(shows))
    })
}

/// Compares a list with what was there at its version, object by object.
fn matches_past(
    view: &View<'_>,
    call: &Call,
    scope: &Scope,
    answer: &Answer,
    found: &mut Anomalies,
) {
    let state = view.past.state(scope, answer.rv);
    let mut shown = BTreeSet::new();
    let mut last: Option<&Arc<str>> = None;
    for seen in &answer.objects {
        if !shown.insert(&*seen.key) {
            let why = format!("{} is in the list twice", seen.key);
            found.push(|| describe(names::DUPLICATE_OBJECT, why, call, None));
        } else if last.is_some_and(|last| *last > seen.key) {
            let why = format!("{} comes too late in the list", seen.key);
            found.push(|| describe(names::WRONG_ANSWER, why, call, None));
        }
        last = Some(&seen.key);
        if state.get(&*seen.key) != Some(&(seen.rv, &seen.content)) {
            let why = match state.get(&*seen.key) {
                Some((rv, _)) if *rv != seen.rv => format!(
                    "{} is at {} in the list at {}, and was at {rv}",
                    seen.key, seen.rv, answer.rv
                ),
                Some(_) => format!("{} was something else at {}", seen.key, seen.rv),
                None => format!("{} was not there at {}", seen.key, answer.rv),
            };
            let change = view.past.at(&scope.resource, &seen.key, seen.rv);
            let change = change.map(|c| (c, "is"));
            found.push(|| describe(names::WRONG_ANSWER, why, call, change));
        }
    }
    for (key, (rv, _)) in state {
        if !shown.contains(key) {
            let why = format!("{key} was there at {}, and is not in the list", answer.rv);
            let change = view.past.at(&scope.resource, key, rv);
            let change = change.map(|c| (c, "is missing"));
            found.push(|| describe(names::MISSING_OBJECT, why, call, change));
        }
    }
}

/// Checks a list that was refused as too old.
fn expired(view: &View<'_>, call: &Call, read: Read, found: &mut Anomalies) {
    let old = match read {
        Read::Exact(rv) => view.know.forgotten(rv),
        // Pages of what was fresh when the first came.
        _ => view.know.forgotten(view.know.before(call.call)),
    };
    if !old {
        let why = "the store had not forgotten what was asked for";
        found.push(|| describe(names::WRONG_COMPACTION, why, call, None));
    }
}

/// Walks over the lists of each client of each scope, in their order, with the version
/// of the one before if this one is older.
fn back(history: &History, mut each: impl FnMut(&Call, Read, i64)) {
    let mut calls: Vec<_> = history.calls.iter().collect();
    calls.sort_by_key(|c| (c.process, c.call));
    let mut last: BTreeMap<(u32, &Scope), i64> = BTreeMap::new();
    for call in calls {
        let (Ask::List { scope, read }, Some(answer)) = (&call.ask, call.answer()) else {
            continue;
        };
        if matches!(read, Read::Exact(_)) {
            continue;
        }
        let before = last.entry((call.process, scope)).or_default();
        if answer.rv < *before {
            each(call, *read, *before);
        }
        *before = answer.rv.max(*before);
    }
}

fn sessions(history: &History, found: &mut Anomalies) {
    back(history, |call, read, before| {
        let promised = match read {
            Read::Fresh => true,
            Read::AtLeast(rv) => rv >= before,
            Read::Any | Read::Exact(_) => false,
        };
        if promised {
            let why = format!("its client had seen version {before} before");
            found.push(|| describe(names::TIME_TRAVEL, why, call, None));
        }
    });
}

pub(super) fn times_travelled(history: &History) -> usize {
    let mut count = 0;
    back(history, |_, read, _| {
        count += usize::from(read == Read::Any)
    });
    count
}
