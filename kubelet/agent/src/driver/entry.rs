//! One pod on this node: its worker, its runtime state, and the effects it
//! wants next. Knows the time only by being told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::diff::{self, Action};
use kubelet_core::fields::NodeFacts;
use kubelet_core::probe::ProbeKind;
use kubelet_core::runtime::{ContainerInstance, ContainerRun, PodRuntime};
use kubelet_core::state::{InFlight, PodState, SetUp, started_at};
use kubelet_core::status::{self, StatusInput};
use kubelet_core::worker::{Eviction, PodWorker, Stage};
use kubelet_core::{after, pod, security};
use serde_json::Value;

use super::status_patch;
use super::task::Task;
use crate::effects::seconds;

mod reports;

/// Seconds between two tries of something that failed outside the node's power.
const RETRY_SECONDS: i64 = 1;
/// Seconds between two set-ups of a pod's volumes after the first failed.
const SET_UP_RETRY_SECONDS: i64 = 2;
/// Seconds between two looks at the objects a running pod's volumes show
/// (upstream's sync period is about a minute).
const REFRESH_SECONDS: i64 = 60;
/// Seconds after which a status the API server accepted but does not show is
/// written again; bounds a disagreement about its form.
const REWRITE_SECONDS: i64 = 10;
/// How long the first status of a new pod is held back while its containers are
/// being started, in milliseconds. Mostly they run by then, and one write says
/// what three would have said.
const FIRST_STATUS_HELD_MILLIS: i64 = 300;
/// The reason of the event that names fields without effect.
const UNENFORCED: &str = "SecurityContextNotEnforced";

/// Something the entry wants done.
#[derive(Debug)]
pub(super) enum Effect {
    /// Do something that takes time.
    Task(Task),
    /// Record an event.
    Tell {
        container: String,
        warning: bool,
        reason: &'static str,
        message: String,
    },
    /// Record a warning about the pod as a whole.
    Warn {
        reason: &'static str,
        message: String,
    },
    /// Drop the entry: nothing of the pod is left.
    Forget,
}

/// A step that is done once, and tried again when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Todo,
    InFlight,
    RetryAt(Timestamp),
    Done,
}

impl Step {
    /// Reports whether the step should be begun, and notes that it is.
    fn begin(&mut self, now: Timestamp) -> bool {
        let begin = match *self {
            Step::Todo => true,
            Step::RetryAt(at) => at <= now,
            Step::InFlight | Step::Done => false,
        };
        if begin {
            *self = Step::InFlight;
        }
        begin
    }

    fn retry_at(self) -> Option<Timestamp> {
        match self {
            Step::RetryAt(at) => Some(at),
            Step::Todo | Step::InFlight | Step::Done => None,
        }
    }
}

/// One pod on this node.
pub(super) struct PodEntry {
    pod: Arc<Pod>,
    worker: PodWorker,
    state: PodState,
    runtime: PodRuntime,
    /// What was already told by an event: ids of instances, or times of failures.
    told: BTreeSet<String>,
    /// The grace each instance is being stopped with.
    stopping: BTreeMap<String, i64>,
    removing: BTreeSet<String>,
    refresh_at: Option<Timestamp>,
    refreshing: bool,
    status: Step,
    /// Until when the first status may be held back.
    hold_status_until: Timestamp,
    /// The last status written, and when.
    written: Option<(Value, Timestamp)>,
    tear_down: Step,
    delete: Step,
    retry_removal_at: Option<Timestamp>,
    wake_at: Option<Timestamp>,
}

impl PodEntry {
    pub(super) fn new(pod: Arc<Pod>, now: Timestamp) -> Self {
        PodEntry {
            worker: PodWorker::new(&pod, now),
            pod,
            state: PodState::default(),
            runtime: PodRuntime::default(),
            told: BTreeSet::new(),
            stopping: BTreeMap::new(),
            removing: BTreeSet::new(),
            refresh_at: None,
            refreshing: false,
            status: Step::Todo,
            hold_status_until: now
                .checked_add(SignedDuration::from_millis(FIRST_STATUS_HELD_MILLIS))
                .unwrap_or(now),
            written: None,
            tear_down: Step::Todo,
            delete: Step::Todo,
            retry_removal_at: None,
            wake_at: None,
        }
    }

