//! Reading `/proc`: who is whose child, who carries which mark.

use std::collections::BTreeMap;
use std::fs;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What `/proc/<pid>/stat` says of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Parent process.
    pub(crate) ppid: i32,
    /// Session.
    pub(crate) session: i32,
    /// Whether it has ended and only waits to be reaped.
    pub(crate) zombie: bool,
    /// When it started, in ticks since boot: with the pid its identity.
    pub(crate) start_ticks: u64,
}

/// Reads one process, `None` if there is none.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name may hold blanks and parentheses; fields are counted from the last one.
fn parse(text: &str) -> Option<Stat> {
    let mut fields = text.get(text.rfind(')')? + 2..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let ppid = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(Stat {
        ppid,
        session,
        zombie: matches!(state, "Z" | "X"),
        start_ticks,
    })
}

/// Reports whether this very process, not another of the same pid, is alive.
pub(crate) fn is_alive(pid: i32, start_ticks: u64) -> bool {
    stat(pid).is_some_and(|s| s.start_ticks == start_ticks && !s.zombie)
}

/// Reads every process.
pub(crate) fn all() -> BTreeMap<i32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

/// Reports whether a process descends from another.
pub(crate) fn descends(table: &BTreeMap<i32, Stat>, pid: i32, ancestor: i32) -> bool {
    let mut current = pid;
    // A parent chain is short; the bound guards against a table read while it changed.
    for _ in 0..1024 {
        match table.get(&current) {
            Some(stat) if stat.ppid == ancestor => return true,
            Some(stat) if stat.ppid > 1 => current = stat.ppid,
            Some(_) | None => return false,
        }
    }
    false
}

/// Returns the value of a variable in a process's initial environment.
pub(crate) fn environ(pid: i32, variable: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = environ
        .split(|b| *b == 0)
        .find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Sends a signal to one process. It may be gone; that is no error.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone = rustix::process::kill_process(pid, signal);
    }
}

/// Sends a signal to a process group. It may be gone; that is no error.
pub(crate) fn signal_group(pgid: i32, signal: Signal) {
    if let Some(pgid) = Pid::from_raw(pgid) {
        let _gone = rustix::process::kill_process_group(pgid, signal);
    }
}

/// Waits on a descriptor through the event loop until it can be read.
pub(crate) fn watch_readable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    watch_for(fd, Interest::READABLE)
}

/// Waits on a descriptor through the event loop in both directions.
pub(crate) fn watch(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    watch_for(fd, Interest::READABLE | Interest::WRITABLE)
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for descriptors that may be closed meanwhile; an OwnedFd is \
              not, and this workspace forbids unsafe code"
)]
fn watch_for(fd: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// Returns the id of this boot; pids and ticks mean nothing across boots.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn fields_are_counted_from_the_last_parenthesis() {
        let line = "42 (a ) b) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 0 0";
        let stat = parse(line).unwrap();
        assert_eq!(
            (stat.ppid, stat.session, stat.start_ticks),
            (7, 41, 123_456)
        );
        assert!(!stat.zombie);
        assert_eq!(parse("42 (x"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn this_process_is_alive_and_descends_from_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        let stat = stat(me).unwrap();
        assert!(is_alive(me, stat.start_ticks));
        assert!(!is_alive(me, stat.start_ticks + 1));
        assert!(descends(&all(), me, stat.ppid));
        assert!(!descends(&all(), stat.ppid, me));
        assert_eq!(environ(me, "PATH"), std::env::var("PATH").ok());
    }
}
