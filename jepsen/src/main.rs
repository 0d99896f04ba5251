//! Checks a store against what it promises, from outside.
//!
//! Each subcommand is one way to doubt it. `diff` runs the same random programs
//! against a member and a real etcd and compares every answer. What is checked is
//! always a process of its own, spoken to as any client would. `run` hurts a cluster of
//! these while clients work on it, `api` does so with API servers on top, and `check`
//! judges what such a run recorded. `sim` runs whole clusters in one thread, on networks,
//! disks and clocks that a seed decides.

mod check;
mod diff;
mod report;
mod run;
mod say;
mod sim;

use std::{collections::BTreeMap, process::ExitCode};

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;

/// Checks a store against what it promises, from outside.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run random programs against a member and a real etcd, and compare every
    /// answer field by field.
    Diff(Box<diff::Args>),
    Check(check::Args),
    /// Hurt a cluster of real processes while clients work on it, and judge what they
    /// were told.
    Run(Box<run::Args>),
    /// Hurt API servers, controllers and the store below them, and judge what clients
    /// of the API were told.
    Api(Box<run::api::Args>),
    /// Run clusters on simulated networks, disks and clocks, one for each seed, and
    /// check what they promise.
    Sim(sim::Args),
    /// Run one member of the store. This program starts itself so; people do not.
    #[command(hide = true)]
    Member {
        /// etcd's flags.
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        flags: Vec<String>,
    },
    /// Serve the Kubernetes API. This program starts itself so; people do not.
    #[command(hide = true)]
    Apiserver(Box<apiserver::cli::Args>),
    /// Run the controllers. Likewise.
    #[command(hide = true)]
    Controllers(manager::cli::ControllersArgs),
    /// Run the scheduler. Likewise.
    #[command(hide = true)]
    Scheduler(manager::cli::SchedulerArgs),
}

fn main() -> ExitCode {
    let agreed = match Cli::parse().command {
        Command::Diff(args) => diff::run(&args),
        Command::Check(args) => return told(check::run(&args), HARNESS_ERROR.into()),
        Command::Run(args) => return told(run::run(&args), HARNESS_ERROR.into()),
        Command::Api(args) => return told(run::api::run(&args), HARNESS_ERROR.into()),
        Command::Sim(args) => sim::run(&args),
        Command::Member { flags } => member(&flags),
        Command::Apiserver(args) => part(|| Ok(apiserver::cli::run(*args)?)),
        Command::Controllers(args) => part(|| Ok(manager::cli::run_controllers(args)?)),
        Command::Scheduler(args) => part(|| Ok(manager::cli::run_scheduler(args)?)),
    };
    let code = |agreed| match agreed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    };
    told(agreed.map(code), ExitCode::FAILURE)
}

/// How a run ends that found out nothing because the harness is wrong.
const HARNESS_ERROR: u8 = 3;

/// Tells of an error, and ends with its code.
fn told(ended: anyhow::Result<ExitCode>, otherwise: ExitCode) -> ExitCode {
    ended.unwrap_or_else(|error| {
        say::error(&format!("error: {error:#}"));
        otherwise
    })
}

/// Runs a part of the product until it is told to end; it logs as it does elsewhere.
fn part(run: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<bool> {
    log(LevelFilter::INFO);
    run().map(|()| true)
}

fn log(level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .init();
}

fn member(flags: &[String]) -> anyhow::Result<bool> {
    log(LevelFilter::WARN);
    // Whoever started this has said all there is to say in flags.
    match kvserver::cli::read(flags, &BTreeMap::new())? {
        kvserver::cli::Asked::Print(text) => say::line(&text),
        kvserver::cli::Asked::Run(plan) => kvserver::cli::run(*plan)?,
    }
    Ok(true)
}
