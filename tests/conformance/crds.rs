//! Definitions of custom resources: making, listing, watching, their status, defaults.

use serde_json::{Value, json};

use crate::api::{Api, MERGE, names};
use crate::harness::until;

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition under test; it goes when this is dropped.
pub(crate) struct Definition<'a> {
    api: &'a Api,
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
}

impl<'a> Definition<'a> {
    /// Makes a definition with one version `v1` of this schema, and waits until it is
    /// served.
    pub(crate) fn new(api: &'a Api, schema: &Value) -> Self {
        Self::with_versions(api, &json!([version("v1", schema, true)]))
    }

    pub(crate) fn with_versions(api: &'a Api, versions: &Value) -> Self {
        let group = format!("{}.example.com", api.name("conformance"));
        Self::in_group(api, &group, versions)
    }

    pub(crate) fn in_group(api: &'a Api, group: &str, versions: &Value) -> Self {
        let plural = api.name("things").replace('-', "");
        let kind = plural.replacen("things", "Thing", 1);
        let definition = Self {
            api,
            group: group.to_owned(),
            plural,
            kind,
        };
        api.post(CRDS, &definition.object(versions)).ok();
        definition.await_established();
        for version in versions.as_array().unwrap() {
            if version["served"] == true {
                let path = definition.path(version["name"].as_str().unwrap(), "default");
                until(&format!("{path} to be served"), || {
                    let answer = api.get(&path);
                    match answer.code {
                        200 => Ok(()),
                        _ => Err(answer.text()),
                    }
                });
            }
        }
        definition
    }

    pub(crate) fn object(&self, versions: &Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()},
            "spec": {
                "group": self.group, "scope": "Namespaced", "versions": versions,
                "names": {"plural": self.plural, "kind": self.kind,
                    "singular": self.kind.to_lowercase()},
            },
        })
    }

    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The path of the definition itself.
    pub(crate) fn own_path(&self) -> String {
        format!("{CRDS}/{}", self.name())
    }

    pub(crate) fn path(&self, version: &str, namespace: &str) -> String {
        format!(
            "/apis/{}/{version}/namespaces/{namespace}/{}",
            self.group, self.plural
        )
    }

    /// A custom resource.
    pub(crate) fn resource(&self, version: &str, name: &str, fields: &Value) -> Value {
        let mut object = fields.clone();
        object["apiVersion"] = json!(format!("{}/{version}", self.group));
        object["kind"] = json!(self.kind);
        object["metadata"]["name"] = json!(name);
        object
    }

    /// The name its schema has in OpenAPI.
    pub(crate) fn schema_name(&self, version: &str) -> String {
        let mut parts: Vec<&str> = self.group.split('.').collect();
        parts.reverse();
        format!("{}.{version}.{}", parts.join("."), self.kind)
    }

    fn await_established(&self) {
        self.api
            .await_object(&self.own_path(), "an established definition", |object| {
                condition(object, "Established") == Some("True")
            });
    }

    /// Changes the definition with what a function makes of it, however often others
    /// write meanwhile.
    pub(crate) fn change(&self, change: impl Fn(&mut Value)) {
        until("a change of the definition", || {
            let mut object = self.api.get(&self.own_path()).ok();
            change(&mut object);
            let answer = self.api.put(&self.own_path(), &object);
            match answer.code {
                409 => Err(answer.text()),
                _ => Ok(answer.ok()),
            }
        });
    }
}

impl Drop for Definition<'_> {
    fn drop(&mut self) {
        // A test that failed already has said why.
        if !std::thread::panicking() {
            self.api.delete(&self.own_path());
        }
    }
}

/// A version of a definition.
pub(crate) fn version(name: &str, schema: &Value, storage: bool) -> Value {
    json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": schema}})
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == kind)?["status"].as_str()
}

/// A schema that keeps whatever it is given.
pub(crate) fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

pub(crate) fn crd_create_delete(api: &Api) {
    let definition = Definition::new(api, &anything());
    let path = definition.own_path();
    assert_eq!(api.get(&path).ok()["kind"], "CustomResourceDefinition");
    assert!(api.delete(&path).code < 300);
    api.await_gone(&path);
    // What it defined is served no more.
    api.await_gone(&definition.path("v1", "default"));
}

