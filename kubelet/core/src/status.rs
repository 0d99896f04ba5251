//! What the API server is told about a pod: phase, conditions, containers.
//!
//! Upstream `generateAPIPodStatus`, `getPhase` and `status/generate.go`. A
//! terminal phase never regresses. Times and reasons of conditions that do not
//! change are carried over from the status given as `previous`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::backoff::go_duration;
use crate::diff::{self, InitProgress};
use crate::fields::NodeFacts;
use crate::pod::{self, RestartPolicy};
use crate::runtime::{ContainerExit, ContainerInstance, ContainerRun, PodRuntime};
use crate::state::{CONTAINER_ID_SCHEME, PodState, started_at};
use crate::worker::{PodWorker, Stage};

mod conditions;
mod phase;

/// Everything a status is computed from.
#[derive(Clone, Copy)]
pub struct StatusInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its container instances.
    pub runtime: &'a PodRuntime,
    /// What the agent carries for it.
    pub state: &'a PodState,
    /// Where it is in its life.
    pub worker: &'a PodWorker,
    /// The newest status known: what was last written, or the API server's.
    pub previous: Option<&'a PodStatus>,
    /// What the node knows.
    pub facts: &'a NodeFacts,
}

/// Computes a pod's status.
pub fn compute(input: StatusInput<'_>, now: Timestamp) -> PodStatus {
    let StatusInput {
        pod,
        worker,
        previous,
        facts,
        ..
    } = input;
    let progress = diff::init_progress(pod, input.runtime, input.state);
    let statuses = |containers: &[Container]| -> Vec<ContainerStatus> {
        containers
            .iter()
            .map(|c| container_status(&input, c, now))
            .collect()
    };
    let inits = statuses(pod::init_containers(pod));
    let mains = statuses(pod::containers(pod));
    let known_phase = previous
        .and_then(|s| s.phase.as_deref())
        .or(pod::phase(pod));
    let phase = match known_phase {
        known if pod::is_terminal(known) => known.unwrap_or_default().to_owned(),
        _ => phase::phase(&input, progress, &inits, &mains).to_owned(),
    };
    let mut status = PodStatus {
        host_ip: Some(facts.host_ip.clone()),
        host_ips: Some(vec![HostIP {
            ip: facts.host_ip.clone(),
        }]),
        pod_ip: Some(facts.pod_ip.clone()),
        pod_ips: Some(vec![PodIP {
            ip: facts.pod_ip.clone(),
        }]),
        observed_generation: pod.metadata.generation,
        qos_class: Some(pod::qos_class(pod).to_owned()),
        start_time: previous
            .and_then(|s| s.start_time.clone())
            .or(Some(Time(now))),
        reason: previous.and_then(|s| s.reason.clone()),
        message: previous.and_then(|s| s.message.clone()),
        phase: Some(phase),
        init_container_statuses: (!inits.is_empty()).then_some(inits),
        container_statuses: Some(mains),
        ..PodStatus::default()
    };
    if let Some(eviction) = worker.eviction() {
        status.reason = Some(eviction.reason.clone());
        status.message = Some(eviction.message.clone());
    }
    status.conditions = Some(conditions::conditions(&input, &status, progress, now));
    status
}

