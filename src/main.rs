//! The one binary. Each subcommand is a part that also runs alone; `up` runs
//! them all in one process. This file only knows their names.

mod logging;
mod say;
mod snapshot;
mod up;
mod wal;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// glibc's is left with holes by what outlives a request, and gives nothing back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A datacenter's operating system as one control system.
#[derive(Parser)]
#[command(version, about, propagate_version = true)]
struct Cli {
    /// How the log is written to standard error; for people if not given.
    #[arg(long, global = true, value_enum)]
    log_format: Option<logging::Format>,
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
    Kvstore {
        /// etcd's flags; `keelson kvstore --help` lists them.
        #[arg(allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Save, describe and restore backups of the store, ours and etcd's.
    Snapshot(Box<snapshot::Args>),
    /// Look into the log of a member of the store.
    Wal(wal::Args),
    /// Serve the Kubernetes API over the store; drop-in for kube-apiserver.
    Apiserver(Box<apiserver::cli::Args>),
    /// Run the controllers; drop-in for kube-controller-manager.
    Controllers(manager::cli::ControllersArgs),
    /// Run the scheduler; drop-in for kube-scheduler.
    Scheduler(manager::cli::SchedulerArgs),
    /// Run the node agent; drop-in for the kubelet.
    Kubelet(agent::cli::KubeletArgs),
}

fn main() -> ExitCode {
    let args = by_name(std::env::args_os().collect());
    // The shim is started for every container and must stay tiny: no log, no
    // runtime, nothing before it. The kubelet starts it; people do not.
    if let [_, first, rest @ ..] = args.as_slice()
        && first == "container-shim"
    {
        return exit_code(agent::shim::main(rest));
    }
    let cli = Cli::parse_from(set_apart(args));
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// What the program is, under the names of what it is a drop-in for. A link so called
/// is all that envtest needs.
const NAMES: [(&str, &str); 2] = [("etcd", "kvstore"), ("kube-apiserver", "apiserver")];

fn by_name(mut args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().map(Path::new).and_then(Path::file_name);
    let part = NAMES
        .iter()
        .find(|(drop_in, _)| name == Some(OsStr::new(drop_in)));
    if let Some((_, part)) = part {
        args.insert(1, part.into());
    }
    args
}

/// Sets the store's flags apart from ours: they are etcd's, some have the names of
/// ours, and some begin with one dash.
fn set_apart(mut args: Vec<OsString>) -> Vec<OsString> {
    let ours = |arg: &&OsString| arg.to_string_lossy().starts_with('-');
    // What is before the command's name is ours; a value there may look like it.
    let at = match args.iter().skip(1).position(|arg| arg == "kvstore") {
        Some(0) => 1,
        Some(at) if args.get(1).as_ref().is_some_and(ours) => at + 1,
        _ => return args,
    };
    args.insert(at + 1, "--".into());
    args
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let quiet = matches!(
        cli.command,
        Command::Up(_) | Command::Snapshot(_) | Command::Wal(_)
    );
    if let Command::Kvstore { flags } = &cli.command {
        return kvstore(&cli, flags);
    }
    logging::start(
        cli.log_format.unwrap_or(logging::Format::Human),
        cli.log.as_deref(),
        quiet,
    )?;
    match cli.command {
        Command::Up(args) => up::run(args),
        Command::Kvstore { .. } => unreachable!("handled before logging starts"),
        Command::Snapshot(args) => snapshot::run(*args),
        Command::Wal(args) => wal::run(args),
        Command::Apiserver(args) => Ok(apiserver::cli::run(*args)?),
        Command::Controllers(args) => Ok(manager::cli::run_controllers(args)?),
        Command::Scheduler(args) => Ok(manager::cli::run_scheduler(args)?),
        Command::Kubelet(args) => Ok(agent::cli::run(&args)?),
    }
}

/// Runs the store with etcd's flags. Ours say how to log only where they are given.
fn kvstore(cli: &Cli, flags: &[String]) -> anyhow::Result<()> {
    let env = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    match kvserver::cli::read(flags, &env.collect())? {
        kvserver::cli::Asked::Print(text) => say::line(text.trim_end()),
        kvserver::cli::Asked::Run(plan) => {
            logging::start_etcd(&plan.log, cli.log_format, cli.log.as_deref())?;
            kvserver::cli::run(*plan)?;
        }
    }
    Ok(())
}

fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
