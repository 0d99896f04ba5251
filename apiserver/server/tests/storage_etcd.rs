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
use apiserver::storage::store::Cas;
use apiserver::storage::{Store, StoreError, testing};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

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

/// What is lost on the way from now on; with it the connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Nothing,
    Requests,
    Answers,
}

/// Passes bytes between the store and one endpoint, until told to lose some.
async fn losing(to: &str, lost: watch::Receiver<Lost>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let to = to.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            // etcd may not listen yet; then the client comes again.
            let Ok(server) = tokio::net::TcpStream::connect(&to).await else {
                continue;
            };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let lost = lost.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = pass(from_client, to_server, &lost, Lost::Requests) => {}
                    () = pass(from_server, to_client, &lost, Lost::Answers) => {}
                }
            });
        }
    });
    url
}

/// Passes bytes one way; ends when they are to be lost.
async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    lost: &watch::Receiver<Lost>,
    way: Lost,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if *lost.borrow() == way || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn writes_whose_fate_was_unknown() {
    let Some(etcd) = start() else { return };
    let (lose, _) = watch::channel(Lost::Nothing);
    // Each store begins with the endpoint that loses and ends with the other.
    let connect = async || {
        lose.send_replace(Lost::Nothing);
        let (lossy, direct) = (losing(&etcd.url, lose.subscribe()).await, etcd.url.clone());
        EtcdStore::connect(&EtcdConfig {
            endpoints: vec![lossy, direct],
            tls: None,
        })
        .await
        .unwrap()
    };
    let value = |text: &'static str| bytes::Bytes::from_static(text.as_bytes());

    let store = connect().await;
    // Created, and nobody heard of it: it is found to be there.
    lose.send_replace(Lost::Answers);
    let Ok(Cas::Done(made)) = store.put("/a", value("1"), 0, None).await else {
        panic!("a creation that was carried out");
    };
    let got = store.get("/a").await.unwrap().kv.unwrap();
    assert_eq!((got.value, got.mod_revision), (value("1"), made));

    // Never arrived: whether it will, only the client may decide to risk.
    let store = connect().await;
    lose.send_replace(Lost::Requests);
    let created = store.put("/b", value("1"), 0, None).await;
    assert!(
        matches!(created, Err(StoreError::Unknown(_))),
        "{created:?}"
    );

    // An update that never arrived is sent again and carried out once.
    let store = connect().await;
    lose.send_replace(Lost::Requests);
    let Ok(Cas::Done(updated)) = store.put("/a", value("2"), made, None).await else {
        panic!("an update that can be sent again");
    };
    let got = store.get("/a").await.unwrap();
    assert_eq!((updated, got.revision), (made + 1, made + 1));

    // One that did arrive cannot be told from the same one by somebody else.
    let store = connect().await;
    lose.send_replace(Lost::Answers);
    let again = store.put("/a", value("3"), updated, None).await;
    assert!(matches!(again, Err(StoreError::Unknown(_))), "{again:?}");
    let got = store.get("/a").await.unwrap();
    assert_eq!(
        (got.kv.unwrap().value, got.revision),
        (value("3"), updated + 1)
    );

    // A deletion that never arrived.
    let store = connect().await;
    lose.send_replace(Lost::Requests);
    let deleted = store.delete("/a", updated + 1).await.unwrap();
    assert_eq!(deleted, Cas::Done(updated + 2));
}
