//! Where a request goes: a gRPC service, the gateway, or a page of plain HTTP.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{
    Edge,
    answer::{self, Answer},
    call::{self, CallSource},
    plain,
};
use crate::{accept::Visit, gateway, listen::Door, peer};

/// Answers one request.
pub(super) async fn route(mut request: Request<Incoming>, visit: Visit, edge: Arc<Edge>) -> Answer {
    let is_grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes)
        .is_some_and(|kind| kind.starts_with(b"application/grpc"));
    match visit.door {
        Door::Clients { .. } if is_grpc => {
            if let Some(certificate) = visit.certificate {
                request.extensions_mut().insert(certificate);
            }
            return grpc(request, &visit.remote, &edge).await;
        }
        Door::Clients { http: false } => {
            // grpc-go says so of any other content type.
            return answer::refusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid gRPC request content-type; plain HTTP is at --listen-client-http-urls",
            );
        }
        Door::Peers if is_grpc => {
            let reply = peer::call(request, &edge.handle).await;
            return reply.map(|body| answer::Body::Stream(body.map_err(Into::into).boxed_unsync()));
        }
        Door::Peers => return peer::answer(&request, &edge.handle).await,
        // Scraped from inside, and without names of its own to check (etcd: only
        // client listeners have the access controller).
        Door::Metrics => return plain::metrics_listener(&request, &edge.handle).await,
        Door::Clients { http: true } | Door::Http => {}
    }
    http(request, visit, edge).await
}

/// Answers a gRPC call.
async fn grpc(request: Request<Incoming>, remote: &str, edge: &Edge) -> Answer {
    let began = Instant::now();
    let uri = request.uri().clone();
    let reply = call::call(edge, request.map(CallSource::Wire)).await;
    let limit = edge.handle.shared.config.warning_unary_request_duration;
    let took = began.elapsed();
    if took > limit && !limit.is_zero() {
        let path = uri.path();
        tracing::warn!(remote, path, ?took, expected = ?limit, "request took too long");
    }
    reply.map(answer::Body::Call)
}

/// Answers over HTTP on a client listener, within what the access rules allow.
async fn http(request: Request<Incoming>, visit: Visit, edge: Arc<Edge>) -> Answer {
    if !visit.secure
        && let Some(refusal) = edge.access.host_refusal(&request)
    {
        return refusal;
    }
    if ignores_certificate(&request, &visit, &edge) {
        return answer::refusal(
            StatusCode::BAD_REQUEST,
            "CommonName of client sending a request against gateway will be ignored and not \
             used as expected",
        );
    }
    let cors = edge.access.cors(request.headers());
    let mut answer = if request.method() == Method::OPTIONS {
        answer::empty()
    } else if let Some(path) = gateway::path(request.uri().path())
        && edge.gateway.is_some()
    {
        let path = path.to_owned();
        gateway::answer(&edge, &path, request, visit).await
    } else {
        plain::client_listener(&request, &edge.handle).await
    };
    if let Some(cors) = cors {
        cors.write(answer.headers_mut());
    }
    answer
}

/// Says whether a client might think that its certificate says who it is: to the
/// gateway only a token does. etcd refuses such a client instead of taking it for
/// nobody (embed/serve.go, accessController).
fn ignores_certificate(request: &Request<Incoming>, visit: &Visit, edge: &Edge) -> bool {
    let named = visit
        .certificate
        .as_ref()
        .is_some_and(|certificate| !certificate.common_name.is_empty());
    named
        && edge.gateway.is_some()
        && edge.handle.shared.auth_on.load(Ordering::Acquire)
        && gateway::path(request.uri().path()).is_some()
}
