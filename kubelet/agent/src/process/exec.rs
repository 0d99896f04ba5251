//! Running a command beside a container: probes and lifecycle hooks.
//!
//! The command gets the container's environment, mark, user and working
//! directory.
//! It is a child of the agent, in a process group of its own that is killed
//! when the time is over or the caller goes away.

use std::os::fd::AsRawFd as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::RuntimeError;
use crate::container_dir::ContainerSpec;
use crate::proc;
use crate::runtime::ExecOutput;

/// How much of what the command writes is kept (upstream's probe limit, 10 KiB).
const OUTPUT_BYTES_MAX: u64 = 10 * 1024;

/// Kills the command's group when dropped, whatever became of the caller.
pub(super) struct Group(pub(super) i32);

impl Drop for Group {
    fn drop(&mut self) {
        proc::signal_group(self.0, Signal::KILL);
    }
}

pub(super) async fn exec(
    spec: &ContainerSpec,
    command: Vec<String>,
    timeout: Duration,
) -> Result<ExecOutput, RuntimeError> {
    let Some((program, args)) = command.split_first() else {
        return Err(RuntimeError::Exec("the command is empty".to_owned()));
    };
    let dir = working_dir(spec)?;
    let mut child = Command::new(program);
    if let Some(who) = spec.run_as {
        child.uid(who.uid).gid(who.gid);
    }
    let mut child = child
        .args(args)
        .env_clear()
        .envs(spec.env.iter().map(|(k, v)| (k, v)))
        .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| RuntimeError::Exec(format!("exec: {program:?}: {e}")))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Group);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let run = async {
        let (out, err) = tokio::join!(read(out), read(err));
        let status = child.wait().await;
        (status, out + &err)
    };
    let finished = tokio::time::timeout(timeout, run).await;
    drop(group);
    match finished {
        Ok((Ok(status), output)) => {
            use std::os::unix::process::ExitStatusExt as _;
            let code = status.code().or_else(|| status.signal().map(|s| 128 + s));
            Ok(ExecOutput {
                exit_code: Some(code.unwrap_or(255)),
                output,
            })
        }
        Ok((Err(error), _)) => Err(RuntimeError::Exec(error.to_string())),
        Err(_elapsed) => {
            let output = format!("command timed out after {}s", timeout.as_secs());
            Ok(ExecOutput {
                exit_code: None,
                output,
            })
        }
    }
}

/// Opens the container's working directory.
pub(super) fn working_dir(spec: &ContainerSpec) -> Result<OwnedFd, RuntimeError> {
    // By descriptor: the container's user may be unable to go through the
    // directories that lead there.
    // Only a directory: opening a pipe the container put there would never end.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(&spec.working_dir, flags, Mode::empty())
        .map_err(|e| RuntimeError::Exec(format!("chdir to {}: {e}", spec.working_dir.display())))
}

/// Reads the beginning of a stream and throws the rest away, so that the
/// command is not held up.
async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else {
        return String::new();
    };
    let mut kept = Vec::new();
    let _read = (&mut stream)
        .take(OUTPUT_BYTES_MAX)
        .read_to_end(&mut kept)
        .await;
    let _discarded = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&kept).into_owned()
}
