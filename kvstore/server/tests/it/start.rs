//! Starts that must be refused, saying what to change, and touching nothing.

use kvserver::{Config, Server};

use crate::store::Store;

#[tokio::test]
async fn a_port_in_use_is_named_with_its_flag() {
    let store = Store::start().await;
    let addr = store.running().client_addr.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("data"));
    config.listen_client_urls = vec![format!("http://{addr}")];
    let error = Server::start(config).await.unwrap_err().to_string();
    assert!(
        error.contains("--listen-client-urls") && error.contains(&addr.port().to_string()),
        "{error}"
    );
    assert!(!dir.path().join("data").exists(), "nothing was made");
}

#[tokio::test]
async fn a_directory_in_use_is_named_with_its_lock() {
    let store = Store::start().await;
    let error = Server::start(Config::new(&store.config.data_dir))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("LOCK"), "{error}");
}

#[tokio::test]
async fn a_newer_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("VERSION"), "keelson-store 99\n").unwrap();
    let error = Server::start(Config::new(dir.path()))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("99") && error.contains("knows 1"), "{error}");
}

#[tokio::test]
async fn another_clusters_directory_is_refused_by_flag() {
    let mut store = Store::start().await;
    store.running.take().unwrap().shutdown().await;
    let mut config = store.config.clone();
    config.initial_cluster_token = "another".to_owned();
    let error = Server::start(config).await.unwrap_err().to_string();
    assert!(
        error.contains("--data-dir") && error.contains("--initial-cluster-token"),
        "{error}"
    );
}

#[tokio::test]
async fn senseless_urls_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for url in [
        "127.0.0.1:2379",
        "ftp://127.0.0.1:1",
        "http://127.0.0.1",
        "https://127.0.0.1:0",
    ] {
        let mut config = Config::new(dir.path().join("data"));
        config.listen_client_urls = vec![url.to_owned()];
        let error = Server::start(config).await.unwrap_err().to_string();
        assert!(error.contains("--listen-client-urls"), "{url}: {error}");
    }
}
