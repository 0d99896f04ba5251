//! What workloads share: a count, a selector, a template, a status of counts.

use std::collections::BTreeMap;

use meta::value::{at, int_at, object_mut, str_at};
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

/// Gives an object that has no labels those of its template.
pub(super) fn default_labels(object: &mut Value, labels: Value) {
    let own = at(object, "metadata.labels").and_then(Value::as_object);
    if own.is_none_or(Map::is_empty) {
        meta::value::set_metadata(object, "labels", labels);
    }
}

/// Resets what a controller writes, on create.
pub(super) fn reset_status(object: &mut Value) {
    set_status(object, json!({}));
}

/// Sets the status an object begins with.
pub(super) fn set_status(object: &mut Value, status: Value) {
    crate::kind::put(object, "status", Some(status));
}

/// Checks a status of replica counts: none below zero, and those named not
/// above `replicas`; what is available is not above `ready`, as it is called.
pub(super) fn counts(object: &Value, fields: &[&str], ready: &str, errors: &mut Errors) {
    let count = |field: &str| int_at(object, &format!("status.{field}")).unwrap_or(0);
    not_negative(object, "status.replicas", errors);
    for field in fields {
        not_negative(object, &format!("status.{field}"), errors);
    }
    not_negative(object, "status.observedGeneration", errors);
    let mut most = |field: &str, bound: i64, words: &str| {
        if count(field) > bound {
            let path = format!("status.{field}");
            errors.push(FieldError::invalid(path, count(field), words));
        }
    };
    for field in fields {
        most(
            field,
            count("replicas"),
            "cannot be greater than status.replicas",
        );
    }
    most(
        "availableReplicas",
        count("readyReplicas"),
        &format!("cannot be greater than {ready}"),
    );
}

/// Checks that the count of collisions did not go down.
pub(super) fn collisions(new: &Value, old: &Value, errors: &mut Errors) {
    let path = "status.collisionCount";
    not_negative(new, path, errors);
    let (is, was) = (int_at(new, path), int_at(old, path));
    if was.is_some() && is.unwrap_or(0) < was.unwrap_or(0) {
        let words = "cannot be decremented";
        errors.push(FieldError::invalid(path, is.unwrap_or(0), words));
    }
}

/// Checks that a template's pods are meant to run until somebody ends them.
pub(super) fn runs_for_ever(template: &Value, kind: &str, errors: &mut Errors) {
    let policy = str_at(template, "spec.restartPolicy");
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
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
}

/// Checks that a selector chooses the pods of a template.
pub(super) fn chooses(chosen: &LabelSelector, template: &Value, path: &str, errors: &mut Errors) {
    let labels = at(template, "metadata.labels");
    if !chosen.matches(&label_map(labels)) {
        errors.push(FieldError::invalid(
            format!("{path}.metadata.labels"),
            labels.cloned().unwrap_or_else(|| json!({})),
            "`selector` does not match template `labels`",
        ));
    }
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
            if let Some(Ok(chosen)) = chosen.map(LabelSelector::from_value)
                && !chosen.is_empty()
            {
                chooses(&chosen, template, "spec.template", errors);
            }
            podspec::validate::template(Some(template), "spec.template", errors);
            runs_for_ever(template, "ReplicaSet", errors);
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

/// Returns the warnings about a template, and about a new name from which pods'
/// names are made.
pub(super) fn named_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    if old.is_none() {
        found.extend(name_warning(new));
    }
    found.extend(warnings(new, old));
    found
}

/// Warns of a name that is too much for a host's.
pub(super) fn name_warning(object: &Value) -> Option<String> {
    let problems = meta::names::label_errors(meta::value::name(object));
    let named = !meta::value::name(object).is_empty();
    (named && !problems.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            problems.join(" ")
        )
    })
}

/// Tells whether a selector object requires nothing.
pub(super) fn is_empty(selector: &Value) -> bool {
    let count = |field: &str| crate::print::count(selector, field);
    count("matchLabels") + count("matchExpressions") == 0
}

/// Returns labels as selectors take them.
pub(super) fn label_map(labels: Option<&Value>) -> BTreeMap<String, String> {
    labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
        .collect()
}
