//! Taints that follow from a node's conditions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::json;

use crate::Write;

/// Is the taint of a node whose kubelet says it is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Is the taint of a node that went silent.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Is the taint of a cordoned node.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

const NO_SCHEDULE: &str = "NoSchedule";
/// Is the effect that also evicts.
pub const NO_EXECUTE: &str = "NoExecute";

/// Maps a condition with a status to the taint that keeps new pods away.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    (
        "MemoryPressure",
        "True",
        "node.kubernetes.io/memory-pressure",
    ),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
    ),
];

/// Says whether a node that is not ready may lose its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evictions {
    /// Pods without toleration are to go.
    Allowed,
    /// Not this node's yet: its zone is given up one node at a time. A node that
    /// is being given up already stays so.
    Held,
    /// No node is ready: the fault is more likely ours or the network's, and
    /// deleting pods everywhere would make it worse (upstream: full disruption).
    Stopped,
}

/// Brings the taints this controller owns in line with the conditions.
///
/// Taints of others stay, and a taint that stays keeps its time, from which
/// tolerations count.
pub fn plan(node: &Node, evictions: Evictions, now: Timestamp) -> Option<Write> {
    let current: Vec<Taint> = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .cloned()
        .collect();
    let wanted = wanted(node, evictions);
    let mut next: Vec<Taint> = current
        .iter()
        .filter(|taint| !is_owned(taint) || wanted.contains(&pair(taint)))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !next.iter().any(|taint| pair(taint) == (key, effect)) {
            next.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                value: None,
                time_added: Some(now.into()),
            });
        }
    }
    if next == current {
        return None;
    }
    let taints = if next.is_empty() {
        json!(null)
    } else {
        crate::write::body(&next)
    };
    let patch = json!({
        "metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version},
        "spec": {"taints": taints},
    });
    Some(Write::patch::<Node>(&node.metadata, None, patch))
}

/// Tells whether the node is being given up by this controller.
fn is_evicting(node: &Node) -> bool {
    let mut taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.effect == NO_EXECUTE && is_owned(taint))
}

/// Tells whether the node is not ready and not being given up yet.
pub fn awaits_eviction(node: &Node) -> bool {
    let mut evicting = wanted(node, Evictions::Allowed).into_iter();
    !is_evicting(node) && evicting.any(|(_, effect)| effect == NO_EXECUTE)
}

fn wanted(node: &Node, evictions: Evictions) -> Vec<(&'static str, &'static str)> {
    let mut wanted: Vec<(&str, &str)> = BY_CONDITION
        .iter()
        .filter(|(type_, status, _)| {
            super::condition(node, type_).is_some_and(|condition| condition.status == *status)
        })
        .map(|(_, _, key)| (*key, NO_SCHEDULE))
        .collect();
    if node
        .spec
        .as_ref()
        .and_then(|spec| spec.unschedulable)
        .unwrap_or(false)
    {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    let evict = match evictions {
        Evictions::Allowed => true,
        Evictions::Held => is_evicting(node),
        Evictions::Stopped => false,
    };
    if evict {
        let evicting: Vec<_> = wanted
            .iter()
            .filter(|(key, _)| [NOT_READY, UNREACHABLE].contains(key))
            .map(|(key, _)| (*key, NO_EXECUTE))
            .collect();
        wanted.extend(evicting);
    }
    wanted
}

fn pair(taint: &Taint) -> (&str, &str) {
    (&taint.key, &taint.effect)
}

fn is_owned(taint: &Taint) -> bool {
    let by_condition = BY_CONDITION.iter().any(|(_, _, key)| *key == taint.key);
    match taint.effect.as_str() {
        NO_SCHEDULE => by_condition || taint.key == UNSCHEDULABLE,
        NO_EXECUTE => [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, unschedulable: bool, taints: &[(&str, &str)]) -> Node {
        let taints: Vec<_> = taints
            .iter()
            .map(|(key, effect)| json!({"key": key, "effect": effect}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u"},
            "spec": {"unschedulable": unschedulable, "taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn result(node: &Node, evictions: Evictions) -> Option<Vec<(String, String)>> {
        match plan(node, evictions, Timestamp::UNIX_EPOCH)? {
            Write::Patch { patch, .. } => {
                let taints: Option<Vec<Taint>> =
                    serde_json::from_value(patch["spec"]["taints"].clone()).unwrap();
                Some(
                    taints
                        .unwrap_or_default()
                        .into_iter()
                        .map(|t| (t.key, t.effect))
                        .collect(),
                )
            }
            other => panic!("a patch: {other:?}"),
        }
    }

    #[test]
    fn taints_follow_conditions() {
        let foreign = ("example.com/gpu", NO_SCHEDULE);
        let cases = [
            (node("True", false, &[]), Evictions::Allowed, None),
            (node("True", false, &[foreign]), Evictions::Allowed, None),
            (
                node("False", false, &[foreign]),
                Evictions::Allowed,
                Some(vec![
                    foreign,
                    (NOT_READY, NO_SCHEDULE),
                    (NOT_READY, NO_EXECUTE),
                ]),
            ),
            (
                node(
                    "Unknown",
                    false,
                    &[(NOT_READY, NO_SCHEDULE), (NOT_READY, NO_EXECUTE)],
                ),
                Evictions::Allowed,
                Some(vec![(UNREACHABLE, NO_SCHEDULE), (UNREACHABLE, NO_EXECUTE)]),
            ),
            (
                node(
                    "Unknown",
                    false,
                    &[(UNREACHABLE, NO_SCHEDULE), (UNREACHABLE, NO_EXECUTE)],
                ),
                Evictions::Stopped,
                Some(vec![(UNREACHABLE, NO_SCHEDULE)]),
            ),
            (
                node("Unknown", false, &[]),
                Evictions::Held,
                Some(vec![(UNREACHABLE, NO_SCHEDULE)]),
            ),
            (
                node("Unknown", false, &[(NOT_READY, NO_EXECUTE)]),
                Evictions::Held,
                Some(vec![(UNREACHABLE, NO_SCHEDULE), (UNREACHABLE, NO_EXECUTE)]),
            ),
            (
                node("True", true, &[]),
                Evictions::Allowed,
                Some(vec![(UNSCHEDULABLE, NO_SCHEDULE)]),
            ),
            (
                node("True", false, &[(UNREACHABLE, NO_EXECUTE)]),
                Evictions::Allowed,
                Some(vec![]),
            ),
        ];
        for (node, evictions, expect) in cases {
            let expect = expect.map(|taints| {
                taints
                    .into_iter()
                    .map(|(k, e)| (k.to_owned(), e.to_owned()))
                    .collect::<Vec<_>>()
            });
            assert_eq!(result(&node, evictions), expect, "{node:?}");
        }
    }
}
