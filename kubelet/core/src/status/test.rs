//! The status table: spec × runtime × worker → what `kubectl` shows.

use serde_json::{Value, json};

use super::*;
use crate::after;
use crate::state::{FailureKind, InFlight, SetUp};
use crate::worker::Eviction;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

struct World {
    pod: Pod,
    runtime: PodRuntime,
    state: PodState,
    worker: PodWorker,
    previous: Option<PodStatus>,
}

impl World {
    fn new(spec: Value) -> Self {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 3},
            "spec": spec,
        }))
        .unwrap();
        let worker = PodWorker::new(&pod, now());
        let state = PodState {
            set_up: SetUp::Ready,
            ..PodState::default()
        };
        World {
            pod,
            runtime: PodRuntime::default(),
            state,
            worker,
            previous: None,
        }
    }

    fn simple(policy: &str) -> Self {
        World::new(json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "host"}]}))
    }

    fn with(mut self, name: &str, attempt: u32, run: ContainerRun) -> Self {
        self.runtime.containers.push(ContainerInstance {
            id: format!("{name}{attempt}"),
            name: name.into(),
            attempt,
            image: "host".into(),
            image_id: "host".into(),
            spec_hash: pod::spec_hash(pod::container(&self.pod, name).unwrap()),
            created_at: after(now(), -60),
            run,
        });
        self
    }

    fn status(&mut self) -> Value {
        self.state.track(&self.pod, &self.runtime);
        let facts = NodeFacts {
            host_ip: "h".into(),
            pod_ip: "p".into(),
            ..NodeFacts::default()
        };
        let status = compute(
            StatusInput {
                pod: &self.pod,
                runtime: &self.runtime,
                state: &self.state,
                worker: &self.worker,
                previous: self.previous.as_ref(),
                facts: &facts,
            },
            now(),
        );
        self.previous = Some(status.clone());
        serde_json::to_value(status).unwrap()
    }
}

fn running() -> ContainerRun {
    ContainerRun::Running {
        started_at: after(now(), -5),
    }
}

fn exited(exit_code: i32) -> ContainerRun {
    ContainerRun::Exited(ContainerExit {
        exit_code,
        signal: None,
        started_at: Some(after(now(), -5)),
        finished_at: after(now(), -1),
        reason: if exit_code == 0 {
            "Completed".into()
        } else {
            "Error".into()
        },
        message: String::new(),
    })
}

fn condition(status: &Value, kind: &str) -> String {
    let list = status["conditions"].as_array().unwrap();
    let found = list.iter().find(|c| c["type"] == kind).unwrap();
    let text = |key: &str| found[key].as_str().unwrap_or("-").to_owned();
    format!("{} {} {}", text("status"), text("reason"), text("message"))
}

#[test]
fn a_new_pod_is_pending_and_its_containers_are_being_created() {
    let status = World::simple("Always").status();
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["observedGeneration"], 3);
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(
        status["containerStatuses"][0]["state"]["waiting"]["reason"],
        "ContainerCreating"
    );
    assert_eq!(
        condition(&status, "Ready"),
        "False ContainersNotReady containers with unready status: [a]"
    );
    assert_eq!(condition(&status, "Initialized"), "True - -");
    assert_eq!(condition(&status, "PodReadyToStartContainers"), "True - -");
}

