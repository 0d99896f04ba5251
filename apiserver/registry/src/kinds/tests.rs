//! Tests of the descriptors, the rows and the conversions of all kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::table::table;

mod devices;
mod groups;
mod policies;

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

fn row(kind: &Kind, object: Value) -> Vec<String> {
    let cells = kind.cells(&object, now());
    assert_eq!(cells.len(), kind.columns.len(), "{kind:?}");
    cells
        .iter()
        .map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned))
        .collect()
}

fn named(plural: &str) -> &'static Kind {
    all().iter().copied().find(|k| k.plural == plural).unwrap()
}

#[test]
fn descriptors_are_sound() {
    let mut seen = BTreeSet::new();
    for kind in all() {
        assert!(
            table().named(kind.definition).is_some(),
            "{kind:?} is not in build/roots.rs"
        );
        assert!(
            seen.insert((kind.group, kind.version, kind.plural)),
            "{kind:?} stands twice"
        );
        assert_eq!(kind.list_kind, format!("{}List", kind.kind));
        assert_eq!(kind.singular, kind.kind.to_lowercase());
        assert_eq!(
            find(kind.group, kind.version, kind.plural).map(Kind::gvk),
            Some(kind.gvk())
        );
        assert!(find_kind(&kind.api_version(), kind.kind).is_some());
        // Cells of nearly nothing must not fail, and fit the columns.
        row(kind, json!({}));
        assert_eq!(
            kind.selectable_fields(&json!({})).len(),
            kind.selectable.len()
        );
        for subresource in kind.subresources {
            assert_eq!(
                kind.subresource(subresource.name).unwrap().name,
                subresource.name
            );
        }
        let definition = table().named(kind.definition).unwrap();
        assert_eq!(
            definition.field("status").is_some(),
            kind.subresource("status").is_some()
        );
    }
}

#[test]
fn keys_are_laid_out_as_kubernetes_lays_them() {
    for (plural, namespace, key) in [
        ("pods", Some("a"), "/registry/pods/a/x"),
        ("services", Some("a"), "/registry/services/specs/a/x"),
        ("nodes", None, "/registry/minions/x"),
        ("namespaces", None, "/registry/namespaces/x"),
        ("deployments", Some("a"), "/registry/deployments/a/x"),
        ("replicasets", Some("a"), "/registry/replicasets/a/x"),
        ("leases", Some("a"), "/registry/leases/a/x"),
        ("events", Some("a"), "/registry/events/a/x"),
        ("endpoints", Some("a"), "/registry/services/endpoints/a/x"),
        (
            "replicationcontrollers",
            Some("a"),
            "/registry/controllers/a/x",
        ),
        ("persistentvolumes", None, "/registry/persistentvolumes/x"),
    ] {
        assert_eq!(named(plural).key(namespace, "x"), key);
    }
    assert_eq!(named("pods").list_prefix(None), "/registry/pods/");
    assert_eq!(
        named("services").list_prefix(Some("a")),
        "/registry/services/specs/a/"
    );
}

