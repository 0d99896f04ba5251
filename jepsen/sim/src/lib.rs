//! The simulator: members of the store, all in one thread, on a network, disks and
//! clocks that a seed decides.
//!
//! ```text
//! seed -> Plan -> Sim -- one queue of events, one at a time --> Report
//!                  |  hosts: the server's own core, log, rows, watch hub (kvserver::sim)
//!                  |  network, disks (disk::SimDisk), clocks, faults
//!                  |  clients, watchers, administrators
//!                  +- truth: the one log, against which everything is held
//! ```
//!
//! The same seed gives the same run to the byte: no clock, no thread, no map whose
//! order is chance. [`Report::hash`] is over every message, every moment and every
//! answer.
//!
//! Checked while it runs: agreement of logs and of states, one leader per term, every
//! value written once, every answer at its place in the log and not before what was
//! known, leases not over early, eight guarantees of watches, no process that ends
//! without a fault that explains it. Checked after everything has healed: somebody
//! leads, every member takes writes, all are equal, all watchers have heard all; and
//! what clients were told, by the crate `checkers`, which knows nothing of all this.
//!
//! Not simulated: gRPC and HTTP, TLS, the queues of the links between members, and
//! the engine of the rows (sled), whose promise [`disk::SimDisk`] keeps in memory.

mod admin;
pub mod campaign;
mod client;
mod faults;
mod history;
mod host;
mod judge;
mod liveness;
#[cfg(feature = "mutants")]
pub mod mutation;
mod network;
mod ops;
mod panics;
mod plan;
mod rng;
mod shipping;
pub mod shrink;
mod sim;
mod trace;
mod truth;
mod watching;

use std::collections::BTreeMap;

pub use crate::{
    plan::{Kind, MS, Plan, SECOND, Time, Tuning},
    trace::Violation,
};

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The same for every run of a plan.
    pub hash: u64,
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// Faults by kind.
    pub struck: BTreeMap<Kind, u64>,
    /// Requests that were answered well.
    pub answered: u64,
    /// Requests.
    pub asked: u64,
    /// Replies with changes that watchers heard.
    pub heard: u64,
    /// Comparisons of entries and states.
    pub compared: u64,
    /// What the checkers of histories looked at, by their names.
    pub judged: BTreeMap<&'static str, u64>,
    /// Terms that had a leader.
    pub elections: u64,
    /// Things that happened.
    pub steps: u64,
    /// How much time passed in it.
    pub time: Time,
    /// What happened, if that was wanted.
    pub lines: Vec<String>,
}

/// How much of a run is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Nothing.
    #[default]
    None,
    /// How it ended.
    Last,
    /// All.
    All,
}

/// Runs a plan.
pub fn run(plan: Plan, lines: Lines) -> Report {
    panics::keep();
    let seed = plan.seed;
    let mut sim = sim::Sim::new(plan, lines != Lines::None, lines == Lines::All);
    sim.live();
    panics::print();
    let truth = sim.truth.get();
    Report {
        seed,
        hash: sim.trace.hash(),
        violations: truth.violations().to_vec(),
        struck: sim.struck.clone(),
        answered: sim.clients.answered,
        asked: sim.clients.ops.len() as u64,
        heard: sim
            .clients
            .watchers
            .iter()
            .map(|watcher| watcher.heard)
            .sum(),
        compared: truth.compared,
        judged: sim.judged.clone(),
        elections: truth.elections(),
        steps: sim.steps,
        time: sim.now,
        lines: sim.trace.take_lines(),
    }
}
