//! What the agent carries for one pod beside its spec and its runtime state.
//!
//! Which effects are under way, why a start failed and when it is tried again,
//! what the probes of the running instances say. It is all lost when the agent
//! restarts, as upstream's is; [`PodState::track`] seeds probe verdicts from
//! the status the API server holds so that a restart does not unready a pod.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};

use crate::backoff::Backoff;
use crate::probe::{ProbeKind, ProbeState, ProbeTiming, Verdict};
use crate::runtime::{ContainerInstance, ContainerRun, PodRuntime};
use crate::{after, pod};

/// Seconds until a container whose configuration is incomplete is tried again.
/// Cheap, because the objects it lacks come from a cache.
pub const CONFIG_RETRY_SECONDS: i64 = 5;
/// Seconds a failed pull is shown as `ErrImagePull` before it reads `ImagePullBackOff`.
pub const PULL_ERROR_SHOWN_SECONDS: i64 = 2;

/// Scheme of the container ids of the `process` runtime.
pub const CONTAINER_ID_SCHEME: &str = "process://";

/// Whether the pod's directories and volumes are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SetUp {
    /// Nothing was done yet.
    #[default]
    Pending,
    /// It is being done.
    InFlight,
    /// It is done.
    Ready,
    /// It failed and is tried again later.
    Failed {
        /// What went wrong.
        message: String,
        /// When to try again.
        retry_at: Timestamp,
    },
}

/// What kept a container from being started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Its image has no meaning on this node.
    Image,
    /// Its environment or command cannot be made.
    Config,
    /// The runtime could not create it.
    Create,
}

/// A start that failed before there was a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// What kept it.
    pub kind: FailureKind,
    /// What went wrong, for people.
    pub message: String,
    /// The spec it was started from; a changed spec is tried at once.
    pub spec_hash: String,
    /// When it failed.
    pub at: Timestamp,
    /// When to try again.
    pub retry_at: Timestamp,
}

/// An effect under way for a container. There is at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// It is being started (`postStart` included).
    Starting,
    /// It is being stopped (`preStop` included).
    Stopping,
}

/// The probes of one running instance.
#[derive(Clone, Debug, Default)]
pub struct InstanceProbes {
    /// The instance they belong to.
    pub instance_id: String,
    /// One per kind the spec has.
    pub probes: Vec<ProbeState>,
}

/// What is carried for one container.
#[derive(Clone, Debug, Default)]
pub struct ContainerLocal {
    /// The effect under way.
    pub in_flight: Option<InFlight>,
    /// Why the last start failed, until one succeeds.
    pub failure: Option<StartFailure>,
    /// Restarts after a crash.
    pub crash_backoff: Backoff,
    /// Retries of the image.
    pub pull_backoff: Backoff,
    /// The probes of the running instance.
    pub probes: InstanceProbes,
}

/// What is carried for one pod.
#[derive(Clone, Debug, Default)]
pub struct PodState {
    /// Whether directories and volumes are there.
    pub set_up: SetUp,
    /// By container name.
    pub containers: BTreeMap<String, ContainerLocal>,
}

impl PodState {
    /// Returns a container's state, made on first use.
    pub fn local(&mut self, name: &str) -> &mut ContainerLocal {
        self.containers.entry(name.to_owned()).or_default()
    }

    /// Returns the effect under way for a container.
    pub fn in_flight(&self, name: &str) -> Option<InFlight> {
        self.containers.get(name).and_then(|c| c.in_flight)
    }

    /// Reports whether any container has an effect under way.
    pub fn any_in_flight(&self) -> bool {
        self.set_up == SetUp::InFlight || self.containers.values().any(|c| c.in_flight.is_some())
    }

    /// Returns why the container's current spec could not be started.
    pub fn failure(&self, container: &Container) -> Option<&StartFailure> {
        let failure = self.containers.get(&container.name)?.failure.as_ref()?;
        (failure.spec_hash == pod::spec_hash(container)).then_some(failure)
    }

    /// Records that a start failed and decides when to try again: a pull by the
    /// pull backoff, anything else after [`CONFIG_RETRY_SECONDS`].
    pub fn start_failed(
        &mut self,
        container: &Container,
        kind: FailureKind,
        message: String,
        now: Timestamp,
    ) {
        let spec_hash = pod::spec_hash(container);
        let local = self.local(&container.name);
        local.in_flight = None;
        let retry_at = if kind == FailureKind::Image {
            local.pull_backoff.advance(&spec_hash, now, now);
            after(now, local.pull_backoff.seconds())
        } else {
            after(now, CONFIG_RETRY_SECONDS)
        };
        local.failure = Some(StartFailure {
            kind,
            message,
            spec_hash,
            at: now,
            retry_at,
        });
    }

    /// Records that a container was started.
    pub fn start_succeeded(&mut self, name: &str) {
        let local = self.local(name);
        local.in_flight = None;
        local.failure = None;
        local.pull_backoff.reset();
    }

