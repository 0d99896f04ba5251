//! Every kind of the core, apps, batch, autoscaling, policy and discovery groups
//! over HTTP; evictions; the parts of pods that have doors of their own.

use http::Method;
use http::header::WARNING;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, PODS, deployment, pod};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const NAMESPACE: &str = "namespaces/default/";

/// A kind to walk through: its path but for the name, an object of it, and, if
/// it has one, a status that may be patched in.
pub(crate) struct Case {
    pub(crate) path: String,
    pub(crate) object: Value,
    status: Value,
}

fn case(base: &str, plural: &str, object: Value, status: Value) -> Case {
    let scope = if plural == "persistentvolumes" {
        ""
    } else {
        NAMESPACE
    };
    Case {
        path: format!("{base}/{scope}{plural}"),
        object,
        status,
    }
}

fn template(policy: &str) -> Value {
    json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}})
}

#[allow(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn cases() -> Vec<Case> {
    let selector = json!({"matchLabels": {"app": "x"}});
    let always = template("Always");
    let job = json!({"template": template("Never")});
    let scaled = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
    let (core, apps) = ("/api/v1", "/apis/apps/v1");
    let (batch, policy) = ("/apis/batch/v1", "/apis/policy/v1");
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/d"}});
    let replicas = json!({"replicas": 1});
    vec![
        case(
            core,
            "replicationcontrollers",
            json!({"spec": {"template": always}}),
            replicas.clone(),
        ),
        case(
            core,
            "podtemplates",
            json!({"template": always}),
            Value::Null,
        ),
        case(
            core,
            "endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}),
            Value::Null,
        ),
        case(
            core,
            "limitranges",
            json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
            Value::Null,
        ),
        case(
            core,
            "resourcequotas",
            json!({"spec": {"hard": {"pods": "1"}}}),
            json!({"hard": {"pods": "1"}, "used": {"pods": "0"}}),
        ),
        case(
            core,
            "persistentvolumes",
            json!({"spec": volume}),
            json!({"phase": "Available"}),
        ),
        case(
            core,
            "persistentvolumeclaims",
            json!({"spec": claim}),
            json!({"phase": "Lost"}),
        ),
        case(
            apps,
            "statefulsets",
            json!({"spec": {"selector": selector, "template": always}}),
            replicas.clone(),
        ),
        case(
            apps,
            "daemonsets",
            json!({"spec": {"selector": selector, "template": always}}),
            json!({"numberReady": 1}),
        ),
        case(
            apps,
            "controllerrevisions",
            json!({"revision": 1, "data": {"a": 1}}),
            Value::Null,
        ),
        case(batch, "jobs", json!({"spec": job}), json!({"active": 1})),
        case(
            batch,
            "cronjobs",
            json!({"spec": {"schedule": "@daily", "jobTemplate": {"spec": job}}}),
            json!({"lastScheduleTime": "2026-01-01T00:00:00Z"}),
        ),
        case(
            "/apis/autoscaling/v2",
            "horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 2, "scaleTargetRef": scaled}}),
            json!({"currentReplicas": 1, "desiredReplicas": 1}),
        ),
        case(
            "/apis/autoscaling/v1",
            "horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 2, "scaleTargetRef": scaled}}),
            json!({"currentReplicas": 1, "desiredReplicas": 1}),
        ),
        case(
            policy,
            "poddisruptionbudgets",
            json!({"spec": {"selector": selector, "minAvailable": 1}}),
            json!({"expectedPods": 1}),
        ),
        case(
            "/apis/discovery.k8s.io/v1",
            "endpointslices",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            Value::Null,
        ),
    ]
}

