//! Who owns what after every other kind of write, through every door.

use http::{Method, Request};
use http_body_util::Full;
use registry::fieldmerge::Managed;
use serde_json::{Value, json};

use crate::apply::apply;
use crate::harness::{Api, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod, send};

/// Returns the object with the value at a pointer set.
pub(crate) fn change(mut object: Value, pointer: &str, to: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    match name.parse::<usize>() {
        Ok(index) => parent[index] = to,
        Err(_) => parent[name] = to,
    }
    object
}

/// Returns who owns what: manager, operation, version, subresource, fields.
pub(crate) fn owners(object: &Value) -> Vec<String> {
    let managed = Managed::of(object).unwrap();
    let line = |(id, owned): (
        &registry::fieldmerge::ManagerId,
        &registry::fieldmerge::entries::Owned,
    )| {
        let (who, how) = (&id.manager, id.operation.as_str());
        let through = match id.subresource.as_str() {
            "" => String::new(),
            subresource => format!(" {subresource}"),
        };
        let fields = owned.set.to_string().replace('\n', " ");
        format!("{who} {how} {}{through}: {fields}", owned.api_version)
    };
    let mut lines: Vec<String> = managed.0.iter().map(line).collect();
    lines.sort();
    lines
}

/// Returns the entries of an object.
fn entries(object: &Value) -> &Value {
    &object["metadata"]["managedFields"]
}

#[tokio::test]
async fn a_write_is_its_managers_or_its_user_agents() {
    let api = Api::start().await;
    let service = api.service_as("admin", &["system:masters"]);
    let post = |path: String, agent: &'static str, name: &str| {
        let request = Request::post(path)
            .header("user-agent", agent)
            .body(Full::from(config_map(name).to_string()))
            .unwrap();
        let service = service.clone();
        async move { send(&service, request).await.ok() }
    };
    let made = post(CONFIG_MAPS.to_owned(), "tool/v1.2 (linux)", "a").await;
    assert_eq!(owners(&made), ["tool Update v1: .data .data.k"]);
    let made = post(format!("{CONFIG_MAPS}?fieldManager=me"), "tool/v1", "b").await;
    assert_eq!(owners(&made), ["me Update v1: .data .data.k"]);
    let made = post(CONFIG_MAPS.to_owned(), "", "c").await;
    assert_eq!(owners(&made), ["unknown Update v1: .data .data.k"]);
    let long = format!("{CONFIG_MAPS}?fieldManager={}", "m".repeat(129));
    api.post(&long, &config_map("d")).await.refused(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
    );
    api.post(
        &format!("{CONFIG_MAPS}?fieldManager=a%07"),
        &config_map("d"),
    )
    .await
    .refused(422, "Invalid", "invalid character U+0007 (at position 1)");
    let force = format!("{CONFIG_MAPS}/a?force=true");
    api.merge(&force, &json!({})).await.refused(
        422,
        "Invalid",
        "force: Forbidden: may not be specified for non-apply patch",
    );
}

#[tokio::test]
async fn every_verb_says_who_changed_what() {
    let api = Api::start().await;
    let made = api
        .post(
            &format!("{CONFIG_MAPS}?fieldManager=maker"),
            &config_map("a"),
        )
        .await
        .ok();
    let path = |who: &str| format!("{CONFIG_MAPS}/a?fieldManager={who}");
    let put = change(made, "/data/put", json!("1"));
    let put = api.put(&path("putter"), &put).await.ok();
    assert_eq!(
        owners(&put),
        [
            "maker Update v1: .data .data.k",
            "putter Update v1: .data.put"
        ]
    );
    api.merge(
        &path("merger"),
        &json!({"data": {"merged": "1", "put": "2"}}),
    )
    .await
    .ok();
    let strategic = "application/strategic-merge-patch+json";
    let body = json!({"metadata": {"labels": {"x": "y"}}}).to_string();
    api.call(Method::PATCH, &path("planner"), strategic, body)
        .await
        .ok();
    let body = json!([{"op": "add", "path": "/data/json", "value": "1"}]).to_string();
    let json_patch = "application/json-patch+json";
    let patched = api
        .call(Method::PATCH, &path("editor"), json_patch, body)
        .await
        .ok();
    assert_eq!(
        owners(&patched),
        [
            "editor Update v1: .data.json",
            "maker Update v1: .data .data.k",
            "merger Update v1: .data.merged .data.put",
            "planner Update v1: .metadata.labels .metadata.labels.x",
        ]
    );
    // What goes is owned by nobody any more.
    let gone = api
        .merge(
            &path("maker"),
            &json!({"data": {"merged": null, "put": null, "k": "2"}}),
        )
        .await
        .ok();
    assert_eq!(
        owners(&gone),
        [
            "editor Update v1: .data.json",
            "maker Update v1: .data .data.k",
            "planner Update v1: .metadata.labels .metadata.labels.x",
        ]
    );
}

