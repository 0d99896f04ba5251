//! Checks of an autoscaler (upstream: `pkg/apis/autoscaling/validation`), in the
//! new version's paths.

use meta::quantity::Quantity;
use meta::value::{at, int_at, str_at};
use meta::{FieldError, names};
use serde_json::Value;

use super::super::resources;
use crate::validate::{Errors, items};

/// The longest period of a policy, in seconds.
const PERIOD_MAX: i64 = 1800;
/// The longest window over which it is kept from wavering, in seconds.
const WINDOW_MAX: i64 = 3600;

/// The types of metric in their sorted order, with their fields.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Checks a specification.
pub(super) fn spec(spec: &Value, errors: &mut Errors) {
    let (min, max) = (int_at(spec, "minReplicas"), int_at(spec, "maxReplicas"));
    let max = max.unwrap_or(0);
    if let Some(min) = min.filter(|min| *min < 1) {
        let words = "must be greater than or equal to 1";
        errors.push(FieldError::invalid("spec.minReplicas", min, words));
    }
    if max < 1 {
        let words = "must be greater than 0";
        errors.push(FieldError::invalid("spec.maxReplicas", max, words));
    }
    if min.is_some_and(|min| max < min) {
        let words = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", max, words));
    }
    let target = spec.get("scaleTargetRef").unwrap_or(&Value::Null);
    reference(target, "spec.scaleTargetRef", errors);
    for (index, item) in items(spec, "metrics").iter().enumerate() {
        metric(item, &format!("spec.metrics[{index}]"), errors);
    }
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = at(spec, &format!("behavior.{direction}")) {
            self::rules(rules, &format!("spec.behavior.{direction}"), errors);
        }
    }
}

/// Says what is wrong with a part of a path.
fn segment_errors(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let bad = ["/", "%"].into_iter().filter(|c| text.contains(*c));
    bad.map(|c| format!("may not contain '{c}'")).collect()
}

fn named(holder: &Value, field: &str, words: &str, path: &str, errors: &mut Errors) {
    let (text, at) = (str_at(holder, field), format!("{path}.{field}"));
    if text.is_empty() {
        errors.push(FieldError::required(at, words));
        return;
    }
    for error in segment_errors(text) {
        errors.push(FieldError::invalid(at.as_str(), text, error));
    }
}

fn reference(reference: &Value, path: &str, errors: &mut Errors) {
    named(reference, "kind", "", path, errors);
    named(reference, "name", "", path, errors);
}

fn metric(metric: &Value, path: &str, errors: &mut Errors) {
    let ty = str_at(metric, "type");
    let known = SOURCES.map(|(ty, _)| ty);
    let at = |field: &str| format!("{path}.{field}");
    if ty.is_empty() {
        let words = "must specify a metric source type";
        errors.push(FieldError::required(at("type"), words));
    }
    if !known.contains(&ty) {
        errors.push(FieldError::not_supported(at("type"), ty, &known));
    }
    // Checked in this order: only the first of several is looked into.
    let order = [
        "object",
        "external",
        "pods",
        "resource",
        "containerResource",
    ];
    let mut present: Vec<&str> = order
        .into_iter()
        .filter(|f| metric.get(f).is_some())
        .collect();
    if let Some(first) = present.first() {
        let source = metric.get(first).unwrap_or(&Value::Null);
        self::source(source, first, &at(first), errors);
    }
    let several = present.len() != 1;
    match SOURCES.iter().find(|(name, _)| *name == ty) {
        Some((_, field)) => {
            if metric.get(field).is_none() {
                let words = "must populate information for the given metric source";
                errors.push(FieldError::required(at(field), words));
            }
            present.retain(|found| found != field);
        }
        None => errors.push(FieldError::not_supported(at("type"), ty, &known)),
    }
    for field in present.iter().filter(|_| several) {
        let words = "must populate the given metric source only";
        errors.push(FieldError::forbidden(at(field), words));
    }
}

fn source(source: &Value, field: &str, path: &str, errors: &mut Errors) {
    let null = Value::Null;
    let inner = |name: &str| source.get(name).unwrap_or(&null);
    let at = |name: &str| format!("{path}.{name}");
    if field == "object" {
        reference(inner("describedObject"), &at("describedObject"), errors);
    }
    if matches!(field, "object" | "external" | "pods") {
        let words = "must specify a metric name";
        named(inner("metric"), "name", words, &at("metric"), errors);
    } else if str_at(source, "name").is_empty() {
        errors.push(FieldError::required(
            at("name"),
            "must specify a resource name",
        ));
    }
    if field == "containerResource" {
        let (resource, container) = (str_at(source, "name"), str_at(source, "container"));
        if !resource.is_empty() {
            resources::name_of_container(resource, &at("name"), errors);
        }
        if container.is_empty() {
            let words = "must specify a container";
            errors.push(FieldError::required(at("container"), words));
        } else {
            for error in names::label_errors(container) {
                errors.push(FieldError::invalid(at("container"), container, error));
            }
        }
    }
    target(inner("target"), &at("target"), errors);
    aims(inner("target"), field, &at("target"), errors);
}

