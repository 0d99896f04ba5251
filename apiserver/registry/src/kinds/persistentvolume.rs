//! PersistentVolume: storage that claims are bound to.

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, object_mut, str_at};
use serde_json::{Map, Value, json};

use super::{resources, volumes, workload};
use crate::kind::{Column, Endpoint, Facts, Kind, Strategy, Subresource, put};
use crate::podspec::{fill, fill_text};
use crate::print;
use crate::validate::{Errors, IMMUTABLE, items, same};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "PersistentVolume",
    list_kind: "PersistentVolumeList",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    namespaced: false,
    subresources: &[Subresource::status("", "v1", "PersistentVolume")],
    storage_prefix: "persistentvolumes",
    definition: "io.k8s.api.core.v1.PersistentVolume",
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::text("Capacity", "The size."),
        Column::text("Access Modes", "How it may be mounted."),
        Column::text("Reclaim Policy", "What becomes of it after its claim."),
        Column::text("Status", "Whether it is bound."),
        Column::text("Claim", "The claim it is bound to."),
        Column::text("StorageClass", "The class of storage it is of."),
        Column::text("VolumeAttributesClass", "The class of attributes it has."),
        Column::text("Reason", "Why it is in its state."),
        Column::age(),
        Column::wide("VolumeMode", "Whether it has a file system."),
    ],
    strategy: &Volume,
    ..Kind::BASE
};

/// The fields of a specification that say where the storage is.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

struct Volume;

impl Strategy for Volume {
    fn default(&self, object: &mut Value) {
        fill_text(object_mut(object, "status"), "phase", "Pending");
        let spec = object_mut(object, "spec");
        fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
        fill_text(spec, "volumeMode", "Filesystem");
        source_defaults(spec);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        let now = str_at(object, "metadata.creationTimestamp").to_owned();
        let mut status = json!({"phase": "Pending"});
        if !now.is_empty() {
            status["lastPhaseTransitionTime"] = Value::from(now);
        }
        workload::set_status(object, status);
    }

