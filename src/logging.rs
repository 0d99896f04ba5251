//! The log: `tracing` to standard error, for people or as JSON lines.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One line for people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Starts the log. `quiet` raises the default level to warnings, for commands
/// whose own words matter more.
pub(crate) fn start(format: Format, filter: Option<&str>, quiet: bool) -> anyhow::Result<()> {
    let default = if quiet { "warn" } else { "info" };
    let filter = EnvFilter::try_new(filter.unwrap_or(default)).context("--log")?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        Format::Human => builder.try_init(),
        Format::Json => builder.json().try_init(),
    }
    .map_err(|e| anyhow::anyhow!("cannot start the log: {e}"))
}
