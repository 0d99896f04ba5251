//! What every cluster has without anybody having made it: it is there, it comes back,
//! and several servers agree on it.

use std::future::Future;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::harness::{Api, PATIENCE, SERVICES};

const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// Waits until something is found.
async fn until<T, F: Future<Output = Result<T, String>>>(what: &str, look: impl Fn() -> F) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(last) if tokio::time::Instant::now() > deadline => {
                panic!("waited for {what}; last: {last}")
            }
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
}

/// Waits until an object is there for which this holds.
async fn there(api: &Api, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    until(path, || async {
        let answer = api.get(path).await;
        match answer.code.is_success() && holds(&answer.json()) {
            true => Ok(answer.json()),
            false => Err(answer.text()),
        }
    })
    .await
}

/// Waits until a list has so many objects.
async fn so_many(api: &Api, path: &str, count: usize) -> Vec<Value> {
    let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    items(&there(api, path, |list| items(list).len() == count).await)
}

fn names(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .filter_map(|o| o["metadata"]["name"].as_str())
        .collect()
}

#[tokio::test]
async fn a_new_cluster_has_them_all() {
    let api = Api::start().await;
    let services = so_many(
        &api,
        API_SERVICES,
        registry::kinds::group_versions().len() + 1,
    )
    .await;
    let found = names(&services);
    for name in [
        "v1.",
        "v1.apps",
        "v2.autoscaling",
        "v1.authentication.k8s.io",
    ] {
        assert!(found.contains(&name), "{name}: {found:?}");
    }
    for service in &services {
        let condition = &service["status"]["conditions"][0];
        assert_eq!(
            (
                &condition["type"],
                &condition["status"],
                &condition["reason"]
            ),
            (&json!("Available"), &json!("True"), &json!("Local"))
        );
    }
    let levels = so_many(&api, LEVELS, 8).await;
    assert!(names(&levels).contains(&"exempt") && names(&levels).contains(&"catch-all"));
    so_many(&api, FLOWS, 11).await;
    let cidr = there(&api, &format!("{CIDRS}/kubernetes"), |cidr| {
        cidr["status"]["conditions"][0]["status"] == "True"
    })
    .await;
    assert_eq!(cidr["spec"]["cidrs"], json!(["10.96.0.0/16"]));
    let own = api.get(&format!("{SERVICES}/kubernetes")).await.ok();
    let address = own["spec"]["clusterIP"].as_str().unwrap();
    let taken = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    let taken = there(&api, &taken, |_| true).await;
    assert_eq!(taken["spec"]["parentRef"]["name"], "kubernetes");
    assert_eq!(so_many(&api, CLASSES, 2).await.len(), 2);
}

#[tokio::test]
async fn what_is_deleted_comes_back() {
    let api = Api::start().await;
    so_many(&api, FLOWS, 11).await;
    there(&api, &format!("{API_SERVICES}/v1.apps"), |_| true).await;
    let own = api.get(&format!("{SERVICES}/kubernetes")).await.ok();
    for path in [
        format!("{FLOWS}/exempt"),
        format!("{FLOWS}/probes"),
        format!("{LEVELS}/catch-all"),
        format!("{API_SERVICES}/v1.apps"),
        format!("{CIDRS}/kubernetes"),
        format!("{SERVICES}/kubernetes"),
    ] {
        let old = there(&api, &path, |_| true).await;
        api.delete(&path, &Value::Null).await.ok();
        let new = there(&api, &path, |new| {
            new["metadata"]["uid"] != old["metadata"]["uid"]
        })
        .await;
        for field in ["type", "group", "cidrs", "rules", "clusterIP"] {
            assert_eq!(new["spec"][field], old["spec"][field], "{path}");
        }
    }
    let again = api.get(&format!("{SERVICES}/kubernetes")).await.ok();
    assert_eq!(again["spec"]["clusterIP"], own["spec"]["clusterIP"]);
    let address = again["spec"]["clusterIP"].as_str().unwrap();
    let claim = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    let old = there(&api, &claim, |_| true).await;
    api.delete(&claim, &Value::Null).await.ok();
    there(&api, &claim, |new| {
        new["metadata"]["uid"] != old["metadata"]["uid"]
            && new["spec"]["parentRef"] == old["spec"]["parentRef"]
    })
    .await;
    api.delete(&format!("{CLASSES}/system-node-critical"), &Value::Null)
        .await
        .refused(
            403,
            "Forbidden",
            "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and cannot be deleted",
        );
}

#[tokio::test]
async fn what_is_changed_is_put_back_or_taken_over() {
    let api = Api::start().await;
    so_many(&api, FLOWS, 11).await;
    let change = json!({"spec": {"matchingPrecedence": 77}});
    for name in ["catch-all", "global-default"] {
        let path = format!("{FLOWS}/{name}");
        let was = api.get(&path).await.ok();
        api.merge(&path, &change).await.ok();
        let is = there(&api, &path, |flow| flow["spec"]["matchingPrecedence"] != 77).await;
        assert_eq!(is["spec"], was["spec"]);
    }
    let mine = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}}});
    let path = format!("{FLOWS}/global-default");
    api.merge(&path, &mine).await.ok();
    api.merge(&path, &change).await.ok();
    // What is looked at after it and put back shows that it was passed over.
    api.merge(&format!("{FLOWS}/catch-all"), &change).await.ok();
    there(&api, &format!("{FLOWS}/catch-all"), |flow| {
        flow["spec"]["matchingPrecedence"] == 10_000
    })
    .await;
    let kept = api.get(&path).await.ok();
    assert_eq!(kept["spec"]["matchingPrecedence"], 77);
}

