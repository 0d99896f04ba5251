//! Pod garbage collection: pods that nobody else will ever finish.
//!
//! Three kinds, as upstream `pkg/controller/podgc/gc_controller.go` v1.32: pods
//! bound to a node that is gone, pods being deleted that never got a node, and
//! ended pods beyond a limit.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{Write, object, pod};

/// Is how long a node must have been missing before its pods are orphans: a node
/// may be created again, or the cache of nodes be behind that of pods.
pub const NODE_QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// Bounds how many ended pods are kept for people to look at; beyond it the
/// oldest are deleted (upstream `--terminated-pod-gc-threshold`).
pub const ENDED_PODS_MAX: usize = 12_500;

/// Says whether a pod is bound to a node, and what is known of that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOf {
    /// The node exists, or the pod has none.
    Present,
    /// The node has been missing since this time.
    MissingSince(Timestamp),
}

/// Is what to do about one pod.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Somebody else takes care of it.
    Keep,
    /// Look again after this long.
    Later(SignedDuration),
    /// Nobody will finish it: mark it failed and remove it.
    Remove(Vec<Write>),
}

/// Decides about one pod.
pub fn judge(candidate: &Pod, node: NodeOf, now: Timestamp) -> Verdict {
    match node {
        NodeOf::MissingSince(since) => {
            let left = NODE_QUARANTINE - now.duration_since(since);
            if left > SignedDuration::ZERO {
                return Verdict::Later(left);
            }
            let message = "PodGC: node no longer exists";
            Verdict::Remove(removal(candidate, Some(("DeletionByPodGC", message)), now))
        }
        NodeOf::Present => {
            let deleting = candidate.metadata.deletion_timestamp.is_some();
            if deleting && pod::node_name(candidate).is_empty() {
                Verdict::Remove(removal(candidate, None, now))
            } else {
                Verdict::Keep
            }
        }
    }
}

/// Returns the ended pods beyond the limit, oldest first.
pub fn surplus<'a>(pods: impl IntoIterator<Item = &'a Pod>, limit: usize) -> Vec<&'a Pod> {
    let mut ended: Vec<&Pod> = pods
        .into_iter()
        .filter(|pod| pod::is_terminal(pod))
        .collect();
    let count = ended.len().saturating_sub(limit);
    ended.sort_by_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, object::text(&pod.metadata.uid))
    });
    ended.truncate(count);
    ended
}

/// Removes a pod at once; one that has not ended is marked failed first, so that
/// its owner counts it as such.
pub fn removal(candidate: &Pod, disruption: Option<(&str, &str)>, now: Timestamp) -> Vec<Write> {
    let mut writes = Vec::new();
    if !pod::is_terminal(candidate) {
        let mut status = json!({"phase": "Failed"});
        if let Some((reason, message)) = disruption {
            status["conditions"] = with_condition(candidate, reason, message, now);
        }
        let uid = &candidate.metadata.uid;
        let patch = json!({"metadata": {"uid": uid}, "status": status});
        writes.push(Write::patch::<Pod>(
            &candidate.metadata,
            Some("status"),
            patch,
        ));
    }
    writes.push(Write::Delete {
        target: crate::Target::of::<Pod>(&candidate.metadata),
        uid: candidate.metadata.uid.clone(),
        propagation: None,
        grace_seconds: Some(0),
    });
    writes
}

/// Returns the pod's conditions with DisruptionTarget set, which tells owners
/// that the pod did not fail by itself (KEP-3329).
pub fn with_condition(
    candidate: &Pod,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> serde_json::Value {
    let mut conditions: Vec<serde_json::Value> = candidate
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .filter(|condition| condition.type_ != "DisruptionTarget")
        .map(crate::write::body)
        .collect();
    conditions.push(json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": crate::write::body(
            &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now)),
    }));
    conditions.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: Option<&str>, phase: &str, deleting: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u",
                "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn orphans_wait_out_the_quarantine() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let orphan = pod(Some("gone"), "Running", false);
        let missing = |seconds| {
            NodeOf::MissingSince(now.checked_sub(SignedDuration::from_secs(seconds)).unwrap())
        };
        assert_eq!(
            judge(&orphan, missing(10), now),
            Verdict::Later(SignedDuration::from_secs(30))
        );
        let Verdict::Remove(writes) = judge(&orphan, missing(40), now) else {
            panic!("removal")
        };
        let [
            Write::Patch { patch, .. },
            Write::Delete {
                grace_seconds, uid, ..
            },
        ] = writes.as_slice()
        else {
            panic!("a patch and a deletion: {writes:?}")
        };
        assert_eq!(patch["status"]["phase"], "Failed");
        assert_eq!(
            patch["status"]["conditions"][0]["reason"],
            "DeletionByPodGC"
        );
        assert_eq!((*grace_seconds, uid.as_deref()), (Some(0), Some("u")));
    }

    #[test]
    fn unscheduled_pods_being_deleted_go_and_others_stay() {
        let now = Timestamp::UNIX_EPOCH;
        assert!(matches!(
            judge(&pod(None, "Pending", true), NodeOf::Present, now),
            Verdict::Remove(_)
        ));
        assert_eq!(
            judge(&pod(None, "Pending", false), NodeOf::Present, now),
            Verdict::Keep
        );
        assert_eq!(
            judge(&pod(Some("n"), "Running", true), NodeOf::Present, now),
            Verdict::Keep
        );
    }

    #[test]
    fn only_ended_pods_beyond_the_limit_are_surplus() {
        let pods = [
            pod(None, "Failed", false),
            pod(None, "Running", false),
            pod(None, "Succeeded", false),
        ];
        assert_eq!(surplus(&pods, 1).len(), 1);
        assert_eq!(surplus(&pods, 2).len(), 0);
    }
}
