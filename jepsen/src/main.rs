//! Checks a store against what it promises, from outside.
//!
//! Each subcommand is one way to doubt it. `diff` runs the same random programs
//! against a member and a real etcd and compares every answer. What is checked is
//! always a process of its own, spoken to as any client would.

mod diff;
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
        Command::Member { flags } => member(&flags),
    };
    match agreed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say::error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
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
