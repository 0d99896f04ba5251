//! Named after what kube-scheduler's queue guarantees.

use serde_json::json;

use super::*;
use crate::cycle::Cycle;
use crate::framework::testing::{node, pod, pod_with};
use crate::node::NodeInfo;

const S: Duration = Duration::from_secs(1);
const FIT: &str = "NodeResourcesFit";

fn ranked(name: &str, priority: i32) -> Arc<PodInfo> {
    pod_with(name, json!({"priority": priority}))
}

fn yes(_: &BTreeSet<&'static str>, _: &PodInfo, _: &ClusterEvent) -> bool {
    true
}

fn no(_: &BTreeSet<&'static str>, _: &PodInfo, _: &ClusterEvent) -> bool {
    false
}

fn gone() -> ClusterEvent {
    ClusterEvent::AssignedPodGone(pod("gone", "1", "1Gi"))
}

fn name(queued: Option<QueuedPod>) -> String {
    queued.map(|q| q.pod.name.clone()).unwrap_or_default()
}

#[test]
fn priority_then_age() {
    let mut queue = SchedulingQueue::default();
    queue.add(ranked("old", 0), S);
    queue.add(ranked("new", 0), 2 * S);
    queue.add(ranked("vip", 5), 3 * S);
    for expected in ["vip", "old", "new", ""] {
        assert_eq!(name(queue.pop(3 * S)), expected);
    }
}

#[test]
fn a_rejected_pod_waits_for_an_event_and_its_backoff() {
    let mut queue = SchedulingQueue::default();
    queue.add(ranked("p", 0), S);
    let queued = queue.pop(S).unwrap();
    queue.reject(queued, [FIT].into(), &no, S);
    assert_eq!(queue.depths(), (0, 0, 1));
    assert_eq!(name(queue.pop(60 * S)), "", "nothing has changed");
    assert_eq!(queue.on_event(gone(), &no, 60 * S), 0);
    assert_eq!(queue.on_event(gone(), &yes, 60 * S), 1);
    assert_eq!(queue.depths(), (1, 0, 0), "its backoff is long over");
}

