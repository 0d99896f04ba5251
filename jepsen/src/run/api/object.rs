//! What is kept of objects, and where they are found.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use checkers::history::{Content, Read, Scope, Seen, TOKEN, split_key};
use serde_json::{Value, json};

/// The resources clients work on.
pub(super) const CONFIG_MAPS: &str = "configmaps";
/// A resource of a client's own, as the store's keys name it: with its group.
pub(super) const THINGS: &str = "jepsen.example.com/things";
pub(super) const PODS: &str = "pods";
pub(super) const REPLICA_SETS: &str = "replicasets";
pub(super) const DEPLOYMENTS: &str = "deployments";

/// Keeps of a value in the store what is kept of the object an API server shows.
pub(super) fn digest(key: &[u8], value: Bytes) -> Bytes {
    let key = String::from_utf8_lossy(key);
    let Some((resource, _)) = split_key(&key) else {
        return value;
    };
    // What is no object, such as who has which address, has nothing to keep.
    let object = serde_json::from_slice(&value).unwrap_or(Value::Null);
    serde_json::to_vec(&content(resource, &object)).map_or(value, Bytes::from)
}

/// Keeps of an object what is compared.
fn content(resource: &str, object: &Value) -> Content {
    let meta = &object["metadata"];
    let mut data = BTreeMap::new();
    let mut keep = |name: &str, value: &Value| {
        let text: Option<Arc<str>> = match value {
            Value::String(text) => Some(text.as_str().into()),
            Value::Null => None,
            other => Some(other.to_string().into()),
        };
        data.extend(text.map(|text| (Arc::from(name), text)));
    };
    let owner = meta["ownerReferences"].as_array().into_iter().flatten();
    let mut owner = owner.filter(|o| o["controller"] == true);
    match resource {
        CONFIG_MAPS | THINGS => {
            let all = object["data"].as_object().into_iter().flatten();
            all.for_each(|(name, value)| keep(name, value));
        }
        PODS => {
            keep("node", &object["spec"]["nodeName"]);
            keep("terminating", &meta["deletionTimestamp"]);
            owner
                .next()
                .into_iter()
                .for_each(|o| keep("owner", &o["uid"]));
        }
        REPLICA_SETS => {
            keep("replicas", &object["spec"]["replicas"]);
            owner
                .next()
                .into_iter()
                .for_each(|o| keep("owner", &o["uid"]));
        }
        DEPLOYMENTS => {
            keep("replicas", &object["spec"]["replicas"]);
            keep(TOKEN, &meta["annotations"][TOKEN]);
        }
        _ => {}
    }
    let labels = meta["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into())));
    Content {
        uid: meta["uid"].as_str().unwrap_or_default().into(),
        labels: labels.collect(),
        data,
    }
}

/// Reads the version of an object or a list.
pub(super) fn version(object: &Value) -> i64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the definition of the resource of a client's own.
pub(super) fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string"}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.jepsen.example.com"},
        "spec": {
            "group": "jepsen.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Reads an object.
pub(super) fn seen(resource: &str, object: &Value) -> Seen {
    let meta = &object["metadata"];
    let part = |name: &str| meta[name].as_str().unwrap_or_default();
    Seen {
        key: format!("{}/{}", part("namespace"), part("name")).into(),
        rv: version(object),
        content: content(resource, object),
    }
}

/// Reads the items of a list.
pub(super) fn items(resource: &str, list: &Value) -> Vec<Seen> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| seen(resource, item)).collect()
}

/// Returns the path of a resource, in a namespace or over all.
pub(super) fn path(resource: &str, namespace: Option<&str>) -> String {
    let (group, resource) = match resource {
        DEPLOYMENTS | REPLICA_SETS => ("/apis/apps/v1", resource),
        THINGS => ("/apis/jepsen.example.com/v1", "things"),
        _ => ("/api/v1", resource),
    };
    match namespace {
        Some(namespace) => format!("{group}/namespaces/{namespace}/{resource}"),
        None => format!("{group}/{resource}"),
    }
}

/// Returns the path of an object.
pub(super) fn path_of(resource: &str, key: &str) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or((key, ""));
    format!("{}/{name}", path(resource, Some(namespace)))
}

/// Returns the path of a scope, with its selector, ready for more.
pub(super) fn path_of_scope(scope: &Scope) -> String {
    let labels: Vec<String> = scope
        .labels
        .iter()
        .map(|(name, value)| format!("{name}%3D{value}"))
        .collect();
    let path = path(&scope.resource, scope.namespace.as_deref());
    match labels.is_empty() {
        true => format!("{path}?"),
        false => format!("{path}?labelSelector={}&", labels.join("%2C")),
    }
}

/// Returns the parameters that say how old an answer may be.
pub(super) fn age(read: Read, list: bool) -> String {
    match (read, list) {
        (Read::Fresh, _) => String::new(),
        (Read::Any, _) => "resourceVersion=0".to_owned(),
        (Read::AtLeast(rv) | Read::Exact(rv), false) => format!("resourceVersion={rv}"),
        (Read::AtLeast(rv), true) => {
            format!("resourceVersion={rv}&resourceVersionMatch=NotOlderThan")
        }
        (Read::Exact(rv), true) => format!("resourceVersion={rv}&resourceVersionMatch=Exact"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_and_an_api_server_show_the_same() {
        let mut object = json!({
            "metadata": {"namespace": "a", "name": "x", "uid": "u", "labels": {"g": "r"}},
            "data": {"by": "t1", "n": "3"},
        });
        let stored = Bytes::from(object.to_string());
        let kept = digest(b"/registry/configmaps/a/x", stored);
        object["metadata"]["resourceVersion"] = "7".into();
        let seen = seen(CONFIG_MAPS, &object);
        assert_eq!(
            serde_json::from_slice::<Content>(&kept).unwrap(),
            seen.content
        );
        assert_eq!(
            (&*seen.key, seen.rv, seen.content.number("n")),
            ("a/x", 7, Some(3))
        );
        let stored = Bytes::from(json!({"data": {"by": "t2"}}).to_string());
        let kept = digest(b"/registry/jepsen.example.com/things/a/x", stored);
        let kept: Content = serde_json::from_slice(&kept).unwrap();
        assert_eq!(kept.says("by"), Some("t2"));
        assert_eq!(
            path_of(THINGS, "a/x"),
            "/apis/jepsen.example.com/v1/namespaces/a/things/x"
        );
        assert_eq!(
            digest(b"compact_rev_key", Bytes::from("9")),
            Bytes::from("9")
        );
    }

    #[test]
    fn pods_keep_who_owns_them_and_where_they_are() {
        let pod = json!({
            "metadata": {"ownerReferences": [{"uid": "o"}, {"uid": "r", "controller": true}]},
            "spec": {"nodeName": "n1"},
        });
        let kept = content(PODS, &pod);
        assert_eq!(
            (kept.says("owner"), kept.says("node")),
            (Some("r"), Some("n1"))
        );
    }
}
