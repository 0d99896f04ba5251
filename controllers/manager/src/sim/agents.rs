//! Everybody else in the simulated cluster: a scheduler, kubelets and users.

use jiff::SignedDuration;
use plan::{Propagation, Target, Write};
use serde_json::{Value, json};

use super::rng::Rng;
use super::server::{Inner, Key, gvr, is_deleting, merge};
use crate::world::live::NODE_LEASES;

pub(super) const NODES: [&str; 2] = ["n1", "n2"];

/// Creates what a cluster starts with.
pub(super) fn bootstrap(server: &mut Inner) {
    for namespace in ["default", NODE_LEASES] {
        create(
            server,
            "namespaces",
            "",
            json!({"metadata": {"name": namespace}}),
        );
    }
    for node in NODES {
        let ready =
            json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": server.time()}]);
        let body = json!({"metadata": {"name": node}, "spec": {}, "status": {"conditions": ready}});
        create(server, "nodes", "", body);
        let spec = json!({"renewTime": server.time()});
        create(
            server,
            "leases",
            NODE_LEASES,
            json!({"metadata": {"name": node}, "spec": spec}),
        );
    }
}

fn create(server: &mut Inner, resource: &str, namespace: &str, body: Value) {
    let kind = super::server::RESOURCES
        .iter()
        .find(|found| found.2 == resource)
        .unwrap();
    let api_version = if kind.0.is_empty() {
        kind.1.to_owned()
    } else {
        format!("{}/{}", kind.0, kind.1)
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind.3});
    merge(&mut object, &body);
    let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
    server
        .perform(&Write::Create {
            gvr: gvr(resource),
            namespace,
            body: object,
        })
        .unwrap();
}

/// Renews the Leases of the nodes that live, and lets time pass.
pub(super) fn pass_time(server: &mut Inner, by: SignedDuration, alive: &[&str]) {
    server.advance(by);
    for node in alive {
        let key = (gvr("leases"), NODE_LEASES.to_owned(), (*node).to_owned());
        if let Ok(lease) = server.get(&key).cloned() {
            let mut next = lease;
            next["spec"]["renewTime"] = json!(server.time());
            server.replace(&key, None, next).unwrap();
        }
    }
}

/// Does one thing the scheduler or a living kubelet would do; false if nothing.
pub(super) fn step(server: &mut Inner, alive: &[&str], rng: &mut Rng) -> bool {
    let pods: Vec<(Key, Value)> = server
        .of("pods")
        .filter(|(_, pod)| needs_care(pod))
        .map(|(key, pod)| (key.clone(), pod.clone()))
        .collect();
    if pods.is_empty() {
        return false;
    }
    let first = rng.below(pods.len());
    (0..pods.len()).any(|offset| {
        let (key, pod) = &pods[(first + offset) % pods.len()];
        one_pod(server, key, pod, alive, rng)
    })
}

/// Tells whether a pod is not at rest, so that only few are copied.
fn needs_care(pod: &Value) -> bool {
    let status = &pod["status"];
    let at_rest = status["phase"] == "Failed"
        || (status["phase"] == "Running" && status["conditions"][0]["status"] == "True");
    is_deleting(pod) || !at_rest
}

fn one_pod(server: &mut Inner, key: &Key, pod: &Value, alive: &[&str], rng: &mut Rng) -> bool {
    let mut next = pod.clone();
    let Some(node) = pod["spec"]["nodeName"].as_str() else {
        if is_deleting(pod) || alive.is_empty() {
            return false;
        }
        next["spec"]["nodeName"] = json!(alive[rng.below(alive.len())]);
        return server.replace(key, None, next).is_ok();
    };
    if !alive.contains(&node) {
        return false;
    }
    if is_deleting(pod) {
        return server.delete(key, None, Some(0)).is_ok();
    }
    if pod["status"]["phase"] == "Pending" {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": server.time()});
        next["status"] = json!({"phase": "Running", "conditions": [ready]});
        return server.replace(key, Some("status"), next).is_ok();
    }
    // A kubelet that lives says that its pods are ready, whatever others wrote.
    if pod["status"]["phase"] == "Running" && pod["status"]["conditions"][0]["status"] != "True" {
        next["status"]["conditions"][0]["status"] = json!("True");
        return server.replace(key, Some("status"), next).is_ok();
    }
    false
}

