//! A structural schema as field merge uses it: which lists are sets or maps,
//! which maps are one value, and what is not described.

use std::borrow::Cow;

use serde_json::Value;

use super::schema::{Additional, ListType, Structural};
use crate::fieldmerge::Schema;
use crate::fieldmerge::builtin;
use crate::fieldmerge::schema::{Atom, Builder, FieldType, ListKind, MapType, Scalar, TypeId};

/// Makes the schema by which fields of a custom resource have owners.
pub fn schema(structural: &Structural) -> Schema {
    let mut builder = Builder::default();
    let mut root = object(&mut builder, structural);
    let text = builder.add(Atom::scalar(Scalar::String));
    let metadata = builtin::metadata(&mut builder);
    let of_every_object = [("apiVersion", text), ("kind", text), ("metadata", metadata)];
    root.fields.declare(of_every_object.map(|(name, ty)| {
        let default = None;
        (Cow::Borrowed(name), FieldType { ty, default })
    }));
    let root = builder.add(Atom {
        map: Some(root),
        ..Atom::default()
    });
    builder.build(root)
}

fn type_id(builder: &mut Builder, structural: &Structural) -> TypeId {
    if structural.int_or_string {
        return builder.add(Atom::scalar(Scalar::Untyped));
    }
    let atom = match structural.ty.as_str() {
        "string" => Atom::scalar(Scalar::String),
        "integer" | "number" => Atom::scalar(Scalar::Numeric),
        "boolean" => Atom::scalar(Scalar::Boolean),
        "array" => {
            let element = match &structural.items {
                Some(items) => type_id(builder, items),
                None => Builder::UNTYPED_ATOMIC,
            };
            let kind = match &structural.list_type {
                ListType::Atomic => ListKind::Atomic,
                ListType::Set => ListKind::Set,
                ListType::Map(keys) => ListKind::Map(keys.clone()),
            };
            Atom::list(element, kind)
        }
        "object" => Atom {
            map: Some(object(builder, structural)),
            ..Atom::default()
        },
        _ => return Builder::DEDUCED,
    };
    builder.add(atom)
}

fn object(builder: &mut Builder, structural: &Structural) -> MapType {
    let fields = structural
        .properties
        .iter()
        .map(|(name, schema)| {
            let typed = FieldType {
                ty: type_id(builder, schema),
                default: schema.default.clone().filter(is_scalar),
            };
            (Cow::Owned(name.clone()), typed)
        })
        .collect();
    let undescribed = structural.properties.is_empty() || structural.embedded;
    let element = match &structural.additional {
        Some(Additional::Schema(schema)) => Some(type_id(builder, schema)),
        Some(Additional::Allowed(true)) => Some(Builder::DEDUCED),
        _ if structural.preserve_unknown || undescribed => Some(Builder::DEDUCED),
        _ => None,
    };
    MapType {
        fields,
        element,
        atomic: structural.atomic_map,
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::fieldmerge::{self, OneVersion, ResetFields, Writer, entries};

    fn owned(object: &Value) -> Vec<String> {
        let managed = entries::Managed::of(object).unwrap();
        managed
            .0
            .iter()
            .map(|(id, owned)| {
                format!(
                    "{} {}",
                    id.manager,
                    owned.set.to_string().replace('\n', " ")
                )
            })
            .collect()
    }

    #[test]
    fn lists_and_maps_have_owners_as_the_schema_says() {
        let structural = Structural::parse(&json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {
            "ports": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name", "protocol"],
                "items": {"type": "object", "properties": {
                    "name": {"type": "string"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "port": {"x-kubernetes-int-or-string": true}}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "args": {"type": "array", "items": {"type": "string"}},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}}}));
        let schema = std::sync::Arc::new(schema(&structural));
        let gvk = meta::GroupVersionKind::new("example.com", "v1", "Thing");
        let blank = json!({"apiVersion": "example.com/v1", "kind": "Thing"});
        let reset = ResetFields::new();
        let converter = OneVersion("example.com/v1");
        let write = |manager: &'static str| Writer {
            manager,
            subresource: "",
            gvk: &gvk,
            blank: &blank,
            schema: &schema,
            converter: &converter,
            reset: &reset,
            now: Timestamp::UNIX_EPOCH,
        };
        let config = json!({"apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": {"name": "x", "labels": {"l": "v"}},
            "spec": {"ports": [{"name": "a", "port": 80}], "tags": ["t"], "args": ["x"],
                "selector": {"k": "v"}, "any": {"deep": {"er": 1}}}});
        let applied = fieldmerge::apply(None, &config, &write("one"), false).unwrap();
        assert_eq!(
            owned(&applied.object),
            [concat!(
                "one .metadata.labels.l .spec.args .spec.selector ",
                ".spec.any.deep .spec.any.deep.er ",
                ".spec.ports[name=\"a\",protocol=\"TCP\"] ",
                ".spec.ports[name=\"a\",protocol=\"TCP\"].name ",
                ".spec.ports[name=\"a\",protocol=\"TCP\"].port ",
                ".spec.tags[=\"t\"]"
            )]
        );
        let other = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"},
            "spec": {"ports": [{"name": "b", "port": 81}], "tags": ["u"]}});
        let both = fieldmerge::apply(Some(&applied.object), &other, &write("two"), false).unwrap();
        assert_eq!(both.object["spec"]["tags"], json!(["t", "u"]));
        assert_eq!(both.object["spec"]["ports"].as_array().unwrap().len(), 2);
        let clash = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"},
            "spec": {"args": ["y"]}});
        let refused = fieldmerge::apply(Some(&both.object), &clash, &write("two"), false);
        assert_eq!(
            refused.unwrap_err().to_string(),
            "Apply failed with 1 conflict: conflict with \"one\": .spec.args"
        );
    }
}
