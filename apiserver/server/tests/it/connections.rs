//! Connections that do nothing, or nonsense: closed in time, others served.

use std::time::Duration;

use apiserver::{Config, Server, StartError, StoreSource};
use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::credentials::connect;
use crate::harness::{Api, CONFIG_MAPS, PATIENCE, config_map};

/// Limits small enough to be waited for.
fn hasty(config: &mut Config) {
    config.limits.handshake = Duration::from_millis(300);
    config.limits.header = Duration::from_millis(300);
    config.limits.idle = Duration::from_millis(300);
}

/// Reads until the other side closes; panics if it never does.
async fn until_closed(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes));
    drop(read.await.expect("closed in time"));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn silence_is_not_waited_for() {
    let api = Api::start_with(hasty).await;
    // No TLS at all.
    let silent = TcpStream::connect(api.running.addr).await.unwrap();
    assert_eq!(until_closed(silent).await, "");
    // TLS, then half a request line.
    let mut half = connect(&api, None, b"http/1.1").await;
    half.write_all(b"GET /hea").await.unwrap();
    assert_eq!(until_closed(half).await, "");
    // A request, then nothing more.
    let mut kept = connect(&api, None, b"http/1.1").await;
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let answer = until_closed(kept).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // HTTP/2 agreed, never spoken.
    let mute = connect(&api, None, b"h2").await;
    until_closed(mute).await;
    assert_eq!(api.get("/healthz").await.text(), "ok");
}

#[tokio::test]
async fn headers_without_end_are_cut_off() {
    let api = Api::start().await;
    let mut stream = connect(&api, None, b"http/1.1").await;
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ")
        .await
        .unwrap();
    let chunk = vec![b'x'; 16 * 1024];
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        // Until the server has had enough; far beyond the limit in any case.
        for _ in 0..64 {
            if writer.write_all(&chunk).await.is_err() {
                break;
            }
        }
    };
    let read = async {
        let mut bytes = Vec::new();
        drop(reader.read_to_end(&mut bytes).await);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let both = async { tokio::join!(write, read) };
    let ((), answer) = tokio::time::timeout(PATIENCE, both)
        .await
        .expect("closed in time");
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
        "{answer}"
    );
    assert_eq!(api.get("/healthz").await.text(), "ok");
}

