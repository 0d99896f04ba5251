//! What a cluster has of itself, and what it refuses and forgets.

use std::fs;

use serde_json::{Value, json};

use crate::api::{Api, names, version};
use crate::harness::{Program, free_address, until};
use crate::subjects::pod_template;

/// The subset of endpoints, or the slices, as pairs of addresses and ports in order.
type Where = (Vec<String>, Vec<(String, i64, String)>);

fn addresses<'a>(list: &'a Value, of: impl Fn(&'a Value) -> Option<&'a str>) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    let mut all: Vec<String> = items.filter_map(of).map(str::to_owned).collect();
    all.sort();
    all
}

fn ports(list: &Value) -> Vec<(String, i64, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list.as_array().into_iter().flatten();
    items
        .map(|p| {
            let number = p["port"].as_i64().unwrap();
            (text(&p["name"]), number, text(&p["protocol"]))
        })
        .collect()
}

pub(crate) fn api_server_endpoints(api: &Api) {
    let root = "/api/v1/namespaces/default";
    api.get(&format!("{root}/services/kubernetes")).ok();
    let endpoints = api.await_object(
        &format!("{root}/endpoints/kubernetes"),
        "endpoints of the API",
        |e| e["subsets"].as_array().is_some_and(|s| s.len() == 1),
    );
    let subset = &endpoints["subsets"][0];
    let of_endpoints: Where = (
        addresses(&subset["addresses"], |a| a["ip"].as_str()),
        ports(&subset["ports"]),
    );
    assert!(!of_endpoints.0.is_empty() && !of_endpoints.1.is_empty());
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?\
                labelSelector=kubernetes.io/service-name%3Dkubernetes";
    until("the same as a slice", || {
        let slices = api.get(path).ok();
        let Some([slice]) = slices["items"].as_array().map(Vec::as_slice) else {
            return Err(slices.to_string());
        };
        let of_slice: Where = (
            addresses(&slice["endpoints"], |e| e["addresses"][0].as_str()),
            ports(&slice["ports"]),
        );
        match of_slice == of_endpoints {
            true => Ok(()),
            false => Err(slices.to_string()),
        }
    });
}

fn pod(class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "classed"},
        "spec": {"runtimeClassName": class, "containers": [{"name": "c", "image": "host"}]}})
}

/// Expects a pod of a runtime class to be refused for want of the class.
fn refused(api: &Api, class: &str) {
    let pods = format!("/api/v1/namespaces/{}/pods", api.namespace());
    let message = api.post(&pods, &pod(class)).refused(403);
    assert_eq!(
        message,
        format!("pods \"classed\" is forbidden: pod rejected: RuntimeClass \"{class}\" not found")
    );
}

pub(crate) fn runtime_class_unknown(api: &Api) {
    refused(api, &api.name("no-such-class"));
}

pub(crate) fn runtime_class_deleted(api: &Api) {
    let path = "/apis/node.k8s.io/v1/runtimeclasses";
    let name = api.name("class");
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": name}, "handler": "conformance"});
    api.post(path, &class).ok();
    // While it is there, a pod may name it.
    let pods = format!("/api/v1/namespaces/{}/pods?dryRun=All", api.namespace());
    api.post(&pods, &pod(&name)).ok();
    assert!(api.delete(&format!("{path}/{name}")).code < 300);
    api.await_gone(&format!("{path}/{name}"));
    refused(api, &name);
}

/// Amounts of cpu, memory and storage.
fn amounts(cpu: &str, memory: &str, storage: &str) -> Value {
    json!({"cpu": cpu, "memory": memory, "ephemeral-storage": storage})
}

