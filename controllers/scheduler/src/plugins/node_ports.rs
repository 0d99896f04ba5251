//! Keeps two pods from taking the same port of a node.

use crate::event::ClusterEvent;
use crate::framework::{Plugin, PreFilter, Verdict};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::ports::clash;

pub(super) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn pre_filter(&self, pod: &PodInfo) -> PreFilter {
        if pod.host_ports.is_empty() {
            PreFilter::Skip
        } else {
            PreFilter::Continue
        }
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        if pod.host_ports.iter().any(|port| node.ports.conflicts(port)) {
            return Verdict::unschedulable(
                "node(s) didn't have free ports for the requested pod ports",
            );
        }
        Verdict::Fits
    }

    fn may_help(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        match event {
            ClusterEvent::NodeAdded(_) => true,
            ClusterEvent::AssignedPodGone(gone) => {
                let pairs = pod.host_ports.iter();
                pairs
                    .flat_map(|a| gone.host_ports.iter().map(move |b| (a, b)))
                    .any(|(a, b)| clash(a, b))
            }
            ClusterEvent::NodeChanged { .. } | ClusterEvent::AssignedPodShrank(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node, pod_with};

    #[test]
    fn a_port_is_taken_until_its_pod_is_gone() {
        let web = |name: &str, port: i32| {
            pod_with(
                name,
                json!({"containers": [
                {"name": "c", "ports": [{"containerPort": 80, "hostPort": port}]}]}),
            )
        };
        let mut info = NodeInfo::new(&node("a", "1", "1Gi"));
        info.add_pod(web("first", 8080));
        let verdict = NodePorts.filter(&web("second", 8080), &info);
        assert_eq!(
            verdict.reasons(),
            ["node(s) didn't have free ports for the requested pod ports"]
        );
        assert_eq!(NodePorts.filter(&web("third", 8081), &info), Verdict::Fits);
        let gone = ClusterEvent::AssignedPodGone(web("first", 8080));
        assert!(NodePorts.may_help(&web("second", 8080), &gone));
        assert!(!NodePorts.may_help(&web("third", 8081), &gone));
    }
}
