//! What volumes and claims share: access modes, volume modes, classes.

use meta::FieldError;
use meta::value::{at, str_at};
use serde_json::Value;

use crate::validate::{Errors, items};

/// The annotation in which a class was named before there was a field.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The access modes in their printed order, with their abbreviations.
const MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// Checks the access modes; `spec` stands at `path`.
pub(super) fn modes(spec: &Value, path: &str, errors: &mut Errors) {
    let at = format!("{path}.accessModes");
    let given: Vec<&str> = items(spec, "accessModes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let mut sorted: Vec<&str> = MODES.iter().map(|(mode, _)| *mode).collect();
    sorted.sort_unstable();
    for mode in given.iter().filter(|mode| !sorted.contains(*mode)) {
        errors.push(FieldError::not_supported(at.as_str(), *mode, &sorted));
    }
    let alone = given.contains(&"ReadWriteOncePod");
    if alone
        && given
            .iter()
            .any(|m| *m != "ReadWriteOncePod" && sorted.contains(m))
    {
        let words = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(at, words));
    }
}

/// Checks the volume mode and the names of the classes.
pub(super) fn mode_and_classes(spec: &Value, path: &str, errors: &mut Errors) {
    let mode = str_at(spec, "volumeMode");
    if !mode.is_empty() && !["Block", "Filesystem"].contains(&mode) {
        let at = format!("{path}.volumeMode");
        errors.push(FieldError::not_supported(
            at,
            mode,
            &["Block", "Filesystem"],
        ));
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = str_at(spec, field);
        if !class.is_empty() {
            for error in meta::names::subdomain_errors(class) {
                errors.push(FieldError::invalid(format!("{path}.{field}"), class, error));
            }
        }
    }
}

/// Returns the class, from the field or the annotation before it.
pub(super) fn class(object: &Value) -> &str {
    let annotations = at(object, "metadata.annotations");
    match annotations
        .and_then(|a| a.get(CLASS))
        .and_then(Value::as_str)
    {
        Some(class) => class,
        None => str_at(object, "spec.storageClassName"),
    }
}

/// Returns the abbreviations of access modes at a path.
pub(super) fn printed_modes(object: &Value, path: &str) -> String {
    let given = items(object, path);
    let found = MODES
        .iter()
        .filter(|(mode, _)| given.iter().any(|g| g == mode));
    found.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// Returns the phase as it is printed.
pub(super) fn phase(object: &Value) -> Value {
    match at(object, "metadata.deletionTimestamp").is_some() {
        true => Value::from("Terminating"),
        false => Value::from(str_at(object, "status.phase")),
    }
}

/// Returns a text at a path, or `<unset>`.
pub(super) fn or_unset(object: &Value, path: &str) -> Value {
    at(object, path)
        .cloned()
        .unwrap_or_else(|| Value::from("<unset>"))
}
