//! The storage's conformance suite over a real etcd, whose binary
//! `KEELSON_TOOLS` has; without it, the tests say that they cannot run.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, and says what it skipped or measured"
)]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use apiserver::storage::etcd::{EtcdConfig, EtcdStore};
use apiserver::storage::{Store, testing};

/// A running etcd, ended on drop.
struct Etcd {
    child: Child,
    url: String,
    _dir: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Best effort: it may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn start() -> Option<Etcd> {
    let binary = std::env::var_os("KEELSON_TOOLS")
        .map(|folder| Path::new(&folder).join("etcd"))
        .filter(|binary| binary.exists());
    let Some(binary) = binary else {
        println!("cannot run: no etcd in KEELSON_TOOLS; run tests/run, which brings it");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let (url, peer) = (free_url(), free_url());
    let child = command(&binary, dir.path(), &url, &peer).spawn().unwrap();
    Some(Etcd {
        child,
        url,
        _dir: dir,
    })
}

fn command(binary: &Path, dir: &Path, url: &str, peer: &str) -> Command {
    let mut command = Command::new(binary);
    command
        .arg("--data-dir")
        .arg(dir)
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", peer])
        .args(["--initial-advertise-peer-urls", peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

async fn connect(etcd: &Etcd) -> EtcdStore {
    // The first endpoint refuses: failing over is part of connecting.
    let config = EtcdConfig {
        endpoints: vec![free_url(), etcd.url.clone()],
        tls: None,
    };
    EtcdStore::connect(&config).await.unwrap()
}

#[tokio::test]
async fn raw_store() {
    let Some(etcd) = start() else { return };
    let store = connect(&etcd).await;
    testing::run_store(&store).await;
    testing::run_expiry(&store).await;
}

#[tokio::test]
async fn resource() {
    let Some(etcd) = start() else { return };
    let store: Arc<dyn Store> = Arc::new(connect(&etcd).await);
    testing::run_resource(&store).await;
}
