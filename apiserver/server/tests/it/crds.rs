//! Custom resources, from the definition to the last object.

mod definitions;

use http::Method;
use serde_json::{Value, json};

use crate::harness::Api;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAME: &str = "crontabs.stable.example.com";
const TABS: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";
const TABS_V2: &str = "/apis/stable.example.com/v2/namespaces/default/crontabs";
const KUBECTL_GET: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn schema() -> Value {
    json!({"type": "object", "description": "A table of things to do.", "properties": {
        "spec": {"type": "object", "required": ["cronSpec"], "properties": {
            "cronSpec": {"type": "string", "pattern": "^[0-9* ]+$", "description": "When."},
            "image": {"type": "string", "default": "busybox"},
            "replicas": {"type": "integer", "minimum": 0, "maximum": 10},
            "color": {"type": "string"},
            "port": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {
            "replicas": {"type": "integer"}, "selector": {"type": "string"}, "ready": {"type": "string"}}}}})
}

fn version(name: &str, storage: bool) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema()}})
}

fn definition() -> Value {
    let mut v1 = version("v1", true);
    v1["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
    v1["additionalPrinterColumns"] = json!([
        {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec", "description": "When it runs."},
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}]);
    v1["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": "stable.example.com", "scope": "Namespaced", "versions": [v1],
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab",
                "shortNames": ["ct"], "categories": ["all"]}}})
}

fn tab(name: &str) -> Value {
    json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name},
        "spec": {"cronSpec": "* * * * *", "replicas": 1}})
}

fn condition(definition: &Value, ty: &str) -> String {
    let list = definition["status"]["conditions"].as_array();
    let found = list.into_iter().flatten().find(|c| c["type"] == ty);
    found.map_or_else(String::new, |c| {
        format!(
            "{} {}",
            c["status"].as_str().unwrap(),
            c["reason"].as_str().unwrap()
        )
    })
}

/// Waits until a definition says what is asked for; returns it.
async fn until(api: &Api, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let path = format!("{CRDS}?watch=1&fieldSelector=metadata.name={name}");
    let mut watch = api.watch(&path).await;
    loop {
        let event = watch.next().await.expect("the watch goes on");
        if holds(&event["object"]) {
            return event["object"].clone();
        }
    }
}

async fn define(api: &Api, definition: &Value) -> Value {
    api.post(CRDS, definition).await.ok();
    let name = definition["metadata"]["name"].as_str().unwrap();
    until(api, name, |d| {
        condition(d, "Established").starts_with("True")
    })
    .await
}

#[tokio::test]
async fn what_is_defined_is_served_at_once() {
    let api = Api::start().await;
    let words = "the server could not find the requested resource";
    api.get(TABS).await.refused(404, "NotFound", words);
    let made = api.post(CRDS, &definition()).await.ok();
    assert_eq!(made["spec"]["names"]["listKind"], "CronTabList");
    assert_eq!(made["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let ready = until(&api, NAME, |d| {
        condition(d, "Established").starts_with("True")
    })
    .await;
    assert_eq!(condition(&ready, "NamesAccepted"), "True NoConflicts");
    assert_eq!(
        condition(&ready, "Established"),
        "True InitialNamesAccepted"
    );
    assert_eq!(ready["status"]["acceptedNames"], ready["spec"]["names"]);
    let list = api.get(TABS).await.ok();
    assert_eq!(
        (&list["kind"], &list["items"]),
        (&json!("CronTabList"), &json!([]))
    );
    let made = api.post(TABS, &tab("one")).await.ok();
    assert_eq!(made["spec"]["image"], "busybox");
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(api.get(&format!("{TABS}/one")).await.ok(), made);
    let mut generated = tab("");
    generated["metadata"] = json!({"generateName": "tab-"});
    let made = api.post(TABS, &generated).await.ok();
    assert!(
        made["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("tab-")
    );
    api.get("/apis/stable.example.com/v1/crontabs/one")
        .await
        .refused(404, "NotFound", words);
    let path = format!("{TABS}/one/nothing");
    api.get(&path).await.refused(404, "NotFound", words);
}

#[tokio::test]
async fn what_does_not_fit_the_schema_is_refused_with_all_reasons() {
    let api = Api::start().await;
    define(&api, &definition()).await;
    let mut bad = tab("bad");
    bad["spec"] = json!({"replicas": "many", "tags": ["a", "a"], "port": true});
    let refused = api.post(TABS, &bad).await.refused(
        422,
        "Invalid",
        "CronTab.stable.example.com \"bad\" is invalid: ",
    );
    let causes: Vec<String> = refused["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            let text = |name: &str| c[name].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", text("reason"), text("field"), text("message"))
        })
        .collect();
    assert_eq!(
        causes,
        [
            "FieldValueTypeInvalid spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
            "FieldValueTypeInvalid spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
            "FieldValueRequired spec.cronSpec: Required value",
            "FieldValueInvalid .spec.replicas: Invalid value: 0: .spec.replicas accessor error: many is of the type string, expected int64",
            "FieldValueDuplicate spec.tags[1]: Duplicate value: \"a\"",
        ]
    );
    bad["spec"] = json!({"cronSpec": "often"});
    api.post(TABS, &bad).await.refused(
        422,
        "Invalid",
        "spec.cronSpec: Invalid value: \"often\": spec.cronSpec in body should match '^[0-9* ]+$'",
    );
    // A stricter schema holds for what changes.
    api.post(TABS, &tab("old")).await.ok();
    let mut stricter = definition();
    stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["replicas"]["maximum"] = json!(0);
    let patched = api.merge(&format!("{CRDS}/{NAME}"), &stricter).await.ok();
    assert_eq!(patched["metadata"]["generation"], 2);
    let path = format!("{TABS}/old");
    // The server looks at the new schema a moment after it was written.
    let mut replicas = (2..=9).cycle();
    let said = loop {
        let more = json!({"spec": {"replicas": replicas.next()}});
        let answer = api.merge(&path, &more).await;
        if answer.code == 422 {
            break answer;
        }
        answer.ok();
        tokio::task::yield_now().await;
    };
    said.refused(422, "Invalid", "should be less than or equal to 0");
    api.merge(&path, &json!({"spec": {"color": "red"}}))
        .await
        .ok();
}

