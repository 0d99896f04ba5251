//! The row of a pod, as upstream's printer computes it
//! (`pkg/printers/internalversion`): STATUS says what a person should know,
//! which is often not the phase.

use jiff::Timestamp;
use meta::value::{at, int_at, str_at};
use serde_json::Value;

use crate::print;
use crate::validate::items;

/// What the containers' statuses amount to.
#[derive(Default)]
struct Summary {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

/// Returns the cells.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarise(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            let ago = meta::time::human_duration(now.as_second() - last.as_second());
            format!("{} ({ago} ago)", summary.restarts)
        }
        _ => summary.restarts.to_string(),
    };
    let ip = items(pod, "status.podIPs")
        .first()
        .map_or("", |ip| str_at(ip, "ip"));
    vec![
        print::name(pod),
        Value::from(format!("{}/{}", summary.ready, summary.total)),
        Value::from(summary.reason),
        Value::from(restarts),
        print::age(pod, now),
        Value::from(if ip.is_empty() { print::NONE } else { ip }),
        print::text_or_none(pod, "spec.nodeName"),
        print::text_or_none(pod, "status.nominatedNodeName"),
        Value::from(readiness_gates(pod)),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "spec.readinessGates");
    if gates.is_empty() {
        return print::NONE.to_owned();
    }
    let ready = gates
        .iter()
        .filter(|g| condition(pod, str_at(g, "conditionType")));
    format!("{}/{}", ready.count(), gates.len())
}

fn condition(pod: &Value, ty: &str) -> bool {
    items(pod, "status.conditions")
        .iter()
        .any(|c| str_at(c, "type") == ty && str_at(c, "status") == "True")
}

fn is_sidecar(container: &Value) -> bool {
    str_at(container, "restartPolicy") == "Always"
}

fn summarise(pod: &Value) -> Summary {
    let phase = str_at(pod, "status.phase");
    let status_reason = str_at(pod, "status.reason");
    let mut summary = Summary {
        total: items(pod, "spec.containers").len()
            + items(pod, "spec.initContainers")
                .iter()
                .filter(|c| is_sidecar(c))
                .count(),
        reason: if status_reason.is_empty() {
            phase
        } else {
            status_reason
        }
        .to_owned(),
        ..Summary::default()
    };
    let gated = items(pod, "status.conditions")
        .iter()
        .any(|c| str_at(c, "type") == "PodScheduled" && str_at(c, "reason") == "SchedulingGated");
    if gated {
        summary.reason = "SchedulingGated".to_owned();
    }
    let sidecars = Sidecars::of(pod, &mut summary);
    if !sidecars.initializing || condition(pod, "Initialized") {
        main_containers(pod, &sidecars, &mut summary);
    }
    if at(pod, "metadata.deletionTimestamp").is_some() {
        if status_reason == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

/// What the init containers have come to.
struct Sidecars {
    initializing: bool,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl Sidecars {
    /// Walks the init containers up to the first that is not done, and counts
    /// into the summary as if the pod were still at it.
    fn of(pod: &Value, summary: &mut Summary) -> Self {
        let specs = items(pod, "spec.initContainers");
        let mut found = Self {
            initializing: false,
            restarts: 0,
            last_restart: None,
        };
        for (index, status) in items(pod, "status.initContainerStatuses")
            .iter()
            .enumerate()
        {
            let restarts = int_at(status, "restartCount").unwrap_or(0);
            let last = finished_before(status);
            summary.restarts += restarts;
            summary.last_restart = summary.last_restart.max(last);
            let name = str_at(status, "name");
            let sidecar = specs
                .iter()
                .any(|c| str_at(c, "name") == name && is_sidecar(c));
            if sidecar {
                found.restarts += restarts;
                found.last_restart = found.last_restart.max(last);
            }
            let terminated = at(status, "state.terminated");
            if terminated.is_some_and(|t| int_at(t, "exitCode").unwrap_or(0) == 0) {
                continue;
            }
            if sidecar && at(status, "started") == Some(&Value::Bool(true)) {
                summary.ready += usize::from(is_ready(status));
                continue;
            }
            let waiting = str_at(status, "state.waiting.reason");
            summary.reason = if let Some(terminated) = terminated {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            found.initializing = true;
            break;
        }
        found
    }
}

fn main_containers(pod: &Value, sidecars: &Sidecars, summary: &mut Summary) {
    summary.restarts = sidecars.restarts;
    summary.last_restart = sidecars.last_restart;
    let mut running = false;
    for status in items(pod, "status.containerStatuses").iter().rev() {
        summary.restarts += int_at(status, "restartCount").unwrap_or(0);
        summary.last_restart = summary.last_restart.max(finished_before(status));
        let waiting = str_at(status, "state.waiting.reason");
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if let Some(terminated) = at(status, "state.terminated") {
            summary.reason = ended(terminated);
        } else if is_ready(status) && at(status, "state.running").is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" && running {
        let ready = condition(pod, "Ready");
        summary.reason = if ready { "Running" } else { "NotReady" }.to_owned();
    }
}

fn is_ready(status: &Value) -> bool {
    at(status, "ready") == Some(&Value::Bool(true))
}

/// Returns when the container's previous run ended.
fn finished_before(status: &Value) -> Option<Timestamp> {
    meta::time::parse(str_at(status, "lastState.terminated.finishedAt"))
}

/// Names how a container ended.
fn ended(terminated: &Value) -> String {
    match (
        str_at(terminated, "reason"),
        int_at(terminated, "signal").unwrap_or(0),
    ) {
        ("", 0) => format!("ExitCode:{}", int_at(terminated, "exitCode").unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
