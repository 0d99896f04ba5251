//! The client port: one listener for gRPC over HTTP/2 and for plain HTTP.
//!
//! `/health`, `/version`, `/metrics`, `/livez` and `/readyz` answer as etcd's do
//! (etcdhttp, 3.5); everything with gRPC's content type goes to the services.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::Watcher},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;

use crate::{
    API_VERSION, STORAGE_VERSION, accept::Visit, grpc::Services, handle::Handle, io::Gathered,
    listen::Door, metrics::Handled, peer, police::Policed,
};

/// What answers a request.
pub(crate) type Reply = Response<Body>;

/// Flow-control windows: large enough that a list does not wait for the client.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// How long an HTTP/1 client may take to send its header. Then it is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection until it ends.
pub(crate) async fn converse<T>(
    stream: T,
    visit: Visit,
    services: Services,
    handle: Handle,
    watcher: Watcher,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = &handle.shared.config;
    let keep_alive = config.keep_alive;
    let pings = !keep_alive.interval.is_zero() && !keep_alive.timeout.is_zero();
    let stream = Policed::new(Gathered(stream), keep_alive.min_time);
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
    let service = service_fn(move |request: Request<Incoming>| {
        let (services, handle, visit) = (services.clone(), handle.clone(), visit.clone());
        async move { Ok::<_, Infallible>(route(request, visit, services, handle).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        // Clients hang up in many ways; none of them is our trouble.
        tracing::debug!(%error, "connection ended");
    }
}

async fn route(
    mut request: Request<Incoming>,
    visit: Visit,
    mut services: Services,
    handle: Handle,
) -> Reply {
    match visit.door {
        Door::Peers => return peer::answer(&request, &handle),
        Door::Http | Door::Metrics => return plain(&request, &handle, visit.door).await,
        Door::Clients { .. } => {}
    }
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        return plain(&request, &handle, visit.door).await;
    }
    // For gRPC only: over plain HTTP the token alone says who calls, as in etcd.
    if let Some(certificate) = visit.certificate {
        request.extensions_mut().insert(certificate);
    }
    let path = request.uri().path().to_owned();
    let (service, method) = path
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or((&path, ""));
    let began = Instant::now();
    let reply = services.call(service, method, request).await;
    let (took, limit) = (
        began.elapsed(),
        handle.shared.config.warning_unary_request_duration,
    );
    if took > limit && !limit.is_zero() {
        tracing::warn!(remote = %visit.remote, %path, ?took, expected = ?limit, "request took too long");
    }
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

async fn plain(request: &Request<Incoming>, handle: &Handle, door: Door) -> Reply {
    if door == (Door::Clients { http: false }) {
        // grpc-go says so of any other content type.
        let words =
            "invalid gRPC request content-type; plain HTTP is at --listen-client-http-urls\n";
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "text/plain", words);
    }
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
        "/version" if door != Door::Metrics => version(),
        "/metrics" => metrics(handle),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "404 page not found\n"),
    }
}

/// Says which versions are spoken.
pub(crate) fn version() -> Reply {
    let body = serde_json::json!({
        "etcdserver": API_VERSION,
        "etcdcluster": cluster_version(),
        "storage": STORAGE_VERSION,
    });
    text(StatusCode::OK, "application/json", &body.to_string())
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

/// Makes a plain reply.
pub(crate) fn text(status: StatusCode, kind: &'static str, body: &str) -> Reply {
    let mut reply = Response::new(Body::new(Full::new(Bytes::copy_from_slice(
        body.as_bytes(),
    ))));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}
