//! The shim: one small process beside each container, which outlives the agent.
//!
//! It is this same program, started as `keelson container-shim <directory>`.
//! It leads its own session and adopts the orphans among its descendants, so
//! nothing the container starts can get away from it; it starts the command of
//! `spec.json` in a process group of its own, copies what that writes into the
//! log, and when the command ends it ends everything left, writes how it ended
//! and ends itself. It is synchronous and single-threaded on purpose: there is
//! one per container. It takes no orders; the agent signals the container's
//! process group and watches the shim's pidfd. Who wants to hear the container, or to
//! type what it reads, comes through a socket (`attach`).
//!
//! A shim whose directory disappears (somebody removed the data directory)
//! ends its container: a process nobody can find any more would be a leak.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use jiff::Timestamp;
use kubelet_core::cri_log::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus};

use crate::container_dir::{ContainerDir, ContainerSpec, ExitRecord, ShimRecord, StateRecord};
use crate::{proc, terminal};

pub(crate) mod attach;
mod log_file;

use attach::{Attached, Stdin};
use log_file::LogFile;
pub(crate) use log_file::{LOG_FILES_MAX, rotated};

/// How often a shim looks up without being woken, in seconds: to reap orphans
/// it adopted and to notice that its directory is gone.
const LOOK_UP_SECONDS: i64 = 10;
/// Most bytes read from the container at once.
const READ_BYTES_MAX: usize = 32 * 1024;
/// How often left-over descendants are killed before the shim gives up on
/// them; each round is followed by [`KILL_PAUSE`].
const KILL_ROUNDS_MAX: u32 = 400;
/// Pause between two rounds of killing.
const KILL_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
/// What the shim writes on its standard output once the container started or
/// could not be started; the agent waits for it.
pub(crate) const READY_LINE: &[u8] = b"ready\n";

/// Runs the shim of one container directory, or becomes a command on a terminal
/// (see `terminal`); returns the process's exit code. Must be called before any
/// thread is started.
pub fn main(args: &[OsString]) -> i32 {
    if let Some((first, args)) = args.split_first()
        && first == terminal::FLAG
    {
        return terminal::main(args);
    }
    let dir = args.first().map(PathBuf::from).unwrap_or_default();
    match run(&ContainerDir::new(&dir), &own_prefix(args.len())) {
        Ok(()) => 0,
        Err(error) => {
            // The agent hands the shim a file as standard error.
            let _lost = writeln!(io::stderr(), "container-shim {}: {error}", dir.display());
            1
        }
    }
}

/// Returns what stands between the program and its own arguments.
fn own_prefix(arguments: usize) -> Vec<OsString> {
    let all: Vec<OsString> = std::env::args_os().collect();
    let end = all.len().saturating_sub(arguments);
    all.get(1..end).unwrap_or_default().to_vec()
}

fn run(dir: &ContainerDir, prefix: &[OsString]) -> io::Result<()> {
    let Some(_lock) = dir.try_lock()? else {
        return Err(io::Error::other("another shim holds this container"));
    };
    // Under the lock: a directory being removed has no spec any more.
    let spec = dir.spec()?;
    if dir.shim()?.is_some() {
        return Err(io::Error::other("this container was already started once"));
    }
    // Fails only if this process already leads a group, which is as good.
    let _already_leader = rustix::process::setsid();
    let own_pid = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own_pid))?;
    let own = own_pid.as_raw_pid();
    let start_ticks = proc::stat(own).map_or(0, |s| s.start_ticks);
    dir.write_shim(&ShimRecord {
        pid: own,
        start_ticks,
        boot_id: proc::boot_id(),
    })?;

    let mut log = LogFile::open(&spec.log_path)?;
    let mut container = match start(dir, &spec, prefix) {
        Ok(container) => container,
        Err(message) => {
            dir.write_exit(&start_error(message))?;
            return say_ready();
        }
    };
    let started_at = Timestamp::now();
    let start_ticks = proc::stat(container.pid.as_raw_pid()).map_or(0, |s| s.start_ticks);
    let record = StateRecord {
        pid: container.pid.as_raw_pid(),
        start_ticks,
        started_at,
    };
    dir.write_state(&record)?;
    say_ready()?;

    let status = container.supervise(dir, &mut log)?;
    end_descendants(own);
    container.drain(&mut log);
    container.attached.farewell();
    let record = exit_record(status, started_at);
    // If the directory is gone there is nobody to tell.
    if dir.path().exists() {
        dir.write_exit(&record)
    } else {
        Ok(())
    }
}

/// Tells the agent that the outcome of the start can be read.
fn say_ready() -> io::Result<()> {
    let mut out = io::stdout();
    // The agent may have been killed meanwhile; the container goes on.
    let _nobody_reads = out.write_all(READY_LINE).and_then(|()| out.flush());
    Ok(())
}

