//! What is served at which listener: clients, plain HTTP, metrics, peers.

use std::{net::SocketAddr, time::Duration};

use kvserver::{Config, Server, TlsFiles};
use proto::etcdserverpb as pb;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
};

use crate::{
    pki::{Ca, Client},
    store::{DEADLINE, Kv, Store},
};

/// Sends a request over HTTP/1.1; returns status, head and body.
async fn ask<T>(mut stream: T, method: &str, path: &str) -> (u16, String, String)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

async fn get(addr: SocketAddr, path: &str) -> (u16, String, String) {
    ask(TcpStream::connect(addr).await.unwrap(), "GET", path).await
}

fn local(scheme: &str) -> Vec<String> {
    vec![format!("{scheme}://127.0.0.1:0")]
}

/// As etcd 3.5.1 answers: `curl -i http://127.0.0.1:2380/members` and the others.
#[tokio::test]
async fn peers_are_told_what_etcd_tells_them() {
    let store = Store::start_with(|config| {
        config.name = "m".to_owned();
        config.listen_peer_urls = local("http");
        config.advertise_client_urls = vec!["http://10.0.0.4:2379".to_owned()];
    })
    .await;
    let addr = store.running().peer_addrs[0];
    let (member, cluster) = store.running().handle.ids();
    let id_header = format!("x-etcd-cluster-id: {cluster:x}");
    let (status, head, body) = get(addr, "/members").await;
    assert_eq!(status, 200);
    assert!(head.contains(&id_header), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let members: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        members,
        serde_json::json!([{
            "id": member,
            "peerURLs": ["http://localhost:2380"],
            "name": "m",
            "clientURLs": ["http://10.0.0.4:2379"],
        }])
    );
    assert!(body.ends_with("]\n"), "{body:?}");
    assert_eq!(get(addr, "/downgrade/enabled").await.2, "false");
    let (status, _, version) = get(addr, "/version").await;
    assert!(
        status == 200 && version.contains("etcdcluster"),
        "{version}"
    );
    for path in ["/health", "/metrics", "/members/x", "/v3/kv/range", "/"] {
        assert_eq!(get(addr, path).await.0, 404, "{path}");
    }
    let post = async |path: &str| ask(TcpStream::connect(addr).await.unwrap(), "POST", path).await;
    let (status, head, _) = post("/members").await;
    assert!(status == 405 && head.contains("allow: get"), "{head}");
    assert_eq!(get(addr, "/members/promote/7").await.0, 405);
    let (status, _, body) = post("/members/promote/7").await;
    assert_eq!((status, body.as_str()), (404, "membership: ID not found\n"));
    let (status, _, body) = post("/members/promote/x").await;
    assert_eq!(
        (status, body.as_str()),
        (404, "member x not found in cluster\n")
    );
    let (status, _, body) = post(&format!("/members/promote/{member}")).await;
    assert_eq!(status, 412, "{body}");
}

#[tokio::test]
async fn peers_must_come_from_where_their_certificate_says() {
    let ca = Ca::new();
    let files = |check_address| TlsFiles {
        check_address,
        allowed_cns: vec!["peer".to_owned()],
        ..ca.files()
    };
    let start = async |files| {
        let store = Store::start_with(|config| {
            config.listen_peer_urls = local("https");
            config.peer_tls = Some(files);
        });
        let store = store.await;
        let addr = store.running().peer_addrs[0];
        (store, addr)
    };
    let admitted = async |addr, cn, names: &[&str]| {
        let leaf = ca.leaf(cn, names, 7);
        Client::new(&ca, Some(&leaf)).admitted(addr).await
    };
    let (_store, addr) = start(files(true)).await;
    assert!(admitted(addr, "peer", &["127.0.0.1"]).await);
    assert!(admitted(addr, "peer", &["10.0.0.9", "localhost"]).await);
    assert!(admitted(addr, "peer", &[]).await, "from anywhere");
    assert!(!admitted(addr, "peer", &["10.0.0.9"]).await);
    assert!(!admitted(addr, "client", &["127.0.0.1"]).await);
    let (_store, addr) = start(files(false)).await;
    assert!(admitted(addr, "peer", &["10.0.0.9"]).await);
    assert!(!Client::new(&ca, None).admitted(addr).await);
}

#[tokio::test]
async fn a_peer_port_in_use_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("data"));
    config.listen_peer_urls = vec![format!("http://127.0.0.1:{port}")];
    let error = Server::start(config).await.unwrap_err().to_string();
    assert!(
        error.contains("--listen-peer-urls") && error.contains(&port.to_string()),
        "{error}"
    );
    assert!(!dir.path().join("data").exists(), "nothing was made");
}

#[tokio::test]
async fn ports_can_be_shared_on_purpose_only() {
    let share = |config: &mut Config| config.socket.reuse_port = true;
    let store = Store::start_with(share).await;
    let addr = store.running().client_addr.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("data"));
    config.listen_client_urls = vec![format!("http://{addr}")];
    assert!(Server::start(config.clone()).await.is_err());
    share(&mut config);
    let second = Server::start(config).await.unwrap();
    assert_eq!(second.client_addr, Some(addr));
}

#[tokio::test]
async fn metrics_have_a_door_of_their_own() {
    let store = Store::start_with(|config| config.listen_metrics_urls = local("http")).await;
    let addr = store.running().metrics_addrs[0];
    for path in ["/metrics", "/health", "/livez", "/readyz"] {
        assert_eq!(get(addr, path).await.0, 200, "{path}");
    }
    assert_eq!(get(addr, "/version").await.0, 404);
    let channel = tonic::transport::Channel::from_shared(format!("http://{addr}"));
    let mut kv = Kv::new(channel.unwrap().connect().await.unwrap());
    assert!(
        kv.range(crate::store::range("a", "")).await.is_err(),
        "no data here"
    );
}

