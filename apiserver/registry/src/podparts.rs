//! The parts of a pod that change through doors of their own: the ephemeral
//! containers, and what containers may use. Everything else of what is sent is
//! ignored.

use meta::quantity::Quantity;
use meta::value::{at, set_metadata, str_at};
use meta::{FieldError, Status};
use serde_json::{Map, Value};

use crate::kind::{Kind, put};
use crate::podspec;
use crate::validate::{Errors, items, same};

/// The annotation of pods that a node made of a file, and only shows.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Takes part of a pod from what was sent, in front of what it replaces.
pub type Part = fn(&Kind, &Value, &Value) -> Result<Value, Status>;

/// Returns the pod with the ephemeral containers of `new`: more than it had, and
/// those it had as they were.
pub fn ephemeral_containers(kind: &Kind, new: &Value, old: &Value) -> Result<Value, Status> {
    let mut result = keep(new, old);
    let given = at(new, "spec.ephemeralContainers").cloned();
    if let Some(spec) = result.get_mut("spec") {
        put(spec, "ephemeralContainers", given);
    }
    let mut errors = Errors::new();
    if let Some(spec) = result.get("spec") {
        podspec::ephemeral::validate(spec, "spec", &mut errors);
    }
    if is_mirror(old) {
        let words = "static pods do not support ephemeral containers";
        errors.push(FieldError::forbidden("", words));
    }
    let path = "spec.ephemeralContainers";
    for container in items(old, path) {
        let name = str_at(container, "name");
        let mut is = items(&result, path).iter();
        let words = match is.find(|c| str_at(c, "name") == name) {
            None => "removed",
            Some(found) if !same(Some(found), Some(container)) => "changed",
            Some(_) => continue,
        };
        let words = format!("existing ephemeral containers {name:?} may not be {words}\n");
        errors.push(FieldError::forbidden(path, words));
    }
    finish(kind, result, &errors)
}

