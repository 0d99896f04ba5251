//! Bad input: what the caller sees, and that nothing was stored.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{
    Api, CONFIG_MAPS, DEPLOYMENTS, PATIENCE, PODS, SERVICES, config_map, deployment, pod, service,
};

#[tokio::test]
async fn objects_that_break_a_rule() {
    let api = Api::start().await;
    let status = api
        .post(PODS, &pod("Web_1"))
        .await
        .refused(422, "Invalid", "RFC 1123");
    assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");

    let mut empty = pod("a");
    empty["spec"]["containers"] = json!([]);
    api.post(PODS, &empty)
        .await
        .refused(422, "Invalid", "spec.containers: Required value");

    let mut odd = deployment("web");
    odd["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let status = api.post(DEPLOYMENTS, &odd).await.refused(
        422,
        "Invalid",
        "`selector` does not match template `labels`",
    );
    assert_eq!(
        status["details"]["causes"][0]["field"],
        "spec.template.metadata.labels"
    );

    let mut versioned = pod("a");
    versioned["metadata"]["resourceVersion"] = json!("7");
    let text = "resourceVersion should not be set on objects to be created";
    api.post(PODS, &versioned)
        .await
        .refused(400, "BadRequest", text);

    for collection in [PODS, DEPLOYMENTS] {
        let list = api.get(collection).await.ok();
        assert_eq!(list["items"], json!([]), "nothing was stored");
    }
}

#[tokio::test]
async fn updates_that_break_a_rule() {
    let api = Api::start().await;
    let made = api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let path = format!("{DEPLOYMENTS}/web");

    let mut changed = made.clone();
    changed["spec"]["selector"]["matchLabels"] = json!({"app": "x"});
    changed["spec"]["template"]["metadata"]["labels"] = json!({"app": "x"});
    let status = api
        .put(&path, &changed)
        .await
        .refused(422, "Invalid", "field is immutable");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .starts_with("Deployment.apps \"web\" is invalid: spec.selector")
    );

    let mut newer = made.clone();
    newer["spec"]["replicas"] = json!(3);
    let newer = api.put(&path, &newer).await.ok();
    assert_ne!(
        newer["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let text = "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please apply your changes to the latest version and try again";
    api.put(&path, &made).await.refused(409, "Conflict", text);

    let mut other = made.clone();
    other["metadata"]["name"] = json!("wob");
    api.put(&path, &other)
        .await
        .refused(400, "BadRequest", "does not match the name on the URL");

    let mut foreign = newer.clone();
    foreign["metadata"]["uid"] = json!("someone-else");
    api.put(&path, &foreign)
        .await
        .refused(409, "Conflict", "UID in precondition");

    api.put(&format!("{DEPLOYMENTS}/none"), &deployment("none"))
        .await
        .refused(404, "NotFound", "deployments.apps \"none\" not found");
    assert_eq!(
        api.get(&path).await.ok(),
        newer,
        "refused updates changed nothing"
    );
}

#[tokio::test]
async fn namespaces_that_are_missing_or_going() {
    let api = Api::start().await;
    let path = "/api/v1/namespaces/x/pods";
    let status =
        api.post(path, &pod("a"))
            .await
            .refused(404, "NotFound", "namespaces \"x\" not found");
    assert_eq!(status["details"]["kind"], "namespaces");

    let ns = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    let made = api.post("/api/v1/namespaces", &ns).await.ok();
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        made["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "x"
    );
    let going = api.delete("/api/v1/namespaces/x", &Value::Null).await.ok();
    assert_eq!(going["status"]["phase"], "Terminating");
    let status = api
        .post(path, &pod("a"))
        .await
        .refused(403, "Forbidden", "is being terminated");
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );

    let mut done = going.clone();
    done["spec"]["finalizers"] = json!([]);
    api.put("/api/v1/namespaces/x/finalize", &done).await.ok();
    api.get("/api/v1/namespaces/x")
        .await
        .refused(404, "NotFound", "");
    api.delete("/api/v1/namespaces/default", &Value::Null)
        .await
        .refused(403, "Forbidden", "this namespace may not be deleted");
}

