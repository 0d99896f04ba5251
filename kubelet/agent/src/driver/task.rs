//! The effects that take time: each ends as an event.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::pod;
use kubelet_core::probe::ProbeKind;
use serde_json::Value;

use super::Event;
use crate::effects::Context;

/// Something that takes time.
#[derive(Debug)]
pub(super) enum Task {
    /// Make directories and volumes.
    SetUp,
    /// Start a container.
    Start {
        container: Box<Container>,
        attempt: u32,
    },
    /// Run its `preStop` hook and stop it; without a message, only stop it
    /// sooner than was said before.
    Kill {
        container: String,
        id: String,
        message: Option<String>,
        grace_seconds: i64,
    },
    /// Remove an ended container.
    Remove { id: String },
    /// Run a probe.
    Probe {
        container: String,
        id: String,
        kind: ProbeKind,
        timeout: Duration,
    },
    /// Write the status.
    WriteStatus(Value),
    /// Remove directories and volumes.
    TearDown,
    /// Confirm the deletion to the API server.
    Delete,
}

/// Does it and tells what came of it.
pub(super) async fn carry_out(context: Arc<Context>, pod: Arc<Pod>, task: Task) -> Event {
    let uid = pod::uid(&pod).to_owned();
    match task {
        Task::SetUp => Event::SetUpDone {
            result: context.set_up(&pod).await,
            uid,
        },
        Task::TearDown => Event::TornDown {
            result: context.tear_down(&uid).await,
            uid,
        },
        Task::Delete => Event::Deleted {
            result: context.delete(&pod).await,
            uid,
        },
        Task::WriteStatus(patch) => {
            let result = context.write_status(&pod, patch).await.map(Box::new);
            Event::StatusWritten { uid, result }
        }
        Task::Start { container, attempt } => {
            let started = context.start(&pod, &container, attempt).await;
            let container = container.name;
            Event::StartDone {
                uid,
                container,
                started,
            }
        }
        Task::Remove { id } => {
            let result = context.runtime.remove(&id).await.map_err(|e| e.to_string());
            Event::RemoveDone { uid, id, result }
        }
        Task::Kill {
            container,
            id,
            message,
            grace_seconds,
        } => {
            let result = context
                .kill(&pod, &container, &id, message, grace_seconds)
                .await;
            Event::KillDone {
                uid,
                container,
                id,
                result,
            }
        }
        Task::Probe {
            container,
            id,
            kind,
            timeout,
        } => {
            let outcome = context.probe(&pod, &container, &id, kind, timeout).await;
            Event::ProbeDone {
                uid,
                container,
                id,
                kind,
                outcome,
            }
        }
    }
}
