//! What becomes of definitions: refused, in conflict, shown in the documents,
//! served on every server, and deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use apiserver::StoreSource;
use serde_json::{Value, json};

use super::{CRDS, KUBECTL_GET, NAME, TABS, condition, define, definition, tab, until};
use crate::harness::{Api, PATIENCE};

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_with_it() {
    let api = Api::start().await;
    define(&api, &definition()).await;
    api.post(TABS, &tab("one")).await.ok();
    let mut held = tab("held");
    held["metadata"]["finalizers"] = json!(["example.com/mine"]);
    api.post(TABS, &held).await.ok();
    let mut watch = api
        .watch(&format!("{TABS}?watch=1&resourceVersion=0"))
        .await;
    assert_eq!(
        (watch.line().await, watch.line().await),
        ("ADDED one".into(), "ADDED held".into())
    );
    let deleted = api
        .delete(&format!("{CRDS}/{NAME}"), &Value::Null)
        .await
        .ok();
    assert_eq!(
        condition(&deleted, "Terminating"),
        "True InstanceDeletionPending"
    );
    assert_eq!(
        deleted["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(
        BTreeSet::from([watch.line().await, watch.line().await]),
        ["DELETED one", "MODIFIED held"].map(str::to_owned).into()
    );
    until(&api, NAME, |d| {
        condition(d, "Terminating") == "True InstanceDeletionInProgress"
    })
    .await;
    let words = "create not allowed while custom resource definition is terminating";
    api.post(TABS, &tab("late"))
        .await
        .refused(405, "MethodNotAllowed", words);
    let mut definitions = api.watch(&format!("{CRDS}?watch=1")).await;
    let release = json!({"metadata": {"finalizers": null}});
    api.merge(&format!("{TABS}/held"), &release).await.ok();
    assert_eq!(watch.line().await, "DELETED held");
    while definitions.line().await != format!("DELETED {NAME}") {}
    api.get(&format!("{CRDS}/{NAME}"))
        .await
        .refused(404, "NotFound", NAME);
    // The watch of a resource that is gone ends.
    assert_eq!(watch.line().await, "end");
    let words = "the server could not find the requested resource";
    api.get(TABS).await.refused(404, "NotFound", words);
    // The same name may come again, and finds nothing of the old.
    define(&api, &definition()).await;
    assert_eq!(api.get(TABS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn names_that_are_taken_wait_until_they_are_free() {
    let api = Api::start().await;
    define(&api, &definition()).await;
    let mut other = definition();
    other["metadata"]["name"] = json!("cabinets.stable.example.com");
    other["spec"]["names"] = json!({"plural": "cabinets", "kind": "Cabinet", "shortNames": ["ct"]});
    api.post(CRDS, &other).await.ok();
    let name = "cabinets.stable.example.com";
    let waiting = until(&api, name, |d| {
        condition(d, "NamesAccepted").starts_with("False")
    })
    .await;
    assert_eq!(
        condition(&waiting, "NamesAccepted"),
        "False ShortNamesConflict"
    );
    assert_eq!(condition(&waiting, "Established"), "False NotAccepted");
    let message = waiting["status"]["conditions"].to_string();
    assert!(message.contains(r#"\"ct\" is already in use"#), "{message}");
    api.delete(&format!("{CRDS}/{NAME}"), &Value::Null)
        .await
        .ok();
    until(&api, name, |d| {
        condition(d, "Established").starts_with("True")
    })
    .await;
}

#[tokio::test]
async fn bad_definitions_are_refused() {
    let api = Api::start().await;
    let mut bad = definition();
    bad["metadata"]["name"] = json!("tabs.stable.example.com");
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] =
        json!({});
    let refused = api.post(CRDS, &bad).await.refused(
        422,
        "Invalid",
        "CustomResourceDefinition.apiextensions.k8s.io \"tabs.stable.example.com\" is invalid: [",
    );
    let message = refused["message"].as_str().unwrap();
    for words in [
        "metadata.name: Invalid value: \"tabs.stable.example.com\": must be spec.names.plural+\".\"+spec.group",
        "spec.validation.openAPIV3Schema.properties[spec].properties[x].type: Required value: must not be empty for specified object fields",
    ] {
        assert!(message.contains(words), "{message}");
    }
    let mut unknown = definition();
    unknown["spec"]["bogus"] = json!(1);
    api.post(&format!("{CRDS}?fieldValidation=Strict"), &unknown)
        .await
        .refused(400, "BadRequest", "unknown field \"spec.bogus\"");
}

#[tokio::test]
async fn discovery_follows_the_definitions() {
    let api = Api::start().await;
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let before = api.get_as("/apis", AGGREGATED).await;
    define(&api, &definition()).await;
    let after = api.get_as("/apis", AGGREGATED).await;
    assert_ne!(before.header("etag"), after.header("etag"));
    let after = after.ok();
    let group = after["items"].as_array().unwrap().iter();
    let group = group
        .clone()
        .find(|g| g["metadata"]["name"] == "stable.example.com")
        .unwrap();
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!(resource["shortNames"], json!(["ct"]));
    assert_eq!(resource["subresources"][1]["responseKind"]["kind"], "Scale");
    let list = api.get("/apis/stable.example.com/v1").await.ok();
    let names: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["crontabs", "crontabs/status", "crontabs/scale"]);
    let group = api.get("/apis/stable.example.com").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v1");
}

#[tokio::test]
async fn openapi_follows_the_definitions() {
    let api = Api::start().await;
    let v2_before = api.get("/openapi/v2").await.header("etag").to_owned();
    define(&api, &definition()).await;
    let index = api.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/stable.example.com/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let document = api.get(&url).await.ok();
    let shown = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(
        shown["properties"]["spec"]["properties"]["cronSpec"]["description"],
        "When."
    );
    assert!(shown["properties"]["metadata"].is_object());
    let path = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}";
    let patch = &document["paths"][path]["patch"];
    let types: Vec<&String> = patch["requestBody"]["content"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert!(!types.iter().any(|t| t.contains("strategic")), "{types:?}");
    let v2 = api.get("/openapi/v2").await;
    assert_ne!(v2.header("etag"), v2_before);
    assert!(v2.ok()["definitions"]["com.example.stable.v1.CronTab"].is_object());
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    assert!(api.get_as("/openapi/v2", protobuf).await.code.is_success());
    let mut definitions = api.watch(&format!("{CRDS}?watch=1")).await;
    api.delete(&format!("{CRDS}/{NAME}"), &Value::Null)
        .await
        .ok();
    while definitions.line().await != format!("DELETED {NAME}") {}
    let gone = async {
        while api.get("/apis/stable.example.com").await.code.is_success() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("the group goes");
    assert!(
        api.get("/openapi/v3").await.ok()["paths"]
            .get("apis/stable.example.com/v1")
            .is_none()
    );
    assert_eq!(api.get("/openapi/v2").await.header("etag"), v2_before);
}

#[tokio::test]
async fn every_server_over_a_store_serves_what_is_defined_on_one() {
    let one = Api::start().await;
    let pki = one.dir.path().join("pki");
    let two = Api::over(StoreSource::Other(Arc::clone(&one.store) as _), pki.clone()).await;
    define(&one, &definition()).await;
    one.post(TABS, &tab("one")).await.ok();
    let there = async {
        while !two.get(&format!("{TABS}/one")).await.code.is_success() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, there)
        .await
        .expect("the other serves it too");
    two.post(TABS, &tab("two")).await.ok();
    one.get(&format!("{TABS}/two")).await.ok();
    // One that starts later serves it from the start.
    let three = Api::over(StoreSource::Other(Arc::clone(&one.store) as _), pki).await;
    assert_eq!(
        three.get(TABS).await.ok()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn cluster_scoped_and_preserving_resources() {
    let api = Api::start().await;
    let mut wide = definition();
    wide["spec"]["scope"] = json!("Cluster");
    wide["spec"]["versions"] = json!([{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]);
    define(&api, &wide).await;
    const WIDE: &str = "/apis/stable.example.com/v1/crontabs";
    let mut object = tab("one");
    object["anything"] = json!({"goes": [1, null, {"a": "b"}]});
    let answer = api.post(WIDE, &object).await;
    assert_eq!(answer.header("warning"), "");
    let made = answer.ok();
    assert_eq!(made["anything"], object["anything"]);
    assert!(made["metadata"].get("namespace").is_none());
    let patched = api
        .merge(&format!("{WIDE}/one"), &json!({"status": {"a": 1}}))
        .await
        .ok();
    // Without an endpoint of its own the status is a field like any other.
    assert_eq!(patched["status"], json!({"a": 1}));
    assert_eq!(patched["metadata"]["generation"], 2);
    api.get(TABS)
        .await
        .refused(404, "NotFound", "could not find");
    let table = api.get_as(WIDE, KUBECTL_GET).await.ok();
    assert_eq!(table["columnDefinitions"][1]["name"], "Age");
}
