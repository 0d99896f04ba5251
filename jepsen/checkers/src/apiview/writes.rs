//! Writes: each that was acknowledged is in the log once, at its version and on the
//! version it was to be based on; each that was refused is not, and there was a reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    history::{Answer, Ask, COUNT, Call, Came, How, Read, Refused, TOKEN},
    verdict::{Anomalies, Anomaly, names},
};

use super::{LOG, View, describe, past::Change, past::Life};

pub(super) fn check(view: &View<'_>) -> Anomalies {
    let mut found = Anomalies::default();
    let mut tokens: BTreeMap<&str, BTreeMap<&str, Vec<&Change>>> = BTreeMap::new();
    for resource in view.past.resources() {
        tokens.insert(resource, view.past.tokens(resource));
    }
    let mut deleted: BTreeMap<(&str, &str), Vec<&Call>> = BTreeMap::new();
    for resource in view.past.resources() {
        let ours = view.past.changes(resource).iter().filter(|c| is_ours(c));
        deleted.extend(ours.map(|end| ((resource, &*end.key), Vec::new())));
    }
    for call in &view.history.calls {
        match &call.ask {
            Ask::Write {
                resource, token, ..
            } => {
                let of_resource = tokens.get_mut(&**resource);
                let hits = of_resource.and_then(|tokens| tokens.remove(&**token));
                write(view, call, &hits.unwrap_or_default(), &mut found);
            }
            Ask::Delete { resource, key, .. } => {
                let of_key = deleted.entry((resource, key)).or_default();
                of_key.push(call);
            }
            _ => {}
        }
    }
    for ((resource, key), calls) in &deleted {
        deletes(view, (resource, key), calls, &mut found);
    }
    let left = tokens.into_values().flatten();
    for (token, changes) in left {
        for change in changes {
            found.push(|| {
                let text = format!("nobody asked for what {token} wrote");
                in_log(names::PHANTOM, text, &[change])
            });
        }
    }
    lives(view, &mut found);
    found
}

fn in_log(name: &'static str, text: String, changes: &[&Change]) -> Anomaly {
    let mut anomaly = Anomaly::new(name, text);
    for change in changes {
        anomaly.moment(LOG, change.seen, change.to_string());
    }
    anomaly
}

fn write(view: &View<'_>, call: &Call, hits: &[&Change], found: &mut Anomalies) {
    if let [one, two, ..] = hits {
        let why = format!("it happened at {} and at {}", one.revision, two.revision);
        found.push(|| describe(names::DOUBLE_APPLY, why, call, Some((two, "once more"))));
        return;
    }
    match &call.came {
        Came::Ok(answer) => acknowledged(view, call, answer, hits.first().copied(), found),
        Came::Refused(why) => match hits.first() {
            Some(hit) => {
                let text = format!("it was refused, and happened at {}", hit.revision);
                let change = Some((*hit, "happened"));
                found.push(|| describe(names::ABORTED_WRITE, text, call, change));
            }
            None => refused(view, call, *why, found),
        },
        Came::Unknown(_) => {
            if let Some(hit) = hits.first() {
                based(view, call, hit, found);
            }
        }
    }
}

fn acknowledged(
    view: &View<'_>,
    call: &Call,
    answer: &Answer,
    hit: Option<&Change>,
    found: &mut Anomalies,
) {
    let Some(hit) = hit else {
        let why = format!(
            "it was acknowledged at {}, and is not in the log",
            answer.rv
        );
        found.push(|| describe(names::LOST_WRITE, why, call, None));
        return;
    };
    let shown = answer.objects.first();
    let same = shown.is_none_or(|seen| hit.now.as_deref() == Some(&seen.content));
    if hit.revision != answer.rv || !same {
        let why = format!("it happened at {} and otherwise than told", hit.revision);
        found.push(|| describe(names::WRONG_ANSWER, why, call, Some((hit, "is"))));
    }
    based(view, call, hit, found);
}

