//! A few programs of the differential tester, against the real etcd.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use std::{
    path::PathBuf,
    process::{Command, Output},
};

/// Returns a tool's path, or says that the test cannot run and returns `None`.
fn tool(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os("KEELSON_TOOLS")
        .map(|folder| PathBuf::from(folder).join(name))
        .filter(|path| path.exists());
    if found.is_none() {
        eprintln!("cannot run: {name} is not there; run tests/run, which brings it");
    }
    found
}

fn diff(etcd: &std::path::Path, args: &[&str]) -> Output {
    let out = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_jepsen"))
        .arg("diff")
        .arg(format!("--peer=etcd={}", etcd.display()))
        .arg(format!("--out={}", out.path().display()))
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn a_member_and_etcd_say_the_same() {
    let Some(etcd) = tool("etcd") else { return };
    let run = diff(&etcd, &["--seeds=12", "--ops=150"]);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{run:?}");
    assert!(said.contains("12 programs"), "{said}");
}

#[test]
fn a_difference_is_found_shrunk_and_shown() {
    let Some(etcd) = tool("etcd") else { return };
    // The etcd of another version has another opinion of this program's last step.
    let Some(old) = tool("etcd-debian") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let text = "KV/Put key:\"a\",value:\"1\"\nAuth/AuthStatus\n";
    std::fs::write(&program, text).unwrap();
    let replay = format!("--replay={}", program.display());
    assert!(etcd != old);
    let run = diff(&old, &[&replay]);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(!run.status.success(), "{said}");
    assert!(said.contains("both  header"), "{said}");
    assert!(said.contains("DIFFERS Auth/AuthStatus"), "{said}");
}
