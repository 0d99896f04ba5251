//! What Deployment and ReplicaSet share: a count, a selector, a template.

use std::collections::BTreeMap;

use meta::value::{at, object_mut};
use meta::{FieldError, LabelSelector};
use serde_json::{Map, Value, json};

use crate::kind::Subresource;
use crate::podspec;
use crate::validate::{Errors, not_negative, same, selector};

/// The `scale` subresource of a workload.
pub(super) const SCALE: Subresource = Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: crate::kind::STATUS_VERBS,
};

/// Fills in the template's defaults and returns the specification.
pub(super) fn default_template(object: &mut Value) -> &mut Map<String, Value> {
    let spec = object_mut(object, "spec");
    if let Some(pod) = spec
        .get_mut("template")
        .and_then(|t| t.get_mut("spec"))
        .and_then(Value::as_object_mut)
    {
        podspec::defaults::spec(pod);
    }
    spec
}

/// Resets what a controller writes, on create.
pub(super) fn reset_status(object: &mut Value) {
    crate::kind::put(object, "status", Some(json!({})));
}

/// Checks the count, the selector, the template, and that they fit together.
pub(super) fn validate(object: &Value, what: &str, errors: &mut Errors) {
    not_negative(object, "spec.replicas", errors);
    not_negative(object, "spec.minReadySeconds", errors);
    let chosen = at(object, "spec.selector");
    let template = at(object, "spec.template");
    match chosen {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(value) => {
            selector(Some(value), "spec.selector", errors);
            if is_empty(value) {
                errors.push(FieldError::invalid(
                    "spec.selector",
                    value.clone(),
                    format!("empty selector is invalid for {what}"),
                ));
            }
        }
    }
    match template {
        None => errors.push(FieldError::required("spec.template", "")),
        Some(template) => {
            let labels = template.get("metadata").and_then(|m| m.get("labels"));
            if let Some(Ok(chosen)) = chosen.map(LabelSelector::from_value)
                && !chosen.is_empty()
                && !chosen.matches(&label_map(labels))
            {
                errors.push(FieldError::invalid(
                    "spec.template.metadata.labels",
                    labels.cloned().unwrap_or_else(|| json!({})),
                    "`selector` does not match template `labels`",
                ));
            }
            podspec::validate::template(Some(template), "spec.template", errors);
            let policy = meta::value::str_at(template, "spec.restartPolicy");
            if policy != "Always" && !policy.is_empty() {
                errors.push(FieldError::not_supported(
                    "spec.template.spec.restartPolicy",
                    policy,
                    &["Always"],
                ));
            }
            if at(template, "spec.activeDeadlineSeconds").is_some() {
                errors.push(FieldError::forbidden(
                    "spec.template.spec.activeDeadlineSeconds",
                    "activeDeadlineSeconds in ReplicaSet is not Supported",
                ));
            }
        }
    }
}

/// Returns the warnings about a template that is new or changed.
pub(super) fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let template = |object| at(object, "spec.template.spec");
    match template(new) {
        Some(spec) if !old.is_some_and(|old| same(Some(spec), template(old))) => {
            podspec::warnings::spec(spec, "spec.template.spec")
        }
        _ => Vec::new(),
    }
}

fn is_empty(selector: &Value) -> bool {
    let count = |field: &str| crate::print::count(selector, field);
    count("matchLabels") + count("matchExpressions") == 0
}

fn label_map(labels: Option<&Value>) -> BTreeMap<String, String> {
    labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
        .collect()
}