    pub(super) fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    pub(super) fn runtime(&self) -> &PodRuntime {
        &self.runtime
    }

    /// Returns when the entry wants to be synced even if nothing happens.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.wake_at
    }

    /// Decides what to do now.
    pub(super) fn sync(&mut self, facts: &NodeFacts, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.wake_at = None;
        self.state.track(&self.pod, &self.runtime);
        self.check_deadline(now);
        if self.worker.stage() == Stage::Syncing {
            self.sync_running(facts, now, &mut effects);
        }
        if self.worker.stage() == Stage::Terminating {
            self.sync_terminating(now, &mut effects);
        }
        self.probe(now, &mut effects);
        self.write_status(facts, now, &mut effects);
        if self.worker.stage() == Stage::Terminated {
            self.sync_terminated(now, &mut effects);
        }
        effects
    }

    fn sync_running(&mut self, facts: &NodeFacts, now: Timestamp, effects: &mut Vec<Effect>) {
        let plan = diff::diff(&self.pod, &self.runtime, &self.state, now);
        for action in plan.actions {
            self.act(action, now, effects);
        }
        self.wake(plan.wake_at);
        self.tell_pull_back_off(now, effects);
        if self.state.set_up == SetUp::Ready && self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh_at = None;
            self.refreshing = true;
            effects.push(Effect::Task(Task::SetUp));
        }
        self.wake(self.refresh_at);
        let status = self.compute(facts, now);
        let over = pod::is_terminal(status.phase.as_deref());
        if over && !self.runtime.any_alive() && !self.state.any_in_flight() {
            self.worker.finished(&self.pod, now);
        }
    }

    fn act(&mut self, action: Action, now: Timestamp, effects: &mut Vec<Effect>) {
        match action {
            Action::SetUp => {
                self.state.set_up = SetUp::InFlight;
                self.tell_unenforced(effects);
                effects.push(Effect::Task(Task::SetUp));
            }
            Action::Start {
                container,
                attempt,
                restarted_after,
            } => {
                let Some(spec) = pod::container(&self.pod, &container).cloned() else {
                    return;
                };
                let local = self.state.local(&container);
                local.in_flight = Some(InFlight::Starting);
                if let Some(ended_at) = restarted_after {
                    local
                        .crash_backoff
                        .advance(&pod::spec_hash(&spec), ended_at, now);
                }
                effects.push(Effect::Task(Task::Start {
                    container: Box::new(spec),
                    attempt,
                }));
            }
            Action::Kill {
                container,
                id,
                reason,
            } => {
                let message = reason.message(&container);
                self.kill(
                    container,
                    id,
                    message,
                    pod::grace_seconds(&self.pod),
                    effects,
                );
            }
            Action::Remove { id } => {
                if self.removing.insert(id.clone()) {
                    effects.push(Effect::Task(Task::Remove { id }));
                }
            }
            Action::BackOff { container, id } => {
                if self.told.insert(id) {
                    let pod = pod::full_name(&self.pod);
                    let message =
                        format!("Back-off restarting failed container {container} in pod {pod}");
                    effects.push(Effect::Tell {
                        container,
                        warning: true,
                        reason: "BackOff",
                        message,
                    });
                }
            }
        }
    }

    fn kill(
        &mut self,
        container: String,
        id: String,
        message: String,
        grace_seconds: i64,
        effects: &mut Vec<Effect>,
    ) {
        self.state.local(&container).in_flight = Some(InFlight::Stopping);
        self.stopping.insert(id.clone(), grace_seconds);
        effects.push(Effect::Task(Task::Kill {
            container,
            id,
            message: Some(message),
            grace_seconds,
        }));
    }

    /// Tells, once per pod, what of its securityContext nothing enforces.
    fn tell_unenforced(&mut self, effects: &mut Vec<Effect>) {
        let ignored = security::unenforced(&self.pod);
        // A pod with containers was told by the agent before this one.
        let is_new = self.runtime.containers.is_empty();
        if is_new && !ignored.is_empty() && self.told.insert(UNENFORCED.to_owned()) {
            effects.push(Effect::Warn {
                reason: UNENFORCED,
                message: format!("process runtime does not enforce {}", ignored.join(", ")),
            });
        }
    }

    /// Tells, once per failed pull, that its container now waits.
    fn tell_pull_back_off(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        for container in pod::all_containers(&self.pod) {
            let Some(failure) = self.state.failure(container) else {
                continue;
            };
            let key = format!("{}@{}", container.name, failure.at);
            if failure.reason(now) != "ImagePullBackOff" || self.told.contains(&key) {
                continue;
            }
            // Only the last failure of a container is remembered.
            let prefix = format!("{}@", container.name);
            self.told.retain(|told| !told.starts_with(&prefix));
            self.told.insert(key);
            let image = container.image.as_deref().unwrap_or_default();
            let tell = |warning, reason, message| Effect::Tell {
                container: container.name.clone(),
                warning,
                reason,
                message,
            };
            effects.push(tell(
                false,
                "BackOff",
                format!("Back-off pulling image {image:?}"),
            ));
            effects.push(tell(true, "Failed", "Error: ImagePullBackOff".to_owned()));
        }
    }

    /// Stops what is alive: the main containers together, then the sidecars one
    /// by one, the last started first.
    fn sync_terminating(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let left = self
            .worker
            .grace_ends_at()
            .map_or(0, |end| end.duration_since(now).as_secs());
        let grace = self.worker.grace_seconds();
        let is_sidecar = |name: &str| {
            pod::container(&self.pod, name)
                .is_some_and(|c| pod::is_sidecar(c) && !pod::is_main(&self.pod, name))
        };
        let alive: Vec<_> = self
            .runtime
            .containers
            .iter()
            .filter(|c| c.is_alive())
            .cloned()
            .collect();
        let (sidecars, mains): (Vec<_>, Vec<_>) =
            alive.into_iter().partition(|c| is_sidecar(&c.name));
        let stop = if mains.is_empty() {
            let order = pod::init_containers(&self.pod);
            let place = |name: &str| order.iter().position(|c| c.name == name);
            sidecars
                .into_iter()
                .max_by_key(|c| place(&c.name))
                .into_iter()
                .map(|c| (c, left.max(1)))
                .collect()
        } else {
            mains.into_iter().map(|c| (c, grace)).collect::<Vec<_>>()
        };
        for (instance, grace_seconds) in stop {
            self.stop_one(&instance, grace_seconds, effects);
        }
        if !self.runtime.any_alive() && !self.state.any_in_flight() {
            self.worker.stopped();
        }
    }

    fn stop_one(
        &mut self,
        instance: &ContainerInstance,
        grace_seconds: i64,
        effects: &mut Vec<Effect>,
    ) {
        let (name, id) = (instance.name.clone(), instance.id.clone());
        match self.stopping.get(&id).copied() {
            Some(before) if before <= grace_seconds => {}
            Some(_) => {
                self.stopping.insert(id.clone(), grace_seconds);
                effects.push(Effect::Task(Task::Kill {
                    container: name,
                    id,
                    message: None,
                    grace_seconds,
                }));
            }
            // It is only just being created; its end waits for that.
            None if matches!(instance.run, ContainerRun::Created)
                && self.state.in_flight(&name) == Some(InFlight::Starting) => {}
            None => {
                let message = format!("Stopping container {name}");
                self.kill(name, id, message, grace_seconds, effects);
            }
        }
    }

    /// After the last container: volumes, the final status, the confirmation,
    /// and once the API server has forgotten the pod, its containers and logs.
    fn sync_terminated(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.tear_down.begin(now) {
            effects.push(Effect::Task(Task::TearDown));
        }
        self.wake(self.tear_down.retry_at());
        if self.tear_down != Step::Done {
            return;
        }
        let status_settled = self.status == Step::Done;
        if self.worker.delete_requested() && status_settled && self.delete.begin(now) {
            effects.push(Effect::Task(Task::Delete));
        }
        self.wake(self.delete.retry_at());
        if !self.worker.is_gone() {
            return;
        }
        if self.retry_removal_at.is_some_and(|at| at > now) {
            return self.wake(self.retry_removal_at);
        }
        let ids: Vec<String> = self
            .runtime
            .containers
            .iter()
            .map(|c| c.id.clone())
            .collect();
        for id in ids {
            if self.removing.insert(id.clone()) {
                effects.push(Effect::Task(Task::Remove { id }));
            }
        }
        if self.runtime.containers.is_empty() {
            effects.push(Effect::Forget);
        }
    }

    /// Begins the probes that are due. A pod that terminates is only asked
    /// whether it is ready, as upstream.
    fn probe(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let stage = self.worker.stage();
        if stage == Stage::Terminated {
            return;
        }
        let names: Vec<String> = self.state.containers.keys().cloned().collect();
        for name in names {
            let Some(instance) = self.runtime.latest(&name) else {
                continue;
            };
            let (Some(started_at), id) = (started_at(instance), instance.id.clone()) else {
                continue;
            };
            let in_flight = self.state.in_flight(&name);
            if in_flight == Some(InFlight::Starting) {
                continue;
            }
            for (kind, due_at) in self.state.local(&name).probes.due(started_at) {
                let ending = stage == Stage::Terminating || in_flight.is_some();
                if ending && kind != ProbeKind::Readiness {
                    continue;
                }
                if due_at > now {
                    self.wake(Some(due_at));
                } else if let Some(probe) = self.state.local(&name).probes.get_mut(kind) {
                    probe.begun(now);
                    let timeout = seconds(probe.timing().timeout_seconds);
                    let (container, id) = (name.clone(), id.clone());
                    effects.push(Effect::Task(Task::Probe {
                        container,
                        id,
                        kind,
                        timeout,
                    }));
                }
            }
        }
    }

    fn compute(&self, facts: &NodeFacts, now: Timestamp) -> k8s_openapi::api::core::v1::PodStatus {
        let input = StatusInput {
            pod: &self.pod,
            runtime: &self.runtime,
            state: &self.state,
            worker: &self.worker,
            previous: pod::status(&self.pod),
            facts,
        };
        status::compute(input, now)
    }

    /// Writes the status if the API server does not hold it yet.
    fn write_status(&mut self, facts: &NodeFacts, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.worker.is_gone() || self.status == Step::InFlight {
            return;
        }
        if now < self.hold_status_until && self.state.any_in_flight() {
            return self.wake(Some(self.hold_status_until));
        }
        let computed = self.compute(facts, now);
        let Some(patch) = status_patch::patch(&self.pod, &computed) else {
            self.status = Step::Done;
            return;
        };
        if self.status == Step::Done {
            self.status = Step::Todo;
        }
        let written = self.written.as_ref();
        let again = written.filter(|(written, _)| status_patch::is_same(written, &patch));
        if let Some((_, at)) = again {
            let rewrite_at = after(*at, REWRITE_SECONDS);
            if rewrite_at > now {
                // Accepted before and not shown: as settled as it will get.
                self.status = Step::Done;
                return self.wake(Some(rewrite_at));
            }
        }
        if self.status.begin(now) {
            self.written = Some((patch.clone(), now));
            effects.push(Effect::Task(Task::WriteStatus(patch)));
        }
        self.wake(self.status.retry_at());
    }

    /// Ends a pod that ran longer than its spec allows.
    fn check_deadline(&mut self, now: Timestamp) {
        let limit = pod::spec(&self.pod).and_then(|s| s.active_deadline_seconds);
        let start = pod::status(&self.pod)
            .and_then(|s| s.start_time.as_ref())
            .map(|t| t.0);
        let (Some(limit), Some(start)) = (limit, start) else {
            return;
        };
        if self.worker.stage() != Stage::Syncing {
            return;
        }
        if now.duration_since(start) < SignedDuration::from_secs(limit) {
            return self.wake(Some(after(start, limit)));
        }
        let eviction = Eviction {
            reason: "DeadlineExceeded".to_owned(),
            message: "Pod was active on the node longer than the specified deadline".to_owned(),
        };
        self.worker.evict(&self.pod, eviction, now);
    }

    fn wake(&mut self, at: Option<Timestamp>) {
        self.wake_at = match (self.wake_at, at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// Orders the states of an instance; it only moves forward.
fn rank(run: &ContainerRun) -> u8 {
    match run {
        ContainerRun::Created => 0,
        ContainerRun::Running { .. } => 1,
        ContainerRun::Exited(_) => 2,
    }
}

/// Reads a resourceVersion as the number it is (KEP-5504 allows comparing).
fn version(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_deref()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod test;