fn container_status(
    input: &StatusInput<'_>,
    container: &Container,
    now: Timestamp,
) -> ContainerStatus {
    let name = &container.name;
    let latest = input.runtime.latest(name);
    let Some(instance) = latest else {
        return status_without_instance(input, container, now);
    };
    let previous_exit = input.runtime.previous(name).and_then(terminated);
    let running = started_at(instance);
    let (state, last_state) = match &instance.run {
        ContainerRun::Created => (waiting("ContainerCreating", ""), previous_exit),
        ContainerRun::Running { started_at } => (running_state(*started_at), previous_exit),
        ContainerRun::Exited(exit) => match restart_state(input, container, instance, exit, now) {
            Some(waiting) => (waiting, terminated(instance)),
            None => (terminated(instance).unwrap_or_default(), previous_exit),
        },
    };
    let is_plain_init = !pod::is_main(input.pod, name) && !pod::is_sidecar(container);
    let ready = if is_plain_init {
        instance.exit().is_some_and(|e| e.exit_code == 0)
    } else {
        input.state.is_ready(container, instance)
    };
    ContainerStatus {
        name: name.clone(),
        image: instance.image.clone(),
        image_id: instance.image_id.clone(),
        container_id: Some(format!("{CONTAINER_ID_SCHEME}{}", instance.id)),
        restart_count: i32::try_from(instance.attempt).unwrap_or(i32::MAX),
        started: Some(running.is_some() && input.state.is_started(container, instance)),
        ready,
        state: Some(state),
        last_state: Some(last_state.unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

/// Describes a container no instance is known of: not started yet, or its
/// instance was lost and what the API server holds is all there is.
fn status_without_instance(
    input: &StatusInput<'_>,
    container: &Container,
    now: Timestamp,
) -> ContainerStatus {
    let known = input.previous.and_then(|s| find(s, &container.name));
    let ended = known.is_some_and(|k| k.state.as_ref().is_some_and(|s| s.terminated.is_some()));
    let syncing = input.worker.stage() == Stage::Syncing;
    if let Some(known) = known.filter(|_| ended && !syncing) {
        return ContainerStatus {
            ready: known.ready && syncing,
            ..known.clone()
        };
    }
    let state = if input.worker.stage() == Stage::Terminated {
        lost(known.is_some_and(|k| k.container_id.is_some()))
    } else if let Some(failure) = input.state.failure(container) {
        let (reason, message) = diff::waiting(failure, container, now);
        waiting(&reason, &message)
    } else if pod::init_containers(input.pod).is_empty() {
        waiting("ContainerCreating", "")
    } else {
        waiting("PodInitializing", "")
    };
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        restart_count: known.map_or(0, |k| k.restart_count),
        started: Some(false),
        state: Some(state),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    }
}

/// Describes an ended container that will be restarted but must wait first.
fn restart_state(
    input: &StatusInput<'_>,
    container: &Container,
    instance: &ContainerInstance,
    exit: &ContainerExit,
    now: Timestamp,
) -> Option<ContainerState> {
    if input.worker.stage() != Stage::Syncing || !will_restart(input, container, exit) {
        return None;
    }
    if let Some(failure) = input.state.failure(container) {
        let (reason, message) = diff::waiting(failure, container, now);
        return Some(waiting(&reason, &message));
    }
    diff::restart_wait(input.state, container, instance, now)?;
    let seconds = input
        .state
        .containers
        .get(&container.name)?
        .crash_backoff
        .seconds();
    let message = format!(
        "back-off {} restarting failed container={} pod={}",
        go_duration(seconds),
        container.name,
        pod::full_name(input.pod)
    );
    Some(waiting("CrashLoopBackOff", &message))
}

fn will_restart(input: &StatusInput<'_>, container: &Container, exit: &ContainerExit) -> bool {
    let policy = pod::restart_policy(input.pod);
    let policy = if pod::is_main(input.pod, &container.name) {
        policy
    } else {
        match diff::init_progress(input.pod, input.runtime, input.state) {
            InitProgress::Done if !pod::is_sidecar(container) => RestartPolicy::Never,
            InitProgress::Done if diff::main_done(input.pod, input.runtime) => RestartPolicy::Never,
            InitProgress::Failed(_) => RestartPolicy::Never,
            InitProgress::Done | InitProgress::At(_) => diff::init_policy(container, policy),
        }
    };
    policy.restarts(exit.exit_code)
}

fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let main = status.container_statuses.iter().flatten();
    main.chain(status.init_container_statuses.iter().flatten())
        .find(|s| s.name == name)
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let message = (!message.is_empty()).then(|| message.to_owned());
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message,
        }),
        ..ContainerState::default()
    }
}

fn running_state(started_at: Timestamp) -> ContainerState {
    ContainerState {
        running: Some(ContainerStateRunning {
            started_at: Some(Time(started_at)),
        }),
        ..ContainerState::default()
    }
}

fn terminated(instance: &ContainerInstance) -> Option<ContainerState> {
    let exit = instance.exit()?;
    let terminated = ContainerStateTerminated {
        container_id: Some(format!("{CONTAINER_ID_SCHEME}{}", instance.id)),
        exit_code: exit.exit_code,
        // Signals are told by the exit code (128 + n), as containerd does.
        signal: None,
        started_at: exit.started_at.or(Some(exit.finished_at)).map(Time),
        finished_at: Some(Time(exit.finished_at)),
        reason: Some(exit.reason.clone()),
        message: (!exit.message.is_empty()).then(|| exit.message.clone()),
    };
    Some(ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    })
}

/// Describes a container that is over and left no exit code.
fn lost(was_started: bool) -> ContainerState {
    let message = if was_started {
        "The container could not be located when the pod was terminated"
    } else {
        "The container was not started before the pod was terminated"
    };
    let terminated = ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some(message.to_owned()),
        ..ContainerStateTerminated::default()
    };
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}

#[cfg(test)]
mod test;
