//! The processes that the measuring is done in: the program calls itself.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::de::DeserializeOwned;

use super::{crash, engines, measure};
use crate::report::say;

/// What such a process does.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Task {
    /// Plays a tape to an engine without rows; the number is nothing.
    Load,
    /// Opens, visits and reads rows; the number is a seed.
    Open,
    /// Writes a tape from the batch after the number on.
    Write,
    /// Judges rows of which the batch of the number was flushed.
    Check,
}

/// Is a task with all it needs.
#[derive(clap::Args)]
pub(crate) struct Order {
    #[arg(value_enum)]
    pub(crate) task: Task,
    pub(crate) engine: String,
    pub(crate) data: PathBuf,
    pub(crate) tape: PathBuf,
    pub(crate) number: u64,
}

impl Order {
    /// Makes the command that carries it out: this program again.
    pub(crate) fn command(&self) -> anyhow::Result<Command> {
        let task = self.task.to_possible_value().context("a hidden task")?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("engine-task")
            .args([task.get_name(), &self.engine])
            .args([&self.data, &self.tape])
            .arg(self.number.to_string())
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Carries it out in another process and returns what that says.
    pub(crate) fn answer<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        let mut err = tempfile::tempfile()?;
        let out = self.command()?.stderr(err.try_clone()?).output()?;
        ensure!(out.status.success(), crash::complaint(&mut err)?);
        Ok(serde_json::from_slice(&out.stdout)?)
    }
}

/// Carries out an order in this process.
pub(crate) fn run(order: &Order) -> anyhow::Result<()> {
    let engine = engines::named(&order.engine)?;
    let Order {
        data, tape, number, ..
    } = order;
    let answer = match order.task {
        Task::Load => serde_json::to_string(&measure::load(&engine, data, tape)?)?,
        Task::Open => serde_json::to_string(&measure::open(&engine, data, *number)?)?,
        Task::Write => return crash::write(&engine, data, tape, *number),
        Task::Check => serde_json::to_string(&crash::judged(&engine, data, tape, *number)?)?,
    };
    say(&answer)
}
