//! The loop against a small API server.

use std::time::{Duration, Instant};

use client::testing::{Fake, status};
use client::{Client, DeleteParams};
use meta::Reason;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use super::*;

const PODS: &str = "/api/v1/pods";
const EVENTS: &str = "/api/v1/events";

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "not reached in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn start(fake: &Fake) -> DropGuard {
    let token = CancellationToken::new();
    tokio::spawn(run_scheduler(
        fake.client(),
        SchedulerOptions::default(),
        token.clone(),
    ));
    token.drop_guard()
}

async fn add_node(client: &Client, name: &str, cpu: &str) {
    let node = json!({
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}},
    });
    client
        .create::<Node>(None, &serde_json::from_value(node).unwrap())
        .await
        .unwrap();
}

async fn add_pod(client: &Client, name: &str, spec: Value) {
    let pod = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
    client
        .create::<Pod>(Some("ns"), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
}

fn asks(cpu: &str, priority: i32) -> Value {
    json!({"priority": priority, "containers": [
        {"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

fn node_of(fake: &Fake, pod: &str) -> String {
    let pods = fake.objects(PODS);
    let pod = pods.iter().find(|p| p["metadata"]["name"] == pod);
    pod.and_then(|p| p["spec"]["nodeName"].as_str())
        .unwrap_or_default()
        .to_owned()
}

fn messages(fake: &Fake, reason: &str) -> Vec<String> {
    let events = fake.objects(EVENTS);
    let of = events.iter().filter(|e| e["reason"] == reason);
    of.map(|e| e["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn pods_are_spread_and_told_of() {
    let fake = Fake::default();
    let client = fake.client();
    let _running = start(&fake);
    for node in ["a", "b"] {
        add_node(&client, node, "4").await;
    }
    for i in 0..4 {
        add_pod(&client, &format!("p{i}"), asks("2", 0)).await;
    }
    eventually("all bound", || {
        (0..4).all(|i| !node_of(&fake, &format!("p{i}")).is_empty())
    })
    .await;
    let on_a = (0..4)
        .filter(|i| node_of(&fake, &format!("p{i}")) == "a")
        .count();
    assert_eq!(on_a, 2);
    eventually("events", || messages(&fake, "Scheduled").len() == 4).await;
    let expected = format!("Successfully assigned ns/p0 to {}", node_of(&fake, "p0"));
    assert!(messages(&fake, "Scheduled").contains(&expected));
}

#[tokio::test]
async fn a_pod_that_fits_nowhere_is_told_why_and_tried_when_room_comes() {
    let fake = Fake::default();
    let client = fake.client();
    add_node(&client, "small", "1").await;
    let _running = start(&fake);
    add_pod(&client, "p", asks("2", 0)).await;
    let text = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are \
                available: 1 Preemption is not helpful for scheduling.";
    eventually("the event", || {
        messages(&fake, "FailedScheduling") == [text]
    })
    .await;
    eventually("the condition", || {
        let pod = &fake.objects(PODS)[0];
        let condition = &pod["status"]["conditions"][0];
        condition["type"] == "PodScheduled"
            && condition["reason"] == "Unschedulable"
            && condition["message"] == text
    })
    .await;
    add_node(&client, "large", "4").await;
    eventually("bound", || node_of(&fake, "p") == "large").await;
}

#[tokio::test]
async fn a_pod_without_any_node_waits_for_the_first() {
    let fake = Fake::default();
    let client = fake.client();
    let _running = start(&fake);
    add_pod(&client, "p", asks("1", 0)).await;
    eventually("the event", || {
        messages(&fake, "FailedScheduling") == ["no nodes available to schedule pods"]
    })
    .await;
    let since = Instant::now();
    add_node(&client, "a", "4").await;
    eventually("bound", || node_of(&fake, "p") == "a").await;
    assert!(
        since.elapsed() < Duration::from_millis(900),
        "an idle scheduler skips the backoff"
    );
}

#[tokio::test]
async fn a_failed_binding_gives_the_room_back_and_is_tried_again() {
    let fake = Fake::default();
    let client = fake.client();
    add_node(&client, "a", "2").await;
    fake.fault(
        "POST /api/v1/namespaces/ns/pods/p/binding",
        status(Reason::InternalError),
    );
    let _running = start(&fake);
    add_pod(&client, "p", asks("2", 0)).await;
    eventually("bound", || node_of(&fake, "p") == "a").await;
    assert_eq!(
        fake.requests("POST /api/v1/namespaces/ns/pods/p/binding")
            .len(),
        2
    );
    eventually("told", || messages(&fake, "FailedScheduling").len() == 1).await;
    assert!(messages(&fake, "FailedScheduling")[0].starts_with("binding rejected: "));
}

#[tokio::test]
async fn the_end_of_a_pod_makes_room() {
    let fake = Fake::default();
    let client = fake.client();
    add_node(&client, "a", "2").await;
    let _running = start(&fake);
    add_pod(&client, "first", asks("2", 0)).await;
    eventually("first bound", || node_of(&fake, "first") == "a").await;
    add_pod(&client, "second", asks("2", 0)).await;
    eventually("second waits", || {
        messages(&fake, "FailedScheduling").len() == 1
    })
    .await;
    client
        .delete::<Pod>(Some("ns"), "first", &DeleteParams::default())
        .await
        .unwrap();
    eventually("second bound", || node_of(&fake, "second") == "a").await;
}

#[tokio::test]
async fn a_more_important_pod_takes_the_room_of_a_lesser_one() {
    let fake = Fake::default();
    let client = fake.client();
    add_node(&client, "a", "2").await;
    let _running = start(&fake);
    add_pod(&client, "lesser", asks("2", 1)).await;
    eventually("lesser bound", || node_of(&fake, "lesser") == "a").await;
    add_pod(&client, "vip", asks("2", 100)).await;
    eventually("vip bound", || node_of(&fake, "vip") == "a").await;
    assert_eq!(fake.objects(PODS).len(), 1, "the lesser pod is gone");
    eventually("told", || messages(&fake, "Preempted").len() == 1).await;
    assert!(messages(&fake, "Preempted")[0].ends_with(" on node a"));
}

#[tokio::test]
async fn pods_of_other_schedulers_are_left_alone() {
    let fake = Fake::default();
    let client = fake.client();
    add_node(&client, "a", "4").await;
    let _running = start(&fake);
    let mut other = asks("1", 0);
    other["schedulerName"] = json!("another");
    add_pod(&client, "other", other).await;
    add_pod(&client, "ours", asks("1", 0)).await;
    eventually("ours bound", || node_of(&fake, "ours") == "a").await;
    assert_eq!(node_of(&fake, "other"), "");
    let bindings = fake.requests("POST /api/v1/namespaces/ns/pods/other/binding");
    assert!(bindings.is_empty());
}