#[test]
fn backoff_doubles_up_to_ten_seconds() {
    let mut queue = SchedulingQueue::default();
    queue.add(ranked("p", 0), S);
    let mut now = S;
    let mut waits = Vec::new();
    for _ in 0..6 {
        let queued = queue.pop(now).unwrap();
        queue.fail(queued, now);
        let due = queue.next_due().unwrap();
        waits.push((due - now).as_secs());
        assert_eq!(
            name(queue.pop(due - Duration::from_millis(1))),
            "",
            "an error waits it out"
        );
        now = due;
    }
    assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn an_idle_scheduler_pops_from_backoff() {
    let mut queue = SchedulingQueue::default();
    queue.add(ranked("p", 0), S);
    let queued = queue.pop(S).unwrap();
    queue.reject(queued, [FIT].into(), &no, S);
    queue.on_event(gone(), &yes, S);
    assert_eq!(queue.depths(), (0, 1, 0));
    queue.add(ranked("fresh", -5), S);
    assert_eq!(name(queue.pop(S)), "fresh", "active pods go first");
    assert_eq!(name(queue.pop(S)), "p");
}

#[test]
fn events_during_the_flight_are_replayed() {
    let mut queue = SchedulingQueue::default();
    queue.add(ranked("p", 0), S);
    queue.on_event(gone(), &yes, S);
    let queued = queue.pop(S).unwrap();
    queue.on_event(gone(), &yes, S);
    queue.reject(queued, [FIT].into(), &yes, S);
    assert_eq!(queue.depths(), (0, 1, 0), "tried again after its backoff");
    assert!(queue.events.is_empty(), "nobody is in flight any more");

    let queued = queue.pop(9 * S).unwrap();
    queue.reject(queued, [FIT].into(), &yes, 9 * S);
    assert_eq!(
        queue.depths(),
        (0, 0, 1),
        "an event before the flight does not count"
    );
}

#[test]
fn events_are_kept_while_any_flight_needs_them() {
    let mut queue = SchedulingQueue::default();
    queue.add(ranked("a", 0), S);
    queue.add(ranked("b", 0), S);
    let a = queue.pop(S).unwrap();
    queue.on_event(gone(), &yes, S);
    let b = queue.pop(S).unwrap();
    queue.done(&b.pod.uid);
    assert_eq!(queue.events.len(), 1);
    queue.reject(a, [FIT].into(), &yes, S);
    assert_eq!((queue.events.len(), queue.depths()), (0, (0, 1, 0)));
}

#[test]
fn unschedulable_pods_are_tried_again_after_five_minutes() {
    let mut queue = SchedulingQueue::default();
    queue.add(ranked("p", 0), S);
    let queued = queue.pop(S).unwrap();
    queue.reject(queued, [FIT].into(), &no, S);
    assert_eq!(queue.next_due(), Some(S + UNSCHEDULABLE_MAX));
    assert_eq!(name(queue.pop(UNSCHEDULABLE_MAX)), "");
    assert_eq!(name(queue.pop(S + UNSCHEDULABLE_MAX)), "p");
}

#[test]
fn gated_pods_wait_for_their_gates() {
    let mut queue = SchedulingQueue::default();
    queue.add(
        pod_with("p", json!({"schedulingGates": [{"name": "g"}]})),
        S,
    );
    assert_eq!(name(queue.pop(S)), "");
    assert_eq!(
        queue.on_event(gone(), &yes, S),
        0,
        "no event of the cluster helps"
    );
    assert_eq!(name(queue.pop(UNSCHEDULABLE_MAX * 2)), "");
    queue.update(pod_with("p", json!({})), S);
    assert_eq!(name(queue.pop(S)), "p");
}

#[test]
fn a_change_of_the_pod_tries_it_again_if_it_may_help() {
    let mut queue = SchedulingQueue::default();
    queue.add(pod("p", "4", "1Gi"), S);
    let queued = queue.pop(S).unwrap();
    queue.reject(queued, [FIT].into(), &no, S);
    queue.update(pod("p", "4", "1Gi"), 30 * S);
    assert_eq!(
        queue.depths(),
        (0, 0, 1),
        "its status changed, not what it asks for"
    );
    queue.update(pod("p", "1", "1Gi"), 30 * S);
    assert_eq!(name(queue.pop(30 * S)), "p");
}

#[test]
fn deleted_pods_are_gone_from_every_room() {
    let mut queue = SchedulingQueue::default();
    for p in ["a", "b"] {
        queue.add(ranked(p, 0), S);
    }
    let queued = queue.pop(S).unwrap();
    queue.reject(queued, [FIT].into(), &no, S);
    queue.delete("a");
    queue.delete("b");
    assert_eq!((queue.depths(), queue.next_due()), ((0, 0, 0), None));
}

#[test]
fn hints_of_the_plugins_that_rejected_decide() {
    let cycle = Cycle::default();
    let hint =
        |by: &BTreeSet<&'static str>, p: &PodInfo, e: &ClusterEvent| cycle.may_help(by, p, e);
    let mut queue = SchedulingQueue::default();
    queue.add(pod("p", "2", "1Gi"), S);
    let queued = queue.pop(S).unwrap();
    queue.reject(queued, ["NodeResourcesFit"].into(), &hint, S);
    let added =
        |cpu: &str| ClusterEvent::NodeAdded(Arc::new(NodeInfo::new(&node("n", cpu, "8Gi"))));
    assert_eq!(
        queue.on_event(added("1"), &hint, 60 * S),
        0,
        "too small to ever help"
    );
    assert_eq!(queue.on_event(added("4"), &hint, 60 * S), 1);
}
