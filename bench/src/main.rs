//! Benchmarks: what a user of Keelson waits for and pays for.
//!
//! Every subcommand starts what it measures on free ports in a folder of its
//! own, prints one table for people and, with `--json FILE`, the same figures
//! for machines. Figures hold for the machine they were taken on; compare
//! ratios within one run.

mod api;
mod cluster;
mod drive;
mod engine;
mod envtest;
mod fanout;
mod machine;
mod pace;
mod pause;
mod plot;
mod profile;
mod report;
mod scale;
mod space;
mod store;
mod target;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Measures Keelson.
#[derive(Parser)]
#[command(version, about)]
struct Args {
    /// The keelson program to measure; built from this checkout if not given.
    #[arg(long, global = true)]
    keelson: Option<PathBuf>,
    /// Also write the figures as JSON to this file.
    #[arg(long, global = true)]
    json: Option<PathBuf>,
    #[command(subcommand)]
    command: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// From the scale request to that many pods Running, seen by a watch.
    Scale(scale::Args),
    /// What puts wait for while the store compacts, defragments, hashes, lists.
    Pause(pause::Args),
    /// Puts, reads, leases, watches and starts, next to a real etcd.
    Store(store::Args),
    /// Every verb of the Kubernetes API over real HTTPS: what a request costs.
    Api(api::Args),
    /// Starts and stops of API servers as controller-runtime's envtest does them.
    Envtest(envtest::Args),
    /// One write on its way to thousands of watchers, and what they cost.
    Fanout(Box<fanout::Args>),
    /// One process of that load.
    #[command(hide = true)]
    FanoutWorker,
    /// Where the server's CPU goes, by Linux's perf.
    Profile(profile::Args),
    /// What a large store takes: memory, time to open, disk as keys change.
    Space(space::Args),
    /// The store's rows on one engine or another: cost, space, crashes.
    Engine(engine::Args),
    /// One step of that, in a process of its own.
    #[command(hide = true)]
    EngineTask(engine::child::Order),
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run_until_told(args)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::say_error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs until all is measured or somebody says that it is enough: then too the servers
/// that were started end.
async fn run_until_told(args: Args) -> anyhow::Result<()> {
    if let Bench::Engine(_) | Bench::EngineTask(_) = args.command {
        // Starts no servers, and never comes back here before it is done.
        return run(args).await;
    }
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        done = run(args) => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let keelson = || args.keelson.clone().map_or_else(cluster::build, Ok);
    let report = match args.command {
        Bench::EngineTask(order) => return engine::child::run(&order),
        Bench::FanoutWorker => return fanout::worker::run().await,
        Bench::Engine(engine) => engine::run(&engine)?,
        Bench::Profile(profile) => return profile::run(&keelson()?, &profile).await,
        Bench::Api(api) => api::run(&keelson()?, &api).await?,
        Bench::Envtest(envtest) => envtest::run(&keelson()?, &envtest).await?,
        Bench::Fanout(fanout) => fanout::run(keelson, &fanout).await?,
        Bench::Scale(scale) => scale::run(&keelson()?, &scale).await?,
        Bench::Pause(pause) => pause::run(&keelson()?, &pause).await?,
        Bench::Store(store) => store::run(&keelson()?, &store).await?,
        Bench::Space(space) => space::run(&keelson()?, &space).await?,
    };
    report.print()?;
    if let Some(path) = args.json {
        report.write_json(&path)?;
    }
    // What is broken is in the report all the same.
    report.fanout.map_or(Ok(()), |fanout| fanout.verdict())
}
