//! Writes: create, update, patch, delete, and what hangs below objects.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{
    Api, CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES, config_map, deployment, pod, service,
};

#[tokio::test]
async fn an_object_is_created_completed_and_read_back() {
    let api = Api::start().await;
    let answer = api.post(PODS, &pod("a")).await;
    assert_eq!(answer.code.as_u16(), 201);
    assert_eq!(answer.header("cache-control"), "no-cache, private");
    assert!(!answer.header("audit-id").is_empty());
    let made = answer.ok();
    assert_eq!(made["metadata"]["namespace"], "default");
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert_eq!(made["status"]["phase"], "Pending");
    for field in ["uid", "creationTimestamp", "resourceVersion"] {
        assert!(
            !made["metadata"][field].as_str().unwrap().is_empty(),
            "{field}"
        );
    }
    assert_eq!(api.get(&format!("{PODS}/a")).await.ok(), made);
    api.post(PODS, &pod("a"))
        .await
        .refused(409, "AlreadyExists", "pods \"a\" already exists");
}

#[tokio::test]
async fn yaml_and_protobuf_bodies_say_the_same() {
    let api = Api::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yam\ndata:\n  n: \"1\"\n";
    let made = api
        .call(Method::POST, CONFIG_MAPS, "application/yaml", yaml)
        .await
        .ok();
    assert_eq!(made["data"], json!({"n": "1"}));
    let read = api
        .get_as(&format!("{CONFIG_MAPS}/yam"), "application/yaml")
        .await;
    assert_eq!(read.header("content-type"), "application/yaml");
    assert!(read.text().contains("name: yam"), "{}", read.text());
    // Unknown{typeMeta{v1, Namespace}, raw: Namespace{metadata{name: "p"}}}
    let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x05\x0a\x03\x0a\x01p";
    let path = "/api/v1/namespaces";
    let media = "application/vnd.kubernetes.protobuf";
    let made = api.call(Method::POST, path, media, &body[..]).await.ok();
    assert_eq!(made["metadata"]["name"], "p");
    api.call(Method::POST, path, media, &b"k8s\0\xff"[..])
        .await
        .refused(400, "BadRequest", "protobuf");
}

#[tokio::test]
async fn generated_names_and_dry_runs() {
    let api = Api::start().await;
    let mut generated = config_map("");
    generated["metadata"] = json!({"generateName": "web-"});
    let names: BTreeSet<String> = {
        let mut names = BTreeSet::new();
        for _ in 0..3 {
            let made = api.post(CONFIG_MAPS, &generated).await.ok();
            names.insert(made["metadata"]["name"].as_str().unwrap().to_owned());
        }
        names
    };
    assert_eq!(names.len(), 3);
    assert!(
        names.iter().all(|n| n.starts_with("web-") && n.len() == 9),
        "{names:?}"
    );

    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    let would = api.post(&dry, &config_map("dry")).await.ok();
    assert_eq!(would["metadata"]["name"], "dry");
    api.get(&format!("{CONFIG_MAPS}/dry"))
        .await
        .refused(404, "NotFound", "");
    api.post(CONFIG_MAPS, &config_map("dry")).await.ok();
    api.post(&dry, &config_map("dry"))
        .await
        .refused(409, "AlreadyExists", "");
    let patched = api
        .merge(
            &format!("{CONFIG_MAPS}/dry?dryRun=All"),
            &json!({"data": {"k": "w"}}),
        )
        .await
        .ok();
    assert_eq!(patched["data"]["k"], "w");
    let gone = api
        .delete(&format!("{CONFIG_MAPS}/dry?dryRun=All"), &Value::Null)
        .await;
    gone.ok();
    assert_eq!(
        api.get(&format!("{CONFIG_MAPS}/dry")).await.ok()["data"]["k"],
        "v"
    );
}