#[tokio::test]
async fn bodies_that_trickle_over_the_limit_are_refused() {
    let api = Api::start().await;
    let admin = api.running.pki().admin().unwrap();
    let mut stream = connect(&api, Some(&admin), b"http/1.1").await;
    let head = "POST /api/v1/namespaces/default/pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let (reader, mut writer) = tokio::io::split(stream);
    let write = async {
        let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
        for _ in 0..128 {
            if writer.write_all(&chunk).await.is_err() {
                break;
            }
        }
    };
    let ((), answer) = tokio::join!(write, until_closed(reader));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn large_bodies_over_http2_are_refused_with_an_answer() {
    let api = Api::start().await;
    let admin = api.running.pki().admin().unwrap();
    let io = TokioIo::new(connect(&api, Some(&admin), b"h2").await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    // As curl sends it: with its length, and to the end whatever is answered.
    const SIZE: usize = 4 << 20;
    for length_known in [true, false] {
        let (chunks, sent) = tokio::sync::mpsc::channel::<Bytes>(1);
        let chunks_sent = tokio::spawn(async move {
            let mut count = 0;
            for _ in 0..SIZE / 0x10000 {
                match chunks.send(Bytes::from(vec![b' '; 0x10000])).await {
                    Ok(()) => count += 0x10000,
                    Err(_) => break,
                }
            }
            count
        });
        let mut sent = sent;
        let frames = futures::stream::poll_fn(move |cx| sent.poll_recv(cx));
        let body = apiserver::body::streaming(frames.map(Ok));
        let mut request = Request::post("https://localhost/api/v1/namespaces/default/pods")
            .header("content-type", "application/json");
        if length_known {
            request = request.header("content-length", SIZE);
        }
        let response = sender.send_request(request.body(body).unwrap());
        let response = tokio::time::timeout(PATIENCE, response)
            .await
            .expect("an answer in time")
            .unwrap();
        assert_eq!(response.status(), 413);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("limit is 3145728"), "{text}");
        let sent = tokio::time::timeout(PATIENCE, chunks_sent).await;
        assert_eq!(sent.expect("read in time").unwrap(), SIZE, "{length_known}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_idle_connections_do_not_keep_others_out() {
    use rustix::process::{Resource, getrlimit};
    let api = Api::start().await;
    // Both ends are in this process: two descriptors each.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(1 << 16);
    let count = usize::try_from(files.saturating_sub(1024) / 2)
        .unwrap()
        .min(10_000);
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        idle.push(TcpStream::connect(api.running.addr).await.unwrap());
    }
    let admin = api.running.pki().admin().unwrap();
    let mut stream = tokio::time::timeout(PATIENCE, connect(&api, Some(&admin), b"http/1.1"))
        .await
        .unwrap();
    stream
        .write_all(b"GET /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let answer = until_closed(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(idle);
}

#[tokio::test]
async fn http2_carries_a_watch_and_requests_beside_it() {
    let api = Api::start_with(hasty).await;
    let admin = api.running.pki().admin().unwrap();
    let io = TokioIo::new(connect(&api, Some(&admin), b"h2").await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let get = |path: &str| {
        Request::get(format!("https://localhost{path}"))
            .body(Full::<Bytes>::default())
            .unwrap()
    };
    let watch = sender
        .send_request(get("/api/v1/namespaces?watch=1"))
        .await
        .unwrap();
    let mut body = watch.into_body();
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(frame.starts_with(b"{\"type\":\"ADDED\""));
    // Longer than a connection may idle: the watch keeps it open.
    let until = tokio::time::Instant::now() + Duration::from_millis(900);
    while tokio::time::Instant::now() < until {
        let beside = sender.send_request(get("/version")).await.unwrap();
        assert!(beside.status().is_success());
        beside.into_body().collect().await.unwrap();
        tokio::time::sleep(Duration::from_millis(450)).await;
    }
    drop(body);
    // With the watch gone it is idle, and the server says goodbye.
    tokio::time::timeout(PATIENCE, connection)
        .await
        .expect("closed in time")
        .unwrap()
        .ok();
}

/// Reads a watch until it has told of the object `last`; returns what it told.
async fn names_until(mut body: Incoming, last: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), Vec::new());
    while names.last().is_none_or(|name| name != last) {
        let frame = body.frame().await.expect("it goes on").unwrap();
        rest.extend_from_slice(&frame.into_data().unwrap());
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let event: serde_json::Value = serde_json::from_slice(&line).unwrap();
            names.push(
                event["object"]["metadata"]["name"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watch_of_every_connection_sees_all_in_order() {
    let api = Api::start().await;
    let admin = api.running.pki().admin().unwrap();
    let (mut watches, mut senders) = (Vec::new(), Vec::new());
    let get = || {
        Request::get(format!(
            "https://localhost{CONFIG_MAPS}?watch=1&resourceVersion=0"
        ))
    };
    for _ in 0..3 {
        let io = TokioIo::new(connect(&api, Some(&admin), b"h2").await);
        let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
        let (mut sender, connection) = shaken.await.unwrap();
        tokio::spawn(connection);
        for _ in 0..50 {
            let request = get().body(Full::<Bytes>::default()).unwrap();
            watches.push(sender.send_request(request).await.unwrap().into_body());
        }
        senders.push(sender);
    }
    let io = TokioIo::new(connect(&api, Some(&admin), b"http/1.1").await);
    let (mut alone, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = get()
        .header("host", "localhost")
        .body(Full::<Bytes>::default());
    watches.push(
        alone
            .send_request(request.unwrap())
            .await
            .unwrap()
            .into_body(),
    );

    let names: Vec<String> = (0..40).map(|i| format!("c{i}")).collect();
    let seen = watches
        .into_iter()
        .map(|w| tokio::spawn(names_until(w, "c39")));
    let seen: Vec<_> = seen.collect();
    for (i, name) in names.iter().enumerate() {
        let mut object = config_map(name);
        if i % 10 == 5 {
            object["data"]["large"] = "x".repeat(150_000).into();
        }
        api.post(CONFIG_MAPS, &object).await.ok();
    }
    for watch in seen {
        let watch = tokio::time::timeout(PATIENCE, watch).await;
        assert_eq!(watch.expect("in time").unwrap(), names);
    }
    drop(senders);
}

#[tokio::test]
async fn a_taken_port_is_named_with_the_way_out() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let port = api.running.addr.port();
    let store = StoreSource::Other(api.store.clone());
    let error = Server::start(Config::new(store, dir.path().join("pki"), port))
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Bind { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&port.to_string()) && text.contains("--secure-port"),
        "{text}"
    );
    assert!(!dir.path().join("pki").exists(), "nothing was written");
}

#[tokio::test]
async fn an_address_of_another_machine_is_named_with_the_way_out() {
    let api = Api::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(StoreSource::Other(api.store.clone()), dir.path(), 0);
    // TEST-NET-1 (RFC 5737): nobody's.
    config.bind.set_ip([192, 0, 2, 1].into());
    let text = Server::start(config).await.unwrap_err().to_string();
    assert!(
        text.contains("--bind-address") && !text.contains("--secure-port"),
        "{text}"
    );
}

#[tokio::test]
async fn a_second_start_is_quick_and_finds_everything() {
    let first = Api::start().await;
    let ca = first.running.pki().ca_pem().to_owned();
    let (dir, store) = (first.dir, first.store.clone());
    first.running.shutdown().await;
    let started = std::time::Instant::now();
    let config = Config::new(StoreSource::Other(store), dir.path().join("pki"), 0);
    let second = Server::start(config).await.unwrap();
    // Generous for a loaded machine; it takes tens of milliseconds alone.
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(second.pki().ca_pem(), ca);
}