#[tokio::test]
async fn bodies_that_are_none() {
    let api = Api::start().await;
    let started = std::time::Instant::now();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let nested = format!(r#"{{"apiVersion":"v1","kind":"Pod","spec":{deep}}}"#);
    for body in [
        "",
        "{",
        "not json",
        "[]",
        "null",
        r#"{"metadata":3}"#,
        &nested,
    ] {
        let answer = api
            .call(Method::POST, PODS, "application/json", body.to_owned())
            .await;
        answer.refused(400, "BadRequest", "");
    }
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h", "i"]
        .iter()
        .zip(["a", "b", "c", "d", "e", "f", "g", "h"])
    {
        bomb += &format!(
            "{name}: &{name} [{}]\n",
            vec![format!("*{of}"); 9].join(",")
        );
    }
    api.call(Method::POST, PODS, "application/yaml", bomb)
        .await
        .refused(400, "BadRequest", "");
    let large = format!(r#"{{"data":{{"k":"{}"}}}}"#, "x".repeat(4 << 20));
    api.call(Method::POST, CONFIG_MAPS, "application/json", large)
        .await
        .refused(413, "RequestEntityTooLarge", "");
    api.call(Method::POST, PODS, "text/plain", "x")
        .await
        .refused(415, "UnsupportedMediaType", "");
    assert!(started.elapsed() < PATIENCE, "refused promptly");
    assert_eq!(api.get(PODS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn bodies_are_told_what_is_wrong_with_them() {
    let api = Api::start().await;
    for (body, words) in [
        (
            "not json",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: invalid character 'o' in literal null (expecting 'u') (6e6f74206a736f6e)",
        ),
        (
            "",
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        (
            r#"{"kind":"Pod","apiVersion":"v1","x" 1}"#,
            r#"invalid character '1' after object key ({"kind":"Pod","apiVersion":"v1 ...)"#,
        ),
        (
            "[]",
            "json: cannot unmarshal array into Go value of type struct",
        ),
    ] {
        api.call(Method::POST, PODS, "application/json", body)
            .await
            .refused(400, "BadRequest", words);
    }
    api.call(Method::POST, PODS, "application/vnd.kubernetes.protobuf", "{}")
        .await
        .refused(400, "BadRequest", "the object provided is unrecognized (must be of type Pod): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})");
}

#[tokio::test]
async fn bodies_of_another_type() {
    let api = Api::start().await;
    let mut wrong = pod("a");
    wrong["kind"] = json!("ConfigMap");
    api.post(PODS, &wrong)
        .await
        .refused(
            400,
            "BadRequest",
            r#"ConfigMap in version "v1" cannot be handled as a Pod: converting (v1.ConfigMap) to (core.Pod): unknown conversion"#,
        );
    wrong = pod("a");
    wrong["apiVersion"] = json!("v2");
    api.post(PODS, &wrong).await.refused(
        400,
        "BadRequest",
        r#"Pod in version "v2" cannot be handled as a Pod: no kind "Pod" is registered for version "v2""#,
    );
    let mut event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}});
    event["involvedObject"] = json!({"kind": "Pod", "name": "p"});
    api.post("/apis/events.k8s.io/v1/namespaces/default/events", &event)
        .await
        .refused(
            400,
            "BadRequest",
            "the API version in the data (v1) does not match the expected API version (events.k8s.io/v1)",
        );
    wrong = pod("a");
    wrong["metadata"]["namespace"] = json!("other");
    api.post(PODS, &wrong).await.refused(
        400,
        "BadRequest",
        "namespace of the provided object does not match",
    );
    assert_eq!(api.get(PODS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn unknown_and_duplicate_fields() {
    let api = Api::start().await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"},"foo":{"bar":1}}"#;
    let post = |validation: &str| {
        let path = format!("{CONFIG_MAPS}?fieldValidation={validation}");
        let api = &api;
        async move {
            api.call(Method::POST, &path, "application/json", body)
                .await
        }
    };
    let text = r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data.k", unknown field "foo""#;
    post("Strict").await.refused(400, "BadRequest", text);
    let warned = post("Warn").await;
    let warnings: Vec<&str> = warned
        .headers
        .get_all("warning")
        .iter()
        .map(|v| v.to_str().unwrap())
        .collect();
    assert_eq!(
        warnings,
        [
            r#"299 - "duplicate field \"data.k\"""#,
            r#"299 - "unknown field \"foo\"""#
        ]
    );
    let made = warned.ok();
    assert_eq!((&made["data"]["k"], made.get("foo")), (&json!("2"), None));
    api.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null)
        .await
        .ok();
    let ignored = post("Ignore").await;
    assert!(ignored.headers.get("warning").is_none());
    ignored.ok();
    post("Maybe")
        .await
        .refused(422, "Invalid", "fieldValidation");
    // Strict or not, the version is named without its group, as upstream does.
    for (field, value) in [("foo", json!(1)), ("spec", json!("x"))] {
        let mut wrong = deployment("a");
        wrong[field] = value;
        let text = r#"Deployment in version "v1" cannot be handled as a Deployment: "#;
        api.post(&format!("{DEPLOYMENTS}?fieldValidation=Strict"), &wrong)
            .await
            .refused(400, "BadRequest", text);
    }
    let patch = json!({"foo": 1});
    api.merge(&format!("{CONFIG_MAPS}/a?fieldValidation=Strict"), &patch)
        .await
        .refused(422, "Invalid", "unknown field \"foo\"");
}

#[tokio::test]
async fn reads_that_make_no_sense() {
    let api = Api::start().await;
    for (query, words) in [
        (
            "resourceVersion=abc",
            r#"invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#,
        ),
        ("limit=1&continue=garbage", "continue"),
        (
            "limit=x",
            r#"strconv.ParseInt: parsing "x": invalid syntax"#,
        ),
        (
            "labelSelector=a%3D(",
            "unable to parse requirement: found '(', expected: identifier",
        ),
        (
            "fieldSelector=spec.foo%3Dbar",
            "field label not supported: spec.foo",
        ),
        ("fieldSelector=nonsense", "nonsense"),
        ("resourceVersion=abc&watch=1", "abc"),
    ] {
        api.get(&format!("{PODS}?{query}"))
            .await
            .refused(400, "BadRequest", words);
    }
    api.get(&format!("{PODS}/a?resourceVersion=abc"))
        .await
        .refused(400, "BadRequest", "");
    api.get(&format!("{PODS}/none"))
        .await
        .refused(404, "NotFound", "pods \"none\" not found");
    api.get("/api/v1/namespaces/default/nodes")
        .await
        .refused(404, "NotFound", "");
    api.get("/apis/nothing.io/v1/things")
        .await
        .refused(404, "NotFound", "");
    api.get(&format!("{PODS}/a/nothing"))
        .await
        .refused(404, "NotFound", "");
}

#[tokio::test]
async fn media_and_methods_that_are_not_served() {
    let api = Api::start().await;
    let only = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    api.get_as(PODS, "text/html")
        .await
        .refused(406, "NotAcceptable", only);
    let only = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let answer = api
        .get_as(&format!("{PODS}?watch=1"), "application/yaml")
        .await;
    assert_eq!(
        (answer.code.as_u16(), answer.header("content-type")),
        (406, "application/yaml")
    );
    assert!(answer.text().contains(only), "{}", answer.text());
    let text = "the server does not allow this method on the requested resource";
    for (method, path) in [
        (Method::PUT, PODS),
        (Method::PATCH, PODS),
        (Method::OPTIONS, PODS),
        (Method::POST, "/api/v1/namespaces/default/pods/a"),
        (Method::DELETE, "/api/v1/namespaces/default/pods/a/log"),
        (
            Method::DELETE,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        ),
    ] {
        let status = api
            .call(method, path, "application/json", "{}")
            .await
            .refused(405, "MethodNotAllowed", text);
        assert_eq!(status["details"], json!({}));
    }
    let head = api.call(Method::HEAD, PODS, "", "").await;
    assert_eq!(head.code.as_u16(), 405);
    api.call(Method::POST, "/version", "", "")
        .await
        .refused(405, "MethodNotAllowed", "");
}

#[tokio::test]
async fn limit_ranges_have_their_say() {
    const ROOT: &str = "/api/v1/namespaces/default";
    let api = Api::start().await;
    let claim = |name: &str, size: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
    };
    let claims = format!("{ROOT}/persistentvolumeclaims");
    api.post(&claims, &claim("old", "20Gi")).await.ok();
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [
            {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}}]}});
    let mut seen = api.watch(&format!("{ROOT}/limitranges?watch=1")).await;
    api.post(&format!("{ROOT}/limitranges"), &range).await.ok();
    assert_eq!(seen.line().await, "ADDED l");
    let made = api.post(PODS, &pod("a")).await.ok();
    let resources = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let mut large = pod("b");
    large["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}});
    let words = "pods \"b\" is forbidden: maximum cpu usage per Container is 2, but limit is 3";
    api.post(PODS, &large)
        .await
        .refused(403, "Forbidden", words);
    // A claim keeps to them with every change, and may always go.
    let words = "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi";
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    api.post(&claims, &claim("new", "20Gi"))
        .await
        .refused(403, "Forbidden", words);
    api.merge(&format!("{claims}/old"), &change)
        .await
        .refused(403, "Forbidden", words);
    api.post(&claims, &claim("new", "5Gi")).await.ok();
    api.delete(&format!("{claims}/old"), &Value::Null)
        .await
        .ok();
}

#[tokio::test]
async fn patches_that_do_not_apply() {
    let api = Api::start().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let json_patch = |ops: Value| {
        let (api, path) = (&api, &path);
        async move {
            api.call(
                Method::PATCH,
                path,
                "application/json-patch+json",
                ops.to_string(),
            )
            .await
        }
    };
    json_patch(json!([{"op": "test", "path": "/data/k", "value": "w"}, {"op": "replace", "path": "/data/k", "value": "x"}]))
        .await
        .refused(422, "Invalid", "");
    json_patch(json!({"op": "add"}))
        .await
        .refused(400, "BadRequest", "");
    json_patch(json!([{"op": "dance", "path": "/a"}]))
        .await
        .refused(400, "BadRequest", "");
    for content_type in ["application/json", "application/apply-patch", "text/plain"] {
        api.call(Method::PATCH, &path, content_type, "{}")
            .await
            .refused(
                415,
                "UnsupportedMediaType",
                "accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml",
            );
    }
    let stale = json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "x"}});
    api.merge(&path, &stale)
        .await
        .refused(409, "Conflict", "the object has been modified");
    let renamed = json!({"metadata": {"name": "b"}});
    api.merge(&path, &renamed).await.refused(
        400,
        "BadRequest",
        "does not match the name on the URL",
    );
    api.merge(&format!("{CONFIG_MAPS}/none"), &json!({}))
        .await
        .refused(404, "NotFound", "");
    assert_eq!(api.get(&path).await.ok(), made, "unchanged");
}