/// The cache of one server lags behind what the other writes, so that many an update is
/// made twice: of the body as it was read, and of the same body read again.
#[tokio::test]
async fn an_update_that_is_made_again_is_of_the_same_body() {
    let here = Api::start().await;
    let there = Api::over(
        apiserver::StoreSource::Other(here.store.clone()),
        here.dir.path().join("pki"),
    )
    .await;
    let path = format!("{CONFIG_MAPS}/both");
    let map = |writer: &str, n: usize| {
        json!({"metadata": {"name": "both", "annotations": {"by": writer}},
            "data": {"n": n.to_string(), writer: "x"}})
    };
    let made = here.post(CONFIG_MAPS, &map("here", 0)).await.ok();
    for n in 1..30 {
        let theirs = there.put(&path, &map("there", n)).await.ok();
        // Without a version it wins, with the newest it is welcome, with an older one not.
        let mut ours = map("here", n);
        match n % 3 {
            0 => {}
            1 => {
                ours["metadata"]["resourceVersion"] = theirs["metadata"]["resourceVersion"].clone()
            }
            _ => {
                ours["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
                let refused = here.put(&path, &ours).await;
                refused.refused(409, "Conflict", "the object has been modified");
                continue;
            }
        }
        let ours = here.put(&path, &ours).await.ok();
        assert_eq!(ours["data"], map("here", n)["data"]);
        assert_eq!(ours["metadata"]["annotations"], json!({"by": "here"}));
        assert_eq!(ours["metadata"]["uid"], made["metadata"]["uid"]);
        assert_eq!(there.get(&path).await.ok(), ours);
        // What is the same is no write, whoever wrote it and whatever is cached.
        assert_eq!(there.put(&path, &ours).await.ok(), ours);
        assert_eq!(here.put(&path, &ours).await.ok(), ours);
    }
}

#[tokio::test]
async fn updates_bump_generation_and_leave_status_alone() {
    let api = Api::start().await;
    let made = api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    assert_eq!(made["metadata"]["generation"], 1);

    let same = api.put(&path, &made).await.ok();
    assert_eq!(same, made, "an update that changes nothing writes nothing");

    let mut changed = made.clone();
    changed["spec"]["replicas"] = json!(5);
    changed["status"] = json!({"replicas": 9});
    let changed = api.put(&path, &changed).await.ok();
    assert_eq!(changed["metadata"]["generation"], 2);
    assert!(
        changed["status"].get("replicas").is_none(),
        "status is not for this door"
    );

    let mut status = changed.clone();
    status["spec"]["replicas"] = json!(7);
    status["status"] = json!({"replicas": 5, "observedGeneration": 2});
    let status = api.put(&format!("{path}/status"), &status).await.ok();
    assert_eq!(status["status"]["replicas"], 5);
    assert_eq!(status["spec"]["replicas"], 5, "spec is not for that door");
    assert_eq!(status["metadata"]["generation"], 2);

    let patched = api
        .merge(
            &format!("{path}/status"),
            &json!({"status": {"readyReplicas": 3}}),
        )
        .await
        .ok();
    assert_eq!(patched["status"]["readyReplicas"], 3);
    let scaled = api
        .merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 1}}))
        .await
        .ok();
    assert_eq!(
        (&scaled["kind"], &scaled["spec"]["replicas"]),
        (&json!("Scale"), &json!(1))
    );
    let now = api.get(&path).await.ok();
    assert_eq!(
        (&now["spec"]["replicas"], &now["metadata"]["generation"]),
        (&json!(1), &json!(3))
    );
}