fn pod(status: Value) -> Value {
    json!({
        "metadata": {"name": "web", "creationTimestamp": "2026-01-01T23:55:00Z"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
        "status": status,
    })
}

fn status_of(object: Value) -> String {
    row(named("pods"), object)[2].clone()
}

#[test]
fn pod_row() {
    let restarted = json!({"terminated": {"finishedAt": "2026-01-01T23:58:00Z"}});
    let object = pod(json!({
        "phase": "Running", "podIPs": [{"ip": "10.0.0.7"}],
        "initContainerStatuses": [
            {"name": "i", "state": {"terminated": {"exitCode": 0}}, "restartCount": 4},
            {"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}}],
        "containerStatuses": [
            {"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 2, "lastState": restarted},
            {"name": "b", "ready": false, "state": {"running": {}}}],
    }));
    assert_eq!(
        row(named("pods"), object),
        [
            "web",
            "2/3",
            "Running",
            "3 (2m ago)",
            "5m",
            "10.0.0.7",
            "n1",
            "<none>",
            "<none>"
        ]
    );
}

#[test]
fn pod_statuses() {
    let waiting = |reason: &str| json!({"containerStatuses": [{"name": "a", "state": {"waiting": {"reason": reason}}}]});
    let init = |state: Value| json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": state}]});
    for (status, text) in [
        (json!({"phase": "Pending"}), "Pending"),
        (waiting("CrashLoopBackOff"), "CrashLoopBackOff"),
        (waiting("ContainerCreating"), "ContainerCreating"),
        (init(json!({"running": {}})), "Init:0/2"),
        (
            init(json!({"waiting": {"reason": "PodInitializing"}})),
            "Init:0/2",
        ),
        (
            init(json!({"waiting": {"reason": "ImagePullBackOff"}})),
            "Init:ImagePullBackOff",
        ),
        (
            init(json!({"terminated": {"exitCode": 3}})),
            "Init:ExitCode:3",
        ),
        (
            init(json!({"terminated": {"exitCode": 137, "signal": 9}})),
            "Init:Signal:9",
        ),
        (
            init(json!({"terminated": {"exitCode": 1, "reason": "Error"}})),
            "Init:Error",
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
            "Completed",
        ),
        (
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [
                    {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    {"name": "b", "ready": true, "state": {"running": {}}}]}),
            "Running",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"name": "b", "ready": true, "state": {"running": {}}}]}),
            "NotReady",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 7}}}]}),
            "ExitCode:7",
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "SchedulingGated",
        ),
    ] {
        assert_eq!(status_of(pod(status.clone())), text, "{status}");
    }
    for (status, text) in [
        (json!({"phase": "Running"}), "Terminating"),
        (json!({"phase": "Running", "reason": "NodeLost"}), "Unknown"),
        (json!({"phase": "Failed"}), "Failed"),
    ] {
        let mut object = pod(status);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(status_of(object), text);
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn rows_of_other_kinds() {
    let metadata = json!({"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}]}});
    for (plural, object, cells) in [
        (
            "deployments",
            json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template},
                "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
            vec!["x", "1/3", "2", "1", "24h", "c,d", "i:1,j", "a=b"],
        ),
        (
            "replicasets",
            json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template},
                "status": {"replicas": 2, "readyReplicas": 1}}),
            vec!["x", "3", "2", "1", "24h", "c,d", "i:1,j", "a=b"],
        ),
        (
            "services",
            json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "selector": {"a": "b"},
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]}}),
            vec![
                "x",
                "NodePort",
                "10.0.0.1",
                "<none>",
                "80:30080/TCP,53/UDP",
                "24h",
                "a=b",
            ],
        ),
        (
            "nodes",
            json!({"spec": {"unschedulable": true}, "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Linux"}}}),
            vec![
                "x",
                "Ready,SchedulingDisabled",
                "<none>",
                "24h",
                "v1.36.0",
                "10.1.1.1",
                "<none>",
                "Linux",
                "<unknown>",
                "<unknown>",
            ],
        ),
        (
            "namespaces",
            json!({"status": {"phase": "Active"}}),
            vec!["x", "Active", "24h"],
        ),
        (
            "configmaps",
            json!({"data": {"a": "1"}, "binaryData": {"b": "MQ=="}}),
            vec!["x", "2", "24h"],
        ),
        (
            "secrets",
            json!({"type": "Opaque", "data": {"a": "MQ=="}}),
            vec!["x", "Opaque", "1", "24h"],
        ),
        ("serviceaccounts", json!({}), vec!["x", "0", "24h"]),
        (
            "leases",
            json!({"spec": {"holderIdentity": "me"}}),
            vec!["x", "me", "24h"],
        ),
        (
            "events",
            json!({"involvedObject": {"kind": "Pod", "name": "web"}, "type": "Warning", "reason": "BackOff",
                "message": "again \n", "count": 3, "firstTimestamp": "2026-01-01T23:00:00Z",
                "lastTimestamp": "2026-01-01T23:59:00Z", "source": {"component": "kubelet", "host": "n1"}}),
            vec![
                "60s",
                "Warning",
                "BackOff",
                "pod/web",
                "",
                "kubelet, n1",
                "again",
                "60m",
                "3",
                "x",
            ],
        ),
    ] {
        let mut object = object;
        object["metadata"] = metadata.clone();
        assert_eq!(row(named(plural), object), cells, "{plural}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn rows_of_workloads() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}],
        "nodeSelector": {"disk": "fast"}}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let start = "2026-01-01T23:00:00Z";
    for (plural, object, cells) in [
        (
            "replicationcontrollers",
            json!({"spec": {"replicas": 3, "selector": {"a": "b"}, "template": template},
                "status": {"replicas": 2, "readyReplicas": 1}}),
            vec!["x", "3", "2", "1", "24h", "c", "i:1", "a=b"],
        ),
        (
            "statefulsets",
            json!({"spec": {"replicas": 3, "template": template}, "status": {"readyReplicas": 1}}),
            vec!["x", "1/3", "24h", "c", "i:1"],
        ),
        (
            "daemonsets",
            json!({"spec": {"selector": selector, "template": template},
                "status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                    "updatedNumberScheduled": 2, "numberAvailable": 1}}),
            vec![
                "x",
                "5",
                "4",
                "3",
                "2",
                "1",
                "disk=fast",
                "24h",
                "c",
                "i:1",
                "a=b",
            ],
        ),
        (
            "controllerrevisions",
            json!({"revision": 3, "metadata": {"ownerReferences": [{"apiVersion": "apps/v1",
                "kind": "StatefulSet", "name": "db", "controller": true}]}}),
            vec!["x", "statefulset.apps/db", "3", "24h"],
        ),
        (
            "jobs",
            json!({"spec": {"completions": 3, "selector": selector, "template": template},
                "status": {"succeeded": 1, "startTime": start}}),
            vec!["x", "Running", "1/3", "60m", "24h", "c", "i:1", "a=b"],
        ),
        (
            "jobs",
            json!({"spec": {"parallelism": 2, "template": template},
                "status": {"succeeded": 1, "startTime": start, "completionTime": "2026-01-01T23:00:30Z",
                    "conditions": [{"type": "Complete", "status": "True"}]}}),
            vec![
                "x", "Complete", "1/1 of 2", "30s", "24h", "c", "i:1", "<none>",
            ],
        ),
        (
            "cronjobs",
            json!({"spec": {"schedule": "@daily", "suspend": false,
                    "jobTemplate": {"spec": {"template": template}}},
                "status": {"active": [{}], "lastScheduleTime": start}}),
            vec![
                "x", "@daily", "<none>", "False", "1", "60m", "24h", "c", "i:1", "<none>",
            ],
        ),
        (
            "podtemplates",
            json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": template["spec"]}}),
            vec!["x", "c", "i:1", "a=b"],
        ),
        (
            "poddisruptionbudgets",
            json!({"spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 1}}),
            vec!["x", "2", "N/A", "1", "24h"],
        ),
        (
            "horizontalpodautoscalers",
            json!({"apiVersion": "autoscaling/v2", "spec": {"minReplicas": 1, "maxReplicas": 9,
                "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                    {"type": "Pods", "pods": {"target": {"averageValue": "1k"}}},
                    {"type": "External", "external": {"target": {"value": "5"}}}]},
                "status": {"currentReplicas": 2, "currentMetrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40}}}]}}),
            vec![
                "x",
                "Deployment/web",
                "cpu: 40%/80%, <unknown>/1k + 1 more...",
                "1",
                "9",
                "2",
                "24h",
            ],
        ),
    ] {
        assert_row(plural, object, &cells);
    }
}

#[test]
fn rows_of_what_is_counted_and_stored() {
    for (plural, object, cells) in [
        (
            "endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "ports": [{"port": 80}, {"port": 81}]}]}),
            vec![
                "x",
                "10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more...",
                "24h",
            ],
        ),
        ("endpoints", json!({}), vec!["x", "<none>", "24h"]),
        (
            "endpointslices",
            json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "b"}],
                "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            vec!["x", "IPv4", "80,b", "10.0.0.1", "24h"],
        ),
        (
            "endpointslices",
            json!({"addressType": "IPv4"}),
            vec!["x", "IPv4", "<unset>", "<unset>", "24h"],
        ),
        ("limitranges", json!({}), vec!["x", "2026-01-01T00:00:00Z"]),
        (
            "resourcequotas",
            json!({"status": {"hard": {"pods": "10", "limits.cpu": "4", "requests.cpu": "2"},
                "used": {"pods": "3", "limits.cpu": "500m"}}}),
            vec![
                "x",
                "pods: 3/10, requests.cpu: 0/2",
                "limits.cpu: 500m/4",
                "24h",
            ],
        ),
        (
            "persistentvolumes",
            json!({"spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast", "volumeMode": "Block",
                "claimRef": {"namespace": "a", "name": "b"}}, "status": {"phase": "Bound"}}),
            vec![
                "x", "10Gi", "RWO,RWX", "Retain", "Bound", "a/b", "fast", "<unset>", "", "24h",
                "Block",
            ],
        ),
        (
            "persistentvolumeclaims",
            json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Bound",
                "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOncePod"]}}),
            vec![
                "x", "Bound", "pv", "10Gi", "RWOP", "", "<unset>", "24h", "<unset>",
            ],
        ),
        (
            "componentstatuses",
            json!({"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}),
            vec!["x", "Healthy", "ok", ""],
        ),
    ] {
        assert_row(plural, object, &cells);
    }
}

fn assert_row(plural: &str, mut object: Value, cells: &[&str]) {
    meta::value::set_metadata(&mut object, "name", "x");
    meta::value::set_metadata(&mut object, "creationTimestamp", "2026-01-01T00:00:00Z");
    assert_eq!(row(named(plural), object), cells, "{plural}");
}

#[test]
fn groups_and_versions_have_their_order() {
    let mut groups = vec!["policy", "", "example.com", "batch", "apps", "autoscaling"];
    groups.sort_by_key(|group| group_rank(group));
    assert_eq!(
        groups,
        ["", "apps", "autoscaling", "batch", "policy", "example.com"]
    );
}

#[test]
fn jobs_say_what_becomes_of_their_pods() {
    use crate::kind::Propagation;
    use crate::rest::DeleteOptions;
    let warnings = |propagation| {
        let options = DeleteOptions {
            propagation,
            ..DeleteOptions::default()
        };
        named("jobs").strategy().delete_warnings(&options)
    };
    assert_eq!(warnings(None).len(), 1);
    assert!(warnings(Some(Propagation::Background)).is_empty());
    assert_eq!(named("jobs").propagation, Propagation::Orphan);
}

#[test]
fn events_convert_both_ways() {
    let new = find("events.k8s.io", "v1", "events").unwrap();
    let original = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p"}, "note": "n", "reportingController": "c",
        "deprecatedCount": 2, "eventTime": "2026-01-01T00:00:00.000000Z"});
    let mut stored = original.clone();
    new.to_storage(&mut stored);
    assert_eq!(stored["involvedObject"]["name"], "p");
    assert_eq!(
        (&stored["message"], &stored["apiVersion"]),
        (&json!("n"), &json!("v1"))
    );
    let fields = new.selectable_fields(&stored);
    assert_eq!(fields, new.selectable_fields(&original));
    assert!(fields.contains(&("involvedObject.name", "p".to_owned())));
    assert!(fields.contains(&("source", "c".to_owned())));
    new.from_storage(&mut stored);
    assert_eq!(stored, original);
}

