//! Keeps a node from being promised more than it has, and prefers emptier nodes
//! (strategy LeastAllocated over CPU and memory).

use crate::event::ClusterEvent;
use crate::framework::{Plugin, SCORE_MAX, Verdict};
use crate::node::NodeInfo;
use crate::pod::PodInfo;

pub(super) struct NodeResourcesFit;

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    /// Names everything that is missing. A request over all that the node has makes
    /// the verdict final: no other pod's end can help.
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        let mut reasons = Vec::new();
        let mut hopeless = false;
        let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
        if pods >= node.allocatable.pods {
            reasons.push("Too many pods".to_owned());
        }
        let (wanted, taken, all) = (&pod.requests, &node.requested, &node.allocatable);
        let mut check = |name: &str, wanted: i64, taken: i64, all: i64| {
            if wanted > 0 && wanted > all.saturating_sub(taken) {
                reasons.push(format!("Insufficient {name}"));
                hopeless |= wanted > all;
            }
        };
        check("cpu", wanted.milli_cpu, taken.milli_cpu, all.milli_cpu);
        check("memory", wanted.memory, taken.memory, all.memory);
        check(
            "ephemeral-storage",
            wanted.ephemeral_storage,
            taken.ephemeral_storage,
            all.ephemeral_storage,
        );
        for (name, amount) in &wanted.scalar {
            let of = |r: &crate::resources::Resources| r.scalar.get(name).copied().unwrap_or(0);
            check(name, *amount, of(taken), of(all));
        }
        match (reasons.is_empty(), hopeless) {
            (true, _) => Verdict::Fits,
            (false, false) => Verdict::Unschedulable(reasons),
            (false, true) => Verdict::Unresolvable(reasons),
        }
    }

    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let (wanted, taken, all) = (&pod.nonzero, &node.nonzero, &node.allocatable);
        let parts = [
            (wanted.milli_cpu + taken.milli_cpu, all.milli_cpu),
            (wanted.memory + taken.memory, all.memory),
        ];
        let counted: Vec<i64> = parts
            .iter()
            .filter(|(_, all)| *all > 0)
            .map(|(r, all)| free(*r, *all))
            .collect();
        let count = i64::try_from(counted.len()).unwrap_or(1).max(1);
        Some(counted.iter().sum::<i64>() / count)
    }

    fn may_help(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        match event {
            ClusterEvent::AssignedPodGone(_) | ClusterEvent::AssignedPodShrank(_) => true,
            // Worth a try only if the pod would fit on the node were it empty.
            ClusterEvent::NodeAdded(node) => self.filter(pod, node) == Verdict::Fits,
            ClusterEvent::NodeChanged { old, new } => {
                old.allocatable != new.allocatable && self.filter(pod, new) == Verdict::Fits
            }
        }
    }
}

/// Rates what would stay free, in hundredths of the whole.
fn free(requested: i64, all: i64) -> i64 {
    if requested > all {
        return 0;
    }
    let share = i128::from(all - requested) * i128::from(SCORE_MAX) / i128::from(all);
    i64::try_from(share).unwrap_or(SCORE_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node, pod, pod_with};

    fn filled(cpu: &str) -> NodeInfo {
        let mut info = NodeInfo::new(&node("a", "4", "8Gi"));
        info.add_pod(pod("there", cpu, "1Gi"));
        info
    }

    #[test]
    fn what_is_missing_is_named() {
        let verdict = NodeResourcesFit.filter(&pod("p", "2", "7500Mi"), &filled("3"));
        assert_eq!(
            verdict.reasons(),
            ["Insufficient cpu", "Insufficient memory"]
        );
        assert!(matches!(verdict, Verdict::Unschedulable(_)));
        let verdict = NodeResourcesFit.filter(&pod("p", "5", "1Gi"), &filled("3"));
        assert!(
            matches!(verdict, Verdict::Unresolvable(_)),
            "more than the node has"
        );
        assert_eq!(
            NodeResourcesFit.filter(&pod("p", "1", "7Gi"), &filled("3")),
            Verdict::Fits
        );
    }

    #[test]
    fn pods_that_ask_for_nothing_still_count_as_pods() {
        let mut small = node("a", "4", "8Gi");
        let status = small.status.as_mut().unwrap();
        status
            .allocatable
            .as_mut()
            .unwrap()
            .insert("pods".into(), serde_json::from_value(json!("1")).unwrap());
        let mut info = NodeInfo::new(&small);
        let idle = pod_with("p", json!({}));
        assert_eq!(NodeResourcesFit.filter(&idle, &info), Verdict::Fits);
        info.add_pod(pod_with("there", json!({})));
        assert_eq!(
            NodeResourcesFit.filter(&idle, &info).reasons(),
            ["Too many pods"]
        );
    }

    #[test]
    fn devices_are_counted_by_name() {
        let gpu = pod_with(
            "p",
            json!({"containers": [
            {"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]}),
        );
        let verdict = NodeResourcesFit.filter(&gpu, &filled("1"));
        assert_eq!(verdict.reasons(), ["Insufficient example.com/gpu"]);
    }

    #[test]
    fn least_allocated() {
        // (4000-2000)/4000 and (8-2)/8 of 100, averaged.
        assert_eq!(
            NodeResourcesFit.score(&pod("p", "1", "1Gi"), &filled("1")),
            Some(62)
        );
        assert_eq!(
            NodeResourcesFit.score(&pod("p", "4", "1Gi"), &filled("1")),
            Some(37)
        );
    }

    #[test]
    fn a_node_helps_only_if_it_could_ever_fit() {
        let small = ClusterEvent::NodeAdded(Arc::new(NodeInfo::new(&node("a", "1", "8Gi"))));
        let large = ClusterEvent::NodeAdded(Arc::new(NodeInfo::new(&node("a", "8", "8Gi"))));
        let p = pod("p", "2", "1Gi");
        assert!(!NodeResourcesFit.may_help(&p, &small));
        assert!(NodeResourcesFit.may_help(&p, &large));
    }
}
