//! Which fields a value has.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::element::PathElement;
use super::super::schema::{ListKind, ListType, MapType, Schema, Shape, TypeId};
use super::super::set::{Node, Set};
use super::keys;

/// Returns every leaf and every item of a value. Leaves are scalars, atomic
/// lists and maps, empty maps and nulls. Items, which are members besides what
/// they contain, are those of lists and the keys of maps; a declared field that
/// contains something is none.
pub(super) fn to_set(schema: &Schema, value: &Value) -> Set {
    node(schema, schema.root(), value).below
}

/// Returns the node of a value: whether it is a leaf, and what is below it.
fn node(schema: &Schema, ty: TypeId, value: &Value) -> Node {
    let leaf = || Node {
        member: true,
        below: Set::new(),
    };
    match (schema.atom(ty).narrow(Some(value)).shape(), value) {
        (Shape::Scalar(_), _) => leaf(),
        (Shape::Map(map), _) if map.atomic => leaf(),
        (Shape::List(list), _) if list.kind == ListKind::Atomic => leaf(),
        (Shape::Map(map), Value::Object(fields)) => Node {
            member: false,
            below: fields_of(schema, map, fields),
        },
        (Shape::List(list), Value::Array(items)) => Node {
            member: false,
            below: items_of(schema, list, items),
        },
        _ => Node::default(),
    }
}

fn fields_of(schema: &Schema, map: &MapType, fields: &Map<String, Value>) -> Set {
    let mut set = Set::new();
    for (name, value) in fields {
        let Some(ty) = map.field(name) else { continue };
        let mut node = node(schema, ty, value);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        node.member |= empty || !map.fields.contains_key(name.as_str());
        set.put(PathElement::field(name.as_str()), node);
    }
    set
}

fn items_of(schema: &Schema, list: &ListType, items: &[Value]) -> Set {
    let mut by_name: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(name) = keys::item(schema, list, item) {
            by_name.entry(name).or_default().push(item);
        }
    }
    let mut set = Set::new();
    for (name, items) in by_name {
        // Items of one name are owned together, and nothing inside of them.
        let below = match items.as_slice() {
            [item] => node(schema, list.element, item).below,
            _ => Set::new(),
        };
        set.put(
            name,
            Node {
                member: true,
                below,
            },
        );
    }
    set
}
