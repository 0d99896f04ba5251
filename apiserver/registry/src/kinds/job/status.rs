//! What a job's controller may say of it (upstream: `validateJobStatus`), and
//! how that is printed.

use std::collections::BTreeSet;

use meta::FieldError;
use meta::value::{at, int_at, str_at};
use serde_json::Value;

use super::indexes;
use crate::validate::{Errors, IMMUTABLE, items, natural};

fn is(object: &Value, condition: &str) -> bool {
    items(object, "status.conditions")
        .iter()
        .any(|c| str_at(c, "type") == condition && str_at(c, "status") == "True")
}

/// Says how a job stands.
pub(super) fn printed(object: &Value) -> &'static str {
    let deleted = at(object, "metadata.deletionTimestamp").is_some();
    for (holds, word) in [
        (is(object, "Complete"), "Complete"),
        (is(object, "Failed"), "Failed"),
        (deleted, "Terminating"),
        (is(object, "Suspended"), "Suspended"),
        (is(object, "FailureTarget"), "FailureTarget"),
    ] {
        if holds {
            return word;
        }
    }
    "Running"
}

/// Checks a status by itself.
pub(super) fn validate(object: &Value, errors: &mut Errors) {
    let status = at(object, "status").unwrap_or(&Value::Null);
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        natural(status, "status", field, errors);
    }
    uncounted(status, errors);
    conditions(object, errors);
    times(object, errors);
    let count = |field: &str| int_at(status, field).unwrap_or(0);
    let ended = is(object, "Complete") || is(object, "Failed");
    for field in ["active", "terminating"] {
        if ended && count(field) > 0 {
            let words = format!("{field}>0 is invalid for finished job");
            errors.push(FieldError::invalid(
                format!("status.{field}"),
                count(field),
                words,
            ));
        }
    }
    if count("ready") > count("active") {
        let words = "cannot set more ready pods than active";
        errors.push(FieldError::invalid("status.ready", count("ready"), words));
    }
    if ended && status.get("uncountedTerminatedPods").is_some_and(has_pods) {
        errors.push(FieldError::invalid(
            "status.uncountedTerminatedPods",
            status
                .get("uncountedTerminatedPods")
                .cloned()
                .unwrap_or_default(),
            "must be empty for finished job",
        ));
    }
    by_index(object, status, errors);
}

fn has_pods(uncounted: &Value) -> bool {
    let lists = ["succeeded", "failed"];
    lists.iter().any(|list| !items(uncounted, list).is_empty())
}

fn uncounted(status: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        let path = format!("uncountedTerminatedPods.{list}");
        for (index, uid) in items(status, &path).iter().enumerate() {
            let at = format!("status.{path}[{index}]");
            let uid = uid.as_str().unwrap_or_default();
            if uid.is_empty() {
                errors.push(FieldError::invalid(at, uid, "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(FieldError::duplicate(at, uid));
            }
        }
    }
}

fn conditions(object: &Value, errors: &mut Errors) {
    let holds = |condition: &str| is(object, condition);
    let policy = at(object, "spec.successPolicy").is_some();
    let mut refuse = |holds: bool, words: &str| {
        if holds {
            errors.push(FieldError::invalid_unquoted("status.conditions", words));
        }
    };
    let (complete, failed) = (holds("Complete"), holds("Failed"));
    let (target, met) = (holds("FailureTarget"), holds("SuccessCriteriaMet"));
    refuse(
        complete && failed,
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        complete && target,
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    refuse(
        failed && !target,
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        complete && !met,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    refuse(
        met && failed,
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    refuse(
        met && target,
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
    refuse(
        policy && !met && complete,
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
}

fn times(object: &Value, errors: &mut Errors) {
    let (complete, failed) = (is(object, "Complete"), is(object, "Failed"));
    let start = str_at(object, "status.startTime");
    let end = str_at(object, "status.completionTime");
    let path = "status.completionTime";
    if !end.is_empty() && !complete {
        let words = "cannot set completionTime when there is no Complete=True condition";
        errors.push(FieldError::invalid(path, end, words));
    }
    if end.is_empty() && complete {
        let words = "completionTime is required for Complete jobs";
        errors.push(FieldError::required(path, words));
    }
    if let (Some(started), Some(ended)) = (meta::time::parse(start), meta::time::parse(end))
        && ended < started
    {
        let words = "must be equal to or after `startTime`";
        errors.push(FieldError::invalid(path, end, words));
    }
    if start.is_empty() && (complete || failed) {
        let words = "startTime is required for finished job";
        errors.push(FieldError::required("status.startTime", words));
    }
}

fn by_index(object: &Value, status: &Value, errors: &mut Errors) {
    let completions = int_at(object, "spec.completions");
    let completed = str_at(status, "completedIndexes");
    let failed = status.get("failedIndexes").and_then(Value::as_str);
    let mut say = |field: &str, value: &str, words: String| {
        errors.push(FieldError::invalid(format!("status.{field}"), value, words));
    };
    let limited = at(object, "spec.backoffLimitPerIndex").is_some();
    if let Some(completions) = completions {
        for (field, set) in [
            ("completedIndexes", Some(completed)),
            ("failedIndexes", failed.filter(|_| limited)),
        ] {
            if let Some(set) = set
                && let Err(error) = indexes::count(set, completions)
            {
                say(field, set, format!("error parsing {field}: {error}"));
            }
        }
        if let Some(failed) = failed
            && let Some(index) = indexes::shared(completed, failed, completions)
        {
            let words = format!("failedIndexes and completedIndexes overlap at index: {index}");
            say("failedIndexes", failed, words);
        }
    }
    if !completed.is_empty() && str_at(object, "spec.completionMode") != "Indexed" {
        let words = "cannot set non-empty completedIndexes when non-indexed completion mode";
        say("completedIndexes", completed, words.to_owned());
    }
    if let Some(failed) = failed.filter(|_| !limited) {
        let words = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        say("failedIndexes", failed, words.to_owned());
    }
}

/// Checks a change of a status: what has ended has ended.
pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if is(old, condition) && !is(new, condition) {
            errors.push(FieldError::invalid_unquoted(
                "status.conditions",
                format!("cannot disable the terminal {condition}=True condition"),
            ));
        }
    }
    for field in ["failed", "succeeded"] {
        let path = format!("status.{field}");
        let count = |object| int_at(object, &path).unwrap_or(0);
        if count(new) < count(old) {
            let words = format!("cannot decrease the {field} counter");
            errors.push(FieldError::invalid(path.as_str(), count(new), words));
        }
    }
    let path = "status.completionTime";
    let end = |object| str_at(object, path);
    if !end(new).is_empty() && !end(old).is_empty() && end(new) != end(old) {
        errors.push(FieldError::invalid(path, end(new), IMMUTABLE));
    }
    let start = |object| str_at(object, "status.startTime");
    let suspended = at(new, "spec.suspend") == Some(&Value::Bool(true));
    if !start(old).is_empty() && start(new) != start(old) && !suspended {
        let words = "startTime cannot be removed for unsuspended job";
        errors.push(FieldError::required("status.startTime", words));
    }
    if is(old, "SuccessCriteriaMet") && !is(new, "SuccessCriteriaMet") {
        let words = "cannot disable the SuccessCriteriaMet=True condition";
        errors.push(FieldError::invalid_unquoted("status.conditions", words));
    }
}
