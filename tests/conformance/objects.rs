//! The life of single kinds with rules of their own: namespaces, config maps, secrets,
//! quotas, limits, priorities, services, events.

use serde_json::{Value, json};

use crate::api::{Api, MERGE, STRATEGIC, names};
use crate::harness::until;
use crate::kinds::{Subject, contains, discovered};

/// Reads an object, changes it and writes it back, however often others write meanwhile.
fn change(api: &Api, path: &str, change: impl Fn(&mut Value)) -> Value {
    until("a change", || {
        let mut object = api.get(path).ok();
        change(&mut object);
        let answer = api.put(path, &object);
        match answer.code {
            409 => Err(answer.text()),
            _ => Ok(answer.ok()),
        }
    })
}

pub(crate) fn namespace_patch(api: &Api) {
    let path = format!("/api/v1/namespaces/{}", api.namespace());
    let patch = json!({"metadata": {"labels": {"testLabel": "testValue"}}});
    api.patch(&path, STRATEGIC, &patch).ok();
    let read = api.get(&path).ok();
    assert_eq!(read["metadata"]["labels"]["testLabel"], "testValue");
}

pub(crate) fn namespace_update(api: &Api) {
    let path = format!("/api/v1/namespaces/{}", api.namespace());
    let updated = change(api, &path, |object| {
        object["metadata"]["labels"]["updated"] = json!("yes");
    });
    assert_eq!(updated["metadata"]["labels"]["updated"], "yes");
    assert_eq!(api.get(&path).ok()["metadata"]["labels"]["updated"], "yes");
}

pub(crate) fn namespace_status(api: &Api) {
    let path = format!("/api/v1/namespaces/{}/status", api.namespace());
    let read = api.get(&path).ok();
    assert_eq!(read["status"]["phase"], "Active");
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "E2E", "message": "Set by a test"});
    let patch = json!({"metadata": {"annotations": {"e2e-patched": "true"}},
        "status": {"conditions": [condition("StatusPatch")]}});
    let patched = api.patch(&path, MERGE, &patch).ok();
    assert_eq!(patched["metadata"]["annotations"]["e2e-patched"], "true");
    assert_eq!(patched["status"]["conditions"][0]["type"], "StatusPatch");
    let updated = change(api, &path, |object| {
        let conditions = object["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(condition("StatusUpdate"));
    });
    let conditions = &updated["status"]["conditions"];
    assert!(
        contains(&conditions[1], &condition("StatusUpdate")),
        "{updated}"
    );
    assert_eq!(updated["status"]["phase"], "Active");
}

pub(crate) fn namespace_finalizer(api: &Api) {
    let path = format!("/api/v1/namespaces/{}", api.namespace());
    let finalize = format!("{path}/finalize");
    let fake = json!("e2e.example.com/fakeFinalizer");
    until("the finalizer", || {
        let mut object = api.get(&path).ok();
        let list = object["spec"]["finalizers"].as_array_mut().unwrap();
        list.push(fake.clone());
        let answer = api.put(&finalize, &object);
        match answer.code {
            409 => Err(answer.text()),
            _ => Ok(answer.ok()),
        }
    });
    let read = api.get(&path).ok();
    assert_eq!(read["spec"]["finalizers"], json!(["kubernetes", fake]));
    let mut object = read;
    object["spec"]["finalizers"] = json!(["kubernetes"]);
    api.put(&finalize, &object).ok();
    let read = api.get(&path).ok();
    assert_eq!(read["spec"]["finalizers"], json!(["kubernetes"]));
}

pub(crate) fn namespace_takes_services(api: &Api) {
    let namespace = api.namespace();
    let path = format!("/api/v1/namespaces/{namespace}");
    let services = format!("{path}/services");
    api.post(&services, &service("held", &json!({}))).ok();
    assert!(api.delete(&path).code < 300);
    api.await_gone(&path);
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    api.post("/api/v1/namespaces", &namespace).ok();
    assert_eq!(names(&api.get(&services).ok()), [""; 0]);
}

fn map(name: &str, labels: &Value, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": name, "labels": labels}})
}

fn secret(name: &str, labels: &Value, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {"name": name, "labels": labels}})
}

