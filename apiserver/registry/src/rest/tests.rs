//! Tests of what every write goes through, with the words users see.

use serde_json::json;

use super::*;
use crate::kinds::find;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn kind(plural: &str) -> &'static Kind {
    crate::kinds::all()
        .iter()
        .copied()
        .find(|k| k.plural == plural)
        .unwrap()
}

/// The whole way of a created object.
fn create(kind: &Kind, mut object: Value) -> Result<Value, Status> {
    let def = kind.def().unwrap();
    crate::schema::conform(def, &mut object)
        .map_err(|e| Status::bad_request(e.message(&kind.gvk())))?;
    kind.strategy().default(&mut object);
    crate::admission::prioritise(kind, &mut object, None)?;
    crate::admission::admit_create(kind, &mut object)?;
    let facts = CreateFacts {
        namespace: Some("ns"),
        uid: "u1".to_owned(),
        now: now(),
        random: 7,
    };
    before_create(kind, &mut object, &facts)?;
    Ok(object)
}

fn update(kind: &Kind, endpoint: Endpoint, old: &Value, mut new: Value) -> Result<Value, Status> {
    crate::schema::conform(kind.def().unwrap(), &mut new).unwrap();
    kind.strategy().default(&mut new);
    before_update(kind, endpoint, &mut new, old)?;
    Ok(new)
}

fn pod() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn deployment() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
}

