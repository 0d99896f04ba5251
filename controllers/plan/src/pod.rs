//! What controllers ask about a pod: is it active, ready, available, since when.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

/// Returns the pod's phase, or an empty text before the first status.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Returns the node the pod is bound to, or an empty text.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// Tells whether the pod has ended for good.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Tells whether the pod counts as a replica: not ended, not being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Tells whether the pod is being deleted but has not ended.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Returns a condition of the pod by type.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_deref()?
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// Tells whether the pod's Ready condition is true.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Returns since when a ready pod has been ready, if it is and says so.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Tells whether the pod has been ready for `min_ready` at `now`.
pub fn is_available(pod: &Pod, min_ready: SignedDuration, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready.is_zero() || available_at(pod, min_ready).is_some_and(|time| time <= now))
}

/// Returns when a ready pod becomes available if it stays ready.
pub fn available_at(pod: &Pod, min_ready: SignedDuration) -> Option<Timestamp> {
    ready_since(pod)?.checked_add(min_ready).ok()
}

/// Returns the greatest restart count among the pod's containers.
pub fn max_restarts(pod: &Pod) -> i32 {
    pod.status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .map(|status| status.restart_count)
        .max()
        .unwrap_or(0)
}
