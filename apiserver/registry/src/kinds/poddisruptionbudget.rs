//! PodDisruptionBudget (policy/v1): how many pods may be evicted at a time.

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{at, str_at};
use serde_json::{Value, json};

use super::{counts, workload};
use crate::kind::{Column, Endpoint, Kind, Strategy, Subresource};
use crate::print;
use crate::validate::{Errors, items, not_negative, selector};

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    list_kind: "PodDisruptionBudgetList",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    subresources: &[Subresource::status("policy", "v1", "PodDisruptionBudget")],
    storage_prefix: "poddisruptionbudgets",
    definition: "io.k8s.api.policy.v1.PodDisruptionBudget",
    // A budget overwritten unread would allow an eviction twice.
    unconditional_update: false,
    generation: true,
    columns: &[
        Column::name(),
        Column::text(
            "Min Available",
            "The number of pods that must be available.",
        ),
        Column::text(
            "Max Unavailable",
            "The number of pods that may be unavailable.",
        ),
        Column::integer(
            "Allowed Disruptions",
            "The number of pods that may be evicted now.",
        ),
        Column::age(),
    ],
    strategy: &Budget,
    ..Kind::BASE
};

struct Budget;

impl Strategy for Budget {
    fn prepare_for_create(&self, object: &mut Value) {
        let status = json!({"currentHealthy": 0, "desiredHealthy": 0,
            "disruptionsAllowed": 0, "expectedPods": 0});
        workload::set_status(object, status);
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        let limits = ["minAvailable", "maxUnavailable"];
        let find = |field: &str| at(object, "spec").and_then(|s| s.get(field));
        if limits.iter().all(|field| find(field).is_some()) {
            errors.push(FieldError::invalid(
                "spec",
                at(object, "spec").cloned().unwrap_or_default(),
                "minAvailable and maxUnavailable cannot be both set",
            ));
        }
        for field in limits {
            if let Some(value) = find(field) {
                counts::check(value, &format!("spec.{field}"), errors);
                counts::at_most_all(value, &format!("spec.{field}"), errors);
            }
        }
        selector(at(object, "spec.selector"), "spec.selector", errors);
        let path = "spec.unhealthyPodEvictionPolicy";
        if let Some(policy) = at(object, path).and_then(Value::as_str) {
            let known = ["AlwaysAllow", "IfHealthyBudget"];
            if !known.contains(&policy) {
                errors.push(FieldError::not_supported(path, policy, &known));
            }
        }
    }

    fn validate_update(&self, endpoint: Endpoint, new: &Value, _: &Value, errors: &mut Errors) {
        if endpoint != Endpoint::Status {
            return;
        }
        for (index, condition) in items(new, "status.conditions").iter().enumerate() {
            let at = |field: &str| format!("status.conditions[{index}].{field}");
            for field in ["type", "reason", "lastTransitionTime"] {
                if str_at(condition, field).is_empty() {
                    errors.push(FieldError::required(at(field), "must be set"));
                }
            }
            let status = str_at(condition, "status");
            let known = ["False", "True", "Unknown"];
            if !known.contains(&status) {
                errors.push(FieldError::not_supported(at("status"), status, &known));
            }
        }
        for field in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            not_negative(new, &format!("status.{field}"), errors);
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let limit = |path: &str| match at(object, path) {
            Some(Value::String(text)) => Value::from(text.as_str()),
            Some(number) => Value::from(number.to_string()),
            None => Value::from("N/A"),
        };
        vec![
            print::name(object),
            limit("spec.minAvailable"),
            limit("spec.maxUnavailable"),
            print::number(object, "status.disruptionsAllowed"),
            print::age(object, now),
        ]
    }
}