#[tokio::test]
async fn patches_in_three_languages() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let strategic = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "host:2"}, {"name": "side", "image": "s"}]}}}});
    let media = "application/strategic-merge-patch+json";
    let patched = api
        .call(Method::PATCH, &path, media, strategic.to_string())
        .await
        .ok();
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    let images: BTreeSet<&str> = containers
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["image"].as_str().unwrap())
        .collect();
    assert_eq!(images, BTreeSet::from(["host:2", "s"]), "merged by name");
    let ops = json!([{"op": "test", "path": "/spec/replicas", "value": 2},
        {"op": "replace", "path": "/spec/replicas", "value": 4}]);
    let patched = api
        .call(
            Method::PATCH,
            &path,
            "application/json-patch+json",
            ops.to_string(),
        )
        .await
        .ok();
    assert_eq!(patched["spec"]["replicas"], 4);
    let patched = api
        .merge(&path, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .ok();
    assert_eq!(patched["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn the_last_label_leaves_nothing_behind() {
    let api = Api::start().await;
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({"a": "b"});
    object["metadata"]["annotations"] = json!({});
    let made = api.post(CONFIG_MAPS, &object).await.ok();
    assert!(made["metadata"].get("annotations").is_none(), "{made}");
    let none = json!({"metadata": {"labels": {"a": null}}});
    let path = format!("{CONFIG_MAPS}/a");
    let patched = api.merge(&path, &none).await.ok();
    assert!(patched["metadata"].get("labels").is_none(), "{patched}");
    // Nothing left to change: no new version.
    let again = api.merge(&path, &none).await.ok();
    assert_eq!(
        again["metadata"]["resourceVersion"],
        patched["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn concurrent_patches_all_arrive() {
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let patches = (0..20).map(|i| {
        let patch = json!({"data": {format!("k{i}"): "v"}});
        let (api, path) = (&api, &path);
        async move { api.merge(path, &patch).await.ok() }
    });
    futures::future::join_all(patches).await;
    assert_eq!(
        api.get(&path).await.ok()["data"].as_object().unwrap().len(),
        21
    );
}

#[tokio::test]
async fn pods_go_in_two_steps() {
    let api = Api::start().await;
    api.post(PODS, &pod("a")).await.ok();
    let bind = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    let bound = api.post(&format!("{PODS}/a/binding"), &bind).await;
    assert_eq!(bound.code.as_u16(), 201);
    assert_eq!(bound.json()["status"], "Success");
    api.post(&format!("{PODS}/a/binding"), &bind).await.refused(
        409,
        "Conflict",
        "pod a is already assigned to node \"n1\"",
    );
    let path = format!("{PODS}/a");
    assert_eq!(api.get(&path).await.ok()["spec"]["nodeName"], "n1");

    let going = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let first = going["metadata"]["deletionTimestamp"].clone();
    assert!(first.is_string());
    let again = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(
        again["metadata"]["deletionTimestamp"], first,
        "deleting twice changes nothing"
    );
    let sooner = api
        .delete(&path, &json!({"gracePeriodSeconds": 5}))
        .await
        .ok();
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    let uid = going["metadata"]["uid"].clone();
    let last = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    let gone = api.delete(&path, &last).await.ok();
    assert_eq!(gone["kind"], "Pod", "a pod's deletion answers the pod");
    api.get(&path).await.refused(404, "NotFound", "");

    api.post(PODS, &pod("never-scheduled")).await.ok();
    api.delete(&format!("{PODS}/never-scheduled"), &Value::Null)
        .await
        .ok();
    api.get(&format!("{PODS}/never-scheduled"))
        .await
        .refused(404, "NotFound", "");
}

#[tokio::test]
async fn finalizers_hold_and_the_last_one_lets_go() {
    let api = Api::start().await;
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["example.com/x"]);
    api.post(CONFIG_MAPS, &held).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let waiting = api.delete(&path, &Value::Null).await.ok();
    assert_eq!(waiting["kind"], "ConfigMap");
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    api.post(CONFIG_MAPS, &config_map("a")).await.refused(
        409,
        "AlreadyExists",
        "object is being deleted",
    );
    api.merge(
        &path,
        &json!({"metadata": {"finalizers": ["example.com/x", "example.com/y"]}}),
    )
    .await
    .refused(422, "Invalid", "finalizers");
    api.merge(&path, &json!({"metadata": {"finalizers": null}}))
        .await
        .ok();
    api.get(&path).await.refused(404, "NotFound", "");

    api.post(CONFIG_MAPS, &config_map("b")).await.ok();
    let status = api
        .delete(&format!("{CONFIG_MAPS}/b"), &Value::Null)
        .await
        .ok();
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(status["details"]["name"], "b");

    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        api.post(DEPLOYMENTS, &deployment("web")).await.ok();
        let path = format!("{DEPLOYMENTS}/web");
        let options = json!({"propagationPolicy": policy});
        let waiting = api.delete(&path, &options).await.ok();
        assert_eq!(waiting["metadata"]["finalizers"], json!([finalizer]));
        api.merge(&path, &json!({"metadata": {"finalizers": null}}))
            .await
            .ok();
        api.get(&path).await.refused(404, "NotFound", "");
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let api = Api::start().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut cm = config_map(name);
        cm["metadata"]["labels"] = json!({"app": app});
        api.post(CONFIG_MAPS, &cm).await.ok();
    }
    api.delete(
        &format!("{CONFIG_MAPS}?labelSelector=app%3Dx"),
        &Value::Null,
    )
    .await
    .ok();
    let left = api.get(CONFIG_MAPS).await.ok();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(left["items"][0]["metadata"]["name"], "c");
}

#[tokio::test]
async fn services_get_one_address_each_and_give_it_back() {
    let api = Api::start().await;
    let kubernetes = api.get(&format!("{SERVICES}/kubernetes")).await.ok();
    assert_eq!(kubernetes["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(kubernetes["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(kubernetes["spec"]["ipFamilyPolicy"], "SingleStack");
    let names: Vec<String> = (0..8).map(|i| format!("s{i}")).collect();
    let made = futures::future::join_all(names.iter().map(|n| {
        let (api, object) = (&api, service(n));
        async move { api.post(SERVICES, &object).await.ok() }
    }))
    .await;
    let ips: BTreeSet<String> = made
        .iter()
        .map(|s| s["spec"]["clusterIP"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ips.len(), names.len(), "no address twice");

    let mut changed = made[0].clone();
    changed["metadata"]["labels"] = json!({"a": "b"});
    changed["spec"].as_object_mut().unwrap().remove("clusterIP");
    changed["spec"]
        .as_object_mut()
        .unwrap()
        .remove("clusterIPs");
    let kept = api.put(&format!("{SERVICES}/s0"), &changed).await.ok();
    assert_eq!(
        kept["spec"]["clusterIP"], made[0]["spec"]["clusterIP"],
        "stable"
    );

    let ip = made[1]["spec"]["clusterIP"].clone();
    api.delete(&format!("{SERVICES}/s1"), &Value::Null)
        .await
        .ok();
    let mut again = service("again");
    again["spec"]["clusterIP"] = ip.clone();
    assert_eq!(
        api.post(SERVICES, &again).await.ok()["spec"]["clusterIP"],
        ip
    );

    let external = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
        "spec": {"type": "ExternalName", "externalName": "example.com"}});
    let external = api.post(SERVICES, &external).await.ok();
    assert!(external["spec"].get("clusterIP").is_none());
    let inward =
        json!({"spec": {"type": "ClusterIP", "externalName": null, "ports": [{"port": 1}]}});
    let inward = api.merge(&format!("{SERVICES}/ext"), &inward).await.ok();
    assert!(
        inward["spec"]["clusterIP"]
            .as_str()
            .unwrap()
            .starts_with("10.96."),
        "{inward}"
    );
}

#[tokio::test]
async fn events_are_the_same_in_both_versions() {
    let api = Api::start().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "Started", "message": "m", "type": "Normal", "source": {"component": "kubelet"}});
    api.post("/api/v1/namespaces/default/events", &event)
        .await
        .ok();
    let other = api
        .get("/apis/events.k8s.io/v1/namespaces/default/events/e")
        .await
        .ok();
    assert_eq!(other["apiVersion"], "events.k8s.io/v1");
    assert_eq!(other["regarding"]["name"], "p");
    assert_eq!(other["note"], "m");
    let selected = api
        .get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp,reason%3DStarted")
        .await
        .ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    api.store.advance(2 * 3600);
    api.get("/api/v1/namespaces/default/events/e")
        .await
        .refused(404, "NotFound", "");
}

#[tokio::test]
async fn leases_are_created_by_update_when_missing() {
    let api = Api::start().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40}});
    let answer = api.put(path, &lease).await;
    assert_eq!(answer.code.as_u16(), 201, "{}", answer.text());
    let made = answer.json();
    let mut renewed = made.clone();
    renewed["spec"]["renewTime"] = json!("2026-01-01T00:00:00.000000Z");
    assert_eq!(api.put(path, &renewed).await.code.as_u16(), 200);
}

