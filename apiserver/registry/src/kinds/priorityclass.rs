//! PriorityClass (scheduling.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{int_at, str_at};
use serde_json::{Value, json};

use crate::checks::{bool_at, boolean};
use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, immutable};

/// The highest priority that is not the system's.
const USER_MAX: i64 = 1_000_000_000;
/// Begins the names that are the system's.
const SYSTEM_PREFIX: &str = "system-";
/// The classes that are always there: name, value, description.
const SYSTEM: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    list_kind: "PriorityClassList",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    namespaced: false,
    storage_prefix: "priorityclasses",
    definition: "io.k8s.api.scheduling.v1.PriorityClass",
    generation: true,
    columns: &[
        Column::name(),
        Column::integer("Value", "The priority of its pods."),
        boolean("Global-Default", "Whether pods that name none get it."),
        Column::age(),
        Column::text("PreemptionPolicy", "Whether its pods push others out."),
    ],
    strategy: &PriorityClass,
    ..Kind::BASE
};

/// Returns the classes that are always there, as they are created.
pub fn system_classes() -> impl Iterator<Item = Value> {
    SYSTEM.iter().map(|(name, value, description)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "description": description,
        })
    })
}

struct PriorityClass;

impl Strategy for PriorityClass {
    fn default(&self, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            fill(map, "value", 0);
            fill(map, "preemptionPolicy", "PreemptLowerPriority");
        }
    }

    fn changes_desired(&self, _: &Value, _: &Value) -> bool {
        // What its pods get never changes.
        false
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let name = meta::value::name(object);
        let value = int_at(object, "value").unwrap_or(0);
        if name.starts_with(SYSTEM_PREFIX) {
            if let Some(why) = not_the_system_s(name, value, bool_at(object, "globalDefault")) {
                errors.push(FieldError::forbidden(
                    "metadata.name",
                    format!(
                        "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
                    ),
                ));
            }
        } else if value > USER_MAX {
            errors.push(FieldError::forbidden(
                "value",
                format!("maximum allowed value of a user defined priority is {USER_MAX}"),
            ));
        }
        let policy = str_at(object, "preemptionPolicy");
        match policy {
            "PreemptLowerPriority" | "Never" => {}
            "" => errors.push(FieldError::required("preemptionPolicy", "")),
            other => errors.push(FieldError::not_supported(
                "preemptionPolicy",
                other,
                &["PreemptLowerPriority", "Never"],
            )),
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if int_at(new, "value") != int_at(old, "value") {
            errors.push(FieldError::forbidden(
                "value",
                "may not be changed in an update.",
            ));
        }
        immutable(new, old, "preemptionPolicy", errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            print::number(object, "value"),
            Value::from(bool_at(object, "globalDefault")),
            print::age(object, now),
            Value::from(str_at(object, "preemptionPolicy")),
        ]
    }
}

/// Says why a class is none of those that are always there.
fn not_the_system_s(name: &str, value: i64, global_default: bool) -> Option<String> {
    match SYSTEM.iter().find(|(known, ..)| *known == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, known, _)) if *known != value => {
            Some(format!("value of {name} PriorityClass must be {known}"))
        }
        Some(_) if global_default => Some(format!(
            "globalDefault of {name} PriorityClass must be false"
        )),
        Some(_) => None,
    }
}
