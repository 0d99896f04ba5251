//! ConfigMap.

use jiff::Timestamp;
use meta::{FieldError, names};
use serde_json::Value;

use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::print;
use crate::validate::{Errors, same};

/// The largest sum of a ConfigMap's or Secret's values.
pub(super) const DATA_MAX: usize = 1 << 20;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "ConfigMap",
    list_kind: "ConfigMapList",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    storage_prefix: "configmaps",
    definition: "io.k8s.api.core.v1.ConfigMap",
    columns: &[
        Column::name(),
        Column::integer("Data", "The number of entries."),
        Column::age(),
    ],
    strategy: &ConfigMap,
    ..Kind::BASE
};

struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        let size = check_data(object, "data", errors) + check_data(object, "binaryData", errors);
        if size > DATA_MAX {
            errors.push(FieldError::too_long("", DATA_MAX));
        }
        let binary = object.get("binaryData").and_then(Value::as_object);
        for key in object
            .get("data")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|m| m.keys())
        {
            if binary.is_some_and(|b| b.contains_key(key)) {
                errors.push(FieldError::invalid(
                    format!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        check_frozen(new, old, &["data", "binaryData"], errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let count = print::count(object, "data") + print::count(object, "binaryData");
        vec![
            print::name(object),
            Value::from(count),
            print::age(object, now),
        ]
    }
}

/// Checks the keys of a map of data; returns the size of its values.
pub(super) fn check_data(object: &Value, field: &str, errors: &mut Errors) -> usize {
    let mut size = 0;
    for (key, value) in object
        .get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        for error in names::config_key_errors(key) {
            errors.push(FieldError::invalid(
                format!("{field}[{key}]"),
                key.as_str(),
                error,
            ));
        }
        size += value.as_str().map_or(0, str::len);
    }
    size
}

/// Checks that nothing changed once `immutable` was set.
pub(super) fn check_frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    let frozen = Value::Bool(true);
    if old.get("immutable") != Some(&frozen) {
        return;
    }
    let words = "field is immutable when `immutable` is set";
    if new.get("immutable") != Some(&frozen) {
        errors.push(FieldError::forbidden("immutable", words));
    }
    for field in fields {
        if !same(new.get(field), old.get(field)) {
            errors.push(FieldError::forbidden(*field, words));
        }
    }
}
