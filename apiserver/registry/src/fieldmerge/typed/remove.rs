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

    /// Returns what is left of one field or item; `None` for nothing. `alone` is
    /// what is extracted of a container that is in the set and has nothing in it
    /// that is.
    fn inner(
        &self,
        ty: Option<TypeId>,
        name: &PathElement,
        value: &Value,
        set: &Set,
        alone: fn(Value) -> Option<Value>,
    ) -> Option<Value> {
        let walk = |below: &Set| match ty {
            Some(ty) => self.value(ty, value, below),
            None => value.clone(),
        };
        let member = set.contains_element(name);
        match (self.extract, member, set.below(name)) {
            (false, true, _) | (true, false, None) => None,
            (false, false, None) => Some(value.clone()),
            (_, _, Some(below)) => Some(walk(below)),
            (true, true, None) => match walk(&EMPTY) {
                Value::Null => alone(value.clone()),
                leaf => Some(leaf),
            },
        }
    }

    fn fields(&self, map: &MapType, fields: &Map<String, Value>, set: &Set) -> Value {
        let mut left = Map::new();
        for (name, value) in fields {
            let element = PathElement::field(name.as_str());
            if let Some(inner) = self.inner(map.field(name), &element, value, set, emptied) {
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
                Ok(name) => self.inner(Some(list.element), &name, item, set, Some),
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

/// Deals with what removing left of containers that lost all they had.
pub(super) struct Emptied<'s> {
    pub(super) schema: &'s Schema,
}

impl Emptied<'_> {
    /// Drops the nulls in a value that stand where `from` had something. Where
    /// the path itself is owned, the container stays and is empty; so does the
    /// key of a map, which would have been removed itself if it were to go.
    pub(super) fn drop(&self, from: &Value, value: &Value, owned: &Set) -> Value {
        self.value(self.schema.root(), from, value, owned)
    }

    fn value(&self, ty: TypeId, from: &Value, value: &Value, owned: &Set) -> Value {
        match (
            self.schema.atom(ty).narrow(Some(value)).shape(),
            from,
            value,
        ) {
            (Shape::Map(map), Value::Object(from), Value::Object(fields)) if !map.atomic => {
                self.fields(map, from, fields, owned)
            }
            (Shape::List(list), Value::Array(from), Value::Array(items))
                if list.kind != ListKind::Atomic =>
            {
                self.items(list, from, items, owned)
            }
            _ => value.clone(),
        }
    }

    fn fields(
        &self,
        map: &MapType,
        from: &Map<String, Value>,
        fields: &Map<String, Value>,
        owned: &Set,
    ) -> Value {
        let mut left = Map::new();
        for (name, value) in fields {
            let element = PathElement::field(name.as_str());
            let value = match (from.get(name), map.field(name)) {
                (Some(from), _) if value.is_null() && !from.is_null() => {
                    let is_item = !map.fields.contains_key(name.as_str());
                    match (is_item || owned.contains_element(&element), from) {
                        (true, Value::Object(_)) => Value::Object(Map::new()),
                        (true, Value::Array(_)) => Value::Array(Vec::new()),
                        _ => continue,
                    }
                }
                (Some(from), Some(ty)) => {
                    let below = owned.below(&element).unwrap_or(&EMPTY);
                    self.value(ty, from, value, below)
                }
                _ => value.clone(),
            };
            left.insert(name.clone(), value);
        }
        Value::Object(left)
    }

    fn items(&self, list: &ListType, from: &[Value], items: &[Value], owned: &Set) -> Value {
        let name = |item| keys::item(self.schema, list, item).ok();
        let by_name: BTreeMap<_, _> = from.iter().map(|item| (name(item), item)).collect();
        let left = items.iter().filter(|item| !item.is_null()).map(|item| {
            let name = name(item);
            let below = name.as_ref().and_then(|name| owned.below(name));
            match by_name.get(&name) {
                Some(from) => self.value(list.element, from, item, below.unwrap_or(&EMPTY)),
                None => item.clone(),
            }
        });
        left.collect()
    }
}

/// Returns what is left of a container of which nothing is: null, as upstream,
/// whose appliers then own it by that.
fn emptied(_: Value) -> Option<Value> {
    Some(Value::Null)
}

static EMPTY: Set = Set::new();
