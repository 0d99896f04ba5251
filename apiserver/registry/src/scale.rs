//! The `scale` subresource: an `autoscaling/v1` Scale read from a workload or a
//! custom resource, and one written back to it.

use meta::value::{at, int_at, set_metadata, str_at};
use meta::{FieldError, Status};
use serde_json::{Map, Value, json};

use crate::kind::{Kind, put};

/// Reads the Scale of an object of a kind that has the subresource.
pub fn read_of(kind: &Kind, object: &Value) -> Result<Value, Status> {
    let Some(paths) = kind.strategy().scale() else {
        return Ok(read(object));
    };
    let Some(replicas) = int_at(object, &paths.spec_replicas) else {
        return Err(Status::internal(format!(
            "the spec replicas field {:?} does not exist",
            paths.spec_replicas
        )));
    };
    let mut status = json!({"replicas": int_at(object, &paths.status_replicas).unwrap_or(0)});
    if let Some(path) = &paths.selector {
        let selector = str_at(object, path);
        if !selector.is_empty() {
            put(&mut status, "selector", Some(Value::from(selector)));
        }
    }
    Ok(scale(object, replicas, status))
}

/// Reads the Scale of a built-in workload.
pub fn read(object: &Value) -> Value {
    let mut status = json!({"replicas": int_at(object, "status.replicas").unwrap_or(0)});
    if let Some(selector) = at(object, "spec.selector").and_then(selector_text) {
        put(&mut status, "selector", Some(Value::from(selector)));
    }
    let replicas = int_at(object, "spec.replicas").unwrap_or(0);
    scale(object, replicas, status)
}

fn scale(object: &Value, replicas: i64, status: Value) -> Value {
    let mut metadata = Map::new();
    for name in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object.get("metadata").and_then(|m| m.get(name)) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": status,
    })
}

/// Returns a selector as text: a selector object, or the plain map of labels
/// that the oldest workload has.
fn selector_text(selector: &Value) -> Option<String> {
    let map = selector.as_object()?;
    if !map.is_empty() && map.values().all(Value::is_string) {
        return Some(crate::print::labels(Some(selector)));
    }
    let selector = meta::LabelSelector::from_value(selector).ok()?;
    Some(selector.to_string())
}

/// Writes a Scale into an object and returns the object to store. The Scale's
/// uid and resource version become the object's, to be checked as in any
/// update.
pub fn write(kind: &Kind, object: &Value, scale: &Value) -> Result<Value, Status> {
    let name = meta::value::name(object);
    let given = meta::value::name(scale);
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let replicas = int_at(scale, "spec.replicas").unwrap_or(0);
    if replicas < 0 {
        let error = FieldError::invalid(
            "spec.replicas",
            replicas,
            "must be greater than or equal to 0",
        );
        let gvk = meta::GroupVersionKind::new("autoscaling", "v1", "Scale");
        return Err(Status::invalid(&gvk, name, &[error]));
    }
    let uid = meta::value::uid(scale);
    if !uid.is_empty() && uid != meta::value::uid(object) {
        return Err(crate::rest::uid_conflict(kind, object, uid));
    }
    let mut result = object.clone();
    match kind.strategy().scale() {
        Some(paths) => set_at(&mut result, &paths.spec_replicas, Value::from(replicas)),
        None => {
            if let Some(spec) = result.get_mut("spec") {
                put(spec, "replicas", Some(Value::from(replicas)));
            }
        }
    }
    let version = str_at(scale, "metadata.resourceVersion");
    if !version.is_empty() {
        set_metadata(&mut result, "resourceVersion", version);
    }
    Ok(result)
}

/// Sets what is at a path of members, making those on the way.
fn set_at(object: &mut Value, path: &str, to: Value) {
    match path.split_once('.') {
        None => put(object, path, Some(to)),
        Some((first, rest)) => {
            meta::value::object_mut(object, first);
            if let Some(inner) = object.get_mut(first) {
                set_at(inner, rest, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({"metadata": {"name": "web", "namespace": "a", "uid": "u", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"replicas": 2}})
    }

    #[test]
    fn reads_and_writes_replicas() {
        let kind = crate::kinds::find("apps", "v1", "deployments").unwrap();
        let mut scale = read(&deployment());
        assert_eq!(
            scale["status"],
            json!({"replicas": 2, "selector": "app=web"})
        );
        assert_eq!(
            scale["metadata"],
            json!({"name": "web", "namespace": "a", "uid": "u"})
        );
        scale["spec"]["replicas"] = json!(7);
        scale["metadata"]["resourceVersion"] = json!("5");
        let written = write(kind, &deployment(), &scale).unwrap();
        assert_eq!(written["spec"]["replicas"], 7);
        assert_eq!(written["metadata"]["resourceVersion"], "5");
        scale["spec"]["replicas"] = json!(-1);
        let error = write(kind, &deployment(), &scale).unwrap_err();
        assert_eq!(error.code, 422);
        assert_eq!(
            error.message,
            "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        let oldest = json!({"spec": {"selector": {"app": "web", "tier": "a"}}});
        assert_eq!(read(&oldest)["status"]["selector"], "app=web,tier=a");
        let other = json!({"metadata": {"uid": "v"}, "spec": {"replicas": 1}});
        assert_eq!(write(kind, &deployment(), &other).unwrap_err().code, 409);
    }
}