#[tokio::test]
async fn unknown_fields_are_pruned_and_said() {
    let api = Api::start().await;
    define(&api, &definition()).await;
    let mut object = tab("pruned");
    object["spec"]["someRandomField"] = json!(42);
    object["spec"]["any"] = json!({"kept": {"deep": [1]}});
    let answer = api.post(TABS, &object).await;
    assert_eq!(
        answer.header("warning"),
        "299 - \"unknown field \\\"spec.someRandomField\\\"\""
    );
    let made = answer.ok();
    assert!(made["spec"].get("someRandomField").is_none());
    assert_eq!(made["spec"]["any"], json!({"kept": {"deep": [1]}}));
    object["metadata"]["name"] = json!("strict");
    api.post(&format!("{TABS}?fieldValidation=Strict"), &object)
        .await
        .refused(
            400,
            "BadRequest",
            "strict decoding error: unknown field \"spec.someRandomField\"",
        );
    let answer = api
        .post(&format!("{TABS}?fieldValidation=Ignore"), &object)
        .await;
    assert_eq!(answer.header("warning"), "");
    answer.ok();
    let body = serde_json::to_vec(&object).unwrap();
    let path = format!("{TABS}/pruned");
    let patch = api
        .call(
            Method::PATCH,
            &path,
            "application/strategic-merge-patch+json",
            body.clone(),
        )
        .await;
    patch.refused(415, "UnsupportedMediaType", "application/merge-patch+json");
    let protobuf = api
        .call(
            Method::POST,
            TABS,
            "application/vnd.kubernetes.protobuf",
            body,
        )
        .await;
    protobuf.refused(
        415,
        "UnsupportedMediaType",
        "application/json, application/yaml",
    );
    let answer = api
        .get_as(&path, "application/vnd.kubernetes.protobuf")
        .await;
    // What is said of it can be said in protobuf.
    assert_eq!(answer.code, 406);
    assert!(answer.text().contains("NotAcceptable"));
    let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]).to_string();
    let patched = api
        .call(Method::PATCH, &path, "application/json-patch+json", patch)
        .await
        .ok();
    assert_eq!(patched["spec"]["replicas"], 5);
}

#[tokio::test]
async fn status_and_scale_have_endpoints_of_their_own() {
    let api = Api::start().await;
    define(&api, &definition()).await;
    let mut object = tab("one");
    object["status"] = json!({"ready": "no"});
    let made = api.post(TABS, &object).await.ok();
    assert!(made.get("status").is_none(), "{made}");
    let path = format!("{TABS}/one");
    let ready = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 9},
        "status": {"ready": "yes", "replicas": 1, "selector": "app=one"}});
    let written = api.merge(&format!("{path}/status"), &ready).await.ok();
    assert_eq!(written["status"]["ready"], "yes");
    assert_eq!(written["spec"]["replicas"], 1);
    assert!(written["metadata"].get("labels").is_none());
    assert_eq!(written["metadata"]["generation"], 1);
    let written = api
        .merge(
            &path,
            &json!({"status": {"ready": "?"}, "spec": {"replicas": 2}}),
        )
        .await
        .ok();
    assert_eq!(written["status"]["ready"], "yes");
    assert_eq!(written["metadata"]["generation"], 2);
    let scale = api.get(&format!("{path}/scale")).await.ok();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(
        scale["status"],
        json!({"replicas": 1, "selector": "app=one"})
    );
    let mut more = scale.clone();
    more["spec"]["replicas"] = json!(4);
    let scaled = api.put(&format!("{path}/scale"), &more).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 4);
    assert_eq!(api.get(&path).await.ok()["spec"]["replicas"], 4);
    api.put(&format!("{path}/scale"), &more)
        .await
        .refused(409, "Conflict", "has been modified");
    more["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    more["spec"]["replicas"] = json!(40);
    api.put(&format!("{path}/scale"), &more).await.refused(
        422,
        "Invalid",
        "should be less than or equal to 10",
    );
    let mut unversioned = tab("one");
    unversioned["spec"]["replicas"] = json!(3);
    api.put(&path, &unversioned).await.refused(
        422,
        "Invalid",
        "metadata.resourceVersion: Invalid value: 0: must be specified",
    );
}

