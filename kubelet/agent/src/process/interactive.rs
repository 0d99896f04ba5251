//! Running a command beside a container with somebody at the other end.
//!
//! As [`super::exec`], but input and output flow while it runs, over pipes or a
//! terminal. The command and what it leaves behind in its process group, on a
//! terminal in its session, are killed when it ends, when the user leaves and
//! when the container ends: in a container of its own it would not outlive
//! either.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kubelet_core::cri_log::Stream;
use rustix::fd::OwnedFd;
use rustix::process::Signal;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::RuntimeError;
use super::exec::{Group, working_dir};
use crate::container_dir::ContainerSpec;
use crate::proc;
use crate::session::{self, Backstage, Input, PIECE_BYTES, Session, Wanted};
use crate::terminal;

/// How long output is waited for after the command has ended. It is there at
/// once, unless something that got away holds the other end open.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What ends the input of a terminal, at the beginning of a line (`^D`).
const END_OF_INPUT: u8 = 4;

type Output = mpsc::Sender<(Stream, Bytes)>;

/// Starts the command; `container_ended` turns true when the container ends.
pub(super) async fn start(
    spec: &ContainerSpec,
    shim_command: &[OsString],
    command: Vec<String>,
    wanted: Wanted,
    container_ended: watch::Receiver<bool>,
) -> Result<Session, RuntimeError> {
    if wanted.tty {
        on_terminal(spec, shim_command, &command, wanted, container_ended).await
    } else {
        on_pipes(spec, &command, wanted, container_ended)
    }
}

fn on_pipes(
    spec: &ContainerSpec,
    command: &[String],
    wanted: Wanted,
    container_ended: watch::Receiver<bool>,
) -> Result<Session, RuntimeError> {
    let (program, args) = command.split_first().ok_or_else(no_command)?;
    let dir = working_dir(spec)?;
    let pipe = |wanted: bool| {
        if wanted {
            Stdio::piped()
        } else {
            Stdio::null()
        }
    };
    let mut command = Command::new(program);
    if let Some(who) = spec.run_as {
        command.uid(who.uid).gid(who.gid);
    }
    let mut child = command
        .args(args)
        .env_clear()
        .envs(spec.env.iter().map(|(k, v)| (k, v)))
        .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
        .stdin(pipe(wanted.stdin))
        .stdout(pipe(wanted.stdout))
        .stderr(pipe(wanted.stderr))
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| RuntimeError::Exec(terminal::exec_message(program, &e)))?;
    let (session, stage) = session::pair();
    let (input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let running = Running::new(child, false);
    tokio::spawn(async move {
        let Backstage {
            input: from_user,
            output,
            end,
            left,
        } = stage;
        let (exited, has_exited) = watch::channel(false);
        let errors = output.clone();
        let streams = async {
            tokio::join!(
                copy(out, Stream::Stdout, output, has_exited.clone()),
                copy(err, Stream::Stderr, errors, has_exited.clone()),
                feed(input, from_user, has_exited.clone()),
            )
        };
        let ended = running.wait(container_ended, exited);
        tell_end(streams, ended, left, end).await;
    });
    Ok(session)
}

/// Tells how a command ended, once what it said was passed on; nothing if the user
/// leaves before, which ends it.
async fn tell_end<S>(
    streams: impl Future<Output = S>,
    ended: impl Future<Output = session::Ended>,
    left: CancellationToken,
    end: oneshot::Sender<session::Ended>,
) {
    let all = async { tokio::join!(streams, ended).1 };
    tokio::select! {
        () = left.cancelled() => {}
        status = all => {
            let _nobody_asks = end.send(status);
        }
    }
}

async fn on_terminal(
    spec: &ContainerSpec,
    shim_command: &[OsString],
    argv: &[String],
    wanted: Wanted,
    container_ended: watch::Receiver<bool>,
) -> Result<Session, RuntimeError> {
    if argv.is_empty() {
        return Err(no_command());
    }
    let failed = |e: io::Error| RuntimeError::Exec(format!("cannot make a terminal: {e}"));
    let (screen, command_end) = terminal::open().map_err(failed)?;
    let child = spawn_on_terminal(spec, shim_command, argv, command_end).await?;
    let running = Running::new(child, true);
    rustix::io::ioctl_fionbio(&screen, true).map_err(|e| failed(e.into()))?;
    let screen = Arc::new(proc::watch(screen).map_err(failed)?);
    let (session, stage) = session::pair();
    tokio::spawn(async move {
        let Backstage {
            input: from_user,
            output,
            end,
            left,
        } = stage;
        let (exited, has_exited) = watch::channel(false);
        let heard = wanted.stdout.then_some(output);
        let streams = async {
            tokio::join!(
                show(&screen, heard, has_exited.clone()),
                type_in(&screen, from_user, has_exited.clone()),
            )
        };
        let ended = running.wait(container_ended, exited);
        tell_end(streams, ended, left, end).await;
    });
    Ok(session)
}

