//! Performing one probe.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

use crate::http_get;
use crate::runtime::{Runtime, RuntimeError};

/// The User-Agent of HTTP probes, in upstream's form.
const USER_AGENT: &str = "kube-probe/1.36";

/// What one run of a probe came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeOutcome {
    /// Success or failure; `None` if it could not be performed.
    pub(crate) success: Option<bool>,
    /// What went wrong, for the event.
    pub(crate) message: String,
}

impl ProbeOutcome {
    fn of(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => ProbeOutcome {
                success: Some(true),
                message: String::new(),
            },
            Err(message) => ProbeOutcome {
                success: Some(false),
                message,
            },
        }
    }
}

/// Runs a probe of a container once.
pub(crate) async fn probe(
    runtime: &dyn Runtime,
    id: &str,
    container: &Container,
    probe: &Probe,
    host: &str,
    timeout: Duration,
) -> ProbeOutcome {
    if let Some(action) = &probe.exec {
        let command = action.command.clone().unwrap_or_default();
        return match runtime.exec(id, command, timeout).await {
            Ok(output) if output.exit_code == Some(0) => ProbeOutcome::of(Ok(())),
            Ok(output) => ProbeOutcome::of(Err(output.output.trim_end().to_owned())),
            Err(RuntimeError::Exec(message)) => ProbeOutcome::of(Err(message)),
            // The container is gone or going: its end will be noticed anyway.
            Err(error) => ProbeOutcome {
                success: None,
                message: error.to_string(),
            },
        };
    }
    if let Some(action) = &probe.http_get {
        let result = http_get::get(action, container, host, USER_AGENT, timeout).await;
        return ProbeOutcome::of(match result {
            Ok(200..400) => Ok(()),
            Ok(status) => Err(format!("HTTP probe failed with statuscode: {status}")),
            Err(error) => {
                let url = http_get::url(action, container, host);
                Err(format!("Get {url:?}: {error}"))
            }
        });
    }
    if let Some(action) = &probe.tcp_socket {
        let host = action
            .host
            .as_deref()
            .filter(|h| !h.is_empty())
            .unwrap_or(host);
        let connect = async {
            let port = http_get::port(&action.port, container)?;
            http_get::connect(host, port).await.map(drop)
        };
        let result = tokio::time::timeout(timeout, connect).await;
        return ProbeOutcome::of(result.unwrap_or_else(|_| Err("i/o timeout".to_owned())));
    }
    let message = if probe.grpc.is_some() {
        "grpc probes are not supported by this kubelet; use exec, httpGet or tcpSocket"
    } else {
        "the probe names no handler this kubelet supports"
    };
    ProbeOutcome::of(Err(message.to_owned()))
}
