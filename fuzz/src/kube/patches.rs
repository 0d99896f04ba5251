//! Patches of an object that is there, in three languages.
//!
//! Promised (`meta::patch`, `apiserver`): an error or a new object that may be stored;
//! a merge patch once more changes nothing; a strategic one without lists is a merge
//! patch; operations are carried out one after the other, all or none.

use apiserver::fuzzing::{Language, Patch};
use meta::patch::strategic::MergeSchema as _;
use registry::fieldmerge::{self, Served};
use registry::merge::TypeRules;
use registry::{Endpoint, Kind, rest};
use serde_json::{Value, json};

use super::super::draw::Draw;
use super::{grow, laws, seeds};

/// Patches an object twice.
pub fn patches(input: &[u8]) {
    let mut draw = Draw::new(input);
    let (kind, object) = seeds::written(&mut draw);
    let mut object = object;
    if kind.conform(&mut object).is_err() {
        return;
    }
    let Some(mut live) = laws::created(kind, object) else {
        return;
    };
    for _ in 0..2 {
        let (language, bytes) = match draw.byte() % 3 {
            0 => (Language::Json, operations(&mut draw, &live)),
            1 => (Language::Merge, partial(&mut draw, &live)),
            _ => (Language::Strategic, partial(&mut draw, &live)),
        };
        let patch = match Patch::read(language, &bytes) {
            Ok(patch) => patch,
            Err(status) => {
                assert_eq!(status.code, 400, "{}", status.message);
                return;
            }
        };
        alone(kind, language, &live, &bytes, &patch);
        if let Some(new) = stored(kind, &live, &patch) {
            laws::both_ways(kind, &new);
            live = new;
        }
    }
}

/// Does with a patched object what an update does with it.
fn stored(kind: &'static Kind, live: &Value, patch: &Patch) -> Option<Value> {
    let served = Served::new(kind, Endpoint::Main).expect("it is a built-in kind");
    let writer = served.writer("fuzz", "", laws::now());
    let mut new = match patch.change(kind, live) {
        Ok(new) => fieldmerge::update(Some(live), new, &writer),
        Err(status) => {
            assert!((400..500).contains(&status.code), "{}", status.message);
            return None;
        }
    };
    registry::admission::admit_update(kind, &mut new).ok()?;
    rest::before_update(kind, Endpoint::Main, &mut new, live).ok()?;
    Some(new)
}

/// Checks a patch by itself, before the object's type has its say.
fn alone(kind: &'static Kind, language: Language, live: &Value, bytes: &[u8], patch: &Patch) {
    let read: Value = serde_json::from_slice(bytes).expect("it was read");
    let once = match patch.apply(kind, live) {
        Ok(once) => once,
        Err(status) => {
            assert!((400..500).contains(&status.code), "{}", status.message);
            return;
        }
    };
    match language {
        Language::Merge => {
            let twice = patch.apply(kind, &once).expect("it fits any object");
            assert_eq!(twice, once, "merged twice");
        }
        Language::Strategic if is_plain(&read, kind.def().map(TypeRules).as_ref()) => {
            let merge = Patch::read(Language::Merge, bytes).expect("it is one too");
            let merged = merge.apply(kind, live).expect("it fits any object");
            assert_eq!(once, merged, "without lists it is a merge patch: {read}");
        }
        // What it does to a list may be another thing the second time.
        Language::Strategic => drop(patch.apply(kind, &once)),
        Language::Json => {
            let mut operations = read.as_array().into_iter().flatten();
            let one_by_one = operations.try_fold(live.clone(), |object, operation| {
                let bytes = json!([operation]).to_string();
                Patch::read(Language::Json, bytes.as_bytes())?.apply(kind, &object)
            });
            assert_eq!(one_by_one.ok().as_ref(), Some(&once), "one by one");
        }
    }
}

/// Tells whether a patch has neither lists nor directives, nor objects that replace
/// others by their type's rule.
fn is_plain(patch: &Value, rules: Option<&TypeRules>) -> bool {
    match patch {
        Value::Array(_) => false,
        Value::Object(map) => map.iter().all(|(name, value)| {
            let rule = rules.and_then(|rules| rules.field(name));
            let replaces = rule.as_ref().is_some_and(|rule| rule.replace);
            let inner = rule.as_ref().and_then(|rule| rule.schema.as_ref());
            !name.starts_with('$') && !replaces && is_plain(value, inner)
        }),
        _ => true,
    }
}

