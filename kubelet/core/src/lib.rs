//! The kubelet's decisions as values: what a pod on this node should do next.
//!
//! Everything here is a function of what it is given: the pod as the API
//! server holds it, the container instances the runtime reports, the state the
//! agent carries for the pod, and the time. There is no clock, file, process
//! or socket in this crate; the `agent` crate performs the [`Action`]s and
//! feeds the results back.
//!
//! Order of the rooms, as a pod walks through them:
//!
//! 1. [`worker`]: the one-way life of a pod on a node (syncing, terminating,
//!    terminated). It alone answers "may containers run".
//! 2. [`diff`]: spec against runtime, giving actions and the next wake time.
//! 3. [`volumes`] and [`env`]: what a container sees when it starts, and
//!    [`security`]: whom it runs as.
//! 4. [`probe`] and [`backoff`]: what happens to it while it runs and crashes.
//! 5. [`status`]: what the API server is told about it.
//!
//! Deliberately absent: sandboxes (a `process` pod has none), cgroups, image
//! transfer, ephemeral containers, device plugins, eviction.
//!
//! [`Action`]: diff::Action

pub mod backoff;
pub mod cri_log;
pub mod diff;
pub mod env;
pub mod expand;
pub mod fields;
pub mod node;
pub mod pod;
pub mod probe;
pub mod runtime;
pub mod security;
pub mod state;
pub mod status;
pub mod volumes;
pub mod worker;

/// Adds whole seconds to a time, stopping at the end of time.
pub fn after(time: jiff::Timestamp, seconds: i64) -> jiff::Timestamp {
    time.checked_add(jiff::SignedDuration::from_secs(seconds))
        .unwrap_or(jiff::Timestamp::MAX)
}
