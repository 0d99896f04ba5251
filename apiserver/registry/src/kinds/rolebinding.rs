//! RoleBinding and ClusterRoleBinding (rbac.authorization.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{object_mut, str_at};
use serde_json::Value;

use super::role::GROUP;
use crate::checks::{all_invalid, segment_errors};
use crate::kind::{Column, Endpoint, Kind, Strategy};
use crate::podspec::{each, fill_text};
use crate::print;
use crate::validate::{Errors, items, same};

const COLUMNS: &[Column] = &[
    Column::name(),
    Column::text("Role", "The role that is given."),
    Column::age(),
    Column::wide("Users", "The users it is given to."),
    Column::wide("Groups", "The groups it is given to."),
    Column::wide("ServiceAccounts", "The service accounts it is given to."),
];

/// Describes the kind of bindings within a namespace.
pub(crate) static ROLE_BINDING: Kind = Kind {
    group: GROUP,
    kind: "RoleBinding",
    list_kind: "RoleBindingList",
    plural: "rolebindings",
    singular: "rolebinding",
    storage_prefix: "rolebindings",
    definition: "io.k8s.api.rbac.v1.RoleBinding",
    create_on_update: true,
    name_errors: segment_errors,
    columns: COLUMNS,
    strategy: &Binding { namespaced: true },
    ..Kind::BASE
};

/// Describes the kind of bindings for the whole cluster.
pub(crate) static CLUSTER_ROLE_BINDING: Kind = Kind {
    group: GROUP,
    kind: "ClusterRoleBinding",
    list_kind: "ClusterRoleBindingList",
    plural: "clusterrolebindings",
    singular: "clusterrolebinding",
    namespaced: false,
    storage_prefix: "clusterrolebindings",
    definition: "io.k8s.api.rbac.v1.ClusterRoleBinding",
    create_on_update: true,
    name_errors: segment_errors,
    columns: COLUMNS,
    strategy: &Binding { namespaced: false },
    ..Kind::BASE
};

struct Binding {
    namespaced: bool,
}

impl Strategy for Binding {
    fn default(&self, object: &mut Value) {
        fill_text(object_mut(object, "roleRef"), "apiGroup", GROUP);
        let Some(map) = object.as_object_mut() else {
            return;
        };
        for subject in each(map, "subjects") {
            let kind = subject.get("kind").and_then(Value::as_str);
            if matches!(kind, Some("User" | "Group")) {
                fill_text(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let group = str_at(object, "roleRef.apiGroup");
        if group != GROUP {
            errors.push(FieldError::not_supported(
                "roleRef.apiGroup",
                group,
                &[GROUP],
            ));
        }
        let kinds: &[&str] = if self.namespaced {
            &["Role", "ClusterRole"]
        } else {
            &["ClusterRole"]
        };
        let kind = str_at(object, "roleRef.kind");
        if !kinds.contains(&kind) {
            errors.push(FieldError::not_supported("roleRef.kind", kind, kinds));
        }
        let name = str_at(object, "roleRef.name");
        if name.is_empty() {
            errors.push(FieldError::required("roleRef.name", ""));
        } else {
            all_invalid(name, "roleRef.name", segment_errors(name), errors);
        }
        for (index, one) in items(object, "subjects").iter().enumerate() {
            subject(one, &format!("subjects[{index}]"), self.namespaced, errors);
        }
    }

    fn validate_update(&self, _: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if !same(new.get("roleRef"), old.get("roleRef")) {
            errors.push(FieldError::invalid(
                "roleRef",
                new.get("roleRef").cloned().unwrap_or_default(),
                "cannot change roleRef",
            ));
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let role = format!(
            "{}/{}",
            str_at(object, "roleRef.kind"),
            str_at(object, "roleRef.name")
        );
        let of = |kind: &str| {
            let named = items(object, "subjects")
                .iter()
                .filter(|s| str_at(s, "kind") == kind);
            let names: Vec<String> = named
                .map(|s| match (kind, str_at(s, "namespace")) {
                    ("ServiceAccount", namespace) => {
                        format!("{namespace}/{}", str_at(s, "name"))
                    }
                    _ => str_at(s, "name").to_owned(),
                })
                .collect();
            Value::from(names.join(", "))
        };
        vec![
            print::name(object),
            Value::from(role),
            print::age(object, now),
            of("User"),
            of("Group"),
            of("ServiceAccount"),
        ]
    }
}

fn subject(subject: &Value, path: &str, namespaced: bool, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let (name, group) = (str_at(subject, "name"), str_at(subject, "apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    }
    match str_at(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                let wrong = meta::names::subdomain_errors(name);
                all_invalid(name, &at("name"), wrong, errors);
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(at("apiGroup"), group, &[""]));
            }
            if !namespaced && str_at(subject, "namespace").is_empty() {
                errors.push(FieldError::required(at("namespace"), ""));
            }
        }
        kind @ ("User" | "Group") => {
            if name.is_empty() {
                let words = format!("{} name cannot be empty", kind.to_lowercase());
                errors.push(FieldError::invalid(at("name"), "", words));
            }
            if group != GROUP {
                errors.push(FieldError::not_supported(at("apiGroup"), group, &[GROUP]));
            }
        }
        other => errors.push(FieldError::not_supported(
            at("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}
