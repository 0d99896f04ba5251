//! The whole agent against an API server in memory: pods become processes.

// A function that fails here fails its test.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use agent::AgentOptions;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

#[path = "agent/deletion.rs"]
mod deletion;
#[path = "agent/security.rs"]
mod security;
#[path = "agent/streams.rs"]
mod streams;
#[path = "agent/world.rs"]
mod world;

use world::{World, is_ready, sleeper};

#[tokio::test]
async fn the_node_is_registered_ready_and_has_a_lease() {
    let mut world = World::new().await;
    let nodes = world.api.objects("/api/v1/nodes");
    assert_eq!(
        nodes[0]["metadata"]["labels"]["kubernetes.io/hostname"],
        "n1"
    );
    assert!(is_ready(&nodes[0]));
    let port = nodes[0]["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    assert_eq!(
        port,
        Some(u64::from(world.agent.as_ref().unwrap().address.port()))
    );
    let leases = "/apis/coordination.k8s.io/v1/leases";
    world
        .until("a lease", |w| !w.api.objects(leases).is_empty())
        .await;
    assert_eq!(
        world.api.objects(leases)[0]["spec"]["leaseDurationSeconds"],
        40
    );
    // A second agent on the same directory is refused.
    let mut options = AgentOptions::new("n2", world.dir.path());
    options.server_tls = Some(world.server_tls());
    let (ready, _) = oneshot::channel();
    let second = agent::run(world.api.client(), options, ready, CancellationToken::new());
    let refused = Box::pin(second).await;
    assert!(matches!(refused, Err(agent::AgentError::RootInUse { .. })));
    world.stop_agent().await;
}

