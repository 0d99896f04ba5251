//! API servers over a cluster, hurt for a few seconds: clean as they are, and refused
//! as soon as one answer is falsified on its way to the record.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

use std::process::Command;
use std::sync::{Mutex, MutexGuard};

/// Clusters run one at a time: two cores cannot keep several honest.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|p| p.into_inner())
}

/// Runs, and returns the exit code and what was said.
fn jepsen(args: &[&str]) -> (Option<i32>, String) {
    let _alone = alone();
    let out = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_jepsen"))
        .arg("api")
        .arg(format!("--out={}", out.path().display()))
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    eprintln!("{said}{}", String::from_utf8_lossy(&run.stderr));
    (run.status.code(), said)
}

#[test]
fn nothing_is_lost_whatever_is_hurt() {
    let (code, said) = jepsen(&["--time=8s"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Runs that may pass before one has an answer of the kind that is to be falsified: on
/// a busy machine a short one may have none, and says so.
const RUNS_MAX: usize = 5;

/// Falsifies one answer of an undisturbed run, on which one member is enough.
fn lie(lie: &str, found: &str) {
    let lie = format!("--lie={lie}");
    let args = ["--time=5s", "--nemesis=none", "--nodes=1", "--loopback"];
    let run = || jepsen(&[&[&*lie], &args[..]].concat());
    let mut runs = std::iter::repeat_with(run).take(RUNS_MAX);
    let lied = runs.find(|(_, said)| !said.contains("nothing came that could be falsified"));
    let (code, said) = lied.expect("a run with something to falsify");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(found), "no {found} in {said}");
}

#[test]
fn an_event_that_is_dropped_is_missed() {
    lie("drop-event", "skipped-event");
}

#[test]
fn a_list_that_is_old_is_found_out() {
    lie("stale-list", "stale-read");
}

#[test]
fn a_conflict_that_is_hidden_is_a_lost_write() {
    lie("lost-update", "lost-write");
}
