//! Laws that hold for every object that is accepted, and that nothing a client
//! sends makes the pipeline fail in another way than with an answer: the golden
//! inputs, with one random change each.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that reads its inputs"
)]

use std::path::Path;
use std::sync::LazyLock;

use jiff::Timestamp;
use proptest::prelude::*;
use registry::rest::{self, CreateFacts, DeleteOptions, DeleteStep};
use registry::{Endpoint, Kind, admission, json, kinds, schema};
use serde_json::Value;

const BODY_MAX: usize = 3 << 20;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

static INPUTS: LazyLock<Vec<(&'static Kind, Value)>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| {
            let decoded = json::decode_yaml(&std::fs::read(path).unwrap(), BODY_MAX).ok()?;
            let (api_version, kind) = meta::value::type_meta(&decoded.value);
            Some((kinds::find_kind(api_version, kind)?, decoded.value.clone()))
        })
        .collect()
});

/// Finds the class a pod names among those that are always there.
fn system_class(pod: &Value) -> Option<admission::Priority> {
    let named = meta::value::str_at(pod, "spec.priorityClassName");
    kinds::priorityclass::system_classes()
        .find(|class| meta::value::name(class) == named)
        .map(|class| admission::Priority::of(&class))
}

/// Returns the accepted object, or `None` for a refusal.
fn create(kind: &Kind, mut object: Value) -> Option<Value> {
    schema::conform(kind.def()?, &mut object).ok()?;
    kind.strategy().default(&mut object);
    let class = system_class(&object);
    admission::prioritise(kind, &mut object, class).ok()?;
    admission::admit_create(kind, &mut object).ok()?;
    let facts = CreateFacts {
        namespace: kind.namespaced.then_some("default"),
        uid: "u".to_owned(),
        now: now(),
        random: 1,
    };
    rest::before_create(kind, &mut object, &facts).ok()?;
    Some(object)
}

/// Collects pointers to everything inside a value.
fn pointers(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(inner, &format!("{here}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                pointers(inner, &format!("{here}/{at}"), found);
            }
        }
        _ => {}
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..70_000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["", "None", "25%", "1Gi", "-1", "é", "a.b/c", "Always"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("name|key|type|spec|[a-z]{1,3}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn check_laws(kind: &Kind, made: &Value) -> Result<(), TestCaseError> {
    let def = kind.def().unwrap();
    let mut again = made.clone();
    prop_assert_eq!(
        schema::conform(def, &mut again),
        Ok(Vec::new()),
        "conforms to its schema"
    );
    kind.strategy().default(&mut again);
    prop_assert_eq!(&again, made, "defaults are complete and stable");
    rest::before_update(kind, Endpoint::Main, &mut again, made).unwrap();
    prop_assert_eq!(&again, made, "an update with itself changes nothing");
    if kind.subresource("status").is_some() {
        rest::before_update(kind, Endpoint::Status, &mut again, made).unwrap();
        prop_assert_eq!(&again, made, "nor does a status update");
    }
    let mut stored = made.clone();
    kind.to_storage(&mut stored);
    prop_assert_eq!(
        kind.selectable_fields(&stored),
        kind.selectable_fields(made)
    );
    kind.from_storage(&mut stored);
    prop_assert_eq!(&stored, made, "storage loses nothing");
    prop_assert_eq!(kind.cells(made, now()).len(), kind.columns.len());
    // Deletion ends: at most a mark, then nothing more to do until something
    // outside acts.
    let mut dying = made.clone();
    let first = rest::begin_delete(kind, &mut dying, &DeleteOptions::default(), now());
    if first == DeleteStep::Update {
        let second = rest::begin_delete(kind, &mut dying, &DeleteOptions::default(), now());
        prop_assert_eq!(second, DeleteStep::Pending);
    }
    Ok(())
}

#[test]
fn golden_inputs_obey_the_laws() {
    let mut accepted = 0;
    for (kind, object) in INPUTS.iter() {
        if let Some(made) = create(kind, object.clone()) {
            check_laws(kind, &made).unwrap();
            accepted += 1;
        }
    }
    assert!(accepted >= 12, "{accepted}");
}

/// Replaces one place of a value.
fn change(object: &mut Value, place: &prop::sample::Index, value: Value) {
    let mut places = Vec::new();
    pointers(object, "", &mut places);
    *object
        .pointer_mut(&places[place.index(places.len())])
        .unwrap() = value;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn one_change_is_refused_or_obeys_the_laws(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        value in anything(),
    ) {
        let (kind, mut object) = INPUTS[which.index(INPUTS.len())].clone();
        change(&mut object, &place, value);
        if let Some(made) = create(kind, object) {
            check_laws(kind, &made)?;
        }
    }

    #[test]
    fn an_update_is_refused_or_keeps_what_is_the_servers(
        which in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        value in anything(),
    ) {
        let (kind, object) = INPUTS[which.index(INPUTS.len())].clone();
        let Some(old) = create(kind, object) else { return Ok(()) };
        let mut new = old.clone();
        change(&mut new, &place, value);
        if schema::conform(kind.def().unwrap(), &mut new).is_err() {
            return Ok(());
        }
        kind.strategy().default(&mut new);
        if rest::before_update(kind, Endpoint::Main, &mut new, &old).is_err() {
            return Ok(());
        }
        for field in ["uid", "creationTimestamp", "name", "namespace"] {
            prop_assert_eq!(new["metadata"].get(field), old["metadata"].get(field), "{}", field);
        }
        prop_assert_eq!(new.get("status"), old.get("status"));
        let changed = new.get("spec") != old.get("spec");
        if kind.generation && changed {
            let generation = |o: &Value| o["metadata"]["generation"].as_i64();
            // What is empty equals what is absent, so the count may stay.
            prop_assert!(generation(&new) >= generation(&old));
        }
    }
}
