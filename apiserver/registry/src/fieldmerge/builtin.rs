//! The schema of the built-in kinds, from the table.
//!
//! A list without a type is atomic, a map is granular; what a field says of
//! itself overrides what its type says. Keys' defaults come from the table too,
//! such as the protocol of a port.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use meta::GroupVersionKind;
use serde_json::{Map, Value};

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

/// What an object's metadata refers to, besides itself.
const OF_METADATA: [&str; 4] = [
    "FieldsV1",
    "ManagedFieldsEntry",
    "ObjectMeta",
    "OwnerReference",
];

/// Adds the type of every object's metadata to types under construction.
pub(crate) fn metadata(builder: &mut Builder) -> TypeId {
    let of_it = |d: &&Definition| {
        d.name.starts_with("io.k8s.apimachinery.pkg.apis.meta.v1.")
            && OF_METADATA.contains(&d.short_name())
    };
    let roots: BTreeMap<DefId, TypeId> = table()
        .iter()
        .filter(of_it)
        .filter_map(|definition| table().id(definition.name))
        .map(|id| (id, builder.add(Atom::default())))
        .collect();
    let mut found = Builder::DEDUCED;
    for (id, ty) in &roots {
        let described = table().get(*id);
        let atom = definition(builder, &roots, described);
        builder.set(*ty, atom);
        if described.short_name() == "ObjectMeta" {
            found = *ty;
        }
    }
    found
}

/// Fields of structs that Go keeps by value although they are optional: an
/// object has them, empty, whatever was written.
const ALWAYS_THERE: &[&str] = &[
    "daemonEndpoints",
    "deprecatedSource",
    "kubeletEndpoint",
    "loadBalancer",
    "metadata",
    "nodeInfo",
    "source",
    "spec",
    "status",
    "strategy",
    "template",
    "updateStrategy",
];
/// The same, where other definitions have a field of that name by reference.
const ALWAYS_THERE_IN: &[(&str, &str)] = &[(".core.v1.PersistentVolumeClaimSpec", "resources")];
/// How deep the fields that are always there may nest.
const BLANK_DEPTH: usize = 8;

/// Returns an object of a definition with nothing in it but what is always
/// there: structs that Go keeps by value, and null for what has no `omitempty`.
/// What a creation adds to it is the creator's; so nobody owns `.spec` or the
/// list of containers, only what is in it.
pub fn blank(def: DefId, gvk: &GroupVersionKind) -> Value {
    let mut object = Value::Object(always_there(table().get(def), BLANK_DEPTH));
    meta::value::set_type_meta(&mut object, gvk);
    object
}