#[tokio::test]
async fn every_kind_is_created_shown_changed_and_deleted() {
    let api = Api::start().await;
    for mut case in cases() {
        case.object["metadata"] = json!({"name": "x"});
        let object = format!("{}/x", case.path);
        let made = api.post(&case.path, &case.object).await.ok();
        assert_eq!(made["metadata"]["name"], "x", "{object}");
        // What was answered is what is stored, and can be put back unchanged.
        let version = made["metadata"]["resourceVersion"].clone();
        assert_eq!(api.get(&object).await.ok(), made, "{object}");
        let again = api.put(&object, &made).await.ok();
        assert_eq!(again["metadata"]["resourceVersion"], version, "{object}");
        // Some kinds have objects from the start.
        let alone = format!("{}?fieldSelector=metadata.name%3Dx", case.path);
        let table = api.get_as(&alone, TABLE).await.ok();
        assert_eq!(table["kind"], "Table", "{object}");
        let columns = table["columnDefinitions"].as_array().unwrap();
        let cells = table["rows"][0]["cells"].as_array().unwrap();
        assert_eq!(
            (columns.len(), &cells[0]),
            (cells.len(), &json!("x")),
            "{object}"
        );
        if !case.status.is_null() {
            let change = json!({"status": case.status, "spec": {"ignored": true}});
            let changed = api.merge(&format!("{object}/status"), &change).await.ok();
            for (name, value) in case.status.as_object().unwrap() {
                assert_eq!(&changed["status"][name], value, "{object}");
            }
            assert_eq!(changed["spec"], made["spec"], "{object}");
            let own = made["metadata"]["generation"].clone();
            assert_eq!(changed["metadata"]["generation"], own, "{object}");
        }
        let options = json!({"propagationPolicy": "Background"});
        api.delete(&object, &options).await.ok();
        api.get(&object)
            .await
            .refused(404, "NotFound", "\"x\" not found");
    }
}

fn warning(answer: &Answer) -> String {
    let found = answer.headers.get_all(WARNING).iter();
    found
        .map(|v| v.to_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

#[tokio::test]
async fn what_is_deprecated_or_surprising_is_warned_of() {
    let api = Api::start().await;
    let answer = api.get("/api/v1/endpoints").await;
    assert!(warning(&answer).contains("v1 Endpoints is deprecated in v1.33+"));
    let answer = api.get_as("/api/v1/componentstatuses", TABLE).await;
    assert!(warning(&answer).contains("v1 ComponentStatus is deprecated in v1.19+"));
    assert_eq!(
        answer.ok()["rows"][0]["cells"],
        json!(["etcd-0", "Healthy", "ok", ""])
    );
    let one = api.get("/api/v1/componentstatuses/etcd-0").await.ok();
    assert_eq!(one["conditions"][0]["status"], "True");
    api.get("/api/v1/componentstatuses/none")
        .await
        .refused(404, "NotFound", "");
    api.delete("/api/v1/componentstatuses/etcd-0", &Value::Null)
        .await
        .refused(405, "MethodNotAllowed", "");
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "x"}, "spec": {"template": template("Never")}});
    let made = api.post(jobs, &job).await.ok();
    let uid = &made["metadata"]["uid"];
    let labels = &made["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&labels["batch.kubernetes.io/controller-uid"], uid);
    assert_eq!(labels["job-name"], "x");
    let chosen = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    assert_eq!(made["spec"]["selector"], chosen);
    let answer = api.delete(&format!("{jobs}/x"), &Value::Null).await;
    assert!(warning(&answer).contains("child pods are preserved by default when jobs are deleted"));
    assert_eq!(answer.ok()["metadata"]["finalizers"], json!(["orphan"]));
}

#[tokio::test]
async fn one_autoscaler_is_served_in_two_versions() {
    let api = Api::start().await;
    let new = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let old = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let object = json!({"metadata": {"name": "x"}, "spec": {"maxReplicas": 3,
        "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [
            {"type": "Resource", "resource": {"name": "memory",
                "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            {"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 70}}}]}});
    let made = api.post(new, &object).await.ok();
    let mut shown = api.get(&format!("{old}/x")).await.ok();
    assert_eq!(shown["apiVersion"], "autoscaling/v1");
    assert_eq!(shown["spec"]["targetCPUUtilizationPercentage"], 70);
    let kept = "autoscaling.alpha.kubernetes.io/metrics";
    assert_eq!(
        shown["metadata"]["annotations"][kept],
        "[{\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"1Gi\"},\"type\":\"Resource\"}]"
    );
    shown["spec"]["maxReplicas"] = json!(4);
    api.put(&format!("{old}/x"), &shown).await.ok();
    let now = api.get(&format!("{new}/x")).await.ok();
    assert_eq!(now["spec"]["maxReplicas"], 4);
    assert_eq!(now["spec"]["metrics"], made["spec"]["metrics"]);
    assert_eq!(now["metadata"].get("annotations"), None);
    let group = api.get("/apis/autoscaling").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let mut watch = api
        .watch(&format!("{old}?watch=true&resourceVersion=0"))
        .await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["apiVersion"], "autoscaling/v1");
}

