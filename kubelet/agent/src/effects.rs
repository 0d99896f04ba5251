//! What the agent does for a pod. Every function here is one effect: it takes
//! what it needs by value, touches the world, and returns what came of it for
//! the driver to apply.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, DeleteParams, Patch};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::fields::NodeFacts;
use kubelet_core::probe::ProbeKind;
use kubelet_core::runtime::{ContainerInstance, ContainerRun};
use kubelet_core::security::RunAs;
use kubelet_core::state::FailureKind;
use kubelet_core::{env, pod, security, volumes as planned};
use serde_json::Value;

use crate::events::Events;
use crate::objects::Objects;
use crate::probing::{self, ProbeOutcome};
use crate::runtime::{Mount, Runtime, StartRequest};
use crate::{hooks, identity, volumes};

/// Least time a container gets between SIGTERM and SIGKILL after its `preStop`
/// hook used up the grace (upstream's minimum, 2 s).
const GRACE_AFTER_HOOK: Duration = Duration::from_secs(2);
/// Longest time a `postStart` hook may take. Upstream sets no bound; a hook
/// that hangs would hold its container in starting for ever.
const POST_START_MAX: Duration = Duration::from_secs(600);

/// What every effect needs.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) root: PathBuf,
    pub(crate) facts: NodeFacts,
    pub(crate) objects: Objects,
    pub(crate) events: Events,
}

/// What became of a start.
#[derive(Debug)]
pub(crate) enum Started {
    /// There is an instance, running or already ended.
    Instance(Box<ContainerInstance>),
    /// There is none.
    Failed(FailureKind, String),
}

impl Context {
    /// Makes the pod's directories and volumes, or tells in an event why not.
    pub(crate) async fn set_up(&self, pod: &Pod) -> Result<(), String> {
        let result = self.try_set_up(pod).await;
        if let Err(message) = &result {
            self.events.pod_warning(pod, "FailedMount", message.clone());
        }
        result
    }

    async fn try_set_up(&self, pod: &Pod) -> Result<(), String> {
        let references = planned::references(pod);
        let sources = self
            .objects
            .fetch(pod::namespace(pod), &references)
            .await
            .map_err(|e| format!("cannot fetch what the volumes refer to: {e}"))?;
        let plan = planned::plan(pod, &sources, &self.facts).map_err(|e| e.to_string())?;
        let (root, uid) = (self.root.clone(), pod::uid(pod).to_owned());
        on_disk(move || volumes::set_up(&root, &uid, &plan)).await
    }

    /// Removes the pod's directories.
    pub(crate) async fn tear_down(&self, uid: &str) -> Result<(), String> {
        let (root, uid) = (self.root.clone(), uid.to_owned());
        on_disk(move || volumes::tear_down(&root, &uid).map_err(|e| e.to_string())).await
    }

    /// Starts a container and runs its `postStart` hook.
    pub(crate) async fn start(&self, pod: &Pod, container: &Container, attempt: u32) -> Started {
        let request = match self.request(pod, container, attempt).await {
            Ok(request) => request,
            Err((kind, message)) => return Started::Failed(kind, message),
        };
        let name = container.name.as_str();
        self.events
            .normal(pod, name, "Created", format!("Created container: {name}"));
        let instance = match self.runtime.start(request).await {
            Ok(instance) => instance,
            Err(error) => {
                let message = error.to_string();
                self.events
                    .warning(pod, name, "Failed", format!("Error: {message}"));
                return Started::Failed(FailureKind::Create, message);
            }
        };
        match &instance.run {
            ContainerRun::Exited(exit) if exit.reason == "StartError" => {
                self.events
                    .warning(pod, name, "Failed", format!("Error: {}", exit.message));
                return Started::Instance(Box::new(instance));
            }
            ContainerRun::Exited(_) | ContainerRun::Running { .. } | ContainerRun::Created => {
                self.events
                    .normal(pod, name, "Started", format!("Started container {name}"));
            }
        }
        self.post_start(pod, container, &instance.id).await;
        Started::Instance(Box::new(instance))
    }

    /// Gathers everything the container needs, telling what is missing.
    async fn request(
        &self,
        pod: &Pod,
        container: &Container,
        attempt: u32,
    ) -> Result<StartRequest, (FailureKind, String)> {
        let name = container.name.as_str();
        let image = container.image.clone().unwrap_or_default();
        let command = container.command.clone().unwrap_or_default();
        let args = container.args.clone().unwrap_or_default();
        let has_command = !command.is_empty() || !args.is_empty();
        let resolved = self
            .runtime
            .resolve_image(&image, has_command)
            .map_err(|error| {
                let message = error.to_string();
                let text = format!("Failed to pull image {image:?}: {message}");
                self.events.warning(pod, name, "Failed", text);
                self.events
                    .warning(pod, name, "Failed", "Error: ErrImagePull".to_owned());
                (FailureKind::Image, message)
            })?;
        let present = format!("Container image {image:?} already present on machine");
        self.events.normal(pod, name, "Pulled", present);
        let config = |message: String| {
            self.events
                .warning(pod, name, "Failed", format!("Error: {message}"));
            (FailureKind::Config, message)
        };
        let sources = self
            .objects
            .fetch(pod::namespace(pod), &env::references(container))
            .await;
        let sources = sources.map_err(|e| config(e.to_string()))?;
        let variables = env::resolve(pod, container, &sources, &self.facts)
            .map_err(|e| config(e.to_string()))?;
        let lookup = |name: &str| variables.get(name).map(String::as_str);
        let plan = planned::mounts(container, lookup);
        let mounts = volumes::mounts(&self.root, pod, &plan).map_err(config)?;
        let run_as = self.run_as(pod, container, &mounts).map_err(config)?;
        Ok(StartRequest {
            pod_uid: pod::uid(pod).to_owned(),
            pod_namespace: pod::namespace(pod).to_owned(),
            pod_name: pod::name(pod).to_owned(),
            grace_seconds: pod::grace_seconds(pod),
            container: name.to_owned(),
            attempt,
            spec_hash: pod::spec_hash(container),
            image,
            resolved,
            command: env::expand_all(&command, &variables),
            args: env::expand_all(&args, &variables),
            env: variables.into_iter().collect(),
            working_dir: container.working_dir.clone(),
            hostname: pod::hostname(pod).to_owned(),
            mounts,
            run_as,
            stdin: container.stdin.unwrap_or(false),
            stdin_once: container.stdin_once.unwrap_or(false),
            tty: container.tty.unwrap_or(false),
        })
    }

