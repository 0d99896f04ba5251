//! When a pod must leave a node tainted `NoExecute`.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use serde_json::json;

use super::taints::NO_EXECUTE;
use crate::{EventType, Write, object, pod, podgc};

/// Is when a pod must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It may stay.
    Never,
    /// It must go in this long, or at once.
    In(SignedDuration),
}

/// Judges a pod by its node's taints: one that tolerates them all for a time may
/// stay until the shortest of those times has passed since the last taint came.
pub fn due(candidate: &Pod, node: &Node, now: Timestamp) -> Due {
    let taints: Vec<&Taint> = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .filter(|taint| taint.effect == NO_EXECUTE)
        .collect();
    if taints.is_empty()
        || candidate.metadata.deletion_timestamp.is_some()
        || pod::is_terminal(candidate)
    {
        return Due::Never;
    }
    let tolerations: Vec<&Toleration> = candidate
        .spec
        .iter()
        .flat_map(|spec| spec.tolerations.iter().flatten())
        .collect();
    let mut shortest: Option<i64> = None;
    for taint in &taints {
        let mut matching = tolerations
            .iter()
            .filter(|toleration| tolerates(toleration, taint))
            .peekable();
        if matching.peek().is_none() {
            return Due::In(SignedDuration::ZERO);
        }
        for seconds in matching.filter_map(|toleration| toleration.toleration_seconds) {
            shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
        }
    }
    let Some(seconds) = shortest else {
        return Due::Never;
    };
    let since = taints
        .iter()
        .filter_map(|taint| taint.time_added.as_ref())
        .map(|time| time.0)
        .max();
    let passed = now.duration_since(since.unwrap_or(now));
    Due::In((SignedDuration::from_secs(seconds.max(0)) - passed).max(SignedDuration::ZERO))
}

/// Tells whether a toleration matches a taint (`v1.Toleration.ToleratesTaint`).
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = object::text(&toleration.effect);
    let key = object::text(&toleration.key);
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            !key.is_empty() && object::text(&toleration.value) == object::text(&taint.value)
        }
        Some(_) => false,
    }
}

/// Evicts a pod: says why on the pod, tells people, deletes it with its grace.
pub fn evict(candidate: &Pod, now: Timestamp) -> Vec<Write> {
    let metadata = &candidate.metadata;
    let conditions = podgc::with_condition(
        candidate,
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
        now,
    );
    let patch = json!({"metadata": {"uid": metadata.uid}, "status": {"conditions": conditions}});
    let name = format!(
        "{}/{}",
        object::text(&metadata.namespace),
        object::text(&metadata.name)
    );
    let message = format!("Marking for deletion Pod {name}");
    vec![
        Write::event::<Pod>(metadata, EventType::Normal, "TaintManagerEviction", message),
        Write::patch::<Pod>(metadata, Some("status"), patch),
        Write::delete::<Pod>(metadata),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(tolerations: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"containers": [], "tolerations": tolerations},
        }))
        .unwrap()
    }

    fn node(taints: serde_json::Value) -> Node {
        serde_json::from_value(json!({"metadata": {}, "spec": {"taints": taints}})).unwrap()
    }

    #[test]
    fn pods_go_when_their_toleration_ends() {
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
        let since = "2026-01-01T00:04:00Z";
        let one = json!([{"key": "k", "effect": "NoExecute", "timeAdded": since}]);
        let in_seconds = |seconds| Due::In(SignedDuration::from_secs(seconds));
        for (taints, tolerations, expect) in [
            (json!([]), json!([]), Due::Never),
            (
                json!([{"key": "k", "effect": "NoSchedule"}]),
                json!([]),
                Due::Never,
            ),
            (one.clone(), json!([]), in_seconds(0)),
            (one.clone(), json!([{"operator": "Exists"}]), Due::Never),
            (
                one.clone(),
                json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}]),
                in_seconds(240),
            ),
            (
                one.clone(),
                json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]),
                in_seconds(0),
            ),
            (
                one.clone(),
                json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]),
                in_seconds(0),
            ),
            (
                one.clone(),
                json!([{"key": "k", "value": "other"}]),
                in_seconds(0),
            ),
            (
                one,
                json!([{"key": "other", "operator": "Exists"}]),
                in_seconds(0),
            ),
        ] {
            assert_eq!(
                due(&pod(tolerations.clone()), &node(taints), now),
                expect,
                "{tolerations}"
            );
        }
    }

    #[test]
    fn eviction_says_why_before_it_deletes() {
        let writes = evict(&pod(json!([])), Timestamp::UNIX_EPOCH);
        let [
            Write::Event { .. },
            Write::Patch { patch, .. },
            Write::Delete { uid, .. },
        ] = writes.as_slice()
        else {
            panic!("{writes:?}")
        };
        assert_eq!(
            patch["status"]["conditions"][0]["reason"],
            "DeletionByTaintManager"
        );
        assert_eq!(uid.as_deref(), Some("u"));
    }
}
