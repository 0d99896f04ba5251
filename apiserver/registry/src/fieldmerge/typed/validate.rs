//! Checks a value against its type, and how deep it nests.

use std::collections::BTreeSet;

use meta::marks::Same;
use serde_json::{Map, Value};

use super::super::MAX_DEPTH;
use super::super::element::PathElement;
use super::super::error::Problems;
use super::super::gotext;
use super::super::schema::{ListKind, ListType, MapType, Scalar, Schema, Shape, TypeId};
use super::{Duplicates, keys};

/// Checks a whole value.
pub(super) fn validate(
    schema: &Schema,
    value: &Value,
    duplicates: Duplicates,
) -> Result<(), Problems> {
    let walk = Walk { schema, duplicates };
    walk.value(schema.root(), value, 0).into_result()
}

/// Tells whether [`validate`] finds nothing wrong with a value whose lists may name an
/// item twice. Members that are the same as in one that fits are not looked at.
pub(in super::super) fn fits(schema: &Schema, value: &Value, same: &Same<'_>) -> bool {
    let (Shape::Map(map), Value::Object(fields)) = (
        schema.atom(schema.root()).narrow(Some(value)).shape(),
        value,
    ) else {
        return fits_type(schema, schema.root(), value, 0);
    };
    fields
        .iter()
        .filter(|(name, _)| !same.member(name))
        .all(|(name, value)| {
            let ty = map.field(name);
            ty.is_some_and(|ty| fits_type(schema, ty, value, 1))
        })
}

fn fits_type(schema: &Schema, ty: TypeId, value: &Value, depth: usize) -> bool {
    let fits = |ty, value| fits_type(schema, ty, value, depth + 1);
    if depth > MAX_DEPTH {
        return false;
    }
    match (schema.atom(ty).narrow(Some(value)).shape(), value) {
        (Shape::Map(map), Value::Object(fields)) => fields
            .iter()
            .all(|(name, value)| map.field(name).is_some_and(|ty| fits(ty, value))),
        (Shape::List(list), Value::Array(items)) => items
            .iter()
            .all(|item| keys::has_name(schema, list, item) && fits(list.element, item)),
        (Shape::Map(_) | Shape::List(_), other) => other.is_null(),
        (Shape::Scalar(kind), other) => scalar(kind, Some(other), "").is_none(),
        (Shape::Nothing, _) => false,
    }
}

/// Says what is wrong with a value as a scalar. `side` is a word before it.
pub(super) fn scalar(scalar: Scalar, value: Option<&Value>, side: &str) -> Option<String> {
    let value = value.filter(|v| !v.is_null())?;
    let wrong = match scalar {
        Scalar::Numeric if !value.is_number() => format!(
            "expected numeric (int or float), got {}",
            gotext::type_name(value)
        ),
        Scalar::String if !value.is_string() => {
            format!("expected string, got {}", gotext::held_syntax(value))
        }
        Scalar::Boolean if !value.is_boolean() => {
            format!("expected boolean, got {}", gotext::held(value))
        }
        Scalar::Untyped if value.is_array() || value.is_object() => {
            format!("expected any scalar, got {}", gotext::held(value))
        }
        _ => return None,
    };
    Some(format!("{side}{wrong}"))
}

struct Walk<'s> {
    schema: &'s Schema,
    duplicates: Duplicates,
}

impl Walk<'_> {
    fn value(&self, ty: TypeId, value: &Value, depth: usize) -> Problems {
        if depth > MAX_DEPTH {
            return Problems::one(format!("nests deeper than {MAX_DEPTH} levels"));
        }
        match (self.schema.atom(ty).narrow(Some(value)).shape(), value) {
            (Shape::Map(map), Value::Object(fields)) => self.fields(map, fields, depth),
            (Shape::List(list), Value::Array(items)) => self.items(list, items, depth),
            (Shape::Map(_) | Shape::List(_), Value::Null) => Problems::default(),
            (Shape::Map(_), other) => {
                Problems::one(format!("expected map, got {}", gotext::held(other)))
            }
            (Shape::List(_), other) => {
                Problems::one(format!("expected list, got {}", gotext::held(other)))
            }
            (Shape::Scalar(kind), other) => match scalar(kind, Some(other), "") {
                Some(wrong) => Problems::one(wrong),
                None => Problems::default(),
            },
            (Shape::Nothing, _) => Problems::one("schema error: invalid atom".to_owned()),
        }
    }

    fn fields(&self, map: &MapType, fields: &Map<String, Value>, depth: usize) -> Problems {
        let mut problems = Problems::default();
        for (name, value) in fields {
            let found = match map.field(name) {
                Some(ty) => self.value(ty, value, depth + 1),
                None => Problems::one("field not declared in schema".to_owned()),
            };
            if !found.is_empty() {
                problems.extend(found.below(&PathElement::field(name.as_str())));
            }
        }
        problems
    }

    fn items(&self, list: &ListType, items: &[Value], depth: usize) -> Problems {
        let mut problems = Problems::default();
        let mut seen = BTreeSet::new();
        for (index, item) in (0_i64..).zip(items) {
            let element = match &list.kind {
                ListKind::Atomic => PathElement::Index(index),
                ListKind::Set | ListKind::Map(_) => match keys::item(self.schema, list, item) {
                    Ok(element) => element,
                    Err(why) => {
                        // Without a name for it, nothing below it can be named.
                        problems.extend(Problems::one(format!("element {index}: {why}")));
                        return problems;
                    }
                },
            };
            if self.duplicates == Duplicates::Refused && seen.contains(&element) {
                problems.extend(Problems::one(format!(
                    "duplicate entries for key {element}"
                )));
            }
            let found = self.value(list.element, item, depth + 1);
            if !found.is_empty() {
                problems.extend(found.below(&element));
            }
            seen.insert(element);
        }
        problems
    }
}