pub(crate) fn config_map_empty_key(api: &Api) {
    let path = format!("/api/v1/namespaces/{}/configmaps", api.namespace());
    let answer = api.post(&path, &map("empty", &json!({}), &json!({"": "value"})));
    let message = answer.refused(422);
    assert!(
        message.contains("a valid config key must consist of"),
        "{message}"
    );
}

pub(crate) fn secret_empty_key(api: &Api) {
    let path = format!("/api/v1/namespaces/{}/secrets", api.namespace());
    let answer = api.post(
        &path,
        &secret("empty", &json!({}), &json!({"": "dmFsdWU="})),
    );
    let message = answer.refused(422);
    assert!(
        message.contains("a valid config key must consist of"),
        "{message}"
    );
}

pub(crate) fn config_map_lifecycle(api: &Api) {
    let namespace = api.namespace();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let labels = json!({"test-configmap-static": namespace});
    let watch = api.watch(&format!(
        "{path}?labelSelector=test-configmap-static%3D{namespace}"
    ));
    api.post(&path, &map("cm", &labels, &json!({"valueName": "value"})))
        .ok();
    watch.expect("ADDED", "cm");
    let patch = json!({"metadata": {"labels": {"test-configmap": "patched"}},
        "data": {"valueName": "value1"}});
    api.patch(&format!("{path}/cm"), STRATEGIC, &patch).ok();
    watch.expect("MODIFIED", "cm");
    let read = api.get(&format!("{path}/cm")).ok();
    assert_eq!(read["data"]["valueName"], "value1");
    assert_eq!(read["metadata"]["labels"]["test-configmap"], "patched");
    let selected = format!("/api/v1/configmaps?labelSelector=test-configmap-static%3D{namespace}");
    let all = api.get(&selected).ok();
    assert_eq!(names(&all), ["cm"]);
    assert_eq!(all["items"][0]["data"]["valueName"], "value1");
    let query = format!("{path}?labelSelector=test-configmap-static%3D{namespace}");
    assert!(api.delete(&query).code < 300);
    watch.expect("DELETED", "cm");
    assert_eq!(names(&api.get(&selected).ok()), [""; 0]);
}

pub(crate) fn secret_patch(api: &Api) {
    let namespace = api.namespace();
    let path = format!("/api/v1/namespaces/{namespace}/secrets");
    let labels = json!({"testsecret-constant": namespace});
    api.post(&path, &secret("s", &labels, &json!({"key": "dmFsdWU="})))
        .ok();
    let selected = format!("/api/v1/secrets?labelSelector=testsecret-constant%3D{namespace}");
    assert_eq!(names(&api.get(&selected).ok()), ["s"]);
    let patch =
        json!({"metadata": {"labels": {"testsecret": "true"}}, "data": {"key": "dmFsdWUx"}});
    api.patch(&format!("{path}/s"), STRATEGIC, &patch).ok();
    let read = api.get(&format!("{path}/s")).ok();
    assert_eq!(read["data"]["key"], "dmFsdWUx");
    assert_eq!(read["metadata"]["labels"]["testsecret"], "true");
    let query = format!("{path}?labelSelector=testsecret-constant%3D{namespace}");
    assert!(api.delete(&query).code < 300);
    assert_eq!(names(&api.get(&selected).ok()), [""; 0]);
}

/// What is marked immutable keeps its data and the mark, and may be labelled and go.
fn immutable(api: &Api, collection: &str, object: &Value) {
    let path = format!("/api/v1/namespaces/{}/{collection}", api.namespace());
    api.post(&path, object).ok();
    let one = format!("{path}/fixed");
    change(api, &one, |o| o["data"]["key"] = json!("Yg=="));
    change(api, &one, |o| o["immutable"] = json!(true));
    let refused = |edit: &dyn Fn(&mut Value)| {
        let mut object = api.get(&one).ok();
        edit(&mut object);
        let message = api.put(&one, &object).refused(422);
        assert!(
            message.contains("field is immutable when `immutable` is set"),
            "{message}"
        );
    };
    refused(&|o| o["data"]["key"] = json!("Yw=="));
    refused(&|o| o["immutable"] = json!(false));
    refused(&|o| {
        o.as_object_mut().unwrap().remove("immutable");
    });
    change(api, &one, |o| o["metadata"]["labels"] = json!({"a": "b"}));
    let read = api.get(&one).ok();
    assert_eq!(
        (&read["data"]["key"], &read["immutable"]),
        (&json!("Yg=="), &json!(true))
    );
    assert!(api.delete(&one).code < 300);
    api.get(&one).refused(404);
}