#[tokio::test]
async fn a_dry_run_tells_who_would_own_and_keeps_it_for_itself() {
    let api = Api::start().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let dry = format!("{path}?fieldManager=dreamer&dryRun=All");
    let patch = json!({"data": {"k": "3"}});
    let would = api.merge(&dry, &patch).await.ok();
    assert!(owners(&would).contains(&"dreamer Update v1: .data.k".to_owned()));
    assert_eq!(api.get(&path).await.ok(), made);
}

#[tokio::test]
async fn a_put_that_creates_is_a_creation() {
    let api = Api::start().await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "h"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let made = api.put(&format!("{path}?fieldManager=me"), &lease).await;
    assert_eq!(made.code.as_u16(), 201);
    let owned = ["me Update coordination.k8s.io/v1: .spec.holderIdentity"];
    assert_eq!(owners(&made.ok()), owned);
}

#[tokio::test]
async fn a_write_of_the_same_moves_nothing() {
    let api = Api::start().await;
    let old = json!([{"manager": "old", "operation": "Update", "time": "2020-01-01T00:00:00Z",
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    let with = change(config_map("a"), "/metadata/managedFields", old);
    let made = api
        .post(&format!("{CONFIG_MAPS}?fieldManager=new"), &with)
        .await
        .ok();
    assert_eq!(owners(&made), ["new Update v1: .data .data.k"], "{made}");
    let path = format!("{CONFIG_MAPS}/a");
    // Who created it owned it from the moment on; give it a past.
    let past = change(
        made,
        "/metadata/managedFields/0/time",
        json!("2020-01-01T00:00:00Z"),
    );
    let past = change(past, "/data/k", json!("w"));
    let mut past = api
        .put(&format!("{path}?fieldManager=other"), &past)
        .await
        .ok();
    for entry in past["metadata"]["managedFields"].as_array_mut().unwrap() {
        entry["time"] = json!("2020-01-01T00:00:00Z");
    }
    let made = api.get(&path).await.ok();
    // Times alone are no change, ...
    assert_eq!(api.put(&path, &past).await.ok(), made);
    // ... nor is the same again, with no word of versions or of managers, ...
    for aside in [
        "managedFields",
        "resourceVersion",
        "uid",
        "creationTimestamp",
    ] {
        past["metadata"].as_object_mut().unwrap().remove(aside);
        assert_eq!(api.put(&path, &past).await.ok(), made);
    }
    // ... nor a patch to what is.
    let same = json!({"data": {"k": "w"}});
    assert_eq!(
        api.merge(&format!("{path}?fieldManager=me"), &same)
            .await
            .ok(),
        made
    );
}

#[tokio::test]
async fn entries_can_be_edited_and_forgotten_but_not_spoiled() {
    let api = Api::start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let made = apply(&api, &path, "fieldManager=me", &config_map("a"))
        .await
        .ok();
    let with = |entries: Value| json!({"metadata": {"managedFields": entries}});
    // What cannot be read is not taken.
    for bad in [
        json!([{"manager": "x"}]),
        json!([{"manager": "x", "operation": "Eat", "apiVersion": "v1", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"nonsense": {}}}]),
    ] {
        assert_eq!(api.merge(&path, &with(bad)).await.ok(), made);
    }
    api.merge(&path, &with(json!([{"manager": 7}])))
        .await
        .refused(
            422,
            "Invalid",
            "metadata.managedFields[0].manager of type string",
        );
    let mut long = entries(&made).clone();
    long[0]["manager"] = json!("m".repeat(129));
    api.merge(&path, &with(long)).await.refused(
        422,
        "Invalid",
        "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
    );
    let mut renamed = entries(&made).clone();
    renamed[0]["manager"] = json!("you");
    let renamed = api.merge(&path, &with(renamed)).await.ok();
    assert_eq!(owners(&renamed), ["you Apply v1: .data.k"]);
    // Forgotten in one of two ways; and then nobody is tracked until an apply.
    for reset in [json!([{}]), json!([])] {
        let forgotten = api.merge(&path, &with(reset)).await.ok();
        assert_eq!(entries(&forgotten), &Value::Null, "{forgotten}");
        let changed = json!({"data": {"l": "1"}});
        let changed = api.merge(&path, &changed).await.ok();
        assert_eq!(entries(&changed), &Value::Null);
        let again = apply(&api, &path, "fieldManager=me", &config_map("a"))
            .await
            .ok();
        assert_eq!(
            owners(&again),
            [
                "before-first-apply Update v1: .data .data.k .data.l",
                "me Apply v1: .data.k"
            ]
        );
    }
}

#[tokio::test]
async fn the_oldest_updates_are_merged() {
    let api = Api::start().await;
    api.post(&format!("{CONFIG_MAPS}?fieldManager=m"), &config_map("a"))
        .await
        .ok();
    for n in 0..12 {
        let path = format!("{CONFIG_MAPS}/a?fieldManager=m{n}");
        let patch = json!({"data": {format!("k{n}"): "v"}});
        api.merge(&path, &patch).await.ok();
    }
    let object = api.get(&format!("{CONFIG_MAPS}/a")).await.ok();
    let owned = owners(&object);
    assert_eq!(owned.len(), 10, "{owned:?}");
    assert!(
        owned[0].starts_with("ancient-changes Update v1: .data"),
        "{owned:?}"
    );
}

#[tokio::test]
async fn subresources_have_managers_of_their_own() {
    let api = Api::start().await;
    api.post(&format!("{PODS}?fieldManager=maker"), &pod("a"))
        .await
        .ok();
    let before = api.get(&format!("{PODS}/a")).await.ok();
    let bind = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}});
    api.post(&format!("{PODS}/a/binding?fieldManager=binder"), &bind)
        .await
        .ok();
    let bound = api.get(&format!("{PODS}/a")).await.ok();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(entries(&bound), entries(&before), "a binding is nobody's");

    let path = format!("{PODS}/a/status?fieldManager=kubelet");
    let ready = json!({"type": "Ready", "status": "True"});
    let patch = json!({"spec": {"activeDeadlineSeconds": 9}, "metadata": {"annotations": {"a": "b"}},
        "status": {"phase": "Running", "conditions": [ready]}});
    let strategic = "application/strategic-merge-patch+json";
    let running = api
        .call(Method::PATCH, &path, strategic, patch.to_string())
        .await
        .ok();
    assert_eq!(
        owners(&running)[0],
        "kubelet Update v1 status: .metadata.annotations .metadata.annotations.a .status.phase \
         .status.conditions[type=\"Ready\"] .status.conditions[type=\"Ready\"].status \
         .status.conditions[type=\"Ready\"].type"
    );

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let made = api
        .post("/api/v1/namespaces?fieldManager=maker", &namespace)
        .await
        .ok();
    let mut open = made.clone();
    open["spec"]["finalizers"] = json!(["a/b"]);
    let path = "/api/v1/namespaces/n/finalize?fieldManager=loop";
    let open = api.put(path, &open).await.ok();
    let owned = owners(&open);
    assert!(
        owned
            .iter()
            .any(|o| o.starts_with("loop Update v1 finalize: .spec.finalizers")),
        "{owned:?}"
    );
}

