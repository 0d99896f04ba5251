//! A node as the scheduler sees it: what it offers, and what is taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::pod::PodInfo;
use crate::ports::UsedPorts;
use crate::resources::Resources;

/// Holds a node with the pods that are, or are about to be, on it.
///
/// Invariants: `requested`, `nonzero` and `ports` are the sums over `pods`.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Is the name.
    pub name: String,
    /// Is false while pods name a node that the API does not show.
    pub exists: bool,
    /// Are the labels.
    pub labels: BTreeMap<String, String>,
    /// Are the taints.
    pub taints: Vec<Taint>,
    /// Is set by `kubectl cordon`.
    pub unschedulable: bool,
    /// Is what pods may take.
    pub allocatable: Resources,
    /// Is what pods ask for.
    pub requested: Resources,
    /// Is what pods count as when nodes are rated.
    pub nonzero: Resources,
    /// Are the ports taken.
    pub ports: UsedPorts,
    /// Are the pods by UID.
    pub pods: BTreeMap<String, Arc<PodInfo>>,
}

impl NodeInfo {
    /// Reads a node without pods.
    pub fn new(node: &Node) -> Self {
        let mut info = Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            ..Self::default()
        };
        info.set_node(node);
        info
    }

    /// Takes over what the API says of the node; its pods stay.
    pub fn set_node(&mut self, node: &Node) {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
        self.exists = true;
        self.labels = node.metadata.labels.clone().unwrap_or_default();
        self.taints = spec.and_then(|s| s.taints.clone()).unwrap_or_default();
        self.unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or_default();
        self.allocatable = allocatable.map(Resources::from_list).unwrap_or_default();
    }

    /// Puts a pod on the node.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        if let Some(old) = self.pods.insert(pod.uid.clone(), Arc::clone(&pod)) {
            self.release(&old);
        }
        self.requested.add(&pod.requests);
        self.nonzero.add(&pod.nonzero);
        self.ports.add(&pod.host_ports);
    }

    /// Takes a pod off the node.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.release(&pod);
        Some(pod)
    }

    fn release(&mut self, pod: &PodInfo) {
        self.requested.subtract(&pod.requests);
        self.nonzero.subtract(&pod.nonzero);
        self.ports.remove(&pod.host_ports);
    }

    /// Tells whether two states of the node offer the same, whoever is on it.
    pub fn offers_like(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.taints == other.taints
            && self.unschedulable == other.unschedulable
            && self.allocatable == other.allocatable
    }

    /// Returns the same node with nobody on it.
    pub fn emptied(&self) -> Self {
        Self {
            name: self.name.clone(),
            exists: self.exists,
            labels: self.labels.clone(),
            taints: self.taints.clone(),
            unschedulable: self.unschedulable,
            allocatable: self.allocatable.clone(),
            ..Self::default()
        }
    }
}
