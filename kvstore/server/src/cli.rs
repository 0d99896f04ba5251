//! The command line of a member, in etcd's spelling, with its environment and its
//! configuration file.
//!
//! Each file below declares the flags of one area and puts their values into the
//! [`Config`]. To add a flag: one line in the area's `FLAGS`, one in its `apply`.

mod auth;
mod cluster;
mod features;
mod file;
mod flag;
mod help;
mod http;
mod logging;
mod member;
mod parse;
mod security;
mod value;

use std::collections::BTreeMap;
use std::path::PathBuf;

use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::cluster::named_members;
pub use self::logging::{LogOptions, LogOutput};
use self::{
    flag::{Flag, Kind, Values},
    parse::Line,
};
use crate::{
    config::{Config, StartError},
    server::Server,
};

const CONFIG_FILE: &[Flag] = &[Flag::new(
    "config-file",
    Kind::Text,
    "",
    "Path to a configuration file. With it, other flags and the environment are ignored.",
)];

/// All flags, as the help shows them.
const SECTIONS: &[(&str, &[Flag])] = &[
    ("Configuration", CONFIG_FILE),
    ("Member", member::FLAGS),
    ("Clustering", cluster::FLAGS),
    ("Security", security::FLAGS),
    ("Auth", auth::FLAGS),
    ("HTTP and Monitoring", http::FLAGS),
    ("Logging", logging::FLAGS),
    ("Features", features::FLAGS),
    ("Unsafe feature", features::UNSAFE),
];

/// Every flag that is understood, those the help leaves out too.
fn flags() -> impl Iterator<Item = &'static Flag> {
    SECTIONS
        .iter()
        .flat_map(|(_, flags)| flags.iter())
        .chain(features::OLD)
        .chain(file::FLAGS)
}

/// Why a command line is not understood.
#[derive(Debug, Error)]
pub enum Refusal {
    /// There is no such flag.
    #[error("flag provided but not defined: --{0}")]
    Unknown(String),
    /// A flag stands at the end without its value.
    #[error("flag needs an argument: --{0}")]
    NoValue(String),
    /// Something is no flag at all.
    #[error("{0:?} is not a valid flag")]
    Argument(String),
    /// A value makes no sense.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// To print this and end.
    Print(String),
    /// To run a member.
    Run(Box<Plan>),
}

/// A member to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it is started with.
    pub config: Config,
    /// Where and how to log.
    pub log: LogOptions,
    /// What the log should warn of first.
    pub notes: Vec<String>,
}

/// Reads a command line, without the program's name, and an environment.
pub fn read(args: &[String], env: &BTreeMap<String, String>) -> Result<Asked, Refusal> {
    let mut notes = Vec::new();
    let mut values = Values::default();
    match parse::arguments(args, &mut values, &mut notes)? {
        Line::Help => return Ok(Asked::Print(help::help())),
        Line::Version => return Ok(Asked::Print(help::version())),
        Line::Values => {}
    }
    let file = values
        .path("config-file")
        .or_else(|| env.get("ETCD_CONFIG_FILE").map(PathBuf::from))
        .filter(|path| !path.as_os_str().is_empty());
    match file {
        None => parse::environment(env, &mut values, &mut notes)?,
        Some(path) => {
            let ignored = ignored(&values, env);
            if !ignored.is_empty() {
                notes.push(format!(
                    "--config-file={}: ignoring {ignored}",
                    path.display()
                ));
            }
            values = Values::default();
            file::read(&path, &mut values, &mut notes)?;
        }
    }
    notes.extend(values.effects()?);
    let plan = plan(&values, notes)?;
    Ok(Asked::Run(Box::new(plan)))
}

/// Names the flags and variables that a configuration file makes void.
fn ignored(values: &Values, env: &BTreeMap<String, String>) -> String {
    let flags = values
        .given()
        .filter(|(name, _)| *name != "config-file")
        .map(|(name, _)| format!("--{name}"));
    let variables = env
        .keys()
        .filter(|key| key.starts_with("ETCD_") && *key != "ETCD_CONFIG_FILE")
        .cloned();
    flags.chain(variables).collect::<Vec<_>>().join(", ")
}

/// Makes a configuration, refusing values that do not fit together.
fn plan(values: &Values, mut notes: Vec<String>) -> Result<Plan, StartError> {
    let name = values.text("name").to_owned();
    let data_dir = values.path("data-dir").unwrap_or_else(|| {
        let default = format!("{name}.etcd");
        notes.push(format!("'data-dir' was empty; using default {default}"));
        default.into()
    });
    let mut config = Config {
        name,
        ..Config::new(data_dir)
    };
    for apply in [
        member::apply,
        cluster::apply,
        security::apply,
        auth::apply,
        http::apply,
        logging::apply,
        features::apply,
    ] {
        apply(values, &mut config, &mut notes)?;
    }
    crate::listen::check(&config)?;
    Ok(Plan {
        config,
        log: logging::options(values, &mut notes)?,
        notes,
    })
}

/// Runs a member until SIGINT or SIGTERM, or until it fails.
pub fn run(plan: Plan) -> Result<(), StartError> {
    for note in &plan.notes {
        tracing::warn!("{note}");
    }
    let system = |what| move |source| StartError::System { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("the main runtime"))?;
    runtime.block_on(async {
        let mut interrupt =
            signal(SignalKind::interrupt()).map_err(system("the signal handler"))?;
        let mut terminate =
            signal(SignalKind::terminate()).map_err(system("the signal handler"))?;
        // A member may wait for the others for any time.
        let mut running = tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            running = Server::start(plan.config) => running?,
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = running.wait() => return match running.was_removed() {
                true => Ok(()),
                false => Err(StartError::Stopped),
            },
        }
        tracing::info!("stopping");
        running.shutdown().await;
        Ok(())
    })
}

#[cfg(test)]
mod tests;
