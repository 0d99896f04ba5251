//! The conditions of a pod (upstream `status/generate.go`).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::StatusInput;
use crate::diff::InitProgress;
use crate::pod;
use crate::state::SetUp;
use crate::worker::Stage;

/// A condition before it is compared with the previous one.
struct Verdict {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

/// Computes the conditions this kubelet owns and carries over the others.
pub(super) fn conditions(
    input: &StatusInput<'_>,
    status: &PodStatus,
    progress: InitProgress,
    now: Timestamp,
) -> Vec<PodCondition> {
    let phase = status.phase.as_deref();
    let containers = containers_ready(input, status, phase);
    let verdicts = [
        Verdict {
            kind: "PodReadyToStartContainers",
            holds: input.state.set_up == SetUp::Ready && input.worker.stage() != Stage::Terminated,
            reason: None,
            message: None,
        },
        initialized(input, status, progress, phase),
        ready(input, &containers),
        containers,
        Verdict {
            kind: "PodScheduled",
            holds: true,
            reason: None,
            message: None,
        },
    ];
    let mut conditions: Vec<_> = verdicts
        .into_iter()
        .map(|v| settle(input, v, now))
        .collect();
    // Others' conditions (readiness gates, disruption) are carried over as they are.
    let known = input
        .previous
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    for condition in known {
        if !conditions.iter().any(|c| c.type_ == condition.type_) {
            conditions.push(condition.clone());
        }
    }
    conditions
}

fn settle(input: &StatusInput<'_>, verdict: Verdict, now: Timestamp) -> PodCondition {
    let status = if verdict.holds { "True" } else { "False" };
    let known = input.previous.and_then(|s| s.conditions.as_ref());
    let known = known
        .into_iter()
        .flatten()
        .find(|c| c.type_ == verdict.kind);
    let since = known
        .filter(|c| c.status == status)
        .and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: verdict.kind.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.map(str::to_owned),
        message: verdict.message,
        last_transition_time: Some(since.unwrap_or(Time(now))),
        observed_generation: input.pod.metadata.generation,
        ..PodCondition::default()
    }
}

fn initialized(
    input: &StatusInput<'_>,
    status: &PodStatus,
    progress: InitProgress,
    phase: Option<&str>,
) -> Verdict {
    let kind = "Initialized";
    if phase == Some("Succeeded") {
        return Verdict {
            kind,
            holds: true,
            reason: Some("PodCompleted"),
            message: None,
        };
    }
    let index = match progress {
        InitProgress::Done => {
            return Verdict {
                kind,
                holds: true,
                reason: None,
                message: None,
            };
        }
        InitProgress::At(index) | InitProgress::Failed(index) => index,
    };
    let statuses = status.init_container_statuses.iter().flatten();
    let inits = pod::init_containers(input.pod)
        .iter()
        .zip(statuses)
        .skip(index);
    let incomplete = inits
        .filter(|(c, s)| !(s.ready || pod::is_sidecar(c) && s.started == Some(true)))
        .map(|(c, _)| c.name.clone());
    Verdict {
        kind,
        holds: false,
        reason: Some("ContainersNotInitialized"),
        message: Some(format!(
            "containers with incomplete status: [{}]",
            join(incomplete)
        )),
    }
}

fn containers_ready(input: &StatusInput<'_>, status: &PodStatus, phase: Option<&str>) -> Verdict {
    let kind = "ContainersReady";
    match phase {
        Some("Succeeded") => {
            return Verdict {
                kind,
                holds: false,
                reason: Some("PodCompleted"),
                message: None,
            };
        }
        Some("Failed") => {
            return Verdict {
                kind,
                holds: false,
                reason: Some("PodFailed"),
                message: None,
            };
        }
        Some(_) | None => {}
    }
    let inits = status.init_container_statuses.iter().flatten();
    let sidecars = pod::init_containers(input.pod).iter().zip(inits);
    let sidecars = sidecars.filter(|(c, _)| pod::is_sidecar(c)).map(|(_, s)| s);
    let mains = status.container_statuses.iter().flatten();
    let unready: Vec<&ContainerStatus> = sidecars.chain(mains).filter(|s| !s.ready).collect();
    if unready.is_empty() {
        return Verdict {
            kind,
            holds: true,
            reason: None,
            message: None,
        };
    }
    let names = join(unready.into_iter().map(|s| s.name.clone()));
    Verdict {
        kind,
        holds: false,
        reason: Some("ContainersNotReady"),
        message: Some(format!("containers with unready status: [{names}]")),
    }
}

/// The pod is ready when its containers are and every readiness gate is open
/// (KEP-580).
fn ready(input: &StatusInput<'_>, containers: &Verdict) -> Verdict {
    let kind = "Ready";
    if !containers.holds {
        let (reason, message) = (containers.reason, containers.message.clone());
        return Verdict {
            kind,
            holds: false,
            reason,
            message,
        };
    }
    let gates = pod::spec(input.pod)
        .and_then(|s| s.readiness_gates.as_deref())
        .unwrap_or_default();
    let known = pod::status(input.pod)
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    let shut = gates.iter().find(|gate| {
        !known
            .iter()
            .any(|c| c.type_ == gate.condition_type && c.status == "True")
    });
    match shut {
        None => Verdict {
            kind,
            holds: true,
            reason: None,
            message: None,
        },
        Some(gate) => Verdict {
            kind,
            holds: false,
            reason: Some("ReadinessGatesNotReady"),
            message: Some(format!(
                "corresponding condition of pod readiness gate {:?} does not exist or is not True",
                gate.condition_type
            )),
        },
    }
}

fn join(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(" ")
}
