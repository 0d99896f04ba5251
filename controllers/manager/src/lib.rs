//! The controllers as a process: informers and queues around the pure plans.
//!
//! [`controller`] is the loop every controller shares, [`controllers`] the list
//! of them, [`world`] what they read and write, [`run_controllers`] the whole.
//! What a controller decides is in crate `plan`; here is only how it is fed and
//! how its writes are performed.
//!
//! All caches fill in parallel before the first key is worked on, and an idle
//! manager does nothing: no controller polls, except for discovery every 30 s.
//!
//! Deliberately absent: metrics, and a controller's own rate limit on the API
//! (the server has flow control).

pub mod cli;
pub mod controller;
pub mod controllers;
pub mod options;
mod own_writes;
pub mod scheduler_loop;
#[cfg(test)]
mod sim;
pub mod world;

use client::leader_election::{self, ElectionConfig, ElectionError};
use client::{Client, InformerFactory, ObjectKey, WorkQueue};
use futures::future::join_all;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::controller::{Controller, Subscribed};
use crate::controllers::Setup;
pub use crate::options::{ManagerOptions, Selection};

/// Is the Lease the candidates contend for.
const LEASE_NAMESPACE: &str = "kube-system";
const LEASE_NAME: &str = "kube-controller-manager";
/// Is who the API server and events are told the controllers are.
const COMPONENT: &str = "kube-controller-manager";

/// Says why the controllers stopped before they were asked to.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The selection names a controller there is not.
    #[error("there is no controller {name:?}; there are {known}")]
    UnknownController {
        /// Is the name that was given.
        name: String,
        /// Lists the names there are.
        known: String,
    },
    /// Another process leads, or may.
    #[error(transparent)]
    Election(#[from] ElectionError),
    /// The client could not be set up.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The runtime or the signal handlers could not be set up.
    #[error("cannot set up the process: {0}")]
    System(#[source] std::io::Error),
    /// A file named on the command line could not be read.
    #[error("cannot read {path}")]
    File {
        /// Is the file.
        path: String,
        /// Is what went wrong.
        #[source]
        source: std::io::Error,
    },
}

/// Runs the controllers until the token is cancelled.
///
/// With election, waits for the Lease first, and returns an error when it is
/// lost: the process must end then, since another may act already.
pub async fn run_controllers(
    client: Client,
    options: ManagerOptions,
    token: CancellationToken,
) -> Result<(), ManagerError> {
    let client = client.named(COMPONENT);
    check_selection(&options)?;
    if !options.leader_elect {
        run(client, options, token).await;
        return Ok(());
    }
    let config = ElectionConfig::new(LEASE_NAMESPACE, LEASE_NAME, options.identity.clone());
    let work = client.clone();
    leader_election::run(client, config, token, |leading| run(work, options, leading)).await?;
    Ok(())
}

fn check_selection(options: &ManagerOptions) -> Result<(), ManagerError> {
    let names = controllers::names();
    match options.controllers.unknown(&names) {
        None => Ok(()),
        Some(name) => Err(ManagerError::UnknownController {
            name: name.to_owned(),
            known: names.join(", "),
        }),
    }
}

async fn run(client: Client, options: ManagerOptions, token: CancellationToken) {
    let factory = InformerFactory::new(client.clone());
    let world = world::live::world(&factory);
    let cluster_ca = options.cluster_ca.as_deref();
    let setup = Setup {
        world: &world,
        client: Some(&client),
        cluster_ca,
    };
    let connected: Vec<(Subscribed, WorkQueue<ObjectKey>)> = controllers::ALL
        .iter()
        .filter(|(name, _)| options.controllers.includes(name))
        .filter_map(|(_, build)| build(&setup))
        .map(connect)
        .collect();
    factory.start(&token);
    tokio::select! {
        () = token.cancelled() => return,
        () = factory.synced() => {}
    }
    tracing::info!(controllers = connected.len(), "controllers started");
    let loops = connected
        .into_iter()
        .map(|(controller, queue)| controller.run(queue, token.clone()));
    join_all(loops).await;
}

fn connect(controller: Controller) -> (Subscribed, WorkQueue<ObjectKey>) {
    let queue = WorkQueue::default();
    let fed = queue.clone();
    (
        controller.subscribe(Arc::new(move |key| fed.add(key))),
        queue,
    )
}
