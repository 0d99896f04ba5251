//! `examples/three-members` does what the README says of it.

use std::path::Path;
use std::process::Command;

use crate::harness::{Program, alone, free_address, need, until};
use crate::target::target;

#[test]
fn three_members_from_the_script() {
    let (target, etcdctl) = (target!(), need!("etcdctl"));
    if !target.ours {
        eprintln!("cannot run: the script starts our members");
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // The members meet on the port after each; whoever has it makes them fail.
    let ports: Vec<u16> = (0..3).map(|_| two_free_ports()).collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/three-members");
    let ports_said = ports
        .iter()
        .map(u16::to_string)
        .collect::<Vec<_>>()
        .join(" ");
    let mut script = Program::spawn(
        Command::new(script)
            .env("KEELSON", env!("CARGO_BIN_EXE_keelson"))
            .env("DATA", folder.path().join("data"))
            .env("PORTS", ports_said),
        &folder.path().join("errors"),
    );
    let ask = |words: &[&str]| {
        let endpoints: Vec<String> = ports.iter().map(|p| format!("127.0.0.1:{p}")).collect();
        let out = Command::new(&etcdctl)
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints.join(",")])
            .args(words)
            .output()
            .unwrap();
        if out.status.success() {
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&out.stderr).into_owned())
        }
    };
    until("three healthy members", || ask(&["endpoint", "health"]));
    let list = ask(&["member", "list"]).unwrap();
    for name in ["infra1", "infra2", "infra3"] {
        assert!(list.contains(&format!("started, {name}, ")), "{list}");
        script.line(&format!("{name} | "));
    }
    ask(&["put", "from", "etcdctl"]).unwrap();
    // Like ctrl-c: the script ends with its members.
    assert!(script.terminate().success());
    for port in ports {
        let gone = std::net::TcpStream::connect(("127.0.0.1", port));
        assert!(gone.is_err(), "somebody still listens on port {port}");
    }
}

/// Returns a port that is free, as the next one is.
fn two_free_ports() -> u16 {
    until("two free ports", || {
        let port = free_address().port();
        match std::net::TcpListener::bind(("127.0.0.1", port + 1)) {
            Ok(_free) => Ok(port),
            Err(taken) => Err(taken.to_string()),
        }
    })
}