#[test]
fn create_completes_metadata() {
    let made = create(kind("pods"), json!({
        "metadata": {"generateName": "web-", "uid": "mine", "generation": 9, "selfLink": "/x",
            "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:00Z"},
        "spec": pod()["spec"], "status": {"phase": "Failed"},
    }))
    .unwrap();
    let metadata = &made["metadata"];
    assert!(value::name(&made).starts_with("web-") && value::name(&made).len() == 9);
    assert_eq!(metadata["namespace"], "ns");
    assert_eq!(metadata["uid"], "u1");
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert!(metadata.get("deletionTimestamp").is_none() && metadata.get("selfLink").is_none());
    assert_eq!(
        made["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(
        (&made["apiVersion"], &made["kind"]),
        (&json!("v1"), &json!("Pod"))
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn create_refuses() {
    let with = |mut object: Value, pointer: &str, value: Value| {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[name] = value;
        object
    };
    for (plural, object, code, message) in [
        (
            "pods",
            with(pod(), "/metadata/name", json!("Web_1")),
            422,
            "Pod \"Web_1\" is invalid: metadata.name: Invalid value: \"Web_1\": a lowercase RFC 1123 subdomain must consist of",
        ),
        (
            "pods",
            with(pod(), "/spec/containers", json!([])),
            422,
            "Pod \"web\" is invalid: spec.containers: Required value",
        ),
        (
            "pods",
            with(pod(), "/spec/containers", json!("x")),
            400,
            "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string into Go struct field PodSpec.spec.containers",
        ),
        (
            "pods",
            with(pod(), "/metadata/resourceVersion", json!("5")),
            400,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            "pods",
            with(pod(), "/metadata/namespace", json!("other")),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "pods",
            json!({"spec": pod()["spec"]}),
            422,
            "Pod \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            "deployments",
            with(
                deployment(),
                "/spec/template/metadata/labels",
                json!({"app": "other"}),
            ),
            422,
            "Deployment.apps \"web\" is invalid: spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`",
        ),
        (
            "deployments",
            with(deployment(), "/spec/replicas", json!(-1)),
            422,
            "Deployment.apps \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "deployments",
            json!({"metadata": {"name": "web"}, "spec": {}}),
            422,
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, spec.template: Required value",
        ),
        (
            "services",
            json!({"metadata": {"name": "1web"}, "spec": {"ports": [{"port": 80}]}}),
            422,
            "Service \"1web\" is invalid: metadata.name: Invalid value: \"1web\": a DNS-1035 label must",
        ),
        (
            "services",
            json!({"metadata": {"name": "web"}, "spec": {}}),
            422,
            "Service \"web\" is invalid: spec.ports: Required value",
        ),
        (
            "configmaps",
            json!({"metadata": {"name": "c"}, "data": {"a/b": ""}}),
            422,
            "ConfigMap \"c\" is invalid: data[a/b]: Invalid value: \"a/b\": ",
        ),
        (
            "secrets",
            json!({"metadata": {"name": "c"}, "type": "kubernetes.io/tls"}),
            422,
            "Secret \"c\" is invalid: [data[tls.crt]: Required value, data[tls.key]: Required value]",
        ),
        (
            "namespaces",
            json!({"metadata": {"name": "a.b"}}),
            422,
            "Namespace \"a.b\" is invalid: metadata.name: Invalid value: \"a.b\": a lowercase RFC 1123 label must",
        ),
        (
            "leases",
            json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}}),
            422,
            "Lease.coordination.k8s.io \"l\" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
    ] {
        let status = create(kind(plural), object).unwrap_err();
        assert!(status.message.starts_with(message), "{}", status.message);
        assert_eq!(status.code, code, "{message}");
    }
}

#[test]
fn containers_are_checked() {
    let containers = json!([
        {"name": "a", "image": "i", "ports": [{"containerPort": 70000}, {"name": "Bad_Port_Name_12", "containerPort": 1}],
         "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
         "volumeMounts": [{"name": "v", "mountPath": "/v"}], "env": [{"name": "A=B"}],
         "livenessProbe": {"periodSeconds": -1}},
        {"name": "a", "image": " i", "imagePullPolicy": "Sometimes"},
    ]);
    let object = json!({"metadata": {"name": "web"}, "spec": {"containers": containers, "restartPolicy": "Maybe"}});
    let status = create(kind("pods"), object).unwrap_err();
    let fields: Vec<String> = status
        .details
        .unwrap()
        .causes
        .into_iter()
        .map(|c| format!("{} {}", c.reason, c.field))
        .collect();
    for expected in [
        "FieldValueInvalid spec.containers[0].ports[0].containerPort",
        "FieldValueInvalid spec.containers[0].ports[1].name",
        "FieldValueInvalid spec.containers[0].resources.requests",
        "FieldValueNotFound spec.containers[0].volumeMounts[0].name",
        "FieldValueInvalid spec.containers[0].env[0].name",
        "FieldValueRequired spec.containers[0].livenessProbe",
        "FieldValueInvalid spec.containers[0].livenessProbe.periodSeconds",
        "FieldValueDuplicate spec.containers[1].name",
        "FieldValueInvalid spec.containers[1].image",
        "FieldValueNotSupported spec.containers[1].imagePullPolicy",
        "FieldValueNotSupported spec.restartPolicy",
    ] {
        assert!(
            fields.iter().any(|f| f == expected),
            "{expected} not in {fields:?}"
        );
    }
}

#[test]
fn updates_keep_what_is_not_theirs() {
    let kind = kind("deployments");
    let mut old = create(kind, deployment()).unwrap();
    old["status"] = json!({"replicas": 2});
    let mut new = old.clone();
    new["spec"]["replicas"] = json!(5);
    new["status"] = json!({"replicas": 100});
    new["metadata"]["uid"] = json!("");
    new["metadata"]["creationTimestamp"] = json!("1999-01-01T00:00:00Z");
    let updated = update(kind, Endpoint::Main, &old, new.clone()).unwrap();
    assert_eq!(updated["status"], old["status"]);
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(updated["metadata"]["uid"], "u1");
    assert_eq!(
        updated["metadata"]["creationTimestamp"],
        "2026-01-01T00:00:00Z"
    );
    let status = update(kind, Endpoint::Status, &old, new).unwrap();
    assert_eq!(
        (&status["status"]["replicas"], &status["spec"]),
        (&json!(100), &old["spec"])
    );
    assert_eq!(status["metadata"]["generation"], 1);
    // The same again is the same.
    assert_eq!(
        update(kind, Endpoint::Main, &old, old.clone()).unwrap(),
        old
    );
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let labelled = update(kind, Endpoint::Main, &old, labelled).unwrap();
    assert_eq!(labelled["metadata"]["generation"], 1);
}

#[test]
fn updates_refuse() {
    let kind_ = kind("deployments");
    let old = create(kind_, deployment()).unwrap();
    let mut new = old.clone();
    new["spec"]["selector"] = json!({"matchLabels": {"app": "web", "x": "y"}});
    new["spec"]["template"]["metadata"]["labels"]["x"] = json!("y");
    let status = update(kind_, Endpoint::Main, &old, new).unwrap_err();
    assert_eq!(
        status.message,
        "Deployment.apps \"web\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"x\":\"y\"}}: field is immutable"
    );
    let mut renamed = old.clone();
    renamed["metadata"]["name"] = json!("other");
    assert_eq!(
        update(kind_, Endpoint::Main, &old, renamed)
            .unwrap_err()
            .code,
        400
    );
    let mut other = old.clone();
    other["metadata"]["uid"] = json!("u2");
    let status = update(kind_, Endpoint::Main, &old, other).unwrap_err();
    assert_eq!(status.code, 409);
    assert!(
        status
            .message
            .ends_with("Precondition failed: UID in precondition: u2, UID in object meta: u1")
    );

    let pods = kind("pods");
    let old = create(pods, pod()).unwrap();
    let mut image = old.clone();
    image["spec"]["containers"][0]["image"] = json!("i:2");
    let image = update(pods, Endpoint::Main, &old, image).unwrap();
    assert_eq!(image["metadata"]["generation"], 2);
    let mut node = old.clone();
    node["spec"]["nodeName"] = json!("n");
    let status = update(pods, Endpoint::Main, &old, node).unwrap_err();
    assert!(
        status
            .message
            .contains("spec: Forbidden: pod updates may not change fields other than")
    );
    let mut tolerant = old.clone();
    tolerant["spec"]["tolerations"]
        .as_array_mut()
        .unwrap()
        .push(json!({"operator": "Exists"}));
    assert!(update(pods, Endpoint::Main, &old, tolerant).is_ok());
    let mut bare = old.clone();
    bare["spec"]["tolerations"] = json!([]);
    assert_eq!(
        update(pods, Endpoint::Main, &old, bare).unwrap_err().code,
        422
    );
}

#[test]
fn services_keep_their_address() {
    let kind = kind("services");
    let manifest =
        json!({"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let mut old = create(kind, manifest.clone()).unwrap();
    old["spec"]["clusterIP"] = json!("10.0.0.5");
    old["spec"]["clusterIPs"] = json!(["10.0.0.5"]);
    old["spec"]["ports"][0]["nodePort"] = json!(30001);
    let updated = update(kind, Endpoint::Main, &old, manifest).unwrap();
    assert_eq!(updated["spec"]["clusterIP"], "10.0.0.5");
    assert_eq!(updated["spec"]["ports"][0]["nodePort"], 30001);
    let mut moved = old.clone();
    moved["spec"]["clusterIP"] = json!("10.0.0.6");
    moved["spec"]["clusterIPs"] = json!(["10.0.0.6"]);
    let status = update(kind, Endpoint::Main, &old, moved).unwrap_err();
    assert!(
        status
            .message
            .contains("spec.clusterIPs[0]: Invalid value: [\"10.0.0.6\"]: may not change once set")
    );
}

#[test]
fn secrets_take_string_data_and_freeze() {
    let kind = kind("secrets");
    let made = create(
        kind,
        json!({"metadata": {"name": "s"}, "stringData": {"a": "hi"}, "immutable": true}),
    )
    .unwrap();
    assert_eq!(made["data"], json!({"a": "aGk="}));
    assert!(made.get("stringData").is_none() && made["type"] == "Opaque");
    let mut new = made.clone();
    new["data"]["a"] = json!("eG8=");
    let status = update(kind, Endpoint::Main, &made, new).unwrap_err();
    assert!(
        status
            .message
            .contains("data: Forbidden: field is immutable when `immutable` is set")
    );
}

#[test]
fn deleting_step_by_step() {
    let pods = kind("pods");
    let scheduled = |finalizers: Value| {
        let mut object = create(pods, pod()).unwrap();
        object["spec"]["nodeName"] = json!("n");
        object["metadata"]["finalizers"] = finalizers;
        object
    };
    let plain = DeleteOptions::default();
    let asked = |seconds| DeleteOptions {
        grace_period_seconds: Some(seconds),
        ..DeleteOptions::default()
    };

    let mut object = create(pods, pod()).unwrap();
    assert_eq!(
        begin_delete(pods, &mut object, &plain, now()),
        DeleteStep::Remove
    );

    let mut object = scheduled(json!([]));
    assert_eq!(
        begin_delete(pods, &mut object, &plain, now()),
        DeleteStep::Update
    );
    assert_eq!(
        object["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:30Z"
    );
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(object["metadata"]["generation"], 2);
    assert_eq!(
        begin_delete(pods, &mut object, &plain, now()),
        DeleteStep::Pending
    );
    assert_eq!(
        begin_delete(pods, &mut object, &asked(60), now()),
        DeleteStep::Pending
    );
    assert_eq!(
        begin_delete(pods, &mut object, &asked(10), now()),
        DeleteStep::Update
    );
    assert_eq!(
        object["metadata"]["deletionTimestamp"],
        "2026-01-01T00:00:10Z"
    );
    assert!(!ends_deletion(pods, &object, &object));
    assert_eq!(
        begin_delete(pods, &mut object, &asked(0), now()),
        DeleteStep::Remove
    );

    let mut object = scheduled(json!(["a/b"]));
    assert_eq!(
        begin_delete(pods, &mut object, &asked(0), now()),
        DeleteStep::Update
    );
    assert_eq!(object["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(
        begin_delete(pods, &mut object, &asked(0), now()),
        DeleteStep::Pending
    );
    let mut released = object.clone();
    released["metadata"]["finalizers"] = json!([]);
    assert!(ends_deletion(pods, &released, &object));
}

#[test]
fn a_grace_that_runs_is_settled() {
    let pods = kind("pods");
    let mut object = create(pods, pod()).unwrap();
    object["spec"]["nodeName"] = json!("n");
    let asked = |seconds| DeleteOptions {
        grace_period_seconds: Some(seconds),
        ..DeleteOptions::default()
    };
    assert_eq!(
        begin_delete(pods, &mut object, &asked(10), now()),
        DeleteStep::Update
    );
    let mut late = object.clone();
    let later = now() + jiff::SignedDuration::from_secs(9);
    assert_eq!(
        begin_delete(pods, &mut late, &asked(5), later),
        DeleteStep::Update
    );
    assert_eq!(
        late["metadata"]["deletionTimestamp"], "2026-01-01T00:00:09Z",
        "not into the past"
    );
    assert_eq!(late["metadata"]["deletionGracePeriodSeconds"], 1);
    let orphan = DeleteOptions {
        propagation: Some(Propagation::Orphan),
        ..DeleteOptions::default()
    };
    assert_eq!(
        begin_delete(pods, &mut object, &orphan, now()),
        DeleteStep::Pending,
        "finalizers are settled by the first deletion"
    );
    assert_eq!(object["metadata"].get("finalizers"), None);
}

#[test]
fn propagation_becomes_finalizers() {
    let kind = kind("deployments");
    for (policy, finalizers, step) in [
        (None, Value::Null, DeleteStep::Remove),
        (
            Some(Propagation::Background),
            Value::Null,
            DeleteStep::Remove,
        ),
        (
            Some(Propagation::Foreground),
            json!([FOREGROUND]),
            DeleteStep::Update,
        ),
        (
            Some(Propagation::Orphan),
            json!([ORPHAN]),
            DeleteStep::Update,
        ),
    ] {
        let mut object = create(kind, deployment()).unwrap();
        let options = DeleteOptions {
            propagation: policy,
            ..DeleteOptions::default()
        };
        assert_eq!(begin_delete(kind, &mut object, &options, now()), step);
        assert_eq!(
            object["metadata"]
                .get("finalizers")
                .cloned()
                .unwrap_or_default(),
            finalizers
        );
    }
}

#[test]
fn namespaces_end_when_finalized() {
    let kind = find("", "v1", "namespaces").unwrap();
    let mut object = create(kind, json!({"metadata": {"name": "a"}})).unwrap();
    assert_eq!(object["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        object["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "a"
    );
    assert_eq!(object["status"]["phase"], "Active");
    let plain = DeleteOptions::default();
    assert_eq!(
        begin_delete(kind, &mut object, &plain, now()),
        DeleteStep::Update
    );
    assert_eq!(object["status"]["phase"], "Terminating");
    assert_eq!(
        begin_delete(kind, &mut object, &plain, now()),
        DeleteStep::Pending
    );
    // The main endpoint cannot empty the finalizers; the finalize one can.
    let mut new = object.clone();
    new["spec"]["finalizers"] = json!([]);
    let kept = update(kind, Endpoint::Main, &object, new.clone()).unwrap();
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    assert!(!ends_deletion(kind, &kept, &object));
    let gone = update(kind, Endpoint::Finalize, &object, new).unwrap();
    assert!(ends_deletion(kind, &gone, &object));
}

#[test]
fn delete_options() {
    let read = |body| DeleteOptions::from_value(&body);
    let options = read(
        json!({"gracePeriodSeconds": 0, "propagationPolicy": "Orphan",
        "preconditions": {"uid": "x", "resourceVersion": "4"}, "dryRun": ["All"]}),
    )
    .unwrap();
    assert_eq!(options.propagation, Some(Propagation::Orphan));
    assert!(options.dry_run && options.grace_period_seconds == Some(0));
    let object = json!({"metadata": {"name": "a", "uid": "u"}});
    let status = options.check(kind("pods"), &object, "4").unwrap_err();
    assert_eq!(status.code, 409);
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (x) does not match the UID in record (u). The object might have been deleted and then recreated"
    );
    let negative = read(json!({"gracePeriodSeconds": -5, "orphanDependents": false})).unwrap();
    assert_eq!(negative.grace_period_seconds, Some(1));
    assert!(negative.cascades && !options.cascades);
    let status = read(json!({"dryRun": ["Some"], "propagationPolicy": "Sideways"})).unwrap_err();
    assert_eq!(
        status.message,
        "DeleteOptions.meta.k8s.io \"\" is invalid: [propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\", dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"]"
    );
    assert_eq!(
        read(json!({"orphanDependents": true})).unwrap().propagation,
        Some(Propagation::Orphan)
    );
    assert_eq!(
        read(json!({"propagationPolicy": "Sideways"}))
            .unwrap_err()
            .code,
        422
    );
    assert_eq!(
        read(json!({"propagationPolicy": "Orphan", "orphanDependents": true}))
            .unwrap_err()
            .code,
        422
    );
}