/// Checks that something is aimed at, and not too much.
fn aims(target: &Value, field: &str, path: &str, errors: &mut Errors) {
    let has = |name: &str| target.get(name).is_some();
    let at = |name: &str| format!("{path}.{name}");
    let (either, missing, words) = match field {
        "object" => (
            has("value") || has("averageValue"),
            "averageValue",
            "must set either a target value or averageValue",
        ),
        "external" => (
            has("value") || has("averageValue"),
            "averageValue",
            "must set either a target value for metric or a per-pod target",
        ),
        "pods" => (
            has("averageValue"),
            "averageValue",
            "must specify a positive target averageValue",
        ),
        _ => (
            has("averageUtilization") || has("averageValue"),
            "averageUtilization",
            "must set either a target raw value or a target utilization",
        ),
    };
    if !either {
        errors.push(FieldError::required(at(missing), words));
    }
    if field == "external" && has("value") && has("averageValue") {
        let words = "may not set both a target value for metric and a per-pod target";
        errors.push(FieldError::forbidden(at("value"), words));
    }
    if has("averageUtilization")
        && has("averageValue")
        && matches!(field, "resource" | "containerResource")
    {
        let words = "may not set both a target raw value and a target utilization";
        errors.push(FieldError::forbidden(at("averageValue"), words));
    }
}

fn target(target: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    let ty = str_at(target, "type");
    if ty.is_empty() {
        let words = "must specify a metric target type";
        errors.push(FieldError::required(at("type"), words));
    }
    if !matches!(ty, "Utilization" | "Value" | "AverageValue") {
        let words = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(at("type"), ty, words));
    }
    for field in ["value", "averageValue"] {
        if let Some(Ok(amount)) = target.get(field).map(Quantity::from_value)
            && (amount.is_negative() || amount.is_zero())
        {
            let text = amount.to_string();
            errors.push(FieldError::invalid(at(field), text, "must be positive"));
        }
    }
    if let Some(percent) = int_at(target, "averageUtilization").filter(|p| *p < 1) {
        let words = "must be greater than 0";
        errors.push(FieldError::invalid(
            at("averageUtilization"),
            percent,
            words,
        ));
    }
}

fn rules(rules: &Value, path: &str, errors: &mut Errors) {
    let at = |field: &str| format!("{path}.{field}");
    if let Some(window) = int_at(rules, "stabilizationWindowSeconds") {
        let path = at("stabilizationWindowSeconds");
        if window < 0 {
            let words = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(path, window, words));
        } else if window > WINDOW_MAX {
            let words = format!("must be less than or equal to {WINDOW_MAX}");
            errors.push(FieldError::invalid(path, window, words));
        }
    }
    let known = ["Disabled", "Max", "Min"];
    if let Some(choice) = rules.get("selectPolicy").and_then(Value::as_str)
        && !known.contains(&choice)
    {
        errors.push(FieldError::not_supported(
            at("selectPolicy"),
            choice,
            &known,
        ));
    }
    let policies = items(rules, "policies");
    if policies.is_empty() {
        let words = "must specify at least one Policy";
        errors.push(FieldError::required(at("policies"), words));
    }
    for (index, policy) in policies.iter().enumerate() {
        let at = |field: &str| format!("{path}.policies[{index}].{field}");
        let ty = str_at(policy, "type");
        if !matches!(ty, "Percent" | "Pods") {
            errors.push(FieldError::not_supported(
                at("type"),
                ty,
                &["Percent", "Pods"],
            ));
        }
        for field in ["value", "periodSeconds"] {
            let number = int_at(policy, field).unwrap_or(0);
            if number <= 0 {
                let words = "must be greater than zero";
                errors.push(FieldError::invalid(at(field), number, words));
            }
        }
        let period = int_at(policy, "periodSeconds").unwrap_or(0);
        if period > PERIOD_MAX {
            let words = format!("must be less than or equal to {PERIOD_MAX}");
            errors.push(FieldError::invalid(at("periodSeconds"), period, words));
        }
    }
}
