//! The store's command line as a whole process shows it, and etcdctl over TLS.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Program, alone, need};

fn keelson(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelson"));
    command.arg("kvstore").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts a store on free ports; returns it and what it says of its address.
fn start(folder: &Path, args: &[&str]) -> (Program, String) {
    let data = format!("--data-dir={}", folder.join("data").display());
    let own = ["kvstore", &data, "--name=a"];
    let program = Program::start(&folder.join("stderr"), &[&own, args].concat());
    let line = program.logged("ready to serve client requests");
    let from = line.find("127.0.0.1:").unwrap();
    let to = line[from..].find(']').unwrap();
    let addr = line[from..from + to].to_owned();
    (program, addr)
}

#[test]
fn version_and_help_are_printed() {
    let version = keelson(&["--version"]);
    assert!(version.status.success());
    let said = text(&version.stdout);
    assert!(said.starts_with("etcd Version: 3.5."), "{said}");
    assert_eq!(said.lines().count(), 4, "{said}");
    let help = keelson(&["-h"]);
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("\n  --max-txn-ops 128\n"));
}

#[test]
fn a_senseless_command_line_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let peers = format!("--listen-peer-urls=http://{}", taken.local_addr().unwrap());
    for (args, words) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["--election-timeout=100"], "--election-timeout"),
        (
            &["--initial-cluster=b=http://localhost:2380"],
            "--initial-cluster",
        ),
        (
            &["--listen-client-urls=http://127.0.0.1:1"],
            "--advertise-client-urls",
        ),
        (
            &[&peers, "--listen-client-urls=http://127.0.0.1:0"],
            "--listen-peer-urls",
        ),
    ] {
        let out = keelson(&[&[data.as_str(), "--log-level=error"], args].concat());
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

#[test]
fn the_log_is_in_etcds_form() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let outputs = format!("--log-outputs=stderr,{}", log.display());
    let listen = "--listen-client-urls=http://127.0.0.1:0";
    let (mut program, _) = start(
        folder.path(),
        &[listen, "--listen-peer-urls=http://127.0.0.1:0", &outputs],
    );
    assert!(program.terminate().success());
    let lines = std::fs::read_to_string(log).unwrap();
    assert_eq!(lines, program.errors(), "both places have it all");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for key in ["level", "ts", "caller", "msg"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
    }
}

#[test]
fn etcdctl_comes_in_over_certificates_the_store_made() {
    let etcdctl = need!("etcdctl");
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (_program, addr) = start(
        folder.path(),
        &[
            "--listen-client-urls=https://127.0.0.1:0",
            "--listen-peer-urls=https://127.0.0.1:0",
            "--auto-tls",
            "--peer-auto-tls",
        ],
    );
    let run = |args: &[&str]| {
        let mut command = Command::new(&etcdctl);
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=https://{addr}"))
            .args(["--command-timeout=3s", "--insecure-transport=false"])
            .args(args);
        command.output().unwrap()
    };
    let put = run(&["--insecure-skip-tls-verify", "put", "a", "1"]);
    assert_eq!(text(&put.stdout), "OK\n", "{}", text(&put.stderr));
    let made = folder.path().join("data/fixtures/client/cert.pem");
    let get = run(&["--cacert", made.to_str().unwrap(), "get", "a"]);
    assert_eq!(text(&get.stdout), "a\n1\n", "{}", text(&get.stderr));
    let stranger = run(&["get", "a"]);
    assert!(!stranger.status.success(), "{}", text(&stranger.stdout));
}
