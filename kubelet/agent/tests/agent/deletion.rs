//! Deletions by force: the pod is gone from the API at once, its processes
//! must follow within seconds, whatever grace the spec names.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{World, is_ready};

/// Far below the grace of 30 s, far above the 2 s a removed pod is given.
const SOON: Duration = Duration::from_secs(15);

fn stubborn() -> Value {
    json!({"terminationGracePeriodSeconds": 30, "containers": [{"name": "app", "image": "host",
        "command": ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"]}]})
}

async fn run_stubborn(world: &World) {
    world.create_pod("web", stubborn()).await;
    world
        .until("it is ready", |w| {
            w.pod("web").is_some_and(|p| is_ready(&p))
        })
        .await;
    let id = world.container("web")["containerID"].as_str().unwrap()[10..].to_owned();
    let uid = world.pod("web").unwrap()["metadata"]["uid"].clone();
    let log = format!("logs/pods/default_web_{}/app/0.log", uid.as_str().unwrap());
    let log = world.dir.path().join(log);
    world
        .until("it ignores TERM", |_| {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("up"))
        })
        .await;
    assert!(!id.is_empty() && !world.processes().is_empty());
}

/// What `kubectl delete pod --force --grace-period=0` does.
async fn remove(world: &World) {
    let path = "/api/v1/namespaces/default/pods/web";
    world.request("DELETE", path, Value::Null).await;
    assert!(world.pod("web").is_none());
}

async fn is_cleared_soon(world: &World) {
    let begun = Instant::now();
    world
        .until("nothing of it is left", |w| {
            let left = |dir: &str| std::fs::read_dir(w.dir.path().join(dir)).unwrap().count();
            w.processes().is_empty() && left("containers") == 0 && left("pods") == 0
        })
        .await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_pod_that_vanishes_is_killed_within_seconds() {
    let mut world = World::new().await;
    run_stubborn(&world).await;
    remove(&world).await;
    is_cleared_soon(&world).await;
    world.stop_agent().await;
}

#[tokio::test]
async fn a_pod_that_vanishes_while_it_is_being_stopped_is_killed_within_seconds() {
    let mut world = World::new().await;
    run_stubborn(&world).await;
    world.delete_pod("web", 30).await;
    world
        .until("it is being stopped", |w| !w.events("Killing").is_empty())
        .await;
    remove(&world).await;
    is_cleared_soon(&world).await;
    world.stop_agent().await;
}

#[tokio::test]
async fn a_pod_that_vanished_while_no_agent_looked_is_killed_within_seconds() {
    let mut world = World::new().await;
    run_stubborn(&world).await;
    world.stop_agent().await;
    remove(&world).await;
    world.start_agent().await;
    is_cleared_soon(&world).await;
    world.stop_agent().await;
}
