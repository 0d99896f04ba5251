//! The scheduler as a value: which pod next, and onto which node.
//!
//! ```text
//! watch events ─> Cache (nodes, assigned and assumed pods)
//!            └──> SchedulingQueue ─ pop ─> Cycle: filter ─> score ─> choice
//!                       ▲                     │ no node fits
//!                       └─ unschedulable <────┘ FitError, maybe preemption
//! ```
//!
//! One pod at a time goes through a [`Cycle`]: every [`Plugin`] may rule nodes out
//! (*filter*) and rate the rest (*score*). The chosen pod is *assumed* in the
//! [`Cache`] at once, so that the next cycle counts it, while the binding is still on
//! its way; if the binding fails it is *forgotten*. A pod that fits nowhere waits
//! until a [`ClusterEvent`] that one of the plugins which rejected it cares about.
//!
//! Everything is a function of its inputs: time and random numbers are passed in. The
//! cache is changed in place by single events and read by one cycle at a time, so it
//! is its own incremental snapshot. Names, weights, order and messages are those of
//! kube-scheduler's default profile.
//!
//! Deliberately absent so far: pod topology spread, inter-pod affinity, volumes,
//! image locality, dynamic resources, disruption budgets in preemption.

pub mod cache;
pub mod cycle;
pub mod event;
pub mod fit_error;
pub mod framework;
pub mod node;
pub mod plugins;
pub mod pod;
pub mod ports;
pub mod preemption;
#[cfg(test)]
mod props;
pub mod queue;
pub mod resources;
pub mod selector;

pub use cache::Cache;
pub use cycle::{Choice, Cycle};
pub use event::ClusterEvent;
pub use fit_error::{FitError, ScheduleError};
pub use framework::{Plugin, PreFilter, Verdict};
pub use node::NodeInfo;
pub use pod::PodInfo;
pub use queue::{QueuedPod, SchedulingQueue};
