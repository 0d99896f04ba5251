//! Performing lifecycle hooks: `postStart` and `preStop`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::http_get;
use crate::runtime::Runtime;

/// The User-Agent of HTTP hooks, in upstream's form.
const USER_AGENT: &str = "kube-lifecycle/1.36";

/// Runs a hook, at most for `timeout`; the error is the event's message.
pub(crate) async fn run(
    runtime: &dyn Runtime,
    id: &str,
    container: &Container,
    hook: &LifecycleHandler,
    host: &str,
    timeout: Duration,
) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        return match runtime.exec(id, command, timeout).await {
            Ok(output) if output.exit_code == Some(0) => Ok(()),
            Ok(output) => {
                let code = output
                    .exit_code
                    .map_or_else(|| "timeout".to_owned(), |c| c.to_string());
                Err(format!(
                    "command exited with {code}: {}",
                    output.output.trim_end()
                ))
            }
            Err(error) => Err(error.to_string()),
        };
    }
    if let Some(action) = &hook.http_get {
        return match http_get::get(action, container, host, USER_AGENT, timeout).await {
            Ok(200..400) => Ok(()),
            Ok(status) => Err(format!("HTTP hook failed with statuscode: {status}")),
            Err(error) => Err(error),
        };
    }
    if let Some(action) = &hook.sleep {
        let seconds = Duration::from_secs(action.seconds.unsigned_abs());
        tokio::time::sleep(seconds.min(timeout)).await;
        return Ok(());
    }
    Err("the hook names no handler this kubelet supports".to_owned())
}
