//! Keeps a pod waiting while it has scheduling gates.

use crate::event::ClusterEvent;
use crate::framework::{Plugin, PreFilter};
use crate::pod::PodInfo;

pub(super) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    /// The queue keeps gated pods back, so this is a second lock on the same door.
    fn pre_filter(&self, pod: &PodInfo) -> PreFilter {
        if pod.gates.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Reject(format!(
            "waiting for scheduling gates: [{}]",
            pod.gates.join(" ")
        ))
    }

    /// Only a change of the pod itself removes a gate.
    fn may_help(&self, _pod: &PodInfo, _event: &ClusterEvent) -> bool {
        false
    }
}
