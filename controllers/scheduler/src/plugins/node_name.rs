//! Holds a pod that asks for a node by name to that node.

use crate::event::ClusterEvent;
use crate::framework::{Plugin, PreFilter, Verdict};
use crate::node::NodeInfo;
use crate::pod::PodInfo;

pub(super) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn pre_filter(&self, pod: &PodInfo) -> PreFilter {
        if pod.node_name.is_empty() {
            PreFilter::Skip
        } else {
            PreFilter::Continue
        }
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        if pod.node_name == node.name {
            return Verdict::Fits;
        }
        Verdict::unresolvable("node(s) didn't match the requested node name")
    }

    fn may_help(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        event.node_becomes(|node| node.name == pod.node_name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node, pod_with};

    #[test]
    fn only_the_named_node() {
        let p = pod_with("p", json!({"nodeName": "a"}));
        assert_eq!(
            NodeName.filter(&p, &NodeInfo::new(&node("a", "1", "1Gi"))),
            Verdict::Fits
        );
        let other = NodeName.filter(&p, &NodeInfo::new(&node("b", "1", "1Gi")));
        assert_eq!(
            other.reasons(),
            ["node(s) didn't match the requested node name"]
        );
        assert_eq!(
            NodeName.pre_filter(&pod_with("q", json!({}))),
            PreFilter::Skip
        );
    }
}
