//! The default profile: one line per plugin, with its weight, in kube-scheduler's
//! order. Filters run in this order and stop at the first that rejects a node.

mod balanced_allocation;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod scheduling_gates;
mod taint_toleration;

use crate::framework::Plugin;

/// Is a plugin with what its score counts.
pub struct Registered {
    /// Is the plugin.
    pub plugin: Box<dyn Plugin>,
    /// Multiplies its score; zero if it only filters.
    pub weight: i64,
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}*{}", self.plugin.name(), self.weight)
    }
}

fn with(weight: i64, plugin: impl Plugin + 'static) -> Registered {
    Registered {
        plugin: Box::new(plugin),
        weight,
    }
}

/// Returns the plugins of the default profile.
pub fn default_plugins() -> Vec<Registered> {
    vec![
        with(0, scheduling_gates::SchedulingGates),
        with(0, node_unschedulable::NodeUnschedulable),
        with(0, node_name::NodeName),
        with(3, taint_toleration::TaintToleration),
        with(2, node_affinity::NodeAffinity),
        with(0, node_ports::NodePorts),
        with(1, node_resources_fit::NodeResourcesFit),
        with(1, balanced_allocation::BalancedAllocation),
    ]
}
