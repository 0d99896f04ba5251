//! A pod's entry, told what happened and asked what it wants.

use kubelet_core::runtime::ContainerExit;
use kubelet_core::state::FailureKind;
use serde_json::json;

use super::*;
use crate::effects::Started;
use crate::probing::ProbeOutcome;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn pod_value() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "5"},
        "spec": {"containers": [{"name": "a", "image": "host", "command": ["sleep"]}]},
        "status": {"phase": "Pending"},
    })
}

fn pod_of(value: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn deleting(grace: i64, version: &str) -> Arc<Pod> {
    let mut value = pod_value();
    value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    value["metadata"]["resourceVersion"] = json!(version);
    pod_of(value)
}

fn instance(attempt: u32, run: ContainerRun) -> ContainerInstance {
    let value = pod_of(pod_value());
    ContainerInstance {
        id: format!("a{attempt}"),
        name: "a".into(),
        attempt,
        image: "host".into(),
        image_id: "host".into(),
        spec_hash: pod::spec_hash(&pod::containers(&value)[0]),
        created_at: at(0),
        run,
    }
}

fn running() -> ContainerRun {
    ContainerRun::Running { started_at: at(0) }
}

fn exited(code: i32, seconds: i64) -> ContainerRun {
    ContainerRun::Exited(ContainerExit {
        exit_code: code,
        signal: None,
        started_at: Some(at(0)),
        finished_at: at(seconds),
        reason: "Error".into(),
        message: String::new(),
    })
}

/// Syncs and names the effects; status writes are answered as the server would.
fn sync(entry: &mut PodEntry, seconds: i64) -> Vec<String> {
    let effects = entry.sync(&NodeFacts::default(), at(seconds));
    let mut words = Vec::new();
    for effect in effects {
        words.push(match effect {
            Effect::Task(Task::SetUp) => "setup".to_owned(),
            Effect::Task(Task::Start { container, attempt }) => {
                format!("start:{}#{attempt}", container.name)
            }
            Effect::Task(Task::Kill {
                id,
                grace_seconds,
                message: Some(_),
                ..
            }) => {
                format!("kill:{id}:{grace_seconds}")
            }
            Effect::Task(Task::Kill {
                id, grace_seconds, ..
            }) => {
                format!("hasten:{id}:{grace_seconds}")
            }
            Effect::Task(Task::Remove { id }) => format!("remove:{id}"),
            Effect::Task(Task::Probe { kind, .. }) => format!("probe:{kind:?}"),
            Effect::Task(Task::TearDown) => "teardown".to_owned(),
            Effect::Task(Task::Delete) => "delete".to_owned(),
            Effect::Tell { reason, .. } => format!("tell:{reason}"),
            Effect::Warn { message, .. } => format!("warn:{message}"),
            Effect::Forget => "forget".to_owned(),
            Effect::Task(Task::WriteStatus(patch)) => {
                written(entry, &patch, seconds);
                format!(
                    "status:{}",
                    patch["status"]["phase"].as_str().unwrap_or_default()
                )
            }
        });
    }
    words
}

/// Plays the API server: takes the status as it is.
fn written(entry: &mut PodEntry, patch: &Value, seconds: i64) {
    let mut value = serde_json::to_value(&**entry.pod()).unwrap();
    value["status"] = patch["status"].clone();
    let version = version(entry.pod()) + 1;
    value["metadata"]["resourceVersion"] = json!(version.to_string());
    entry.status_written(
        Ok(Box::new(serde_json::from_value(value).unwrap())),
        at(seconds),
    );
}

/// A pod whose container runs since second 1.
fn running_entry() -> PodEntry {
    let mut entry = PodEntry::new(pod_of(pod_value()), at(0));
    assert_eq!(sync(&mut entry, 0), ["setup"]);
    entry.set_up_done(Ok(()), at(0));
    assert_eq!(sync(&mut entry, 0), ["start:a#0"]);
    entry.start_done(
        "a",
        Started::Instance(Box::new(instance(0, running()))),
        at(1),
    );
    assert_eq!(sync(&mut entry, 1), ["status:Running"]);
    assert!(sync(&mut entry, 1).is_empty(), "nothing is written twice");
    entry
}

#[test]
fn from_pending_to_running_and_to_the_first_restart() {
    let mut entry = running_entry();
    assert!(entry.container(instance(0, exited(137, 5))));
    assert_eq!(sync(&mut entry, 5)[0], "start:a#1");
    assert!(
        !entry.container(instance(0, running())),
        "an older state is no news"
    );
}

#[test]
fn a_second_crash_waits_is_told_once_and_then_restarts() {
    let mut entry = running_entry();
    entry.container(instance(0, exited(1, 5)));
    sync(&mut entry, 5);
    entry.start_done(
        "a",
        Started::Instance(Box::new(instance(1, exited(1, 6)))),
        at(6),
    );
    assert_eq!(sync(&mut entry, 6), ["tell:BackOff", "status:Running"]);
    assert_eq!(entry.wake_at(), Some(at(16)));
    assert!(sync(&mut entry, 10).is_empty());
    let state = pod::status(entry.pod())
        .unwrap()
        .container_statuses
        .as_ref()
        .unwrap()[0]
        .clone();
    assert_eq!(
        state.state.unwrap().waiting.unwrap().reason.unwrap(),
        "CrashLoopBackOff"
    );
    assert_eq!(sync(&mut entry, 16)[0], "start:a#2");
}

#[test]
fn deletion_stops_tears_down_confirms_and_forgets() {
    let mut entry = running_entry();
    entry.observe(deleting(30, "100"), at(2));
    assert_eq!(sync(&mut entry, 2)[0], "kill:a0:30");
    assert!(
        !sync(&mut entry, 3).iter().any(|w| w.starts_with("kill")),
        "stopped once"
    );
    entry.observe(deleting(1, "200"), at(4));
    assert_eq!(sync(&mut entry, 4)[0], "hasten:a0:1");
    entry.container(instance(0, exited(143, 5)));
    entry.kill_done("a", "a0", Ok(()));
    let words = sync(&mut entry, 5);
    assert!(words.contains(&"status:Failed".to_owned()), "{words:?}");
    assert!(words.contains(&"teardown".to_owned()), "{words:?}");
    entry.torn_down(Ok(()), at(6));
    assert_eq!(sync(&mut entry, 6), ["delete"]);
    entry.deleted(Ok(()), at(7));
    assert!(sync(&mut entry, 7).is_empty());
    let last = Arc::clone(entry.pod());
    entry.gone(&last, at(8));
    assert_eq!(sync(&mut entry, 8), ["remove:a0"]);
    entry.remove_done("a0", Ok(()), at(9));
    assert_eq!(sync(&mut entry, 9), ["forget"]);
}

#[test]
fn a_pod_removed_by_force_is_stopped_quickly_and_nothing_is_written() {
    let mut entry = running_entry();
    entry.gone(&deleting(0, "100"), at(2));
    assert_eq!(sync(&mut entry, 2), ["kill:a0:1"]);
    entry.container(instance(0, exited(137, 3)));
    entry.kill_done("a", "a0", Ok(()));
    assert_eq!(sync(&mut entry, 3), ["teardown"]);
}

/// The grace of the spec, or of a deletion under way, does not hold up a pod
/// the API server has no more.
#[test]
fn a_pod_that_vanishes_gets_two_seconds_at_most() {
    let mut entry = running_entry();
    entry.gone(&pod_of(pod_value()), at(2));
    assert_eq!(sync(&mut entry, 2), ["kill:a0:2"]);

    let mut entry = running_entry();
    entry.observe(deleting(30, "100"), at(2));
    assert_eq!(sync(&mut entry, 2)[0], "kill:a0:30");
    entry.gone(&deleting(30, "101"), at(3));
    assert_eq!(sync(&mut entry, 3), ["hasten:a0:2"]);
}

#[test]
fn what_is_not_enforced_is_told_once() {
    let mut value = pod_value();
    value["spec"]["containers"][0]["securityContext"] =
        json!({"readOnlyRootFilesystem": true, "privileged": true});
    let mut entry = PodEntry::new(pod_of(value), at(0));
    let warning = "warn:process runtime does not enforce privileged, readOnlyRootFilesystem";
    assert_eq!(sync(&mut entry, 0), [warning, "setup"]);
    entry.set_up_done(Err("no".to_owned()), at(1));
    let again = sync(&mut entry, 10);
    assert!(again.contains(&"setup".to_owned()), "{again:?}");
    assert!(!again.iter().any(|w| w.starts_with("warn")), "{again:?}");
}

#[test]
fn a_container_is_not_restarted_once_its_pod_is_deleted() {
    let mut entry = running_entry();
    entry.observe(deleting(30, "100"), at(2));
    entry.container(instance(0, exited(1, 2)));
    assert!(!sync(&mut entry, 2).iter().any(|w| w.starts_with("start")));
}

#[test]
fn a_pod_deleted_while_its_container_is_being_started_waits_for_that() {
    let mut entry = PodEntry::new(pod_of(pod_value()), at(0));
    sync(&mut entry, 0);
    entry.set_up_done(Ok(()), at(0));
    sync(&mut entry, 0);
    entry.observe(deleting(30, "100"), at(1));
    assert!(!sync(&mut entry, 1).iter().any(|w| w == "teardown"));
    entry.start_done(
        "a",
        Started::Instance(Box::new(instance(0, running()))),
        at(2),
    );
    assert_eq!(sync(&mut entry, 2)[0], "kill:a0:30");
}

#[test]
fn failed_starts_are_tried_again_and_a_pull_tells_its_back_off() {
    let mut entry = PodEntry::new(pod_of(pod_value()), at(0));
    sync(&mut entry, 0);
    entry.set_up_done(Ok(()), at(0));
    sync(&mut entry, 0);
    entry.start_done("a", Started::Failed(FailureKind::Image, "no".into()), at(1));
    assert_eq!(sync(&mut entry, 1), ["status:Pending"]);
    assert_eq!(
        sync(&mut entry, 3),
        ["tell:BackOff", "tell:Failed", "status:Pending"]
    );
    assert_eq!(entry.wake_at(), Some(at(11)));
    assert_eq!(sync(&mut entry, 11)[0], "start:a#0");
}

#[test]
fn probes_run_when_due_and_a_failed_one_replaces_the_container() {
    let mut value = pod_value();
    value["spec"]["containers"][0]["livenessProbe"] = json!({"failureThreshold": 1, "periodSeconds": 3,
        "tcpSocket": {"port": 1}});
    let mut entry = PodEntry::new(pod_of(value), at(0));
    sync(&mut entry, 0);
    entry.set_up_done(Ok(()), at(0));
    sync(&mut entry, 0);
    entry.start_done(
        "a",
        Started::Instance(Box::new(instance(0, running()))),
        at(0),
    );
    assert_eq!(sync(&mut entry, 0), ["probe:Liveness", "status:Running"]);
    let ok = ProbeOutcome {
        success: Some(true),
        message: String::new(),
    };
    entry.probe_done("a", "a0", ProbeKind::Liveness, &ok);
    assert!(sync(&mut entry, 1).is_empty());
    assert_eq!(entry.wake_at(), Some(at(3)));
    assert_eq!(sync(&mut entry, 3), ["probe:Liveness"]);
    let bad = ProbeOutcome {
        success: Some(false),
        message: "x".into(),
    };
    entry.probe_done("a", "old", ProbeKind::Liveness, &bad);
    assert!(
        !sync(&mut entry, 3).iter().any(|w| w.starts_with("kill")),
        "of another instance"
    );
    entry.probe_done("a", "a0", ProbeKind::Liveness, &bad);
    assert_eq!(sync(&mut entry, 3)[0], "kill:a0:30");
}

#[test]
fn a_job_like_pod_succeeds_and_keeps_its_container_for_its_log() {
    let mut value = pod_value();
    value["spec"]["restartPolicy"] = json!("Never");
    let mut entry = PodEntry::new(pod_of(value), at(0));
    sync(&mut entry, 0);
    entry.set_up_done(Ok(()), at(0));
    sync(&mut entry, 0);
    entry.start_done(
        "a",
        Started::Instance(Box::new(instance(0, exited(0, 1)))),
        at(1),
    );
    let words = sync(&mut entry, 1);
    assert_eq!(words, ["status:Succeeded", "teardown"]);
    entry.torn_down(Ok(()), at(2));
    assert!(sync(&mut entry, 2).is_empty());
    assert_eq!(entry.runtime().containers.len(), 1);
}

#[test]
fn a_deadline_ends_the_pod() {
    let mut value = pod_value();
    value["spec"]["activeDeadlineSeconds"] = json!(10);
    value["status"] = json!({"phase": "Running", "startTime": at(0).to_string()});
    let mut entry = PodEntry::new(pod_of(value), at(0));
    sync(&mut entry, 0);
    entry.set_up_done(Ok(()), at(0));
    sync(&mut entry, 0);
    entry.start_done(
        "a",
        Started::Instance(Box::new(instance(0, running()))),
        at(1),
    );
    sync(&mut entry, 1);
    assert_eq!(entry.wake_at(), Some(at(10)));
    assert_eq!(sync(&mut entry, 10), ["kill:a0:30", "status:Failed"]);
    assert_eq!(
        pod::status(entry.pod()).unwrap().reason.as_deref(),
        Some("DeadlineExceeded")
    );
}

#[test]
fn the_first_status_is_held_back_only_while_containers_are_being_started() {
    let mut entry = PodEntry::new(pod_of(pod_value()), at(0));
    assert_eq!(sync(&mut entry, 0), ["setup"]);
    let held_until = entry.wake_at().unwrap();
    assert!(held_until > at(0) && held_until < at(1));
    assert_eq!(sync(&mut entry, 1), ["status:Pending"]);
}

#[test]
fn a_write_that_fails_is_tried_again_later() {
    let mut entry = PodEntry::new(pod_of(pod_value()), at(0));
    let effects = entry.sync(&NodeFacts::default(), at(1));
    assert!(
        effects
            .iter()
            .any(|e| matches!(e, Effect::Task(Task::WriteStatus(_))))
    );
    let error = client::Error::Request("down".to_owned());
    entry.status_written(Err(error), at(1));
    assert!(sync(&mut entry, 1).is_empty());
    assert_eq!(entry.wake_at(), Some(at(2)));
    assert_eq!(sync(&mut entry, 2), ["status:Pending"]);
}

#[test]
fn a_server_that_does_not_show_what_it_took_is_not_flooded() {
    let mut entry = PodEntry::new(pod_of(pod_value()), at(0));
    let held = entry.pod().clone();
    let mut writes = Vec::new();
    for seconds in 1..26 {
        let effects = entry.sync(&NodeFacts::default(), at(seconds));
        if effects
            .iter()
            .any(|e| matches!(e, Effect::Task(Task::WriteStatus(_))))
        {
            writes.push(seconds);
            entry.status_written(Ok(Box::new(Pod::clone(&held))), at(seconds));
        }
        assert!(entry.wake_at().is_none_or(|wake| wake > at(seconds)));
    }
    assert_eq!(writes, [1, 11, 21]);
}

#[test]
fn a_deletion_that_is_refused_is_confirmed_again() {
    let mut entry = running_entry();
    entry.observe(deleting(30, "100"), at(2));
    sync(&mut entry, 2);
    entry.container(instance(0, exited(0, 3)));
    entry.kill_done("a", "a0", Ok(()));
    assert!(sync(&mut entry, 3).contains(&"status:Succeeded".to_owned()));
    entry.torn_down(Ok(()), at(3));
    assert_eq!(sync(&mut entry, 3), ["delete"]);
    entry.deleted(Err(client::Error::Request("conflict".to_owned())), at(4));
    assert!(sync(&mut entry, 4).is_empty());
    assert_eq!(entry.wake_at(), Some(at(5)));
    assert_eq!(sync(&mut entry, 5), ["delete"]);
}