#[tokio::test]
async fn deletions_and_scales_that_may_not_be() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("web")).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let other =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    api.delete(&path, &other)
        .await
        .refused(
            409,
            "Conflict",
            "Operation cannot be fulfilled on Deployment.apps \"web\": the UID in the precondition (other) does not match the UID in record (",
        );
    let scale = format!("{path}/scale");
    let mut negative = api.get(&scale).await.ok();
    assert_eq!(negative["spec"]["replicas"], 2);
    negative["spec"]["replicas"] = json!(-1);
    api.put(&scale, &negative)
        .await
        .refused(422, "Invalid", "spec.replicas: Invalid value: -1");
    api.merge(&scale, &json!({"spec": {"replicas": -1}}))
        .await
        .refused(422, "Invalid", "spec.replicas");
    api.merge(&scale, &json!({"spec": {"replicas": "x"}}))
        .await
        .refused(422, "Invalid", "ScaleSpec.spec.replicas of type int32");
    assert_eq!(api.get(&path).await.ok()["spec"]["replicas"], 2);
    api.delete(&format!("{DEPLOYMENTS}/none"), &Value::Null)
        .await
        .refused(404, "NotFound", "");
    let policy = format!("{path}?propagationPolicy=Never");
    let status =
        api.delete(&policy, &Value::Null)
            .await
            .refused(422, "Invalid", "propagationPolicy");
    let (details, cause) = (&status["details"], &status["details"]["causes"][0]);
    assert_eq!(details["kind"], "DeleteOptions");
    assert_eq!(cause["reason"], "FieldValueNotSupported");
    assert_eq!(cause["field"], "propagationPolicy");
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    let status = api.delete(&path, &both).await.refused(
        422,
        "Invalid",
        "orphanDependents and deletionPropagation cannot be both set",
    );
    assert_eq!(status["details"]["causes"][0]["field"], "propagationPolicy");
}