#[tokio::test]
async fn servers_over_one_store_agree() {
    let one = Api::start().await;
    so_many(&one, FLOWS, 11).await;
    there(&one, &format!("{CIDRS}/kubernetes"), |cidr| {
        cidr["status"]["conditions"][0]["status"] == "True"
    })
    .await;
    let count = registry::kinds::group_versions().len() + 1;
    so_many(&one, API_SERVICES, count).await;
    let store = apiserver::StoreSource::Other(one.store.clone());
    let two = Api::over(store, one.dir.path().join("pki")).await;
    let versions = async |api: &Api| {
        let mut all = Vec::new();
        for path in [FLOWS, LEVELS, API_SERVICES, CIDRS, CLASSES] {
            let list = api.get(path).await.ok();
            for object in list["items"].as_array().unwrap() {
                let metadata = &object["metadata"];
                let name = metadata["name"].as_str().unwrap().to_owned();
                let version = metadata["resourceVersion"].as_str().unwrap().to_owned();
                all.push((path, name, version));
            }
        }
        all.retain(|(path, name, _)| (*path, name.as_str()) != (FLOWS, "probes"));
        all
    };
    let before = versions(&two).await;
    for api in [&one, &two] {
        let old = there(api, &format!("{FLOWS}/probes"), |_| true).await;
        api.delete(&format!("{FLOWS}/probes"), &Value::Null)
            .await
            .ok();
        there(api, &format!("{FLOWS}/probes"), |new| {
            new["metadata"]["uid"] != old["metadata"]["uid"]
        })
        .await;
    }
    assert_eq!(versions(&one).await, before, "nobody wrote anything else");
}

fn addresses(endpoints: &Value) -> Vec<&str> {
    let list = endpoints["subsets"][0]["addresses"].as_array();
    let all = list.into_iter().flatten();
    all.filter_map(|a| a["ip"].as_str()).collect()
}

fn of_slice(slice: &Value) -> Vec<&str> {
    let all = slice["endpoints"].as_array().into_iter().flatten();
    all.filter_map(|e| e["addresses"][0].as_str()).collect()
}

#[tokio::test]
async fn the_service_leads_to_the_servers_that_are_alive() {
    let at = |ip: &str| Some(ip.parse::<IpAddr>().unwrap());
    let one = Api::start_with(|config| config.advertise = at("10.1.0.1")).await;
    let port = one.running.addr.port();
    let endpoints = there(&one, ENDPOINTS, |e| addresses(e) == ["10.1.0.1"]).await;
    assert_eq!(
        endpoints["subsets"][0]["ports"],
        json!([{"name": "https", "port": port, "protocol": "TCP"}])
    );
    let label = "endpointslice.kubernetes.io/skip-mirror";
    assert_eq!(endpoints["metadata"]["labels"][label], "true");
    let slice = there(&one, SLICE, |s| of_slice(s) == ["10.1.0.1"]).await;
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(slice["ports"], endpoints["subsets"][0]["ports"]);
    assert_eq!(slice["endpoints"][0]["conditions"]["ready"], true);

    let store = one.store.clone();
    let dir = one.dir.path().join("pki");
    let two = Api::start_with(|config| {
        config.advertise = at("10.1.0.2");
        config.store = apiserver::StoreSource::Other(store);
        config.cert_dir = dir;
    })
    .await;
    let both = ["10.1.0.1", "10.1.0.2"];
    there(&one, ENDPOINTS, |e| addresses(e) == both).await;
    there(&one, SLICE, |s| of_slice(s) == both).await;
    two.running.shutdown().await;
    let endpoints = one.get(ENDPOINTS).await.ok();
    assert_eq!(addresses(&endpoints), ["10.1.0.1"], "it said goodbye");
    one.delete(ENDPOINTS, &Value::Null).await.ok();
    one.delete(SLICE, &Value::Null).await.ok();
    there(&one, ENDPOINTS, |e| addresses(e) == ["10.1.0.1"]).await;
    there(&one, SLICE, |s| of_slice(s) == ["10.1.0.1"]).await;
}

#[tokio::test]
async fn a_loopback_address_is_for_nobody_else() {
    let loopback = "127.0.0.1".parse::<IpAddr>().unwrap();
    let api = Api::start_with(|config| config.advertise = Some(loopback)).await;
    // The addresses come last.
    there(&api, &format!("{CIDRS}/kubernetes"), |cidr| {
        cidr["status"]["conditions"][0]["status"] == "True"
    })
    .await;
    api.get(ENDPOINTS).await.refused(404, "NotFound", "");
}

#[tokio::test]
async fn a_definition_has_an_api_service_while_it_lasts() {
    let api = Api::start().await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.post(crds, &definition).await.ok();
    let path = format!("{API_SERVICES}/v1.example.com");
    let service = there(&api, &path, |_| true).await;
    assert_eq!(
        service["spec"],
        json!({"group": "example.com", "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    // One that somebody made stays, whatever is defined.
    let own = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.own.example.com"},
        "spec": {"group": "own.example.com", "version": "v1",
            "groupPriorityMinimum": 10, "versionPriority": 10,
            "service": {"namespace": "default", "name": "own"}}});
    api.post(API_SERVICES, &own).await.ok();
    api.delete(&format!("{crds}/things.example.com"), &Value::Null)
        .await
        .ok();
    until("the end of it", || async {
        match api.get(&path).await.code.as_u16() {
            404 => Ok(()),
            code => Err(code.to_string()),
        }
    })
    .await;
    let own = api.get(&format!("{API_SERVICES}/v1.own.example.com")).await;
    assert_eq!(own.ok()["status"].get("conditions"), None);
}
