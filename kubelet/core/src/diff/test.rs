//! The table of spec × runtime → actions.
//!
//! Runtime states are written as `name=state` words: `run`, `new`, or an exit
//! code with an optional age in seconds (`1@3` ended with 1 three seconds ago);
//! `#n` sets the attempt. Actions come out as one word each.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::after;
use crate::probe::{ProbeState, ProbeTiming};
use crate::runtime::ContainerExit;
use crate::state::{FailureKind, InFlight};

const NOW: i64 = 1_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn pod_of(policy: &str, inits: Value, mains: Value) -> Pod {
    let named = |list: Value| -> Value {
        let list = list.as_array().unwrap().iter();
        list.map(|c| match c {
            Value::String(name) => json!({"name": name, "image": "host"}),
            other => other.clone(),
        })
        .collect()
    };
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"restartPolicy": policy, "initContainers": named(inits), "containers": named(mains)},
    }))
    .unwrap()
}

fn sidecar(name: &str) -> Value {
    json!({"name": name, "image": "host", "restartPolicy": "Always"})
}

fn runtime_of(pod: &Pod, words: &str) -> PodRuntime {
    let containers = words
        .split_whitespace()
        .map(|word| instance(pod, word))
        .collect();
    PodRuntime { containers }
}

fn instance(pod: &Pod, word: &str) -> ContainerInstance {
    let (name, state) = word.split_once('=').unwrap();
    let (state, attempt) = state.split_once('#').unwrap_or((state, "0"));
    let run = match state {
        "new" => ContainerRun::Created,
        "run" => ContainerRun::Running {
            started_at: after(now(), -5),
        },
        exited => {
            let (code, age) = exited.split_once('@').unwrap_or((exited, "1"));
            ContainerRun::Exited(ContainerExit {
                exit_code: code.parse().unwrap(),
                signal: None,
                started_at: Some(after(now(), -60)),
                finished_at: after(now(), -age.parse::<i64>().unwrap()),
                reason: "Error".into(),
                message: String::new(),
            })
        }
    };
    ContainerInstance {
        id: format!("{name}{attempt}"),
        name: name.into(),
        attempt: attempt.parse().unwrap(),
        image: "host".into(),
        image_id: "host".into(),
        spec_hash: pod::container(pod, name)
            .map(pod::spec_hash)
            .unwrap_or_default(),
        created_at: after(now(), -60),
        run,
    }
}

fn ready() -> PodState {
    PodState {
        set_up: SetUp::Ready,
        ..PodState::default()
    }
}

fn words(plan: &Plan) -> String {
    let words: Vec<_> = plan
        .actions
        .iter()
        .map(|action| match action {
            Action::SetUp => "setup".to_owned(),
            Action::Start {
                container, attempt, ..
            } => format!("start:{container}#{attempt}"),
            Action::Kill { id, reason, .. } => format!("kill:{id}:{reason:?}"),
            Action::Remove { id } => format!("remove:{id}"),
            Action::BackOff { id, .. } => format!("backoff:{id}"),
        })
        .collect();
    words.join(" ")
}

/// Diffs a pod against a runtime written in words, probes tracked first.
fn check(pod: &Pod, runtime: &str, mut state: PodState, expected: &str) -> Plan {
    let runtime = runtime_of(pod, runtime);
    state.track(pod, &runtime);
    let plan = diff(pod, &runtime, &state, now());
    assert_eq!(words(&plan), expected);
    plan
}

#[test]
fn volumes_come_before_containers() {
    let pod = pod_of("Always", json!([]), json!(["a"]));
    check(&pod, "", PodState::default(), "setup");
    check(
        &pod,
        "",
        PodState {
            set_up: SetUp::InFlight,
            ..PodState::default()
        },
        "",
    );
    let failed = |retry: i64| PodState {
        set_up: SetUp::Failed {
            message: "m".into(),
            retry_at: after(now(), retry),
        },
        ..PodState::default()
    };
    assert_eq!(
        check(&pod, "", failed(3), "").wake_at,
        Some(after(now(), 3))
    );
    check(&pod, "", failed(0), "setup");
}

#[test]
fn main_containers_by_restart_policy() {
    let cases = [
        ("Always", "", "start:a#0 start:b#0"),
        ("Always", "a=run b=new", ""),
        ("Always", "a=0#2 b=1", "start:a#3 start:b#1"),
        ("OnFailure", "a=0 b=1", "start:b#1"),
        ("OnFailure", "a=0 b=0", ""),
        ("Never", "a=1 b=run", ""),
        ("Never", "a=1", "start:b#0"),
    ];
    for (policy, runtime, expected) in cases {
        let pod = pod_of(policy, json!([]), json!(["a", "b"]));
        check(&pod, runtime, ready(), expected);
    }
}