#[tokio::test]
async fn a_scale_owns_the_replicas_of_its_object() {
    let api = Api::start().await;
    let path = format!("{DEPLOYMENTS}/web");
    let scale = format!("{path}/scale");
    apply(&api, &path, "fieldManager=me", &deployment("web"))
        .await
        .ok();
    let scaled = api
        .merge(
            &format!("{scale}?fieldManager=hand"),
            &json!({"spec": {"replicas": 5}}),
        )
        .await
        .ok();
    assert_eq!(scaled["kind"], "Scale");
    assert_eq!(entries(&scaled), &Value::Null, "a Scale does not show them");
    let object = api.get(&path).await.ok();
    let owned = owners(&object);
    assert_eq!(owned[0], "hand Update apps/v1 scale: .spec.replicas");
    assert!(!owned[1].contains("replicas"), "{owned:?}");
    apply(&api, &path, "fieldManager=me", &deployment("web"))
        .await
        .refused(
            409,
            "Conflict",
            "conflict with \"hand\" with subresource \"scale\" using apps/v1: .spec.replicas",
        );
    // The same again is no write; another PUT takes over.
    let same = json!({"spec": {"replicas": 5}});
    api.merge(&format!("{scale}?fieldManager=other"), &same)
        .await
        .ok();
    assert_eq!(api.get(&path).await.ok(), object);
    let mut put = api.get(&scale).await.ok();
    put["spec"]["replicas"] = json!(6);
    api.put(&format!("{scale}?fieldManager=other"), &put)
        .await
        .ok();
    let owned = owners(&api.get(&path).await.ok());
    assert_eq!(
        owned[1], "other Update apps/v1 scale: .spec.replicas",
        "{owned:?}"
    );
    assert_eq!(owned.len(), 2, "{owned:?}");
    // Back to whoever forces.
    let forced = apply(
        &api,
        &path,
        "fieldManager=me&force=true",
        &deployment("web"),
    )
    .await
    .ok();
    assert_eq!(owners(&forced).len(), 1);
    assert_eq!(forced["spec"]["replicas"], 2);
}