struct Container {
    pid: Pid,
    outputs: Vec<(Stream, File)>,
    attached: Attached,
}

/// Starts the command; the error is the message users see.
fn start(
    dir: &ContainerDir,
    spec: &ContainerSpec,
    prefix: &[OsString],
) -> Result<Container, String> {
    // While the working directory, from which a name may count, is still the old one.
    let socket_dir = dir.path().canonicalize();
    let socket_dir = socket_dir.unwrap_or_else(|_| dir.path().to_owned());
    let program = spec.argv.first();
    let program = program.ok_or_else(|| "the container has no command".to_owned())?;
    // The command inherits the working directory: its user may be unable to go
    // through the directories that lead there.
    std::env::set_current_dir(&spec.working_dir)
        .map_err(|error| start_message(spec, program, &error))?;
    let (child, outputs, stdin) = if spec.tty {
        start_on_terminal(spec, prefix)?
    } else {
        start_on_pipes(spec)?
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(Container {
        pid: pid.ok_or_else(|| "the system gave no process id".to_owned())?,
        outputs,
        attached: Attached::open(&socket_dir, stdin),
    })
}

type Parts = (Child, Vec<(Stream, File)>, Stdin);

fn start_on_pipes(spec: &ContainerSpec) -> Result<Parts, String> {
    let (program, args) = spec.argv.split_first().unzip();
    let (program, args) = (
        program.cloned().unwrap_or_default(),
        args.unwrap_or_default(),
    );
    let pipes = || -> io::Result<_> { Ok((io::pipe()?, io::pipe()?)) };
    let no_pipes = |e: io::Error| format!("cannot make pipes: {e}");
    let ((out_reader, out_writer), (err_reader, err_writer)) = pipes().map_err(no_pipes)?;
    let (stdin, input) = if spec.stdin {
        let (reader, writer) = io::pipe().map_err(no_pipes)?;
        let writer = OwnedFd::from(writer);
        rustix::io::ioctl_fionbio(&writer, true).map_err(|e| no_pipes(e.into()))?;
        (Stdio::from(reader), Some(File::from(writer)))
    } else {
        (Stdio::null(), None)
    };
    let mut command = Command::new(&program);
    if let Some(who) = spec.run_as {
        // Without supplementary groups: a change of the user drops them.
        command.uid(who.uid).gid(who.gid);
    }
    let child = command
        .args(args)
        .env_clear()
        .envs(spec.env.iter().map(|(k, v)| (k, v)))
        .stdin(stdin)
        .stdout(out_writer)
        .stderr(err_writer)
        .process_group(0)
        .spawn()
        .map_err(|error| start_message(spec, &program, &error))?;
    let outputs = vec![
        (Stream::Stdout, File::from(OwnedFd::from(out_reader))),
        (Stream::Stderr, File::from(OwnedFd::from(err_reader))),
    ];
    let stdin = Stdin {
        file: input,
        tty: false,
        once: spec.stdin_once,
    };
    Ok((child, outputs, stdin))
}

/// Starts the command on a terminal: its output and errors are one.
fn start_on_terminal(spec: &ContainerSpec, prefix: &[OsString]) -> Result<Parts, String> {
    let failed = |e: io::Error| format!("cannot make a terminal: {e}");
    let (screen, end) = terminal::open().map_err(failed)?;
    let (mut report, writer) = io::pipe().map_err(failed)?;
    // This very program, also if its file was replaced meanwhile.
    let program = OsStr::new("/proc/self/exe");
    let mut child = terminal::command(program, prefix, end, &spec.argv, spec.run_as)
        .and_then(|mut command| {
            command
                .env_clear()
                .envs(spec.env.iter().map(|(k, v)| (k, v)))
                .stderr(writer)
                .spawn()
        })
        .map_err(failed)?;
    let mut message = String::new();
    // It ends when the command takes over.
    let _read = (&mut report)
        .take(terminal::MESSAGE_BYTES_MAX)
        .read_to_string(&mut message);
    if !message.is_empty() {
        let _reaped = child.wait();
        return Err(format!("failed to start process: {message}"));
    }
    let screen = File::from(screen);
    let keyboard = screen.try_clone().map_err(failed)?;
    rustix::io::ioctl_fionbio(&keyboard, true).map_err(|e| failed(e.into()))?;
    let stdin = Stdin {
        file: Some(keyboard),
        tty: true,
        once: spec.stdin_once,
    };
    Ok((child, vec![(Stream::Stdout, screen)], stdin))
}

fn start_message(spec: &ContainerSpec, program: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound && !spec.working_dir.is_dir() {
        let dir = spec.working_dir.display();
        return format!("failed to start process: chdir to {dir}: no such file or directory");
    }
    let message = terminal::exec_message(program, error);
    format!("failed to start process: {message}")
}

impl Container {
    /// Copies output until the command ends; returns how it ended.
    fn supervise(&mut self, dir: &ContainerDir, log: &mut LogFile) -> io::Result<WaitStatus> {
        let pidfd = rustix::process::pidfd_open(self.pid, PidfdFlags::empty())?;
        loop {
            let woken = self.wait(Some(pidfd.as_fd()), LOOK_UP_SECONDS, log)?;
            if let Some(status) = reap(self.pid) {
                return Ok(status);
            }
            if !woken && !dir.path().exists() {
                proc::signal_group(self.pid.as_raw_pid(), Signal::KILL);
            }
        }
    }

    /// Waits for output or the command's end and copies what there is; reports
    /// whether there was anything.
    fn wait(
        &mut self,
        pidfd: Option<rustix::fd::BorrowedFd<'_>>,
        seconds: i64,
        log: &mut LogFile,
    ) -> io::Result<bool> {
        let mut fds: Vec<_> = self
            .outputs
            .iter()
            .map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN))
            .collect();
        if let Some(pidfd) = pidfd {
            fds.push(PollFd::from_borrowed_fd(pidfd, PollFlags::IN));
            // While the container runs there may be people with it.
            fds.extend(self.attached.poll_fds());
        }
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let outputs = self.outputs.len();
        if pidfd.is_some() {
            // First, as its clients are still the ones that were waited for.
            self.attached
                .serve(ready.get(outputs + 1..).unwrap_or_default());
        }
        self.copy(&ready, log);
        Ok(true)
    }

    /// Copies from each pipe that is ready; forgets a pipe at its end.
    fn copy(&mut self, ready: &[PollFlags], log: &mut LogFile) {
        let mut buffer = [0_u8; READ_BYTES_MAX];
        let mut index = 0;
        let attached = &mut self.attached;
        self.outputs.retain_mut(|(stream, pipe)| {
            let is_ready = ready.get(index).is_some_and(|r| !r.is_empty());
            index += 1;
            if !is_ready {
                return true;
            }
            match pipe.read(&mut buffer) {
                Ok(0) => {
                    log.end_of_stream(*stream, Timestamp::now());
                    false
                }
                Ok(count) => {
                    log.append(*stream, &buffer[..count], Timestamp::now());
                    attached.tell(*stream, &buffer[..count]);
                    true
                }
                Err(error) => matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ),
            }
        });
    }

    /// Copies what is left in the pipes after everything has ended. A process
    /// outside the container that was given a pipe cannot hold this up.
    fn drain(&mut self, log: &mut LogFile) {
        while !self.outputs.is_empty() {
            if !self.wait(None, 0, log).unwrap_or(false) {
                break;
            }
        }
        log.end_of_stream(Stream::Stdout, Timestamp::now());
        log.end_of_stream(Stream::Stderr, Timestamp::now());
    }
}

