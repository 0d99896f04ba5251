//! Server-side apply: what is merged, what conflicts, what is pruned, and what
//! is refused.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::harness::{
    Answer, Api, CONFIG_MAPS, DEPLOYMENTS, PODS, SERVICES, config_map, deployment, pod, service,
};
use crate::managers::{change, owners};

/// The media type of an applied configuration.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// Applies a configuration; `options` say by whom and how.
pub(crate) async fn apply(api: &Api, path: &str, options: &str, config: &Value) -> Answer {
    let path = format!("{path}?{options}");
    api.call(Method::PATCH, &path, APPLY, config.to_string())
        .await
}

async fn raw(api: &Api, path: &str, body: impl Into<Bytes>) -> Answer {
    let path = format!("{CONFIG_MAPS}/{path}");
    api.call(Method::PATCH, &path, APPLY, body).await
}

fn data(name: &str, data: Value) -> Value {
    change(config_map(name), "/data", data)
}

#[tokio::test]
async fn what_is_not_there_is_created() {
    let api = Api::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: v\n";
    let answer = raw(&api, "a?fieldManager=me", yaml).await;
    assert_eq!(answer.code.as_u16(), 201);
    let made = answer.ok();
    assert_eq!(made["metadata"]["namespace"], "default");
    let entry = &made["metadata"]["managedFields"][0];
    let mut expected = json!([{"manager": "me", "operation": "Apply", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    expected[0]["time"] = entry["time"].clone();
    assert!(entry["time"].is_string(), "{entry}");
    assert_eq!(made["metadata"]["managedFields"], expected);
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")).await.ok(), made);

    // A dry run says the same and keeps nothing.
    let dry = raw(
        &api,
        "b?fieldManager=me&dryRun=All",
        data("b", json!({})).to_string(),
    )
    .await;
    assert_eq!(dry.code.as_u16(), 201);
    api.get(&format!("{CONFIG_MAPS}/b"))
        .await
        .refused(404, "NotFound", "");

    // Defaults are there, and nobody's; what the configuration says is his.
    let path = format!("{DEPLOYMENTS}/web");
    let made = apply(&api, &path, "fieldManager=me", &deployment("web"))
        .await
        .ok();
    assert_eq!(made["spec"]["revisionHistoryLimit"], 10);
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(
        owners(&made),
        [
            "me Apply apps/v1: .spec.replicas .spec.selector .spec.template.metadata.labels.app \
          .spec.template.spec.containers[name=\"c\"] .spec.template.spec.containers[name=\"c\"].image \
          .spec.template.spec.containers[name=\"c\"].name"
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused() {
    let api = Api::start().await;
    let config = config_map("a").to_string();
    raw(&api, "a", config.clone()).await.refused(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
    for (body, words) in [
        ("{", "error decoding YAML: "),
        ("[]", "error decoding YAML: "),
        ("a: b: c", "error decoding YAML: "),
        ("", "invalid object type: /, Kind="),
        (
            r#"{"apiVersion": "v1", "kind": "Secret"}"#,
            "invalid object type: /v1, Kind=Secret",
        ),
        (
            r#"{"apiVersion": "v2", "kind": "ConfigMap"}"#,
            "invalid object type: /v2, Kind=ConfigMap",
        ),
        (
            r#"{"apiVersion": "v1", "kind": "ConfigMap"}"#,
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
        (
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}"#,
            "the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}"#,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": []}}"#,
            "metadata.managedFields must be nil",
        ),
    ] {
        raw(&api, "a?fieldManager=me", body.to_owned())
            .await
            .refused(400, "BadRequest", words);
    }
    api.get(&format!("{CONFIG_MAPS}/a"))
        .await
        .refused(404, "NotFound", "");
}

#[tokio::test]
async fn what_is_for_something_else_is_refused() {
    let api = Api::start().await;
    let identified = change(config_map("a"), "/metadata/uid", json!("u"));
    raw(&api, "a?fieldManager=me", identified.to_string())
        .await
        .refused(
            409,
            "Conflict",
            "uid mismatch: the provided object specified uid u, and no existing object was found",
        );
    let pods = format!("{PODS}/a/status");
    apply(&api, &pods, "fieldManager=me", &pod("a"))
        .await
        .refused(404, "NotFound", "pods \"a\" not found");
    // As upstream: no reason, and a code that says less than the message.
    for (path, config, words) in [
        (
            format!("{CONFIG_MAPS}/a"),
            change(config_map("a"), "/date", json!({})),
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .date: field not declared in schema",
        ),
        (
            format!("{DEPLOYMENTS}/a"),
            change(deployment("a"), "/spec/replicas", json!("x")),
            ".spec.replicas: expected numeric (int or float), got string",
        ),
    ] {
        let status = apply(&api, &path, "fieldManager=me", &config).await;
        assert_eq!(status.code.as_u16(), 500);
        let status = status.json();
        assert_eq!(status.get("reason"), None, "{status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
    api.get(&format!("{CONFIG_MAPS}/a"))
        .await
        .refused(404, "NotFound", "");
}

#[tokio::test]
async fn keys_that_stand_twice_are_told_or_refused() {
    let api = Api::start().await;
    let twice = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
        "data": {"k": "v", "k": "w"}}"#;
    raw(&api, "a?fieldManager=me&fieldValidation=Strict", twice)
        .await
        .refused(400, "BadRequest", "error strict decoding YAML: ");
    let warned = raw(&api, "a?fieldManager=me", twice).await;
    assert!(warned.header("warning").contains("already set in map"));
    assert_eq!(warned.ok()["data"]["k"], "w");
    let silent = raw(&api, "a?fieldManager=me&fieldValidation=Ignore", twice).await;
    assert_eq!(silent.header("warning"), "");
}

#[tokio::test]
async fn what_others_own_is_a_conflict_unless_forced() {
    let api = Api::start().await;
    let path = format!("{DEPLOYMENTS}/web");
    let config = |replicas: i64, image: &str| {
        let base = change(deployment("web"), "/spec/replicas", json!(replicas));
        change(base, "/spec/template/spec/containers/0/image", json!(image))
    };
    apply(&api, &path, "fieldManager=one", &config(2, "a"))
        .await
        .ok();
    let before = api.get(&path).await.ok();
    let refused = apply(&api, &path, "fieldManager=two", &config(3, "b")).await;
    let status = refused.refused(
        409,
        "Conflict",
        "Apply failed with 2 conflicts: conflicts with \"one\":\n\
         - .spec.replicas\n- .spec.template.spec.containers[name=\"c\"].image",
    );
    assert_eq!(
        status["details"]["causes"],
        json!([
            {"reason": "FieldManagerConflict", "message": "conflict with \"one\"",
             "field": ".spec.replicas"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"one\"",
             "field": ".spec.template.spec.containers[name=\"c\"].image"},
        ])
    );
    assert_eq!(api.get(&path).await.ok(), before);
    // A dry run conflicts too.
    apply(&api, &path, "fieldManager=two&dryRun=All", &config(3, "a"))
        .await
        .refused(
            409,
            "Conflict",
            "1 conflict: conflict with \"one\": .spec.replicas",
        );

    let forced = apply(&api, &path, "fieldManager=two&force=true", &config(3, "a"))
        .await
        .ok();
    assert_eq!(forced["spec"]["replicas"], 3);
    assert_eq!(forced["metadata"]["generation"], 2);
    let owned = owners(&forced);
    assert!(!owned[0].contains(".spec.replicas"), "{owned:?}");
    assert!(owned[0].starts_with("one Apply") && owned[1].starts_with("two Apply"));
    assert!(owned[1].contains(".spec.replicas"), "{owned:?}");
    // What both say is owned by both, until one of them says otherwise.
    assert!(
        owned.iter().all(|o| o.contains("[name=\"c\"].image")),
        "{owned:?}"
    );
    apply(&api, &path, "fieldManager=one", &config(3, "b"))
        .await
        .refused(409, "Conflict", "conflict with \"two\"");

    // Who updates owns what he changed, and is told of in his version.
    api.merge(
        &format!("{path}?fieldManager=hand"),
        &json!({"spec": {"replicas": 7}}),
    )
    .await
    .ok();
    apply(&api, &path, "fieldManager=two", &config(3, "a"))
        .await
        .refused(
            409,
            "Conflict",
            "conflict with \"hand\" using apps/v1: .spec.replicas",
        );
}

#[tokio::test]
async fn what_is_no_longer_said_goes_unless_somebody_else_owns_it() {
    let api = Api::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let labelled = |config: Value| change(config, "/metadata/labels", json!({"x": "y"}));
    let first = labelled(data("a", json!({"own": "1", "shared": "2", "kept": "3"})));
    apply(&api, &path, "fieldManager=one", &first).await.ok();
    apply(
        &api,
        &path,
        "fieldManager=two",
        &data("a", json!({"shared": "2"})),
    )
    .await
    .ok();
    let pruned = apply(
        &api,
        &path,
        "fieldManager=one",
        &data("a", json!({"kept": "3"})),
    )
    .await
    .ok();
    assert_eq!(pruned["data"], json!({"shared": "2", "kept": "3"}));
    assert_eq!(
        pruned["metadata"].get("labels"),
        None,
        "an emptied map goes"
    );
    assert_eq!(
        owners(&pruned),
        ["one Apply v1: .data.kept", "two Apply v1: .data.shared"]
    );

    // With its last field an applier goes too, and what it left empty.
    let bare = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    apply(&api, &path, "fieldManager=two", &bare).await.ok();
    let left = apply(&api, &path, "fieldManager=one", &bare).await.ok();
    assert_eq!(left.get("data"), None, "{left}");
    assert_eq!(owners(&left), [""; 0]);
}

#[tokio::test]
async fn the_same_configuration_twenty_times_writes_once() {
    let api = Api::start().await;
    let mut full = pod("a");
    full["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": "1000m", "memory": "1Gi"}});
    full["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
    full["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "c"}}]);
    for (collection, name, object) in [
        (CONFIG_MAPS, "a", config_map("a")),
        (PODS, "a", full),
        (DEPLOYMENTS, "a", deployment("a")),
        (SERVICES, "a", service("a")),
        (
            "/api/v1/namespaces",
            "a",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "labels": {"x": "y"}}}),
        ),
    ] {
        let path = format!("{collection}/{name}");
        // Old entries, so that a time that moves is seen to.
        let entries = json!([{"manager": "me", "operation": "Apply", "time": "2020-01-01T00:00:00Z",
            "apiVersion": object["apiVersion"], "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:old": {}}}}}]);
        let with = change(object.clone(), "/metadata/managedFields", entries);
        api.post(collection, &with).await.ok();
        let first = apply(&api, &path, "fieldManager=me&force=true", &object)
            .await
            .ok();
        let mut stored = first.clone();
        for entry in stored["metadata"]["managedFields"].as_array_mut().unwrap() {
            entry["time"] = json!("2021-01-01T00:00:00Z");
        }
        stored["metadata"]["annotations"] = json!({"x": "y"});
        let first = api.put(&path, &stored).await.ok();
        let times = first["metadata"]["managedFields"].as_array().unwrap();
        let old = times.iter().any(|e| e["time"] == "2021-01-01T00:00:00Z");
        assert!(old, "{first}");
        for _ in 0..20 {
            let again = apply(&api, &path, "fieldManager=me", &object).await;
            assert_eq!(again.code.as_u16(), 200);
            assert_eq!(again.ok(), first, "{path}");
        }
        let dry = apply(&api, &path, "fieldManager=me&dryRun=All", &object)
            .await
            .ok();
        assert_eq!(dry, first);
    }
}

#[tokio::test]
async fn a_configuration_may_name_the_state_it_is_for() {
    let api = Api::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let versioned = |version: &Value, value: &str| {
        let config = data("a", json!({"k": value}));
        change(config, "/metadata/resourceVersion", version.clone())
    };
    // Nothing is there yet to be of another version.
    let made = apply(&api, &path, "fieldManager=me", &versioned(&json!("1"), "1"))
        .await
        .ok();
    let version = made["metadata"]["resourceVersion"].clone();
    assert_ne!(version, "1");
    apply(&api, &path, "fieldManager=me", &versioned(&json!("1"), "2"))
        .await
        .refused(409, "Conflict", "the object has been modified");
    let next = apply(&api, &path, "fieldManager=me", &versioned(&version, "2"))
        .await
        .ok();
    assert_eq!(next["data"]["k"], "2");
}

#[tokio::test]
async fn many_appliers_at_once_lose_nothing() {
    let api = std::sync::Arc::new(Api::start().await);
    let path = format!("{CONFIG_MAPS}/a");
    let all = (0..12).map(|n| {
        let (api, path) = (api.clone(), path.clone());
        async move {
            let config = data("a", json!({format!("k{n}"): "v"}));
            let options = format!("fieldManager=m{n}");
            apply(&api, &path, &options, &config).await.ok();
        }
    });
    futures::future::join_all(all).await;
    let object = api.get(&path).await.ok();
    assert_eq!(object["data"].as_object().unwrap().len(), 12);
    assert_eq!(owners(&object).len(), 12, "appliers are not capped");
}

#[tokio::test]
async fn what_is_applied_may_be_a_status() {
    let api = Api::start().await;
    api.post(
        &format!("{DEPLOYMENTS}?fieldManager=maker"),
        &deployment("web"),
    )
    .await
    .ok();
    let path = format!("{DEPLOYMENTS}/web");
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"paused": true}, "status": {"replicas": 2, "observedGeneration": 1}});
    let status = format!("{path}/status");
    let applied = apply(&api, &status, "fieldManager=loop", &config)
        .await
        .ok();
    assert_eq!(applied["status"]["replicas"], 2);
    assert_eq!(
        applied["spec"].get("paused"),
        None,
        "the spec is not for that door"
    );
    let owned = owners(&applied);
    assert_eq!(
        owned[0],
        "loop Apply apps/v1 status: .status.observedGeneration .status.replicas"
    );
    // The same name through another door is another manager.
    let config = change(config, "/status/replicas", json!(3));
    apply(&api, &status, "fieldManager=other", &config)
        .await
        .refused(
            409,
            "Conflict",
            "conflict with \"loop\" with subresource \"status\": .status.replicas",
        );
    // And through the main door nobody comes to own a status.
    let main = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"paused": true}, "status": {"replicas": 9}});
    let main = apply(&api, &path, "fieldManager=loop", &main).await.ok();
    assert_eq!(main["status"]["replicas"], 2);
    assert!(owners(&main).contains(&"loop Apply apps/v1: .spec.paused".to_owned()));
}
