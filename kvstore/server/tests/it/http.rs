//! Plain HTTP and TLS on the client port.

use http_body_util::{BodyExt as _, Empty};
use kvserver::TlsFiles;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::store::Store;

/// Sends a GET over HTTP/1.1; returns status line and body.
async fn get(store: &Store, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(store.running().client_addr.unwrap())
        .await
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    (status, reply.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test]
async fn health_version_and_metrics_answer_as_etcds_do() {
    let store = Store::start().await;
    store.kv().await.put("a", "1").await;
    assert_eq!(
        get(&store, "/health").await,
        (200, r#"{"health":"true","reason":""}"#.to_owned())
    );
    assert_eq!(get(&store, "/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(&store, "/livez").await, (200, "ok\n".to_owned()));
    let (status, version) = get(&store, "/version").await;
    assert_eq!(status, 200);
    assert!(
        version.contains(r#""etcdserver":"3.5."#) && version.contains(r#""etcdcluster":"3.5.0""#),
        "{version}"
    );
    let (status, metrics) = get(&store, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "etcd_server_has_leader 1",
        "etcd_server_is_leader 1",
        "etcd_debugging_mvcc_put_total 1",
        "etcd_debugging_mvcc_current_revision 2",
        "etcd_disk_wal_fsync_duration_seconds_count ",
        "etcd_mvcc_db_total_size_in_bytes ",
        r#"grpc_server_handled_total{grpc_service="etcdserverpb.KV",grpc_method="Put",grpc_code="OK"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert_eq!(get(&store, "/nowhere").await.0, 404);
}

#[tokio::test]
async fn plain_http_2_is_served_too() {
    let store = Store::start().await;
    let stream = TcpStream::connect(store.running().client_addr.unwrap())
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io)
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(format!("{}/health", store.url()))
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let reply = send.send_request(request).await.unwrap();
    assert_eq!(reply.status(), 200);
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(br#"{"health":"true""#));
}

#[tokio::test]
async fn tls_admits_clients_with_a_certificate_only() {
    let dir = tempfile::tempdir().unwrap();
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let make = |names: &[&str]| {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let cert = rcgen::CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        (cert.pem(), key.serialize_pem())
    };
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (server_cert, server_key) = make(&["localhost"]);
    let (client_cert, client_key) = make(&["client"]);
    let tls = TlsFiles {
        cert_file: write("server.crt", &server_cert),
        key_file: write("server.key", &server_key),
        trusted_ca_file: Some(write("ca.crt", &ca_cert.pem())),
        ..TlsFiles::default()
    };
    let store = Store::start_with(|config| {
        config.listen_client_urls = vec!["https://127.0.0.1:0".to_owned()];
        config.client_tls = Some(tls);
    })
    .await;
    let port = store.running().client_addr.unwrap().port();
    let endpoint = |identity: Option<(&str, &str)>| {
        let mut tls = tonic::transport::ClientTlsConfig::new()
            .ca_certificate(tonic::transport::Certificate::from_pem(ca_cert.pem()))
            .domain_name("localhost");
        if let Some((cert, key)) = identity {
            tls = tls.identity(tonic::transport::Identity::from_pem(cert, key));
        }
        let url = format!("https://localhost:{port}");
        tonic::transport::Channel::from_shared(url)
            .unwrap()
            .tls_config(tls)
            .unwrap()
    };
    let channel = endpoint(Some((&client_cert, &client_key)))
        .connect()
        .await
        .unwrap();
    let mut kv = crate::store::Kv::new(channel);
    assert_eq!(kv.put("a", "1").await, 2);
    let refused = match endpoint(None).connect().await {
        Err(_) => true,
        Ok(channel) => {
            let mut kv = crate::store::Kv::new(channel);
            kv.range(crate::store::range("a", "")).await.is_err()
        }
    };
    assert!(refused, "a client without a certificate was served");
}

/// Counts the write-backs of this run that are on disk.
async fn write_backs(store: &Store) -> u64 {
    let metrics = get(store, "/metrics").await.1;
    let name = "etcd_disk_backend_commit_duration_seconds_count ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

/// Who asks for a physical compaction is answered when the rows are gone from
/// disk, though nobody writes any more.
#[tokio::test]
async fn a_physical_compaction_is_over_when_it_is_on_disk() {
    let mut store = Store::start_with(|config| {
        config.write_behind.interval = std::time::Duration::from_secs(3_600);
        config.write_behind.block_bytes = 1 << 10;
    })
    .await;
    for key in 0..100 {
        store
            .kv()
            .await
            .put(&format!("k{key}"), &"v".repeat(100))
            .await;
    }
    store.restart().await;
    let mut kv = store.kv().await;
    kv.0.delete_range(crate::store::delete("k", "l"))
        .await
        .unwrap();
    // The first change of a run is written back at once, the next in an hour.
    let deadline = tokio::time::Instant::now() + crate::store::DEADLINE;
    while write_backs(&store).await == 0 {
        assert!(tokio::time::Instant::now() < deadline, "no write-back");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(write_backs(&store).await, 1);
    kv.compact(102).await.unwrap();
    assert_eq!(write_backs(&store).await, 2, "the rewritten blocks");
    let status = store.running().handle.status().unwrap();
    assert!(status.db_size_in_use <= status.db_size);
}
