//! Starts that must be refused, saying what to change, and touching nothing.

use kvserver::{Config, Server};
use proto::etcdserverpb::{self as pb, cluster_client::ClusterClient};

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
    assert!(error.contains("99") && error.contains("knows 4"), "{error}");
}

/// As etcd does: what a member began with stays, whatever its flags say later.
#[tokio::test]
async fn a_member_keeps_who_it_is() {
    let mut store = Store::start().await;
    let (ids, urls) = (store.running().handle.ids(), member_urls(&store).await);
    store.kv().await.put("a", "1").await;
    store.config.initial_cluster_token = "another".to_owned();
    store.config.initial_advertise_peer_urls = vec!["http://10.0.0.9:2380".to_owned()];
    let cluster = [("b".to_owned(), vec!["http://10.0.0.8:2380".to_owned()])];
    store.config.initial_cluster = cluster.into();
    store.config.initial_cluster_existing = true;
    store.restart().await;
    assert_eq!(store.running().handle.ids(), ids);
    assert_eq!(member_urls(&store).await, urls);
    assert_eq!(store.kv().await.get("a").await.unwrap(), "1");
    // A directory from before the peer URLs were written down has them from its flags.
    store.config.initial_advertise_peer_urls = urls.clone();
    std::fs::remove_file(store.config.data_dir.join("MEMBER")).unwrap();
    store.restart().await;
    assert_eq!(store.running().handle.ids(), ids);
    assert_eq!(member_urls(&store).await, urls);
}

async fn member_urls(store: &Store) -> Vec<String> {
    let mut cluster = ClusterClient::new(store.channel().await);
    let list = pb::MemberListRequest { linearizable: true };
    let members = cluster.member_list(list).await.unwrap().into_inner();
    members.members[0].peer_ur_ls.clone()
}

#[tokio::test]
async fn a_new_member_must_be_of_its_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = async |change: fn(&mut Config)| {
        let mut config = Config::new(dir.path().join("data"));
        change(&mut config);
        let error = Server::start(config).await.unwrap_err().to_string();
        assert!(!dir.path().join("data").exists(), "nothing was made");
        error
    };
    let error = refusal(|config| {
        let url = vec!["http://localhost:2380".to_owned()];
        config.initial_cluster = [("b".to_owned(), url)].into();
    })
    .await;
    assert!(
        error.contains("--initial-cluster") && error.contains("\"default\""),
        "{error}"
    );
    let error = refusal(|config| {
        let url = vec!["http://localhost:1".to_owned()];
        config.initial_cluster = [("default".to_owned(), url)].into();
    })
    .await;
    assert!(error.contains("--initial-advertise-peer-urls"), "{error}");
    let error = refusal(|config| {
        let url = vec!["http://localhost:2380".to_owned()];
        let members = ["default", "b"].map(|name| (name.to_owned(), url.clone()));
        config.initial_cluster = members.into();
    })
    .await;
    assert!(error.contains("duplicate url"), "{error}");
    let mut config = Config::new(dir.path().join("alone"));
    config.initial_cluster_existing = true;
    let error = Server::start(config).await.unwrap_err().to_string();
    assert!(error.contains("cannot fetch cluster info"), "{error}");
}

#[tokio::test]
async fn a_log_may_have_a_directory_of_its_own() {
    let logs = tempfile::tempdir().unwrap();
    let wal = logs.path().join("a");
    let wal_dir = Some(wal.clone());
    let mut store = Store::start_with(|config| config.wal_dir = wal_dir).await;
    store.kv().await.put("a", "1").await;
    assert!(!store.config.data_dir.join("wal").exists());
    store.lose_power().await;
    assert_eq!(store.kv().await.get("a").await.unwrap(), "1");
    // Two members cannot write one log.
    let other = tempfile::tempdir().unwrap();
    let mut config = Config::new(other.path().join("data"));
    config.wal_dir = Some(wal);
    let error = Server::start(config.clone()).await.unwrap_err().to_string();
    assert!(error.contains("LOCK"), "{error}");
    // Nor can a member go on without its log, or with another's.
    store.running.take().unwrap().shutdown().await;
    store.config.wal_dir = Some(logs.path().join("b"));
    let error = Server::start(store.config.clone()).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("--wal-dir") && error.contains("no log"),
        "{error}"
    );
    config.wal_dir = store.config.wal_dir.clone();
    config.initial_cluster_token = "another".to_owned();
    Server::start(config).await.unwrap().shutdown().await;
    let error = Server::start(store.config.clone()).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("--wal-dir") && error.contains("belongs to member"),
        "{error}"
    );
}

#[tokio::test]
async fn a_real_etcds_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("member/wal")).unwrap();
    let error = Server::start(Config::new(dir.path())).await.unwrap_err();
    assert!(error.to_string().contains("member"), "{error}");
}

#[tokio::test]
async fn a_store_that_is_not_synced_works_as_well() {
    let mut store = Store::start_with(|config| config.unsafe_no_fsync = true).await;
    for key in 0..200 {
        store.kv().await.put(&format!("k{key}"), "v").await;
    }
    // The process went, the machine did not.
    store.lose_power().await;
    assert_eq!(store.kv().await.get("k199").await.unwrap(), "v");
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