#[tokio::test]
async fn a_pod_runs_restarts_and_goes() {
    let mut world = World::new().await;
    world.create_pod("web", sleeper()).await;
    world
        .until("the pod is ready", |w| {
            w.pod("web").is_some_and(|p| is_ready(&p))
        })
        .await;
    let processes = world.processes();
    assert_eq!(processes.len(), 1);
    let id = world.container("web")["containerID"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(id.starts_with("process://"));

    let pid = rustix::process::Pid::from_raw(i32::try_from(processes[0]).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world
        .until("it is restarted", |w| {
            let c = w.container("web");
            c["restartCount"] == 1 && c["ready"] == true
        })
        .await;
    let last = world.container("web")["lastState"]["terminated"].clone();
    assert_eq!(
        (&last["exitCode"], &last["reason"]),
        (&json!(137), &json!("Error"))
    );
    assert_eq!(world.processes().len(), 1);

    world.delete_pod("web", 5).await;
    world.until("it is gone", |w| w.pod("web").is_none()).await;
    assert_eq!(world.processes(), [0; 0]);
    world
        .until("nothing is left of it", |w| {
            let left = |dir: &str| std::fs::read_dir(w.dir.path().join(dir)).unwrap().count();
            left("containers") == 0 && left("pods") == 0 && left("logs/pods") == 0
        })
        .await;
    for reason in ["Pulled", "Created", "Started", "Killing"] {
        world.until(reason, |w| !w.events(reason).is_empty()).await;
    }
    world.stop_agent().await;
}

#[tokio::test]
async fn an_agent_that_restarts_takes_over_what_runs_and_ends_what_should_not() {
    let mut world = World::new().await;
    let names = ["a", "b", "c"];
    for name in names {
        world.create_pod(name, sleeper()).await;
    }
    world
        .until("all are ready", |w| {
            names.iter().all(|n| w.pod(n).is_some_and(|p| is_ready(&p)))
        })
        .await;
    let before = world.processes();
    world.stop_agent().await;
    assert_eq!(world.processes(), before, "containers outlive the agent");
    // While no agent runs one pod is deleted and one process dies.
    world
        .request("DELETE", "/api/v1/namespaces/default/pods/a", Value::Null)
        .await;
    let of =
        |w: &World, name: &str| w.container(name)["containerID"].as_str().unwrap()[10..].to_owned();
    let dead = of(&world, "b");
    let state = std::fs::read(
        world
            .dir
            .path()
            .join("containers")
            .join(&dead)
            .join("state.json"),
    );
    let state: Value = serde_json::from_slice(&state.unwrap()).unwrap();
    let pid = i32::try_from(state["pid"].as_i64().unwrap()).unwrap();
    let kept = of(&world, "c");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();

    world.start_agent().await;
    world
        .until("the dead one is restarted", |w| {
            let c = w.container("b");
            c["restartCount"] == 1 && c["ready"] == true
        })
        .await;
    world
        .until("two processes remain", |w| w.processes().len() == 2)
        .await;
    assert_eq!(of(&world, "c"), kept);
    assert_eq!(world.container("c")["restartCount"], 0);
    assert_eq!(world.container("c")["ready"], true);
    world.stop_agent().await;
    assert_eq!(
        agent::stop_all(world.dir.path(), Duration::MAX)
            .await
            .unwrap(),
        2
    );
    assert_eq!(world.processes(), [0; 0]);
}

#[tokio::test]
async fn a_command_that_does_not_exist_crash_loops_and_others_are_unharmed() {
    let mut world = World::new().await;
    let spec =
        json!({"containers": [{"name": "app", "image": "host", "command": ["no-such-cmd"]}]});
    world.create_pod("bad", spec).await;
    world.create_pod("good", sleeper()).await;
    world
        .until("it crash-loops", |w| {
            w.container("bad")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        })
        .await;
    let last = world.container("bad")["lastState"]["terminated"].clone();
    assert_eq!(
        (&last["reason"], &last["exitCode"]),
        (&json!("StartError"), &json!(128))
    );
    assert!(
        last["message"]
            .as_str()
            .unwrap()
            .contains("executable file not found")
    );
    world
        .until("an event tells", |w| !w.events("Failed").is_empty())
        .await;
    assert!(world.events("Failed")[0].contains("executable file not found"));
    world
        .until("the other runs", |w| {
            w.pod("good").is_some_and(|p| is_ready(&p))
        })
        .await;
    world.stop_agent().await;
}

#[tokio::test]
async fn images_without_meaning_and_missing_configuration_wait_with_the_known_words() {
    let mut world = World::new().await;
    let container = |image: &str, env: Value| json!({"containers": [{"name": "app", "image": image, "env": env}]});
    world
        .create_pod("image", container("nginx", json!([])))
        .await;
    let mut spec = sleeper();
    spec["containers"][0]["env"] =
        json!([{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}}]);
    world.create_pod("config", spec).await;
    world
        .create_pod("mapped", container("greeter:v1", json!([])))
        .await;
    let waits = |name: &'static str, reason: &'static str| {
        move |w: &World| w.container(name)["state"]["waiting"]["reason"] == reason
    };
    world
        .until("ErrImagePull", waits("image", "ErrImagePull"))
        .await;
    let message = world.container("image")["state"]["waiting"]["message"].to_string();
    assert!(message.contains("--image-map nginx="), "{message}");
    world
        .until(
            "config error",
            waits("config", "CreateContainerConfigError"),
        )
        .await;
    assert_eq!(
        world.container("config")["state"]["waiting"]["message"],
        "configmap \"cm\" not found"
    );
    world
        .until("back-off", waits("image", "ImagePullBackOff"))
        .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "default"}, "data": {"k": "v"}});
    world
        .request("POST", "/api/v1/namespaces/default/configmaps", map)
        .await;
    world
        .until("it starts after all", |w| {
            w.pod("config").is_some_and(|p| is_ready(&p))
        })
        .await;
    world
        .until("the mapped command ran", |w| {
            w.container("mapped")["lastState"]["terminated"]["exitCode"] == 0
        })
        .await;
    world.stop_agent().await;
}

