//! The kubelet's streams, as an API server hands them through.

use std::collections::BTreeMap;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use spdy::{Decoder, Encoder, Frame, Headers};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::world::{PATIENCE, World, sleeper};

type Socket = WebSocketStream<TlsStream<TcpStream>>;

async fn dial(world: &World, path: &str, protocol: &str) -> Result<Socket, (u16, String)> {
    let stream = world.connect(world.client_config()).await.unwrap();
    let mut request = format!("wss://n1{path}").into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", protocol.parse().unwrap());
    match tokio_tungstenite::client_async(request, stream).await {
        Ok((socket, answer)) => {
            assert_eq!(answer.headers()["sec-websocket-protocol"], protocol);
            Ok(socket)
        }
        Err(Error::Http(answer)) => {
            let body = answer.body().clone().unwrap_or_default();
            Err((answer.status().as_u16(), String::from_utf8(body).unwrap()))
        }
        Err(error) => panic!("{error}"),
    }
}

async fn send(socket: &mut Socket, channel: u8, bytes: &[u8]) {
    let message = [&[channel], bytes].concat();
    socket.send(Message::Binary(message.into())).await.unwrap();
}

/// Hears a socket to its end: what came on each channel.
async fn heard(socket: &mut Socket) -> BTreeMap<u8, Vec<u8>> {
    let mut channels: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    let hear = async {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Binary(bytes) = message {
                let (channel, rest) = bytes.split_first().unwrap();
                channels
                    .entry(*channel)
                    .or_default()
                    .extend_from_slice(rest);
            }
        }
    };
    tokio::time::timeout(PATIENCE, hear).await.expect("it ends");
    channels
}

fn status(channels: &BTreeMap<u8, Vec<u8>>) -> Value {
    serde_json::from_slice(&channels[&3]).unwrap()
}

async fn with_pod() -> (World, String) {
    let world = World::new().await;
    let uid = world.create_pod("web", sleeper()).await;
    world
        .until("it runs", |w| {
            !w.container("web")["state"]["running"].is_null()
        })
        .await;
    (world, uid)
}

/// Answers one connection with what it sends; returns the port.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await.unwrap();
                write.shutdown().await.unwrap();
            });
        }
    });
    port
}

#[tokio::test]
async fn commands_speak_channels() {
    let (world, uid) = with_pod().await;
    let streams = "input=1&output=1&error=1";
    let script = "command=sh&command=-c&command=cat;+echo+err+%3E%262;+exit+3";
    let path = format!("/exec/default/web/{uid}/app?{streams}&{script}");
    let mut socket = dial(&world, &path, "v5.channel.k8s.io").await.unwrap();
    send(&mut socket, 0, b"typed").await;
    send(&mut socket, 255, &[0]).await;
    let channels = heard(&mut socket).await;
    assert_eq!(channels[&1], b"typed");
    assert_eq!(channels[&2], b"err\n");
    let status = status(&channels);
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(status["details"]["causes"][0]["message"], "3");
}

#[tokio::test]
async fn version_four_has_no_end_of_input_and_a_client_that_leaves_ends_the_command() {
    let (world, _) = with_pod().await;
    let before = world.processes().len();
    let path = "/exec/default/web/app?output=1&command=true";
    let mut socket = dial(&world, path, "v4.channel.k8s.io").await.unwrap();
    let channels = heard(&mut socket).await;
    assert_eq!(status(&channels)["status"], "Success");
    let path = "/exec/default/web/app?input=1&output=1&command=cat";
    let mut socket = dial(&world, path, "v4.channel.k8s.io").await.unwrap();
    send(&mut socket, 0, b"typed").await;
    world
        .until("it runs", |w| w.processes().len() > before)
        .await;
    drop(socket);
    world
        .until("it is gone", |w| w.processes().len() == before)
        .await;
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let (world, _) = with_pod().await;
    for (path, code, words) in [
        (
            "/exec/default/web/app?command=ls",
            400,
            "at least 1 of stdin",
        ),
        (
            "/exec/default/web/other?output=1",
            500,
            "container not found (\"other\")",
        ),
        (
            "/exec/default/nobody/app?output=1",
            404,
            "pod does not exist",
        ),
        (
            "/exec/default/web/no-such-uid/app?output=1",
            404,
            "pod does not exist",
        ),
        ("/attach/other/web/app?output=1", 404, "pod does not exist"),
        ("/portForward/default/web?port=0", 400, "must be > 0"),
        ("/portForward/default/web", 400, "is required"),
        ("/exec/default", 404, "not found"),
    ] {
        let refused = dial(&world, path, "v4.channel.k8s.io").await.unwrap_err();
        assert_eq!(refused.0, code, "{path}: {}", refused.1);
        assert!(refused.1.contains(words), "{path}: {}", refused.1);
    }
    let path = "/exec/default/web/app?output=1&command=ls";
    assert_eq!(
        dial(&world, path, "channel.k8s.io").await.unwrap_err().0,
        403
    );
    let plain = world.get("/exec/default/web/app?output=1&command=ls").await;
    assert!(plain.starts_with("HTTP/1.1 400 "), "{plain}");
    // What is known only later comes on the error channel.
    let path = "/exec/default/web/app?output=1&command=no-such-program";
    let mut socket = dial(&world, path, "v5.channel.k8s.io").await.unwrap();
    let status = status(&heard(&mut socket).await);
    assert_eq!(status["reason"], "InternalError");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("executable file not found in $PATH"),
        "{message}"
    );
}

