//! What a job does about pods that end: its policies for failure, success and
//! replacement.

use std::collections::BTreeSet;

use meta::value::{int_at, str_at};
use meta::{FieldError, names};
use serde_json::Value;

use super::indexes;
use crate::validate::{Errors, items, natural};

/// The most rules of a policy.
const RULES_MAX: usize = 20;
/// The most exit codes of a rule.
const EXIT_CODES_MAX: usize = 255;
/// The most conditions of a rule.
const CONDITIONS_MAX: usize = 20;
/// The longest text of indexes.
const INDEXES_MAX: usize = 64 * 1024;

/// Checks when a job creates a pod in another's place.
pub(super) fn replacement(spec: &Value, path: &str, errors: &mut Errors) {
    let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) else {
        return;
    };
    let known: &[&str] = match spec.get("podFailurePolicy") {
        Some(_) => &["Failed"],
        None => &["Failed", "TerminatingOrFailed"],
    };
    if !known.contains(&policy) {
        let at = format!("{path}.podReplacementPolicy");
        errors.push(FieldError::not_supported(at, policy, known));
    }
}

/// Checks what a job does about pods that failed.
pub(super) fn failure(spec: &Value, path: &str, errors: &mut Errors) {
    let Some(policy) = spec.get("podFailurePolicy") else {
        return;
    };
    let path = format!("{path}.podFailurePolicy.rules");
    let rules = items(policy, "rules");
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(path.as_str(), rules.len(), RULES_MAX));
    }
    for (index, rule) in rules.iter().enumerate() {
        failure_rule(spec, rule, &format!("{path}[{index}]"), errors);
    }
}

fn failure_rule(spec: &Value, rule: &Value, path: &str, errors: &mut Errors) {
    let at = format!("{path}.action");
    match str_at(rule, "action") {
        "" => errors.push(FieldError::required(
            at,
            "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
        )),
        "FailIndex" => {
            if spec.get("backoffLimitPerIndex").is_none() {
                let words = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(at, "FailIndex", words));
            }
        }
        "Count" | "FailJob" | "Ignore" => {}
        other => errors.push(FieldError::not_supported(
            at,
            other,
            &["Count", "FailIndex", "FailJob", "Ignore"],
        )),
    }
    let codes = rule.get("onExitCodes");
    let conditions = items(rule, "onPodConditions");
    if let Some(codes) = codes {
        exit_codes(spec, codes, &format!("{path}.onExitCodes"), errors);
    }
    pod_conditions(conditions, &format!("{path}.onPodConditions"), errors);
    let words = match (codes.is_some(), conditions.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(FieldError::invalid_unquoted(path, words));
}

fn pod_conditions(conditions: &[Value], path: &str, errors: &mut Errors) {
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(path, conditions.len(), CONDITIONS_MAX));
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}].{field}");
        let ty = str_at(pattern, "type");
        for error in names::qualified_name_errors(ty) {
            errors.push(FieldError::invalid(at("type"), ty, error));
        }
        let (status, known) = (str_at(pattern, "status"), ["False", "True", "Unknown"]);
        if status.is_empty() {
            let words = "valid values: [\"False\" \"True\" \"Unknown\"]";
            errors.push(FieldError::required(at("status"), words));
        } else if !known.contains(&status) {
            errors.push(FieldError::not_supported(at("status"), status, &known));
        }
    }
}

fn exit_codes(spec: &Value, rule: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let operator = str_at(rule, "operator");
    match operator {
        "" => errors.push(FieldError::required(
            at("operator"),
            "valid values: [\"In\" \"NotIn\"]",
        )),
        "In" | "NotIn" => {}
        other => errors.push(FieldError::not_supported(
            at("operator"),
            other,
            &["In", "NotIn"],
        )),
    }
    if let Some(name) = rule.get("containerName").and_then(Value::as_str) {
        let lists = ["template.spec.containers", "template.spec.initContainers"];
        let known = |list: &&str| items(spec, list).iter().any(|c| str_at(c, "name") == name);
        if !lists.iter().any(known) {
            let words = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(at("containerName"), name, words));
        }
    }
    let given = rule.get("values").cloned().unwrap_or_default();
    let values: Vec<i64> = items(rule, "values")
        .iter()
        .filter_map(Value::as_i64)
        .collect();
    if values.is_empty() {
        let words = "at least one value is required";
        errors.push(FieldError::invalid(at("values"), given.clone(), words));
    } else if values.len() > EXIT_CODES_MAX {
        errors.push(FieldError::too_many(
            at("values"),
            values.len(),
            EXIT_CODES_MAX,
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        let at = at(&format!("values[{index}]"));
        if operator == "In" && *value == 0 {
            let words = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(at.as_str(), 0, words));
        }
        if !seen.insert(value) {
            errors.push(FieldError::duplicate(at, *value));
        }
    }
    if !values.is_sorted() {
        errors.push(FieldError::invalid(at("values"), given, "must be ordered"));
    }
}

/// Checks when a job has succeeded before all its pods have.
pub(super) fn success(spec: &Value, path: &str, errors: &mut Errors) {
    let Some(policy) = spec.get("successPolicy") else {
        return;
    };
    let at = format!("{path}.successPolicy");
    if str_at(spec, "completionMode") != "Indexed" {
        let words = "requires indexed completion mode";
        errors.push(FieldError::invalid(at, policy.clone(), words));
        return;
    }
    let path = format!("{at}.rules");
    let rules = items(policy, "rules");
    if rules.is_empty() {
        let words = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(path.as_str(), words));
    }
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(path.as_str(), rules.len(), RULES_MAX));
    }
    let completions = int_at(spec, "completions").unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        success_rule(rule, completions, &format!("{path}[{index}]"), errors);
    }
}

fn success_rule(rule: &Value, completions: i64, path: &str, errors: &mut Errors) {
    let set = rule.get("succeededIndexes").and_then(Value::as_str);
    let wanted = int_at(rule, "succeededCount");
    if set.is_none() && wanted.is_none() {
        let words = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, words));
    }
    let mut total = 0;
    if let Some(set) = set {
        let at = format!("{path}.succeededIndexes");
        if set.len() > INDEXES_MAX {
            errors.push(FieldError::too_long(at.as_str(), INDEXES_MAX));
        }
        match indexes::count(set, completions) {
            Ok(count) => total = count,
            Err(error) => {
                let words = format!("error parsing succeededIndexes: {error}");
                errors.push(FieldError::invalid(at, set, words));
            }
        }
    }
    let Some(wanted) = wanted else { return };
    natural(rule, path, "succeededCount", errors);
    let at = format!("{path}.succeededCount");
    let bounds = [
        (Some(completions), "the number of specified completions"),
        (
            set.map(|_| total),
            "the number of indexes in the specified succeededIndexes field",
        ),
    ];
    for (bound, of) in bounds {
        if let Some(bound) = bound.filter(|bound| wanted > *bound) {
            let words = format!("must be less than or equal to {bound} ({of})");
            errors.push(FieldError::invalid(at.as_str(), wanted, words));
        }
    }
}