#[tokio::test]
async fn columns_selectors_and_watches_are_those_of_any_kind() {
    let api = Api::start().await;
    define(&api, &definition()).await;
    let mut watch = api
        .watch(&format!("{TABS}?watch=1&fieldSelector=spec.color%3Dred"))
        .await;
    for (name, color) in [("a", "red"), ("b", "blue")] {
        let mut object = tab(name);
        object["spec"]["color"] = json!(color);
        api.post(TABS, &object).await.ok();
    }
    assert_eq!(watch.line().await, "ADDED a");
    api.merge(&format!("{TABS}/b"), &json!({"spec": {"color": "red"}}))
        .await
        .ok();
    assert_eq!(watch.line().await, "ADDED b");
    api.merge(&format!("{TABS}/a"), &json!({"spec": {"color": "green"}}))
        .await
        .ok();
    assert_eq!(watch.line().await, "DELETED a");
    let red = api
        .get(&format!("{TABS}?fieldSelector=spec.color%3Dred"))
        .await
        .ok();
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
    api.get(&format!("{TABS}?fieldSelector=spec.image%3Dx"))
        .await
        .refused(400, "BadRequest", "field label not supported: spec.image");
    let table = api.get_as(TABS, KUBECTL_GET).await.ok();
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Name", "Spec", "Replicas"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", "* * * * *", 1]));
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = api.get_as(TABS, partial).await.ok();
    assert_eq!(partial["items"][0]["kind"], "PartialObjectMetadata");
    let deleted = api.delete(TABS, &Value::Null).await.ok();
    assert_eq!(deleted["items"].as_array().unwrap().len(), 2);
    assert_eq!(watch.line().await, "DELETED b");
}

#[tokio::test]
async fn versions_show_the_same_objects() {
    let api = Api::start().await;
    let mut definition = definition();
    let mut v2 = version("v2", false);
    v2["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["mood"] =
        json!({"type": "string", "default": "calm"});
    v2["deprecated"] = json!(true);
    definition["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(v2);
    define(&api, &definition).await;
    api.post(TABS, &tab("one")).await.ok();
    let mut watch = api.watch(&format!("{TABS_V2}?watch=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["apiVersion"], "stable.example.com/v2");
    let answer = api.get(&format!("{TABS_V2}/one")).await;
    assert_eq!(
        answer.header("warning"),
        "299 - \"stable.example.com/v2 CronTab is deprecated\""
    );
    let seen = answer.ok();
    assert_eq!(seen["apiVersion"], "stable.example.com/v2");
    assert_eq!(seen["spec"]["mood"], "calm");
    // What the stored version does not know is not kept.
    let patched = api
        .merge(
            &format!("{TABS_V2}/one"),
            &json!({"spec": {"mood": "glad", "color": "red"}}),
        )
        .await
        .ok();
    assert_eq!(patched["spec"]["color"], "red");
    let one = api.get(&format!("{TABS}/one")).await.ok();
    assert_eq!(one["apiVersion"], "stable.example.com/v1");
    assert!(one["spec"].get("mood").is_none());
    let wrong = api.post(TABS_V2, &tab("two")).await;
    wrong.refused(400, "BadRequest", "does not match the expected API version");
    // From now on v2 is stored; what is stored as v1 is read as v2, and written
    // anew by a write that changes nothing else.
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["versions"][1]["storage"] = json!(true);
    let spec = json!({"spec": {"versions": definition["spec"]["versions"]}});
    let changed = api.merge(&format!("{CRDS}/{NAME}"), &spec).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    while watch.next().await.is_some() {}
    let seen = api.get(&format!("{TABS_V2}/one")).await.ok();
    assert_eq!(seen["spec"]["mood"], "calm");
    let again = api.put(&format!("{TABS_V2}/one"), &seen).await.ok();
    assert_ne!(
        again["metadata"]["resourceVersion"],
        seen["metadata"]["resourceVersion"]
    );
    let twice = api.put(&format!("{TABS_V2}/one"), &again).await.ok();
    assert_eq!(again, twice);
    let pruned = json!({"status": {"storedVersions": ["v2"]}});
    let changed = api
        .merge(&format!("{CRDS}/{NAME}/status"), &pruned)
        .await
        .ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v2"]));
}