pub(crate) fn crd_status(api: &Api) {
    let definition = Definition::new(api, &anything());
    let status = format!("{}/status", definition.own_path());
    let read = api.get(&status).ok();
    assert_eq!(condition(&read, "Established"), Some("True"), "{read}");
    until("an update of the status", || {
        let mut object = api.get(&status).ok();
        let conditions = object["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "StatusUpdate", "status": "True",
            "reason": "E2E", "message": "Set by a test",
            "lastTransitionTime": "2024-05-01T10:00:00Z"}));
        let answer = api.put(&status, &object);
        match answer.code {
            409 => Err(answer.text()),
            _ => Ok(answer.ok()),
        }
    });
    let read = api.get(&definition.own_path()).ok();
    assert_eq!(condition(&read, "StatusUpdate"), Some("True"), "{read}");
    // Label and status through the same door.
    let mut conditions = read["status"]["conditions"].clone();
    let list = conditions.as_array_mut().unwrap();
    list.push(
        json!({"type": "StatusPatched", "status": "True", "reason": "E2E",
        "message": "Set by a patch", "lastTransitionTime": "2024-05-01T10:00:00Z"}),
    );
    let patch = json!({"metadata": {"annotations": {"patched": "yes"}},
        "status": {"conditions": conditions}});
    api.patch(&status, MERGE, &patch).ok();
    let read = api.get(&definition.own_path()).ok();
    assert_eq!(condition(&read, "StatusPatched"), Some("True"), "{read}");
    assert_eq!(read["metadata"]["annotations"]["patched"], "yes");
}

pub(crate) fn crd_list(api: &Api) {
    let definitions: Vec<Definition<'_>> =
        (0..10).map(|_| Definition::new(api, &anything())).collect();
    let label = api.name("listed");
    let (labelled, other) = definitions.split_at(8);
    for definition in labelled {
        let patch = json!({"metadata": {"labels": {"e2e": label}}});
        api.patch(&definition.own_path(), MERGE, &patch).ok();
    }
    let selected = format!("{CRDS}?labelSelector=e2e%3D{label}");
    let mut want: Vec<String> = labelled.iter().map(Definition::name).collect();
    want.sort();
    assert_eq!(names(&api.get(&selected).ok()), want);
    assert!(api.delete(&selected).code < 300);
    for definition in labelled {
        api.await_gone(&definition.own_path());
    }
    for definition in other {
        api.get(&definition.own_path()).ok();
    }
}

pub(crate) fn crd_watch(api: &Api) {
    let definition = Definition::new(api, &anything());
    let namespace = api.namespace();
    let path = definition.path("v1", &namespace);
    let watches = ["a", "b"].map(|name| {
        (
            name,
            api.watch(&format!("{path}?fieldSelector=metadata.name%3D{name}")),
        )
    });
    for (name, watch) in &watches {
        api.post(&path, &definition.resource("v1", name, &json!({"n": 1})))
            .ok();
        assert_eq!(watch.expect("ADDED", name)["n"], 1);
    }
    for (name, watch) in &watches {
        api.patch(&format!("{path}/{name}"), MERGE, &json!({"n": 2}))
            .ok();
        assert_eq!(watch.expect("MODIFIED", name)["n"], 2);
    }
    for (name, watch) in &watches {
        assert!(api.delete(&format!("{path}/{name}")).code < 300);
        watch.expect("DELETED", name);
    }
}

/// A schema with fields `a` and `b`, some of which have a default.
fn defaults(fields: &Value) -> Value {
    let mut properties = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    for (name, value) in fields.as_object().unwrap() {
        properties[name]["default"] = value.clone();
    }
    json!({"type": "object", "properties": properties})
}

pub(crate) fn crd_defaulting(api: &Api) {
    let definition = Definition::new(api, &defaults(&json!({})));
    let namespace = api.namespace();
    let path = definition.path("v1", &namespace);
    let make = |name: &str| {
        api.post(&path, &definition.resource("v1", name, &json!({})))
            .ok()
    };
    let first = make("first");
    assert!(
        first.get("a").is_none() && first.get("b").is_none(),
        "{first}"
    );
    let into = |schema: Value| {
        definition.change(|object| {
            object["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone();
        });
    };
    // From the store, when it is read; and of a request, when it is written.
    into(defaults(&json!({"a": "A"})));
    api.await_object(
        &format!("{path}/first"),
        "a default of what is stored",
        |o| o["a"] == "A" && o.get("b").is_none(),
    );
    assert_eq!(make("second")["a"], "A");
    // What was written with a default stays; what is only read follows the schema.
    into(defaults(&json!({"b": "B"})));
    api.await_object(&format!("{path}/second"), "the other default", |o| {
        o["a"] == "A" && o["b"] == "B"
    });
    api.await_object(&format!("{path}/first"), "the default that is now", |o| {
        o.get("a").is_none() && o["b"] == "B"
    });
}
