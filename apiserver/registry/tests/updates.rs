//! What may change in an object that exists, kind by kind: an object of
//! `tests/objects`, what is merged into it, through which endpoint, and what
//! comes of that.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that reads its inputs"
)]

use std::path::Path;

use registry::rest::{self, CreateFacts};
use registry::{Endpoint, Kind, kinds, schema};
use serde_json::{Value, json};

fn created(name: &str) -> (&'static Kind, Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/objects/{name}.yaml"));
    let text = std::fs::read(path).unwrap();
    let mut object = registry::json::decode_yaml(&text, 1 << 20).unwrap().value;
    let (api_version, kind) = meta::value::type_meta(&object);
    let kind = kinds::find_kind(api_version, kind).unwrap();
    schema::conform(kind.def().unwrap(), &mut object).unwrap();
    kind.strategy().default(&mut object);
    let facts = CreateFacts {
        namespace: kind.namespaced.then_some("default"),
        uid: "u".to_owned(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        random: 1,
    };
    rest::before_create(kind, &mut object, &facts).unwrap();
    (kind, object)
}

/// Merges a change into an object that `before` was merged into, and returns the
/// errors, or what became of it.
fn changed(
    name: &str,
    before: &Value,
    endpoint: Endpoint,
    change: &Value,
) -> Result<(Value, Value), Vec<String>> {
    let (kind, mut old) = created(name);
    meta::patch::merge::apply(&mut old, before.clone());
    let mut new = old.clone();
    meta::patch::merge::apply(&mut new, change.clone());
    kind.strategy().default(&mut new);
    match rest::before_update(kind, endpoint, &mut new, &old) {
        Ok(_) => Ok((new, old)),
        Err(status) => {
            let status = serde_json::to_value(status).unwrap();
            let causes = status["details"]["causes"].as_array().unwrap();
            let text = |cause: &Value, field: &str| cause[field].as_str().unwrap().to_owned();
            Err(causes
                .iter()
                .map(|c| format!("{}: {}", text(c, "field"), text(c, "message")))
                .collect())
        }
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn what_is_fixed_is_refused() {
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let done = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "succeeded": 2,
        "completionTime": "2026-01-01T00:01:00Z", "conditions": [
            {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]}});
    for (name, before, endpoint, change, words) in [
        (
            "daemonset",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}}}}),
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\"}}: field is immutable",
        ),
        (
            "statefulset",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"serviceName": "other"}}),
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ),
        (
            "statefulset",
            json!({}),
            Endpoint::Status,
            json!({"status": {"replicas": 1, "readyReplicas": 2}}),
            "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ),
        (
            "controllerrevision",
            json!({}),
            Endpoint::Main,
            json!({"data": {"spec": {"template": {"x": 1}}}}),
            "data: Invalid value: {\"spec\":{\"template\":{\"x\":1}}}: field is immutable",
        ),
        (
            "job",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"completions": 2}}),
            "spec.completions: Invalid value: 2: field is immutable",
        ),
        (
            "job-indexed",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"completions": 6}}),
            "spec.completions: Invalid value: 6: can only be modified in tandem with spec.parallelism",
        ),
        (
            "job",
            done.clone(),
            Endpoint::Status,
            json!({"status": {"succeeded": 1}}),
            "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
        ),
        (
            "job",
            done.clone(),
            Endpoint::Status,
            json!({"status": {"active": 1}}),
            "status.active: Invalid value: 1: active>0 is invalid for finished job",
        ),
        (
            "job",
            json!({}),
            Endpoint::Status,
            json!({"status": {"startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Failed", "status": "True"}]}}),
            "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            "cronjob",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"schedule": "TZ=UTC 0 0 * * *"}}),
            "spec.schedule: Invalid value: \"TZ=UTC 0 0 * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
        (
            "resourcequota",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"scopes": ["NotTerminating"], "hard": null}}),
            "spec.scopes: Invalid value: [\"NotTerminating\"]: field is immutable",
        ),
        (
            "persistentvolumeclaim",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ),
        (
            "persistentvolumeclaim",
            bound.clone(),
            Endpoint::Main,
            json!({"spec": {"resources": {"requests": {"storage": "512Mi"}}}}),
            "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity",
        ),
        (
            "persistentvolume",
            json!({}),
            Endpoint::Main,
            json!({"spec": {"hostPath": {"path": "/other"}}}),
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation",
        ),
        (
            "endpointslice",
            json!({}),
            Endpoint::Main,
            json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]}),
            "addressType: Invalid value: \"FQDN\": field is immutable",
        ),
        (
            "poddisruptionbudget",
            json!({}),
            Endpoint::Status,
            json!({"status": {"disruptionsAllowed": -1}}),
            "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "horizontalpodautoscaler",
            json!({}),
            Endpoint::Status,
            json!({"status": {"currentReplicas": -1}}),
            "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "replicationcontroller",
            json!({}),
            Endpoint::Status,
            json!({"status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 2}}),
            "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
        ),
    ] {
        let errors = changed(name, &before, endpoint, &change).unwrap_err();
        assert!(errors.iter().any(|e| e == words), "{name}: {errors:#?}");
    }
}