#[tokio::test]
async fn a_scale_can_be_applied() {
    let api = Api::start().await;
    let path = format!("{DEPLOYMENTS}/web");
    let scale = format!("{path}/scale");
    apply(&api, &path, "fieldManager=me", &deployment("web"))
        .await
        .ok();
    let config = |replicas: i64| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": replicas}})
    };
    apply(&api, &scale, "fieldManager=you", &config(4))
        .await
        .refused(409, "Conflict", "conflict with \"me\": .spec.replicas");
    apply(&api, &scale, "", &config(4)).await.refused(
        422,
        "Invalid",
        "fieldManager: Required value",
    );
    apply(&api, &scale, "fieldManager=you", &deployment("web"))
        .await
        .refused(
            400,
            "BadRequest",
            "invalid object type: apps/v1, Kind=Deployment",
        );
    let forced = apply(&api, &scale, "fieldManager=you&force=true", &config(4))
        .await
        .ok();
    assert_eq!(forced["spec"]["replicas"], 4);
    let object = api.get(&path).await.ok();
    let owned = owners(&object);
    assert_eq!(
        owned[1], "you Apply apps/v1 scale: .spec.replicas",
        "{owned:?}"
    );
    assert!(!owned[0].contains("replicas"), "{owned:?}");
    apply(&api, &scale, "fieldManager=you", &config(4))
        .await
        .ok();
    assert_eq!(
        api.get(&path).await.ok(),
        object,
        "the same again is no write"
    );
    apply(
        &api,
        &format!("{DEPLOYMENTS}/none/scale"),
        "fieldManager=you",
        &config(4),
    )
    .await
    .refused(404, "NotFound", "not found");
}

#[tokio::test]
async fn one_moves_from_client_side_to_server_side_apply() {
    let api = Api::start().await;
    let path = format!("{DEPLOYMENTS}/web");
    let mut config = deployment("web");
    let last = config.to_string();
    config["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    api.post(
        &format!("{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply"),
        &config,
    )
    .await
    .ok();
    // What the client applied last is its own; the annotation is kept true.
    let next = change(deployment("web"), "/spec/replicas", json!(3));
    let moved = apply(&api, &path, "fieldManager=kubectl", &next).await.ok();
    assert_eq!(moved["spec"]["replicas"], 3);
    let kept =
        &moved["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    let kept: Value = serde_json::from_str(kept.as_str().unwrap()).unwrap();
    assert_eq!(kept["spec"]["replicas"], 3);
    // kubectl then merges the two entries, by a patch that names the version.
    let mut entries = entries(&moved).clone();
    entries
        .as_array_mut()
        .unwrap()
        .retain(|entry| entry["operation"] == "Apply");
    let patch = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion",
         "value": moved["metadata"]["resourceVersion"]},
    ]);
    let json_patch = "application/json-patch+json";
    let owned = api
        .call(Method::PATCH, &path, json_patch, patch.to_string())
        .await
        .ok();
    let owned = owners(&owned);
    assert_eq!(owned.len(), 1, "{owned:?}");
    assert!(owned[0].starts_with("kubectl Apply apps/v1: "), "{owned:?}");
    // Anybody else conflicts.
    let third = change(deployment("web"), "/spec/replicas", json!(4));
    apply(&api, &path, "fieldManager=other", &third)
        .await
        .refused(409, "Conflict", "conflict with \"kubectl\": .spec.replicas");
}
