//! Plain HTTP and TLS on the client port.

use http_body_util::{BodyExt as _, Empty};
use kvserver::TlsFiles;
use tokio::net::TcpStream;

use crate::store::Store;

/// Sends a GET over HTTP/1.1; returns status and body.
async fn get(store: &Store, path: &str) -> (u16, String) {
    let answer = store.http(&format!("GET {path}"), "").await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn health_and_version_answer_as_etcds_do() {
    let store = Store::start().await;
    let well = (200, r#"{"health":"true","reason":""}"#.to_owned());
    for path in [
        "/health",
        "/health?serializable=true",
        "/health?exclude=NOSPACE",
    ] {
        assert_eq!(get(&store, path).await, well, "{path}");
    }
    let health = store.http("GET /health", "").await;
    assert_eq!(
        health.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let (status, version) = get(&store, "/version").await;
    assert_eq!(status, 200);
    assert!(
        version.contains(r#""etcdserver":"3.5."#) && version.contains(r#""etcdcluster":"3.5.0""#),
        "{version}"
    );
    let vars = store.http("GET /debug/vars", "").await;
    let vars: serde_json::Value = serde_json::from_str(&vars.body).unwrap();
    assert_eq!(vars["raft.status"]["raftState"], "StateLeader");
    for path in ["/health", "/version", "/debug/vars", "/livez", "/readyz"] {
        let refused = store.http(&format!("POST {path}"), "").await;
        assert_eq!(
            (refused.status, refused.body.as_str()),
            (405, "Method Not Allowed\n"),
            "{path}"
        );
        assert_eq!(refused.header("allow"), Some("get"));
        assert_eq!(store.http(&format!("HEAD {path}"), "").await.status, 405);
    }
    let nowhere = store.http("GET /nowhere", "").await;
    assert_eq!(
        (nowhere.status, nowhere.body.as_str()),
        (404, "404 page not found\n")
    );
    assert_eq!(nowhere.header("x-content-type-options"), Some("nosniff"));
}

async fn raise(store: &Store, kind: mvcc::AlarmKind, raised: bool) {
    let handle = &store.running().handle;
    let member = handle.ids().0;
    let alarm = mvcc::Alarm { member, kind };
    handle.set_alarm(alarm, raised).await.unwrap();
}

/// Bodies as etcd 3.5.1 (alarms) and etcdhttp/health.go of 3.5.11 (probes) have them.
#[tokio::test]
async fn alarms_show_where_they_should() {
    let store = Store::start().await;
    raise(&store, mvcc::AlarmKind::NoSpace, true).await;
    let ill = |reason: &str| {
        let body = format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n");
        (503, body)
    };
    let well = || (200, r#"{"health":"true","reason":""}"#.to_owned());
    assert_eq!(get(&store, "/health").await, ill("ALARM NOSPACE"));
    let excluded = get(&store, "/health?exclude=CORRUPT&exclude=NOSPACE").await;
    assert_eq!(excluded, well());
    // A full store still serves readers.
    assert_eq!(get(&store, "/readyz").await, (200, "ok\n".to_owned()));
    raise(&store, mvcc::AlarmKind::NoSpace, false).await;
    assert_eq!(get(&store, "/health").await, well());

    raise(&store, mvcc::AlarmKind::Corrupt, true).await;
    assert_eq!(get(&store, "/health").await, ill("ALARM CORRUPT"));
    // Reads go on, as etcd's do: which of its members is wrong is for people to say.
    assert_eq!(get(&store, "/health?exclude=CORRUPT").await, well());
    assert_eq!(get(&store, "/livez").await, (200, "ok\n".to_owned()));
    let corrupt = "[-]data_corruption failed: alarm activated: CORRUPT\n\
                   [+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\n\n";
    assert_eq!(get(&store, "/readyz").await, (503, corrupt.to_owned()));
    assert_eq!(
        get(&store, "/readyz/data_corruption").await,
        (
            503,
            "[-]data_corruption failed: alarm activated: CORRUPT\n\n".to_owned()
        )
    );
    let left = "/readyz?exclude=data_corruption";
    assert_eq!(get(&store, left).await, (200, "ok\n".to_owned()));
}

#[tokio::test]
async fn probes_tell_each_check_when_asked() {
    let store = Store::start().await;
    for (path, body) in [
        ("/livez", "ok\n"),
        ("/readyz", "ok\n"),
        ("/livez?verbose", "[+]serializable_read ok\nok\n"),
        (
            "/readyz?verbose",
            "[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\n\
             [+]non_learner ok\nok\n",
        ),
        (
            "/readyz?verbose&exclude=data_corruption&exclude=nonsense&exclude=non_learner",
            "[+]serializable_read ok\n[+]linearizable_read ok\nok\n",
        ),
        (
            "/readyz/linearizable_read?verbose&exclude=linearizable_read",
            "[+]linearizable_read ok\nok\n",
        ),
        ("/readyz/non_learner", "ok\n"),
    ] {
        assert_eq!(get(&store, path).await, (200, body.to_owned()), "{path}");
    }
    assert_eq!(get(&store, "/livez/linearizable_read").await.0, 404);
    assert_eq!(get(&store, "/readyz/").await.0, 404);
}

/// The rules of etcd's accessController.
#[tokio::test]
async fn origins_and_hosts_are_let_in_as_listed() {
    let open = Store::start().await;
    let answer = open.http("GET /version", "").await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let preflight = open.http("OPTIONS /v3/kv/range", "").await;
    assert_eq!((preflight.status, preflight.body.as_str()), (200, ""));
    assert_eq!(
        preflight.header("access-control-allow-methods"),
        Some("post, get, options, put, delete")
    );

    let closed = Store::start_with(|config| {
        config.cors = vec!["http://a.com:80".to_owned()];
        config.host_whitelist = vec!["good.com".to_owned()];
    })
    .await;
    for (origin, allowed) in [
        ("http://a.com:80", Some("http://a.com:80")),
        ("http://c.com", None),
    ] {
        let head = format!("GET /version\nHost: good.com:2379\nOrigin: {origin}");
        let answer = closed.http(&head, "").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), allowed);
    }
    for path in ["GET /version", "POST /v3/kv/range"] {
        let answer = closed.http(&format!("{path}\nHost: evil.com"), "{}").await;
        assert_eq!(answer.status, 421);
        assert!(answer.body.contains("\"evil.com\""), "{}", answer.body);
    }
    // gRPC does not come from a browser.
    assert_eq!(closed.kv().await.put("a", "1").await, 2);
}

#[tokio::test]
async fn listeners_serve_what_they_are_for() {
    let free = || "http://127.0.0.1:0".to_owned();
    let store = Store::start_with(|config| {
        config.listen_client_http_urls = vec![free()];
        config.listen_metrics_urls = vec![free()];
    })
    .await;
    let grpc = store.running().client_addr.unwrap();
    let http = store.running().http_addrs[0];
    let metrics = store.running().metrics_addrs[0];
    assert_eq!(store.kv().await.put("a", "1").await, 2);
    assert_eq!(
        crate::store::http(grpc, "GET /health", "").await.status,
        415
    );
    let range = r#"{"key":"YQ=="}"#;
    assert_eq!(
        crate::store::http(grpc, "POST /v3/kv/range", range)
            .await
            .status,
        415
    );

    for path in ["/health", "/version", "/metrics", "/livez"] {
        let answer = crate::store::http(http, &format!("GET {path}"), "").await;
        assert_eq!(answer.status, 200, "{path}");
    }
    assert_eq!(
        crate::store::http(http, "POST /v3/kv/range", range)
            .await
            .status,
        200
    );
    let channel = tonic::transport::Channel::from_shared(format!("http://{http}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let range = crate::store::range("a", "");
    assert!(crate::store::Kv::new(channel).range(range).await.is_err());

    for (path, status) in [
        ("/health", 200),
        ("/metrics", 200),
        ("/livez", 200),
        ("/readyz", 200),
        ("/version", 404),
        ("/debug/vars", 404),
    ] {
        let answer = crate::store::http(metrics, &format!("GET {path}"), "").await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let gateway = crate::store::http(metrics, "POST /v3/kv/range", "{}").await;
    assert_eq!(gateway.status, 404);
}

/// Who begins to speak HTTP/2 or HTTP/1 and stops is not waited for.
#[tokio::test]
async fn half_a_greeting_is_not_waited_for() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let store = Store::start().await;
    let addr = store.running().client_addr.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for said in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "GET /health HTTP/1.1\r\nHo",
    ] {
        waiting.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let closed =
                tokio::time::timeout(crate::store::DEADLINE, stream.read_to_end(&mut rest));
            assert!(closed.await.is_ok(), "still open after {said:?}");
        });
    }
    while let Some(done) = waiting.join_next().await {
        done.unwrap();
    }
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
    let mut kv = crate::store::Kv::new(channel.clone());
    assert_eq!(kv.put("a", "1").await, 2);
    json_ignores_certificates(channel).await;
    let refused = match endpoint(None).connect().await {
        Err(_) => true,
        Ok(channel) => {
            let mut kv = crate::store::Kv::new(channel);
            kv.range(crate::store::range("a", "")).await.is_err()
        }
    };
    assert!(refused, "a client without a certificate was served");
}

/// Over JSON a certificate names nobody, and who shows one is told so once that
/// matters (etcd: accessController).
async fn json_ignores_certificates(channel: tonic::transport::Channel) {
    use proto::etcdserverpb as pb;

    let range = async || {
        let body = http_body_util::Full::new(bytes::Bytes::from(r#"{"key":"YQ=="}"#));
        let request = http::Request::post("/v3/kv/range").body(tonic::body::Body::new(body));
        let mut channel = channel.clone();
        std::future::poll_fn(|cx| tower::Service::poll_ready(&mut channel, cx))
            .await
            .unwrap();
        let call = tower::Service::call(&mut channel, request.unwrap());
        let answer = call.await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(range().await.0, 200);
    let mut auth = pb::auth_client::AuthClient::new(channel.clone());
    let (name, role) = (|| "root".to_owned(), || "root".to_owned());
    auth.user_add(pb::AuthUserAddRequest {
        name: name(),
        password: "r".to_owned(),
        ..pb::AuthUserAddRequest::default()
    })
    .await
    .unwrap();
    auth.role_add(pb::AuthRoleAddRequest { name: role() })
        .await
        .unwrap();
    let grant = pb::AuthUserGrantRoleRequest {
        user: name(),
        role: role(),
    };
    auth.user_grant_role(grant).await.unwrap();
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
    let told = "CommonName of client sending a request against gateway will be ignored and not \
                used as expected\n";
    assert_eq!(range().await, (400, told.to_owned()));
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
