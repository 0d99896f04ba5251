//! Clients that mean harm or do not care: whatever they do, the others are served.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use proto::etcdserverpb as pb;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

use crate::store::{DEADLINE, Store, bytes, put, range};

/// Connects as HTTP/2, one connection of its own.
async fn connect(store: &Store) -> SendRequest<Full<Bytes>> {
    let addr = store.running().client_addr.unwrap();
    let io = hyper_util::rt::TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let executor = hyper_util::rt::TokioExecutor::new();
    let (send, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    tokio::spawn(connection);
    send
}

/// Makes a call with any message, in gRPC's frame.
fn call(store: &Store, path: &str, message: &[u8]) -> http::Request<Full<Bytes>> {
    let mut body = BytesMut::with_capacity(5 + message.len());
    body.put_u8(0);
    body.put_u32(message.len() as u32);
    body.put_slice(message);
    http::Request::post(format!("{}{path}", store.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body.freeze()))
        .unwrap()
}

/// Draws numbers from a seed (xorshift64), so that a failure can be run again.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let len = self.next() % most;
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Every method but those that would end the test: AuthEnable with no way back,
/// and Snapshot and Defragment, whose message is empty.
const METHODS: &[&str] = &[
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/RangeStream",
    "/etcdserverpb.KV/Put",
    "/etcdserverpb.KV/DeleteRange",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.KV/Compact",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Lease/LeaseRevoke",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    "/etcdserverpb.Lease/LeaseLeases",
    "/etcdserverpb.Cluster/MemberAdd",
    "/etcdserverpb.Cluster/MemberRemove",
    "/etcdserverpb.Cluster/MemberUpdate",
    "/etcdserverpb.Cluster/MemberPromote",
    "/etcdserverpb.Cluster/MemberList",
    "/etcdserverpb.Maintenance/Alarm",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Maintenance/Hash",
    "/etcdserverpb.Maintenance/HashKV",
    "/etcdserverpb.Maintenance/MoveLeader",
    "/etcdserverpb.Maintenance/Downgrade",
    "/etcdserverpb.Auth/AuthStatus",
    "/etcdserverpb.Auth/AuthDisable",
    "/etcdserverpb.Auth/Authenticate",
    "/etcdserverpb.Auth/UserGet",
    "/etcdserverpb.Auth/UserList",
    "/etcdserverpb.Auth/UserDelete",
    "/etcdserverpb.Auth/UserGrantRole",
    "/etcdserverpb.Auth/UserRevokeRole",
    "/etcdserverpb.Auth/RoleAdd",
    "/etcdserverpb.Auth/RoleGet",
    "/etcdserverpb.Auth/RoleList",
    "/etcdserverpb.Auth/RoleDelete",
    "/etcdserverpb.Auth/RoleGrantPermission",
    "/etcdserverpb.Auth/RoleRevokePermission",
    "/v3lockpb.Lock/Lock",
    "/v3lockpb.Lock/Unlock",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Proclaim",
    "/v3electionpb.Election/Leader",
    "/v3electionpb.Election/Resign",
    "/grpc.health.v1.Health/Check",
];

/// How long a call with nonsense may wait for something before it is given up;
/// locks and elections rightly wait.
const GIVE_UP: Duration = Duration::from_millis(300);

#[tokio::test]
async fn every_method_takes_any_bytes() {
    let store = Store::start().await;
    let mut send = connect(&store).await;
    for (seed, path) in METHODS.iter().enumerate() {
        let mut dice = Dice(0x5EED_0000 + seed as u64);
        for _ in 0..25 {
            let message = dice.bytes(60);
            send.ready().await.unwrap();
            let reply = send.send_request(call(&store, path, &message));
            let Ok(reply) = timeout(GIVE_UP, reply).await else {
                continue;
            };
            let (head, body) = reply.unwrap().into_parts();
            assert_eq!(head.status, 200, "{path}");
            let Ok(body) = timeout(GIVE_UP, body.collect()).await else {
                continue;
            };
            let trailers = body.unwrap().trailers().cloned().unwrap_or_default();
            let code = trailers
                .get("grpc-status")
                .or(head.headers.get("grpc-status"))
                .unwrap_or_else(|| panic!("{path} ended without a status"));
            let code: i32 = code.to_str().unwrap().parse().unwrap();
            assert!((0..=16).contains(&code), "{path}: {code}");
        }
    }
    store.kv().await.put("a", "still here").await;
}

/// HTTP/2 rapid reset: calls that are given up as soon as they are made.
#[tokio::test]
async fn calls_given_up_at_once_hurt_nobody() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    kv.put("a", "1").await;
    let mut written = 1;
    for _ in 0..4 {
        let mut send = connect(&store).await;
        for at in 0..2_000 {
            // A server may end such a connection, as h2 does; the next one begins.
            if timeout(DEADLINE, send.ready()).await.unwrap().is_err() {
                break;
            }
            let message = prost::Message::encode_to_vec(&put("flood", "x"));
            drop(send.send_request(call(&store, "/etcdserverpb.KV/Put", &message)));
            if at % 500 == 0 {
                written += 1;
                let value = written.to_string();
                let put = kv.put("a", &value);
                timeout(DEADLINE, put).await.unwrap();
            }
        }
    }
    let got = timeout(DEADLINE, kv.get("a")).await.unwrap();
    assert_eq!(got, Some(written.to_string()));
}

