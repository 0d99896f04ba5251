//! Namespace: the one kind whose end waits for `spec.finalizers`.

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{object_mut, str_at};
use serde_json::{Value, json};

use crate::kind::{
    Column, Endpoint, Kind, STATUS_VERBS, Strategy, Subresource, copy_field, keep_other_half, put,
};
use crate::print;
use crate::validate::{Errors, items};

/// The label by which selectors name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "Namespace",
    list_kind: "NamespaceList",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    namespaced: false,
    // A collection of namespaces cannot be deleted at once.
    verbs: &[
        "create", "delete", "get", "list", "patch", "update", "watch",
    ],
    subresources: &[
        Subresource {
            name: "finalize",
            group: "",
            version: "v1",
            kind: "Namespace",
            verbs: &["update"],
        },
        Subresource {
            name: "status",
            group: "",
            version: "v1",
            kind: "Namespace",
            verbs: STATUS_VERBS,
        },
    ],
    storage_prefix: "namespaces",
    definition: "io.k8s.api.core.v1.Namespace",
    returns_deleted: true,
    name_errors: meta::names::label_errors,
    selectable: &["status.phase"],
    columns: &[
        Column::name(),
        Column::text("Status", "The phase."),
        Column::age(),
    ],
    strategy: &Namespace,
    ..Kind::BASE
};

struct Namespace;

impl Strategy for Namespace {
    fn default(&self, object: &mut Value) {
        let name = meta::value::name(object).to_owned();
        if !name.is_empty() {
            object_mut(meta_of(object), "labels").insert(NAME_LABEL.to_owned(), Value::from(name));
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        // The name may have been generated after the defaults.
        self.default(object);
        put(object, "status", Some(json!({"phase": "Active"})));
        let spec = object_mut(object, "spec");
        let list = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(list) = list
            && !list.contains(&json!("kubernetes"))
        {
            list.push(json!("kubernetes"));
        }
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        match endpoint {
            Endpoint::Main => {
                let finalizers = old.get("spec").and_then(|s| s.get("finalizers")).cloned();
                object_mut(new, "spec");
                if let Some(spec) = new.get_mut("spec") {
                    put(spec, "finalizers", finalizers);
                }
                copy_field(new, old, "status");
            }
            Endpoint::Finalize => copy_field(new, old, "status"),
            other => keep_other_half(other, new, old),
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        for (index, item) in items(object, "spec.finalizers").iter().enumerate() {
            let text = item.as_str().unwrap_or_default();
            if text != "kubernetes" && !text.contains('/') {
                errors.push(FieldError::invalid(
                    format!("spec.finalizers[{index}]"),
                    text,
                    "name is neither a standard finalizer name nor is it fully qualified",
                ));
            }
        }
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            let deleting = old
                .get("metadata")
                .and_then(|m| m.get("deletionTimestamp"))
                .is_some();
            let phase = str_at(new, "status.phase");
            if phase != "Terminating" && deleting {
                errors.push(FieldError::invalid(
                    "status.Phase",
                    phase,
                    "may only be 'Terminating' if `deletionTimestamp` is not empty",
                ));
            } else if phase != "Active" && !deleting {
                errors.push(FieldError::invalid(
                    "status.Phase",
                    phase,
                    "may only be 'Active' if `deletionTimestamp` is empty",
                ));
            }
        }
    }

    fn on_delete(&self, object: &mut Value) {
        object_mut(object, "status").insert("phase".to_owned(), Value::from("Terminating"));
    }

    fn holds(&self, object: &Value) -> bool {
        !items(object, "spec.finalizers").is_empty()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(str_at(object, "status.phase")),
            print::age(object, now),
        ]
    }
}

/// Returns the metadata as a value to be changed.
fn meta_of(object: &mut Value) -> &mut Value {
    meta::value::metadata_mut(object);
    &mut object["metadata"]
}
