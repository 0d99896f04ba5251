//! What a plugin is, and what it may say.

use std::collections::BTreeSet;

use crate::event::ClusterEvent;
use crate::node::NodeInfo;
use crate::pod::PodInfo;

/// Is the best score of one plugin, before its weight.
pub const SCORE_MAX: i64 = 100;

/// Is what a plugin says of a pod before it sees any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreFilter {
    /// Every node must be looked at.
    Continue,
    /// The plugin's filter would pass every node.
    Skip,
    /// Only these nodes can do.
    Only(BTreeSet<String>),
    /// No node can do, for this reason.
    Reject(String),
}

/// Is what a plugin says of a pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits.
    Fits,
    /// It does not fit; it might if other pods were gone.
    Unschedulable(Vec<String>),
    /// It does not fit, whatever other pods do.
    Unresolvable(Vec<String>),
}

impl Verdict {
    /// Returns why it does not fit.
    pub fn reasons(&self) -> &[String] {
        match self {
            Verdict::Fits => &[],
            Verdict::Unschedulable(reasons) | Verdict::Unresolvable(reasons) => reasons,
        }
    }

    /// Builds an [`Verdict::Unresolvable`] of one reason.
    pub fn unresolvable(reason: &str) -> Self {
        Verdict::Unresolvable(vec![reason.to_owned()])
    }

    /// Builds an [`Verdict::Unschedulable`] of one reason.
    pub fn unschedulable(reason: &str) -> Self {
        Verdict::Unschedulable(vec![reason.to_owned()])
    }
}

/// Is one rule of scheduling. What it does not override it does not take part in.
pub trait Plugin: Send + Sync {
    /// Returns the name kube-scheduler gives the plugin.
    fn name(&self) -> &'static str;

    /// Looks at the pod alone.
    fn pre_filter(&self, pod: &PodInfo) -> PreFilter {
        let _ = pod;
        PreFilter::Continue
    }

    /// Judges a node for the pod.
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        let _ = (pod, node);
        Verdict::Fits
    }

    /// Rates a node that fits; none if the plugin has no opinion on this pod.
    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let _ = (pod, node);
        None
    }

    /// Brings the scores of all nodes into 0..=[`SCORE_MAX`].
    fn normalize(&self, scores: &mut [i64]) {
        let _ = scores;
    }

    /// Tells whether a change may let a pod fit that this plugin rejected.
    fn may_help(&self, pod: &PodInfo, event: &ClusterEvent) -> bool;
}

/// Scales scores so that the highest becomes [`SCORE_MAX`]; `reversed` gives the
/// lowest the best score instead.
pub fn normalize_by_highest(scores: &mut [i64], reversed: bool) {
    let highest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if highest == 0 {
            0
        } else {
            SCORE_MAX * *score / highest
        };
        *score = if reversed { SCORE_MAX - scaled } else { scaled };
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Nodes and pods for tests.

    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::{Value, json};

    use crate::pod::PodInfo;

    /// Builds a node that takes 110 pods.
    pub(crate) fn node(name: &str, cpu: &str, memory: &str) -> Node {
        node_with(name, cpu, memory, json!({}))
    }

    /// Builds a node with more of a spec; labels are under `labels`.
    pub(crate) fn node_with(name: &str, cpu: &str, memory: &str, spec: Value) -> Node {
        let value = json!({
            "metadata": {"name": name, "labels": spec.get("labels")},
            "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
        });
        serde_json::from_value(value).unwrap()
    }

    /// Builds a pod whose UID is its name.
    pub(crate) fn pod(name: &str, cpu: &str, memory: &str) -> Arc<PodInfo> {
        pod_with(
            name,
            json!({"containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}),
        )
    }

    /// Builds a pod of any spec.
    pub(crate) fn pod_with(name: &str, mut spec: Value) -> Arc<PodInfo> {
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        let value = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec});
        let pod: Pod = serde_json::from_value(value).unwrap();
        Arc::new(PodInfo::new(Arc::new(pod)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizing() {
        let mut scores = [0, 5, 10];
        normalize_by_highest(&mut scores, false);
        assert_eq!(scores, [0, 50, 100]);
        normalize_by_highest(&mut scores, true);
        assert_eq!(scores, [100, 50, 0]);
        let mut none = [0, 0];
        normalize_by_highest(&mut none, true);
        assert_eq!(none, [100, 100]);
    }
}