#[test]
fn a_running_pod_is_ready_and_its_condition_keeps_its_time() {
    let mut world = World::simple("Always");
    world.status();
    let mut world = world.with("a", 0, running());
    let status = world.status();
    let container = &status["containerStatuses"][0];
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        (&container["ready"], &container["started"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(container["containerID"], "process://a0");
    assert_eq!(condition(&status, "Ready"), "True - -");
    let before = status["conditions"].clone();
    assert_eq!(world.status()["conditions"], before);
}

#[test]
fn a_container_is_not_started_while_post_start_runs_or_startup_has_not_passed() {
    let mut world = World::simple("Always").with("a", 0, running());
    world.state.local("a").in_flight = Some(InFlight::Starting);
    assert_eq!(world.status()["containerStatuses"][0]["started"], false);
    let probed = json!({"containers": [{"name": "a", "image": "host", "startupProbe": {}}]});
    let status = World::new(probed).with("a", 0, running()).status();
    assert_eq!(status["containerStatuses"][0]["started"], false);
    assert_eq!(status["phase"], "Running");
}

#[test]
fn phases_by_policy_and_exit_code() {
    let cases = [
        ("Always", 0, "Running"),
        ("Always", 1, "Running"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, "Running"),
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
    ];
    for (policy, code, phase) in cases {
        let status = World::simple(policy).with("a", 0, exited(code)).status();
        assert_eq!(status["phase"], phase, "{policy} {code}");
    }
}

#[test]
fn a_crash_loop_reads_as_users_know_it() {
    let mut world = World::simple("Always")
        .with("a", 0, exited(2))
        .with("a", 1, exited(3));
    let hash = world.runtime.containers[1].spec_hash.clone();
    world
        .state
        .local("a")
        .crash_backoff
        .advance(&hash, after(now(), -20), after(now(), -20));
    let status = world.status();
    let container = &status["containerStatuses"][0];
    assert_eq!(status["phase"], "Running");
    assert_eq!(container["restartCount"], 1);
    assert_eq!(
        container["state"]["waiting"],
        json!({"reason": "CrashLoopBackOff", "message":
            "back-off 10s restarting failed container=a pod=web_default(u)"})
    );
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
}

#[test]
fn a_restarted_container_shows_its_last_state() {
    let status = World::simple("Always")
        .with("a", 0, exited(137))
        .with("a", 1, running())
        .status();
    let container = &status["containerStatuses"][0];
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 137);
    assert_eq!(container["restartCount"], 1);
    assert!(container["state"]["running"]["startedAt"].is_string());
}

#[test]
fn failed_starts_give_their_reason_and_message() {
    let reasons = [
        (FailureKind::Image, 0, "ErrImagePull", "cause"),
        (
            FailureKind::Image,
            2,
            "ImagePullBackOff",
            "Back-off pulling image \"host\": ErrImagePull: cause",
        ),
        (
            FailureKind::Config,
            0,
            "CreateContainerConfigError",
            "cause",
        ),
        (FailureKind::Create, 0, "CreateContainerError", "cause"),
    ];
    for (kind, age, reason, message) in reasons {
        let mut world = World::simple("Always");
        let container = pod::containers(&world.pod)[0].clone();
        world
            .state
            .start_failed(&container, kind, "cause".into(), after(now(), -age));
        let status = world.status();
        let expected = json!({"reason": reason, "message": message});
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"], expected);
        assert_eq!(status["phase"], "Pending");
    }
}

#[test]
fn init_containers_hold_the_pod_pending() {
    let spec = |policy: &str| {
        json!({"restartPolicy": policy, "initContainers": [{"name": "i", "image": "host"}],
            "containers": [{"name": "a", "image": "host"}]})
    };
    let status = World::new(spec("Always")).with("i", 0, running()).status();
    assert_eq!(status["phase"], "Pending");
    assert_eq!(
        status["containerStatuses"][0]["state"]["waiting"]["reason"],
        "PodInitializing"
    );
    assert_eq!(
        condition(&status, "Initialized"),
        "False ContainersNotInitialized containers with incomplete status: [i]"
    );
    let status = World::new(spec("Never")).with("i", 0, exited(1)).status();
    assert_eq!(status["phase"], "Failed");
    let status = World::new(spec("Always"))
        .with("i", 0, exited(0))
        .with("a", 0, running())
        .status();
    assert_eq!(status["initContainerStatuses"][0]["ready"], true);
    assert_eq!(condition(&status, "Initialized"), "True - -");
}

#[test]
fn readiness_gates_hold_back_ready_alone() {
    let mut world = World::new(json!({"containers": [{"name": "a", "image": "host"}],
        "readinessGates": [{"conditionType": "example.org/lb"}]}))
    .with("a", 0, running());
    let status = world.status();
    assert_eq!(condition(&status, "ContainersReady"), "True - -");
    assert!(condition(&status, "Ready").starts_with("False ReadinessGatesNotReady"));
    let gate = json!({"conditions": [{"type": "example.org/lb", "status": "True"}]});
    world.pod.status = serde_json::from_value(gate.clone()).unwrap();
    world.previous = serde_json::from_value(gate).unwrap();
    let status = world.status();
    assert_eq!(condition(&status, "Ready"), "True - -");
    assert_eq!(condition(&status, "example.org/lb"), "True - -");
}

#[test]
fn a_terminal_phase_never_regresses() {
    let mut world = World::simple("Never").with("a", 0, running());
    world.previous =
        serde_json::from_value(json!({"phase": "Failed", "reason": "DeadlineExceeded"})).unwrap();
    let status = world.status();
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("DeadlineExceeded"))
    );
}

#[test]
fn a_deleted_pod_ends_by_its_exit_codes() {
    for (runs, phase) in [(exited(0), "Succeeded"), (exited(143), "Failed")] {
        let mut world = World::simple("Always").with("a", 0, runs);
        world.worker.finished(&world.pod, now());
        world.worker.stopped();
        assert_eq!(world.status()["phase"], phase);
    }
}

#[test]
fn a_container_that_left_no_trace_is_reported_lost() {
    let mut world = World::simple("Always");
    world.worker.finished(&world.pod, now());
    world.worker.stopped();
    let status = world.status();
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&status["phase"], &terminated["exitCode"]),
        (&json!("Failed"), &json!(137))
    );
    assert_eq!(terminated["reason"], "ContainerStatusUnknown");
}

#[test]
fn an_evicted_pod_fails_with_its_reason() {
    let mut world = World::simple("Always").with("a", 0, running());
    let eviction = Eviction {
        reason: "DeadlineExceeded".into(),
        message: "m".into(),
    };
    world.worker.evict(&world.pod, eviction, now());
    let status = world.status();
    assert_eq!(status["phase"], "Failed");
    assert_eq!(
        (&status["reason"], &status["message"]),
        (&json!("DeadlineExceeded"), &json!("m"))
    );
}
