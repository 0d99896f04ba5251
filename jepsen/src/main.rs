//! Checks a store against what it promises, from outside.
//!
//! Each subcommand is one way to doubt it. `diff` runs the same random programs
//! against a member and a real etcd and compares every answer. What is checked is
//! always a process of its own, spoken to as any client would. `run` hurts a cluster of
//! these while clients work on it, and `check` judges what such a run recorded.

mod check;
mod diff;
mod report;
mod run;
mod say;

use std::{collections::BTreeMap, process::ExitCode};

use clap::{Parser, Subcommand};

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
    /// Run one member of the store. This program starts itself so; people do not.
    #[command(hide = true)]
    Member {
        /// etcd's flags.
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        flags: Vec<String>,
    },
}

fn main() -> ExitCode {
    let agreed = match Cli::parse().command {
        Command::Diff(args) => diff::run(&args),
        Command::Check(args) => return told(check::run(&args), HARNESS_ERROR.into()),
        Command::Run(args) => return told(run::run(&args), HARNESS_ERROR.into()),
        Command::Member { flags } => member(&flags),
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

fn member(flags: &[String]) -> anyhow::Result<bool> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    // Whoever started this has said all there is to say in flags.
    match kvserver::cli::read(flags, &BTreeMap::new())? {
        kvserver::cli::Asked::Print(text) => say::line(&text),
        kvserver::cli::Asked::Run(plan) => kvserver::cli::run(*plan)?,
    }
    Ok(true)
}
