//! The node agent: makes the pods bound to this node run, and says so.
//!
//! A thin shell around `kubelet_core`, which holds every decision:
//!
//! ```text
//! pods of this node ─┐
//! runtime (PLEG) ────┤                         ┌ effects: volumes, start, stop,
//! probe results ─────┼─ select ─ Event ─ apply ┤   probes, status, deletion
//! effects' results ──┤   (one at a time)       └ each ends as another Event
//! tick, housekeeping ┘
//! ```
//!
//! Rooms: [`options`] and [`cli`] (what it is told), `driver` (the loop above),
//! `effects` (what it does), [`runtime`] (what runs containers) with
//! [`process`] (containers as local processes), [`shim`] (one small process
//! beside each container, which outlives the agent), [`logs`] (reading what the
//! shim wrote), `server` (what the API server asks of a node) with [`serving`]
//! (its certificate, and whom it answers) and `streaming` (commands, attached
//! terminals and forwarded ports over websockets), `node` (the node's own object and
//! lease).
//!
//! Nothing leaks: a container's process is always under a shim, a shim always
//! has a directory, and the directory is written before the shim is started.
//! An agent that starts reads the directories and takes over, restarts or ends
//! what it finds; see [`process`] for the list of races and their answers.
//!
//! Deliberately absent: CRI, cgroups, eviction, static pods.

pub mod cli;
pub mod error;
pub mod images;
pub mod logs;
pub mod options;
pub mod process;
pub mod runtime;
pub mod serving;
pub mod session;
pub mod shim;
pub mod terminal;

mod container_dir;
mod driver;
mod effects;
mod events;
mod hooks;
mod http_get;
mod identity;
mod machine;
mod node;
mod objects;
mod probing;
mod proc;
mod run;
mod server;
mod streaming;
mod volumes;

pub use error::AgentError;
pub use machine::hostname;
pub use options::{AgentOptions, RuntimeKind};
pub use process::stop_all;
pub use run::{check, run};

/// The agent's version, as the node reports it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