pub(crate) fn config_map_immutable(api: &Api) {
    immutable(
        api,
        "configmaps",
        &map("fixed", &json!({}), &json!({"key": "YQ=="})),
    );
}

pub(crate) fn secret_immutable(api: &Api) {
    immutable(
        api,
        "secrets",
        &secret("fixed", &json!({}), &json!({"key": "YQ=="})),
    );
}

pub(crate) fn service_account_update(api: &Api) {
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", api.namespace());
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}});
    let made = api.post(&path, &account).ok();
    assert!(made.get("automountServiceAccountToken").is_none(), "{made}");
    let one = format!("{path}/sa");
    change(api, &one, |o| {
        o["automountServiceAccountToken"] = json!(true)
    });
    assert_eq!(api.get(&one).ok()["automountServiceAccountToken"], true);
}

/// Every namespace has the authority's certificate, and gets it back.
pub(crate) fn root_authority(api: &Api) {
    let path = format!(
        "/api/v1/namespaces/{}/configmaps/kube-root-ca.crt",
        api.namespace()
    );
    let whole = |map: &Value| {
        let text = map["data"]["ca.crt"].as_str().unwrap_or_default();
        text.contains("BEGIN CERTIFICATE")
    };
    let made = api.await_object(&path, "the authority", whole);
    assert!(api.delete(&path).code < 300);
    let uid = &made["metadata"]["uid"];
    api.await_object(&path, "another one", |map| {
        whole(map) && map["metadata"]["uid"] != *uid
    });
    let patch = json!({"data": {"ca.crt": ""}});
    api.patch(&path, MERGE, &patch).ok();
    api.await_object(&path, "what it was", |map| map["data"] == made["data"]);
}

pub(crate) fn subject_reviews(api: &Api) {
    let namespace = api.namespace();
    let root = "/apis/authorization.k8s.io/v1";
    let attributes = json!({"verb": "list", "resource": "configmaps",
        "namespace": namespace, "version": "v1"});
    let review = |kind: &str, user: &str, groups: &Value| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind,
            "metadata": {"namespace": if kind.starts_with("Local") { &namespace } else { "" }},
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes}})
    };
    let nobody = format!("system:serviceaccount:{namespace}:nobody");
    let accounts = json!(["system:serviceaccounts", "system:authenticated"]);
    let local = format!("{root}/namespaces/{namespace}/localsubjectaccessreviews");
    let everywhere = format!("{root}/subjectaccessreviews");
    for (path, kind) in [
        (&everywhere, "SubjectAccessReview"),
        (&local, "LocalSubjectAccessReview"),
    ] {
        let answer = api.post(path, &review(kind, &nobody, &accounts)).ok();
        assert_eq!(answer["status"]["allowed"], false, "{answer}");
        let answer = api
            .post(path, &review(kind, "root", &json!(["system:masters"])))
            .ok();
        assert_eq!(answer["status"]["allowed"], true, "{answer}");
    }
    // And so it is for whoever asks for himself.
    let own = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    let answer = api
        .post(&format!("{root}/selfsubjectaccessreviews"), &own)
        .ok();
    assert_eq!(answer["status"]["allowed"], true, "{answer}");
    api.get(&format!("/api/v1/namespaces/{namespace}/configmaps"))
        .ok();
}

fn quota(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": name, "labels": labels},
        "spec": {"hard": {"cpu": "500m", "memory": "500Mi"}}})
}