/// Ends a random pod badly.
pub(super) fn fail_pod(server: &mut Inner, rng: &mut Rng) {
    let running: Vec<(Key, Value)> = server
        .of("pods")
        .filter(|(_, pod)| pod["status"]["phase"] == "Running" && !is_deleting(pod))
        .map(|(key, pod)| (key.clone(), pod.clone()))
        .collect();
    if !running.is_empty() {
        let (key, mut pod) = running[rng.below(running.len())].clone();
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["conditions"][0]["status"] = json!("False");
        server.replace(&key, Some("status"), pod).unwrap();
    }
}

/// Is one thing a user does.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    Namespace(&'static str),
    Deployment {
        namespace: &'static str,
        name: &'static str,
        replicas: i32,
        strategy: &'static str,
    },
    LooseSet,
    Scale(&'static str, i32),
    Image(&'static str, &'static str),
    Delete {
        resource: &'static str,
        namespace: &'static str,
        name: &'static str,
        how: Propagation,
    },
    LoseNode(&'static str),
    RemoveNode(&'static str),
}

/// Does what a user does, at the API, past every failure of the controllers.
pub(super) fn perform(server: &mut Inner, deed: &Deed) {
    match deed {
        Deed::Namespace(name) => {
            create(
                server,
                "namespaces",
                "",
                json!({"metadata": {"name": name}}),
            );
        }
        Deed::Deployment {
            namespace,
            name,
            replicas,
            strategy,
        } => {
            let mut spec = workload(name, *replicas);
            spec["strategy"] = json!({"type": strategy});
            spec["progressDeadlineSeconds"] = json!(600);
            let body = json!({"metadata": {"name": name}, "spec": spec});
            create(server, "deployments", namespace, body);
        }
        Deed::LooseSet => {
            let set = workload("loose", 2);
            let mut stray = set["template"].clone();
            stray["metadata"]["name"] = json!("stray");
            create(server, "pods", "default", stray);
            let body = json!({"metadata": {"name": "loose"}, "spec": set});
            create(server, "replicasets", "default", body);
        }
        Deed::Scale(name, replicas) => change(server, name, &json!({"replicas": replicas})),
        Deed::Image(name, image) => {
            let containers = json!([{"name": "c", "image": image}]);
            change(
                server,
                name,
                &json!({"template": {"spec": {"containers": containers}}}),
            );
        }
        Deed::Delete {
            resource,
            namespace,
            name,
            how,
        } => {
            delete(server, resource, namespace, name, Some(*how));
        }
        Deed::LoseNode(_) => {}
        Deed::RemoveNode(name) => {
            delete(server, "nodes", "", name, None);
            delete(server, "leases", NODE_LEASES, name, None);
        }
    }
}

/// Is the part of a spec that Deployments and ReplicaSets share.
fn workload(name: &str, replicas: i32) -> Value {
    let labels = json!({"app": name});
    json!({
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "v1"}]},
        },
    })
}

fn delete(
    server: &mut Inner,
    resource: &str,
    namespace: &str,
    name: &str,
    propagation: Option<Propagation>,
) {
    let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
    let target = Target {
        gvr: gvr(resource),
        namespace,
        name: name.to_owned(),
    };
    let write = Write::Delete {
        target,
        uid: None,
        propagation,
        grace_seconds: None,
    };
    server.perform(&write).unwrap();
}

fn change(server: &mut Inner, deployment: &str, spec: &Value) {
    let target = Target {
        gvr: gvr("deployments"),
        namespace: Some("default".to_owned()),
        name: deployment.to_owned(),
    };
    let write = Write::Patch {
        target,
        subresource: None,
        patch: json!({"spec": spec}),
    };
    server.perform(&write).unwrap();
}
