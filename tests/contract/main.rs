//! Contract tests: client libraries and tools we did not write, used as their
//! users use them, against a real etcd and against ours.
//!
//! Every script runs against both servers. That it passes on etcd is what makes
//! it a contract; a script that asserted our habits would fail there. As in
//! `tests/e2e`, a test whose tool is missing says so and passes; `tests/run`
//! brings them all.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

#[path = "../e2e/harness.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod harness;
#[path = "../e2e/script.rs"]
mod script;
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use server::{Kind, Server};

/// How long a whole script may take; one that hangs is stopped and fails.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(240);

/// Runs a script to its end, which must be a good one.
fn passes(command: &mut Command, server: &Server) {
    eprintln!("against {:?} at {}", server.kind(), server.address());
    command.env("CONTRACT_ENDPOINT", server.address());
    script::passes(command, server.folder(), SCRIPT_PATIENCE);
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/contract")
        .join(path)
}

fn python(libraries: &Path, name: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .arg(file("python").join(name))
        .env("PYTHONPATH", libraries)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // The stubs of etcd3 are older than what the C parser takes.
        .env("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python");
    command
}

fn python_etcd3(kind: Kind) {
    let libraries = harness::need!("python-clients");
    let Some(server) = Server::start(kind) else {
        return;
    };
    passes(&mut python(&libraries, "etcd3_client.py"), &server);
}

fn python_etcd3_over_tls(kind: Kind) {
    let libraries = harness::need!("python-clients");
    let Some(server) = Server::start_with_tls(kind) else {
        return;
    };
    let mut command = python(&libraries, "etcd3_client.py");
    for (name, file) in [
        ("CA", "ca.crt"),
        ("CERT", "client.crt"),
        ("KEY", "client.key"),
    ] {
        command.env(format!("CONTRACT_{name}"), server.folder().join(file));
    }
    passes(&mut command, &server);
}

fn python_aetcd(kind: Kind) {
    let libraries = harness::need!("python-clients");
    let Some(server) = Server::start(kind) else {
        return;
    };
    passes(&mut python(&libraries, "aetcd_client.py"), &server);
}

fn node_etcd3(kind: Kind) {
    let libraries = harness::need!("node-clients");
    let Some(server) = Server::start(kind) else {
        return;
    };
    let mut command = Command::new("node");
    command
        .arg(file("node/etcd3_client.js"))
        .env("NODE_PATH", libraries.join("node_modules"));
    passes(&mut command, &server);
}

fn etcdctl(kind: Kind, program: &Path) {
    let Some(server) = Server::start(kind) else {
        return;
    };
    let mut command = Command::new("bash");
    command
        .arg(file("etcdctl/etcdctl.sh"))
        .env("ETCDCTL", program);
    passes(&mut command, &server);
}

fn etcdctl_3_5(kind: Kind) {
    etcdctl(kind, &harness::need!("etcdctl"));
}

fn etcdctl_3_4(kind: Kind) {
    etcdctl(kind, &harness::need!("etcdctl-debian"));
}

/// Builds the contracts in Rust, once. They are no part of the workspace, since
/// the library wants `protoc` to be built.
fn rust_contracts(protoc: &Path) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_BIN_EXE_keelson"))
            .ancestors()
            .nth(2)
            .unwrap()
            .join("contract-rust");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--manifest-path"])
            .arg(file("rust/Cargo.toml"))
            .env("PROTOC", protoc)
            .env("CARGO_TARGET_DIR", &target)
            // What cargo tells the test of its own package is no news for another.
            .env_remove("RUSTFLAGS")
            .stdin(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "the contracts in Rust do not build");
        target.join("debug/contract-rust")
    })
}

fn rust(kind: Kind, contract: &str) {
    let protoc = harness::need!("protoc");
    let program = rust_contracts(&protoc);
    let Some(server) = Server::start(kind) else {
        return;
    };
    passes(Command::new(program).arg(contract), &server);
}

/// Makes of each contract two tests: what etcd does, and that ours does it too.
macro_rules! contracts {
    ($($name:ident: $contract:path $([$more:literal])?),* $(,)?) => {
        mod on_etcd {
            $(#[test] fn $name() { $contract(super::Kind::Etcd $(, $more)?); })*
        }
        mod on_keelson {
            $(#[test] fn $name() { $contract(super::Kind::Keelson $(, $more)?); })*
        }
    };
}

contracts![
    python_etcd3: super::python_etcd3,
    python_etcd3_over_tls: super::python_etcd3_over_tls,
    python_aetcd: super::python_aetcd,
    node_etcd3: super::node_etcd3,
    etcdctl_3_5: super::etcdctl_3_5,
    etcdctl_3_4: super::etcdctl_3_4,
    rust_key_values: super::rust["key_values"],
    rust_transactions: super::rust["transactions"],
    rust_watches: super::rust["watches"],
    rust_leases: super::rust["leases"],
    rust_locks_and_elections: super::rust["locks_and_elections"],
    rust_maintenance: super::rust["maintenance"],
    rust_users: super::rust["users"],
];
