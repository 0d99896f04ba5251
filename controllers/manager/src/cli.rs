//! The command lines of `keelson controllers` and `keelson scheduler`.

use std::path::PathBuf;

use clap::Args;
use client::{Client, ClientConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::ManagerError;
use crate::options::{ManagerOptions, Selection, default_identity};
use crate::scheduler_loop::{self, SchedulerOptions};

/// Says which API server to talk to, and whether to contend for a Lease.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// Kubeconfig file of the API server; $KUBECONFIG, then ~/.kube/config without it.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Act only while holding the component's Lease, so that several replicas may run.
    #[arg(
        long,
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    pub leader_elect: bool,
}

impl ClientArgs {
    /// Builds the client these arguments describe.
    pub fn client(&self) -> Result<Client, ManagerError> {
        let config = ClientConfig::load(self.kubeconfig.as_deref())?;
        Ok(Client::from_config(&config)?)
    }
}

/// Holds the arguments of `keelson controllers`.
#[derive(Args, Clone, Debug)]
pub struct ControllersArgs {
    /// Says where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Controllers to run: `*` for all, `name` to switch one on, `-name` to switch one off.
    #[arg(
        long,
        default_value = "*",
        allow_hyphen_values = true,
        value_name = "LIST"
    )]
    pub controllers: Selection,
    /// CA certificate (PEM) to publish to every namespace as kube-root-ca.crt.
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,
}

/// Holds the arguments of `keelson scheduler`.
#[derive(Args, Clone, Debug)]
pub struct SchedulerArgs {
    /// Says where the API server is.
    #[command(flatten)]
    pub client: ClientArgs,
}

/// Runs `keelson controllers` until a signal asks it to stop.
pub fn run_controllers(args: ControllersArgs) -> Result<(), ManagerError> {
    let cluster_ca = match &args.root_ca_file {
        None => None,
        Some(path) => Some(
            std::fs::read_to_string(path).map_err(|source| ManagerError::File {
                path: path.display().to_string(),
                source,
            })?,
        ),
    };
    let options = ManagerOptions {
        leader_elect: args.client.leader_elect,
        identity: default_identity(),
        cluster_ca,
        controllers: args.controllers.clone(),
    };
    until_signal(|token| async move {
        crate::run_controllers(args.client.client()?, options, token).await
    })
}

/// Runs `keelson scheduler` until a signal asks it to stop.
pub fn run_scheduler(args: SchedulerArgs) -> Result<(), ManagerError> {
    let options = SchedulerOptions {
        leader_elect: args.client.leader_elect,
        ..SchedulerOptions::default()
    };
    until_signal(|token| async move {
        scheduler_loop::run_scheduler(args.client.client()?, options, token).await
    })
}

/// Runs work on a runtime of one thread, which is plenty for loops that wait for
/// the API, and cancels it at SIGINT or SIGTERM.
fn until_signal<F, Fut>(work: F) -> Result<(), ManagerError>
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), ManagerError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ManagerError::System)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ManagerError::System)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(ManagerError::System)?;
        let token = CancellationToken::new();
        let stop = token.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            stop.cancel();
        });
        work(token).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ControllersArgs,
    }

    #[test]
    fn flags_read_as_upstreams_do() {
        let line = Line::parse_from(["x"]);
        assert!(line.args.client.leader_elect);
        assert!(line.args.controllers.includes("namespace"));
        let line = Line::parse_from(["x", "--leader-elect=false", "--controllers=*,-namespace"]);
        assert!(!line.args.client.leader_elect);
        assert!(!line.args.controllers.includes("namespace"));
        assert!(
            Line::parse_from(["x", "--leader-elect"])
                .args
                .client
                .leader_elect
        );
    }
}