#[tokio::test]
async fn taken_addresses() {
    let api = Api::start().await;
    let made = api.post(SERVICES, &service("a")).await.ok();
    let mut second = service("b");
    second["spec"]["clusterIP"] = made["spec"]["clusterIP"].clone();
    api.post(SERVICES, &second)
        .await
        .refused(422, "Invalid", "provided IP is already allocated");
    second["spec"]["clusterIP"] = json!("10.0.0.1");
    api.post(SERVICES, &second)
        .await
        .refused(422, "Invalid", "not in the valid range");
    second["spec"]["clusterIP"] = json!("10.96.0.1");
    api.post(SERVICES, &second)
        .await
        .refused(422, "Invalid", "already allocated");
}

#[tokio::test]
async fn subresources_that_are_not_there_yet_are_named() {
    let api = Api::start().await;
    api.post(PODS, &pod("a")).await.ok();
    for (method, path) in [
        (Method::GET, format!("{PODS}/a/proxy/index.html")),
        (Method::GET, format!("{SERVICES}/kubernetes/proxy/")),
        (Method::GET, "/api/v1/nodes/n1/proxy/healthz".to_owned()),
    ] {
        let parts: Vec<&str> = path.split(['/', '?']).collect();
        let name = ["proxy"]
            .into_iter()
            .find(|n| parts.contains(n))
            .unwrap_or("nothing");
        let text = format!("/{name} is not supported by this server yet");
        api.call(method, &path, "application/json", "{}")
            .await
            .refused(501, "MethodNotAllowed", &text);
    }
    api.get(&format!("{PODS}/a/nonsense"))
        .await
        .refused(404, "NotFound", "could not find");
}
