//! One of the two members under comparison, and what a client of it has to keep.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures::StreamExt as _;
use prost::Message;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use proto::{etcdserverpb as pb, v3electionpb};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};
use tonic::{
    Request, Status,
    client::Grpc,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};

use super::{
    answer::{Part, Refusal},
    process::{Launch, Process},
    watching::Stream,
    wire::{self, Raw},
};

/// How long a member may take to serve after its start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long any call may take. Beyond it the answer is that there was none.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How often something that must come about is looked at again.
const POLL: Duration = Duration::from_millis(5);

/// Largest answer taken.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A member, and what a client of it has to keep.
pub(crate) struct Side {
    process: Process,
    channel: Channel,
    /// Tokens by user; the last one each was given.
    pub(crate) tokens: BTreeMap<String, String>,
    /// The leases whose ids the server chose, in order.
    pub(crate) leases: Vec<i64>,
    /// Leadership by election, as the last campaign was told.
    pub(crate) leaders: BTreeMap<Bytes, v3electionpb::LeaderKey>,
    pub(crate) streams: BTreeMap<u8, Stream>,
    pub(crate) member: i64,
}

impl Side {
    /// Starts a member and waits until it serves.
    pub(crate) async fn start(launch: &Launch) -> anyhow::Result<Self> {
        const TRIES: usize = 3;
        let mut last = None;
        for _ in 0..TRIES {
            match Self::try_start(launch).await {
                Ok(side) => return Ok(side),
                // A port may have been taken in between.
                Err(error) => last = Some(error),
            }
        }
        let name = launch.program.display().to_string();
        Err(last.context("nothing was tried")?).with_context(|| format!("{name} does not start"))
    }

    async fn try_start(launch: &Launch) -> anyhow::Result<Self> {
        let process = Process::start(launch)?;
        let channel = Endpoint::from_shared(process.endpoint.clone())?.connect_lazy();
        let mut side = Self {
            process,
            channel,
            tokens: BTreeMap::new(),
            leases: Vec::new(),
            leaders: BTreeMap::new(),
            streams: BTreeMap::new(),
            member: 0,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let range = pb::RangeRequest {
                key: Bytes::from_static(b"?"),
                ..pb::RangeRequest::default()
            };
            let answer = side
                .ask::<_, pb::RangeResponse>("KV/Range", &range, "")
                .await;
            if let Ok(range) = answer {
                let header = range.header.unwrap_or_default();
                side.member = header.member_id.cast_signed();
                return Ok(side);
            }
            if let Some(end) = side.process.ended() {
                bail!("it ended: {end}");
            }
            if Instant::now() > deadline {
                bail!(
                    "not in {START_TIMEOUT:?}; log:\n{}",
                    side.process.log_tail()
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Says how the process ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.process.ended()
    }

    /// Calls a method with typed messages.
    pub(crate) async fn ask<Q: Message, A: Message + Default>(
        &self,
        method: &str,
        request: &Q,
        user: &str,
    ) -> Result<A, Refusal> {
        let method = wire::method(method).expect("a method of our own .proto text");
        let body = request.encode_to_vec().into();
        let answers = self.send(&method, body, user).await?;
        let last = answers.last().cloned().unwrap_or_default();
        A::decode(last).map_err(|error| Refusal {
            code: -1,
            message: format!("unreadable: {error}"),
        })
    }

    /// Calls a method and describes the answer. A stream's answers become one part each.
    pub(crate) async fn call(
        &self,
        method: &MethodDescriptor,
        request: &DynamicMessage,
        user: &str,
    ) -> Vec<Part> {
        let body = request.encode_to_vec().into();
        let answers = match self.send(method, body, user).await {
            Ok(answers) => answers,
            Err(refusal) => return vec![Part::new("", Err(refusal))],
        };
        let describe = |bytes: Bytes| {
            DynamicMessage::decode(method.output(), bytes).map_err(|error| Refusal {
                code: -1,
                message: format!("unreadable: {error}"),
            })
        };
        answers
            .into_iter()
            .map(|bytes| Part::new("", describe(bytes)))
            .collect()
    }

    async fn send(
        &self,
        method: &MethodDescriptor,
        body: Bytes,
        user: &str,
    ) -> Result<Vec<Bytes>, Refusal> {
        let call = self.exchange(method, body, user);
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(answer) => answer.map_err(Refusal::from),
            Err(_late) => Err(Refusal {
                code: -1,
                message: format!("no answer in {CALL_TIMEOUT:?}"),
            }),
        }
    }

    async fn exchange(
        &self,
        method: &MethodDescriptor,
        body: Bytes,
        user: &str,
    ) -> Result<Vec<Bytes>, Status> {
        let mut grpc = self.grpc().await?;
        let path = path(method);
        if !method.is_client_streaming() && !method.is_server_streaming() {
            let request = self.request(body, user);
            return Ok(vec![grpc.unary(request, path, Raw).await?.into_inner()]);
        }
        // One message is said; a stream that would go on is left after one answer.
        let endless = method.is_client_streaming() || method.name() == "Observe";
        let words = futures::stream::once(std::future::ready(body)).chain(
            // The client stays on the line until it has its answer.
            futures::stream::pending().take(usize::from(method.is_client_streaming())),
        );
        let request = self.request(words, user);
        let mut stream = grpc.streaming(request, path, Raw).await?.into_inner();
        let mut answers = Vec::new();
        while let Some(answer) = stream.message().await? {
            answers.push(answer);
            if endless {
                break;
            }
        }
        Ok(answers)
    }

    /// Makes a client that is ready to call.
    pub(crate) async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        grpc.ready()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    /// Makes a request that shows the user's token, if there is one.
    pub(crate) fn request<T>(&self, body: T, user: &str) -> Request<T> {
        let mut request = Request::new(body);
        let token = self.tokens.get(user);
        if let Some(Ok(token)) = token.map(MetadataValue::try_from) {
            request.metadata_mut().insert("token", token);
        }
        request
    }

    /// Waits until no watcher reads history any more: both programs count those
    /// in a gauge. Says whether that came about.
    pub(crate) async fn caught_up(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        loop {
            match self.gauge("etcd_debugging_mvcc_slow_watcher_total").await {
                Some(0.0) => return true,
                _ if Instant::now() > deadline => return false,
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    async fn gauge(&self, name: &str) -> Option<f64> {
        let address = self.process.endpoint.strip_prefix("http://")?;
        let mut connection = TcpStream::connect(address).await.ok()?;
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
        connection.write_all(request.as_bytes()).await.ok()?;
        let mut page = String::new();
        connection.read_to_string(&mut page).await.ok()?;
        let line = page.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    }
}

/// Returns the path of a method's calls.
pub(crate) fn path(method: &MethodDescriptor) -> http::uri::PathAndQuery {
    let service = method.parent_service();
    format!("/{}/{}", service.full_name(), method.name())
        .parse()
        .expect("names of services and methods make a path")
}
