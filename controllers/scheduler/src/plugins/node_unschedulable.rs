//! Rejects cordoned nodes.

use k8s_openapi::api::core::v1::Taint;

use crate::event::ClusterEvent;
use crate::framework::{Plugin, Verdict};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::selector::tolerates;

pub(super) struct NodeUnschedulable;

/// Tells whether the node is open to the pod. A pod that tolerates the taint that
/// goes with a cordon is let in.
fn open(pod: &PodInfo, node: &NodeInfo) -> bool {
    !node.unschedulable || {
        let taint = Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        tolerates(&pod.tolerations, &taint)
    }
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        if open(pod, node) {
            return Verdict::Fits;
        }
        Verdict::unresolvable("node(s) were unschedulable")
    }

    fn may_help(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        event.node_becomes(|node| open(pod, node))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node, node_with, pod_with};

    #[test]
    fn cordoned_nodes_take_only_who_tolerates() {
        let cordoned = NodeInfo::new(&node_with("a", "1", "1Gi", json!({"unschedulable": true})));
        let plain = pod_with("p", json!({}));
        let daemon = pod_with(
            "d",
            json!({"tolerations": [
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}),
        );
        assert_eq!(
            NodeUnschedulable.filter(&plain, &cordoned).reasons(),
            ["node(s) were unschedulable"]
        );
        assert_eq!(NodeUnschedulable.filter(&daemon, &cordoned), Verdict::Fits);
    }

    #[test]
    fn an_uncordon_helps() {
        let cordoned = NodeInfo::new(&node_with("a", "1", "1Gi", json!({"unschedulable": true})));
        let open = NodeInfo::new(&node("a", "1", "1Gi"));
        let (cordoned, open) = (Arc::new(cordoned), Arc::new(open));
        let p = pod_with("p", json!({}));
        let change = |old: &Arc<NodeInfo>, new: &Arc<NodeInfo>| ClusterEvent::NodeChanged {
            old: Arc::clone(old),
            new: Arc::clone(new),
        };
        assert!(NodeUnschedulable.may_help(&p, &change(&cordoned, &open)));
        assert!(!NodeUnschedulable.may_help(&p, &change(&open, &open)));
        assert!(!NodeUnschedulable.may_help(&p, &change(&open, &cordoned)));
        assert!(NodeUnschedulable.may_help(&p, &ClusterEvent::NodeAdded(open)));
    }
}
