//! Brings a set that was written under another schema up to this one.
//!
//! A list or a map that became atomic is owned as a whole by whoever owned
//! something inside. The other way nothing is to be done: whoever owned the
//! whole owns its path, and what is inside comes when it is next applied.

use serde_json::{Map, Value};

use super::super::element::PathElement;
use super::super::schema::{Atom, Builder, ListKind, MapType, Schema, Shape, TypeId};
use super::super::set::{Node, Set};

/// Returns the set as this schema has it.
pub fn reconcile(schema: &Schema, set: &Set) -> Set {
    let mut set = set.clone();
    reconcile_in_place(schema, &mut set);
    set
}

/// Makes the set what this schema has it.
pub(in super::super) fn reconcile_in_place(schema: &Schema, set: &mut Set) {
    below(schema, schema.root(), set);
}

/// Tells whether the JSON of a set is what this schema would make of it.
pub(in super::super) fn is_reconciled(schema: &Schema, fields: &Map<String, Value>) -> bool {
    is_reconciled_below(schema, schema.root(), fields)
}

fn is_reconciled_below(schema: &Schema, ty: TypeId, fields: &Map<String, Value>) -> bool {
    let shape = schema.atom(ty).narrow(None).shape();
    let mut below = fields.iter().filter(|(key, _)| *key != ".");
    below.all(|(key, inner)| {
        let Some(inner) = inner.as_object() else {
            return false;
        };
        // Most are leaves, of which nothing is to be known.
        if inner.keys().all(|key| key == ".") {
            return true;
        }
        let ty = match (shape, key.strip_prefix("f:")) {
            (Shape::Map(map), _) if is_deduced(map) => None,
            (Shape::Map(map), Some(name)) => map.field(name),
            (Shape::Map(map), None) => map.element,
            (Shape::List(list), _) => Some(list.element),
            _ => None,
        };
        ty.is_none_or(|ty| !is_atomic(schema.atom(ty)) && is_reconciled_below(schema, ty, inner))
    })
}

fn below(schema: &Schema, ty: TypeId, set: &mut Set) {
    let atom = schema.atom(ty);
    for (element, node) in &mut set.nodes {
        let inner = match (atom.narrow(None).shape(), element) {
            (Shape::Map(map), _) if is_deduced(map) => None,
            (Shape::Map(map), PathElement::Field(name)) => map.field(name),
            (Shape::Map(map), _) => map.element,
            (Shape::List(list), _) => Some(list.element),
            _ => None,
        };
        // What no longer is in the schema stays as it is.
        if let Some(inner) = inner {
            reconciled(schema, inner, node);
        }
    }
}

fn reconciled(schema: &Schema, ty: TypeId, node: &mut Node) {
    if node.below.is_empty() {
        return;
    }
    if is_atomic(schema.atom(ty)) {
        *node = Node {
            member: true,
            below: Set::new(),
        };
        return;
    }
    below(schema, ty, &mut node.below);
}

fn is_atomic(atom: &Atom) -> bool {
    match atom.narrow(None).shape() {
        Shape::Map(map) => map.atomic,
        Shape::List(list) => list.kind == ListKind::Atomic,
        Shape::Scalar(_) | Shape::Nothing => false,
    }
}

/// Tells whether a map takes anything and declares nothing: of such a type
/// nobody says whether it is atomic.
fn is_deduced(map: &MapType) -> bool {
    map.fields.is_empty() && map.element == Some(Builder::DEDUCED)
}
