//! One short run of everything on real processes, as CI does it; the seed is printed,
//! and a run that found something names the command that does it again.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

use std::process::{Command, Output};

fn jepsen(args: &[&str]) -> Output {
    let out = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_jepsen"))
        .arg("run")
        .arg(format!("--out={}", out.path().display()))
        .args(args)
        .output()
        .unwrap();
    eprintln!("{}", String::from_utf8_lossy(&run.stdout));
    eprintln!("{}", String::from_utf8_lossy(&run.stderr));
    run
}

#[test]
fn everything_is_hurt_and_nothing_is_lost() {
    let run = jepsen(&["--workload=all", "--nemesis=all", "--time=8s", "--rate=300"]);
    assert_eq!(run.status.code(), Some(0));
}

#[test]
fn what_is_asked_for_must_exist() {
    let run = jepsen(&["--workload=nothing"]);
    assert_eq!(run.status.code(), Some(3));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("no workload is called nothing"), "{said}");
}
