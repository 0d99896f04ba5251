//! Values out of an input: any, those of a type, and changes of one that is there.

use registry::table::{DefId, Type, table};
use serde_json::{Map, Value, json};

use super::super::draw::Draw;

/// How deep a value of a type nests.
const DEPTH_MAX: usize = 9;

/// Texts that mean something somewhere.
const TEXTS: [&str; 48] = [
    "",
    "a",
    "b",
    "web",
    "default",
    "None",
    "Always",
    "Never",
    "TCP",
    "25%",
    "101%",
    "1Gi",
    "100m",
    "0",
    "-1",
    "1e3",
    "9223372036854775808",
    "true",
    "null",
    "~",
    "é",
    "\u{0}",
    "\u{1f600}",
    "\u{feff}",
    "a.b/c",
    "a/b",
    "-a",
    "A_b",
    "10.0.0.1",
    "::1",
    "fe80::1%eth0",
    "10.0.0.0/8",
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.123456Z",
    "0000-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "YQ==",
    "YQ\n==",
    "YR==",
    "spec.replicas",
    "$(A)",
    "{\"a\":1}",
    "[",
    "kubectl",
    "Apply",
    "v1",
    "key: value",
    "a=b,c notin (d)",
];

/// Numbers that arithmetic forgets, and ordinary ones.
const NUMBERS: [i64; 14] = [
    0,
    1,
    -1,
    2,
    80,
    65_535,
    65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    i32::MAX as i64 + 1,
    i64::MAX,
    i64::MIN,
    3_600,
    420,
];

/// Names of members that mean something to a kind, a patch or an apply.
const NAMES: [&str; 24] = [
    "name",
    "key",
    "type",
    "spec",
    "status",
    "metadata",
    "labels",
    "annotations",
    "managedFields",
    "finalizers",
    "containers",
    "ports",
    "replicas",
    "data",
    "items",
    "unknown",
    "",
    "a.b/c",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "resourceVersion",
    "uid",
];

pub(super) fn text(draw: &mut Draw<'_>) -> String {
    match draw.byte() {
        0..208 => TEXTS[draw.below(TEXTS.len())].to_owned(),
        208..240 => {
            let len = draw.below(12);
            String::from_utf8_lossy(draw.bytes(len)).into_owned()
        }
        _ => "x".repeat(draw.below(400)),
    }
}

pub(super) fn name(draw: &mut Draw<'_>) -> String {
    match draw.byte() {
        0..200 => NAMES[draw.below(NAMES.len())].to_owned(),
        _ => text(draw),
    }
}

pub(super) fn number(draw: &mut Draw<'_>) -> i64 {
    match draw.byte() {
        0..180 => NUMBERS[draw.below(NUMBERS.len())],
        180..240 => i64::from(draw.byte()) - 8,
        _ => draw.long().cast_signed(),
    }
}

/// Draws any value.
pub(super) fn value(draw: &mut Draw<'_>, depth: usize) -> Value {
    match draw.byte() % 12 {
        0 => Value::Null,
        1 => Value::Bool(draw.byte().is_multiple_of(2)),
        2 | 3 => number(draw).into(),
        4 => json!(f64::from(draw.byte()) / 8.0 - 4.0),
        5 if depth < 4 => (0..draw.below(4)).map(|_| value(draw, depth + 1)).collect(),
        6 | 7 if depth < 4 => (0..draw.below(4))
            .map(|_| (name(draw), value(draw, depth + 1)))
            .collect(),
        8 => draw.long().into(),
        _ => text(draw).into(),
    }
}

/// Draws a value of a definition: few fields, fewer the deeper they are.
pub(super) fn object(draw: &mut Draw<'_>, def: DefId, depth: usize) -> Value {
    let definition = table().get(def);
    if definition.fields.is_empty() {
        return typed(draw, &definition.ty, depth);
    }
    let mut object = Map::new();
    if depth >= DEPTH_MAX {
        return object.into();
    }
    let count = draw.below(if depth < 3 { 6 } else { 4 });
    let drawn: Vec<_> = (0..count)
        .map(|_| &definition.fields[draw.below(definition.fields.len())])
        .collect();
    let wanted = definition
        .fields
        .iter()
        .filter(|field| field.required && depth < 5);
    for field in wanted.chain(drawn) {
        let value = typed(draw, &field.ty, depth + 1);
        object.insert(field.name.to_owned(), value);
    }
    object.into()
}

