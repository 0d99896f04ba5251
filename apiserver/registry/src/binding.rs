//! The `binding` subresource of pods: a scheduler's decision becomes part of
//! the pod (upstream: `pkg/registry/core/pod/storage`).

use jiff::Timestamp;
use meta::value::{at, object_mut, str_at};
use meta::{FieldError, GroupVersionKind, Status};
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::validate::items;

/// Binds a pod to the node a Binding names; returns the pod to store.
pub fn bind(kind: &Kind, pod: &Value, binding: &Value, now: Timestamp) -> Result<Value, Status> {
    let name = meta::value::name(pod);
    let conflict = |why: String| Err(Status::conflict(&kind.group_resource(), name, &why));
    let node = str_at(binding, "target.name");
    let mut errors = Vec::new();
    let target = str_at(binding, "target.kind");
    if !matches!(target, "" | "Node") {
        errors.push(FieldError::not_supported(
            "target.kind",
            target,
            &["Node", "<empty>"],
        ));
    }
    if node.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if !errors.is_empty() {
        let gvk = GroupVersionKind::new("", "v1", "Binding");
        return Err(Status::invalid(&gvk, name, &errors));
    }
    let uid = meta::value::uid(binding);
    if !uid.is_empty() && uid != meta::value::uid(pod) {
        return Err(crate::rest::uid_conflict(kind, pod, uid));
    }
    if at(pod, "metadata.deletionTimestamp").is_some() {
        return conflict(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    let bound = str_at(pod, "spec.nodeName");
    if !bound.is_empty() {
        return conflict(format!("pod {name} is already assigned to node {bound:?}"));
    }
    if !items(pod, "spec.schedulingGates").is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut result = pod.clone();
    object_mut(&mut result, "spec").insert("nodeName".to_owned(), Value::from(node));
    let annotations = at(binding, "metadata.annotations").and_then(Value::as_object);
    if let Some(annotations) = annotations.filter(|a| !a.is_empty()) {
        object_mut(&mut result, "metadata");
        let kept = object_mut(&mut result["metadata"], "annotations");
        kept.extend(annotations.iter().map(|(k, v)| (k.clone(), v.clone())));
    }
    set_scheduled(&mut result, now);
    Ok(result)
}

fn set_scheduled(pod: &mut Value, now: Timestamp) {
    let status = object_mut(pod, "status");
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    list.retain(|c| str_at(c, "type") != "PodScheduled");
    list.push(json!({
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": meta::time::format(now),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> &'static Kind {
        crate::kinds::find("", "v1", "pods").unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn binds_once() {
        let pod = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {}});
        let binding = json!({"metadata": {"name": "a", "annotations": {"x": "y"}},
            "target": {"kind": "Node", "name": "n1"}});
        let bound = bind(pods(), &pod, &binding, now()).unwrap();
        assert_eq!(bound["spec"]["nodeName"], "n1");
        assert_eq!(bound["metadata"]["annotations"]["x"], "y");
        assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
        let again = bind(pods(), &bound, &binding, now()).unwrap_err();
        assert_eq!(again.code, 409);
        assert!(
            again
                .message
                .ends_with("pod a is already assigned to node \"n1\"")
        );
    }

    #[test]
    fn refuses_what_cannot_be_bound() {
        let binding = json!({"target": {"name": "n1"}, "metadata": {"uid": "u"}});
        for (pod, code) in [
            (json!({"metadata": {"uid": "other"}}), 409),
            (
                json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                409,
            ),
            (
                json!({"metadata": {"uid": "u"}, "spec": {"schedulingGates": [{"name": "g"}]}}),
                409,
            ),
        ] {
            assert_eq!(
                bind(pods(), &pod, &binding, now()).unwrap_err().code,
                code,
                "{pod}"
            );
        }
        let pod = json!({"metadata": {"uid": "u"}});
        for bad in [json!({}), json!({"target": {"name": "n", "kind": "Pod"}})] {
            assert_eq!(bind(pods(), &pod, &bad, now()).unwrap_err().code, 422);
        }
    }
}