/// Checks what a write that happened was based on, and that it came after what was
/// known before it was asked for.
fn based(view: &View<'_>, call: &Call, hit: &Change, found: &mut Anomalies) {
    let Ask::Write { how, version, .. } = &call.ask else {
        return;
    };
    let known = view.know.before(call.call);
    if hit.revision <= known {
        let why = format!("{known} was known before it was asked for");
        found.push(|| describe(names::REAL_TIME, why, call, Some((hit, "is before"))));
    }
    let before = hit.before.as_ref();
    let wrong = match (how, before) {
        (How::Create, Some(_)) => Some((names::TWO_WINNERS, "it was there already".to_owned())),
        (How::Replace | How::Increment | How::Patch, None) => Some((
            names::WRONG_ANSWER,
            "there was nothing to change".to_owned(),
        )),
        (_, Some((at, _))) if version.is_some_and(|wanted| wanted != *at) => Some((
            names::LOST_UPDATE,
            format!("it replaced version {at}, which its client had not seen"),
        )),
        (How::Increment, Some((_, content))) => {
            let number = |c: &crate::history::Content| c.number(COUNT).unwrap_or(0);
            let now = hit.now.as_deref().map_or(0, number);
            let was = number(content);
            (now != was + 1).then(|| {
                (
                    names::LOST_UPDATE,
                    format!("{was} became {now}, not one more"),
                )
            })
        }
        _ => None,
    };
    if let Some((name, why)) = wrong {
        found.push(|| describe(name, why, call, Some((hit, "happened"))));
    }
}

