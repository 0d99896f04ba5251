//! Pseudo-terminals, and how a command gets one as its controlling terminal.
//!
//! Only a session's leader can take a terminal, and only the process itself can
//! become one, between fork and exec. That gap belongs to the shim's program: it
//! is started as `container-shim --terminal <who> <command>...` with the terminal
//! as standard input and output, begins a session, takes the terminal, and turns
//! into the command. What goes wrong it says on standard error, a pipe that ends
//! when the command takes over.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use kubelet_core::security::RunAs;
use rustix::fd::OwnedFd;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// The word by which the shim's program knows that it is to become a command on
/// a terminal.
pub(crate) const FLAG: &str = "--terminal";
/// The most bytes of a message about a command that did not start.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 4096;
/// What stands for the kubelet's own user.
const NOBODY_ELSE: &str = "-";
/// The exit code of a command that could not be run, as shells have it.
const NOT_RUN: i32 = 126;

/// How many characters a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// Opens a terminal: the end that a screen and keyboard have, and the command's.
pub(crate) fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let screen = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&screen)?;
    rustix::pty::unlockpt(&screen)?;
    let command = rustix::pty::ioctl_tiocgptpeer(&screen, flags)?;
    Ok((screen, command))
}

/// Tells a terminal, and through it the command, how large it is.
pub(crate) fn resize(screen: &OwnedFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(rustix::termios::tcsetwinsize(screen, size)?)
}

/// Makes the command that becomes `argv` on a terminal. Its standard error is to
/// be a pipe: what is read there before its end says why there is no command.
pub(crate) fn command(
    program: &OsStr,
    prefix: &[OsString],
    terminal: OwnedFd,
    argv: &[String],
    run_as: Option<RunAs>,
) -> io::Result<Command> {
    if let Some(who) = run_as {
        // The command may want to open its terminal once more, by name.
        let uid = rustix::fs::Uid::from_raw(who.uid);
        rustix::fs::fchown(&terminal, Some(uid), None)?;
    }
    let who = run_as.map_or_else(
        || NOBODY_ELSE.to_owned(),
        |who| format!("{}:{}", who.uid, who.gid),
    );
    let mut command = Command::new(program);
    command
        .args(prefix)
        .arg(FLAG)
        .arg(who)
        .args(argv)
        .stdin(Stdio::from(terminal.try_clone()?))
        .stdout(Stdio::from(terminal));
    Ok(command)
}

/// Becomes the command; returns only if that fails, with the exit code. Must be
/// called before any thread is started.
pub(crate) fn main(args: &[OsString]) -> i32 {
    let Ok(mut report) = report() else {
        return NOT_RUN;
    };
    let message = match become_command(args) {
        Ok(never) => match never {},
        Err(message) => message,
    };
    let _nobody_reads = report.write_all(message.as_bytes());
    NOT_RUN
}

/// Takes the pipe aside, where the command will not find it.
fn report() -> io::Result<std::fs::File> {
    let copy = rustix::io::fcntl_dupfd_cloexec(io::stderr(), 3)?;
    rustix::stdio::dup2_stderr(io::stdout())?;
    Ok(std::fs::File::from(copy))
}

fn become_command(args: &[OsString]) -> Result<std::convert::Infallible, String> {
    let [who, program, args @ ..] = args else {
        return Err("the container has no command".to_owned());
    };
    let say = |what: &str, e: rustix::io::Errno| format!("{what}: {}", io::Error::from(e));
    rustix::process::setsid().map_err(|e| say("cannot begin a session", e))?;
    rustix::process::ioctl_tiocsctty(io::stdin())
        .map_err(|e| say("cannot take the terminal", e))?;
    let mut command = Command::new(program);
    command.args(args);
    if let Some((uid, gid)) = who.to_str().and_then(|w| w.split_once(':')) {
        let id = |text: &str| text.parse().map_err(|e| format!("user {text:?}: {e}"));
        // Without supplementary groups: a change of the user drops them.
        command.uid(id(uid)?).gid(id(gid)?);
    } else if who != NOBODY_ELSE {
        return Err(format!("user {who:?} is not a pair of numbers"));
    }
    let error = command.exec();
    Err(exec_message(&program.to_string_lossy(), &error))
}

/// Says why a program cannot be run, as container runtimes do.
pub(crate) fn exec_message(program: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => {
            format!("exec: {program:?}: no such file or directory")
        }
        io::ErrorKind::NotFound => {
            format!("exec: {program:?}: executable file not found in $PATH")
        }
        io::ErrorKind::PermissionDenied => format!("exec: {program:?}: permission denied"),
        _ => format!("exec: {program:?}: {error}"),
    }
}
