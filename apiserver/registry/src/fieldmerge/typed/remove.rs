//! What is left of a value without some fields, or of these fields alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::element::PathElement;
use super::super::schema::{ListKind, ListType, MapType, Schema, Shape, TypeId};
use super::super::set::Set;
use super::keys;

/// Returns a value without the fields and items of a set. What has nothing left
/// in it is null: it was there, and [`super::super::update`] still has to tell.
pub(super) fn remove(schema: &Schema, value: &Value, set: &Set) -> Value {
    let walk = Walk {
        schema,
        extract: false,
    };
    walk.value(schema.root(), value, set)
}

/// Returns the fields and items of a set, and nothing else, of a value.
pub(super) fn extract(schema: &Schema, value: &Value, set: &Set) -> Value {
    let walk = Walk {
        schema,
        extract: true,
    };
    walk.value(schema.root(), value, set)
}

struct Walk<'s> {
    schema: &'s Schema,
    extract: bool,
}

impl Walk<'_> {
    fn value(&self, ty: TypeId, value: &Value, set: &Set) -> Value {
        let kept = || match self.extract {
            true => value.clone(),
            false => Value::Null,
        };
        match (self.schema.atom(ty).narrow(Some(value)).shape(), value) {
            (Shape::Scalar(_), _) => value.clone(),
            (Shape::Map(map), Value::Object(fields)) => {
                if map.atomic || fields.is_empty() {
                    return kept();
                }
                self.fields(map, fields, set)
            }
            (Shape::List(list), Value::Array(items)) => {
                if list.kind == ListKind::Atomic || items.is_empty() {
                    return kept();
                }
                self.items(list, items, set)
            }
            _ => Value::Null,
        }
    }

    /// Returns what is left of one field or item; `None` for nothing.
    fn inner(
        &self,
        ty: Option<TypeId>,
        name: &PathElement,
        value: &Value,
        set: &Set,
    ) -> Option<Value> {
        let member = set.contains_element(name);
        match (self.extract, member, set.below(name)) {
            (false, true, _) | (true, false, None) => None,
            (false, false, None) | (true, true, None) => Some(value.clone()),
            (_, _, Some(below)) => Some(match ty {
                Some(ty) => self.value(ty, value, below),
                None => value.clone(),
            }),
        }
    }

    fn fields(&self, map: &MapType, fields: &Map<String, Value>, set: &Set) -> Value {
        let mut left = Map::new();
        for (name, value) in fields {
            let element = PathElement::field(name.as_str());
            if let Some(inner) = self.inner(map.field(name), &element, value, set) {
                left.insert(name.clone(), inner);
            }
        }
        if left.is_empty() {
            Value::Null
        } else {
            Value::Object(left)
        }
    }

    fn items(&self, list: &ListType, items: &[Value], set: &Set) -> Value {
        let left: Vec<Value> = items
            .iter()
            .filter_map(|item| match keys::item(self.schema, list, item) {
                Ok(name) => self.inner(Some(list.element), &name, item, set),
                // What has no name is in no set.
                Err(_) => (!self.extract).then(|| item.clone()),
            })
            .collect();
        if left.is_empty() {
            Value::Null
        } else {
            Value::Array(left)
        }
    }
}

/// Drops the nulls in a value that stand where `from` had something.
pub(super) fn without_emptied(schema: &Schema, from: &Value, value: &Value) -> Value {
    drop_nulls(schema, schema.root(), from, value)
}

fn drop_nulls(schema: &Schema, ty: TypeId, from: &Value, value: &Value) -> Value {
    match (schema.atom(ty).narrow(Some(value)).shape(), from, value) {
        (Shape::Map(map), Value::Object(from), Value::Object(fields)) if !map.atomic => {
            let mut left = Map::new();
            for (name, value) in fields {
                let value = match (from.get(name), map.field(name)) {
                    (Some(from), _) if value.is_null() && !from.is_null() => continue,
                    (Some(from), Some(ty)) => drop_nulls(schema, ty, from, value),
                    _ => value.clone(),
                };
                left.insert(name.clone(), value);
            }
            Value::Object(left)
        }
        (Shape::List(list), Value::Array(from), Value::Array(items))
            if list.kind != ListKind::Atomic =>
        {
            let name = |item| keys::item(schema, list, item).ok();
            let by_name: BTreeMap<_, _> = from.iter().map(|item| (name(item), item)).collect();
            let left = items.iter().filter(|item| !item.is_null()).map(|item| {
                match by_name.get(&name(item)) {
                    Some(from) => drop_nulls(schema, list.element, from, item),
                    None => item.clone(),
                }
            });
            left.collect()
        }
        _ => value.clone(),
    }
}