#[tokio::test]
async fn a_restart_on_the_embedded_store_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen: Vec<Value> = Vec::new();
    for round in 0..2 {
        let member = kvserver::Config::new(dir.path().join("data"));
        let member = kvserver::Server::start(member).await.unwrap();
        let store = apiserver::StoreSource::Embedded(member.handle.clone());
        let api = Api::over(store, dir.path().join("pki")).await;
        if round == 0 {
            api.post(DEPLOYMENTS, &deployment("web")).await.ok();
            api.post(SERVICES, &service("web")).await.ok();
        } else {
            let more = api.post(SERVICES, &service("more")).await.ok();
            assert_ne!(more["spec"]["clusterIP"], seen[1]["spec"]["clusterIP"]);
            api.delete(&format!("{SERVICES}/more"), &Value::Null)
                .await
                .ok();
        }
        let now = vec![
            api.get(&format!("{DEPLOYMENTS}/web")).await.ok(),
            api.get(&format!("{SERVICES}/web")).await.ok(),
            api.get(&format!("{SERVICES}/kubernetes")).await.ok(),
            api.get("/api/v1/namespaces/default").await.ok(),
        ];
        if round == 1 {
            assert_eq!(now, seen, "same uids, versions, addresses");
        }
        seen = now;
        api.running.shutdown().await;
        member.shutdown().await;
    }
}

/// Many who patch one object at once all get through, and each patch counts.
#[tokio::test]
async fn a_hot_object_takes_every_patch() {
    const WRITERS: usize = 32;
    const EACH: usize = 4;
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("hot")).await.ok();
    let hot = &format!("{CONFIG_MAPS}/hot");
    let api = &api;
    let writers = (0..WRITERS).map(|writer| async move {
        let mut versions = Vec::new();
        for n in 0..EACH {
            let patch = json!({"data": {format!("w{writer}"): n.to_string()}});
            let patched = api.merge(hot, &patch).await.ok();
            let version = patched["metadata"]["resourceVersion"].as_str();
            versions.push(version.unwrap().parse::<u64>().unwrap());
        }
        versions
    });
    let versions = futures::future::join_all(writers).await.concat();
    // Each was a write of its own.
    let distinct: BTreeSet<u64> = versions.iter().copied().collect();
    assert_eq!(distinct.len(), WRITERS * EACH);
    let after = api.get(hot).await.ok();
    for writer in 0..WRITERS {
        let last = (EACH - 1).to_string();
        assert_eq!(after["data"][format!("w{writer}")], last.as_str());
    }
}
