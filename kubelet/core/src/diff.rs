//! Spec against runtime: what to do next for a pod that may run.
//!
//! Upstream `computePodActions`, without a sandbox. Init containers run one
//! after the other; restartable ones (sidecars, KEP-753) are started in order,
//! hold up the next until they have started, and are stopped in reverse once
//! the main containers are done. The result also says when to look again if
//! nothing happens before.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::pod::{self, RestartPolicy};
use crate::probe::ProbeKind;
use crate::runtime::{ContainerInstance, ContainerRun, INSTANCES_KEPT, PodRuntime};
use crate::state::{PodState, SetUp, StartFailure, reported};

/// Why a container is stopped while its pod goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// Its spec changed; it is started anew from the new one.
    SpecChanged,
    /// A probe failed; it is replaced.
    Probe(ProbeKind),
    /// The main containers are done; a sidecar has no more purpose.
    SidecarDone,
}

impl KillReason {
    /// Returns the text of the `Killing` event.
    pub fn message(self, container: &str) -> String {
        match self {
            KillReason::SpecChanged => {
                format!("Container {container} definition changed, will be restarted")
            }
            KillReason::Probe(kind) => {
                let kind = kind.title().to_lowercase();
                format!("Container {container} failed {kind} probe, will be restarted")
            }
            KillReason::SidecarDone => format!("Stopping container {container}"),
        }
    }
}

/// One thing to do for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make its directories and volumes.
    SetUp,
    /// Start a container.
    Start {
        /// Its name.
        container: String,
        /// How many instances came before.
        attempt: u32,
        /// When the instance before ended, if this is a restart.
        restarted_after: Option<Timestamp>,
    },
    /// Stop a running instance.
    Kill {
        /// The container's name.
        container: String,
        /// The instance.
        id: String,
        /// Why.
        reason: KillReason,
    },
    /// Remove an old ended instance with its logs.
    Remove {
        /// The instance.
        id: String,
    },
    /// Tell, once per ended instance, that its container waits before it restarts.
    BackOff {
        /// The container's name.
        container: String,
        /// The instance that ended.
        id: String,
    },
}

/// What to do for a pod, and when to look again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do now, in order.
    pub actions: Vec<Action>,
    /// When the outcome changes by the passing of time alone.
    pub wake_at: Option<Timestamp>,
}

/// How far a pod's init containers have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitProgress {
    /// All are done; main containers may run.
    Done,
    /// The one at this index has to finish, or start, next.
    At(usize),
    /// The one at this index failed for good.
    Failed(usize),
}

/// Computes what to do next for a pod that may run.
pub fn diff(pod: &Pod, runtime: &PodRuntime, state: &PodState, now: Timestamp) -> Plan {
    let mut differ = Differ {
        pod,
        runtime,
        state,
        now,
        plan: Plan::default(),
    };
    match &state.set_up {
        SetUp::Pending => differ.plan.actions.push(Action::SetUp),
        SetUp::InFlight => {}
        SetUp::Failed { retry_at, .. } if *retry_at > now => differ.wake(*retry_at),
        SetUp::Failed { .. } => differ.plan.actions.push(Action::SetUp),
        SetUp::Ready => differ.containers(),
    }
    differ.plan
}

struct Differ<'a> {
    pod: &'a Pod,
    runtime: &'a PodRuntime,
    state: &'a PodState,
    now: Timestamp,
    plan: Plan,
}