/// Draws a part of an object, changed.
fn partial(draw: &mut Draw<'_>, live: &Value) -> Vec<u8> {
    let mut patch = part(draw, live);
    grow::changes(draw, &mut patch);
    directives(draw, &mut patch);
    let mut text = patch.to_string().into_bytes();
    if draw.byte() == 0 {
        draw.damage(&mut text);
    }
    text
}

/// Takes some members of a value, and what is below them.
fn part(draw: &mut Draw<'_>, value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let members = map.iter().filter(|_| draw.byte() % 4 != 1);
            let members: Vec<_> = members.collect();
            let members = members.into_iter();
            members
                .map(|(name, value)| {
                    let value = match draw.byte() {
                        255 => Value::Null,
                        _ => part(draw, value),
                    };
                    (name.clone(), value)
                })
                .collect()
        }
        Value::Array(items) => {
            let mut kept: Vec<Value> = items.iter().map(|item| part(draw, item)).collect();
            if kept.len() > 1 && draw.byte().is_multiple_of(3) {
                kept.reverse();
            }
            kept.into()
        }
        other => other.clone(),
    }
}

/// Puts directives of strategic merge where they may stand.
fn directives(draw: &mut Draw<'_>, patch: &mut Value) {
    let Value::Object(map) = patch else { return };
    let lists: Vec<(String, Value)> = map
        .iter()
        .filter(|(_, value)| value.is_array())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (name, list) in lists {
        match draw.byte() % 8 {
            1 => drop(map.insert(format!("$setElementOrder/{name}"), list)),
            2 => drop(map.insert(format!("$deleteFromPrimitiveList/{name}"), list)),
            3 => {
                let word = ["delete", "replace", "merge", "x"][draw.below(4)];
                if let Some(Value::Array(items)) = map.get_mut(&name) {
                    let mut marked = items.first().cloned().unwrap_or_else(|| json!({}));
                    if let Value::Object(marked) = &mut marked {
                        marked.insert("$patch".to_owned(), word.into());
                    }
                    items.push(marked);
                }
            }
            _ => {}
        }
    }
    match draw.byte() % 24 {
        1 => {
            let word = ["delete", "replace", "merge", "x"][draw.below(4)];
            map.insert("$patch".to_owned(), word.into());
        }
        2 => {
            let names: Vec<Value> = map.keys().map(|name| name.as_str().into()).collect();
            map.insert("$retainKeys".to_owned(), names.into());
        }
        _ => {}
    }
    for value in map.values_mut() {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| directives(draw, item)),
            other => directives(draw, other),
        }
    }
}

/// Draws a list of operations on places that are mostly there.
fn operations(draw: &mut Draw<'_>, live: &Value) -> Vec<u8> {
    let mut list = Vec::new();
    for _ in 0..draw.below(8) {
        let word = ["add", "remove", "replace", "move", "copy", "test", "x"][draw.below(7)];
        let mut operation = json!({"op": word, "path": pointer(draw, live)});
        if matches!(word, "move" | "copy") {
            operation["from"] = pointer(draw, live).into();
        } else if word != "remove" {
            operation["value"] = grow::value(draw, 1);
        }
        if draw.byte() == 255 {
            grow::change(draw, &mut operation);
        }
        list.push(operation);
    }
    let mut text = Value::from(list).to_string().into_bytes();
    if draw.byte() == 0 {
        draw.damage(&mut text);
    }
    text
}

fn pointer(draw: &mut Draw<'_>, live: &Value) -> String {
    let (mut at, mut path) = (live, String::new());
    for _ in 0..8 {
        if draw.byte().is_multiple_of(6) {
            break;
        }
        at = match at {
            Value::Object(map) if !map.is_empty() => {
                let which = draw.below(map.len());
                let Some((name, inner)) = map.iter().nth(which) else {
                    break;
                };
                path.push('/');
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                inner
            }
            Value::Array(items) if !items.is_empty() => {
                let which = draw.below(items.len());
                path.push_str(&format!("/{which}"));
                &items[which]
            }
            _ => break,
        };
    }
    match draw.byte() % 8 {
        1 => path.push_str("/-"),
        2 => path.push_str(&format!("/{}", grow::name(draw))),
        3 => path = grow::text(draw),
        _ => {}
    }
    path
}
