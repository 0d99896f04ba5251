//! Tables: pods against nodes, and where they go or what users read.

use serde_json::{Value, json};

use super::*;
use crate::framework::testing::{node, node_with, pod, pod_with};
use crate::preemption::preempt;

fn cache(nodes: &[k8s_openapi::api::core::v1::Node]) -> Cache {
    let mut cache = Cache::default();
    for node in nodes {
        cache.set_node(node);
    }
    cache
}

fn message(pod: &PodInfo, cache: &Cache) -> String {
    let mut cycle = Cycle::default();
    match cycle.schedule(pod, cache, 0) {
        Ok(choice) => choice.node,
        Err(ScheduleError::Fit(mut error)) => {
            let preemption = preempt(&cycle, pod, cache, &error);
            error.post_filter = preemption.message().map(str::to_owned);
            error.to_string()
        }
        Err(error) => error.to_string(),
    }
}

fn tainted() -> Value {
    json!({"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]})
}

#[test]
fn what_users_read() {
    let three = cache(&[
        node_with("master", "4", "8Gi", tainted()),
        node("w1", "2", "4Gi"),
        node("w2", "2", "4Gi"),
    ]);
    let cases = [
        (
            pod("big", "3", "1Gi"),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        ),
        (
            pod("huge", "100", "1Ti"),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu, \
             2 Insufficient memory. preemption: 0/3 nodes are available: \
             3 Preemption is not helpful for scheduling.",
        ),
        (
            pod_with("picky", json!({"nodeSelector": {"disk": "ssd"}})),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), \
             2 node(s) didn't match Pod's node affinity/selector. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
        ),
        (
            pod_with(
                "tolerant",
                json!({"nodeName": "", "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}),
            ),
            "master",
        ),
    ];
    for (pod, expected) in cases {
        assert_eq!(message(&pod, &three), expected, "{}", pod.name);
    }
    assert_eq!(
        message(&pod("p", "1", "1Gi"), &Cache::default()),
        "no nodes available to schedule pods"
    );
}

#[test]
fn full_nodes_say_that_no_victims_were_found() {
    let mut full = cache(&[node("w1", "2", "4Gi")]);
    full.assume(pod("there", "2", "1Gi"), "w1");
    assert_eq!(
        message(&pod("p", "1", "1Gi"), &full),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
         1 No preemption victims found for incoming pod."
    );
}

#[test]
fn nodes_named_by_affinity_only() {
    let two = cache(&[
        node_with("a", "2", "4Gi", json!({"unschedulable": true})),
        node("b", "2", "4Gi"),
    ]);
    let daemon = pod_with(
        "d",
        json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}}}),
    );
    assert_eq!(
        message(&daemon, &two),
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], \
         1 node(s) were unschedulable. preemption: 0/2 nodes are available: \
         2 Preemption is not helpful for scheduling."
    );
}

#[test]
fn the_emptier_node_is_chosen() {
    let mut cluster = cache(&[node("a", "4", "8Gi"), node("b", "4", "8Gi")]);
    cluster.assume(pod("there", "2", "4Gi"), "a");
    for random in 0..4 {
        let choice = Cycle::default()
            .schedule(&pod("p", "1", "2Gi"), &cluster, random)
            .unwrap();
        assert_eq!((choice.node.as_str(), choice.feasible), ("b", 2));
    }
}

#[test]
fn weights_are_those_of_the_default_profile() {
    let soft = json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]});
    let cluster = cache(&[node_with("a", "4", "8Gi", soft), node("b", "4", "8Gi")]);
    let scores = Cycle::default().scores(&pod("p", "2", "4Gi"), &cluster);
    // Fit 50 and balance 100 each; the taint costs 3 * 100.
    assert_eq!(scores["a"], 150);
    assert_eq!(scores["b"], 450);
}

#[test]
fn preference_weighs_two() {
    let cluster = cache(&[
        node_with("a", "4", "8Gi", json!({"labels": {"zone": "x"}})),
        node("b", "4", "8Gi"),
    ]);
    let p = pod_with(
        "p",
        json!({"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference":
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}}]}}}),
    );
    let scores = Cycle::default().scores(&p, &cluster);
    assert_eq!(scores["a"] - scores["b"], 200);
}

#[test]
fn ties_are_broken_by_the_random_number() {
    let cluster = cache(&[
        node("a", "4", "8Gi"),
        node("b", "4", "8Gi"),
        node("c", "4", "8Gi"),
    ]);
    let chosen: BTreeSet<String> = (0..3)
        .map(|random| {
            let choice = Cycle::default().schedule(&pod("p", "1", "1Gi"), &cluster, random);
            choice.unwrap().node
        })
        .collect();
    assert_eq!(chosen.len(), 3);
}

#[test]
fn assumed_pods_fill_a_node() {
    let mut cluster = cache(&[node("a", "4", "8Gi"), node("b", "4", "8Gi")]);
    let mut cycle = Cycle::default();
    let mut placed = BTreeMap::new();
    for i in 0..8 {
        let p = pod(&format!("p{i}"), "1", "1Gi");
        let choice = cycle.schedule(&p, &cluster, 0).unwrap();
        cluster.assume(p, &choice.node);
        *placed.entry(choice.node).or_insert(0) += 1;
    }
    assert_eq!((placed["a"], placed["b"]), (4, 4));
    let error = cycle
        .schedule(&pod("p9", "1", "1Gi"), &cluster, 0)
        .unwrap_err();
    assert!(error.to_string().contains("2 Insufficient cpu"), "{error}");
}

#[test]
fn promised_room_is_kept_for_who_is_as_important() {
    let cluster = cache(&[node("a", "4", "8Gi")]);
    let mut cycle = Cycle::default();
    cycle.nominate(pod("promised", "3", "1Gi"), "a");
    assert!(cycle.schedule(&pod("p", "2", "1Gi"), &cluster, 0).is_err());
    let promised = pod("promised", "3", "1Gi");
    assert!(
        cycle.schedule(&promised, &cluster, 0).is_ok(),
        "its own promise is no obstacle"
    );
    let important = pod_with(
        "vip",
        json!({"priority": 9, "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "2"}}}]}),
    );
    assert!(cycle.schedule(&important, &cluster, 0).is_ok());
    cycle.clear_nomination("promised");
    assert!(cycle.schedule(&pod("p", "2", "1Gi"), &cluster, 0).is_ok());
}

#[test]
fn large_clusters_are_sampled_in_turn() {
    assert_eq!(feasible_nodes_to_find(99), 99);
    assert_eq!(feasible_nodes_to_find(100), 100);
    assert_eq!(feasible_nodes_to_find(1000), 420);
    assert_eq!(feasible_nodes_to_find(6000), 300);
    let nodes: Vec<_> = (0..1000)
        .map(|i| node(&format!("n{i:04}"), "4", "8Gi"))
        .collect();
    let cluster = cache(&nodes);
    let mut cycle = Cycle::default();
    let first = cycle.schedule(&pod("p", "1", "1Gi"), &cluster, 0).unwrap();
    assert_eq!((first.evaluated, first.node.as_str()), (420, "n0000"));
    let second = cycle.schedule(&pod("q", "1", "1Gi"), &cluster, 0).unwrap();
    assert_eq!(second.node, "n0420");
}
