//! A member in a directory of its own, and clients for it.

use std::{path::PathBuf, time::Duration};

use kvserver::{Config, Running, Server};
use proto::etcdserverpb::{
    self as pb, kv_client::KvClient, lease_client::LeaseClient,
    maintenance_client::MaintenanceClient, watch_client::WatchClient,
};
use tempfile::TempDir;
use tonic::{Status, transport::Channel};

/// How long anything may take before a test gives up.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Store {
    pub(crate) running: Option<Running>,
    pub(crate) config: Config,
    /// Last, so that it outlives the member that writes into it.
    _dir: TempDir,
}

impl Store {
    /// Starts a member on a free port.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new(dir.path().join("data"));
        config.listen_client_urls = vec!["http://127.0.0.1:0".to_owned()];
        config.wal_segment_bytes = 256 << 10;
        change(&mut config);
        let running = Server::start(config.clone()).await.unwrap();
        Self {
            _dir: dir,
            running: Some(running),
            config,
        }
    }

    /// Stops the member without any farewell and starts it again.
    pub(crate) async fn lose_power(&mut self) {
        drop(self.running.take());
        self.running = Some(Server::start(self.config.clone()).await.unwrap());
    }

    /// Stops the member in order and starts it again.
    pub(crate) async fn restart(&mut self) {
        self.running.take().unwrap().shutdown().await;
        self.running = Some(Server::start(self.config.clone()).await.unwrap());
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) fn wal_files(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.config.data_dir.join("wal")).unwrap();
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|kind| kind == "wal"));
        files.sort();
        files
    }

    /// Waits until the log says that all its entries are committed.
    pub(crate) async fn commit_is_written(&self) {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            let mut told = Vec::new();
            // It is written to meanwhile.
            let _torn = kvserver::wal_dump::dump(&self.config.data_dir, None, &mut told);
            let told = String::from_utf8(told).unwrap();
            let record = |line: &&str| line.contains("entry\"") || line.contains("hardState\"");
            if told
                .lines()
                .rfind(record)
                .is_some_and(|line| line.contains("\"hardState\""))
            {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "{told}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.running().client_addr.unwrap())
    }

    /// Sends one HTTP/1.1 request to the client port, as [`http`] does.
    pub(crate) async fn http(&self, head: &str, body: &str) -> Answer {
        http(self.running().client_addr.unwrap(), head, body).await
    }

    pub(crate) async fn channel(&self) -> Channel {
        Channel::from_shared(self.url())
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    pub(crate) async fn kv(&self) -> Kv {
        Kv::new(self.channel().await)
    }

    pub(crate) async fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel().await)
    }

    pub(crate) async fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel().await)
    }

    pub(crate) async fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel().await)
    }
}

/// An answer over HTTP/1.1.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The header, in small letters.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        let chunked = head.contains("transfer-encoding: chunked");
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            body: if chunked {
                unchunked(body)
            } else {
                body.to_owned()
            },
            head,
        }
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim())
        })
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    whole
}

/// Sends one HTTP/1.1 request and reads the whole answer. `head` is its first line
/// and, on lines of their own, headers beyond the usual.
pub(crate) async fn http(addr: std::net::SocketAddr, head: &str, body: &str) -> Answer {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
    let mut request = format!("{line} HTTP/1.1\r\n");
    if !headers.to_ascii_lowercase().contains("host:") {
        request.push_str("Host: x\r\n");
    }
    for header in headers.lines() {
        request.push_str(&format!("{header}\r\n"));
    }
    request.push_str(&format!(
        "Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(DEADLINE, read).await.unwrap().unwrap();
    Answer::parse(&answer)
}

/// The KV client with the plain cases made short.
pub(crate) struct Kv(pub(crate) KvClient<Channel>);

impl Kv {
    pub(crate) fn new(channel: Channel) -> Self {
        // Like etcd's own client, which takes answers of any size.
        Self(KvClient::new(channel).max_decoding_message_size(usize::MAX))
    }

    /// Puts; returns the revision.
    pub(crate) async fn put(&mut self, key: &str, value: &str) -> i64 {
        let reply = self.0.put(put(key, value)).await.unwrap().into_inner();
        reply.header.unwrap().revision
    }

    /// Gets the value, if there is one.
    pub(crate) async fn get(&mut self, key: &str) -> Option<String> {
        let reply = self.range(range(key, "")).await.unwrap();
        reply
            .kvs
            .first()
            .map(|kv| String::from_utf8(kv.value.to_vec()).unwrap())
    }

    pub(crate) async fn range(
        &mut self,
        request: pb::RangeRequest,
    ) -> Result<pb::RangeResponse, Status> {
        Ok(self.0.range(request).await?.into_inner())
    }

    pub(crate) async fn txn(&mut self, request: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
        Ok(self.0.txn(request).await?.into_inner())
    }

    pub(crate) async fn compact(
        &mut self,
        revision: i64,
    ) -> Result<pb::CompactionResponse, Status> {
        Ok(self
            .0
            .compact(pb::CompactionRequest {
                revision,
                physical: true,
            })
            .await?
            .into_inner())
    }
}

pub(crate) fn bytes(text: &str) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest {
        key: bytes(key),
        value: bytes(value),
        ..pb::PutRequest::default()
    }
}

pub(crate) fn range(key: &str, range_end: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: bytes(key),
        range_end: bytes(range_end),
        ..pb::RangeRequest::default()
    }
}

pub(crate) fn delete(key: &str, range_end: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: bytes(key),
        range_end: bytes(range_end),
        prev_kv: false,
    }
}

pub(crate) fn op(request: pb::request_op::Request) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(request),
    }
}

pub(crate) fn put_op(key: &str, value: &str) -> pb::RequestOp {
    op(pb::request_op::Request::RequestPut(put(key, value)))
}

/// Checks code and message of a refusal.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: i32, message: &str) {
    let status = result.unwrap_err();
    assert_eq!((status.code() as i32, status.message()), (code, message));
}
