//! What the gRPC edge refuses before any service sees it, in grpc-go's words, and
//! what gRPC itself asks of a server: its health.

use bytes::{BufMut as _, Bytes};
use futures::StreamExt as _;
use proto::{
    etcdserverpb as pb,
    health::{HealthCheckRequest, health_client::HealthClient},
};

use crate::store::{DEADLINE, Store, put, range, refused};

/// What a message may have with etcd's default of --max-request-bytes.
const MESSAGE_BYTES_MAX: usize = 1_572_864 + (512 << 10);

/// Calls a method with a message of one's own bytes, which must be refused.
pub(crate) async fn call_raw(store: &Store, path: &str, message: Bytes) -> tonic::Status {
    let mut client = tonic::client::Grpc::new(store.channel().await);
    client.ready().await.unwrap();
    let path = path.parse::<http::uri::PathAndQuery>().unwrap();
    let request = tonic::Request::new(message);
    client.unary(request, path, Raw).await.unwrap_err()
}

/// Sends bytes as they are.
#[derive(Clone, Copy)]
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Bytes;
    type Error = tonic::Status;
    fn encode(
        &mut self,
        item: Bytes,
        out: &mut tonic::codec::EncodeBuf<'_>,
    ) -> Result<(), tonic::Status> {
        out.put(item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = ();
    type Error = tonic::Status;
    fn decode(&mut self, _: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        Ok(Some(()))
    }
}

#[tokio::test]
async fn what_nobody_serves_is_named() {
    let store = Store::start().await;
    for (path, message) in [
        (
            "/etcdserverpb.KV/Nonsense",
            "unknown method Nonsense for service etcdserverpb.KV",
        ),
        (
            "/etcdserverpb.Watch/Nonsense",
            "unknown method Nonsense for service etcdserverpb.Watch",
        ),
        (
            "/v3lockpb.Lock/TryLock",
            "unknown method TryLock for service v3lockpb.Lock",
        ),
        ("/nobody.Knows/It", "unknown service nobody.Knows"),
        (
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "unknown service grpc.reflection.v1.ServerReflection",
        ),
    ] {
        let status = call_raw(&store, path, Bytes::new()).await;
        assert_eq!((status.code() as i32, status.message()), (12, message));
    }
}

#[tokio::test]
async fn messages_are_limited_in_two_steps() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let value = |bytes: usize| "x".repeat(bytes);
    // Key, value and their fields, as protobuf writes them.
    let overhead = 3 + 4;
    let fits = put("k", &value(MESSAGE_BYTES_MAX - overhead));
    refused(kv.0.put(fits).await, 3, "etcdserver: request is too large");
    let large = MESSAGE_BYTES_MAX + 1;
    let request = put("k", &value(large - overhead));
    assert_eq!(prost::Message::encoded_len(&request), large);
    let message =
        format!("grpc: received message larger than max ({large} vs. {MESSAGE_BYTES_MAX})");
    refused(kv.0.put(request).await, 8, &message);
    // On a stream too, and it is the client's error that ends it.
    let mut watch = store.watch().await;
    let create = pb::WatchCreateRequest {
        key: vec![b'x'; large].into(),
        ..pb::WatchCreateRequest::default()
    };
    let request = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    };
    let stream = tokio_stream::iter([request]);
    let mut replies = watch.watch(stream).await.unwrap().into_inner();
    let status = replies.message().await.unwrap_err();
    assert_eq!(status.code() as i32, 8, "{status:?}");
    assert!(
        status
            .message()
            .starts_with("grpc: received message larger than max")
    );
    assert_eq!(kv.put("k", "others are served").await, 2);
}

#[tokio::test]
async fn a_message_of_four_gigabytes_is_refused_when_it_is_announced() {
    let store = Store::start().await;
    let address = store.running().client_addr.unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    let connection = tokio::spawn(connection);
    // No compression, 4 GiB - 1 to come, a first taste of it, and then silence.
    let taste = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
    let taste = Ok::<_, std::convert::Infallible>(http_body::Frame::data(taste));
    let body = futures::stream::iter([taste]).chain(futures::stream::pending());
    let request = http::Request::post(format!("http://{address}/etcdserverpb.KV/Put"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(http_body_util::StreamBody::new(body))
        .unwrap();
    let reply = tokio::time::timeout(DEADLINE, sender.send_request(request)).await;
    let reply = reply.unwrap().unwrap();
    assert_eq!(reply.headers()["grpc-status"], "8");
    let message = reply.headers()["grpc-message"].to_str().unwrap();
    assert!(message.contains("4294967295%20vs.%202097152"), "{message}");
    store.kv().await.put("a", "others are served").await;
    connection.abort();
}

#[tokio::test]
async fn groups_nested_ten_thousand_deep_overflow_no_stack() {
    let store = Store::start().await;
    let depth = 10_000;
    // Field 15, start of group, and as many ends.
    let groups = [vec![0x7b; depth], vec![0x7c; depth]].concat();
    let status = call_raw(&store, "/etcdserverpb.KV/Range", groups.into()).await;
    assert_eq!(status.code() as i32, 13, "{status:?}");
    let mut kv = store.kv().await;
    kv.put("a", "still here").await;
    assert_eq!(kv.range(range("a", "")).await.unwrap().count, 1);
}

#[tokio::test]
async fn health_is_told_for_the_server_as_a_whole() {
    let mut store = Store::start().await;
    let mut health = HealthClient::new(store.channel().await);
    let of = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    let well = health.check(of("")).await.unwrap().into_inner();
    assert_eq!(well.status().as_str_name(), "SERVING");
    let unknown = health.check(of("etcdserverpb.KV")).await;
    refused(unknown, 5, "unknown service");
    let mut other = health
        .watch(of("etcdserverpb.KV"))
        .await
        .unwrap()
        .into_inner();
    let first = other.message().await.unwrap().unwrap();
    assert_eq!(first.status().as_str_name(), "SERVICE_UNKNOWN");
    let mut changes = health.watch(of("")).await.unwrap().into_inner();
    let first = changes.message().await.unwrap().unwrap();
    assert_eq!(first.status().as_str_name(), "SERVING");
    let stopping = store.running.take().unwrap();
    let stopped = tokio::spawn(stopping.shutdown());
    let last = tokio::time::timeout(DEADLINE, changes.message()).await;
    let last = last.unwrap().unwrap().unwrap();
    assert_eq!(last.status().as_str_name(), "NOT_SERVING");
    stopped.await.unwrap();
}
