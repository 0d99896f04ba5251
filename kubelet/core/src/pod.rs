//! Short readings of a pod's spec that several rooms need.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus, Probe};

use crate::probe::ProbeKind;

/// Grace a pod gets when its spec names none (the API's default).
pub const GRACE_SECONDS_DEFAULT: i64 = 30;

/// When a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// When the exit code is not zero.
    OnFailure,
    /// Never.
    Never,
}

impl RestartPolicy {
    /// Reports whether a container with this exit code is started again.
    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        }
    }
}

/// Returns the pod's UID, empty if it has none.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns the pod's name, empty if it has none.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the pod's namespace, empty if it has none.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// Formats a pod as upstream's messages do: `name_namespace(uid)`.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// Returns the pod's init containers, restartable ones included.
pub fn init_containers(pod: &Pod) -> &[Container] {
    spec(pod)
        .and_then(|s| s.init_containers.as_deref())
        .unwrap_or_default()
}

/// Returns the pod's main containers.
pub fn containers(pod: &Pod) -> &[Container] {
    spec(pod)
        .map(|s| s.containers.as_slice())
        .unwrap_or_default()
}

/// Returns every container, init containers first.
pub fn all_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    init_containers(pod).iter().chain(containers(pod))
}

/// Finds a container by name, init containers included.
pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    all_containers(pod).find(|c| c.name == name)
}

/// Reports whether a main container bears this name.
pub fn is_main(pod: &Pod, name: &str) -> bool {
    containers(pod).iter().any(|c| c.name == name)
}

/// Reports whether an init container is restartable: a sidecar (KEP-753).
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the restart policy of the pod's main containers.
pub fn restart_policy(pod: &Pod) -> RestartPolicy {
    match spec(pod).and_then(|s| s.restart_policy.as_deref()) {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        Some(_) | None => RestartPolicy::Always,
    }
}

/// Returns the grace the pod's spec asks for.
pub fn grace_seconds(pod: &Pod) -> i64 {
    spec(pod)
        .and_then(|s| s.termination_grace_period_seconds)
        .unwrap_or(GRACE_SECONDS_DEFAULT)
        .max(1)
}

/// Returns the name processes see as their host's: `spec.hostname` or the pod's name.
pub fn hostname(pod: &Pod) -> &str {
    spec(pod)
        .and_then(|s| s.hostname.as_deref())
        .unwrap_or_else(|| name(pod))
}

/// Returns the probe of a kind, if the container has one.
pub fn probe(container: &Container, kind: ProbeKind) -> Option<&Probe> {
    match kind {
        ProbeKind::Startup => container.startup_probe.as_ref(),
        ProbeKind::Liveness => container.liveness_probe.as_ref(),
        ProbeKind::Readiness => container.readiness_probe.as_ref(),
    }
}

/// Returns the pod's phase as the API server holds it.
pub fn phase(pod: &Pod) -> Option<&str> {
    status(pod).and_then(|s| s.phase.as_deref())
}

/// Reports whether a phase is final: a pod never leaves `Succeeded` or `Failed`.
pub fn is_terminal(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns the pod's spec.
pub fn spec(pod: &Pod) -> Option<&PodSpec> {
    pod.spec.as_ref()
}

/// Returns the pod's status as the API server holds it.
pub fn status(pod: &Pod) -> Option<&PodStatus> {
    pod.status.as_ref()
}

/// Hashes the part of a container's spec that, when changed, replaces the
/// running instance: name and image, the only ones an update may change
/// (upstream `HashContainer` picks the same two since 1.31). FNV-1a, 64 bits.
pub fn spec_hash(container: &Container) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let image = container.image.as_deref().unwrap_or_default();
    for byte in container.name.bytes().chain([0]).chain(image.bytes()) {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Returns the quality of service class (upstream `GetPodQOS`): `Guaranteed`
/// when every container limits cpu and memory and requests no less,
/// `BestEffort` when none asks for anything, else `Burstable`.
pub fn qos_class(pod: &Pod) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for container in all_containers(pod) {
        let resources = container.resources.as_ref();
        let requests = resources.and_then(|r| r.requests.as_ref());
        let limits = resources.and_then(|r| r.limits.as_ref());
        for name in ["cpu", "memory"] {
            let request = requests.and_then(|r| r.get(name));
            let limit = limits.and_then(|l| l.get(name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
