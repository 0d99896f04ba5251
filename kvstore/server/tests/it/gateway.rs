//! The JSON gateway, against answers of etcd 3.5.1.

use futures::{SinkExt as _, StreamExt as _};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tokio_tungstenite::tungstenite::Message;

use crate::store::{DEADLINE, Store, put};

/// Requests and the answers etcd 3.5.1 gave, in order, on an empty store. Below a
/// request stand its status, its content types, and the lines of its body. What
/// names the cluster or the member is masked.
const RECORDED: &str = include_str!("../golden/gateway.txt");

struct Exchange {
    request: String,
    body: String,
    answer: String,
}

fn recorded() -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let is_request = ["POST ", "GET ", "PUT ", "DELETE "]
            .iter()
            .any(|method| line.starts_with(method));
        if is_request {
            let mut parts = line.splitn(3, ' ');
            let (method, path) = (parts.next().unwrap(), parts.next().unwrap());
            exchanges.push(Exchange {
                request: format!("{method} {path}"),
                body: parts.next().unwrap_or_default().to_owned(),
                answer: String::new(),
            });
        } else {
            let exchange = exchanges.last_mut().unwrap();
            exchange.answer.push_str(line);
            exchange.answer.push('\n');
        }
    }
    exchanges
}

/// Hides what differs from cluster to cluster.
fn masked(body: &str) -> String {
    let mut body = body.to_owned();
    for (name, mask) in [("cluster_id", "C"), ("member_id", "M"), ("raft_term", "T")] {
        let open = format!("\"{name}\":\"");
        let mut parts = body.split(&open);
        let mut hidden = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
            hidden.push_str(&format!("{open}{mask}{rest}"));
        }
        body = hidden;
    }
    body
}

