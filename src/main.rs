//! The one binary. Each subcommand is a part that also runs alone; `up` runs
//! them all in one process. This file only knows their names.

mod logging;
mod say;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A datacenter's operating system as one control system.
#[derive(Parser)]
#[command(version, about, propagate_version = true)]
struct Cli {
    /// How the log is written to standard error.
    #[arg(long, global = true, value_enum, default_value_t = logging::Format::Human)]
    log_format: logging::Format,
    /// What is logged, such as `info` or `warn,apiserver=debug`.
    #[arg(long, global = true, env = "KEELSON_LOG")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything in one process: store, API server, controllers,
    /// scheduler and a kubelet.
    Up(up::Args),
    /// Run one member of the store; drop-in for etcd.
    Kvstore(Box<kvserver::cli::Args>),
    /// Serve the Kubernetes API over the store; drop-in for kube-apiserver.
    Apiserver(Box<apiserver::cli::Args>),
    /// Run the controllers; drop-in for kube-controller-manager.
    Controllers(manager::cli::ControllersArgs),
    /// Run the scheduler; drop-in for kube-scheduler.
    Scheduler(manager::cli::SchedulerArgs),
    /// Run the node agent; drop-in for the kubelet.
    Kubelet(agent::cli::KubeletArgs),
    /// Watch over one container. The kubelet starts this; people do not.
    #[command(hide = true)]
    ContainerShim {
        /// The container's directory.
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The shim is started for every container and must stay tiny: no log, no
    // runtime, nothing before it.
    if let Command::ContainerShim { dir } = &cli.command {
        return exit_code(agent::shim::main(dir));
    }
    let quiet = matches!(cli.command, Command::Up(_));
    if let Err(error) = logging::start(cli.log_format, cli.log.as_deref(), quiet) {
        say::error(&error);
        return ExitCode::FAILURE;
    }
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => up::run(args),
        Command::Kvstore(args) => Ok(kvserver::cli::run(&args)?),
        Command::Apiserver(args) => Ok(apiserver::cli::run(*args)?),
        Command::Controllers(args) => Ok(manager::cli::run_controllers(args)?),
        Command::Scheduler(args) => Ok(manager::cli::run_scheduler(args)?),
        Command::Kubelet(args) => Ok(agent::cli::run(&args)?),
        Command::ContainerShim { .. } => unreachable!("handled before logging starts"),
    }
}

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