pub(crate) fn limit_range_defaults(api: &Api) {
    let root = format!("/api/v1/namespaces/{}", api.namespace());
    let (ranges, pods) = (format!("{root}/limitranges"), format!("{root}/pods"));
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"},
        "spec": {"limits": [{"type": "Container",
            "min": amounts("50m", "100Mi", "100Gi"),
            "max": amounts("500m", "500Mi", "500Gi"),
            "default": amounts("500m", "500Mi", "500Gi"),
            "defaultRequest": amounts("100m", "200Mi", "200Gi")}]}});
    let watch = api.watch(&ranges);
    let made = api.post(&ranges, &range).ok();
    assert_eq!(made["spec"], range["spec"]);
    watch.expect("ADDED", "limits");
    let post = |resources: Value| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"},
            "spec": {"nodeName": "nowhere", "containers": [
                {"name": "c", "image": "host", "resources": resources}]}});
        api.post(&pods, &pod)
    };
    let of = |resources: Value| {
        let pod = post(resources).ok();
        pod["spec"]["containers"][0]["resources"].clone()
    };
    assert_eq!(
        of(json!({})),
        json!({"requests": amounts("100m", "200Mi", "200Gi"),
            "limits": amounts("500m", "500Mi", "500Gi")})
    );
    // What is said stays, and a limit is a request too.
    let partly = json!({"requests": {"memory": "150Mi", "ephemeral-storage": "150Gi"},
        "limits": {"cpu": "300m"}});
    assert_eq!(
        of(partly),
        json!({"requests": amounts("300m", "150Mi", "150Gi"),
            "limits": amounts("300m", "500Mi", "500Gi")})
    );
    let little = json!({"requests": amounts("10m", "50Mi", "50Gi"), "limits": {}});
    let much = json!({"requests": {}, "limits": amounts("600m", "600Mi", "600Gi")});
    let message = post(little.clone()).refused(403);
    assert!(
        message.contains("minimum cpu usage per Container is 50m, but request is 10m"),
        "{message}"
    );
    let message = post(much.clone()).refused(403);
    assert!(
        message.contains("maximum cpu usage per Container is 500m, but limit is 600m"),
        "{message}"
    );
    let mut wider = api.get(&format!("{ranges}/limits")).ok();
    wider["spec"]["limits"][0]["min"] = amounts("9m", "49Mi", "49Gi");
    api.put(&format!("{ranges}/limits"), &wider).ok();
    watch.expect("MODIFIED", "limits");
    until("pods with as little", || match post(little.clone()) {
        answer if answer.code == 403 => Err(answer.text()),
        answer => Ok(answer.ok()),
    });
    post(much.clone()).refused(403);
    assert!(api.delete(&format!("{ranges}/limits")).code < 300);
    watch.expect("DELETED", "limits");
    until("pods with as much", || match post(much.clone()) {
        answer if answer.code == 403 => Err(answer.text()),
        answer => Ok(answer.ok()),
    });
}

/// How many objects a list is made of, and how many a chunk may have.
const OBJECTS: usize = 40;
const CHUNK: usize = 4;

/// A store and an API server that lets it forget after a second.
struct Forgetful {
    api: Api,
    _server: Program,
    _store: Program,
    _folder: tempfile::TempDir,
}

impl Forgetful {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let url = format!("http://{}", free_address());
        let store = Program::start(
            &folder.path().join("store-stderr"),
            &[
                "kvstore",
                &format!("--data-dir={}", path("store")),
                &format!("--listen-client-urls={url}"),
                &format!("--advertise-client-urls={url}"),
                "--listen-peer-urls=http://127.0.0.1:0",
            ],
        );
        let server = Program::start(
            &folder.path().join("stderr"),
            &[
                "apiserver",
                &format!("--etcd-servers={url}"),
                "--etcd-compaction-interval=1s",
                "--bind-address=127.0.0.1",
                "--secure-port=0",
                &format!("--cert-dir={}", path("certs")),
            ],
        );
        server.logged("serving the Kubernetes API");
        let kubeconfig = folder.path().join("certs/admin.kubeconfig");
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        Self {
            api: Api::new(&kubeconfig, &home, std::path::Path::new("")),
            _server: server,
            _store: store,
            _folder: folder,
        }
    }
}

/// In a cluster of its own: what the store forgets is forgotten for all.
pub(crate) fn chunks_compacted(_: &Api) {
    let forgetful = Forgetful::start();
    let api = &forgetful.api;
    let subject = pod_template();
    let path = subject.path("default");
    for number in 0..OBJECTS {
        let object = subject.object(&format!("template-{number:04}"), &json!({}));
        api.post(&path, &object).ok();
    }
    let first = api.get(&format!("{path}?limit={CHUNK}")).ok();
    let token = |list: &Value| {
        list["metadata"]["continue"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    let next = |token: &str| api.get(&format!("{path}?limit={CHUNK}&continue={token}"));
    let expired = until("the token to expire", || {
        let answer = next(&token(&first));
        match answer.code {
            410 => Ok(answer),
            _ => Err(answer.text()),
        }
    });
    let status: Value = serde_json::from_slice(&expired.body).unwrap();
    assert_eq!(status["reason"], "Expired", "{status}");
    let mut rest = token(&status);
    assert!(!rest.is_empty(), "{status}");
    let (mut seen, mut newer) = (names(&first), None);
    while !rest.is_empty() {
        let answer = next(&rest);
        if answer.code == 410 {
            // The store goes on forgetting; the new token leads on from the same place.
            rest = token(&serde_json::from_slice(&answer.body).unwrap());
            newer = None;
            continue;
        }
        let list = answer.ok();
        assert_ne!(version(&list), version(&first));
        assert_eq!(newer.get_or_insert_with(|| version(&list)), &version(&list));
        seen.extend(names(&list));
        let left = (OBJECTS - seen.len()) as u64;
        let remaining = list["metadata"]["remainingItemCount"].as_u64();
        assert_eq!(remaining.unwrap_or(0), left);
        rest = token(&list);
    }
    assert_eq!(seen.len(), OBJECTS);
    assert!(seen.is_sorted(), "{seen:?}");
}
