//! The client ports: gRPC over HTTP/2, the JSON gateway and plain HTTP, on one
//! listener or apart, as `--listen-client-http-urls` and `--listen-metrics-urls` say.
//!
//! Here a connection is asked for its protocol and kept within limits. Who got this
//! far, [`crate::accept`] says; where a request then goes, [`route`].

mod access;
pub(crate) mod answer;
pub(crate) mod call;
mod greeting;
mod outbox;
pub(crate) mod plain;
mod probes;
mod route;

use std::{convert::Infallible, sync::Arc, time::Duration};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::Watcher},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;

use self::{access::Access, greeting::Greeting, outbox::Conversation};
use crate::{
    accept::{GREETING_TIMEOUT, Visit},
    config::KeepAlive,
    gateway::Gateway,
    grpc::Services,
    handle::Handle,
    io::Gathered,
    listen::Door,
    police::Policed,
};

/// What a gRPC service answers.
pub(crate) type Reply = http::Response<Body>;

/// Flow-control windows: large enough that a list does not wait for the client.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// Bytes of one frame of HTTP/2 between members; its default, and that of clients, is
/// 16 KiB, each of which costs a write.
const PEER_FRAME_BYTES: u32 = 1 << 20;

/// How the liveness of other members' connections is kept. They may ping as they
/// like; the links on them are watched more closely ([`crate::peers`]).
const PEERS_ALIVE: KeepAlive = KeepAlive {
    min_time: Duration::ZERO,
    interval: Duration::from_secs(10),
    timeout: Duration::from_secs(10),
};

/// How long an HTTP/1 client may take to send its header. Then it is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// What all listeners share.
pub(crate) struct Edge {
    pub(crate) handle: Handle,
    pub(crate) services: Services,
    pub(crate) gateway: Option<Gateway>,
    access: Access,
}

impl Edge {
    pub(crate) fn new(handle: Handle) -> Arc<Self> {
        let config = &handle.shared.config;
        let services = Services::new(handle.clone());
        let gateway = || Gateway::new(services.message_bytes_max);
        Arc::new(Self {
            gateway: config.enable_grpc_gateway.then(gateway),
            access: Access::new(&config.cors, &config.host_whitelist),
            services,
            handle,
        })
    }
}

/// Serves one connection until it ends.
pub(crate) async fn converse<T>(mut io: T, visit: Visit, edge: Arc<Edge>, watcher: Watcher)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let greeting = tokio::time::timeout(GREETING_TIMEOUT, greeting::read(&mut io)).await;
    let Ok(Some(greeting)) = greeting else {
        return;
    };
    let config = &edge.handle.shared.config;
    let keep_alive = match visit.door {
        Door::Peers => PEERS_ALIVE,
        _ => config.keep_alive,
    };
    let pings = !keep_alive.interval.is_zero() && !keep_alive.timeout.is_zero();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(config.max_concurrent_streams)
        .keep_alive_interval(pings.then_some(keep_alive.interval))
        .keep_alive_timeout(keep_alive.timeout);
    if visit.door == Door::Peers {
        builder.http2().max_frame_size(PEER_FRAME_BYTES);
    }
    // In a box of its own: hyper keeps the place of a call's future for as long as its
    // stream lives, which is four kilobytes of each watch, and moves it about before.
    let service = service_fn(move |request| {
        let (visit, edge) = (visit.clone(), Arc::clone(&edge));
        Box::pin(async move { Ok::<_, Infallible>(route::route(request, visit, edge).await) })
    });
    let ended = match greeting {
        Greeting::Http1(head) => {
            let builder = builder.http1_only();
            let io = TokioIo::new(Gathered { head, io });
            let connection = builder.serve_connection_with_upgrades(io, service);
            watcher.watch(connection.into_owned()).await
        }
        Greeting::Http2(head) => {
            let builder = builder.http2_only();
            let (outbox, sender) = outbox::new(Gathered { head, io });
            let io = TokioIo::new(Policed::new(outbox, keep_alive.min_time));
            let connection = builder.serve_connection(io, service);
            let connection = Box::pin(watcher.watch(connection.into_owned()));
            Conversation { connection, sender }.await
        }
    };
    if let Err(error) = ended {
        // Clients hang up in many ways; none of them is our trouble.
        tracing::debug!(%error, "connection ended");
    }
}
