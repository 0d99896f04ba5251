//! The list of controllers. A controller is a file here, a plan in crate `plan`,
//! and one line in [`ALL`].

pub mod deployment;
pub mod gc;
pub mod namespace;
pub mod node;
pub mod podgc;
pub mod replicaset;
pub mod serviceaccount;

use client::Client;

use crate::controller::Controller;
use crate::world::World;

/// Is what controllers are built from.
pub struct Setup<'a> {
    /// Is what they read and write.
    pub world: &'a World,
    /// Is for the one that watches what discovery finds; it is left out without.
    pub client: Option<&'a Client>,
    /// Is the PEM of the cluster's CA; its publisher is left out without.
    pub cluster_ca: Option<&'a str>,
}

/// Builds a controller, or nothing if the setup lacks what it needs.
pub type Build = for<'a> fn(&Setup<'a>) -> Option<Controller>;

/// Lists every controller by the name it is selected by, in kube-controller-manager's
/// words.
pub const ALL: &[(&str, Build)] = &[
    ("serviceaccount", |setup| {
        Some(serviceaccount::accounts(setup.world))
    }),
    ("namespace", |setup| {
        Some(namespace::controller(setup.world))
    }),
    ("replicaset", |setup| {
        Some(replicaset::controller(setup.world))
    }),
    ("deployment", |setup| {
        Some(deployment::controller(setup.world))
    }),
    ("node-lifecycle", |setup| Some(node::lifecycle(setup.world))),
    ("taint-eviction", |setup| {
        Some(node::taint_eviction(setup.world))
    }),
    ("pod-garbage-collector", |setup| {
        Some(podgc::controller(setup.world))
    }),
    ("garbage-collector", |setup| {
        Some(gc::controller(setup.world, setup.client?))
    }),
    ("root-ca-certificate-publisher", |setup| {
        Some(serviceaccount::root_cas(setup.world, setup.cluster_ca?))
    }),
];

/// Returns the names of every controller.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, _)| *name).collect()
}