#[tokio::test]
async fn groups_are_listed_in_the_order_clients_prefer() {
    let api = Api::start().await;
    let list = api.get("/apis").await.ok();
    let names: Vec<&str> = list["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["name"].as_str().unwrap())
        .collect();
    let place = |name: &str| names.iter().position(|n| *n == name).unwrap();
    let order = [
        "apps",
        "events.k8s.io",
        "autoscaling",
        "batch",
        "policy",
        "coordination.k8s.io",
        "discovery.k8s.io",
    ];
    let places = order.map(place);
    assert!(places.is_sorted(), "{names:?}");
    let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let list = api.get_as("/apis", v2).await.ok();
    let groups = list["items"].as_array().unwrap();
    let found: Vec<&str> = groups
        .iter()
        .map(|g| g["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(found, names);
    let scaling = groups
        .iter()
        .find(|g| g["metadata"]["name"] == "autoscaling")
        .unwrap();
    assert_eq!(
        (
            &scaling["versions"][0]["version"],
            &scaling["versions"][1]["version"]
        ),
        (&json!("v2"), &json!("v1"))
    );
}

#[tokio::test]
async fn workloads_are_scaled() {
    let api = Api::start().await;
    let object =
        json!({"metadata": {"name": "x"}, "spec": {"replicas": 2, "template": template("Always")}});
    let path = "/api/v1/namespaces/default/replicationcontrollers";
    api.post(path, &object).await.ok();
    let scale = api.get(&format!("{path}/x/scale")).await.ok();
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]["selector"]),
        (&json!(2), &json!("app=x"))
    );
    let change = json!({"spec": {"replicas": 5}});
    api.merge(&format!("{path}/x/scale"), &change).await.ok();
    assert_eq!(
        api.get(&format!("{path}/x")).await.ok()["spec"]["replicas"],
        5
    );
    let mut object = deployment("x");
    object["apiVersion"] = json!("apps/v1");
    object["kind"] = json!("StatefulSet");
    let path = "/apis/apps/v1/namespaces/default/statefulsets";
    api.post(path, &object).await.ok();
    let scaled = api.merge(&format!("{path}/x/scale"), &change).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 5);
    let selected = api
        .get("/api/v1/replicationcontrollers?fieldSelector=status.replicas%3D0")
        .await
        .ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
}

/// Creates a pod of app `x` that runs, and is ready or not.
async fn running(api: &Api, name: &str, ready: &str) {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "x"});
    api.post(PODS, &object).await.ok();
    let status = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": ready}]}});
    api.merge(&format!("{PODS}/{name}/status"), &status)
        .await
        .ok();
}

async fn evict(api: &Api, name: &str, options: Value) -> Answer {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"}, "deleteOptions": options});
    api.post(&format!("{PODS}/{name}/eviction"), &body).await
}

