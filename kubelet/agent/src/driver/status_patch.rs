//! From a computed status to a patch, and whether one is needed at all.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::pod;
use serde_json::{Map, Value, json};

/// Builds the strategic merge patch that makes a pod's status the computed one,
/// `None` if the API server already holds it. What a merge would leave behind
/// is cleared with explicit nulls.
pub(super) fn patch(pod: &Pod, computed: &PodStatus) -> Option<Value> {
    let computed = to_map(computed);
    let held = pod::status(pod).map(to_map).unwrap_or_default();
    if holds_all(&held, &computed) {
        return None;
    }
    let mut status = computed;
    for key in ["reason", "message"] {
        if held.contains_key(key) {
            status.entry(key).or_insert(Value::Null);
        }
    }
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            // Conditions are merged by type: an old reason would survive.
            for key in ["reason", "message"] {
                condition.entry(key).or_insert(Value::Null);
            }
        }
    }
    // The UID is a precondition: a pod of the same name made since is not touched.
    Some(json!({"metadata": {"uid": pod::uid(pod)}, "status": status}))
}

/// Reports whether two patches say the same but for the times the agent chose.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    timeless(a) == timeless(b)
}

fn timeless(patch: &Value) -> Value {
    let mut patch = patch.clone();
    if let Some(status) = patch.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("startTime");
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            condition.remove("lastTransitionTime");
        }
    }
    patch
}

fn to_map(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        // A status is made of maps, lists and texts; it always serializes.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Reports whether everything computed is held already. Reasons and messages
/// that are held but not computed count as differences.
fn holds_all(held: &Map<String, Value>, computed: &Map<String, Value>) -> bool {
    let stale = |key: &str| is_set(held.get(key)) && !is_set(computed.get(key));
    !stale("reason")
        && !stale("message")
        && computed
            .iter()
            .all(|(key, value)| covers(held.get(key), value))
}

fn covers(held: Option<&Value>, wanted: &Value) -> bool {
    match (held, wanted) {
        (held, wanted) if !is_set(Some(wanted)) => !is_set(held),
        (Some(Value::Object(held)), Value::Object(wanted)) => holds_all(held, wanted),
        (Some(Value::Array(held)), Value::Array(wanted)) => {
            held.len() == wanted.len() && wanted.iter().all(|w| covers(find(held, w), w))
        }
        (Some(held), wanted) => held == wanted,
        (None, _) => false,
    }
}

/// Finds the element that is about the same thing: same `type` or `name`, or
/// the very same value.
fn find<'a>(list: &'a [Value], wanted: &Value) -> Option<&'a Value> {
    for key in ["type", "name", "ip"] {
        if let Some(id) = wanted.get(key) {
            return list.iter().find(|v| v.get(key) == Some(id));
        }
    }
    list.iter().find(|v| *v == wanted)
}

/// Tells a value from nothing: servers may drop what is empty.
fn is_set(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Object(map)) => map.values().any(|v| is_set(Some(v))),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => true,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"uid": "u"}, "status": status})).unwrap()
    }

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nothing_is_written_when_all_is_held() {
        let container = json!({"name": "a", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "lastState": {}, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        let ready = json!({"type": "Ready", "status": "True"});
        let gate = json!({"type": "Gate", "status": "True"});
        let held = json!({"phase": "Running", "qosClass": "BestEffort", "resize": "Proposed",
            "conditions": [gate, ready], "containerStatuses": [container]});
        let mut computed = held.clone();
        computed.as_object_mut().unwrap().remove("resize");
        computed["conditions"].as_array_mut().unwrap().reverse();
        assert_eq!(patch(&pod(held), &status(computed)), None);
    }

    #[test]
    fn a_change_is_written_with_the_uid_and_clears_old_reasons() {
        let held = json!({"phase": "Pending", "reason": "Old",
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]});
        let computed =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let patch = patch(&pod(held), &status(computed)).unwrap();
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["status"]["reason"], Value::Null);
        let condition = patch["status"]["conditions"][0].as_object().unwrap();
        assert_eq!(condition.get("reason"), Some(&Value::Null));
    }

    #[test]
    fn a_reason_that_went_away_is_a_difference() {
        let held = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "X"}]});
        let computed = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert!(patch(&pod(held), &status(computed)).is_some());
    }

    #[test]
    fn a_state_that_moved_on_is_a_difference() {
        let of = |state: Value| {
            json!({"containerStatuses": [{"name": "a", "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "state": state}]})
        };
        let running = of(json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}));
        let waiting = of(json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        assert!(patch(&pod(running.clone()), &status(waiting.clone())).is_some());
        assert!(patch(&pod(waiting), &status(running)).is_some());
    }
}
