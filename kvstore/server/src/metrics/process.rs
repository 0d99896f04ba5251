//! What the kernel says of this process.

use std::{fs, time::UNIX_EPOCH};

/// Ticks of a second in `/proc`: 100 for programs on every Linux (proc(5), USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// Numbers of the process; zero where the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) resident_bytes: i64,
    pub(crate) virtual_bytes: i64,
    pub(crate) cpu_seconds: f64,
    /// Unix time.
    pub(crate) started: f64,
    pub(crate) fds_open: i64,
    pub(crate) fds_max: i64,
}

impl Process {
    pub(crate) fn read() -> Self {
        let status = text("/proc/self/status");
        let (cpu, started) = times(&text("/proc/self/stat"), &text("/proc/stat"));
        Self {
            resident_bytes: kilobytes(&status, "VmRSS:") * 1024,
            virtual_bytes: kilobytes(&status, "VmSize:") * 1024,
            cpu_seconds: cpu,
            started,
            fds_open: fs::read_dir("/proc/self/fd")
                .map_or(0, |fds| i64::try_from(fds.count()).unwrap_or(i64::MAX)),
            fds_max: soft_limit(&text("/proc/self/limits")),
        }
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn kilobytes(status: &str, name: &str) -> i64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns processor seconds and the start in Unix time.
fn times(stat: &str, system: &str) -> (f64, f64) {
    // The name in parentheses may hold anything; fields are counted behind it.
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let ticks = |field: usize| -> f64 {
        // proc(5) numbers the fields from 1, and two stand before these.
        let number = fields.get(field - 3).and_then(|text| text.parse().ok());
        number.unwrap_or(0.0)
    };
    let cpu = (ticks(14) + ticks(15)) / TICKS_PER_SECOND;
    let boot = system
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|seconds| seconds.trim().parse::<f64>().ok());
    let started = boot.map_or(0.0, |boot| boot + ticks(22) / TICKS_PER_SECOND);
    let now = UNIX_EPOCH
        .elapsed()
        .map_or(f64::MAX, |now| now.as_secs_f64());
    (cpu, started.min(now))
}

/// Reads the limit of open files; "unlimited" is as many as can be said.
fn soft_limit(limits: &str) -> i64 {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => i64::MAX,
        Some(number) => number.parse().unwrap_or(0),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_somewhere_sometime() {
        let process = Process::read();
        assert!(process.resident_bytes > 1 << 20, "{process:?}");
        assert!(process.virtual_bytes >= process.resident_bytes);
        assert!(process.fds_open >= 3 && process.fds_max >= process.fds_open);
        assert!(process.started > 1.0e9, "{process:?}");
    }

    #[test]
    fn fields_are_counted_behind_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 1000 0 0";
        let (cpu, started) = times(stat, "cpu 1\nbtime 1700000000\n");
        assert_eq!((cpu, started), (2.0, 1_700_000_010.0));
    }

    #[test]
    fn no_limit_is_the_largest() {
        assert_eq!(
            soft_limit("Max open files  unlimited  unlimited files"),
            i64::MAX
        );
        assert_eq!(soft_limit("Max open files   1024   4096  files"), 1024);
        assert_eq!(soft_limit(""), 0);
    }
}
