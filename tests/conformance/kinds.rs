//! What every kind must do: be in discovery, and be made, read, listed, watched,
//! changed and deleted, one by one and together.

use serde_json::{Value, json};

use crate::api::{Api, MERGE, Watch, names, version};
use crate::harness::until;

/// A kind under test.
pub(crate) struct Subject {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    /// The rest of a small valid object.
    pub(crate) body: Value,
    /// A status to give it through its subresource, if it has one.
    pub(crate) status: Option<Value>,
}

impl Subject {
    pub(crate) fn new(
        group_version: &'static str,
        resource: &'static str,
        kind: &'static str,
    ) -> Self {
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        Self {
            group,
            version,
            resource,
            kind,
            namespaced: false,
            body: json!({}),
            status: None,
        }
    }

    pub(crate) fn namespaced(mut self) -> Self {
        self.namespaced = true;
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = body;
        self
    }

    pub(crate) fn status(mut self, status: Value) -> Self {
        self.status = Some(status);
        self
    }

    fn group_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    fn root(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// The path of the collection, in a namespace if it has one.
    pub(crate) fn path(&self, namespace: &str) -> String {
        if self.namespaced {
            format!("{}/namespaces/{namespace}/{}", self.root(), self.resource)
        } else {
            format!("{}/{}", self.root(), self.resource)
        }
    }

    pub(crate) fn object(&self, name: &str, labels: &Value) -> Value {
        let mut object = self.body.clone();
        object["apiVersion"] = json!(self.group_version());
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": name, "labels": labels});
        object
    }
}

/// Checks that the discovery documents name a kind and what may be done to it.
pub(crate) fn discovered(api: &Api, subject: &Subject) {
    if !subject.group.is_empty() {
        let groups = api.get("/apis").ok();
        let group = groups["groups"]
            .as_array()
            .unwrap()
            .iter()
            .find(|g| g["name"] == subject.group)
            .unwrap_or_else(|| panic!("no group {}", subject.group));
        let version = json!(subject.group_version());
        let listed = |group: &Value| {
            let versions = group["versions"].as_array().unwrap();
            versions.iter().any(|v| v["groupVersion"] == version)
        };
        assert!(listed(group), "{group}");
        let alone = api.get(&format!("/apis/{}", subject.group)).ok();
        assert!(listed(&alone), "{alone}");
    }
    let resources = api.get(&subject.root()).ok();
    let find = |name: &str| {
        let all = resources["resources"].as_array().unwrap();
        all.iter()
            .find(|r| r["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {}", subject.root()))
    };
    let resource = find(subject.resource);
    assert_eq!(resource["kind"], subject.kind);
    assert_eq!(resource["namespaced"], subject.namespaced);
    for verb in [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ] {
        let verbs = resource["verbs"].as_array().unwrap();
        assert!(verbs.contains(&json!(verb)), "{verb}: {resource}");
    }
    if subject.status.is_some() {
        let status = find(&format!("{}/status", subject.resource));
        for verb in ["get", "patch", "update"] {
            let verbs = status["verbs"].as_array().unwrap();
            assert!(verbs.contains(&json!(verb)), "{verb}: {status}");
        }
    }
}

/// Walks a kind through everything: discovery, then its whole life.
pub(crate) fn operations(api: &Api, subject: &Subject) {
    discovered(api, subject);
    lifecycle(api, subject);
}

/// Walks objects of a kind through their life, with a watch open all the while.
pub(crate) fn lifecycle(api: &Api, subject: &Subject) {
    let namespace = if subject.namespaced {
        api.namespace()
    } else {
        String::new()
    };
    let path = subject.path(&namespace);
    let label = api.name("life");
    let labels = json!({"e2e-life": label});
    let selected = format!("{path}?labelSelector=e2e-life%3D{label}");
    let [first, second, third] = ["a", "b", "c"].map(|n| format!("{n}-{label}"));

    let made = api.post(&path, &subject.object(&first, &labels)).ok();
    assert!(made["metadata"]["uid"].is_string(), "{made}");
    assert!(made["metadata"]["creationTimestamp"].is_string(), "{made}");
    let again = api.post(&path, &subject.object(&first, &labels));
    assert!(again.refused(409).contains("already exists"));
    let got = api.get(&format!("{path}/{first}")).ok();
    assert_eq!(got["metadata"]["uid"], made["metadata"]["uid"]);
    for name in [&second, &third] {
        api.post(&path, &subject.object(name, &labels)).ok();
    }

    let list = api.get(&selected).ok();
    assert_eq!(list["kind"], format!("{}List", subject.kind));
    assert_eq!(names(&list), [first.as_str(), &second, &third]);
    if subject.namespaced {
        let everywhere = format!(
            "{}/{}?labelSelector=e2e-life%3D{label}",
            subject.root(),
            subject.resource
        );
        assert_eq!(names(&api.get(&everywhere).ok()).len(), 3);
    }
    let watch = api.watch(&format!("{selected}&resourceVersion={}", version(&list)));

    let one = format!("{path}/{first}");
    change(api, &one, &first, &watch);
    if let Some(status) = &subject.status {
        change_status(api, &one, status);
    }

    assert!(api.delete(&one).code < 300);
    watch.find("DELETED", &first, |_| true);
    api.get(&one).refused(404);
    assert_eq!(names(&api.get(&selected).ok()), [second.as_str(), &third]);
    assert!(api.delete(&selected).code < 300);
    watch.find("DELETED", &second, |_| true);
    watch.find("DELETED", &third, |_| true);
    assert_eq!(names(&api.get(&selected).ok()), [""; 0]);
    // A replacement has the name, and nothing else, of what was there.
    let anew = api.post(&path, &subject.object(&first, &labels)).ok();
    assert_ne!(anew["metadata"]["uid"], made["metadata"]["uid"]);
    assert!(api.delete(&selected).code < 300);
}

/// Patches an object and replaces it; the watch sees both.
fn change(api: &Api, one: &str, name: &str, watch: &Watch) {
    let patch =
        json!({"metadata": {"annotations": {"patched": "true"}, "labels": {"more": "yes"}}});
    let patched = api.patch(one, MERGE, &patch).ok();
    assert_eq!(patched["metadata"]["annotations"]["patched"], "true");
    // What others write, as a scheduler does, may come before.
    watch.find("MODIFIED", name, |o| {
        o["metadata"]["labels"]["more"] == "yes" && version(o) == version(&patched)
    });

    // Somebody else may have written meanwhile (a controller's status): read it again.
    until("an update", || {
        let mut object = api.get(one).ok();
        object["metadata"]["annotations"]["updated"] = json!("true");
        let answer = api.put(one, &object);
        match answer.code {
            409 => Err(answer.text()),
            _ => Ok(answer.ok()),
        }
    });
    watch.find("MODIFIED", name, |o| {
        o["metadata"]["annotations"]["updated"] == "true"
    });
    let read = api.get(one).ok();
    assert_eq!(read["metadata"]["annotations"]["patched"], "true");
    assert_eq!(read["metadata"]["annotations"]["updated"], "true");
}

/// Patches a status and replaces it; the rest of the object stays as it was.
fn change_status(api: &Api, one: &str, status: &Value) {
    let path = format!("{one}/status");
    let before = api.get(&path).ok();
    let patch = json!({"metadata": {"annotations": {"patchedstatus": "true"}}, "status": status});
    let patched = api.patch(&path, MERGE, &patch).ok();
    assert!(contains(&patched["status"], status), "{patched}");
    assert_eq!(patched["metadata"]["annotations"]["patchedstatus"], "true");
    assert_eq!(patched["spec"], before["spec"]);
    let updated = until("an update of the status", || {
        let mut object = api.get(&path).ok();
        object["metadata"]["annotations"]["updatedstatus"] = json!("true");
        object["spec"] = json!({});
        object["status"] = status.clone();
        let answer = api.put(&path, &object);
        match answer.code {
            409 => Err(answer.text()),
            _ => Ok(answer.ok()),
        }
    });
    assert_eq!(updated["metadata"]["annotations"]["updatedstatus"], "true");
    assert!(contains(&updated["status"], status), "{updated}");
    assert_eq!(
        updated["spec"], before["spec"],
        "the spec is not the status's"
    );
    let read = api.get(one).ok();
    assert!(contains(&read["status"], status), "{read}");
}

/// Says whether an object has at least these fields; of a list, these items in order.
pub(crate) fn contains(object: &Value, fields: &Value) -> bool {
    match (object, fields) {
        (Value::Object(have), Value::Object(want)) => want
            .iter()
            .all(|(key, value)| have.get(key).is_some_and(|h| contains(h, value))),
        (Value::Array(have), Value::Array(want)) => {
            have.len() >= want.len() && have.iter().zip(want).all(|(h, w)| contains(h, w))
        }
        _ => object == fields,
    }
}
