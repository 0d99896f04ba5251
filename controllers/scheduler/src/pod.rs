//! A pod as the scheduler sees it: everything a cycle asks for, read once.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Toleration};

use crate::ports::{self, HostPort};
use crate::resources::{self, Resources};
use crate::selector::{self, PreferredTerm, RequiredNodes};

/// Holds what plugins and queue need of a pod.
#[derive(Clone, Debug)]
pub struct PodInfo {
    /// Identifies the pod: its UID.
    pub uid: String,
    /// Is the namespace.
    pub namespace: String,
    /// Is the name.
    pub name: String,
    /// Is the node it is bound to (or asks for); empty if none.
    pub node_name: String,
    /// Is the priority; higher goes first and may preempt lower.
    pub priority: i32,
    /// Tells whether it may preempt others.
    pub may_preempt: bool,
    /// Is what it asks for.
    pub requests: Resources,
    /// Is what it counts as when nodes are rated.
    pub nonzero: Resources,
    /// Are the ports it takes on its node.
    pub host_ports: Vec<HostPort>,
    /// Is what a node must be like.
    pub required: RequiredNodes,
    /// Is what a node had better be like.
    pub preferred: Vec<PreferredTerm>,
    /// Are the taints it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Are the gates that keep it from being scheduled.
    pub gates: Vec<String>,
    /// Is when it started, if it did.
    pub start_time: Option<Timestamp>,
    /// Is the node it was promised after a preemption; empty if none.
    pub nominated_node: String,
    /// Is the object.
    pub pod: Arc<Pod>,
}

impl PodInfo {
    /// Reads a pod.
    pub fn new(pod: Arc<Pod>) -> Self {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let status = pod.status.as_ref();
        let gates = spec.scheduling_gates.iter().flatten();
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            node_name: spec.node_name.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or_default(),
            may_preempt: spec.preemption_policy.as_deref() != Some("Never"),
            requests: resources::pod_requests(spec),
            nonzero: resources::pod_nonzero_requests(spec),
            host_ports: ports::host_ports(spec),
            required: RequiredNodes::of(spec),
            preferred: selector::preferred_nodes(spec),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            gates: gates.map(|gate| gate.name.clone()).collect(),
            start_time: status.and_then(|s| s.start_time.as_ref()).map(|t| t.0),
            nominated_node: status
                .and_then(|s| s.nominated_node_name.clone())
                .unwrap_or_default(),
            pod,
        }
    }

    /// Returns `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Tells whether two states differ in something that decides where the pod fits.
    pub fn schedules_like(&self, other: &Self) -> bool {
        self.priority == other.priority
            && self.requests == other.requests
            && self.host_ports == other.host_ports
            && self.required == other.required
            && self.tolerations == other.tolerations
            && self.gates == other.gates
            && self.pod.metadata.labels == other.pod.metadata.labels
    }

    /// Tells whether the pod's deletion has been asked for.
    pub fn is_deleting(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Tells whether the pod has ended for good and so takes nothing.
    pub fn is_terminal(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|s| s.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }
}
