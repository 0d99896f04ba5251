//! Changes in the cluster that may let a waiting pod fit.

use std::sync::Arc;

use crate::node::NodeInfo;
use crate::pod::PodInfo;

/// Is one change. Nodes are given without their pods.
#[derive(Clone, Debug)]
pub enum ClusterEvent {
    /// A node came.
    NodeAdded(Arc<NodeInfo>),
    /// A node changed.
    NodeChanged {
        /// Is how it was.
        old: Arc<NodeInfo>,
        /// Is how it is.
        new: Arc<NodeInfo>,
    },
    /// A pod that was on a node is gone, or ended.
    AssignedPodGone(Arc<PodInfo>),
    /// A pod on a node now asks for less.
    AssignedPodShrank(Arc<PodInfo>),
}

impl ClusterEvent {
    /// Returns the node before and after, if the event is about a node.
    pub fn node(&self) -> Option<(Option<&NodeInfo>, &NodeInfo)> {
        match self {
            ClusterEvent::NodeAdded(new) => Some((None, new)),
            ClusterEvent::NodeChanged { old, new } => Some((Some(old), new)),
            ClusterEvent::AssignedPodGone(_) | ClusterEvent::AssignedPodShrank(_) => None,
        }
    }

    /// Tells whether a node condition turned from false to true; a node that came
    /// had it false.
    pub fn node_becomes(&self, holds: impl Fn(&NodeInfo) -> bool) -> bool {
        self.node()
            .is_some_and(|(old, new)| holds(new) && !old.is_some_and(&holds))
    }
}