#[tokio::test]
async fn budgets_allow_and_refuse_evictions() {
    let api = Api::start().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1,
        "selector": {"matchLabels": {"app": "x"}}}});
    api.post(budgets, &budget).await.ok();
    running(&api, "p", "True").await;
    running(&api, "q", "True").await;
    let refused = evict(&api, "p", json!({})).await;
    let refused = refused.refused(429, "TooManyRequests", "");
    assert_eq!(refused["details"]["retryAfterSeconds"], 10);
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1,
        "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}});
    api.merge(&format!("{budgets}/b/status"), &status)
        .await
        .ok();
    evict(&api, "p", json!({"dryRun": ["All"]})).await.ok();
    let left = |budget: Value| budget["status"]["disruptionsAllowed"].clone();
    assert_eq!(left(api.get(&format!("{budgets}/b")).await.ok()), 1);
    evict(&api, "p", json!({})).await.ok();
    api.get(&format!("{PODS}/p"))
        .await
        .refused(404, "NotFound", "");
    let budget = api.get(&format!("{budgets}/b")).await.ok();
    assert!(budget["status"]["disruptedPods"]["p"].is_string());
    assert_eq!(left(budget), 0);
    let words = "Cannot evict pod as it would violate the pod's disruption budget.";
    let refused = evict(&api, "q", json!({}))
        .await
        .refused(429, "TooManyRequests", words);
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    // A pod that is not ready is not what keeps the application going.
    running(&api, "r", "False").await;
    evict(&api, "r", json!({})).await.ok();
    // One that waits can go, and one that says which it is meant to be.
    api.post(PODS, &pod("w")).await.ok();
    let stale = json!({"preconditions": {"uid": "other"}});
    evict(&api, "w", stale)
        .await
        .refused(409, "Conflict", "the UID in the precondition (other)");
    evict(&api, "w", json!({})).await.ok();
    evict(&api, "none", json!({}))
        .await
        .refused(404, "NotFound", "");
    // Two budgets cannot be asked.
    let second = json!({"metadata": {"name": "c"}, "spec": {"maxUnavailable": 1,
        "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}});
    api.post(budgets, &second).await.ok();
    evict(&api, "q", json!({})).await.refused(
        500,
        "InternalError",
        "more than one PodDisruptionBudget",
    );
    // A budget is not overwritten unread.
    let unread = json!({"metadata": {"name": "c"}, "spec": {"maxUnavailable": 2}});
    api.put(&format!("{budgets}/c"), &unread).await.refused(
        422,
        "Invalid",
        "must be specified for an update",
    );
}

#[tokio::test]
async fn an_evicted_pod_that_ends_gracefully_says_why() {
    let api = Api::start().await;
    let mut object = pod("p");
    object["spec"]["nodeName"] = json!("n");
    api.post(PODS, &object).await.ok();
    let status = json!({"status": {"phase": "Running"}});
    api.merge(&format!("{PODS}/p/status"), &status).await.ok();
    evict(&api, "p", json!({})).await.ok();
    let pod = api.get(&format!("{PODS}/p")).await.ok();
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let condition = &pod["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI"))
    );
}

#[tokio::test]
async fn parts_of_a_pod_have_doors_of_their_own() {
    let api = Api::start().await;
    let mut object = pod("p");
    object["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let made = api.post(PODS, &object).await.ok();
    let door = format!("{PODS}/p/ephemeralcontainers");
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "busybox"}]}});
    let patch = |path: String, body: Value| {
        let api = &api;
        async move {
            let ty = "application/strategic-merge-patch+json";
            api.call(Method::PATCH, &path, ty, body.to_string()).await
        }
    };
    let changed = patch(door.clone(), debug).await.ok();
    let added = &changed["spec"]["ephemeralContainers"][0];
    assert_eq!(
        (&added["name"], &added["imagePullPolicy"]),
        (&json!("d"), &json!("Always"))
    );
    assert_eq!(changed["metadata"]["generation"], 2);
    let mut other = api.get(&door).await.ok();
    other["spec"]["ephemeralContainers"] = json!([]);
    api.put(&door, &other).await.refused(
        422,
        "Invalid",
        "existing ephemeral containers \"d\" may not be removed",
    );
    let door = format!("{PODS}/p/resize");
    let more = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]}});
    let resized = patch(door.clone(), more).await.ok();
    assert_eq!(
        resized["spec"]["containers"][0]["resources"]["requests"]["cpu"],
        "200m"
    );
    let less =
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": null}}}]}});
    patch(door.clone(), less)
        .await
        .refused(422, "Invalid", "resource requests cannot be removed");
    let mut stale = made;
    stale["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("300m");
    api.put(&door, &stale)
        .await
        .refused(409, "Conflict", "the object has been modified");
    let mut object = pod("e");
    object["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "i"}]);
    api.post(PODS, &object).await.refused(
        422,
        "Invalid",
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    );
}
