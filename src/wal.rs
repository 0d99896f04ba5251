//! `keelson wal`: the log of a member, for people. What is shown is decided in
//! `kvserver::wal_dump`; here are the flags.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use kvserver::wal_dump::{self, DumpError};

/// Looks into the log of a member of the store.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the log as lines of JSON, one for each record. It only reads, also a log
    /// that is damaged or in use; after damage it goes on and fails at the end.
    Dump {
        /// The member's data directory.
        data_dir: PathBuf,
        /// Where its log is, if not in the data directory.
        #[arg(long)]
        wal_dir: Option<PathBuf>,
    },
}

/// Runs a command.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let Command::Dump { data_dir, wal_dir } = args.command;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let dumped = wal_dump::dump(&data_dir, wal_dir.as_deref(), &mut out);
    let ended = out.flush().map_err(DumpError::from);
    match dumped.and(ended) {
        // Whoever read has seen enough.
        Err(DumpError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
