//! What holds of every object that was taken in: in whatever form it is written it is
//! read again as the same, and what may be stored can be shown, updated and deleted.

use apiserver::fuzzing::{self, Media};
use bytes::Bytes;
use jiff::Timestamp;
use meta::{Object, ResourceVersion};
use registry::rest::{self, CreateFacts, DeleteOptions, DeleteStep};
use registry::{Endpoint, Kind, admission, json};
use serde_json::Value;

use super::grow;

/// The time in which everything happens.
pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

/// Checks an object that a body was read as, and what a creation makes of it.
pub(super) fn of_read(kind: &'static Kind, object: &Value) {
    both_ways(kind, object);
    if let Some(made) = created(kind, object.clone()) {
        of_created(kind, &made);
    }
}

/// Checks that an object is read as it is written, in every form.
pub(super) fn both_ways(kind: &'static Kind, object: &Value) {
    for media in [Media::Json, Media::Yaml] {
        // JSON may nest deeper than YAML.
        if media == Media::Yaml && grow::levels(object) >= json::MAX_YAML_DEPTH {
            continue;
        }
        let bytes = fuzzing::write(media, object).expect("an object is written");
        let (again, complaints) = fuzzing::take(kind, media, &bytes)
            .unwrap_or_else(|e| panic!("{media:?}: {}: {}", e.message, bytes.escape_ascii()));
        assert_eq!(&again, object, "{media:?}");
        assert!(complaints.is_empty(), "{complaints:?}");
    }
    let Some(once) = protobuf(kind, object) else {
        return;
    };
    assert_eq!(full(&once, true), full(object, true), "protobuf");
    assert_eq!(
        protobuf(kind, &once).as_ref(),
        Some(&once),
        "protobuf again"
    );
}

/// Writes an object in protobuf and reads that; `None` for a kind without messages.
fn protobuf(kind: &'static Kind, object: &Value) -> Option<Value> {
    let bytes = match fuzzing::write(Media::Protobuf, object) {
        Ok(bytes) => bytes,
        Err(status) => {
            assert_eq!(status.code, 406, "{}", status.message);
            return None;
        }
    };
    let taken = fuzzing::take(kind, Media::Protobuf, &bytes);
    let (again, complaints) = taken.expect("what was written is read");
    assert!(complaints.is_empty(), "{complaints:?}");
    Some(again)
}

/// Leaves out of a value what protobuf cannot tell from nothing, and what it does not
/// say of an object inside another one: of which type that is.
fn full(value: &Value, outermost: bool) -> Value {
    match value {
        Value::Object(map) => {
            let inside = !outermost && map.contains_key("metadata");
            let said = |name: &str| !(inside && matches!(name, "apiVersion" | "kind"));
            let members = map.iter().filter(|(name, _)| said(name));
            let members = members.map(|(name, value)| (name.clone(), full(value, false)));
            members.filter(|(_, value)| !is_nothing(value)).collect()
        }
        Value::Array(items) => items.iter().map(|item| full(item, false)).collect(),
        Value::Number(number) => Value::from(number.as_f64()),
        other => other.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(told) => !told,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Creates an object that was read; `None` is a refusal.
pub(super) fn created(kind: &Kind, mut object: Value) -> Option<Value> {
    let namespace = kind.namespaced.then_some("default");
    if let Some(namespace) = namespace
        && meta::value::namespace(&object).is_empty()
    {
        meta::value::set_metadata(&mut object, "namespace", namespace);
    }
    kind.strategy().default(&mut object);
    admission::prioritise(kind, &mut object, None).ok()?;
    admission::admit_create(kind, &mut object).ok()?;
    let facts = CreateFacts {
        namespace,
        uid: "u".to_owned(),
        now: now(),
        random: 1,
    };
    rest::before_create(kind, &mut object, &facts).ok()?;
    Some(object)
}

/// Checks an object that could be stored.
pub(super) fn of_created(kind: &'static Kind, made: &Value) {
    let mut again = made.clone();
    let unknown = kind.conform(&mut again).expect("it is of its types");
    assert_eq!(unknown, Vec::<String>::new());
    assert_eq!(&again, made, "its types change nothing any more");
    kind.strategy().default(&mut again);
    assert_eq!(&again, made, "its defaults are complete");
    rest::before_update(kind, Endpoint::Main, &mut again, made).expect("it may be as it is");
    assert_eq!(&again, made, "an update with itself changes nothing");
    both_ways(kind, made);
    of_stored(kind, made);
    let cells = kind.cells(made, now()).len();
    assert_eq!(cells, kind.column_definitions().len());
    let mut dying = made.clone();
    let first = rest::begin_delete(kind, &mut dying, &DeleteOptions::default(), now());
    if first == DeleteStep::Update {
        let second = rest::begin_delete(kind, &mut dying, &DeleteOptions::default(), now());
        assert_eq!(second, DeleteStep::Pending);
    }
}

/// Checks that storing an object loses nothing, and that its bytes can be shown.
fn of_stored(kind: &'static Kind, made: &Value) {
    let mut stored = made.clone();
    kind.to_storage(&mut stored);
    let fields = kind.selectable_fields(&stored);
    assert_eq!(fields, kind.selectable_fields(made));
    let bytes = Bytes::from(serde_json::to_vec(&stored).expect("a value is JSON"));
    kind.from_storage(&mut stored);
    assert_eq!(&stored, made, "storage loses nothing");
    let object = Object::decode(bytes, ResourceVersion(7), fields).expect("it is an object");
    let mut shown = object.to_value().expect("it is JSON");
    if kind.is_stored_form()
        && let Ok(bytes) = fuzzing::write_stored(kind, &object)
    {
        let tree = fuzzing::write(Media::Protobuf, &shown).expect("it has a message");
        let read = |bytes: &Bytes| fuzzing::take(kind, Media::Protobuf, bytes);
        let (of_bytes, of_tree) = (read(&bytes), read(&tree));
        assert_eq!(
            of_bytes.expect("it is read").0,
            of_tree.expect("it is read").0
        );
    }
    kind.from_storage(&mut shown);
    assert_eq!(meta::value::str_at(&shown, "metadata.resourceVersion"), "7");
}
