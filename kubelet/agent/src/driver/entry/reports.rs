//! What happened to a pod: each report changes the entry, none decides anything.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::probe::ProbeKind;
use kubelet_core::runtime::ContainerInstance;
use kubelet_core::state::{InFlight, SetUp};
use kubelet_core::{after, pod, volumes};

use super::{PodEntry, REFRESH_SECONDS, RETRY_SECONDS, SET_UP_RETRY_SECONDS, Step, rank, version};
use crate::effects::Started;
use crate::probing::ProbeOutcome;

impl PodEntry {
    /// Takes in a newer form of the pod; an older one is ignored.
    pub(in crate::driver) fn observe(&mut self, pod: Arc<Pod>, now: Timestamp) {
        if version(&pod) < version(&self.pod) {
            return;
        }
        self.worker.observe(&pod, now);
        self.pod = pod;
    }

    /// Takes in that the API server no longer has the pod.
    pub(in crate::driver) fn gone(&mut self, last: &Pod, now: Timestamp) {
        self.worker.removed(last, now);
    }

    /// Takes in a container's state; reports whether that is news. States only
    /// move forward: a listing may be older than an event that overtook it.
    pub(in crate::driver) fn container(&mut self, instance: ContainerInstance) -> bool {
        let known = self.runtime.containers.iter().find(|c| c.id == instance.id);
        if known.is_some_and(|k| rank(&k.run) >= rank(&instance.run))
            || self.removing.contains(&instance.id)
        {
            return false;
        }
        self.runtime.upsert(instance);
        true
    }

    pub(in crate::driver) fn set_up_done(&mut self, result: Result<(), String>, now: Timestamp) {
        self.refresh_at = volumes::are_refreshed(&self.pod).then(|| after(now, REFRESH_SECONDS));
        if std::mem::take(&mut self.refreshing) {
            return;
        }
        self.state.set_up = match result {
            Ok(()) => SetUp::Ready,
            Err(message) => SetUp::Failed {
                message,
                retry_at: after(now, SET_UP_RETRY_SECONDS),
            },
        };
    }

    pub(in crate::driver) fn start_done(&mut self, name: &str, started: Started, now: Timestamp) {
        // Begun to be stopped meanwhile: that is what is under way now.
        let stopping = self.state.in_flight(name) == Some(InFlight::Stopping);
        match started {
            Started::Instance(instance) => {
                self.container(*instance);
                self.state.start_succeeded(name);
            }
            Started::Failed(kind, message) => {
                if let Some(container) = pod::container(&self.pod, name).cloned() {
                    self.state.start_failed(&container, kind, message, now);
                }
            }
        }
        if stopping {
            self.state.local(name).in_flight = Some(InFlight::Stopping);
        }
    }

    pub(in crate::driver) fn kill_done(
        &mut self,
        name: &str,
        id: &str,
        result: Result<(), String>,
    ) {
        self.stopping.remove(id);
        let others = self.stopping.keys().any(|other| {
            self.runtime
                .containers
                .iter()
                .any(|c| &c.id == other && c.name == name)
        });
        if !others {
            self.state.local(name).in_flight = None;
        }
        if let Err(message) = result {
            tracing::error!(id, message, "cannot stop a container");
        }
    }

    pub(in crate::driver) fn probe_done(
        &mut self,
        name: &str,
        id: &str,
        kind: ProbeKind,
        outcome: &ProbeOutcome,
    ) {
        let probes = &mut self.state.local(name).probes;
        if probes.instance_id == id
            && let Some(probe) = probes.get_mut(kind)
        {
            probe.record(outcome.success);
        }
    }

    pub(in crate::driver) fn remove_done(
        &mut self,
        id: &str,
        result: Result<(), String>,
        now: Timestamp,
    ) {
        self.removing.remove(id);
        match result {
            Ok(()) => {
                self.runtime.forget(id);
                self.told.remove(id);
            }
            // The shim is still ending; there is time.
            Err(_) => self.retry_removal_at = Some(after(now, RETRY_SECONDS)),
        }
    }

    pub(in crate::driver) fn status_written(
        &mut self,
        result: Result<Box<Pod>, client::Error>,
        now: Timestamp,
    ) {
        self.status = Step::Todo;
        match result {
            Ok(pod) => self.observe(Arc::from(pod), now),
            // Gone, or another pod of the same name: the informer will tell.
            Err(error) if error.is_not_found() || error.is_conflict() => {
                self.status = Step::RetryAt(after(now, RETRY_SECONDS));
            }
            Err(error) => {
                let pod = pod::full_name(&self.pod);
                tracing::warn!(pod, %error, "cannot write a pod's status");
                self.written = None;
                self.status = Step::RetryAt(after(now, RETRY_SECONDS));
            }
        }
    }

    pub(in crate::driver) fn torn_down(&mut self, result: Result<(), String>, now: Timestamp) {
        self.tear_down = match result {
            Ok(()) => Step::Done,
            Err(error) => {
                tracing::warn!(
                    pod = pod::full_name(&self.pod),
                    error,
                    "cannot remove its directory"
                );
                Step::RetryAt(after(now, RETRY_SECONDS))
            }
        };
    }

    pub(in crate::driver) fn deleted(&mut self, result: Result<(), client::Error>, now: Timestamp) {
        self.delete = match result {
            Ok(()) => Step::Done,
            Err(error) if error.is_not_found() => Step::Done,
            Err(error) => {
                tracing::warn!(pod = pod::full_name(&self.pod), %error, "cannot confirm a deletion");
                Step::RetryAt(after(now, RETRY_SECONDS))
            }
        };
    }
}
