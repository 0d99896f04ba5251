//! The log: `tracing` to standard error, for people or as JSON lines; a store's goes
//! where etcd's flags say, in etcd's form.

mod etcd;

use std::fs::File;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use kvserver::cli::{LogOptions, LogOutput};
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
        // Complaining about a log that cannot be written panics where that is stderr.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        Format::Human => builder.try_init(),
        Format::Json => builder.json().try_init(),
    }
    .map_err(|e| anyhow::anyhow!("cannot start the log: {e}"))
}

/// Starts a store's log. A format or a filter of ours goes before etcd's.
pub(crate) fn start_etcd(
    options: &LogOptions,
    format: Option<Format>,
    filter: Option<&str>,
) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter.unwrap_or(options.level)).context("--log")?;
    let outputs = options.outputs.iter().map(open);
    let outputs = Outputs(outputs.collect::<anyhow::Result<_>>()?);
    let terminal = match options.outputs[..] {
        [LogOutput::Stderr] => io::stderr().is_terminal(),
        _ => false,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(terminal)
        .log_internal_errors(false)
        .with_writer(move || outputs.clone());
    match (format, options.json) {
        (Some(Format::Json), _) => builder.json().try_init(),
        (None, true) => builder.event_format(etcd::Json).try_init(),
        (Some(Format::Human), _) | (None, false) => builder.try_init(),
    }
    .map_err(|e| anyhow::anyhow!("cannot start the log: {e}"))
}

fn open(output: &LogOutput) -> anyhow::Result<Output> {
    Ok(match output {
        LogOutput::Stderr => Output::Stderr,
        LogOutput::Stdout => Output::Stdout,
        LogOutput::File(path) => {
            let file = File::options().create(true).append(true).open(path);
            let file = file.with_context(|| format!("--log-outputs: {}", path.display()))?;
            Output::File(std::sync::Arc::new(file))
        }
    })
}

#[derive(Clone)]
enum Output {
    Stderr,
    Stdout,
    File(std::sync::Arc<File>),
}

/// Everywhere a line goes. One place that fails does not keep it from the others.
#[derive(Clone)]
struct Outputs(Vec<Output>);

impl Outputs {
    fn each(&self, act: impl Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let results = self.0.iter().map(|output| match output {
            Output::Stderr => act(&mut io::stderr()),
            Output::Stdout => act(&mut io::stdout()),
            Output::File(file) => act(&mut &**file),
        });
        results.fold(Ok(()), Result::and)
    }
}

impl Write for Outputs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.each(|out| out.write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.each(|out| out.flush())
    }
}