pub(crate) fn quota_update(api: &Api) {
    let path = format!("/api/v1/namespaces/{}/resourcequotas", api.namespace());
    let made = api.post(&path, &quota("q", &json!({}))).ok();
    assert_eq!(
        made["spec"]["hard"],
        json!({"cpu": "500m", "memory": "500Mi"})
    );
    let one = format!("{path}/q");
    change(api, &one, |o| {
        o["spec"]["hard"] = json!({"cpu": "1", "memory": "1Gi"})
    });
    let read = api.get(&one).ok();
    assert_eq!(read["spec"]["hard"], json!({"cpu": "1", "memory": "1Gi"}));
    assert!(api.delete(&one).code < 300);
    api.get(&one).refused(404);
}

pub(crate) fn quota_lifecycle(api: &Api) {
    let namespace = api.namespace();
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    api.post(&path, &quota("q", &json!({"e2e-quota": namespace})))
        .ok();
    let selected = format!("/api/v1/resourcequotas?labelSelector=e2e-quota%3D{namespace}");
    assert_eq!(names(&api.get(&selected).ok()), ["q"]);
    let patch =
        json!({"metadata": {"labels": {"patched": "yes"}}, "spec": {"hard": {"memory": "750Mi"}}});
    let patched = api.patch(&format!("{path}/q"), STRATEGIC, &patch).ok();
    assert_eq!(
        patched["spec"]["hard"],
        json!({"cpu": "500m", "memory": "750Mi"})
    );
    assert_eq!(patched["metadata"]["labels"]["patched"], "yes");
    let query = format!("{path}?labelSelector=patched%3Dyes");
    assert!(api.delete(&query).code < 300);
    assert_eq!(names(&api.get(&selected).ok()), [""; 0]);
}

pub(crate) fn quota_status(api: &Api) {
    let path = format!("/api/v1/namespaces/{}/resourcequotas", api.namespace());
    api.post(&path, &quota("q", &json!({}))).ok();
    let status = format!("{path}/q/status");
    let hard = |cpu: &str| json!({"cpu": cpu, "memory": "500Mi"});
    let updated = change(api, &status, |o| {
        o["status"] = json!({"hard": hard("500m"), "used": {"cpu": "0", "memory": "0"}});
        o["spec"]["hard"] = json!({"cpu": "9"});
    });
    assert_eq!(updated["status"]["hard"], hard("500m"));
    assert_eq!(
        updated["spec"]["hard"],
        hard("500m"),
        "the spec is not the status's"
    );
    let patch = json!({"spec": {"hard": hard("1")}});
    assert_eq!(
        api.patch(&format!("{path}/q"), MERGE, &patch).ok()["spec"]["hard"],
        hard("1")
    );
    let patch = json!({"status": {"hard": hard("1")}});
    assert_eq!(
        api.patch(&status, MERGE, &patch).ok()["status"]["hard"],
        hard("1")
    );
    let patch = json!({"spec": {"hard": hard("2")}, "status": {"hard": hard("3")}});
    let patched = api.patch(&status, MERGE, &patch).ok();
    assert_eq!(patched["spec"]["hard"], hard("1"));
    // A controller that counts may have put the spec's hard limits back already.
    assert_eq!(api.get(&status).ok()["spec"]["hard"], hard("1"));
}

pub(crate) fn limit_ranges(api: &Api) {
    let namespaces = [api.namespace(), api.namespace()];
    let label = api.name("limits");
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/limitranges");
    for namespace in &namespaces {
        let object = json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "l", "labels": {"e2e-limit": label, "in": namespace}},
            "spec": {"limits": [{"type": "Container",
                "max": {"cpu": "500m"}, "min": {"cpu": "50m"},
                "default": {"cpu": "400m"}, "defaultRequest": {"cpu": "100m"}}]}});
        api.post(&path(namespace), &object).ok();
    }
    let selected = format!("/api/v1/limitranges?labelSelector=e2e-limit%3D{label}");
    assert_eq!(names(&api.get(&selected).ok()).len(), 2);
    let first = &namespaces[0];
    let patch = json!({"metadata": {"labels": {"l": "patched"}},
        "spec": {"limits": [{"type": "Container",
            "max": {"cpu": "500m"}, "min": {"cpu": "40m"},
            "default": {"cpu": "400m"}, "defaultRequest": {"cpu": "100m"}}]}});
    let patched = api
        .patch(&format!("{}/l", path(first)), STRATEGIC, &patch)
        .ok();
    assert_eq!(patched["spec"]["limits"][0]["min"]["cpu"], "40m");
    assert_eq!(patched["spec"]["limits"].as_array().unwrap().len(), 1);
    let query = format!("{}?labelSelector=l%3Dpatched", path(first));
    assert!(api.delete(&query).code < 300);
    let left = api.get(&selected).ok();
    assert_eq!(names(&left).len(), 1);
    assert_eq!(left["items"][0]["metadata"]["namespace"], namespaces[1]);
}

