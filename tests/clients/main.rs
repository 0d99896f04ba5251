//! Clients of Kubernetes that we did not write, used as their users use them: the
//! libraries for Python, Node and Rust, helm, operators written with kopf and kube-rs,
//! and what is written with client-go and so speaks protobuf: traefik, kubectl.
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

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

/// Writes what nobody else may know: certificates of a host, with their keys.
fn certificates(folder: &Path) {
    for name in ["first", "second"] {
        let made = rcgen::generate_simple_self_signed(vec!["web.example".to_owned()]).unwrap();
        let files = [
            ("crt", made.cert.pem()),
            ("key", made.signing_key.serialize_pem()),
        ];
        for (end, text) in files {
            std::fs::write(folder.join(name).with_extension(end), text).unwrap();
        }
    }
}

#[test]
fn traefik_controller() {
    let traefik = need!("traefik");
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let mut command = Command::new("python3");
    command
        .arg(file("python/traefik.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TRAEFIK", traefik)
        .env("CERTIFICATES", folder.path());
    passes(&mut command);
}

/// A kubectl whose typed calls must all be in protobuf.
fn speaks_protobuf(kubectl: &Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    let wanted = rcgen::CertificateParams::default();
    let request = wanted.serialize_request(&key).unwrap().pem().unwrap();
    let mut command = Command::new("python3");
    command
        .arg(file("python/kubectl_protobuf.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SPEAKER", kubectl)
        .env("REQUEST", STANDARD.encode(request));
    passes(&mut command);
}

#[test]
fn kubectl_speaks_protobuf() {
    speaks_protobuf(&need!("kubectl"));
}

#[test]
fn kubectl_1_33_speaks_protobuf() {
    speaks_protobuf(&need!("kubectl-1.33"));
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