    fn stamp(&self, endpoint: Endpoint, new: &mut Value, old: Option<&Value>, facts: &Facts<'_>) {
        let Some(old) = old else { return };
        let moved = |path: &str| !same(at(new, path), at(old, path));
        if endpoint == Endpoint::Status
            && moved("status.phase")
            && !moved("status.lastPhaseTransitionTime")
        {
            let status = object_mut(new, "status");
            status.insert(
                "lastPhaseTransitionTime".to_owned(),
                meta::time::format(facts.now).into(),
            );
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        spec(at(object, "spec").unwrap_or(&Value::Null), errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint != Endpoint::Status {
            change(new, old, errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let claim = at(object, "spec.claimRef").map(|c| {
            let (namespace, name) = (str_at(c, "namespace"), str_at(c, "name"));
            format!("{namespace}/{name}")
        });
        vec![
            print::name(object),
            Value::from(resources::printed(object, "spec.capacity", "storage")),
            Value::from(volumes::printed_modes(object, "spec.accessModes")),
            Value::from(str_at(object, "spec.persistentVolumeReclaimPolicy")),
            volumes::phase(object),
            Value::from(claim.unwrap_or_default()),
            Value::from(volumes::class(object)),
            volumes::or_unset(object, "spec.volumeAttributesClassName"),
            Value::from(str_at(object, "status.reason")),
            print::age(object, now),
            volumes::or_unset(object, "spec.volumeMode"),
        ]
    }
}

/// Fills in what the kinds of storage default to.
fn source_defaults(spec: &mut Map<String, Value>) {
    for (source, field, default) in [
        ("hostPath", "type", ""),
        ("iscsi", "iscsiInterface", "default"),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "kind", "Shared"),
        ("azureDisk", "fsType", "ext4"),
    ] {
        if let Some(Value::Object(found)) = spec.get_mut(source) {
            fill(found, field, default);
        }
    }
    if let Some(Value::Object(disk)) = spec.get_mut("azureDisk") {
        fill(disk, "readOnly", false);
    }
}

fn spec(spec: &Value, errors: &mut Errors) {
    if items(spec, "accessModes").is_empty() {
        errors.push(FieldError::required("spec.accessModes", ""));
    }
    volumes::modes(spec, "spec", errors);
    let capacity = spec.get("capacity").and_then(Value::as_object);
    match capacity.filter(|m| !m.is_empty()) {
        None => errors.push(FieldError::required("spec.capacity", "")),
        Some(map) => {
            if map.len() > 1 || !map.contains_key("storage") {
                let given = Value::Object(map.clone());
                errors.push(FieldError::not_supported(
                    "spec.capacity",
                    given,
                    &["storage"],
                ));
            }
            for (name, amount) in map {
                resources::positive(amount, &format!("spec.capacity[{name}]"), errors);
            }
        }
    }
    let policy = str_at(spec, "persistentVolumeReclaimPolicy");
    let policies = ["Delete", "Recycle", "Retain"];
    if !policy.is_empty() && !policies.contains(&policy) {
        let at = "spec.persistentVolumeReclaimPolicy";
        errors.push(FieldError::not_supported(at, policy, &policies));
    }
    sources(spec, errors);
    if str_at(spec, "hostPath.path") == "/" && policy == "Recycle" {
        errors.push(FieldError::forbidden(
            "spec.persistentVolumeReclaimPolicy",
            "may not be 'recycle' for a hostPath mount of '/'",
        ));
    }
    volumes::mode_and_classes(spec, "spec", errors);
    if spec.get("volumeAttributesClassName").is_some() && spec.get("csi").is_none() {
        errors.push(FieldError::required(
            "spec.csi",
            "has to be specified when using volumeAttributesClassName",
        ));
    }
}

fn sources(spec: &Value, errors: &mut Errors) {
    let found: Vec<&str> = SOURCES
        .into_iter()
        .filter(|s| spec.get(s).is_some())
        .collect();
    if found.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    for extra in found.iter().skip(1) {
        errors.push(FieldError::forbidden(
            format!("spec.{extra}"),
            "may not specify more than 1 volume type",
        ));
    }
    let Some(first) = found.first() else { return };
    let required: &[&str] = match *first {
        "hostPath" | "local" => &["path"],
        "nfs" => &["server", "path"],
        "csi" => &["driver", "volumeHandle"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" => &["volumeID"],
        _ => &[],
    };
    for field in required {
        if str_at(spec, &format!("{first}.{field}")).is_empty() {
            errors.push(FieldError::required(format!("spec.{first}.{field}"), ""));
        }
    }
    let path = str_at(spec, &format!("{first}.path"));
    if matches!(*first, "hostPath" | "local" | "nfs") && path.split('/').any(|p| p == "..") {
        let at = format!("spec.{first}.path");
        errors.push(FieldError::invalid(at, path, "must not contain '..'"));
    }
    if *first == "nfs" && !path.is_empty() && !path.starts_with('/') {
        errors.push(FieldError::invalid(
            "spec.nfs.path",
            path,
            "must be an absolute path",
        ));
    }
    if *first == "local" && at(spec, "nodeAffinity.required").is_none() {
        let words = "Local volume requires node affinity";
        errors.push(FieldError::required("spec.nodeAffinity", words));
    }
}

fn change(new: &Value, old: &Value, errors: &mut Errors) {
    let null = Value::Null;
    let (mut is, was) = (
        new.get("spec").cloned().unwrap_or_default(),
        old.get("spec").unwrap_or(&null),
    );
    let secret = "controllerExpandSecretRef";
    if let (Some(driver), Some(before)) = (is.get_mut("csi"), was.get("csi"))
        && before.get(secret).is_none()
    {
        put(driver, secret, None);
    }
    if SOURCES.iter().any(|s| !same(is.get(s), was.get(s))) {
        errors.push(FieldError::forbidden(
            "spec.persistentvolumesource",
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    let affinity = was.get("nodeAffinity").is_some();
    for (field, fixed) in [("volumeMode", true), ("nodeAffinity", affinity)] {
        if fixed && !same(is.get(field), was.get(field)) {
            let value = is.get(field).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(field, value, IMMUTABLE));
        }
    }
    let class = "volumeAttributesClassName";
    if was.get(class).is_some() && is.get(class).is_none() {
        errors.push(FieldError::forbidden(
            format!("spec.{class}"),
            "update from non-nil value to nil is forbidden",
        ));
    }
}
