//! The processes that the measuring is done in: the program calls itself.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::de::DeserializeOwned;

use super::{crash, engines, measure};
use crate::report::say;

/// How often a process is asked whether it has ended.
const PAUSE: Duration = Duration::from_millis(2);

/// How much of a complaint is passed on.
const COMPLAINT_CHARS: usize = 240;

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

    /// Carries it out in another process and returns what that says; or why it says
    /// nothing, which is the engine's fault.
    pub(crate) fn answer<T: DeserializeOwned>(
        &self,
        patience: Duration,
    ) -> anyhow::Result<Result<T, String>> {
        let (mut out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = self.command()?;
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        let mut child = command.spawn()?;
        let until = Instant::now() + patience;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                return Ok(Err(format!("not within {patience:?}")));
            }
            std::thread::sleep(PAUSE);
        };
        if !status.success() {
            return Ok(Err(format!("{}; {status}", complaint(err)?)));
        }
        out.rewind()?;
        Ok(Ok(serde_json::from_reader(out)?))
    }
}

/// Returns the first lines that a process complained with.
pub(crate) fn complaint(mut file: File) -> anyhow::Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    // A panic says where in its first line, and what in the next.
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said = lines.take(2).collect::<Vec<_>>().join(" ");
    Ok(said.chars().take(COMPLAINT_CHARS).collect())
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