/// Returns the pod with what `new` lets its containers use.
pub fn resize(kind: &Kind, new: &Value, old: &Value) -> Result<Value, Status> {
    let mut result = keep(new, old);
    let mut errors = Errors::new();
    if is_mirror(old) {
        errors.push(FieldError::forbidden(
            "spec",
            "static pods cannot be resized",
        ));
    }
    for list in ["containers", "initContainers"] {
        let (given, had) = (
            items(new, &format!("spec.{list}")),
            items(old, &format!("spec.{list}")),
        );
        let names = |list: &[Value]| -> Vec<String> {
            list.iter().map(|c| str_at(c, "name").to_owned()).collect()
        };
        if names(given) != names(had) {
            let words = match list {
                "containers" => "containers may not be renamed or reordered on resize",
                _ => "initContainers may not be renamed or reordered on resize",
            };
            errors.push(FieldError::forbidden(format!("spec.{list}"), words));
            continue;
        }
        let spec = result.get_mut("spec").and_then(|s| s.get_mut(list));
        let kept = spec.and_then(Value::as_array_mut).into_iter().flatten();
        for (index, (container, sent)) in kept.zip(given).enumerate() {
            let path = format!("spec.{list}[{index}].resources");
            resize_container(list, container, sent, &path, &mut errors);
        }
    }
    let class = |pod: &Value| podspec::qos::class(pod.get("spec").unwrap_or(&Value::Null));
    if class(&result) != class(old) {
        errors.push(FieldError::invalid(
            "spec",
            class(&result),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    finish(kind, result, &errors)
}

fn resize_container(list: &str, kept: &mut Value, sent: &Value, path: &str, errors: &mut Errors) {
    let had = kept.get("resources").cloned().unwrap_or_default();
    let wanted = sent.get("resources").cloned().unwrap_or_default();
    if same(Some(&had), Some(&wanted)) {
        return;
    }
    if list == "initContainers" && str_at(kept, "restartPolicy") != "Always" {
        errors.push(FieldError::forbidden(
            path,
            "resources for non-sidecar init containers are immutable",
        ));
        return;
    }
    let empty = Map::new();
    for field in ["requests", "limits"] {
        let of = |r: &'_ Value| r.get(field).and_then(Value::as_object).cloned();
        let (was, is) = (of(&had), of(&wanted));
        let (was, is) = (
            was.as_ref().unwrap_or(&empty),
            is.as_ref().unwrap_or(&empty),
        );
        if was
            .keys()
            .any(|name| resizable(name) && !is.contains_key(name))
        {
            let words = format!("resource {field} cannot be removed");
            errors.push(FieldError::forbidden(format!("{path}.{field}"), words));
        }
        let differs = |name: &String| {
            let read = |map: &Map<String, Value>| Quantity::from_value(map.get(name)?).ok();
            read(was) != read(is)
        };
        if was
            .keys()
            .chain(is.keys())
            .any(|name| !resizable(name) && differs(name))
        {
            let words = "only cpu and memory resources are mutable";
            errors.push(FieldError::forbidden("spec", words));
        }
    }
    put(kept, "resources", Some(wanted));
}

fn resizable(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

fn is_mirror(pod: &Value) -> bool {
    at(pod, "metadata.annotations").is_some_and(|a| a.get(MIRROR).is_some())
}

/// Returns the pod as it was, with the version that was sent, which may be none.
fn keep(new: &Value, old: &Value) -> Value {
    let mut result = old.clone();
    let version = str_at(new, "metadata.resourceVersion");
    let version = if version.is_empty() {
        Value::Null
    } else {
        version.into()
    };
    set_metadata(&mut result, "resourceVersion", version);
    result
}

fn finish(kind: &Kind, pod: Value, errors: &[FieldError]) -> Result<Value, Status> {
    match errors.is_empty() {
        true => Ok(pod),
        false => Err(Status::invalid(
            &kind.gvk(),
            meta::value::name(&pod),
            errors,
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> &'static Kind {
        crate::kinds::find("", "v1", "pods").unwrap()
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "p", "resourceVersion": "5"}, "spec": {"containers": [
            {"name": "a", "image": "i", "resources": {
                "requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "200m"}}}]}})
    }

    #[test]
    fn ephemeral_containers_are_only_added() {
        let mut new = pod();
        new["spec"]["ephemeralContainers"] =
            json!([{"name": "d", "image": "busybox", "targetContainerName": "a", "resources": {}}]);
        new["metadata"]["labels"] = json!({"ignored": "yes"});
        let made = ephemeral_containers(pods(), &new, &pod()).unwrap();
        assert_eq!(made["spec"]["ephemeralContainers"][0]["name"], "d");
        assert_eq!(
            made["metadata"],
            json!({"name": "p", "resourceVersion": "5"})
        );
        let refused =
            |new: &Value, old: &Value| ephemeral_containers(pods(), new, old).unwrap_err().message;
        let mut other = made.clone();
        other["spec"]["ephemeralContainers"][0]["image"] = json!("alpine");
        assert!(refused(&other, &made).contains(
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be changed"
        ));
        assert!(refused(&pod(), &made).contains("\"d\" may not be removed"));
        new["spec"]["ephemeralContainers"] = json!([{"name": "a", "image": "x",
            "targetContainerName": "none", "ports": [{"containerPort": 1}]}]);
        let message = refused(&new, &pod());
        for words in [
            "spec.ephemeralContainers[0].name: Duplicate value: \"a\"",
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"none\"",
            "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
        ] {
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn only_cpu_and_memory_are_resized() {
        let mut new = pod();
        new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("150m");
        new["spec"]["containers"][0]["image"] = json!("ignored");
        let made = resize(pods(), &new, &pod()).unwrap();
        let container = &made["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"]["cpu"], "150m");
        assert_eq!(container["image"], "i");
        let refused = |resources: Value| {
            let mut new = pod();
            new["spec"]["containers"][0]["resources"] = resources;
            resize(pods(), &new, &pod()).unwrap_err().message
        };
        for (resources, words) in [
            (
                json!({"requests": {"cpu": "1", "memory": "1Gi", "x.io/y": "1"}, "limits": {"cpu": "2"}}),
                "spec: Forbidden: only cpu and memory resources are mutable",
            ),
            (
                json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            ),
            (
                json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
                "spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing",
            ),
        ] {
            let message = refused(resources);
            assert!(message.contains(words), "{message}");
        }
        let mut renamed = pod();
        renamed["spec"]["containers"][0]["name"] = json!("b");
        assert!(
            resize(pods(), &renamed, &pod())
                .unwrap_err()
                .message
                .contains("renamed")
        );
    }
}
