//! What a ReplicaSet decides, case by case.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::status::Failure;
use super::*;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    now()
        .checked_sub(SignedDuration::from_secs(seconds))
        .unwrap()
        .to_string()
}

fn set(replicas: i32) -> ReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "d", "uid": "rs", "generation": 3},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}},
        },
    }))
    .unwrap()
}

/// Builds a ready, running, owned pod and lets a case change it.
fn pod(uid: &str, change: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {
            "name": uid, "namespace": "d", "uid": uid, "labels": {"app": "web"},
            "creationTimestamp": ago(1000),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}],
        },
        "spec": {"nodeName": "n1", "containers": []},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(900)}],
        },
    });
    merge(&mut value, change);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter()
        .map(|pod| object::text(&pod.metadata.name))
        .collect()
}

#[test]
fn creates_what_is_missing_up_to_the_burst() {
    for (desired, have, create) in [(3, 0, 3), (3, 3, 0), (0, 0, 0), (2000, 0, BURST_REPLICAS)] {
        let active: Vec<_> = (0..have)
            .map(|i| pod(&format!("p{i}"), json!({})))
            .collect();
        let manage = manage(&set(desired), &active, &[], now());
        assert_eq!(manage.create, create, "{desired} desired, {have} active");
        assert!(manage.delete.is_empty());
    }
}

#[test]
fn slow_start_doubles() {
    assert_eq!(slow_start(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
    assert_eq!(slow_start(0).count(), 0);
    assert_eq!(slow_start(1).collect::<Vec<_>>(), [1]);
}

/// Each pod beats the next by one criterion, in upstream's order.
#[test]
fn gives_up_the_least_useful_pods_first() {
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let pods = [
        pod(
            "unassigned",
            json!({"spec": {"nodeName": null}, "status": {"phase": "Pending", "conditions": []}}),
        ),
        pod(
            "pending",
            json!({"status": {"phase": "Pending", "conditions": []}}),
        ),
        pod(
            "unknown",
            json!({"status": {"phase": "Unknown", "conditions": []}}),
        ),
        pod("unready", unready),
        pod(
            "cheap",
            json!({"metadata": {"annotations": {rank::DELETION_COST: "-5"}}}),
        ),
        pod("crowded", json!({"spec": {"nodeName": "n2"}})),
        pod(
            "fresh",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(10)}]}}),
        ),
        pod(
            "restarted",
            json!({"status": {"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 4}]}}),
        ),
        pod(
            "newer",
            json!({"metadata": {"creationTimestamp": ago(400)}}),
        ),
        pod("a-uid", json!({})),
        pod("b-uid", json!({})),
        pod(
            "dear",
            json!({"metadata": {"annotations": {rank::DELETION_COST: "7"}}}),
        ),
    ];
    let mut related = pods.to_vec();
    related.extend((0..20).map(|i| pod(&format!("other{i}"), json!({"spec": {"nodeName": "n2"}}))));
    // Two shuffles: the order must not depend on the order given.
    for rotation in [5, 8] {
        let mut shuffled = pods.to_vec();
        shuffled.rotate_left(rotation);
        let given_up = rank::least_wanted(&shuffled, &related, pods.len(), now());
        assert_eq!(names(&given_up), names(&pods));
    }
}

#[test]
fn deletes_only_the_surplus() {
    let active: Vec<_> = (0..5).map(|i| pod(&format!("p{i}"), json!({}))).collect();
    let manage = manage(&set(2), &active, &active, now());
    assert_eq!(names(&manage.delete), ["p0", "p1", "p2"]);
}

#[test]
fn claims_ours_adopts_orphans_releases_strays() {
    let pods = [
        pod("ours", json!({})),
        pod("orphan", json!({"metadata": {"ownerReferences": []}})),
        pod("stray", json!({"metadata": {"labels": {"app": "db"}}})),
        pod("ended", json!({"status": {"phase": "Failed"}})),
        pod(
            "leaving",
            json!({"metadata": {"deletionTimestamp": ago(1)}}),
        ),
    ];
    let claims = claims(&set(1), pods);
    assert_eq!(names(&claims.owned), ["ours"]);
    assert_eq!(claims.terminating, 1);
    assert_eq!(claims.release.len(), 1);
    let [(adopted, Write::Patch { patch, .. })] = claims.adopt.as_slice() else {
        panic!("one adoption expected: {:?}", claims.adopt)
    };
    assert_eq!(adopted.metadata.name.as_deref(), Some("orphan"));
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "rs");
    assert_eq!(patch["metadata"]["uid"], "orphan");
}

#[test]
fn reports_counts_and_waits_for_min_ready() {
    let mut set = set(3);
    set.spec.as_mut().unwrap().min_ready_seconds = Some(30);
    let pods = [
        pod("old", json!({})),
        pod(
            "young",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ago(10)}]}}),
        ),
        pod("unready", json!({"status": {"conditions": []}})),
    ];
    let status = status::observed(&set, &pods, 0, None, now());
    assert_eq!(status.replicas, 3);
    assert_eq!(status.ready_replicas, Some(2));
    assert_eq!(status.available_replicas, Some(1));
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(
        status::requeue_after(&set, &pods, now()),
        Some(SignedDuration::from_secs(20))
    );
    set.status = Some(status.clone());
    assert_eq!(
        status::update(&set, status),
        None,
        "an equal status is not written again"
    );
}

#[test]
fn a_failure_is_reported_once_and_cleared() {
    let mut set = set(1);
    let failure = Failure {
        reason: "FailedCreate",
        message: "quota".into(),
    };
    let status = status::observed(&set, &[], 0, Some(&failure), now());
    let conditions = status.conditions.clone().unwrap();
    assert_eq!(conditions[0].reason.as_deref(), Some("FailedCreate"));
    set.status = Some(status);
    let later = Failure {
        reason: "FailedCreate",
        message: "other".into(),
    };
    let again = status::observed(&set, &[], 0, Some(&later), now());
    assert_eq!(
        again.conditions.unwrap()[0].message.as_deref(),
        Some("quota")
    );
    assert_eq!(status::observed(&set, &[], 0, None, now()).conditions, None);
}

#[test]
fn a_new_pod_carries_template_owner_and_generated_name() {
    let Write::Create {
        body,
        namespace,
        gvr,
    } = new_pod(&set(1))
    else {
        panic!("a creation")
    };
    assert_eq!(namespace.as_deref(), Some("d"));
    assert_eq!(gvr.resource, "pods");
    assert_eq!(body["metadata"]["generateName"], "web-");
    assert_eq!(body["metadata"]["labels"]["app"], "web");
    assert_eq!(body["metadata"]["ownerReferences"][0]["controller"], true);
}
