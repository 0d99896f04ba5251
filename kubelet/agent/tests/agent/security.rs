//! Who is answered by the kubelet's server, and whom containers run as.

use agent::AgentOptions;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::World;

#[tokio::test]
async fn the_server_answers_nobody_without_a_certificate() {
    let mut world = World::new().await;
    let answer = world.get("/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let stranger = world.trusting().with_no_client_auth();
    let refused = world.get_with(stranger, "/healthz").await;
    assert!(refused.is_err(), "{refused:?}");
    world.stop_agent().await;
}

#[tokio::test]
async fn an_agent_without_a_server_identity_does_not_start() {
    let world = World::new().await;
    let options = AgentOptions::new("n2", world.dir.path().join("other"));
    let (ready, _) = oneshot::channel();
    let run = agent::run(world.api.client(), options, ready, CancellationToken::new());
    let refused = Box::pin(run).await;
    assert!(matches!(refused, Err(agent::AgentError::NoServerIdentity)));
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn pod(context: &Value, command: &str) -> Value {
    json!({"restartPolicy": "Never", "securityContext": context,
        "volumes": [{"name": "conf", "configMap": {"name": "cm"}}, {"name": "data", "emptyDir": {}}],
        "containers": [{"name": "app", "image": "host", "command": ["sh", "-c", command],
            "volumeMounts": [{"name": "conf", "mountPath": "/etc/conf"},
                {"name": "data", "mountPath": "/data"}]}]})
}

async fn create_map(world: &World) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "default"}, "data": {"greeting": "hello"}});
    let path = "/api/v1/namespaces/default/configmaps";
    world.request("POST", path, map).await;
}

async fn waits_with(world: &World, name: &'static str, message: &str) {
    world
        .until("it waits", |w| {
            let waiting = &w.container(name)["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
        })
        .await;
    let waiting = world.container(name)["state"]["waiting"]["message"].clone();
    assert!(waiting.as_str().unwrap().contains(message), "{waiting}");
}

#[tokio::test]
async fn a_pod_runs_as_the_user_it_names_and_reads_its_volumes() {
    let mut world = World::new().await;
    create_map(&world).await;
    let context = json!({"runAsUser": 54_321, "runAsGroup": 54_322, "runAsNonRoot": true});
    let script = "id -u && id -g && cat etc/conf/greeting && touch data/x && echo done";
    world.create_pod("web", pod(&context, script)).await;
    if is_root() {
        world
            .until("it succeeds", |w| {
                w.pod("web")
                    .is_some_and(|p| p["status"]["phase"] == "Succeeded")
            })
            .await;
        let log = world.get("/containerLogs/default/web/app").await;
        assert!(log.contains("54321\n54322\nhello"), "{log}");
    } else {
        waits_with(&world, "web", "runAsUser 54321 is not possible").await;
    }
    world.stop_agent().await;
}

#[tokio::test]
async fn root_is_not_run_where_the_pod_forbids_it() {
    let mut world = World::new().await;
    create_map(&world).await;
    let context = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    let mut spec = pod(&context, "sleep 3701");
    // Whoever runs this test, as root it must not run.
    spec["containers"][0]["securityContext"] = json!({"runAsUser": 0});
    world.create_pod("web", spec).await;
    waits_with(&world, "web", "runAsUser breaks non-root policy").await;
    if is_root() {
        world.create_pod("image", pod(&context, "sleep 3701")).await;
        let message = "container has runAsNonRoot and image will run as root";
        waits_with(&world, "image", message).await;
        assert_eq!(world.processes(), [0; 0]);
    }
    let ignored = "process runtime does not enforce seccompProfile";
    world
        .until("what is ignored is told", |w| {
            w.events("SecurityContextNotEnforced")
                .contains(&ignored.to_owned())
        })
        .await;
    world.stop_agent().await;
}
