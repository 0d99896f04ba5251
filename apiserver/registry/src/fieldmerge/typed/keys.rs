//! The name of a list's item: its keys, or itself.

use serde_json::Value;

use super::super::element::{Literal, PathElement};
use super::super::gotext::quoted;
use super::super::schema::{ListKind, ListType, Schema};

/// Names an item of a list whose items have names, or says why it has none.
pub(super) fn item(schema: &Schema, list: &ListType, item: &Value) -> Result<PathElement, String> {
    match &list.kind {
        ListKind::Map(keys) => keyed(schema, list, keys, item),
        ListKind::Set => member(item),
        ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
    }
}

/// Tells whether an item of a list has the name that it needs to have there.
pub(super) fn has_name(schema: &Schema, list: &ListType, item: &Value) -> bool {
    match (&list.kind, item) {
        (ListKind::Atomic, _) => true,
        (ListKind::Map(keys), Value::Object(fields)) => keys
            .iter()
            .any(|key| fields.contains_key(key) || default(schema, list, key).is_some()),
        (ListKind::Map(_), _) => false,
        (ListKind::Set, item) => !matches!(item, Value::Object(_) | Value::Array(_) | Value::Null),
    }
}

/// Returns what an absent key of an item means.
fn default<'s>(schema: &'s Schema, list: &ListType, key: &str) -> Option<&'s Value> {
    let map = schema.atom(list.element).map.as_ref()?;
    map.fields.get(key)?.default.as_ref()
}

fn keyed(
    schema: &Schema,
    list: &ListType,
    keys: &[String],
    item: &Value,
) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found: Vec<(String, Literal)> = keys
        .iter()
        .filter_map(|key| {
            // An absent key without a default is part of the name as an absence.
            let value = fields.get(key).or_else(|| default(schema, list, key))?;
            Some((key.clone(), Literal(value.clone())))
        })
        .collect();
    if found.is_empty() {
        let names: Vec<_> = keys.iter().map(|key| quoted(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] \
             (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort();
    Ok(PathElement::Key(found))
}

fn member(item: &Value) -> Result<PathElement, String> {
    match item {
        Value::Object(_) => {
            Err("associative list without keys has an element that's a map type".to_owned())
        }
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => {
            Err("associative list without keys has an element that's an explicit null".to_owned())
        }
        scalar => Ok(PathElement::Value(Literal(scalar.clone()))),
    }
}
