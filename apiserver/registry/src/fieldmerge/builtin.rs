//! The schema of the built-in kinds, from the table.
//!
//! A list without a type is atomic, a map is granular; what a field says of
//! itself overrides what its type says. Keys' defaults come from the table too,
//! such as the protocol of a port.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::schema::{Atom, Builder, FieldType, ListKind, MapType, Scalar, Schema, TypeId};
use crate::table::{DefId, Definition, Field, Type, table};

struct Builtin {
    schema: Schema,
    roots: BTreeMap<DefId, TypeId>,
}

static BUILTIN: LazyLock<Builtin> = LazyLock::new(|| {
    let mut builder = Builder::default();
    let roots: BTreeMap<DefId, TypeId> = table()
        .iter()
        .filter_map(|definition| table().id(definition.name))
        .map(|id| (id, builder.add(Atom::default())))
        .collect();
    for (id, ty) in &roots {
        let atom = definition(&mut builder, &roots, table().get(*id));
        builder.set(*ty, atom);
    }
    Builtin {
        schema: builder.build(Builder::DEDUCED),
        roots,
    }
});

/// Returns the schema of a definition.
pub fn schema(def: DefId) -> Schema {
    match BUILTIN.roots.get(&def) {
        Some(root) => BUILTIN.schema.rooted(*root),
        None => Schema::deduced(),
    }
}

fn definition(
    builder: &mut Builder,
    roots: &BTreeMap<DefId, TypeId>,
    definition: &'static Definition,
) -> Atom {
    if definition.fields.is_empty() {
        return atom(builder, roots, &definition.ty);
    }
    let fields = definition.fields.iter().map(|field| {
        let typed = FieldType {
            ty: field_type(builder, roots, field),
            default: default(field),
        };
        (Cow::Borrowed(field.name), typed)
    });
    Atom {
        map: Some(MapType {
            fields: fields.collect(),
            element: None,
            atomic: definition.map_type == "atomic",
        }),
        ..Atom::default()
    }
}

/// Returns the default of a field that may be a key: a scalar.
fn default(field: &Field) -> Option<Value> {
    let value: Value = serde_json::from_str(field.default).ok()?;
    Some(value).filter(|v| v.is_string() || v.is_number() || v.is_boolean())
}

fn field_type(
    builder: &mut Builder,
    roots: &BTreeMap<DefId, TypeId>,
    field: &'static Field,
) -> TypeId {
    let kind = match field.list_type {
        "set" => ListKind::Set,
        "map" => ListKind::Map(field.list_map_keys.split(',').map(str::to_owned).collect()),
        _ => ListKind::Atomic,
    };
    match &field.ty {
        Type::Array(inner) => {
            let element = type_id(builder, roots, inner);
            builder.add(Atom::list(element, kind))
        }
        Type::Ref(id) if matches!(field.map_type, "atomic" | "granular") => {
            // The type may not be filled in yet, so it is made once more.
            let own = definition(builder, roots, table().get(*id));
            builder.add(own.made_atomic(field.map_type == "atomic"))
        }
        other if field.map_type == "atomic" => {
            let own = atom(builder, roots, other);
            builder.add(own.made_atomic(true))
        }
        other => type_id(builder, roots, other),
    }
}

fn type_id(builder: &mut Builder, roots: &BTreeMap<DefId, TypeId>, ty: &'static Type) -> TypeId {
    match ty {
        Type::Any => Builder::DEDUCED,
        Type::Ref(id) => roots.get(id).copied().unwrap_or(Builder::DEDUCED),
        other => {
            let atom = atom(builder, roots, other);
            builder.add(atom)
        }
    }
}

fn atom(builder: &mut Builder, roots: &BTreeMap<DefId, TypeId>, ty: &'static Type) -> Atom {
    match ty {
        Type::String | Type::Byte => Atom::scalar(Scalar::String),
        Type::Int32 | Type::Int64 | Type::Number => Atom::scalar(Scalar::Numeric),
        Type::Boolean => Atom::scalar(Scalar::Boolean),
        Type::DateTime | Type::MicroTime | Type::IntOrString | Type::Quantity => {
            Atom::scalar(Scalar::Untyped)
        }
        // What is not described is anything, but an object.
        Type::Object => Atom::map(Builder::DEDUCED, false),
        Type::Any => builder.get(Builder::DEDUCED).cloned().unwrap_or_default(),
        Type::Array(inner) => {
            let element = type_id(builder, roots, inner);
            Atom::list(element, ListKind::Atomic)
        }
        Type::Map(inner) => {
            let element = type_id(builder, roots, inner);
            Atom::map(element, false)
        }
        Type::Ref(id) => definition(builder, roots, table().get(*id)),
    }
}