fn typed(draw: &mut Draw<'_>, ty: &Type, depth: usize) -> Value {
    match ty {
        Type::Any => value(draw, 2),
        Type::Ref(id) => object(draw, *id, depth),
        Type::Array(inner) => (0..draw.below(3))
            .map(|_| typed(draw, inner, depth + 1))
            .collect(),
        Type::Map(inner) => (0..draw.below(3))
            .map(|_| (text(draw), typed(draw, inner, depth + 1)))
            .collect(),
        Type::Object => (0..draw.below(3))
            .map(|_| (name(draw), value(draw, 2)))
            .collect(),
        Type::String => text(draw).into(),
        Type::Byte => ["YQ==", "", "YQ\n==", "////"][draw.below(4)].into(),
        Type::DateTime | Type::MicroTime => [
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.25+02:00",
            "0000-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "1969-12-31T23:59:59.999999Z",
        ][draw.below(5)]
        .into(),
        Type::Quantity => ["1", "100m", "1Gi", "1e3", "-0.5", "0.0000000001"][draw.below(6)].into(),
        Type::Int32 | Type::Int64 => number(draw).into(),
        Type::Number => json!(f64::from(draw.byte()) / 4.0),
        Type::Boolean => draw.byte().is_multiple_of(2).into(),
        Type::IntOrString => match draw.byte() % 3 {
            0 => "25%".into(),
            1 => text(draw).into(),
            _ => number(draw).into(),
        },
    }
}

/// Walks to a place inside a value.
fn place<'v>(draw: &mut Draw<'_>, mut at: &'v mut Value) -> &'v mut Value {
    for _ in 0..12 {
        if draw.byte().is_multiple_of(5) {
            break;
        }
        let has = match at {
            Value::Object(map) => !map.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => false,
        };
        if !has {
            break;
        }
        at = match at {
            Value::Object(map) => {
                let which = draw.below(map.len());
                map.values_mut().nth(which).expect("one of them")
            }
            Value::Array(items) => {
                let which = draw.below(items.len());
                &mut items[which]
            }
            _ => break,
        };
    }
    at
}

/// Changes one place of a value.
pub(super) fn change(draw: &mut Draw<'_>, root: &mut Value) {
    let kind = draw.byte() % 8;
    let at = place(draw, root);
    match (kind, &mut *at) {
        (0, _) => *at = value(draw, 1),
        (1, Value::Object(map)) => {
            map.insert(name(draw), value(draw, 1));
        }
        (2, Value::Object(map)) if !map.is_empty() => {
            let which = draw.below(map.len());
            let name = map.keys().nth(which).cloned().unwrap_or_default();
            map.remove(&name);
        }
        (3, Value::Array(items)) if !items.is_empty() => {
            // The same once more, or nearly.
            let which = draw.below(items.len());
            let again = items[which].clone();
            items.push(again);
        }
        (4, Value::Array(items)) if items.len() > 1 => {
            let (a, b) = (draw.below(items.len()), draw.below(items.len()));
            items.swap(a, b);
        }
        (5, Value::Array(items)) if !items.is_empty() => {
            items.remove(draw.below(items.len()));
        }
        (6, inner) => {
            let levels = draw.below(40);
            let mut nest = inner.take();
            for _ in 0..levels {
                nest = json!([nest]);
            }
            *inner = nest;
        }
        (_, Value::String(told)) => *told = text(draw),
        (_, Value::Number(_)) => *at = number(draw).into(),
        (_, Value::Bool(told)) => *told = !*told,
        _ => {}
    }
}

/// Changes a value in a few places.
pub(super) fn changes(draw: &mut Draw<'_>, root: &mut Value) {
    for _ in 0..draw.byte() % 5 {
        change(draw, root);
    }
}

/// Counts a value's nodes.
pub(super) fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum::<usize>(),
        _ => 0,
    }
}

/// How deep a value nests.
pub(super) fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}
