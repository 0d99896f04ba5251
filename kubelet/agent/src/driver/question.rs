//! Which log the server should send for a container, or why there is none.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::pod;
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
        // Two pods of one name can be here while the older one goes: the newer counts.
        let of_name = |e: &&PodEntry| {
            pod::name(e.pod()) == self.pod && pod::namespace(e.pod()) == self.namespace
        };
        let entry = pods
            .values()
            .filter(of_name)
            .max_by_key(|e| e.pod().metadata.creation_timestamp.clone())
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
