//! ResourceQuota: how much of everything a namespace may have.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, str_at};
use serde_json::{Map, Value, json};

use super::{resources, workload};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource};
use crate::print;
use crate::validate::{Errors, IMMUTABLE, items};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "ResourceQuota",
    list_kind: "ResourceQuotaList",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    subresources: &[Subresource::status("", "v1", "ResourceQuota")],
    storage_prefix: "resourcequotas",
    definition: "io.k8s.api.core.v1.ResourceQuota",
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::text("Request", "What is used of what may be asked for."),
        Column::text("Limit", "What is used of what limits may add up to."),
        Column::age(),
    ],
    strategy: &ResourceQuota,
    ..Kind::BASE
};

/// The scopes there are.
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// Scopes that exclude each other.
const EXCLUSIVE: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];

/// What pods use up.
const OF_PODS: [&str; 7] = [
    "pods",
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];

struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn prepare_for_create(&self, object: &mut Value) {
        workload::set_status(object, json!({}));
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        amounts(object, "spec.hard", errors);
        scopes(object, errors);
        selector(object, errors);
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, old: &Value, errors: &mut Errors) {
        if endpoint == Endpoint::Status {
            amounts(new, "status.hard", errors);
            amounts(new, "status.used", errors);
            return;
        }
        let set = |o| -> BTreeSet<&str> {
            let list = items(o, "spec.scopes").iter();
            list.filter_map(Value::as_str).collect()
        };
        if set(new) != set(old) {
            let value = at(new, "spec.scopes").cloned().unwrap_or_default();
            errors.push(FieldError::invalid("spec.scopes", value, IMMUTABLE));
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        // The map is sorted, as the row is.
        for name in resources::map(object, "status.hard")
            .into_iter()
            .flat_map(Map::keys)
        {
            let used = resources::printed(object, "status.used", name);
            let hard = resources::printed(object, "status.hard", name);
            let list = match name.starts_with("limits.") {
                true => &mut limits,
                false => &mut requests,
            };
            list.push(format!("{name}: {used}/{hard}"));
        }
        vec![
            print::name(object),
            Value::from(requests.join(", ")),
            Value::from(limits.join(", ")),
            print::age(object, now),
        ]
    }
}

fn amounts(object: &Value, path: &str, errors: &mut Errors) {
    for (name, amount) in resources::map(object, path).into_iter().flatten() {
        let at = format!("{path}[{name}]");
        resources::name(name, &at, errors);
        if !name.contains('/') && !resources::is_standard_of_quotas(name) {
            let words = "must be a standard resource for quota";
            errors.push(FieldError::invalid(at.clone(), name.as_str(), words));
        }
        resources::value(name, amount, &at, errors);
    }
}

/// Tells whether a scope says something about a resource.
fn fits(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => OF_PODS.contains(&resource),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "requests.storage" | "persistentvolumeclaims")
        }
        _ => true,
    }
}

fn misfits(object: &Value, scope: &str) -> usize {
    let hard = resources::map(object, "spec.hard");
    hard.into_iter()
        .flat_map(Map::keys)
        .filter(|name| resources::is_standard_of_quotas(name) && !fits(scope, name))
        .count()
}

fn scopes(object: &Value, errors: &mut Errors) {
    let path = "spec.scopes";
    let list = items(object, path);
    let quoted = || at(object, path).cloned().unwrap_or_default();
    let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    for scope in &names {
        if !SCOPES.contains(scope) {
            errors.push(FieldError::invalid(path, quoted(), "unsupported scope"));
        }
        for _ in 0..misfits(object, scope) {
            let words = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(path, quoted(), words));
        }
    }
    for pair in EXCLUSIVE {
        if pair.iter().all(|scope| names.contains(scope)) {
            errors.push(FieldError::invalid(path, quoted(), "conflicting scopes"));
        }
    }
}

fn selector(object: &Value, errors: &mut Errors) {
    let path = "spec.scopeSelector.matchExpressions";
    let field = |name: &str| format!("{path}.{name}");
    let terms = items(object, path);
    for term in terms {
        let (scope, operator) = (str_at(term, "scopeName"), str_at(term, "operator"));
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(
                field("scopeName"),
                scope,
                "unsupported scope",
            ));
        }
        for _ in 0..misfits(object, scope) {
            let quoted = at(object, "spec.scopeSelector")
                .cloned()
                .unwrap_or_default();
            let words = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(path, quoted, words));
        }
        let fixed = EXCLUSIVE.iter().flatten().any(|s| *s == scope);
        if (fixed || scope == "CrossNamespacePodAffinity") && operator != "Exists" {
            errors.push(FieldError::invalid(
                field("operator"),
                operator,
                "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            ));
        }
        let values = items(term, "values");
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                field("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::invalid(
                field("values"),
                json!(values),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                field("operator"),
                other,
                "not a valid selector operator",
            )),
        }
    }
    let has = |scope: &&str| terms.iter().any(|t| str_at(t, "scopeName") == *scope);
    for pair in EXCLUSIVE {
        if pair.iter().all(has) {
            let quoted = at(object, "spec.scopes").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(path, quoted, "conflicting scopes"));
        }
    }
}
