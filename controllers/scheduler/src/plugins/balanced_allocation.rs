//! Prefers nodes whose CPU and memory would be used to a like degree.

use crate::event::ClusterEvent;
use crate::framework::{Plugin, SCORE_MAX};
use crate::node::NodeInfo;
use crate::pod::PodInfo;

pub(super) struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    /// Has no opinion on pods that ask for nothing: they change no balance, and would
    /// all be sent to the one best balanced node.
    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        if pod.requests.milli_cpu == 0 && pod.requests.memory == 0 {
            return None;
        }
        let (wanted, taken, all) = (&pod.requests, &node.requested, &node.allocatable);
        let parts = [
            (wanted.milli_cpu + taken.milli_cpu, all.milli_cpu),
            (wanted.memory + taken.memory, all.memory),
        ];
        let used: Vec<f64> = parts
            .iter()
            .filter(|(_, all)| *all > 0)
            .map(|(used, all)| (*used as f64 / *all as f64).min(1.0))
            .collect();
        let deviation = match used.as_slice() {
            [cpu, memory] => ((cpu - memory) / 2.0).abs(),
            _ => 0.0,
        };
        // Lies in 0..=100, and is cut to whole points as in kube-scheduler.
        Some(((1.0 - deviation) * SCORE_MAX as f64) as i64)
    }

    fn may_help(&self, _pod: &PodInfo, _event: &ClusterEvent) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::framework::testing::{node, pod, pod_with};

    #[test]
    fn like_use_is_best() {
        let info = NodeInfo::new(&node("a", "4", "8Gi"));
        assert_eq!(
            BalancedAllocation.score(&pod("p", "2", "4Gi"), &info),
            Some(100)
        );
        // Three quarters of the CPU against a quarter of the memory.
        assert_eq!(
            BalancedAllocation.score(&pod("p", "3", "2Gi"), &info),
            Some(75)
        );
        assert_eq!(
            BalancedAllocation.score(&pod_with("p", json!({})), &info),
            None
        );
    }
}