#[test]
fn init_containers_run_one_after_the_other() {
    let cases = [
        ("Always", "", "start:i#0"),
        ("Always", "i=run", ""),
        ("Always", "i=0", "start:j#0"),
        ("Always", "i=0 j=3", "start:j#1"),
        ("Always", "i=0 j=0", "start:a#0"),
        ("Never", "i=1", ""),
        ("OnFailure", "i=1", "start:i#1"),
        // The instance of a finished init container may be gone.
        ("Always", "j=0", "start:a#0"),
        ("Always", "a=run", ""),
    ];
    for (policy, runtime, expected) in cases {
        let pod = pod_of(policy, json!(["i", "j"]), json!(["a"]));
        check(&pod, runtime, ready(), expected);
    }
}

#[test]
fn sidecars_start_in_order_stay_up_and_stop_last() {
    let inits = || json!([sidecar("s"), "i", sidecar("t")]);
    let cases = [
        ("Always", "", "start:s#0"),
        ("Always", "s=run", "start:i#0"),
        ("Always", "s=1 i=run", "start:s#1"),
        ("Always", "s=run i=0", "start:t#0"),
        ("Always", "s=run i=0 t=run", "start:a#0"),
        ("Always", "s=run i=0 t=0 a=run", "start:t#1"),
        ("Never", "s=run i=0 t=run a=0", "kill:t0:SidecarDone"),
        ("Never", "s=run i=0 t=143 a=0", "kill:s0:SidecarDone"),
        ("Never", "s=143 i=0 t=143 a=0", ""),
        ("Never", "s=run i=1", "kill:s0:SidecarDone"),
    ];
    for (policy, runtime, expected) in cases {
        check(
            &pod_of(policy, inits(), json!(["a"])),
            runtime,
            ready(),
            expected,
        );
    }
}

#[test]
fn a_crashing_container_backs_off() {
    let pod = pod_of("Always", json!([]), json!(["a"]));
    let mut state = ready();
    let hash = pod::spec_hash(&pod::containers(&pod)[0]);
    state
        .local("a")
        .crash_backoff
        .advance(&hash, after(now(), -60), after(now(), -59));
    let plan = check(&pod, "a=1@3#1", state.clone(), "backoff:a1");
    assert_eq!(plan.wake_at, Some(after(now(), 7)));
    check(&pod, "a=1@10#1", state, "start:a#2");
}

#[test]
fn a_changed_image_replaces_the_running_container() {
    let old = pod_of("Always", json!([]), json!(["a"]));
    let new = pod_of(
        "Always",
        json!([]),
        json!([{"name": "a", "image": "other"}]),
    );
    let runtime = runtime_of(&old, "a=run");
    let plan = diff(&new, &runtime, &ready(), now());
    assert_eq!(words(&plan), "kill:a0:SpecChanged");
}

#[test]
fn a_failed_probe_replaces_the_container_but_readiness_never_does() {
    let pod = pod_of("Always", json!([]), json!(["a"]));
    let runtime = runtime_of(&pod, "a=run");
    let cases = [
        (ProbeKind::Liveness, "kill:a0:Probe(Liveness)"),
        (ProbeKind::Startup, "kill:a0:Probe(Startup)"),
        (ProbeKind::Readiness, ""),
    ];
    for (kind, expected) in cases {
        let mut state = ready();
        let mut probe = ProbeState::new(kind, ProbeTiming::of(&Default::default()));
        (0..3).for_each(|_| {
            probe.record(Some(false));
        });
        state.local("a").probes.probes.push(probe);
        assert_eq!(words(&diff(&pod, &runtime, &state, now())), expected);
    }
}

#[test]
fn one_effect_at_a_time_per_container() {
    let pod = pod_of("Always", json!([]), json!(["a", "b"]));
    let mut state = ready();
    state.local("a").in_flight = Some(InFlight::Starting);
    check(&pod, "", state, "start:b#0");
}

#[test]
fn a_failed_start_waits_and_a_changed_spec_does_not() {
    let pod = pod_of("Always", json!([]), json!(["a"]));
    let mut state = ready();
    let container = &pod::containers(&pod)[0];
    state.start_failed(container, FailureKind::Image, "no".into(), now());
    // It wakes when ErrImagePull turns into ImagePullBackOff, then for the retry.
    let plan = check(&pod, "", state.clone(), "");
    assert_eq!(plan.wake_at, Some(after(now(), 2)));
    let plan = diff(&pod, &PodRuntime::default(), &state, after(now(), 2));
    assert_eq!(plan.wake_at, Some(after(now(), 10)));
    let plan = diff(&pod, &PodRuntime::default(), &state, after(now(), 10));
    assert_eq!(words(&plan), "start:a#0");
    let changed = pod_of("Always", json!([]), json!([{"name": "a", "image": "b"}]));
    check(&changed, "", state, "start:a#0");
}

#[test]
fn only_the_two_newest_instances_are_kept() {
    let pod = pod_of("Always", json!([]), json!(["a"]));
    check(&pod, "a=1#0 a=1#1 a=run#2", ready(), "remove:a0");
}

#[test]
fn a_lost_directory_still_counts_restarts() {
    let mut pod = pod_of("Always", json!([]), json!(["a"]));
    let status = json!({"containerStatuses": [{"name": "a", "image": "", "imageID": "",
        "ready": false, "restartCount": 4, "containerID": "process://x"}]});
    pod.status = serde_json::from_value(status).unwrap();
    check(&pod, "", ready(), "start:a#5");
}
