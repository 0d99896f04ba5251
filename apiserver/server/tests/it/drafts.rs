//! Who replaces an object sends most of it as it was, and that is not read anew. It
//! makes no difference, however the body is written and whoever wrote it before.

use apiserver::storage::Store as _;
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod, service};
use crate::managers::owners;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Replaces an object so often that its state before is at hand.
async fn replaced(api: &Api, path: &str) {
    for n in 0..3 {
        let mut object = api.get(path).await.ok();
        object["metadata"]["annotations"] = json!({"n": n.to_string()});
        api.put(&format!("{path}?fieldManager=noted"), &object)
            .await
            .ok();
    }
}

/// Changes something of everything an object has.
fn changed(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({"more": "yes"});
    match object["kind"].as_str().unwrap() {
        "Secret" => object["stringData"] = json!({"b": "two", "c": "three"}),
        "ConfigMap" => object["data"]["more"] = json!("x"),
        "Pod" => object["spec"]["containers"][0]["image"] = json!("other"),
        "Deployment" => object["spec"]["replicas"] = json!(7),
        "Service" => object["spec"]["ports"][0]["port"] = json!(81),
        other => panic!("{other}"),
    }
    object
}

#[tokio::test]
async fn however_a_body_is_written_the_same_comes_of_it() {
    let api = Api::start().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
        "data": {"a": "MQ==", "b": "MQ=="}});
    for (path, object) in [
        (SECRETS, secret),
        (CONFIG_MAPS, config_map("a")),
        (PODS, pod("a")),
        (DEPLOYMENTS, deployment("a")),
        (SERVICES, service("a")),
    ] {
        let mut came = Vec::new();
        for (name, pretty) in [("plain", true), ("over", false)] {
            let mut object = object.clone();
            object["metadata"]["name"] = json!(name);
            api.post(&format!("{path}?fieldManager=maker"), &object)
                .await
                .ok();
            let path = format!("{path}/{name}");
            replaced(&api, &path).await;
            let new = changed(api.get(&path).await.ok());
            // Spaces are enough for nothing to be where it was.
            let text = match pretty {
                true => serde_json::to_string_pretty(&new).unwrap(),
                false => new.to_string(),
            };
            let path = format!("{path}?fieldManager=changer");
            let answer = api.call(Method::PUT, &path, "application/json", text).await;
            let mut done = answer.ok();
            let owners = owners(&done);
            assert!(owners.iter().any(|o| o.starts_with("changer Update")));
            let metadata = done["metadata"].as_object_mut().unwrap();
            for own in [
                "name",
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "managedFields",
            ] {
                metadata.remove(own);
            }
            for own in ["clusterIP", "clusterIPs"] {
                if let Some(spec) = done["spec"].as_object_mut() {
                    spec.remove(own);
                }
            }
            came.push((done, owners));
        }
        assert_eq!(came[0], came[1], "{path}");
    }
}

#[tokio::test]
async fn what_was_never_checked_here_is_checked() {
    let api = Api::start().await;
    let made = api.post(PODS, &pod("a")).await.ok();
    let mut newer = made.clone();
    newer["metadata"]["resourceVersion"].take();
    newer["spec"]["newer"] = json!(true);
    // As another server leaves it, that knows more.
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let key = "/registry/pods/default/a";
    let expected = version.parse().unwrap();
    let put = api.store.put(key, newer.to_string().into(), expected, None);
    put.await.unwrap();
    let path = format!("{PODS}/a");
    let strict = format!("{path}?fieldValidation=Strict");
    let refused = async || {
        let object = api.get(&path).await.ok();
        assert_eq!(object["spec"]["newer"], true);
        let answer = api.put(&strict, &object).await;
        answer.refused(400, "BadRequest", "unknown field \"spec.newer\"");
    };
    // However often others have written the rest of it.
    for n in 0..3 {
        refused().await;
        let mut object = api.get(&path).await.ok();
        object["status"]["message"] = json!(n.to_string());
        api.put(&format!("{path}/status"), &object).await.ok();
    }
    refused().await;
}
