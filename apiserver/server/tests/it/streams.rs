//! exec, attach and portforward: handed through to a kubelet, byte by byte.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::credentials::connect;
use crate::harness::{Api, PATIENCE, PODS, pod};

type Seen = Arc<Mutex<Vec<String>>>;

/// A kubelet that agrees to every upgrade, says what was asked and then echoes
/// until its input ends; of the pod `gone` it knows nothing.
async fn kubelet(api: &Api) -> (u16, Seen) {
    let tls = api.running.kubelet_tls("n1", &["127.0.0.1".to_owned()]);
    let acceptor = TlsAcceptor::from(tls.unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = tcp.local_addr().unwrap().port();
    let seen = Seen::default();
    let seen_here = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = tcp.accept().await {
            let (acceptor, seen) = (acceptor.clone(), seen_here.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(move |request| {
                    let answer = answer(request, &seen);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let served = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                drop(served.await);
            });
        }
    });
    (port, seen)
}

fn answer(mut request: Request<Incoming>, seen: &Seen) -> Response<Full<bytes::Bytes>> {
    let headers = request.headers();
    let protocol = headers.get("sec-websocket-protocol").cloned();
    let said = format!(
        "{} {} {:?}",
        request.method(),
        request.uri(),
        headers.get("authorization")
    );
    seen.lock().unwrap().push(said);
    if request.uri().path().contains("/gone/") {
        let mut refused = Response::new(Full::from("container not found (\"c\")"));
        *refused.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return refused;
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let (mut from, mut to) = tokio::io::split(&mut stream);
        tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.write_all(b"over").await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut agreed = Response::new(Full::default());
    *agreed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = agreed.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Some(protocol) = protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    agreed
}

async fn with_pods(api: &Api, port: u16, names: &[&str]) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    api.post("/api/v1/nodes", &node).await.ok();
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    api.merge("/api/v1/nodes/n1/status", &status).await.ok();
    for name in names {
        api.post(PODS, &pod(name)).await.ok();
        let bind = json!({"target": {"kind": "Node", "name": "n1"}});
        api.post(&format!("{PODS}/{name}/binding"), &bind)
            .await
            .ok();
    }
}

/// Sends a handshake by the administrator or, with a token, by anybody.
async fn handshake(
    api: &Api,
    method: &str,
    path: &str,
    protocols: &str,
) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let admin = api.running.pki().admin().unwrap();
    let identity = (!protocols.contains("bearer")).then_some(&admin);
    let mut stream = connect(api, identity, b"http/1.1").await;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocols}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads an answer's head.
async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, read)
        .await
        .expect("an answer in time");
    String::from_utf8(bytes).unwrap().to_lowercase()
}

#[tokio::test]
async fn bytes_are_handed_through_and_ends_are_passed_on() {
    let api = Api::start().await;
    let (port, seen) = kubelet(&api).await;
    with_pods(&api, port, &["a"]).await;
    for (method, path, wanted) in [
        (
            "POST",
            "exec?command=sh&command=-c&stdin=true&stderr=false",
            "POST /exec/default/a/c?input=1&output=1&command=sh&command=-c None",
        ),
        (
            "GET",
            "attach?container=c",
            "GET /attach/default/a/c?output=1&error=1 None",
        ),
        (
            "GET",
            "portforward?ports=80,81",
            "GET /portForward/default/a?port=80%2C81 None",
        ),
    ] {
        let path = format!("{PODS}/a/{path}");
        let mut stream = handshake(&api, method, &path, "v5.channel.k8s.io").await;
        let head = head(&mut stream).await;
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(
            head.contains("sec-websocket-protocol: v5.channel.k8s.io"),
            "{head}"
        );
        assert_eq!(seen.lock().unwrap().pop().unwrap(), wanted);
        stream.write_all(b"there and back").await.unwrap();
        let mut heard = [0; 14];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"there and back");
        // The end of one direction leaves the other open.
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest));
        drop(read.await.expect("ended in time"));
        assert_eq!(rest, b"over");
    }
}

#[tokio::test]
async fn a_token_among_the_subprotocols_opens_the_door_and_stays_here() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    std::fs::write(&file, "secret,alice,7,\"system:masters\"\n").unwrap();
    let api = Api::start_with(|config| config.token_auth_file = Some(file)).await;
    let (port, _) = kubelet(&api).await;
    with_pods(&api, port, &["a"]).await;
    let path = format!("{PODS}/a/exec?command=ls");
    for (token, code) in [("c2VjcmV0", "101"), ("d3Jvbmc", "401")] {
        let protocols = format!("base64url.bearer.authorization.k8s.io.{token}, v4.channel.k8s.io");
        let mut stream = handshake(&api, "GET", &path, &protocols).await;
        let head = head(&mut stream).await;
        assert!(head.starts_with(&format!("http/1.1 {code} ")), "{head}");
        assert!(!head.contains("bearer"), "{head}");
        assert_eq!(head.contains("v4.channel.k8s.io"), code == "101", "{head}");
    }
}

#[tokio::test]
async fn what_cannot_be_handed_through_is_refused() {
    let api = Api::start().await;
    let (port, _) = kubelet(&api).await;
    with_pods(&api, port, &["a", "gone"]).await;
    let mut unbound = pod("b");
    unbound["spec"]["containers"] = json!([
        {"name": "c", "image": "i"}, {"name": "d", "image": "i"}]);
    api.post(PODS, &unbound).await.ok();
    let host = "pod b does not have a host assigned";
    for (path, code, reason, words) in [
        (
            "nobody/exec?command=ls",
            404,
            "NotFound",
            "pods \"nobody\" not found",
        ),
        (
            "a/exec?container=x",
            400,
            "BadRequest",
            "container x is not valid for pod a",
        ),
        ("b/exec?container=c", 400, "BadRequest", host),
        ("b/attach?container=c", 400, "BadRequest", host),
        ("b/portforward", 400, "BadRequest", host),
        (
            "b/exec?command=ls",
            400,
            "BadRequest",
            "a container name must be specified for pod b, choose one of: [c d]",
        ),
        (
            "a/exec?command=ls",
            400,
            "BadRequest",
            "Upgrade request required",
        ),
        ("a/portforward?ports=70000", 400, "BadRequest", "ports"),
    ] {
        let path = format!("{PODS}/{path}");
        api.get(&path).await.refused(code, reason, words);
        api.call(Method::POST, &path, "", "")
            .await
            .refused(code, reason, words);
    }
    let path = format!("{PODS}/gone/exec?command=ls");
    let mut stream = handshake(&api, "GET", &path, "v5.channel.k8s.io").await;
    let head = head(&mut stream).await;
    assert!(head.starts_with("http/1.1 500 "), "{head}");
    let mut body = [0; 512];
    let count = stream.read(&mut body).await.unwrap();
    let body = String::from_utf8_lossy(&body[..count]);
    assert!(body.contains("container not found (\\\"c\\\")"), "{body}");
}