pub(crate) fn priority_classes(api: &Api) {
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let label = api.name("priority");
    let made: Vec<String> = (1..=2)
        .map(|number| {
            let name = format!("{label}-{number}");
            let object = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name, "labels": {"e2e": label}}, "value": number});
            api.post(path, &object).ok();
            name
        })
        .collect();
    let list = api.get(&format!("{path}?labelSelector=e2e%3D{label}")).ok();
    assert_eq!(names(&list), made);
    for (number, name) in (1..=2).zip(&made) {
        let one = format!("{path}/{name}");
        let patched = api
            .patch(&one, MERGE, &json!({"description": "patched"}))
            .ok();
        assert_eq!(patched["description"], "patched");
        let refused = api
            .patch(&one, MERGE, &json!({"value": number * 10}))
            .refused(422);
        assert!(
            refused.contains("may not be changed in an update"),
            "{refused}"
        );
        change(api, &one, |o| o["description"] = json!("updated"));
        let mut object = api.get(&one).ok();
        assert_eq!(object["description"], "updated");
        object["value"] = json!(number * 10);
        api.put(&one, &object).refused(422);
        assert!(api.delete(&one).code < 300);
    }
}

fn service(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"app": "none"},
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 80}]}})
}

pub(crate) fn service_status(api: &Api) {
    let namespace = api.namespace();
    let path = format!("/api/v1/namespaces/{namespace}/services");
    let watch = api.watch(&format!("{path}?labelSelector=s%3Dstatus"));
    api.post(&path, &service("s", &json!({"s": "status"}))).ok();
    watch.expect("ADDED", "s");
    let status = format!("{path}/s/status");
    assert!(
        api.get(&status).ok()["status"]
            .get("loadBalancer")
            .is_some()
    );
    let ingress = json!({"ingress": [{"ip": "203.0.113.1"}]});
    let patch = json!({"metadata": {"annotations": {"patchedstatus": "true"}},
        "status": {"loadBalancer": ingress}});
    let patched = api.patch(&status, MERGE, &patch).ok();
    assert!(
        contains(&patched["status"]["loadBalancer"], &ingress),
        "{patched}"
    );
    watch.find("MODIFIED", "s", |o| {
        o["metadata"]["annotations"]["patchedstatus"] == "true"
    });
    change(api, &status, |o| {
        o["status"]["conditions"] = json!([{"type": "StatusUpdate", "status": "True",
            "reason": "E2E", "message": "Set by a test",
            "lastTransitionTime": "2024-05-01T10:00:00Z"}]);
    });
    watch.find("MODIFIED", "s", |o| {
        o["status"]["conditions"][0]["type"] == "StatusUpdate"
    });
    let patch = json!({"metadata": {"labels": {"patched": "yes"}}});
    api.patch(&format!("{path}/s"), STRATEGIC, &patch).ok();
    watch.find("MODIFIED", "s", |o| {
        o["metadata"]["labels"]["patched"] == "yes"
    });
    assert!(api.delete(&format!("{path}/s")).code < 300);
    watch.find("DELETED", "s", |_| true);
}

pub(crate) fn services_collection(api: &Api) {
    let path = format!("/api/v1/namespaces/{}/services", api.namespace());
    for (name, label) in [("a", "one"), ("b", "one"), ("c", "other")] {
        api.post(&path, &service(name, &json!({"l": label}))).ok();
    }
    assert_eq!(names(&api.get(&path).ok()), ["a", "b", "c"]);
    assert!(api.delete(&format!("{path}?labelSelector=l%3Done")).code < 300);
    assert_eq!(names(&api.get(&path).ok()), ["c"]);
}

