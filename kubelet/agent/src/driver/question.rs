//! Which log the server should send for a container, which container it should run
//! a command in, or why there is none.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::pod;
use kubelet_core::runtime::ContainerRun;
use kubelet_core::state::reported;

use super::PodEntry;
use crate::runtime::Runtime;

/// Asks for a container's log.
#[derive(Clone, Debug)]
pub(crate) struct LogQuestion {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    /// The run before the present one.
    pub(crate) previous: bool,
}

/// Says where a log is and whose it is.
pub(crate) type LogAnswer = Result<(String, PathBuf), LogRefusal>;

/// Why there is no log, in the words of upstream's kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogRefusal {
    #[error("pod {0:?} not found")]
    NoPod(String),
    #[error("container {container:?} not found in pod {pod:?}")]
    NoContainer { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start: {reason}")]
    Waiting {
        container: String,
        pod: String,
        reason: String,
    },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { container: String, pod: String },
}

impl LogRefusal {
    pub(crate) fn status(&self) -> http::StatusCode {
        match self {
            LogRefusal::NoPod(_) | LogRefusal::NoContainer { .. } => http::StatusCode::NOT_FOUND,
            LogRefusal::Waiting { .. } | LogRefusal::NoPrevious { .. } => {
                http::StatusCode::BAD_REQUEST
            }
        }
    }
}

impl LogQuestion {
    pub(super) fn answer(
        &self,
        pods: &BTreeMap<String, PodEntry>,
        runtime: &dyn Runtime,
    ) -> LogAnswer {
        let entry = find(pods, &self.namespace, &self.pod, None)
            .ok_or_else(|| LogRefusal::NoPod(self.pod.clone()))?;
        let names = || (self.container.clone(), self.pod.clone());
        if pod::container(entry.pod(), &self.container).is_none() {
            let (container, pod) = names();
            return Err(LogRefusal::NoContainer { container, pod });
        }
        let instances = entry.runtime().instances(&self.container);
        let instance = match instances.first() {
            None if self.previous => None,
            None => {
                let (container, pod) = names();
                let reason = waiting_reason(entry.pod(), &container);
                return Err(LogRefusal::Waiting {
                    container,
                    pod,
                    reason,
                });
            }
            // While a container waits to be restarted the run before is the ended one.
            Some(latest) if self.previous && is_waiting(entry.pod(), &self.container) => {
                (!latest.is_alive()).then_some(latest)
            }
            Some(_) if self.previous => instances.get(1),
            Some(latest) => Some(latest),
        };
        let path = instance.and_then(|i| Some((i.id.clone(), runtime.log_path(&i.id)?)));
        path.ok_or_else(|| {
            let (container, pod) = names();
            LogRefusal::NoPrevious { container, pod }
        })
    }
}

/// Asks for a pod that a stream is to go to, and a container of it that runs.
#[derive(Clone, Debug)]
pub(crate) struct StreamQuestion {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// The pod's UID, if it must be this very one.
    pub(crate) uid: Option<String>,
    /// The container; none if only the pod is wanted.
    pub(crate) container: Option<String>,
}

/// Where a stream goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamPlace {
    /// The pod's UID.
    pub(crate) pod_uid: String,
    /// The container's id, if one was asked for.
    pub(crate) container_id: String,
}

/// Says where a stream goes.
pub(crate) type StreamAnswer = Result<StreamPlace, StreamRefusal>;

/// Why there is no stream, in the words of upstream's kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamRefusal {
    #[error("pod does not exist")]
    NoPod,
    #[error("container not found ({0:?})")]
    NoContainer(String),
}

impl StreamRefusal {
    pub(crate) fn status(&self) -> http::StatusCode {
        match self {
            StreamRefusal::NoPod => http::StatusCode::NOT_FOUND,
            StreamRefusal::NoContainer(_) => http::StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl StreamQuestion {
    pub(super) fn answer(&self, pods: &BTreeMap<String, PodEntry>) -> StreamAnswer {
        let entry = find(pods, &self.namespace, &self.pod, self.uid.as_deref())
            .ok_or(StreamRefusal::NoPod)?;
        let container_id = match &self.container {
            None => String::new(),
            Some(name) => entry
                .runtime()
                .latest(name)
                .filter(|instance| matches!(instance.run, ContainerRun::Running { .. }))
                .map(|instance| instance.id.clone())
                .ok_or_else(|| StreamRefusal::NoContainer(name.clone()))?,
        };
        Ok(StreamPlace {
            pod_uid: pod::uid(entry.pod()).to_owned(),
            container_id,
        })
    }
}

/// Finds a pod. Two of one name can be here while the older one goes: the newer
/// counts.
fn find<'a>(
    pods: &'a BTreeMap<String, PodEntry>,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
) -> Option<&'a PodEntry> {
    pods.values()
        .filter(|e| pod::name(e.pod()) == name && pod::namespace(e.pod()) == namespace)
        .filter(|e| uid.is_none_or(|uid| pod::uid(e.pod()) == uid))
        .max_by_key(|e| e.pod().metadata.creation_timestamp.clone())
}

fn is_waiting(pod: &Pod, container: &str) -> bool {
    let status = reported(pod, container);
    status
        .and_then(|s| s.state.as_ref())
        .is_some_and(|s| s.waiting.is_some())
}

fn waiting_reason(pod: &Pod, container: &str) -> String {
    let waiting = reported(pod, container).and_then(|s| s.state.as_ref()?.waiting.as_ref());
    waiting
        .and_then(|w| w.reason.clone())
        .unwrap_or_else(|| "ContainerCreating".to_owned())
}
