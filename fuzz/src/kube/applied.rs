//! Configurations that several managers apply to one object, and writes between.
//!
//! Promised (`registry::fieldmerge`): a conflict, an error or a new object; the same
//! configuration applied once more changes nothing; who owns what can be read again,
//! and nobody owns nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use apiserver::fuzzing::{self, Media};
use meta::Reason;
use registry::fieldmerge::{self, Managed, Served, Writer, same_but_times};
use registry::{Endpoint, Kind, rest};
use serde_json::Value;

use super::super::draw::Draw;
use super::{grow, laws, seeds};

const MANAGERS: [&str; 4] = ["a", "b", "kubectl", "before-first-apply"];

/// Writes to one object as several managers.
pub fn applied(input: &[u8]) {
    let mut draw = Draw::new(input);
    let (kind, object) = seeds::written(&mut draw);
    let mut object = object;
    if kind.conform(&mut object).is_err() {
        return;
    }
    meta::value::set_metadata(&mut object, "managedFields", Value::Null);
    let served = served(kind);
    let mut live = None;
    for _ in 0..1 + draw.byte() % 5 {
        let manager = MANAGERS[draw.below(MANAGERS.len())];
        let writer = served.writer(manager, "", laws::now());
        let next = match (draw.byte() % 4, &live) {
            (0, Some(live)) => replaced(&mut draw, kind, live, writer),
            _ => {
                let force = draw.byte().is_multiple_of(2);
                let bytes = config(&mut draw, &object);
                apply(kind, live.as_ref(), &bytes, writer, force)
            }
        };
        if let Some(next) = next {
            accounted(&next);
            live = Some(next);
        }
    }
    if let Some(live) = &live {
        laws::both_ways(kind, live);
    }
}

/// Returns what field merge must know of a kind, which takes longer to make than to use.
fn served(kind: &'static Kind) -> &'static Served {
    static MADE: Mutex<BTreeMap<String, &'static Served>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(kind.gvk().to_string()).or_insert_with(|| {
        let served = Served::new(kind, Endpoint::Main).expect("it is a built-in kind");
        Box::leak(Box::new(served))
    })
}

/// Draws a configuration out of an object.
fn config(draw: &mut Draw<'_>, object: &Value) -> Vec<u8> {
    let mut config = object.clone();
    grow::changes(draw, &mut config);
    let media = match draw.byte() % 4 {
        0 => Media::Yaml,
        _ => Media::Json,
    };
    let mut text = fuzzing::write(media, &config)
        .expect("a value is written")
        .to_vec();
    if draw.byte() == 0 {
        draw.damage(&mut text);
    }
    text
}

/// Applies a configuration, and the same once more.
fn apply(
    kind: &'static Kind,
    live: Option<&Value>,
    bytes: &[u8],
    writer: Writer<'_>,
    force: bool,
) -> Option<Value> {
    let new = match fuzzing::apply(kind, live, bytes, writer, force) {
        Ok(new) => new,
        Err(status) => {
            // To what does not fit its type upstream answers 500, without a reason.
            let misfit = status.reason == Reason::Unknown;
            let refused = (400..500).contains(&status.code);
            assert!(refused || misfit, "{} {}", status.code, status.message);
            return None;
        }
    };
    let new = finished(kind, new, live).ok()?;
    if new["metadata"]["managedFields"].is_null() {
        // Nobody owns a thing of it: the next to apply begins with what is there.
        return Some(new);
    }
    let again = fuzzing::apply(kind, Some(&new), bytes, writer, force);
    let again = again.unwrap_or_else(|e| panic!("it was applied before: {}", e.message));
    let again = finished(kind, again, Some(&new));
    let again = match again {
        Ok(again) => again,
        // A creation passes over the uid that a configuration names.
        Err(e) if live.is_none() && e.contains("UID in precondition") => return Some(new),
        Err(e) => panic!("it was right before: {e}"),
    };
    assert!(
        same_but_times(&new, &again),
        "applied twice:\n{new}\n{again}"
    );
    Some(new)
}

/// Replaces the object by a changed one.
fn replaced(
    draw: &mut Draw<'_>,
    kind: &'static Kind,
    live: &Value,
    writer: Writer<'_>,
) -> Option<Value> {
    let mut new = live.clone();
    grow::changes(draw, &mut new);
    kind.conform(&mut new).ok()?;
    kind.strategy().default(&mut new);
    let new = fieldmerge::update(Some(live), new, &writer);
    finished(kind, new, Some(live)).ok()
}

/// Does with an object what follows who owns what.
fn finished(kind: &'static Kind, mut new: Value, live: Option<&Value>) -> Result<Value, String> {
    let Some(live) = live else {
        return laws::created(kind, new).ok_or_else(|| "not created".to_owned());
    };
    let said = |refusal: &dyn std::fmt::Debug| format!("{refusal:?}");
    registry::admission::admit_update(kind, &mut new).map_err(|e| said(&e))?;
    rest::before_update(kind, Endpoint::Main, &mut new, live).map_err(|e| said(&e))?;
    Ok(new)
}

/// Checks that who owns what can be read, and is written as it was read.
fn accounted(object: &Value) {
    let Ok(managed) = Managed::of(object) else {
        return;
    };
    let again = Managed::parse(&managed.to_value()).expect("what was written is read");
    assert_eq!(again, managed);
}
