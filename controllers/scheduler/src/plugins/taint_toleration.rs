//! Keeps pods off nodes with taints they do not tolerate, and prefers nodes with
//! fewer taints that only ask to stay away.

use k8s_openapi::api::core::v1::Toleration;

use crate::event::ClusterEvent;
use crate::framework::{Plugin, Verdict, normalize_by_highest};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::selector::tolerates;

pub(super) struct TaintToleration;

fn tolerated(pod: &PodInfo, node: &NodeInfo) -> bool {
    node.taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .all(|taint| tolerates(&pod.tolerations, taint))
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        if tolerated(pod, node) {
            return Verdict::Fits;
        }
        // Until 1.34 the message named the taint; every value then made its own event.
        Verdict::unresolvable("node(s) had untolerated taint(s)")
    }

    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let relevant = |t: &&Toleration| {
            matches!(
                t.effect.as_deref().unwrap_or_default(),
                "" | "PreferNoSchedule"
            )
        };
        let tolerations: Vec<_> = pod.tolerations.iter().filter(relevant).cloned().collect();
        let avoid = node
            .taints
            .iter()
            .filter(|t| t.effect == "PreferNoSchedule");
        let count = avoid
            .filter(|taint| !tolerates(&tolerations, taint))
            .count();
        Some(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_highest(scores, true);
    }

    fn may_help(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        event.node_becomes(|node| tolerated(pod, node))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node_with, pod_with};

    fn tainted(effect: &str) -> NodeInfo {
        let spec = json!({"taints": [{"key": "k", "value": "v", "effect": effect}]});
        NodeInfo::new(&node_with("a", "1", "1Gi", spec))
    }

    #[test]
    fn hard_taints_reject_and_soft_ones_cost_score() {
        let plain = pod_with("p", json!({}));
        let tolerant = pod_with(
            "t",
            json!({"tolerations": [{"key": "k", "operator": "Exists"}]}),
        );
        for effect in ["NoSchedule", "NoExecute"] {
            let verdict = TaintToleration.filter(&plain, &tainted(effect));
            assert_eq!(verdict.reasons(), ["node(s) had untolerated taint(s)"]);
            assert_eq!(
                TaintToleration.filter(&tolerant, &tainted(effect)),
                Verdict::Fits
            );
        }
        let soft = tainted("PreferNoSchedule");
        assert_eq!(TaintToleration.filter(&plain, &soft), Verdict::Fits);
        assert_eq!(TaintToleration.score(&plain, &soft), Some(1));
        assert_eq!(TaintToleration.score(&tolerant, &soft), Some(0));
    }
}