impl Differ<'_> {
    fn containers(&mut self) {
        let (pod, policy) = (self.pod, pod::restart_policy(self.pod));
        self.remove_old();
        let inits = pod::init_containers(pod);
        let last = match init_progress(pod, self.runtime, self.state) {
            InitProgress::Failed(_) => return self.stop_sidecars(),
            InitProgress::Done if main_done(pod, self.runtime) => return self.stop_sidecars(),
            InitProgress::At(index) => index,
            InitProgress::Done => inits.len(),
        };
        for sidecar in inits[..last].iter().filter(|c| pod::is_sidecar(c)) {
            self.tend(sidecar, RestartPolicy::Always);
        }
        match inits.get(last) {
            Some(init) => self.tend(init, init_policy(init, policy)),
            None => pod::containers(pod)
                .iter()
                .for_each(|c| self.tend(c, policy)),
        }
    }

    /// Does what one container needs: start, restart, replace, or nothing.
    fn tend(&mut self, container: &Container, policy: RestartPolicy) {
        if self.state.in_flight(&container.name).is_some() {
            return;
        }
        let Some(instance) = self.runtime.latest(&container.name) else {
            let attempt = first_attempt(self.pod, &container.name);
            return self.start(container, attempt, None);
        };
        match &instance.run {
            ContainerRun::Created => {}
            ContainerRun::Running { .. } => self.replace_if_needed(container, instance),
            ContainerRun::Exited(exit) if policy.restarts(exit.exit_code) => {
                match self.restart_wait(container, instance) {
                    Some(until) => {
                        let (container, id) = (container.name.clone(), instance.id.clone());
                        self.plan.actions.push(Action::BackOff { container, id });
                        self.wake(until);
                    }
                    None => {
                        self.start(container, instance.attempt + 1, Some(exit.finished_at));
                    }
                }
            }
            ContainerRun::Exited(_) => {}
        }
    }

    fn replace_if_needed(&mut self, container: &Container, instance: &ContainerInstance) {
        let reason = if instance.spec_hash != pod::spec_hash(container) {
            KillReason::SpecChanged
        } else if let Some(kind) = self.state.failed_probe(&container.name) {
            KillReason::Probe(kind)
        } else {
            return;
        };
        self.kill(instance, reason);
    }

    fn start(&mut self, container: &Container, attempt: u32, restarted_after: Option<Timestamp>) {
        if let Some(failure) = self.state.failure(container) {
            let now = self.now;
            failure
                .turns_at()
                .into_iter()
                .filter(|at| *at > now)
                .for_each(|at| self.wake(at));
            if failure.retry_at > now {
                return self.wake(failure.retry_at);
            }
        }
        let container = container.name.clone();
        self.plan.actions.push(Action::Start {
            container,
            attempt,
            restarted_after,
        });
    }

    fn kill(&mut self, instance: &ContainerInstance, reason: KillReason) {
        if self.state.in_flight(&instance.name).is_none() {
            let (container, id) = (instance.name.clone(), instance.id.clone());
            self.plan.actions.push(Action::Kill {
                container,
                id,
                reason,
            });
        }
    }

    /// Stops the sidecars, one at a time, the last started first.
    fn stop_sidecars(&mut self) {
        let inits = pod::init_containers(self.pod).iter().rev();
        let alive = inits
            .filter(|c| pod::is_sidecar(c))
            .filter_map(|c| self.runtime.latest(&c.name))
            .find(|i| i.is_alive());
        if let Some(instance) = alive {
            self.kill(instance, KillReason::SidecarDone);
        }
    }

    fn remove_old(&mut self) {
        let mut old = Vec::new();
        for container in pod::all_containers(self.pod) {
            let instances = self.runtime.instances(&container.name).into_iter();
            old.extend(instances.skip(INSTANCES_KEPT).filter(|i| !i.is_alive()));
        }
        let removals = old.into_iter().map(|i| Action::Remove { id: i.id.clone() });
        self.plan.actions.extend(removals);
    }

    fn restart_wait(&self, container: &Container, last: &ContainerInstance) -> Option<Timestamp> {
        restart_wait(self.state, container, last, self.now)
    }

    fn wake(&mut self, at: Timestamp) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(at, |w| w.min(at)));
    }
}

/// Returns until when an ended container waits before it is restarted.
pub fn restart_wait(
    state: &PodState,
    container: &Container,
    last: &ContainerInstance,
    now: Timestamp,
) -> Option<Timestamp> {
    let exit = last.exit()?;
    let backoff = &state.containers.get(&container.name)?.crash_backoff;
    backoff.wait_until(&pod::spec_hash(container), exit.finished_at, now)
}

/// Computes how far the init containers have come. Once a main container was
/// ever started they are done, whatever became of their instances.
pub fn init_progress(pod: &Pod, runtime: &PodRuntime, state: &PodState) -> InitProgress {
    if pod::containers(pod)
        .iter()
        .any(|c| runtime.latest(&c.name).is_some())
    {
        return InitProgress::Done;
    }
    let inits = pod::init_containers(pod);
    // An init container that was ever started shows that those before it were done.
    let first = inits
        .iter()
        .rposition(|c| runtime.latest(&c.name).is_some())
        .unwrap_or(0);
    for (index, container) in inits.iter().enumerate().skip(first) {
        let latest = runtime.latest(&container.name);
        if pod::is_sidecar(container) {
            if latest.is_some_and(|i| state.is_started(container, i)) {
                continue;
            }
            return InitProgress::At(index);
        }
        match latest
            .and_then(ContainerInstance::exit)
            .map(|e| e.exit_code)
        {
            Some(0) => {}
            Some(_) if pod::restart_policy(pod) == RestartPolicy::Never => {
                return InitProgress::Failed(index);
            }
            Some(_) | None => return InitProgress::At(index),
        }
    }
    InitProgress::Done
}

/// Returns the restart policy of an init container: a sidecar always, another
/// until it succeeds unless the pod says never.
pub fn init_policy(container: &Container, pod_policy: RestartPolicy) -> RestartPolicy {
    match pod_policy {
        _ if pod::is_sidecar(container) => RestartPolicy::Always,
        RestartPolicy::Never => RestartPolicy::Never,
        RestartPolicy::Always | RestartPolicy::OnFailure => RestartPolicy::OnFailure,
    }
}

/// Reports whether every main container has ended and none will be restarted.
pub fn main_done(pod: &Pod, runtime: &PodRuntime) -> bool {
    let policy = pod::restart_policy(pod);
    pod::containers(pod).iter().all(|c| {
        let exit = runtime.latest(&c.name).and_then(ContainerInstance::exit);
        exit.is_some_and(|e| !policy.restarts(e.exit_code))
    })
}

/// Returns the attempt of a container no instance is known of: zero, or one
/// more than the API server last heard of (the node's directory was lost).
fn first_attempt(pod: &Pod, name: &str) -> u32 {
    match reported(pod, name) {
        Some(status) if status.container_id.is_some() => u32::try_from(status.restart_count)
            .unwrap_or(0)
            .saturating_add(1),
        Some(_) | None => 0,
    }
}

/// Returns the waiting reason and message of a failed start.
pub fn waiting(failure: &StartFailure, container: &Container, now: Timestamp) -> (String, String) {
    let image = container.image.as_deref().unwrap_or_default();
    (failure.reason(now).to_owned(), failure.text(image, now))
}

#[cfg(test)]
mod test;