#[tokio::test]
async fn init_containers_volumes_and_logs() {
    let mut world = World::new().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cm", "namespace": "default"}, "data": {"greeting": "hello"}});
    world
        .request("POST", "/api/v1/namespaces/default/configmaps", map)
        .await;
    let mounts =
        json!([{"name": "conf", "mountPath": "/etc/conf"}, {"name": "data", "mountPath": "/data"}]);
    let script = |script: &str| json!(["sh", "-c", script]);
    world.create_pod("job", json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "conf", "configMap": {"name": "cm"}}, {"name": "data", "emptyDir": {}}],
        "initContainers": [{"name": "init", "image": "host", "volumeMounts": mounts,
            "command": script("cp etc/conf/greeting data/copy")}],
        "containers": [{"name": "app", "image": "host", "volumeMounts": mounts,
            "command": script("cat data/copy; echo; ls $KEELSON_MOUNT_CONF; echo last")}],
    }))
    .await;
    world
        .until("it succeeds", |w| {
            w.pod("job")
                .is_some_and(|p| p["status"]["phase"] == "Succeeded")
        })
        .await;
    let answer = world.get("/containerLogs/default/job/app").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("hello\ngreeting\nlast\n"), "{answer}");
    let answer = world
        .get("/containerLogs/default/job/app?tailLines=1&follow=true")
        .await;
    assert!(
        answer.contains("last\n") && !answer.contains("hello"),
        "{answer}"
    );
    for (path, status, text) in [
        ("/containerLogs/default/none/app", "404", "not found"),
        (
            "/containerLogs/default/job/none",
            "404",
            "container \\\"none\\\" not found in pod",
        ),
        (
            "/containerLogs/default/job/app?previous=true",
            "400",
            "previous terminated container",
        ),
        (
            "/containerLogs/default/job/app?tailLines=x",
            "400",
            "tailLines",
        ),
        ("/healthz", "200", "ok"),
        ("/metrics", "200", "kubelet_running_pods 1"),
        ("/pods", "200", "\"kind\":\"PodList\""),
    ] {
        let answer = world.get(path).await;
        let text = text.replace("\\\"", "\"");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{path}: {answer}"
        );
        assert!(answer.contains(&text), "{path}: {answer}");
    }
    world.stop_agent().await;
}

#[tokio::test]
async fn probes_gate_readiness_and_liveness_restarts() {
    let mut world = World::new().await;
    let exec = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1});
    let mut spec = sleeper();
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0]["readinessProbe"] = exec("test -e ready");
    spec["containers"][0]["livenessProbe"] = exec("test ! -e sick");
    world.create_pod("web", spec).await;
    world
        .until("it runs", |w| w.container("web")["started"] == true)
        .await;
    world
        .until("it is not ready", |w| !w.events("Unhealthy").is_empty())
        .await;
    assert_eq!(world.container("web")["ready"], false);
    let id = world.container("web")["containerID"].as_str().unwrap()[10..].to_owned();
    let rootfs = world.dir.path().join("containers").join(id).join("rootfs");
    std::fs::write(rootfs.join("ready"), "").unwrap();
    world
        .until("it is ready", |w| w.container("web")["ready"] == true)
        .await;
    std::fs::write(rootfs.join("sick"), "").unwrap();
    world
        .until("it is replaced", |w| {
            w.container("web")["restartCount"] == 1
        })
        .await;
    world
        .until("an event tells why", |w| {
            w.events("Killing")
                .contains(&"Container app failed liveness probe, will be restarted".to_owned())
        })
        .await;
    world.stop_agent().await;
}

#[tokio::test]
async fn hooks_run_inside_the_grace() {
    let mut world = World::new().await;
    let mut spec = sleeper();
    let flag = world.dir.path().join("stopped");
    let stop = format!("echo $GREETING > {}", flag.display());
    spec["containers"][0]["env"] = json!([{"name": "GREETING", "value": "bye"}]);
    spec["containers"][0]["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["sh", "-c", "touch started"]}},
        "preStop": {"exec": {"command": ["sh", "-c", stop]}}});
    world.create_pod("web", spec).await;
    world
        .until("it is ready", |w| {
            w.pod("web").is_some_and(|p| is_ready(&p))
        })
        .await;
    let id = world.container("web")["containerID"].as_str().unwrap()[10..].to_owned();
    assert!(
        world
            .dir
            .path()
            .join("containers")
            .join(id)
            .join("rootfs/started")
            .exists()
    );
    world.delete_pod("web", 10).await;
    world.until("it is gone", |w| w.pod("web").is_none()).await;
    assert_eq!(std::fs::read_to_string(flag).unwrap(), "bye\n");
    world.stop_agent().await;
}

#[tokio::test]
async fn the_cri_runtime_names_its_socket_and_the_ways_out() {
    let mut options = AgentOptions::new("n1", "unused");
    options.runtime = agent::RuntimeKind::Cri;
    options.container_runtime_endpoint = "/no/such/containerd.sock".into();
    let error = agent::check(&options).unwrap_err().to_string();
    assert!(error.contains("/no/such/containerd.sock") && error.contains("--runtime=process"));
    options.container_runtime_endpoint = "/proc/self/exe".into();
    let error = agent::check(&options).unwrap_err().to_string();
    assert!(error.contains("does not speak CRI"), "{error}");
}