#[test]
fn selectable_fields() {
    let kind = named("pods");
    let fields = kind.selectable_fields(&pod(
        json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}]}),
    ));
    assert!(fields.contains(&("spec.nodeName", "n1".to_owned())));
    assert!(fields.contains(&("status.phase", "Running".to_owned())));
    assert!(fields.contains(&("status.podIPs", "10.0.0.7".to_owned())));
    assert!(fields.contains(&("spec.hostNetwork", "false".to_owned())));
    assert!(kind.can_select("metadata.namespace") && !kind.can_select("spec.containers"));
    assert!(!named("nodes").can_select("metadata.namespace"));
}

#[test]
fn deletion_grace_of_pods() {
    let strategy = named("pods").strategy();
    let mut object = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
    assert_eq!(strategy.grace_period(&object, None), Some(30));
    assert_eq!(strategy.grace_period(&object, Some(5)), Some(5));
    assert_eq!(strategy.grace_period(&object, Some(0)), Some(0));
    assert_eq!(strategy.grace_period(&object, Some(-1)), Some(1));
    object["status"]["phase"] = json!("Succeeded");
    assert_eq!(strategy.grace_period(&object, None), Some(0));
    object["status"]["phase"] = json!("Pending");
    object["spec"]["nodeName"] = json!("");
    assert_eq!(strategy.grace_period(&object, Some(60)), Some(0));
    assert_eq!(
        named("configmaps")
            .strategy()
            .grace_period(&object, Some(60)),
        None
    );
}