#[tokio::test]
async fn ports_are_forwarded_over_channels() {
    let (world, uid) = with_pod().await;
    let port = echo().await;
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = unused.local_addr().unwrap().port();
    drop(unused);
    let path = format!("/portForward/default/web?port={closed},{port}");
    let mut socket = dial(&world, &path, "v4.channel.k8s.io").await.unwrap();
    send(&mut socket, 2, b"there and back").await;
    let mut channels: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    let all = |c: &BTreeMap<u8, Vec<u8>>| {
        c.get(&2).is_some_and(|b| b.len() >= 16) && c.get(&1).is_some_and(|b| b.len() > 2)
    };
    while !all(&channels) {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await;
        let message = message.expect("in time").unwrap().unwrap();
        let bytes = message.into_data();
        let (channel, rest) = bytes.split_first().unwrap();
        channels
            .entry(*channel)
            .or_default()
            .extend_from_slice(rest);
    }
    let begins = |port: u16, rest: &[u8]| [&port.to_le_bytes(), rest].concat();
    assert_eq!(channels[&0], begins(closed, b""));
    assert_eq!(channels[&2], begins(port, b"there and back"));
    assert_eq!(channels[&3], begins(port, b""));
    let error = String::from_utf8_lossy(&channels[&1][2..]).into_owned();
    let start = format!("error forwarding port {closed} to pod web, uid {uid}: ");
    assert!(error.starts_with(&start), "{error}");
}

/// Sends frames through the tunnel, in messages of any size.
async fn tell(socket: &mut Socket, encoder: &mut Encoder, frames: &[Frame]) {
    let mut bytes = Vec::new();
    frames.iter().for_each(|f| encoder.encode(f, &mut bytes));
    for part in bytes.chunks(11) {
        let message = Message::Binary(part.to_vec().into());
        socket.send(message).await.unwrap();
    }
}

fn open(stream: u32, kind: &str, port: &str, request: &str) -> Frame {
    let pairs = [("streamtype", kind), ("port", port), ("requestid", request)];
    Frame::SynStream {
        stream,
        associated: 0,
        priority: 0,
        fin: false,
        unidirectional: false,
        headers: Headers(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec()),
    }
}

fn data(stream: u32, fin: bool, bytes: &'static [u8]) -> Frame {
    Frame::Data {
        stream,
        fin,
        bytes: bytes::Bytes::from_static(bytes),
    }
}

#[tokio::test]
async fn ports_are_forwarded_over_spdy() {
    let (world, _) = with_pod().await;
    let port = echo().await.to_string();
    let protocol = "SPDY/3.1+portforward.k8s.io";
    let mut socket = dial(&world, "/portForward/default/web", protocol)
        .await
        .unwrap();
    let mut encoder = Encoder::default();
    let frames = [
        Frame::Ping { id: 1 },
        open(1, "error", &port, "0"),
        data(1, true, b""),
        open(3, "data", &port, "0"),
        data(3, false, b"there "),
        data(3, true, b"and back"),
        open(5, "stdin", &port, "1"),
    ];
    tell(&mut socket, &mut encoder, &frames).await;
    let mut decoder = Decoder::default();
    let (mut seen, mut echoed, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    while ended.len() < 2 || seen.len() < 4 {
        let message = tokio::time::timeout(PATIENCE, socket.next()).await;
        decoder.push(&message.expect("in time").unwrap().unwrap().into_data());
        while let Some(frame) = decoder.next_frame().unwrap() {
            match frame {
                Frame::Data { stream, fin, bytes } => {
                    assert!(bytes.is_empty() || stream == 3);
                    echoed.extend_from_slice(&bytes);
                    ended.extend(fin.then_some(stream));
                }
                other => seen.push(other),
            }
        }
    }
    assert_eq!(echoed, b"there and back");
    assert_eq!(ended, [3, 1]);
    let reply = |stream| Frame::SynReply {
        stream,
        fin: false,
        headers: Headers::default(),
    };
    let refused = Frame::Reset {
        stream: 5,
        status: 5,
    };
    assert_eq!(seen, [Frame::Ping { id: 1 }, reply(1), reply(3), refused]);
}

#[tokio::test]
async fn a_logs_stream_can_be_chosen() {
    let world = World::new().await;
    let script = "echo out; echo err >&2";
    let spec = json!({"restartPolicy": "Never", "containers": [
        {"name": "app", "image": "host", "command": ["sh", "-c", script]}]});
    world.create_pod("talk", spec).await;
    world
        .until("it ends", |w| {
            !w.container("talk")["state"]["terminated"].is_null()
        })
        .await;
    let log = world
        .get("/containerLogs/default/talk/app?stream=Stderr")
        .await;
    assert!(log.contains("err") && !log.contains("out"), "{log}");
}