#[tokio::test]
async fn answers_are_those_of_etcd_3_5_byte_for_byte() {
    let store = Store::start().await;
    let mut different = Vec::new();
    for exchange in recorded() {
        let answer = store.http(&exchange.request, &exchange.body).await;
        let grpc = answer.header("grpc-metadata-content-type").unwrap_or("-");
        let kind = answer.header("content-type").unwrap_or_default();
        let mut text = format!("{} {kind} {grpc}\n", answer.status);
        for line in masked(&answer.body).trim_end_matches('\n').split('\n') {
            let indent = if line.is_empty() { "" } else { "  " };
            text.push_str(&format!("{indent}{line}\n"));
        }
        if text != exchange.answer {
            different.push(format!(
                "{} {}\netcd: {}ours: {text}",
                exchange.request, exchange.body, exchange.answer
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[tokio::test]
async fn a_token_comes_in_the_authorization_header_or_as_metadata() {
    let store = Store::start().await;
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"r"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("enable", "{}"),
    ] {
        let answer = store.http(&format!("POST /v3/auth/{path}"), body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
    let login = r#"{"name":"root","password":"r"}"#;
    let answer = store.http("POST /v3/auth/authenticate", login).await;
    let reply: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let token = reply["token"].as_str().unwrap();
    let range = async |header: String| {
        let head = format!("POST /v3/kv/range\n{header}");
        store.http(&head, r#"{"key":"YQ=="}"#).await.status
    };
    assert_eq!(range(format!("Authorization: {token}")).await, 200);
    assert_eq!(range(format!("Authorization: Bearer {token}")).await, 200);
    assert_eq!(range(format!("Grpc-Metadata-Token: {token}")).await, 200);
    assert_eq!(range(format!("Token: {token}")).await, 400);
    assert_eq!(range("Authorization: invented".to_owned()).await, 401);
    // What fails at once on a stream has an error's status.
    let answer = store.http("POST /v3/maintenance/snapshot", "{}").await;
    assert!(answer.status >= 400, "{}", answer.status);
    assert!(
        answer.body.starts_with(r#"{"error":{"grpc_code":"#),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn a_message_too_large_is_refused_and_nothing_is_kept_of_it() {
    let store = Store::start_with(|config| config.max_request_bytes = 1 << 10).await;
    let put = |bytes: usize| {
        // Four letters are three bytes.
        format!(
            "{{\"key\":\"YQ==\",\"value\":\"{}\"}}",
            "YWFh".repeat(bytes / 3)
        )
    };
    let error = |code: u8, message: &str| {
        format!("{{\"error\":\"{message}\",\"code\":{code},\"message\":\"{message}\"}}")
    };
    let answer = store.http("POST /v3/kv/put", &put(3_000)).await;
    let wanted = error(3, "etcdserver: request is too large");
    assert_eq!((answer.status, answer.body), (400, wanted));
    // 512 KiB over the limit is what gRPC itself takes (grpcOverheadBytes).
    let answer = store.http("POST /v3/kv/put", &put(600_000)).await;
    let wanted = error(
        8,
        "grpc: received message larger than max (600007 vs. 525312)",
    );
    assert_eq!((answer.status, answer.body), (429, wanted));
    // One too large to be read at all is told by the size of its text.
    let text = put(1_500_000);
    let wanted = error(
        8,
        &format!(
            "grpc: received message larger than max ({} vs. 525312)",
            text.len()
        ),
    );
    let answer = store.http("POST /v3/kv/put", &text).await;
    assert_eq!((answer.status, answer.body), (429, wanted));
    assert_eq!(store.kv().await.get("a").await, None);
}

#[tokio::test]
async fn without_the_gateway_there_is_nothing_at_its_paths() {
    let store = Store::start_with(|config| config.enable_grpc_gateway = false).await;
    let answer = store.http("POST /v3/kv/range", r#"{"key":"YQ=="}"#).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (404, "404 page not found\n")
    );
}

/// A stream over HTTP/1.1 whose request stays open.
struct Open {
    lines: tokio::io::Lines<BufReader<tokio::net::tcp::OwnedReadHalf>>,
    send: tokio::net::tcp::OwnedWriteHalf,
}

impl Open {
    async fn post(store: &Store, path: &str) -> Self {
        let stream = TcpStream::connect(store.running().client_addr.unwrap())
            .await
            .unwrap();
        let (receive, mut send) = stream.into_split();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        send.write_all(head.as_bytes()).await.unwrap();
        let lines = BufReader::new(receive).lines();
        Self { lines, send }
    }

    async fn send(&mut self, text: &str) {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.send.write_all(chunk.as_bytes()).await.unwrap();
    }

    /// Reads the next line of JSON, wherever chunks are cut.
    async fn line(&mut self) -> String {
        let read = async {
            loop {
                let line = self.lines.next_line().await.unwrap().unwrap();
                if line.starts_with('{') {
                    return masked(&line);
                }
            }
        };
        tokio::time::timeout(DEADLINE, read).await.unwrap()
    }
}

const HEADER: &str = r#""header":{"cluster_id":"C","member_id":"M","#;

#[tokio::test]
async fn a_watch_is_spoken_to_while_it_answers() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut watch = Open::post(&store, "/v3/watch").await;
    // Cut in the middle of a message.
    watch.send(r#"{"create_request":{"key":"Y"#).await;
    watch
        .send(r#"Q==","prev_kv":true}} {"create_request":"#)
        .await;
    let created = format!(
        "{{\"result\":{{{HEADER}\"revision\":\"1\",\"raft_term\":\"T\"}},\"created\":true}}}}"
    );
    assert_eq!(watch.line().await, created);
    kv.put("a", "1").await;
    let event = watch.line().await;
    assert!(
        event.ends_with(r#""events":[{"kv":{"key":"YQ==","create_revision":"2","mod_revision":"2","version":"1","value":"MQ=="}}]}}"#),
        "{event}"
    );
    watch.send(r#"{"key":"Yg==","watch_id":7}}"#).await;
    assert!(
        watch
            .line()
            .await
            .ends_with(r#""watch_id":"7","created":true}}"#)
    );
    kv.0.delete_range(crate::store::delete("a", ""))
        .await
        .unwrap();
    let event = watch.line().await;
    assert!(
        event.contains(
            r#""events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"3"},"prev_kv":{"#
        ),
        "{event}"
    );
    watch.send(r#"{"cancel_request":{"watch_id":7}}"#).await;
    assert!(
        watch
            .line()
            .await
            .ends_with(r#""watch_id":"7","canceled":true}}"#)
    );
}

/// What `curl -d` does: it sends its request, and has nothing more to say.
#[tokio::test]
async fn a_watch_goes_on_when_its_client_has_said_all() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut watch = Open::post(&store, "/v3/watch").await;
    watch.send(r#"{"create_request":{"key":"YQ=="}}"#).await;
    watch.send.write_all(b"0\r\n\r\n").await.unwrap();
    assert!(watch.line().await.ends_with(r#""created":true}}"#));
    kv.put("a", "1").await;
    assert!(watch.line().await.contains(r#""events":[{"kv":"#));
    // And it is over when its client is.
    drop(watch);
    let handle = &store.running().handle;
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !store
        .http("GET /metrics", "")
        .await
        .body
        .contains("\netcd_debugging_mvcc_watch_stream_total 0\n")
    {
        assert!(tokio::time::Instant::now() < deadline, "the stream stays");
        // Writing to it shows that nobody reads.
        let put = mvcc::PutRequest {
            key: "a".into(),
            ..mvcc::PutRequest::default()
        };
        handle.put(put).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// As grpc-websocket-proxy: messages in, lines out.
#[tokio::test]
async fn a_watch_speaks_over_a_websocket() {
    let store = Store::start().await;
    let addr = store.running().client_addr.unwrap();
    let connect = async |path: &str| {
        let stream = TcpStream::connect(addr).await.unwrap();
        let url = format!("ws://{addr}{path}");
        tokio_tungstenite::client_async(url, stream).await
    };
    let (mut socket, answer) = connect("/v3/watch").await.unwrap();
    assert_eq!(answer.status(), 101);
    let say = |text: &str| Message::text(text.to_owned());
    let create = r#"{"create_request":{"key":"YQ=="}}"#;
    socket.send(say(create)).await.unwrap();
    let heard = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(heard.ends_with(r#""created":true}}"#), "{heard}");
    store.kv().await.0.put(put("a", "1")).await.unwrap();
    let heard = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(heard.contains(r#""events":[{"kv":"#), "{heard}");
    socket.close(None).await.unwrap();

    let (mut socket, _) = connect("/v3/watch").await.unwrap();
    socket.send(say("bad")).await.unwrap();
    let heard = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert_eq!(
        heard.as_str(),
        r#"{"error":"invalid character 'b' looking for beginning of value","code":2,"message":"invalid character 'b' looking for beginning of value"}"#
    );

    let (mut socket, _) = connect("/v3/lease/keepalive").await.unwrap();
    for id in [1, 2] {
        socket.send(say(&format!("{{\"ID\":{id}}}"))).await.unwrap();
        let heard = socket.next().await.unwrap().unwrap().into_text().unwrap();
        assert!(heard.ends_with(&format!("\"ID\":\"{id}\"}}}}")), "{heard}");
    }
    assert!(connect("/v3/nowhere").await.is_err());
    assert!(connect("/health").await.is_err());
}
