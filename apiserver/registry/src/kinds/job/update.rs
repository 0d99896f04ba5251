//! What may change in a job that exists.

use meta::FieldError;
use meta::value::{at, int_at, object_mut, str_at};
use serde_json::Value;

use crate::kind::put;
use crate::validate::{Errors, immutable, same};

/// Checks a change of a job's specification.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut Errors) {
    completions(new, old, errors);
    immutable(new, old, "spec.selector", errors);
    template(new, old, errors);
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(new, old, &format!("spec.{field}"), errors);
    }
}

fn completions(new: &Value, old: &Value, errors: &mut Errors) {
    let path = "spec.completions";
    if str_at(new, "spec.completionMode") != "Indexed" {
        immutable(new, old, path, errors);
        return;
    }
    let (is, was) = (int_at(new, path), int_at(old, path));
    if let Some(is) = is
        && Some(is) != was
        && Some(is) != int_at(new, "spec.parallelism")
    {
        let words = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(path, is, words));
    }
}

/// A template is fixed, but for where its pods may run while the job is
/// suspended and has not started.
fn template(new: &Value, old: &Value, errors: &mut Errors) {
    let path = "spec.template";
    let is = at(new, path).cloned().unwrap_or_default();
    let mut was = at(old, path).cloned().unwrap_or_default();
    let suspended = at(old, "spec.suspend") == Some(&Value::Bool(true));
    if suspended && at(old, "status.startTime").is_none() {
        allow(&is, &mut was);
    }
    if !same(Some(&is), Some(&was)) {
        errors.push(FieldError::invalid(path, is, crate::validate::IMMUTABLE));
    }
}

/// Makes of the old template what it may have become.
fn allow(is: &Value, was: &mut Value) {
    let find = |field: &str| is.get("spec").and_then(|s| s.get(field)).cloned();
    object_mut(was, "spec");
    if let Some(spec) = was.get_mut("spec") {
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            put(spec, field, find(field));
        }
        let node = find("affinity").and_then(|a| a.get("nodeAffinity").cloned());
        if node.is_some() || spec.get("affinity").is_some() {
            object_mut(spec, "affinity");
            put(&mut spec["affinity"], "nodeAffinity", node);
        }
    }
    object_mut(was, "metadata");
    for field in ["annotations", "labels"] {
        let given = is.get("metadata").and_then(|m| m.get(field)).cloned();
        put(&mut was["metadata"], field, given);
    }
}