/// Replies nobody takes wait behind the window, and hold up nobody else. (More of
/// them than the budget of large replies allows are refused, see `large`.)
#[tokio::test]
async fn readers_that_do_not_read_hold_nobody_up() {
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let value = "x".repeat(1 << 20);
    for at in 0..16 {
        kv.put(&format!("large/{at}"), &value).await;
    }
    let mut slow = Vec::new();
    for _ in 0..12 {
        let mut send = connect(&store).await;
        let message = prost::Message::encode_to_vec(&range("large/", "large0"));
        let reply = send.send_request(call(&store, "/etcdserverpb.KV/Range", &message));
        // The head comes; the sixteen megabytes behind it are never asked for.
        let reply = timeout(DEADLINE, reply).await.unwrap().unwrap();
        slow.push((send, reply));
    }
    for at in 0..50 {
        let value = at.to_string();
        let put = kv.put("small", &value);
        timeout(DEADLINE, put).await.unwrap();
    }
    // And whoever reads in the end gets all of it.
    let (_send, reply) = slow.pop().unwrap();
    let body = timeout(DEADLINE, reply.into_body().collect()).await;
    assert!(body.unwrap().unwrap().to_bytes().len() > 16 << 20);
}

/// A watcher that reads nothing while writes go on is not lost and not waited for.
#[tokio::test]
async fn a_watcher_that_does_not_read_misses_nothing() {
    const WRITES: i64 = 3_000;
    let store = Store::start().await;
    let mut kv = store.kv().await;
    let mut watch = store.watch().await;
    let create = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(
            pb::WatchCreateRequest {
                key: bytes("w"),
                ..Default::default()
            },
        )),
    };
    let open = tokio_stream::StreamExt::chain(
        tokio_stream::once(create),
        tokio_stream::pending::<pb::WatchRequest>(),
    );
    let mut events = watch.watch(open).await.unwrap().into_inner();
    let first = timeout(DEADLINE, events.message()).await.unwrap();
    assert!(first.unwrap().unwrap().created);
    // Far more than the windows of the stream and of the connection take.
    let value = "x".repeat(8 << 10);
    let mut writers = JoinSet::new();
    for _ in 0..30 {
        let mut kv = store.kv().await;
        let value = value.clone();
        writers.spawn(async move {
            for _ in 0..WRITES / 30 {
                kv.put("w", &value).await;
            }
        });
    }
    while let Some(done) = timeout(4 * DEADLINE, writers.join_next()).await.unwrap() {
        done.unwrap();
    }
    timeout(DEADLINE, kv.put("other", "served")).await.unwrap();
    let mut next = 2;
    while next < 2 + WRITES {
        let reply = timeout(DEADLINE, events.message()).await.unwrap();
        for event in reply.unwrap().unwrap().events {
            assert_eq!(event.kv.unwrap().mod_revision, next);
            next += 1;
        }
    }
}

/// Connections that say nothing cost their sockets.
#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let store = Store::start().await;
    let addr = store.running().client_addr.unwrap();
    let mut silent = Vec::new();
    for at in 0..500 {
        match at % 2 {
            0 => {
                silent.push((None, Some(TcpStream::connect(addr).await.unwrap())));
            }
            _ => silent.push((Some(connect(&store).await), None)),
        }
    }
    let mut kv = store.kv().await;
    timeout(DEADLINE, kv.put("a", "served")).await.unwrap();
    drop(silent);
    timeout(DEADLINE, kv.put("a", "again")).await.unwrap();
}

/// A directory that got another cluster's log is refused by name, not served.
#[tokio::test]
async fn the_log_of_another_cluster_is_refused() {
    let mut one = Store::start().await;
    one.kv().await.put("a", "1").await;
    let mut two = Store::start_with(|config| config.initial_cluster_token = "two".to_owned()).await;
    one.running.take().unwrap().shutdown().await;
    two.running.take().unwrap().shutdown().await;
    let (from, to) = (
        one.config.data_dir.join("wal"),
        two.config.data_dir.join("wal"),
    );
    std::fs::remove_dir_all(&to).unwrap();
    std::fs::rename(&from, &to).unwrap();
    let refusal = kvserver::Server::start(two.config.clone()).await;
    let said = refusal.unwrap_err().to_string();
    assert!(said.contains("belongs to member"), "{said}");
    assert!(said.contains(to.to_str().unwrap()), "{said}");
}