/// Starts the helper that becomes the command, and waits until it has.
async fn spawn_on_terminal(
    spec: &ContainerSpec,
    shim_command: &[OsString],
    argv: &[String],
    command_end: OwnedFd,
) -> Result<Child, RuntimeError> {
    let exec = |e: &dyn std::fmt::Display| RuntimeError::Exec(e.to_string());
    let dir = working_dir(spec)?;
    let (program, prefix) = shim_command
        .split_first()
        .ok_or_else(|| exec(&"no program makes terminals"))?;
    let spawn = |program: &OsString| -> io::Result<Child> {
        let end = command_end.try_clone()?;
        let mut command = terminal::command(program, prefix, end, argv, spec.run_as)?;
        command
            .env_clear()
            .envs(spec.env.iter().map(|(k, v)| (k, v)))
            .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
            .stderr(Stdio::piped());
        Command::from(command).kill_on_drop(true).spawn()
    };
    let spawned = match spawn(program) {
        // The program was replaced on disk while it runs.
        Err(e) if e.kind() == io::ErrorKind::NotFound => spawn(&OsString::from("/proc/self/exe")),
        spawned => spawned,
    };
    let mut child = spawned.map_err(|e| exec(&e))?;
    drop(command_end);
    let mut message = String::new();
    if let Some(report) = child.stderr.take() {
        let _read = report
            .take(terminal::MESSAGE_BYTES_MAX)
            .read_to_string(&mut message)
            .await;
    }
    if message.is_empty() {
        return Ok(child);
    }
    let _reaped = child.wait().await;
    Err(exec(&message))
}

fn no_command() -> RuntimeError {
    RuntimeError::Exec("the command is empty".to_owned())
}

/// The command, killed with its own when this is dropped.
struct Running {
    child: Child,
    group: Option<Group>,
    pid: Option<i32>,
    /// Whether it leads a session.
    leads: bool,
}

impl Running {
    fn new(child: Child, leads: bool) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            child,
            group: pid.map(Group),
            pid,
            leads,
        }
    }

    /// Waits until the command has ended, and ends it if the container does. That
    /// it has is told to its streams, which may wait no longer.
    async fn wait(
        mut self,
        mut container_ended: watch::Receiver<bool>,
        exited: watch::Sender<bool>,
    ) -> session::Ended {
        let status = tokio::select! {
            status = self.child.wait() => status,
            () = turned(&mut container_ended) => {
                self.end();
                self.child.wait().await
            }
        };
        self.end();
        exited.send_replace(true);
        match status {
            Ok(status) => Ok(exit_code(status)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Kills what is left of the command.
    fn end(&mut self) {
        drop(self.group.take());
        let Some(leader) = self.pid.take().filter(|_| self.leads) else {
            return;
        };
        for (pid, stat) in proc::all() {
            if stat.session == leader && !stat.zombie {
                proc::signal(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s));
    code.unwrap_or(255)
}

/// Copies a pipe to the user until its end. Nobody listening does not hold the
/// command up: what it writes is read and thrown away.
async fn copy(
    pipe: Option<impl AsyncRead + Unpin>,
    stream: Stream,
    output: Output,
    exited: watch::Receiver<bool>,
) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; PIECE_BYTES];
    while let Some(Ok(count)) = until_silent(pipe.read(&mut buffer), exited.clone()).await {
        if count == 0 {
            return;
        }
        let piece = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
        let _nobody_listens = output.send((stream, piece)).await;
    }
}

/// Waits until it is true. Whoever forgot to say so has ended too.
async fn turned(flag: &mut watch::Receiver<bool>) {
    let _ref_or_gone = flag.wait_for(|is_true| *is_true).await.is_ok();
}

/// Waits for output; `None` once the command has ended and nothing came for a
/// while.
async fn until_silent<T>(
    read: impl Future<Output = T>,
    mut exited: watch::Receiver<bool>,
) -> Option<T> {
    let silence = async {
        turned(&mut exited).await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        biased;
        read = read => Some(read),
        () = silence => None,
    }
}

/// Copies the user's input to a pipe until the command has ended.
async fn feed(
    pipe: Option<ChildStdin>,
    mut input: mpsc::Receiver<Input>,
    mut exited: watch::Receiver<bool>,
) {
    let feeding = async {
        let mut pipe = pipe;
        while let Some(input) = input.recv().await {
            match (input, &mut pipe) {
                (Input::Bytes(bytes), Some(open)) => {
                    if open.write_all(&bytes).await.is_err() {
                        // The command reads no more; what comes is thrown away.
                        pipe = None;
                    }
                }
                (Input::End, _) => pipe = None,
                (Input::Bytes(_) | Input::Resize(_), _) => {}
            }
        }
    };
    tokio::select! {
        () = feeding => {}
        () = turned(&mut exited) => {}
    }
}

/// Copies what the terminal shows to the user.
async fn show(screen: &AsyncFd<OwnedFd>, output: Option<Output>, exited: watch::Receiver<bool>) {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let read = screen.async_io(tokio::io::Interest::READABLE, |fd| {
            Ok(rustix::io::read(fd, &mut buffer[..])?)
        });
        // With the last process gone reading fails (EIO): the end.
        let Some(Ok(count @ 1..)) = until_silent(read, exited.clone()).await else {
            return;
        };
        let piece = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
        if let Some(output) = &output {
            let _nobody_listens = output.send((Stream::Stdout, piece)).await;
        }
    }
}

/// Types what the user sends, until the command has ended.
async fn type_in(
    screen: &AsyncFd<OwnedFd>,
    mut input: mpsc::Receiver<Input>,
    mut exited: watch::Receiver<bool>,
) {
    let typing = async {
        while let Some(input) = input.recv().await {
            let typed = match input {
                Input::Bytes(bytes) => type_all(screen, &bytes).await,
                Input::End => type_all(screen, &[END_OF_INPUT]).await,
                Input::Resize(size) => terminal::resize(screen.get_ref(), size),
            };
            if let Err(error) = typed {
                tracing::debug!(%error, "a terminal does not take input");
            }
        }
    };
    tokio::select! {
        () = typing => {}
        () = turned(&mut exited) => {}
    }
}

async fn type_all(screen: &AsyncFd<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let write = screen.async_io(tokio::io::Interest::WRITABLE, |fd| {
            Ok(rustix::io::write(fd, bytes)?)
        });
        let count = write.await?;
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}