    /// Gives every running instance its probes and takes them from the others.
    pub fn track(&mut self, pod: &Pod, runtime: &PodRuntime) {
        for container in pod::all_containers(pod) {
            let running = runtime
                .latest(&container.name)
                .filter(|i| started_at(i).is_some());
            let known = reported(pod, &container.name);
            let local = self.local(&container.name);
            match running {
                None => local.probes = InstanceProbes::default(),
                Some(instance) if local.probes.instance_id != instance.id => {
                    local.probes = InstanceProbes::new(container, instance, known);
                }
                Some(_) => {}
            }
        }
    }

    /// Reports whether a running container has finished starting.
    pub fn is_started(&self, container: &Container, instance: &ContainerInstance) -> bool {
        let Some(local) = self.containers.get(&container.name) else {
            return false;
        };
        let starting = local.in_flight == Some(InFlight::Starting);
        started_at(instance).is_some() && !starting && local.probes.startup_done()
    }

    /// Reports whether a running container may be sent traffic.
    pub fn is_ready(&self, container: &Container, instance: &ContainerInstance) -> bool {
        let Some(local) = self.containers.get(&container.name) else {
            return false;
        };
        let readiness = local.probes.get(ProbeKind::Readiness);
        self.is_started(container, instance)
            && readiness.is_none_or(|p| p.verdict() == Verdict::Success)
    }

    /// Returns the probe for whose failure the container has to be replaced.
    pub fn failed_probe(&self, name: &str) -> Option<ProbeKind> {
        let probes = &self.containers.get(name)?.probes.probes;
        probes
            .iter()
            .filter(|p| p.kind() != ProbeKind::Readiness)
            .find(|p| p.verdict() == Verdict::Failure)
            .map(ProbeState::kind)
    }
}

impl InstanceProbes {
    fn new(
        container: &Container,
        instance: &ContainerInstance,
        known: Option<&ContainerStatus>,
    ) -> Self {
        let id = format!("{CONTAINER_ID_SCHEME}{}", instance.id);
        let known = known.filter(|s| s.container_id.as_deref() == Some(&id));
        let probes = ProbeKind::ALL
            .into_iter()
            .filter_map(|kind| {
                let spec = pod::probe(container, kind)?;
                let mut state = ProbeState::new(kind, ProbeTiming::of(spec));
                let passed = match kind {
                    ProbeKind::Startup => known.is_some_and(|s| s.started == Some(true)),
                    ProbeKind::Readiness => known.is_some_and(|s| s.ready),
                    ProbeKind::Liveness => false,
                };
                if passed {
                    state.seed_success();
                }
                Some(state)
            })
            .collect();
        InstanceProbes {
            instance_id: instance.id.clone(),
            probes,
        }
    }

    /// Returns the probe of a kind.
    pub fn get(&self, kind: ProbeKind) -> Option<&ProbeState> {
        self.probes.iter().find(|p| p.kind() == kind)
    }

    /// Returns the probe of a kind, to be changed.
    pub fn get_mut(&mut self, kind: ProbeKind) -> Option<&mut ProbeState> {
        self.probes.iter_mut().find(|p| p.kind() == kind)
    }

    /// Reports whether the startup probe, if any, has succeeded.
    pub fn startup_done(&self) -> bool {
        self.get(ProbeKind::Startup)
            .is_none_or(|p| p.verdict() == Verdict::Success)
    }

    /// Lists each probe that may run, with the time its next run is due.
    pub fn due(&self, started_at: Timestamp) -> Vec<(ProbeKind, Timestamp)> {
        let startup_done = self.startup_done();
        self.probes
            .iter()
            .filter_map(|p| Some((p.kind(), p.due_at(started_at, startup_done)?)))
            .collect()
    }
}

impl StartFailure {
    /// Returns the waiting reason users know, which for a pull depends on how
    /// long ago it failed.
    pub fn reason(&self, now: Timestamp) -> &'static str {
        match self.kind {
            FailureKind::Image if self.is_fresh(now) => "ErrImagePull",
            FailureKind::Image => "ImagePullBackOff",
            FailureKind::Config => "CreateContainerConfigError",
            FailureKind::Create => "CreateContainerError",
        }
    }

    /// Returns the waiting message.
    pub fn text(&self, image: &str, now: Timestamp) -> String {
        match self.kind {
            FailureKind::Image if !self.is_fresh(now) => {
                format!(
                    "Back-off pulling image {image:?}: ErrImagePull: {}",
                    self.message
                )
            }
            FailureKind::Image | FailureKind::Config | FailureKind::Create => self.message.clone(),
        }
    }

    /// Returns when the reason changes by itself.
    pub fn turns_at(&self) -> Option<Timestamp> {
        (self.kind == FailureKind::Image).then(|| after(self.at, PULL_ERROR_SHOWN_SECONDS))
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.at) < SignedDuration::from_secs(PULL_ERROR_SHOWN_SECONDS)
    }
}

/// Returns when a running instance's process started, `None` if it is not running.
pub fn started_at(instance: &ContainerInstance) -> Option<Timestamp> {
    match instance.run {
        ContainerRun::Running { started_at } => Some(started_at),
        ContainerRun::Created | ContainerRun::Exited(_) => None,
    }
}

/// Returns what the API server holds about a container.
pub fn reported<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod::status(pod)?;
    let main = status.container_statuses.iter().flatten();
    main.chain(status.init_container_statuses.iter().flatten())
        .find(|s| s.name == name)
}