pub(crate) fn services_everywhere(api: &Api) {
    let list = api.get("/api/v1/services").ok();
    let found =
        list["items"].as_array().unwrap().iter().any(|s| {
            s["metadata"]["name"] == "kubernetes" && s["metadata"]["namespace"] == "default"
        });
    assert!(found, "{list}");
}

pub(crate) fn kubernetes_service(api: &Api) {
    let service = api
        .get("/api/v1/namespaces/default/services/kubernetes")
        .ok();
    let ports = service["spec"]["ports"].as_array().unwrap();
    let https = ports.iter().find(|p| p["name"] == "https").unwrap();
    assert_eq!(
        (&https["port"], &https["protocol"]),
        (&json!(443), &json!("TCP"))
    );
    assert!(service["spec"]["clusterIP"].is_string(), "{service}");
}

/// An event of either group; both are the same objects.
fn event(group: &str, name: &str, namespace: &str, labels: &Value) -> Value {
    let about = json!({"kind": "Pod", "namespace": namespace, "name": "p"});
    let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    if group.is_empty() {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata,
            "message": "a test event", "reason": "Test", "type": "Normal",
            "source": {"component": "conformance"}, "involvedObject": about})
    } else {
        json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": metadata,
            "note": "a test event", "reason": "Test", "type": "Normal", "action": "Do",
            "reportingController": "example.com/c", "reportingInstance": "c-0",
            "eventTime": "2024-05-01T10:00:00.000001Z", "regarding": about})
    }
}

fn events(group: &str, namespace: &str) -> String {
    let root = if group.is_empty() {
        "/api/v1"
    } else {
        "/apis/events.k8s.io/v1"
    };
    format!("{root}/namespaces/{namespace}/events")
}

/// Makes events, finds them by their label, and deletes them together.
fn collection(api: &Api, group: &str) {
    let namespace = api.namespace();
    let path = events(group, &namespace);
    let labels = json!({"testevent-set": "true"});
    for name in ["e1", "e2", "e3"] {
        api.post(&path, &event(group, name, &namespace, &labels))
            .ok();
    }
    let selected = format!("{path}?labelSelector=testevent-set%3Dtrue");
    assert_eq!(names(&api.get(&selected).ok()), ["e1", "e2", "e3"]);
    assert!(api.delete(&selected).code < 300);
    assert_eq!(names(&api.get(&selected).ok()), [""; 0]);
}

pub(crate) fn events_collection(api: &Api) {
    collection(api, "");
}

pub(crate) fn new_events_collection(api: &Api) {
    collection(api, "events.k8s.io");
}

/// Makes an event, patches its text, gives it a series, deletes it.
fn life_of_an_event(api: &Api, group: &str, text: &str) {
    let namespace = api.namespace();
    let path = events(group, &namespace);
    let labels = json!({"e2e-event": namespace});
    api.post(&path, &event(group, "e", &namespace, &labels))
        .ok();
    let (root, _) = path.split_once("/namespaces").unwrap();
    let everywhere = format!("{root}/events?labelSelector=e2e-event%3D{namespace}");
    assert_eq!(names(&api.get(&everywhere).ok()), ["e"]);
    let one = format!("{path}/e");
    api.patch(&one, STRATEGIC, &json!({text: "patched"})).ok();
    assert_eq!(api.get(&one).ok()[text], "patched");
    let series = json!({"count": 100, "lastObservedTime": "2024-05-01T10:00:00.000005Z"});
    change(api, &one, |o| o["series"] = series.clone());
    assert_eq!(api.get(&one).ok()["series"], series);
    assert!(api.delete(&one).code < 300);
    assert_eq!(names(&api.get(&everywhere).ok()), [""; 0]);
}

pub(crate) fn event_lifecycle(api: &Api) {
    life_of_an_event(api, "", "message");
}

pub(crate) fn new_event(api: &Api) {
    discovered(
        api,
        &Subject::new("events.k8s.io/v1", "events", "Event").namespaced(),
    );
    life_of_an_event(api, "events.k8s.io", "note");
}