#[test]
fn what_may_change_is_counted() {
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    for (name, before, change, counted) in [
        (
            "statefulset",
            json!({}),
            json!({"spec": {"replicas": 3}}),
            true,
        ),
        (
            "daemonset",
            json!({}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            false,
        ),
        (
            "replicationcontroller",
            json!({}),
            json!({"spec": {"replicas": 3}}),
            true,
        ),
        ("job", json!({}), json!({"spec": {"suspend": true}}), true),
        (
            "job",
            json!({"spec": {"suspend": true}}),
            json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}),
            true,
        ),
        (
            "job-indexed",
            json!({}),
            json!({"spec": {"completions": 6, "parallelism": 6}}),
            true,
        ),
        (
            "cronjob",
            json!({}),
            json!({"spec": {"schedule": "@daily"}}),
            true,
        ),
        (
            "podtemplate",
            json!({}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            false,
        ),
        (
            "poddisruptionbudget",
            json!({}),
            json!({"spec": {"minAvailable": 1}}),
            true,
        ),
        (
            "endpointslice",
            json!({}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            true,
        ),
        (
            "persistentvolumeclaim",
            bound,
            json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
            false,
        ),
    ] {
        let (new, old) = changed(name, &before, Endpoint::Main, &change).unwrap();
        let count = |o: &Value| o["metadata"]["generation"].as_i64().unwrap_or(0);
        assert_eq!(count(&new) - count(&old), i64::from(counted), "{name}");
        // Nobody's status changes through the main door.
        assert_eq!(new.get("status"), old.get("status"), "{name}");
    }
}

#[test]
fn daemon_sets_count_their_templates() {
    let key = "deprecated.daemonset.template.generation";
    let change = json!({"metadata": {"annotations": null},
        "spec": {"template": {"spec": {"hostNetwork": true}}}});
    let (new, old) = changed("daemonset", &json!({}), Endpoint::Main, &change).unwrap();
    assert_eq!(old["metadata"]["annotations"][key], "1");
    assert_eq!(new["metadata"]["annotations"][key], "2");
}

#[test]
fn the_old_autoscaler_keeps_what_it_has_no_field_for() {
    let (old, _) = created("horizontalpodautoscaler-old");
    let status = json!({"status": {"currentReplicas": 2, "desiredReplicas": 3,
        "currentCPUUtilizationPercentage": 40}});
    let changed = changed(
        "horizontalpodautoscaler-old",
        &json!({}),
        Endpoint::Status,
        &status,
    );
    let (mut new, _) = changed.unwrap();
    assert_eq!(new["status"], status["status"]);
    let current = "autoscaling.alpha.kubernetes.io/current-metrics";
    let text = new["metadata"]["annotations"][current].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(text).unwrap(),
        json!([{"type": "Resource", "resource": {"name": "cpu", "currentAverageUtilization": 40}}])
    );
    old.to_storage(&mut new);
    let metrics = &new["spec"]["metrics"];
    assert_eq!(
        metrics[0]["pods"],
        json!({"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "1k"}})
    );
    assert_eq!(metrics[1]["resource"]["target"]["averageUtilization"], 50);
    assert_eq!(
        new["spec"]["behavior"]["scaleUp"]["stabilizationWindowSeconds"],
        5
    );
    assert_eq!(new["metadata"]["annotations"], json!({"own": "yes"}));
    // Through the main door the status stays, whatever the annotations say.
    let change = json!({"metadata": {"annotations": {current: "[]"}}});
    let (again, before) = self::changed(
        "horizontalpodautoscaler-old",
        &status,
        Endpoint::Main,
        &change,
    )
    .unwrap();
    assert_eq!(again["status"], before["status"]);
}
