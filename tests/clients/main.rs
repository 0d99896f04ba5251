//! Clients of Kubernetes that we did not write, used as their users use them: the
//! libraries for Python, Node and Rust, helm, and operators written with kopf and
//! kube-rs.
//!
//! As in `tests/e2e`, a test whose tool is missing says so and passes; `tests/run`
//! brings them all.

#![allow(clippy::unwrap_used, reason = "a test fails where it finds a surprise")]
#![allow(clippy::print_stderr, reason = "what a test says goes to its output")]

#[path = "../e2e/harness.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest of it")]
mod harness;
#[path = "../e2e/script.rs"]
mod script;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::{Cluster, alone, need};

/// How long a whole script may take; one that hangs is stopped and fails.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(300);

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(path)
}

/// Runs a script against a cluster of its own to its end, which must be a good one.
fn passes(command: &mut Command) {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let folder = cluster.data_dir();
    command
        .env("KUBECONFIG", folder.join("kubeconfig"))
        .env("KUBECTL", &kubectl)
        .env("HOME", &folder);
    script::passes(command, &folder, SCRIPT_PATIENCE);
}

fn python(libraries: &Path, name: &str) -> Command {
    let mut command = Command::new("python3");
    command
        .arg(file("python").join(name))
        .env("PYTHONPATH", libraries)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn python_kubernetes() {
    let libraries = need!("kubernetes-python");
    passes(&mut python(&libraries, "kubernetes_client.py"));
}

#[test]
fn python_kopf_operator() {
    let libraries = need!("kubernetes-python");
    passes(&mut python(&libraries, "kopf_driver.py"));
}

#[test]
fn node_kubernetes() {
    let libraries = need!("kubernetes-node");
    let mut command = Command::new("node");
    command
        .arg(file("node/kubernetes_client.mjs"))
        .env("NODE_PATH", libraries.join("node_modules"));
    passes(&mut command);
}

#[test]
fn helm() {
    let helm = need!("helm");
    let mut command = Command::new("bash");
    command.arg(file("helm.sh")).env("HELM", helm);
    passes(&mut command);
}

#[test]
fn rust_operator() {
    // Only together with the other tools, since it takes a while to build.
    let _tools = need!("kubectl");
    let target = Path::new(env!("CARGO_BIN_EXE_keelson"))
        .ancestors()
        .nth(2)
        .unwrap()
        .join("client-rust");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(file("rust/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &target)
        // What cargo tells the test of its own package is no news for another.
        .env_remove("RUSTFLAGS")
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "the operator in Rust does not build");
    passes(&mut Command::new(target.join("debug/client-rust")));
}
