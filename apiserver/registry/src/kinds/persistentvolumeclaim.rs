//! PersistentVolumeClaim: a wish for a volume.

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, object_mut, str_at};
use serde_json::{Map, Value, json};

use super::{resources, volumes, workload};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource, put};
use crate::podspec::fill_text;
use crate::print;
use crate::validate::{Errors, items, same, selector};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "PersistentVolumeClaim",
    list_kind: "PersistentVolumeClaimList",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    subresources: &[Subresource::status("", "v1", "PersistentVolumeClaim")],
    storage_prefix: "persistentvolumeclaims",
    definition: "io.k8s.api.core.v1.PersistentVolumeClaim",
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::text("Status", "Whether a volume was found."),
        Column::text("Volume", "The volume."),
        Column::text("Capacity", "The size of the volume."),
        Column::text("Access Modes", "How the volume may be mounted."),
        Column::text("StorageClass", "The class of storage asked for."),
        Column::text(
            "VolumeAttributesClass",
            "The class of attributes asked for.",
        ),
        Column::age(),
        Column::wide("VolumeMode", "Whether the volume has a file system."),
    ],
    strategy: &Claim,
    ..Kind::BASE
};

struct Claim;

impl Strategy for Claim {
    fn default(&self, object: &mut Value) {
        defaults(object);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        workload::set_status(object, json!({"phase": "Pending"}));
        mirror_source(object_mut(object, "spec"));
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        crate::kind::keep_other_half(endpoint, new, old);
        // A client that knows only the older of the two fields keeps the newer.
        let sourced = |o: &Value| at(o, "spec.dataSourceRef").is_some();
        let untouched = same(at(new, "spec.dataSource"), at(old, "spec.dataSource"));
        if endpoint == Endpoint::Main && sourced(old) && !sourced(new) && untouched {
            let kept = at(old, "spec.dataSourceRef").cloned();
            if let Some(spec) = new.get_mut("spec") {
                put(spec, "dataSourceRef", kept);
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        spec(at(object, "spec").unwrap_or(&Value::Null), "spec", errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            for (name, amount) in resources::map(new, "status.capacity").into_iter().flatten() {
                resources::value(name, amount, &format!("status.capacity[{name}]"), errors);
            }
            return;
        }
        change(new, old, errors);
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let bound = !str_at(object, "spec.volumeName").is_empty();
        let (capacity, modes) = match bound {
            true => (
                resources::printed(object, "status.capacity", "storage"),
                volumes::printed_modes(object, "status.accessModes"),
            ),
            false => (String::new(), String::new()),
        };
        vec![
            print::name(object),
            volumes::phase(object),
            Value::from(str_at(object, "spec.volumeName")),
            Value::from(capacity),
            Value::from(modes),
            Value::from(volumes::class(object)),
            volumes::or_unset(object, "spec.volumeAttributesClassName"),
            print::age(object, now),
            volumes::or_unset(object, "spec.volumeMode"),
        ]
    }
}

/// Fills in a claim's defaults.
pub(super) fn defaults(claim: &mut Value) {
    fill_text(object_mut(claim, "status"), "phase", "Pending");
    fill_text(object_mut(claim, "spec"), "volumeMode", "Filesystem");
}

/// Keeps the two ways to name where the data comes from alike.
fn mirror_source(spec: &mut Map<String, Value>) {
    let reference = spec.get("dataSourceRef").cloned();
    match (spec.get("dataSource").cloned(), reference) {
        (Some(source), None) => drop(spec.insert("dataSourceRef".to_owned(), source)),
        (None, Some(mut reference)) if str_at(&reference, "namespace").is_empty() => {
            put(&mut reference, "namespace", None);
            spec.insert("dataSource".to_owned(), reference);
        }
        _ => {}
    }
}

/// Checks a claim's specification; `path` is where it stands.
pub(super) fn spec(spec: &Value, path: &str, errors: &mut Errors) {
    if items(spec, "accessModes").is_empty() {
        let words = "at least 1 access mode is required";
        errors.push(FieldError::required(format!("{path}.accessModes"), words));
    }
    selector(spec.get("selector"), &format!("{path}.selector"), errors);
    volumes::modes(spec, path, errors);
    let at_size = format!("{path}.resources[storage]");
    match at(spec, "resources.requests").and_then(|r| r.get("storage")) {
        None => errors.push(FieldError::required(at_size, "")),
        Some(size) => {
            if resources::positive(size, &at_size, errors) {
                resources::value("storage", size, &at_size, errors);
            }
        }
    }
    volumes::mode_and_classes(spec, path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.get(field) {
            self::source(source, &format!("{path}.{field}"), errors);
        }
    }
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    let (Some(source), Some(reference)) = (source, reference) else {
        return;
    };
    let alike = ["apiGroup", "kind", "name"]
        .iter()
        .all(|f| source.get(f) == reference.get(f));
    let words = match str_at(reference, "namespace").is_empty() {
        false => "may not be specified when dataSourceRef.namespace is specified",
        true if !alike => "must match dataSourceRef",
        true => return,
    };
    errors.push(FieldError::invalid(
        path,
        format!("{path}.dataSource"),
        words,
    ));
}

fn source(source: &Value, path: &str, errors: &mut Errors) {
    for field in ["name", "kind"] {
        if str_at(source, field).is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    }
    let (group, kind) = (str_at(source, "apiGroup"), str_at(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let words = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(path, kind, words));
    }
    for (field, check) in [
        (
            "apiGroup",
            meta::names::subdomain_errors as fn(&str) -> Vec<String>,
        ),
        ("namespace", meta::names::label_errors),
    ] {
        let text = str_at(source, field);
        if !text.is_empty() {
            for error in check(text) {
                errors.push(FieldError::invalid(format!("{path}.{field}"), text, error));
            }
        }
    }
}

/// Checks a change: next to nothing may change but the size.
fn change(new: &Value, old: &Value, errors: &mut Errors) {
    let null = Value::Null;
    let (is, was) = (
        new.get("spec").unwrap_or(&null),
        old.get("spec").unwrap_or(&null),
    );
    // Undo every allowed change; what still differs is forbidden.
    let mut undone = is.clone();
    let mut undo = |field: &str| put(&mut undone, field, was.get(field).cloned());
    undo("volumeAttributesClassName");
    if str_at(was, "volumeName").is_empty() {
        undo("volumeName");
    }
    if was.get("storageClassName").is_none() {
        undo("storageClassName");
    }
    let size = |spec| resources::amount(at(spec, "resources.requests"), "storage");
    if str_at(new, "status.phase") == "Bound"
        && let Some(requests) = undone
            .get_mut("resources")
            .and_then(|r| r.get_mut("requests"))
    {
        let kept = at(was, "resources.requests")
            .and_then(|r| r.get("storage"))
            .cloned();
        put(requests, "storage", kept);
    }
    if !same(Some(&undone), Some(was)) {
        errors.push(FieldError::forbidden(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let (wanted, had) = (size(is).unwrap_or_default(), size(was).unwrap_or_default());
    let held = resources::amount(at(new, "status.capacity"), "storage").unwrap_or_default();
    if wanted < had && wanted <= held {
        errors.push(FieldError::forbidden(
            "spec.resources.requests.storage",
            "field can not be less than status.capacity",
        ));
    }
    if !same(is.get("volumeMode"), was.get("volumeMode")) {
        let mode = is.get("volumeMode").cloned().unwrap_or_default();
        let words = crate::validate::IMMUTABLE;
        errors.push(FieldError::invalid("volumeMode", mode, words));
    }
    let class = "volumeAttributesClassName";
    let words = match (is.get(class).and_then(Value::as_str), was.get(class)) {
        (None, Some(_)) => "update from non-nil value to nil is forbidden",
        (Some(""), Some(_)) => "update from non-nil value to an empty string is forbidden",
        _ => return,
    };
    errors.push(FieldError::forbidden(format!("spec.{class}"), words));
}