    /// Decides whom the container runs as, and lets that user in where its
    /// mounts are.
    fn run_as(
        &self,
        pod: &Pod,
        container: &Container,
        mounts: &[Mount],
    ) -> Result<Option<RunAs>, String> {
        let own = identity::own();
        let wanted = security::run_as(pod, container, own, identity::primary_group);
        let Some(who) = wanted.map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        volumes::let_in(&self.root, pod::uid(pod), who)
            .map_err(|e| format!("cannot open the pod's directory to user {}: {e}", who.uid))?;
        let closed = mounts
            .iter()
            .find_map(|mount| identity::closed_to(&mount.source, who));
        match closed {
            None => Ok(Some(who)),
            Some(dir) => Err(format!(
                "user {} cannot reach its volumes: {} is closed to others \
                 (chmod o+x, or choose another directory for the kubelet)",
                who.uid,
                dir.display()
            )),
        }
    }

    /// Runs the `postStart` hook; if it fails the container is stopped.
    async fn post_start(&self, pod: &Pod, container: &Container, id: &str) {
        let hook = container
            .lifecycle
            .as_ref()
            .and_then(|l| l.post_start.as_ref());
        let Some(hook) = hook else { return };
        let (runtime, host) = (self.runtime.as_ref(), &self.facts.pod_ip);
        let ran = hooks::run(runtime, id, container, hook, host, POST_START_MAX).await;
        let Err(message) = ran else { return };
        let name = container.name.as_str();
        let text = format!("PostStartHook failed: {message}");
        self.events.warning(pod, name, "FailedPostStartHook", text);
        let text = "FailedPostStartHook".to_owned();
        self.events.normal(pod, name, "Killing", text);
        let grace = Duration::from_secs(pod::grace_seconds(pod).unsigned_abs());
        if let Err(error) = runtime.stop(id, grace).await {
            tracing::error!(id, %error, "cannot stop a container whose postStart hook failed");
        }
    }

    /// Runs the `preStop` hook and stops the container, both inside the grace;
    /// without a message only shortens the grace of a stop under way.
    pub(crate) async fn kill(
        &self,
        pod: &Pod,
        name: &str,
        id: &str,
        message: Option<String>,
        grace_seconds: i64,
    ) -> Result<(), String> {
        let grace = seconds(grace_seconds.max(1));
        let Some(message) = message else {
            return self
                .runtime
                .stop(id, grace)
                .await
                .map_err(|e| e.to_string());
        };
        self.events.normal(pod, name, "Killing", message);
        let mut left = grace;
        let container = pod::container(pod, name);
        let hook = container.and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref());
        if let (Some(container), Some(hook)) = (container, hook) {
            let begun = Instant::now();
            let (runtime, host) = (self.runtime.as_ref(), &self.facts.pod_ip);
            if let Err(message) = hooks::run(runtime, id, container, hook, host, grace).await {
                let text = format!("PreStopHook failed: {message}");
                self.events.warning(pod, name, "FailedPreStopHook", text);
            }
            left = grace.saturating_sub(begun.elapsed()).max(GRACE_AFTER_HOOK);
        }
        self.runtime.stop(id, left).await.map_err(|e| e.to_string())
    }

    /// Runs a probe once.
    pub(crate) async fn probe(
        &self,
        pod: &Pod,
        name: &str,
        id: &str,
        kind: ProbeKind,
        timeout: Duration,
    ) -> ProbeOutcome {
        let gone = ProbeOutcome {
            success: None,
            message: String::new(),
        };
        let Some(container) = pod::container(pod, name) else {
            return gone;
        };
        let Some(spec) = pod::probe(container, kind) else {
            return gone;
        };
        let host = &self.facts.pod_ip;
        probing::probe(self.runtime.as_ref(), id, container, spec, host, timeout).await
    }

    /// Writes the pod's status, only onto the very pod it was computed for.
    pub(crate) async fn write_status(&self, pod: &Pod, patch: Value) -> Result<Pod, client::Error> {
        let namespace = Some(pod::namespace(pod));
        self.client
            .patch_status::<Pod>(namespace, pod::name(pod), &Patch::Strategic(patch))
            .await
    }

    /// Confirms the deletion of a pod that is over, only of that very pod.
    pub(crate) async fn delete(&self, pod: &Pod) -> Result<(), client::Error> {
        let params = DeleteParams::default().grace(0).uid(pod::uid(pod));
        self.client
            .delete::<Pod>(Some(pod::namespace(pod)), pod::name(pod), &params)
            .await
            .map(drop)
    }
}

/// Runs file work off the event loop.
async fn on_disk(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(format!("internal task failed: {error}")),
    }
}

/// Converts a core time span.
pub(crate) fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(seconds.max(0).unsigned_abs())
}

/// Returns how long it is until a time, zero if it has passed.
pub(crate) fn until(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or(Duration::ZERO)
}
