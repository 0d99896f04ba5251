//! Merges a configuration over a value.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::super::element::PathElement;
use super::super::error::Problems;
use super::super::schema::{ListKind, ListType, MapType, Schema, Shape, TypeId};
use super::{array, keys, validate};

/// Merges two values of one type: `new` over `old`.
pub(super) fn merge(schema: &Schema, old: &Value, new: &Value) -> Result<Value, Problems> {
    value(schema, schema.root(), Some(old), Some(new))
}

/// Merges two values of which at least one is there.
fn value(
    schema: &Schema,
    ty: TypeId,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Result<Value, Problems> {
    // The type is narrowed to what the new value is: where the two differ in
    // that, nothing of the old one fits. Null takes the form of the other.
    let atom = schema.atom(ty);
    let narrowed = match new {
        None => atom.narrow(old),
        Some(_) => atom.narrow(new),
    };
    match narrowed.shape() {
        Shape::Scalar(scalar) => {
            let wrong = |value, side| validate::scalar(scalar, value, side);
            if let (Some(a), Some(b)) = (wrong(old, "lhs: "), wrong(new, "rhs: ")) {
                return Err(Problems::one(a).and(Problems::one(b)));
            }
            Ok(leaf(old, new))
        }
        Shape::Map(map) => {
            let (a, b) = (object(old), object(new));
            if map.atomic || a.is_none() && b.is_none() {
                return Ok(leaf(old, new));
            }
            fields(schema, map, a, b)
        }
        Shape::List(list) => {
            let (a, b) = (array(old), array(new));
            if list.kind == ListKind::Atomic || a.is_empty() && b.is_empty() {
                return Ok(leaf(old, new));
            }
            items(schema, list, a, b)
        }
        Shape::Nothing => Err(Problems::one("schema error: invalid atom".to_owned())),
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Value {
    new.or(old).cloned().unwrap_or_default()
}

/// Returns a map that has something in it. (An empty one, as null, is a leaf
/// unless the other side has something: so the two stay apart.)
fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value?.as_object().filter(|map| !map.is_empty())
}

fn fields(
    schema: &Schema,
    map: &MapType,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
) -> Result<Value, Problems> {
    let mut merged = Map::new();
    let of = |side: Option<&Map<String, Value>>| -> Vec<String> {
        side.into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect()
    };
    let names: BTreeSet<String> = of(old).into_iter().chain(of(new)).collect();
    for name in names {
        let (a, b) = (
            old.and_then(|map| map.get(&name)),
            new.and_then(|map| map.get(&name)),
        );
        let below = |problems: Problems| problems.below(&PathElement::field(name.as_str()));
        let Some(ty) = map.field(&name) else {
            return Err(below(Problems::one(
                "field not declared in schema".to_owned(),
            )));
        };
        let value = value(schema, ty, a, b).map_err(below)?;
        merged.insert(name, value);
    }
    Ok(Value::Object(merged))
}

/// The items of one side of a list, by place and by name.
struct Indexed<'v> {
    items: &'v [Value],
    names: Vec<PathElement>,
    /// The one item of a name, or null where there are several: those are not
    /// merged with the new one but give way to it.
    by_name: BTreeMap<PathElement, &'v Value>,
}

impl<'v> Indexed<'v> {
    fn new(
        schema: &Schema,
        list: &ListType,
        items: &'v [Value],
        duplicates: bool,
    ) -> Result<Self, Problems> {
        let mut names = Vec::with_capacity(items.len());
        let mut by_name = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            let name = keys::item(schema, list, item)
                .map_err(|why| Problems::one(format!("element {index}: {why}")))?;
            if by_name.contains_key(&name) {
                if !duplicates {
                    return Err(Problems::one(format!("duplicate entries for key {name}")));
                }
                by_name.insert(name.clone(), &Value::Null);
            } else {
                by_name.insert(name.clone(), item);
            }
            names.push(name);
        }
        Ok(Self {
            items,
            names,
            by_name,
        })
    }
}

/// Merges two lists whose items have names. Items of both sides come in the new
/// one's order; an item of the old side alone keeps its place after the item
/// that it followed, as far as the new order lets it.
fn items(
    schema: &Schema,
    list: &ListType,
    old: &[Value],
    new: &[Value],
) -> Result<Value, Problems> {
    let new = Indexed::new(schema, list, new, false)?;
    let old = Indexed::new(schema, list, old, true)?;
    let mut shared = new
        .names
        .iter()
        .filter(|name| old.by_name.contains_key(name));
    let mut next = shared.next();
    let mut merged_names: BTreeSet<&PathElement> = BTreeSet::new();
    let mut merged = Vec::with_capacity(old.items.len().max(new.items.len()));
    let (mut at_old, mut at_new) = (0, 0);
    loop {
        match (old.names.get(at_old), new.names.get(at_new)) {
            (None, None) => return Ok(Value::Array(merged)),
            (Some(a), Some(b)) if a == b => {
                at_old += 1;
            }
            // Shared, but the new order has another shared one before it.
            (Some(a), Some(_)) if new.by_name.contains_key(a) && next.is_some_and(|n| n != a) => {
                at_old += 1;
                continue;
            }
            (Some(a), _) if !new.by_name.contains_key(a) => {
                push(schema, list, a, old.items.get(at_old), None, &mut merged)?;
                at_old += 1;
                continue;
            }
            (Some(a), _) if merged_names.contains(a) => at_old += 1,
            _ => {}
        }
        let Some(name) = new.names.get(at_new) else {
            continue;
        };
        let (a, b) = (old.by_name.get(name), new.by_name.get(name));
        push(schema, list, name, a.copied(), b.copied(), &mut merged)?;
        merged_names.insert(name);
        at_new += 1;
        if next == Some(name) {
            next = shared.next();
        }
    }
}

fn push(
    schema: &Schema,
    list: &ListType,
    name: &PathElement,
    old: Option<&Value>,
    new: Option<&Value>,
    merged: &mut Vec<Value>,
) -> Result<(), Problems> {
    merged.push(value(schema, list.element, old, new).map_err(|p| p.below(name))?);
    Ok(())
}
