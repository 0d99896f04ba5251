//! The phase of a pod (upstream `getPhase`).

use k8s_openapi::api::core::v1::ContainerStatus;

use super::StatusInput;
use crate::diff::InitProgress;
use crate::pod::{self, RestartPolicy};
use crate::worker::Stage;

/// Computes the phase of a pod whose phase is not final yet.
pub(super) fn phase(
    input: &StatusInput<'_>,
    progress: InitProgress,
    inits: &[ContainerStatus],
    mains: &[ContainerStatus],
) -> &'static str {
    if input.worker.eviction().is_some() {
        return "Failed";
    }
    let over = input.worker.stage() == Stage::Terminated;
    let sidecars_alive = pod::init_containers(input.pod)
        .iter()
        .zip(inits)
        .any(|(c, s)| pod::is_sidecar(c) && s.state.as_ref().is_some_and(|s| s.running.is_some()));
    match progress {
        InitProgress::Failed(_) if sidecars_alive => return "Pending",
        InitProgress::Failed(_) => return "Failed",
        InitProgress::At(_) if !over => return "Pending",
        InitProgress::At(_) | InitProgress::Done => {}
    }
    let count = Count::of(mains);
    let policy = pod::restart_policy(input.pod);
    match count {
        Count { waiting, .. } if waiting > 0 => "Pending",
        Count { running, .. } if running > 0 => "Running",
        // The main containers are done, the sidecars still stopping.
        _ if sidecars_alive && !over => "Running",
        Count {
            stopped, succeeded, ..
        } if over && stopped == succeeded => "Succeeded",
        _ if over => "Failed",
        Count { stopped: 0, .. } => "Pending",
        _ if policy == RestartPolicy::Always => "Running",
        Count {
            stopped, succeeded, ..
        } if stopped == succeeded => "Succeeded",
        _ if policy == RestartPolicy::Never => "Failed",
        _ => "Running",
    }
}

#[derive(Default)]
struct Count {
    waiting: usize,
    running: usize,
    stopped: usize,
    succeeded: usize,
}

impl Count {
    /// A container that waits to be restarted counts as stopped, as upstream.
    fn of(statuses: &[ContainerStatus]) -> Self {
        let mut count = Count::default();
        for status in statuses {
            let state = status.state.as_ref();
            let last = status
                .last_state
                .as_ref()
                .and_then(|s| s.terminated.as_ref());
            if state.is_some_and(|s| s.running.is_some()) {
                count.running += 1;
            } else if let Some(terminated) = state.and_then(|s| s.terminated.as_ref()) {
                count.stopped += 1;
                count.succeeded += usize::from(terminated.exit_code == 0);
            } else if last.is_some() {
                count.stopped += 1;
            } else {
                count.waiting += 1;
            }
        }
        count
    }
}
