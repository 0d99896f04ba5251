//! The client port: one listener for gRPC over HTTP/2 and for plain HTTP.
//!
//! `/health`, `/version`, `/metrics`, `/livez` and `/readyz` answer as etcd's do
//! (etcdhttp, 3.5); everything with gRPC's content type goes to the services.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;

use crate::{
    API_VERSION, STORAGE_VERSION, grpc::Services, handle::Handle, io::Gathered, listen::Bound,
    metrics::Handled,
};

/// What answers a request.
pub(crate) type Reply = Response<Body>;

/// Most connections at a time. Beyond it a new one waits to be accepted until
/// another ends.
const CONNECTIONS_MAX: usize = 20_000;

/// Most calls under way on one connection; a client queues beyond it.
const STREAMS_PER_CONNECTION_MAX: u32 = 10_000;

/// Flow-control windows: large enough that a list does not wait for the client.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// How often an idle connection is asked whether it lives, and how long it may
/// take to say so (etcd pings every 2 hours; a dead watcher should go sooner).
/// Clients may ping as often as they like.
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a new connection may take to say anything, and an HTTP/1 client to
/// send its header. Then it is closed.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long calls under way may take to end when the member stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one listener until the member stops.
pub(crate) async fn serve(bound: Bound, tls: Option<TlsAcceptor>, handle: Handle) {
    let services = Services::new(handle.clone());
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let stop = handle.shared.stop.clone();
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await;
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = bound.listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely; it passes as connections end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (services, handle, tls) = (services.clone(), handle.clone(), tls.clone());
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _permit = permit;
            greet(stream, tls, services, handle, watcher).await;
        });
    }
    // Whoever is still busy then is cut off with the runtime.
    let _late = tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
}

/// Waits for the client to say something, and through its TLS handshake.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    services: Services,
    handle: Handle,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Small answers must not wait for an acknowledgement; failing is harmless.
    let _slower = stream.set_nodelay(true);
    let first = tokio::time::timeout(GREETING_TIMEOUT, stream.peek(&mut [0])).await;
    if !matches!(first, Ok(Ok(1..))) {
        return;
    }
    match tls {
        None => converse(Gathered(stream), services, handle, watcher).await,
        Some(tls) => match tokio::time::timeout(GREETING_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => converse(Gathered(stream), services, handle, watcher).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_late) => {}
        },
    }
}

async fn converse<T>(
    stream: T,
    services: Services,
    handle: Handle,
    watcher: hyper_util::server::graceful::Watcher,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(GREETING_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let service = service_fn(move |request| {
        let (services, handle) = (services.clone(), handle.clone());
        async move { Ok::<_, Infallible>(route(request, services, handle).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        // Clients hang up in many ways; none of them is our trouble.
        tracing::debug!(%error, "connection ended");
    }
}

async fn route(request: Request<Incoming>, mut services: Services, handle: Handle) -> Reply {
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        return plain(&request, &handle).await;
    }
    let path = request.uri().path().to_owned();
    let (service, method) = path
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or((&path, ""));
    let reply = services.call(service, method, request).await;
    // A call that failed says so in the head; all others end well in the trailers.
    let code = reply
        .headers()
        .get("grpc-status")
        .and_then(|code| code.to_str().ok())
        .unwrap_or("0");
    let known = service.starts_with("etcdserverpb.") && code != "12";
    if known {
        let labels = Handled {
            grpc_service: service.to_owned(),
            grpc_method: method.to_owned(),
            grpc_code: code_name(code).to_owned(),
        };
        handle.shared.metrics.handled.get_or_create(&labels).inc();
    }
    reply
}

/// Names a gRPC code as go-grpc-prometheus labels it.
fn code_name(code: &str) -> &'static str {
    match code {
        "0" => "OK",
        "1" => "Canceled",
        "3" => "InvalidArgument",
        "4" => "DeadlineExceeded",
        "5" => "NotFound",
        "7" => "PermissionDenied",
        "8" => "ResourceExhausted",
        "9" => "FailedPrecondition",
        "11" => "OutOfRange",
        "12" => "Unimplemented",
        "13" => "Internal",
        "14" => "Unavailable",
        "15" => "DataLoss",
        "16" => "Unauthenticated",
        _ => "Unknown",
    }
}

async fn plain(request: &Request<Incoming>, handle: &Handle) -> Reply {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "Method Not Allowed\n",
        );
    }
    match request.uri().path() {
        "/health" => health(request.uri().query().unwrap_or_default(), handle).await,
        "/livez" => probe(handle.status().is_ok()),
        "/readyz" => probe(handle.confirm_leadership().await.is_ok()),
        "/version" => {
            let body = serde_json::json!({
                "etcdserver": API_VERSION,
                "etcdcluster": cluster_version(),
                "storage": STORAGE_VERSION,
            });
            text(StatusCode::OK, "application/json", &body.to_string())
        }
        "/metrics" => metrics(handle),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "404 page not found\n"),
    }
}