#[tokio::test]
async fn plain_http_can_have_a_door_of_its_own() {
    let store = Store::start_with(|config| config.listen_client_http_urls = local("http")).await;
    store.kv().await.put("a", "1").await;
    let http = store.running().http_addrs[0];
    assert_eq!(get(http, "/health").await.0, 200);
    assert_eq!(get(http, "/version").await.0, 200);
    let grpc = store.running().client_addr.unwrap();
    assert_eq!(get(grpc, "/health").await.0, 415);
    let channel = tonic::transport::Channel::from_shared(format!("http://{http}"));
    let mut kv = Kv::new(channel.unwrap().connect().await.unwrap());
    assert!(kv.range(crate::store::range("a", "")).await.is_err());
}

#[tokio::test]
async fn plain_text_and_tls_can_share_a_port() {
    let ca = Ca::new();
    let friend = ca.leaf("a", &["x"], 7);
    // A port that was free a moment ago: two URLs must name the same.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let store = Store::start_with(|config| {
        config.listen_client_urls = vec![format!("http://{addr}"), format!("https://{addr}")];
        config.client_tls = Some(ca.files());
    })
    .await;
    assert_eq!(store.running().client_addrs, [addr]);
    assert_eq!(get(addr, "/health").await.0, 200);
    assert!(Client::new(&ca, Some(&friend)).admitted(addr).await);
    assert!(!Client::new(&ca, None).admitted(addr).await);
}

#[tokio::test]
async fn sockets_in_the_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s:1");
    let url = format!("unix://{}", path.display());
    let mut store = Store::start_with(|config| config.listen_client_urls.push(url.clone())).await;
    let stream = UnixStream::connect(&path).await.unwrap();
    assert_eq!(ask(stream, "GET", "/health").await.0, 200);
    let mut cluster = pb::cluster_client::ClusterClient::new(store.channel().await);
    let list = pb::MemberListRequest::default();
    let members = cluster.member_list(list).await.unwrap().into_inner();
    assert!(
        members.members[0].client_ur_ls.contains(&url),
        "{members:?}"
    );
    store.running.take().unwrap().shutdown().await;
    assert!(!path.exists(), "it goes with the member");
    // A socket that a killed member left is no obstacle; a file is.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    store.running = Some(Server::start(store.config.clone()).await.unwrap());
    store.running.take().unwrap().shutdown().await;
    std::fs::write(&path, "precious").unwrap();
    assert!(Server::start(store.config.clone()).await.is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

/// A client that pings every few milliseconds, with a call under way.
async fn pings_until_closed(store: &Store, pause: Duration) -> Option<hyper::Error> {
    let stream = TcpStream::connect(store.running().client_addr.unwrap())
        .await
        .unwrap();
    let mut builder =
        hyper::client::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
    builder
        .timer(hyper_util::rt::TokioTimer::new())
        .keep_alive_interval(pause)
        .keep_alive_timeout(DEADLINE);
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut send, connection) = builder.handshake(io).await.unwrap();
    let body = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<hyper::body::Frame<bytes::Bytes>, std::convert::Infallible>,
    >());
    let request = http::Request::post(format!("{}/etcdserverpb.Watch/Watch", store.url()))
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap();
    let connection = tokio::spawn(connection);
    let _reply = send.send_request(request).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(2), connection).await;
    ended.ok().and_then(|ended| ended.unwrap().err())
}

#[tokio::test]
async fn who_pings_too_often_is_sent_away() {
    let store = Store::start().await;
    let error = pings_until_closed(&store, Duration::from_millis(50)).await;
    let error = format!("{:?}", error.expect("it is closed"));
    assert!(
        error.contains("ENHANCE_YOUR_CALM") && error.contains("too_many_pings"),
        "{error}"
    );
    let patient = Store::start_with(|config| config.keep_alive.min_time = Duration::ZERO).await;
    let error = pings_until_closed(&patient, Duration::from_millis(50)).await;
    assert!(error.is_none(), "{error:?}");
}

#[tokio::test]
async fn a_silent_client_is_pinged_and_let_go() {
    let store = Store::start_with(|config| {
        config.keep_alive.interval = Duration::from_millis(100);
        config.keep_alive.timeout = Duration::from_millis(100);
    })
    .await;
    let mut stream = TcpStream::connect(store.running().client_addr.unwrap())
        .await
        .unwrap();
    // The preface and empty settings; pings are not answered.
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(hello).await.unwrap();
    let mut all = Vec::new();
    let ended = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut all)).await;
    ended.expect("the connection is closed").unwrap();
}

#[tokio::test]
async fn calls_on_one_connection_are_bounded() {
    let store = Store::start_with(|config| config.max_concurrent_streams = 3).await;
    let mut stream = TcpStream::connect(store.running().client_addr.unwrap())
        .await
        .unwrap();
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(hello).await.unwrap();
    let mut settings = [0; 9];
    stream.read_exact(&mut settings).await.unwrap();
    assert_eq!(settings[3], 4, "the first frame is SETTINGS");
    let mut payload = vec![0; usize::from(settings[2])];
    stream.read_exact(&mut payload).await.unwrap();
    let pairs = payload.chunks(6).map(|pair| (pair[1], pair[5]));
    assert!(pairs.clone().any(|pair| pair == (3, 3)), "{payload:?}");
}
