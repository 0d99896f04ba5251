//! Role and ClusterRole (rbac.authorization.k8s.io/v1).

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, str_at};
use serde_json::Value;

use crate::checks::{CREATED_AT, segment_errors};
use crate::kind::{Column, Kind, Strategy};
use crate::print;
use crate::validate::{Errors, items, selector};

/// The group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

const COLUMNS: &[Column] = &[Column::name(), CREATED_AT];

/// Describes the kind of roles within a namespace.
pub(crate) static ROLE: Kind = Kind {
    group: GROUP,
    kind: "Role",
    list_kind: "RoleList",
    plural: "roles",
    singular: "role",
    storage_prefix: "roles",
    definition: "io.k8s.api.rbac.v1.Role",
    create_on_update: true,
    name_errors: segment_errors,
    columns: COLUMNS,
    strategy: &Role { namespaced: true },
    ..Kind::BASE
};

/// Describes the kind of roles of the whole cluster.
pub(crate) static CLUSTER_ROLE: Kind = Kind {
    group: GROUP,
    kind: "ClusterRole",
    list_kind: "ClusterRoleList",
    plural: "clusterroles",
    singular: "clusterrole",
    namespaced: false,
    storage_prefix: "clusterroles",
    definition: "io.k8s.api.rbac.v1.ClusterRole",
    create_on_update: true,
    name_errors: segment_errors,
    columns: COLUMNS,
    strategy: &Role { namespaced: false },
    ..Kind::BASE
};

struct Role {
    namespaced: bool,
}

impl Strategy for Role {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        for (index, item) in items(object, "rules").iter().enumerate() {
            rule(item, &format!("rules[{index}]"), self.namespaced, errors);
        }
        if object.get("aggregationRule").is_none() {
            return;
        }
        let path = "aggregationRule.clusterRoleSelectors";
        let selectors = items(object, path);
        if selectors.is_empty() {
            errors.push(FieldError::required(
                path,
                "at least one clusterRoleSelector required if aggregationRule is non-nil",
            ));
        }
        for (index, one) in selectors.iter().enumerate() {
            selector(Some(one), &format!("{path}[{index}]"), errors);
        }
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let created = str_at(object, "metadata.creationTimestamp");
        vec![print::name(object), Value::from(created)]
    }
}

fn rule(rule: &Value, path: &str, namespaced: bool, errors: &mut Errors) {
    let count = |field: &str| items(rule, field).len();
    if count("verbs") == 0 {
        errors.push(FieldError::required(
            format!("{path}.verbs"),
            "verbs must contain at least one value",
        ));
    }
    if count("nonResourceURLs") > 0 {
        let mut say = |words: &str| {
            let urls = at(rule, "nonResourceURLs").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(
                format!("{path}.nonResourceURLs"),
                urls,
                words,
            ));
        };
        if namespaced {
            say("namespaced rules cannot apply to non-resource URLs");
        }
        if count("apiGroups") + count("resources") + count("resourceNames") > 0 {
            say("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if count("apiGroups") == 0 {
        errors.push(FieldError::required(
            format!("{path}.apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if count("resources") == 0 {
        errors.push(FieldError::required(
            format!("{path}.resources"),
            "resource rules must supply at least one resource",
        ));
    }
    if count("resourceNames") > 0 && count("resources") > 1 {
        errors.push(FieldError::required(
            format!("{path}.resourceNames"),
            "resource names cannot apply to multiple resources",
        ));
    }
}
