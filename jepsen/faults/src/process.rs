//! One process: started with its output in a file, signalled by pid, never left
//! behind.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};
use crate::wait::until;

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    /// Where in the log this run begins; a restart appends.
    log_from: u64,
}

impl Process {
    /// Starts a command; what it prints is appended to a file.
    pub fn spawn(command: &mut Command, log: &Path) -> Result<Self> {
        let said = || Error::io(log.display().to_string());
        let out = OpenOptions::new().create(true).append(true).open(log);
        let out = out.map_err(said())?;
        let log_from = out.metadata().map_err(said())?.len();
        // What the environment says to an etcd is meant for another.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(said())?)
            .stderr(out)
            .spawn()
            .map_err(Error::io(format!("{command:?}")))?;
        Ok(Self {
            child,
            log: log.to_owned(),
            log_from,
        })
    }

    /// Returns its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns how it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns what this run printed so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let from = usize::try_from(self.log_from).unwrap_or(usize::MAX);
        String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
    }

    /// Sends it a signal. To one that ended by itself it makes no difference.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.ended().is_some() {
            return Ok(());
        }
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::Unfit("no such pid".to_owned()))?;
        kill_process(pid, signal)
            .map_err(std::io::Error::from)
            .map_err(Error::io("kill"))
    }

    /// Kills without any chance to say goodbye.
    pub fn kill(&mut self) {
        // Already gone is as good as killed, and a child can always be waited for.
        if self.child.kill().is_ok() {
            let _reaped = self.child.wait();
        }
    }

    /// Asks it to end and waits for that.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait()
    }

    /// Waits for the end of a program that should end by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        until("the end of a program", || {
            self.child
                .try_wait()
                .map_err(|e| e.to_string())?
                .ok_or_else(|| "still running".to_owned())
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
