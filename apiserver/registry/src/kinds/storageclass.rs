//! StorageClass and VolumeAttributesClass (storage.k8s.io/v1).

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::FieldError;
use meta::value::str_at;
use serde_json::Value;

use crate::checks::{bool_at, frozen, parameters, provisioner};
use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, immutable, items};

/// The group of what describes volumes.
pub(super) const GROUP: &str = "storage.k8s.io";

/// The annotations that make a class the one of claims that name none.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const DEFAULT_ATTRIBUTES: [&str; 1] = ["volumeattributesclass.kubernetes.io/is-default-class"];

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: GROUP,
    kind: "StorageClass",
    list_kind: "StorageClassList",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    namespaced: false,
    storage_prefix: "storageclasses",
    definition: "io.k8s.api.storage.v1.StorageClass",
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::text("Provisioner", "Who makes its volumes."),
        Column::text("ReclaimPolicy", "What becomes of a volume after its claim."),
        Column::text("VolumeBindingMode", "When a volume is made."),
        Column::text("AllowVolumeExpansion", "Whether a volume may grow."),
        Column::age(),
    ],
    strategy: &StorageClass,
    ..Kind::BASE
};

/// Describes the kind of classes of a volume's changeable attributes.
pub(crate) static ATTRIBUTES: Kind = Kind {
    group: GROUP,
    kind: "VolumeAttributesClass",
    list_kind: "VolumeAttributesClassList",
    plural: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    namespaced: false,
    storage_prefix: "volumeattributesclasses",
    definition: "io.k8s.api.storage.v1.VolumeAttributesClass",
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::text("DriverName", "The driver of its volumes."),
        Column::age(),
    ],
    strategy: &AttributesClass,
    ..Kind::BASE
};

/// Returns the name as it is printed, with a mark on the default class.
fn marked(object: &Value, annotations: &[&str]) -> Value {
    let name = meta::value::name(object);
    let map = meta::value::at(object, "metadata.annotations");
    let is_default = annotations
        .iter()
        .any(|a| map.and_then(|m| m.get(*a)) == Some(&Value::from("true")));
    Value::from(match is_default {
        true => format!("{name} (default)"),
        false => name.to_owned(),
    })
}

struct StorageClass;

impl Strategy for StorageClass {
    fn default(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            fill(map, "reclaimPolicy", "Delete");
            fill(map, "volumeBindingMode", "Immediate");
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        provisioner(str_at(object, "provisioner"), "provisioner", errors);
        parameters(object, true, errors);
        let policy = str_at(object, "reclaimPolicy");
        if !matches!(policy, "" | "Delete" | "Retain") {
            errors.push(FieldError::not_supported(
                "reclaimPolicy",
                policy,
                &["Delete", "Retain"],
            ));
        }
        let mode = str_at(object, "volumeBindingMode");
        if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
            errors.push(FieldError::not_supported(
                "volumeBindingMode",
                mode,
                &["Immediate", "WaitForFirstConsumer"],
            ));
        }
        for (index, term) in items(object, "allowedTopologies").iter().enumerate() {
            topology(term, &format!("allowedTopologies[{index}]"), errors);
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        for field in ["parameters", "provisioner", "reclaimPolicy"] {
            frozen(new, old, field, errors);
        }
        immutable(new, old, "volumeBindingMode", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let or = |field: &str, default: &'static str| match str_at(object, field) {
            "" => Value::from(default),
            text => Value::from(text),
        };
        vec![
            marked(object, &DEFAULT_CLASS),
            Value::from(str_at(object, "provisioner")),
            or("reclaimPolicy", "Delete"),
            or("volumeBindingMode", "Immediate"),
            Value::from(bool_at(object, "allowVolumeExpansion")),
            print::age(object, now),
        ]
    }
}

fn topology(term: &Value, path: &str, errors: &mut Errors) {
    let mut keys = BTreeSet::new();
    for (index, one) in items(term, "matchLabelExpressions").iter().enumerate() {
        let at = |field: &str| format!("{path}.matchLabelExpressions[{index}].{field}");
        let values = crate::checks::texts(one, "values");
        if values.is_empty() {
            errors.push(FieldError::required(at("values"), ""));
        }
        crate::checks::no_duplicates(&values, &at("values"), errors);
        let key = str_at(one, "key");
        let wrong = meta::names::qualified_name_errors(key);
        crate::checks::all_invalid(key, &at("key"), wrong, errors);
        if !keys.insert(key) {
            errors.push(FieldError::duplicate(at("key"), key));
        }
    }
}

struct AttributesClass;

impl Strategy for AttributesClass {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        provisioner(str_at(object, "driverName"), "driverName", errors);
        parameters(object, false, errors);
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        for field in ["driverName", "parameters"] {
            frozen(new, old, field, errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            marked(object, &DEFAULT_ATTRIBUTES),
            Value::from(str_at(object, "driverName")),
            print::age(object, now),
        ]
    }
}