/// A cluster goes by the smallest minor version of its members.
fn cluster_version() -> String {
    let minor = API_VERSION
        .rsplit_once('.')
        .map_or(API_VERSION, |(minor, _)| minor);
    format!("{minor}.0")
}

/// Answers as etcd's health handler does: alarms first, then the leader, then a read.
async fn health(query: &str, handle: &Handle) -> Reply {
    let excluded = |name: &str| {
        query
            .split('&')
            .any(|pair| pair == format!("exclude={name}"))
    };
    let serializable = query.split('&').any(|pair| pair == "serializable=true");
    let reason = match handle.status() {
        Err(error) => Some(error.message),
        Ok(status) => {
            let alarm = status.alarms.iter().find(|alarm| {
                !excluded(match alarm.kind {
                    mvcc::AlarmKind::NoSpace => "NOSPACE",
                    mvcc::AlarmKind::Corrupt => "CORRUPT",
                })
            });
            match alarm.map(|alarm| alarm.kind) {
                Some(mvcc::AlarmKind::NoSpace) => Some("ALARM NOSPACE".to_owned()),
                Some(mvcc::AlarmKind::Corrupt) => Some("ALARM CORRUPT".to_owned()),
                None if status.leader == 0 && !serializable => Some("RAFT NO LEADER".to_owned()),
                None if serializable => None,
                None => handle
                    .confirm_leadership()
                    .await
                    .err()
                    .map(|error| format!("QGET ERROR:{error}")),
            }
        }
    };
    let status = if reason.is_none() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let health = if reason.is_none() { "true" } else { "false" };
    let body = serde_json::json!({ "health": health, "reason": reason.unwrap_or_default() });
    text(status, "application/json", &body.to_string())
}

fn probe(well: bool) -> Reply {
    if well {
        text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")
    } else {
        text(
            StatusCode::SERVICE_UNAVAILABLE,
            "text/plain; charset=utf-8",
            "not ok\n",
        )
    }
}

fn metrics(handle: &Handle) -> Reply {
    let metrics = &handle.shared.metrics;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let on_disk = handle.rows_on_disk();
    // On a member that is stopping the last numbers stay.
    let _stopped = handle.shared.with(|core| {
        let (size, in_use) = crate::handle::sizes(&core.machine, on_disk);
        metrics.db_size.set(signed(size));
        metrics.db_size_in_use.set(signed(in_use));
        metrics.keys.set(signed(core.machine.key_count()));
        metrics.current_revision.set(core.machine.revision());
        metrics
            .compact_revision
            .set(core.machine.compact_revision());
        metrics
            .proposals_committed
            .set(signed(core.member.commit_index()));
        metrics.watchers.set(count(core.hub.watcher_count()));
        metrics.slow_watchers.set(count(core.hub.unsynced_count()));
        metrics.watch_streams.set(count(core.hub.stream_count()));
    });
    text(
        StatusCode::OK,
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        &metrics.text(),
    )
}

fn text(status: StatusCode, kind: &'static str, body: &str) -> Reply {
    let mut reply = Response::new(Body::new(Full::new(Bytes::copy_from_slice(
        body.as_bytes(),
    ))));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}
