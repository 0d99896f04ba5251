//! Node.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::FieldError;
use meta::value::str_at;
use serde_json::{Value, json};

use crate::kind::{Column, Endpoint, Kind, STATUS_VERBS, Strategy, Subresource, copy_field};
use crate::podspec::fill;
use crate::print;
use crate::validate::{Errors, items, one_of};

/// Describes the kind. Nodes lie where their first name, minion, put them.
pub(crate) static KIND: Kind = Kind {
    kind: "Node",
    list_kind: "NodeList",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    namespaced: false,
    subresources: &[Subresource {
        name: "status",
        group: "",
        version: "v1",
        kind: "Node",
        verbs: STATUS_VERBS,
    }],
    storage_prefix: "minions",
    definition: "io.k8s.api.core.v1.Node",
    selectable: &["spec.unschedulable"],
    columns: &[
        Column::name(),
        Column::text("Status", "Whether the node is ready and takes pods."),
        Column::text("Roles", "The roles its labels name."),
        Column::age(),
        Column::text("Version", "The version of its kubelet."),
        Column::wide("Internal-IP", "The address inside the cluster."),
        Column::wide("External-IP", "The address outside the cluster."),
        Column::wide("OS-Image", "The operating system."),
        Column::wide("Kernel-Version", "The kernel."),
        Column::wide("Container-Runtime", "The container runtime."),
    ],
    strategy: &Node,
    ..Kind::BASE
};

struct Node;

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        // What nobody keeps back can be given to pods.
        if let Some(Value::Object(status)) = object.get_mut("status")
            && let Some(capacity) = status.get("capacity").cloned()
        {
            fill(status, "allocatable", capacity);
        }
        // The first of the ranges is also a field of its own.
        if let Some(Value::Object(spec)) = object.get_mut("spec") {
            let first = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned();
            let one = spec.get("podCIDR").filter(|one| **one != json!(""));
            match (one.cloned(), first) {
                (Some(one), None) => drop(spec.insert("podCIDRs".to_owned(), json!([one]))),
                (None, Some(first)) => drop(spec.insert("podCIDR".to_owned(), first)),
                _ => {}
            }
        }
    }

    fn prepare_for_update(&self, endpoint: Endpoint, new: &mut Value, old: &Value) {
        match endpoint {
            Endpoint::Main => copy_field(new, old, "status"),
            // A kubelet changes its labels together with its status.
            Endpoint::Status => copy_field(new, old, "spec"),
            Endpoint::Finalize | Endpoint::Other => {}
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let mut seen = BTreeSet::new();
        for (index, taint) in items(object, "spec.taints").iter().enumerate() {
            let at = |field: &str| format!("spec.taints[{index}].{field}");
            let (key, effect) = (str_at(taint, "key"), str_at(taint, "effect"));
            for error in meta::names::qualified_name_errors(key) {
                errors.push(FieldError::invalid(at("key"), key, error));
            }
            for error in meta::names::label_value_errors(str_at(taint, "value")) {
                errors.push(FieldError::invalid(
                    at("value"),
                    str_at(taint, "value"),
                    error,
                ));
            }
            one_of(
                effect,
                &at("effect"),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
                errors,
            );
            if !seen.insert((key, effect)) {
                errors.push(FieldError::duplicate(
                    format!("spec.taints[{index}]"),
                    taint.clone(),
                ));
            }
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        for field in ["spec.podCIDR", "spec.providerID"] {
            let was = str_at(old, field);
            if !was.is_empty() && str_at(new, field) != was {
                errors.push(FieldError::forbidden(
                    field,
                    "node updates may not change it except from \"\" to valid",
                ));
            }
        }
    }

    fn selectable_field(&self, object: &Value, name: &str) -> String {
        let value = meta::value::at(object, name)
            .and_then(Value::as_bool)
            .unwrap_or(false);
        value.to_string()
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let info = |field: &str| {
            let text = str_at(object, &format!("status.nodeInfo.{field}"));
            Value::from(if text.is_empty() { "<unknown>" } else { text })
        };
        vec![
            print::name(object),
            Value::from(status(object)),
            Value::from(roles(object)),
            print::age(object, now),
            Value::from(str_at(object, "status.nodeInfo.kubeletVersion")),
            Value::from(address(object, "InternalIP")),
            Value::from(address(object, "ExternalIP")),
            info("osImage"),
            info("kernelVersion"),
            info("containerRuntimeVersion"),
        ]
    }
}

fn status(object: &Value) -> String {
    let ready = items(object, "status.conditions")
        .iter()
        .find(|c| str_at(c, "type") == "Ready");
    let mut text = match ready.map(|c| str_at(c, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    let unschedulable = meta::value::at(object, "spec.unschedulable");
    if unschedulable == Some(&Value::Bool(true)) {
        text.push_str(",SchedulingDisabled");
    }
    text
}

fn roles(object: &Value) -> String {
    let labels = object
        .get("metadata")
        .and_then(|m| m.get("labels"))
        .and_then(Value::as_object);
    let mut roles = BTreeSet::new();
    for (key, value) in labels.into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.insert(role.to_owned());
        } else if key == "kubernetes.io/role" {
            roles.insert(value.as_str().unwrap_or_default().to_owned());
        }
    }
    roles.remove("");
    if roles.is_empty() {
        print::NONE.to_owned()
    } else {
        roles.into_iter().collect::<Vec<_>>().join(",")
    }
}

fn address(object: &Value, ty: &str) -> String {
    items(object, "status.addresses")
        .iter()
        .find(|a| str_at(a, "type") == ty)
        .map_or(print::NONE, |a| str_at(a, "address"))
        .to_owned()
}
