//! Holds a pod to the nodes its selector and affinity ask for, and rates nodes by
//! what it prefers.

use crate::event::ClusterEvent;
use crate::framework::{Plugin, PreFilter, Verdict, normalize_by_highest};
use crate::node::NodeInfo;
use crate::pod::PodInfo;

pub(super) struct NodeAffinity;

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn pre_filter(&self, pod: &PodInfo) -> PreFilter {
        if pod.required.is_empty() {
            return PreFilter::Skip;
        }
        match pod.required.names() {
            None => PreFilter::Continue,
            Some(names) if names.is_empty() => {
                PreFilter::Reject("pod affinity terms conflict".to_owned())
            }
            Some(names) => PreFilter::Only(names),
        }
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        if pod.required.matches(node) {
            return Verdict::Fits;
        }
        Verdict::unresolvable("node(s) didn't match Pod's node affinity/selector")
    }

    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        if pod.preferred.is_empty() {
            return None;
        }
        let matching = pod.preferred.iter().filter(|p| p.term.matches(node));
        Some(matching.map(|p| p.weight).sum())
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_highest(scores, false);
    }

    fn may_help(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        event.node_becomes(|node| pod.required.matches(node))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node_with, pod_with};

    #[test]
    fn selector_preference_and_conflict() {
        let ssd = NodeInfo::new(&node_with(
            "a",
            "1",
            "1Gi",
            json!({"labels": {"disk": "ssd"}}),
        ));
        let hdd = NodeInfo::new(&node_with(
            "b",
            "1",
            "1Gi",
            json!({"labels": {"disk": "hdd"}}),
        ));
        let p = pod_with("p", json!({"nodeSelector": {"disk": "ssd"}}));
        assert_eq!(NodeAffinity.filter(&p, &ssd), Verdict::Fits);
        assert_eq!(
            NodeAffinity.filter(&p, &hdd).reasons(),
            ["node(s) didn't match Pod's node affinity/selector"]
        );
        let prefers = pod_with(
            "q",
            json!({"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "preference": {"matchExpressions": [
                    {"key": "disk", "operator": "In", "values": ["ssd"]}]}}]}}}),
        );
        assert_eq!(NodeAffinity.score(&prefers, &ssd), Some(7));
        assert_eq!(NodeAffinity.score(&prefers, &hdd), Some(0));
        assert_eq!(NodeAffinity.score(&p, &ssd), None);

        let is = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let conflict = pod_with(
            "r",
            json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [is("a"), is("b")]}]}}}}),
        );
        assert_eq!(
            NodeAffinity.pre_filter(&conflict),
            PreFilter::Reject("pod affinity terms conflict".into())
        );
    }
}
