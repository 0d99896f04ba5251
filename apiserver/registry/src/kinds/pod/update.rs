//! What may change in a pod that exists: very little (upstream:
//! `ValidatePodUpdate`).

use meta::FieldError;
use meta::value::{at, int_at};
use serde_json::Value;

use crate::kind::put;
use crate::validate::{Errors, items, same};

const WORDS: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks a change of a pod's specification.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut Errors) {
    let null = Value::Null;
    let (new_spec, old_spec) = (
        new.get("spec").unwrap_or(&null),
        old.get("spec").unwrap_or(&null),
    );
    if same(Some(new_spec), Some(old_spec)) {
        return;
    }
    for list in ["containers", "initContainers"] {
        if items(new_spec, list).len() != items(old_spec, list).len() {
            errors.push(FieldError::forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            ));
            return;
        }
    }
    deadline(new, old, errors);
    let gated = !items(old_spec, "schedulingGates").is_empty();
    gates(new_spec, old_spec, errors);
    // Undo every allowed change; what still differs is forbidden.
    let mut undone = new_spec.clone();
    for list in ["containers", "initContainers"] {
        let Some(Value::Array(containers)) = undone.get_mut(list) else {
            continue;
        };
        for (container, was) in containers.iter_mut().zip(items(old_spec, list)) {
            put(container, "image", was.get("image").cloned());
        }
    }
    let mut undo = |field: &str| put(&mut undone, field, old_spec.get(field).cloned());
    undo("activeDeadlineSeconds");
    undo("schedulingGates");
    if gated {
        undo("nodeSelector");
        undo("affinity");
    }
    let (is, was) = (
        items(new_spec, "tolerations"),
        items(old_spec, "tolerations"),
    );
    if was
        .iter()
        .all(|t| is.iter().any(|n| same(Some(n), Some(t))))
    {
        undo("tolerations");
    }
    let grace = |spec| int_at(spec, "terminationGracePeriodSeconds").unwrap_or(0);
    if grace(old_spec) < 0 && grace(new_spec) == 1 {
        undo("terminationGracePeriodSeconds");
    }
    if !same(Some(&undone), Some(old_spec)) {
        errors.push(FieldError::forbidden("spec", WORDS));
    }
}

fn deadline(new: &Value, old: &Value, errors: &mut Errors) {
    let path = "spec.activeDeadlineSeconds";
    match (int_at(new, path), int_at(old, path)) {
        (Some(is), Some(was)) if is > was => errors.push(FieldError::invalid(
            path,
            is,
            "must be less than or equal to previous value",
        )),
        (None, Some(_)) => errors.push(FieldError::invalid(
            path,
            at(new, path).cloned().unwrap_or_default(),
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
}

fn gates(new: &Value, old: &Value, errors: &mut Errors) {
    let was = items(old, "schedulingGates");
    for gate in items(new, "schedulingGates") {
        if !was.contains(gate) {
            errors.push(FieldError::forbidden(
                "spec.schedulingGates",
                format!(
                    "only deletion is allowed, but found new scheduling gate '{}'",
                    meta::value::str_at(gate, "name")
                ),
            ));
        }
    }
}