/// Says whether anything that was there while a request was under way is a reason to
/// refuse it.
fn excused(
    view: &View<'_>,
    call: &Call,
    (resource, key): (&str, &str),
    reason: impl Fn(&Life<'_>) -> bool,
) -> bool {
    let (from, to) = (view.know.before(call.call), view.know.until(call.ret));
    let lives = view.past.lives(resource, key, from, to);
    lives.iter().any(reason)
}

fn refused(view: &View<'_>, call: &Call, why: Refused, found: &mut Anomalies) {
    let Ask::Write {
        how,
        resource,
        key,
        version,
        ..
    } = &call.ask
    else {
        return;
    };
    let excused = excused(view, call, (resource, key), |life| match (why, how) {
        (Refused::NotFound, How::Create) => false,
        (Refused::NotFound, _) => life.now.is_none(),
        (Refused::Exists, _) => life.now.is_some(),
        (Refused::Conflict, How::Patch | How::Apply) if version.is_none() => true,
        (Refused::Conflict, _) => life.now.is_none() || *version != Some(life.from),
        (Refused::Expired, _) => false,
    });
    if !excused {
        let text = format!("nothing was there meanwhile that is a reason: {why:?}");
        found.push(|| describe(names::WRONG_REFUSAL, text, call, None));
    }
}

/// Checks all deletions of one key: each life of it ends once, by one of those who
/// asked for that.
fn deletes(view: &View<'_>, (resource, key): (&str, &str), calls: &[&Call], found: &mut Anomalies) {
    let of_key = view.past.of_key(resource, key);
    let ends: Vec<&Change> = of_key.into_iter().filter(|c| is_ours(c)).collect();
    let mut won: BTreeMap<Arc<str>, &Call> = BTreeMap::new();
    for call in calls {
        let Ask::Delete { uid, version, .. } = &call.ask else {
            continue;
        };
        match &call.came {
            Came::Ok(answer) => {
                let told = answer.objects.first().map(|seen| &seen.content.uid);
                let Some(gone) = told.or(uid.as_ref()) else {
                    continue;
                };
                let Some(end) = ends.iter().find(|end| ended(end, gone)) else {
                    let why = "it was acknowledged, and is not in the log";
                    found.push(|| describe(names::LOST_WRITE, why, call, None));
                    continue;
                };
                if let Some(other) = won.insert(gone.clone(), call) {
                    let why = format!("p{} deleted the same", other.process);
                    found.push(|| describe(names::TWO_WINNERS, why, call, Some((end, "once"))));
                }
                deleted(view, call, (uid, *version), end, found);
            }
            Came::Refused(why) => {
                let excused = excused(view, call, (resource, key), |life| match why {
                    Refused::NotFound => life.now.is_none(),
                    Refused::Conflict => {
                        let other = life
                            .now
                            .is_some_and(|now| uid.as_ref().is_some_and(|uid| now.uid != *uid));
                        other || version.is_some_and(|v| v != life.from)
                    }
                    Refused::Exists | Refused::Expired => false,
                });
                if !excused {
                    let text = format!("nothing was there meanwhile that is a reason: {why:?}");
                    found.push(|| describe(names::WRONG_REFUSAL, text, call, None));
                }
            }
            Came::Unknown(_) => {}
        }
    }
    for end in &ends {
        let Some((at, before)) = &end.before else {
            continue;
        };
        let may = |call: &&&Call| {
            let Ask::Delete { uid, version, .. } = &call.ask else {
                return false;
            };
            !matches!(call.came, Came::Refused(_))
                && call.call <= end.seen
                && uid.as_ref().is_none_or(|uid| *uid == before.uid)
                && version.is_none_or(|version| version == *at)
        };
        if calls.iter().find(may).is_none() {
            let text = "nobody asked for this deletion, or whoever did was refused".to_owned();
            found.push(|| in_log(names::ABORTED_WRITE, text, &[end]));
        }
    }
}

/// Says whether a change ended something that a client of the run had written.
fn is_ours(change: &Change) -> bool {
    let before = change.before.as_ref().and_then(|(_, b)| b.says(TOKEN));
    change.now.is_none() && before.is_some()
}

fn ended(end: &Change, uid: &Arc<str>) -> bool {
    end.before.as_ref().is_some_and(|(_, b)| b.uid == *uid)
}

fn deleted(
    view: &View<'_>,
    call: &Call,
    (uid, version): (&Option<Arc<str>>, Option<i64>),
    end: &Change,
    found: &mut Anomalies,
) {
    let known = view.know.before(call.call);
    if end.revision <= known {
        let why = format!("{known} was known before it was asked for");
        found.push(|| describe(names::REAL_TIME, why, call, Some((end, "is before"))));
    }
    let Some((at, before)) = &end.before else {
        return;
    };
    let other = uid.as_ref().is_some_and(|uid| before.uid != *uid);
    if other || version.is_some_and(|version| version != *at) {
        let why = format!("what it deleted was {} at {at}", before.uid);
        found.push(|| describe(names::LOST_UPDATE, why, call, Some((end, "happened"))));
    }
}

/// Checks that an id belongs to one life of one name.
fn lives(view: &View<'_>, found: &mut Anomalies) {
    let mut ids: BTreeMap<&str, &Change> = BTreeMap::new();
    for resource in view.past.resources() {
        for change in view.past.changes(resource) {
            let Some(now) = change.now.as_ref().filter(|now| !now.uid.is_empty()) else {
                continue;
            };
            match &change.before {
                Some((_, before)) if before.uid == now.uid => {}
                Some(_) => {
                    let text = format!("{} has another id without a new life", change.key);
                    found.push(|| in_log(names::UID_REUSED, text, &[change]));
                }
                None => {
                    if let Some(first) = ids.insert(&now.uid, change) {
                        let text = format!("{} has an id that was used before", change.key);
                        found.push(|| in_log(names::UID_REUSED, text, &[first, change]));
                    }
                }
            }
        }
    }
}

/// Checks counters without the log: no read may show fewer increments than were
/// acknowledged before it, or more than were asked for.
pub(super) fn counters(view: &View<'_>) -> (usize, Anomalies) {
    let mut found = Anomalies::default();
    let mut acknowledged: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    let mut asked: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for call in &view.history.calls {
        if let Ask::Write {
            how: How::Increment,
            resource,
            key,
            ..
        } = &call.ask
        {
            let place = (&**resource, &**key);
            match call.came {
                Came::Ok(_) => acknowledged.entry(place).or_default().push(call.ret),
                Came::Refused(_) => continue,
                Came::Unknown(_) => {}
            }
            asked.entry(place).or_default().push(call.call);
        }
    }
    acknowledged.values_mut().for_each(|v| v.sort_unstable());
    asked.values_mut().for_each(|v| v.sort_unstable());
    let mut checked = 0;
    for call in &view.history.calls {
        let resource = match &call.ask {
            Ask::Get {
                resource,
                read: Read::Fresh,
                ..
            } => resource,
            Ask::List {
                scope,
                read: Read::Fresh,
            } => &scope.resource,
            _ => continue,
        };
        let objects = call.answer().map_or(&[][..], |answer| &answer.objects);
        for seen in objects {
            let place = (&**resource, &*seen.key);
            let (Some(number), Some(asked)) = (seen.content.number(COUNT), asked.get(&place))
            else {
                continue;
            };
            let before = |times: &[u64], at: u64| times.partition_point(|t| *t < at) as i64;
            let done = acknowledged.get(&place).map_or(&[][..], |v| v);
            let (least, most) = (before(done, call.call), before(asked, call.ret));
            checked += 1;
            if number < least || number > most {
                let why = format!(
                    "{} is {number}: {least} increments were acknowledged, {most} asked for",
                    seen.key
                );
                found.push(|| describe(names::LOST_UPDATE, why, call, None));
            }
        }
    }
    (checked, found)
}
