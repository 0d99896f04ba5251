//! Checks of ephemeral containers: those that are added to a pod that runs, to
//! look into it.

use std::collections::BTreeSet;

use meta::value::str_at;
use meta::{FieldError, names};
use serde_json::Value;

use crate::validate::{Errors, items};

/// What an ephemeral container may have; nothing that the pod could rely on.
const ALLOWED: [&str; 17] = [
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "env",
    "envFrom",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];

const NOT_HERE: &str = "cannot be set for an Ephemeral Container";

/// Checks the ephemeral containers of a specification; `path` is where it
/// stands.
pub fn validate(spec: &Value, path: &str, errors: &mut Errors) {
    let mut others = BTreeSet::new();
    for list in ["initContainers", "containers"] {
        others.extend(items(spec, list).iter().map(|c| str_at(c, "name")));
    }
    let mut all = others.clone();
    for (index, container) in items(spec, "ephemeralContainers").iter().enumerate() {
        let path = format!("{path}.ephemeralContainers[{index}]");
        let at = |field: &str| format!("{path}.{field}");
        for field in ["name", "image"] {
            if str_at(container, field).is_empty() {
                errors.push(FieldError::required(at(field), ""));
            }
        }
        let name = str_at(container, "name");
        if !name.is_empty() {
            for error in names::label_errors(name) {
                errors.push(FieldError::invalid(at("name"), name, error));
            }
        }
        if !all.insert(name) {
            errors.push(FieldError::duplicate(at("name"), name));
        }
        let target = str_at(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(FieldError::not_found(at("targetContainerName"), target));
        }
        for (field, _) in container
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(f, v)| !ALLOWED.contains(&f.as_str()) && is_set(v))
        {
            errors.push(FieldError::forbidden(at(field), NOT_HERE));
        }
        for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !str_at(mount, field).is_empty() {
                    let at = at(&format!("volumeMounts[{index}].{field}"));
                    errors.push(FieldError::forbidden(at, NOT_HERE));
                }
            }
        }
    }
}

/// Tells whether a value says something.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(map) => map.values().any(is_set),
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(truth) => *truth,
        Value::Number(_) => true,
    }
}