/// Reaps every ended child; returns the command's status if it was among them.
fn reap(command: Pid) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == command {
            found = Some(status);
        }
    }
    found
}

/// Kills everything the command left behind, whatever group or session it
/// moved to: as subreaper this process is the ancestor of all of it.
fn end_descendants(own: i32) {
    for _ in 0..KILL_ROUNDS_MAX {
        if !has_children(own) {
            return;
        }
        let table = proc::all();
        let left = table
            .iter()
            .filter(|(pid, stat)| !stat.zombie && proc::descends(&table, **pid, own));
        left.for_each(|(pid, _)| proc::signal(*pid, Signal::KILL));
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if !has_children(own) {
            return;
        }
        std::thread::sleep(KILL_PAUSE);
    }
}

/// Asks the kernel for this process's children; if it does not say, assumes some.
fn has_children(own: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"))
        .map_or(true, |children| !children.trim().is_empty())
}

fn exit_record(status: WaitStatus, started_at: Timestamp) -> ExitRecord {
    let signal = status.terminating_signal();
    let exit_code = match signal {
        Some(signal) => 128 + signal,
        None => status.exit_status().unwrap_or(255),
    };
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    ExitRecord {
        exit_code,
        signal,
        started_at: Some(started_at),
        finished_at: Timestamp::now(),
        reason: reason.to_owned(),
        message: String::new(),
    }
}

fn start_error(message: String) -> ExitRecord {
    ExitRecord {
        exit_code: 128,
        signal: None,
        started_at: None,
        finished_at: Timestamp::now(),
        reason: "StartError".to_owned(),
        message,
    }
}
