//! The storage's conformance suite over the store in the same process, and the
//! same store over its own gRPC: both implementations of one trait.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, and says what it skipped or measured"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use apiserver::storage::embedded::EmbeddedStore;
use apiserver::storage::etcd::{EtcdConfig, EtcdStore};
use apiserver::storage::{ListRequest, ReadVersion, ResourceConfig, ResourceStore, Store, testing};
use kvserver::{Config, Running, Server};
use meta::GroupResource;
use serde_json::json;
use tokio_util::sync::CancellationToken;

async fn member(dir: &std::path::Path, listen: bool) -> Running {
    let mut config = Config::new(dir);
    // Small, so that a test writes little.
    config.wal_segment_bytes = 4 << 20;
    if listen {
        config.listen_client_urls = vec!["http://127.0.0.1:0".to_owned()];
    }
    Server::start(config).await.unwrap()
}

#[tokio::test]
async fn embedded_raw_store() {
    let dir = tempfile::tempdir().unwrap();
    let member = member(dir.path(), false).await;
    let store = EmbeddedStore::new(member.handle.clone());
    testing::run_store(&store).await;
    testing::run_expiry(&store).await;
    member.shutdown().await;
}

#[tokio::test]
async fn embedded_resource() {
    let dir = tempfile::tempdir().unwrap();
    let member = member(dir.path(), false).await;
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(member.handle.clone()));
    testing::run_resource(&store).await;
    member.shutdown().await;
}

#[tokio::test]
async fn own_grpc() {
    let dir = tempfile::tempdir().unwrap();
    let member = member(dir.path(), true).await;
    let config = EtcdConfig {
        endpoints: vec![member.client_addr.unwrap().to_string()],
        tls: None,
    };
    let store = EtcdStore::connect(&config).await.unwrap();
    assert!(store.reports_progress());
    testing::run_store(&store).await;
    testing::run_expiry(&store).await;
    let store: Arc<dyn Store> = Arc::new(store);
    testing::run_resource(&store).await;
    member.shutdown().await;
}

fn config(prefix: String) -> ResourceConfig {
    ResourceConfig {
        resource: GroupResource::new("", "things"),
        storage_prefix: prefix,
        namespaced: true,
        selectable: |_| Vec::new(),
        index_field: None,
        ttl: None,
        reader: None,
    }
}

/// Consistent reads must not wait for a timer, and starting must be quick.
#[tokio::test]
async fn embedded_is_quick() {
    const RESOURCES: usize = 12;
    const ROUNDS: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let member = member(dir.path(), false).await;
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(member.handle.clone()));
    let token = CancellationToken::new();
    let began = Instant::now();
    let resources: Vec<_> = (0..RESOURCES)
        .map(|i| ResourceStore::start(store.clone(), config(format!("r{i}")), token.clone()))
        .collect();
    futures::future::join_all(resources.iter().map(|r| r.ready())).await;
    let started = began.elapsed();
    let (mut write, mut list) = (Duration::ZERO, Duration::ZERO);
    for i in 0..ROUNDS {
        let name = format!("x{i}");
        let body = json!({"metadata": {"name": name, "namespace": "a"}});
        let began = Instant::now();
        resources[0]
            .create(Some("a"), &name, body, None)
            .await
            .unwrap();
        write += began.elapsed();
        // One resource that changed, and one that did not.
        let began = Instant::now();
        for (resource, want) in [(&resources[0], i + 1), (&resources[1], 0)] {
            let listed = resource.list(ListRequest::default()).await.unwrap();
            assert_eq!(listed.items.len(), want);
        }
        list += began.elapsed() / 2;
    }
    let (write, list) = (write / ROUNDS as u32, list / ROUNDS as u32);
    println!("started {started:?}, a write {write:?}, a consistent list {list:?}");
    // Far above what is measured on an idle machine, far below any timer.
    assert!(started < Duration::from_millis(1000), "{started:?}");
    assert!(list < Duration::from_millis(50), "{list:?}");
    token.cancel();
    member.shutdown().await;
}

/// Objects and revisions outlive the process that wrote them.
#[tokio::test]
async fn embedded_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = None;
    for round in 0..3 {
        let member = member(dir.path(), false).await;
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::new(member.handle.clone()));
        let token = CancellationToken::new();
        let things = ResourceStore::start(store, config("things".to_owned()), token.clone());
        things.ready().await;
        let listed = things.list(ListRequest::default()).await.unwrap();
        assert_eq!(listed.items.len(), round);
        assert!(last.is_none_or(|last| listed.resource_version >= last));
        let name = format!("x{round}");
        let body = json!({"metadata": {"name": name, "namespace": "a"}});
        let written = things.create(Some("a"), &name, body, None).await.unwrap();
        last = Some(written.resource_version.0);
        let got = things
            .get(Some("a"), &name, ReadVersion::Unset)
            .await
            .unwrap();
        assert_eq!(got.body(), written.body());
        token.cancel();
        // Without shutting down, as if power was lost.
        drop(member);
    }
}
