//! Node lifecycle: a node that stops reporting becomes unknown, is tainted, and
//! in the end loses its pods.
//!
//! [`health`] judges heartbeats, [`taints`] derives taints from conditions,
//! [`zones`] how fast nodes may be given up, [`eviction`] when a tainted node's pod
//! must go. Rules follow Kubernetes
//! v1.32 `pkg/controller/nodelifecycle` and `pkg/controller/tainteviction`.

pub mod eviction;
pub mod health;
pub mod taints;
pub mod zones;

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// Returns a condition of the node by type.
pub fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status
        .as_ref()?
        .conditions
        .as_deref()?
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// Tells whether the node says it is ready.
pub fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.status == "True")
}