fn always_there(definition: &Definition, depth: usize) -> Map<String, Value> {
    let mut fields = Map::new();
    for field in definition.fields.iter().filter(|_| depth > 0) {
        let own = |(holder, name): &(&str, &str)| {
            *name == field.name && definition.name.ends_with(holder)
        };
        let named = ALWAYS_THERE.contains(&field.name) || ALWAYS_THERE_IN.iter().any(own);
        let value = match &field.ty {
            Type::Ref(id) if field.required || named => {
                let inner = table().get(*id);
                if inner.fields.is_empty() {
                    continue;
                }
                match inner.map_type == "atomic" {
                    true => Value::Null,
                    false => Value::Object(always_there(inner, depth - 1)),
                }
            }
            Type::Array(_) | Type::Map(_) if field.required => Value::Null,
            _ => continue,
        };
        fields.insert(field.name.to_owned(), value);
    }
    fields
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

/// Returns the default of a field that may be a key. A required scalar that is
/// absent is its type's zero, as it is to Go: so an item without its name is
/// the item whose name is empty.
fn default(field: &Field) -> Option<Value> {
    let marked = serde_json::from_str(field.default).ok();
    let marked = marked.filter(|v: &Value| v.is_string() || v.is_number() || v.is_boolean());
    marked.or_else(|| match &field.ty {
        Type::String if field.required => Some(Value::from("")),
        Type::Int32 | Type::Int64 | Type::Number if field.required => Some(Value::from(0)),
        Type::Boolean if field.required => Some(Value::from(false)),
        _ => None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the atom at a path of fields; `*` is an item or a map's value.
    fn at(definition: &str, path: &str) -> Atom {
        let schema = schema(table().id(definition).unwrap());
        let mut ty = schema.root();
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let atom = schema.atom(ty);
            ty = match (&atom.list, &atom.map) {
                (Some(list), _) => list.element,
                (_, Some(map)) => map
                    .field(name)
                    .unwrap_or_else(|| panic!("{name} of {path}")),
                _ => panic!("{name} of {path}"),
            };
        }
        schema.atom(ty).clone()
    }

    fn list(definition: &str, path: &str) -> ListKind {
        at(definition, path).list.unwrap().kind
    }

    const POD: &str = "io.k8s.api.core.v1.Pod";

    #[test]
    fn lists_have_the_keys_of_apply_and_not_of_strategic_merge() {
        let keys = |keys: &[&str]| ListKind::Map(keys.iter().map(|k| (*k).to_owned()).collect());
        let ports = keys(&["containerPort", "protocol"]);
        for containers in ["containers", "initContainers", "ephemeralContainers"] {
            let path = format!("spec.{containers}.*.ports");
            assert_eq!(list(POD, &path), ports, "{path}");
        }
        let service = "io.k8s.api.core.v1.Service";
        assert_eq!(list(service, "spec.ports"), keys(&["port", "protocol"]));
        let spread = keys(&["topologyKey", "whenUnsatisfiable"]);
        assert_eq!(list(POD, "spec.topologySpreadConstraints"), spread);
        assert_eq!(list(POD, "spec.containers.*.env"), keys(&["name"]));
        assert_eq!(
            list(POD, "spec.containers.*.volumeMounts"),
            keys(&["mountPath"])
        );
        assert_eq!(list(POD, "status.conditions"), keys(&["type"]));
        assert_eq!(list(POD, "metadata.ownerReferences"), keys(&["uid"]));
        assert_eq!(list(POD, "metadata.finalizers"), ListKind::Set);
        for atomic in [
            "spec.tolerations",
            "spec.containers.*.command",
            "status.hostIPs",
        ] {
            assert_eq!(list(POD, atomic), ListKind::Atomic, "{atomic}");
        }
    }

    #[test]
    fn maps_are_granular_and_selectors_atomic() {
        let atomic = |definition, path| at(definition, path).map.unwrap().atomic;
        for selector in [
            ("io.k8s.api.apps.v1.Deployment", "spec.selector"),
            ("io.k8s.api.core.v1.Service", "spec.selector"),
            (POD, "spec.nodeSelector"),
            (POD, "spec.containers.*.env.*.valueFrom.fieldRef"),
        ] {
            assert!(atomic(selector.0, selector.1), "{selector:?}");
        }
        for granular in [
            "metadata.labels",
            "spec",
            "spec.containers.*.resources.limits",
        ] {
            assert!(!atomic(POD, granular), "{granular}");
        }
        let data = at("io.k8s.api.core.v1.ConfigMap", "data").map.unwrap();
        assert!(!data.atomic && data.fields.is_empty());
    }

    #[test]
    fn protocols_have_a_default() {
        let map = at(POD, "spec.containers.*.ports.*").map.unwrap();
        let default = |name: &str| map.fields.get(name).unwrap().default.clone();
        assert_eq!(default("protocol"), Some(Value::from("TCP")));
        assert_eq!(default("containerPort"), Some(Value::from(0)));
        assert_eq!(default("name"), None);
    }

    #[test]
    fn what_is_always_there_is_in_a_blank_object() {
        let blank = |definition: &str, group: &str, kind: &str| {
            let gvk = GroupVersionKind::new(group, "v1", kind);
            blank(table().id(definition).unwrap(), &gvk)
        };
        assert_eq!(
            blank("io.k8s.api.apps.v1.Deployment", "apps", "Deployment"),
            serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
                "spec": {"selector": null, "strategy": {},
                    "template": {"metadata": {}, "spec": {"containers": null}}},
                "status": {}})
        );
        assert_eq!(
            blank("io.k8s.api.core.v1.Service", "", "Service"),
            serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {},
                "status": {"loadBalancer": {}}})
        );
    }
}
