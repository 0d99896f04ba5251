//! Schemas of definitions, as either version of OpenAPI writes them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::kind::{Kind, KindRef};
use crate::table::{Definition, Descriptions, Field, Type, table};
use crate::unstored::UNSTORED;

use super::paths;

/// The group, version and kind extension.
pub(super) const GVK: &str = "x-kubernetes-group-version-kind";
/// Where meta types live.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The meta kinds that every group version speaks.
const META_KINDS: [&str; 3] = ["DeleteOptions", "Status", "WatchEvent"];

/// The meta kinds that say what there is.
const DISCOVERY_KINDS: [&str; 4] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions"];

/// Which version of OpenAPI a schema is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Version {
    /// Returns a reference to a definition.
    pub fn reference(self, name: &str) -> Value {
        match self {
            _ if name.is_empty() => json!({"type": "string"}),
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// Returns the name of the definition of a kind's lists.
pub(super) fn list_name(kind: &Kind) -> String {
    format!("{}List", kind.definition)
}

/// Makes the definitions that are reached from these names and from the lists
/// of these kinds.
pub(super) fn all(
    version: Version,
    texts: &Descriptions,
    roots: &[String],
    kinds: &[KindRef],
) -> Map<String, Value> {
    let mut made = Map::new();
    let mut pending: BTreeSet<String> = roots.iter().cloned().collect();
    for kind in kinds {
        made.insert(list_name(kind), list(version, kind));
        match kind.strategy().openapi(version) {
            Some(mut schema) => {
                let gvk =
                    json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
                crate::kind::put(&mut schema, GVK, Some(gvk));
                made.insert(kind.definition.to_owned(), schema);
                pending.insert(format!("{META}ObjectMeta"));
            }
            None => {
                pending.insert(kind.definition.to_owned());
            }
        }
        pending.insert(format!("{META}ListMeta"));
    }
    while let Some(name) = pending.pop_first() {
        let Some(definition) = table().named(&name).filter(|_| !made.contains_key(&name)) else {
            continue;
        };
        let mut types: Vec<&Type> = definition.fields.iter().map(|f| &f.ty).collect();
        types.push(&definition.ty);
        pending.extend(types.into_iter().filter_map(referred).map(str::to_owned));
        made.insert(name, one(version, definition, texts));
    }
    made
}

fn referred(ty: &Type) -> Option<&'static str> {
    match ty {
        Type::Ref(id) => Some(table().get(*id).name),
        Type::Array(inner) | Type::Map(inner) => referred(inner),
        _ => None,
    }
}

fn one(version: Version, definition: &Definition, texts: &Descriptions) -> Value {
    let mut schema = if definition.fields.is_empty() {
        ty(version, &definition.ty)
    } else {
        let mut properties = Map::new();
        for field in &definition.fields {
            properties.insert(field.name.to_owned(), property(version, field, texts));
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        let required: Vec<&str> = definition
            .fields
            .iter()
            .filter(|f| is_required(definition, f))
            .map(|f| f.name)
            .collect();
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema
    };
    let description = texts.get(definition.description);
    if !description.is_empty() {
        schema.insert("description".to_owned(), json!(description));
    }
    if !definition.map_type.is_empty() {
        schema.insert(
            "x-kubernetes-map-type".to_owned(),
            json!(definition.map_type),
        );
    }
    if !definition.union.is_empty() {
        schema.insert("x-kubernetes-unions".to_owned(), json!([union(definition)]));
    }
    let kinds = kinds_of(definition);
    if !kinds.is_empty() {
        schema.insert(GVK.to_owned(), Value::Array(kinds));
    }
    Value::Object(schema)
}

/// Describes a union: which field discriminates, and by which Go field each of the
/// others is chosen.
fn union(definition: &Definition) -> Value {
    let mut described = Map::new();
    if definition.field(definition.union).is_some() {
        described.insert("discriminator".to_owned(), json!(definition.union));
    }
    let others = definition.fields.iter().map(|f| f.name);
    let chosen: Map<String, Value> = others
        .filter(|name| *name != definition.union)
        .map(|name| (name.to_owned(), json!(paths::upper(name))))
        .collect();
    described.insert("fields-to-discriminateBy".to_owned(), chosen.into());
    described.into()
}

/// The one type whose metadata upstream's documents call required.
const METADATA_REQUIRED: &str = "io.k8s.api.core.v1.Event";

/// The type data calls metadata and fields with a default required; upstream's
/// documents do not, and clients validate against them.
fn is_required(definition: &Definition, field: &Field) -> bool {
    let metadata = field.name == "metadata" && definition.name != METADATA_REQUIRED;
    field.required && field.default.is_empty() && !metadata
}

fn kinds_of(definition: &Definition) -> Vec<Value> {
    let gvk = |g: &str, v: &str, k: &str| json!({"group": g, "version": v, "kind": k});
    let served = crate::kinds::all()
        .iter()
        .filter(|k| k.definition == definition.name);
    let mut found: Vec<Value> = served.map(|k| gvk(k.group, k.version, k.kind)).collect();
    let short = definition.short_name();
    if definition.name.starts_with(META) && META_KINDS.contains(&short) {
        found.push(gvk("", "v1", short));
        let posted = UNSTORED.iter().map(|u| (u.group, u.version));
        let all: BTreeSet<_> = crate::kinds::group_versions()
            .into_iter()
            .chain(posted)
            .collect();
        let others = all.into_iter().filter(|(g, _)| !g.is_empty());
        if short != "Status" {
            found.extend(others.map(|(g, v)| gvk(g, v, short)));
        }
    }
    if definition.name.starts_with(META) && DISCOVERY_KINDS.contains(&short) {
        found.push(gvk("", "v1", short));
    }
    let exchanged = paths::EXCHANGED.iter().find(|e| e.3 == definition.name);
    found.extend(exchanged.map(|(g, v, k, _)| gvk(g, v, k)));
    let posted = UNSTORED.iter().find(|u| u.definition == definition.name);
    let posted = posted.filter(|_| exchanged.is_none());
    found.extend(posted.map(|u| gvk(u.group, u.version, u.kind)));
    found
}

fn list(version: Version, kind: &Kind) -> Value {
    json!({
        "description": format!("{} is a list of objects of kind {}.", kind.list_kind, kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The group and version of this list."},
            "items": {
                "type": "array",
                "description": "The objects.",
                "items": version.reference(kind.definition),
            },
            "kind": {"type": "string", "description": "The kind of this list."},
            "metadata": version.reference(&format!("{META}ListMeta")),
        },
        GVK: [{"group": kind.group, "version": kind.version, "kind": kind.list_kind}],
    })
}

fn property(version: Version, field: &Field, texts: &Descriptions) -> Value {
    let mut schema = ty(version, &field.ty);
    let description = texts.get(field.description);
    // A reference stands alone in version 3; what is said of it goes beside.
    if version == Version::V3 && schema.contains_key("$ref") {
        let reference = Value::Object(std::mem::take(&mut schema));
        schema.insert("allOf".to_owned(), json!([reference]));
    }
    let mut put = |name: &str, value: Value| schema.insert(name.to_owned(), value);
    if !description.is_empty() {
        put("description", json!(description));
    }
    for (name, text) in [
        ("x-kubernetes-list-type", field.list_type),
        ("x-kubernetes-map-type", field.map_type),
        ("x-kubernetes-patch-merge-key", field.patch_merge_key),
        ("x-kubernetes-patch-strategy", field.patch_strategy),
    ] {
        if !text.is_empty() {
            put(name, json!(text));
        }
    }
    if !field.list_map_keys.is_empty() {
        let keys: Vec<&str> = field.list_map_keys.split(',').collect();
        put("x-kubernetes-list-map-keys", json!(keys));
    }
    if let Ok(default) = serde_json::from_str::<Value>(field.default) {
        put("default", default);
    }
    Value::Object(schema)
}

fn ty(version: Version, ty: &Type) -> Map<String, Value> {
    let schema = match ty {
        Type::Any => json!({}),
        Type::String => json!({"type": "string"}),
        Type::Byte => json!({"type": "string", "format": "byte"}),
        Type::DateTime | Type::MicroTime => json!({"type": "string", "format": "date-time"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Number => json!({"type": "number", "format": "double"}),
        Type::Boolean => json!({"type": "boolean"}),
        Type::Object => json!({"type": "object"}),
        Type::IntOrString => match version {
            Version::V2 => json!({"type": "string", "format": "int-or-string"}),
            Version::V3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
        },
        Type::Quantity => match version {
            Version::V2 => json!({"type": "string"}),
            Version::V3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        },
        Type::Array(inner) => {
            json!({"type": "array", "items": Value::Object(self::ty(version, inner))})
        }
        Type::Map(inner) => {
            json!({"type": "object", "additionalProperties": Value::Object(self::ty(version, inner))})
        }
        Type::Ref(id) => version.reference(table().get(*id).name),
    };
    match schema {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
