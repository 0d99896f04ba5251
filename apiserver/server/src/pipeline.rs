//! The way of a request: the gates it passes, in order, then the verb.
//!
//! 1. `Context::read`: method, path and query become a `RequestInfo`.
//! 2. [`authenticate`], then [`GATES`], each of which may refuse.
//! 3. The verb, or what is served at a path that names no resource. Writes run
//!    `admission` between decoding and validation.
//! 4. The trimmings: audit id, warnings, cache control, metrics.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, HeaderName, HeaderValue, VARY, WARNING,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use meta::{Reason, Status};

use crate::api::Api;
use crate::authn::{self, Peer, UserInfo};
use crate::body::{self, BoxBody};
use crate::negotiation::{self, Accepted, Offer};
use crate::query::Query;
use crate::request_info::{RequestInfo, Verb};
use crate::serve::Handler;
use crate::{authz, deadline, impersonation, paths, respond, service_tokens, verbs};

/// After how many seconds a write that met a stopping server is tried again.
const STOPPING_RETRY_SECONDS: u32 = 5;
/// The largest request body, in bytes; beyond it 413.
pub(crate) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Answers larger than this are compressed for clients that accept it.
pub(crate) const GZIP_FROM_BYTES: usize = 128 * 1024;
/// The level upstream uses: compression should cost less than the network.
pub(crate) const GZIP_LEVEL: flate2::Compression = flate2::Compression::new(1);
/// How many warnings one answer carries; further ones are dropped, as upstream
/// drops them at a similar size.
const WARNINGS_MAX: usize = 64;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// One gate: it lets a request through or refuses it.
type Gate = fn(&Api, &mut Context) -> Result<(), Status>;

/// The gates in the order in which a request passes them, once it is known who
/// asks.
const GATES: &[(&str, Gate)] = &[
    ("audit", audit),
    ("impersonation", impersonation::gate),
    ("authorization", authorize),
    ("shutdown", not_stopping),
];

/// A request on its way.
pub(crate) struct Context {
    /// What it asks for.
    pub(crate) info: RequestInfo,
    /// Its method.
    pub(crate) method: Method,
    /// Its query.
    pub(crate) query: Query,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Who sent it; anonymous until the first gate.
    pub(crate) user: UserInfo,
    /// The id under which logs speak of it.
    pub(crate) audit_id: String,
    /// What the client should be told besides the answer.
    pub(crate) warnings: Vec<String>,
    /// Whether it is about a kind that has no form in protobuf.
    pub(crate) text_only: bool,
    /// What becomes of the connection if it is to speak something else.
    pub(crate) upgrade: Option<OnUpgrade>,
    peer: Peer,
}

impl Context {
    fn read(mut parts: http::request::Parts, peer: Peer) -> Result<Self, Status> {
        let query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let given = parts.headers.get(AUDIT_ID).and_then(|v| v.to_str().ok());
        let audit_id = given.map_or_else(
            || uuid::Uuid::new_v4().to_string(),
            |id| id.chars().take(64).collect(),
        );
        Ok(Self {
            info,
            method: parts.method,
            query,
            headers: parts.headers,
            user: UserInfo::anonymous(),
            audit_id,
            warnings: Vec::new(),
            text_only: false,
            upgrade: parts.extensions.remove(),
            peer,
        })
    }

    /// Says who writes, and when.
    pub(crate) fn facts(&self) -> registry::kind::Facts<'_> {
        registry::kind::Facts {
            user: &self.user.name,
            uid: &self.user.uid,
            groups: &self.user.groups,
            extra: &self.user.extra,
            now: jiff::Timestamp::now(),
        }
    }

    /// Decides the form of the answer.
    pub(crate) fn accept(&self, offer: Offer) -> Result<Accepted, Status> {
        let offer = match offer {
            Offer::Resource if self.text_only => Offer::Custom,
            offer => offer,
        };
        negotiation::accept(&self.headers, &self.query, offer)
    }

    /// Builds an answer with a whole body, compressed if that pays.
    pub(crate) fn respond(
        &self,
        code: StatusCode,
        content_type: &'static str,
        bytes: impl Into<Bytes>,
    ) -> Response<BoxBody> {
        let bytes = bytes.into();
        if bytes.len() < GZIP_FROM_BYTES || !self.accepts_gzip() {
            return body::respond(code, content_type, bytes);
        }
        match gzip(&bytes) {
            Some(small) => {
                let mut response = body::respond(code, content_type, small);
                let headers = response.headers_mut();
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
                response
            }
            None => body::respond(code, content_type, bytes),
        }
    }

    /// Tells whether the answer may be compressed.
    pub(crate) fn accepts_gzip(&self) -> bool {
        let value = self
            .headers
            .get(ACCEPT_ENCODING)
            .and_then(|v| v.to_str().ok());
        value.unwrap_or_default().split(',').any(|e| {
            let mut parts = e.split(';').map(str::trim);
            parts.next() == Some("gzip") && !parts.any(|p| p == "q=0")
        })
    }
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write;
    let out = Vec::with_capacity(bytes.len() / 8);
    let mut encoder = flate2::write::GzEncoder::new(out, GZIP_LEVEL);
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

impl Handler for Api {
    async fn handle(self: Arc<Self>, peer: Peer, request: Request<BoxBody>) -> Response<BoxBody> {
        let started = Instant::now();
        let (parts, request_body) = request.into_parts();
        let mut cx = match Context::read(parts, peer) {
            Ok(cx) => cx,
            Err(status) => return body::failure(&status),
        };
        let long = cx.info.is_long_running(&cx.query);
        let running = self.metrics.begin(&self, &cx, long);
        let limit = match long {
            true => Ok(None),
            false => deadline::of(&cx.query, cx.info.verb).map(Some),
        };
        // A panic is a bug of one request; it must not take the connection's
        // other requests with it.
        let work = std::panic::AssertUnwindSafe(run(&self, &mut cx, request_body)).catch_unwind();
        let outcome = match limit {
            Err(status) => {
                drop(work);
                Ok(Err(status))
            }
            Ok(None) => work.await,
            Ok(Some(limit)) => tokio::time::timeout(limit, work)
                .await
                .unwrap_or_else(|_| Ok(Err(timed_out()))),
        };
        let result = outcome.unwrap_or_else(|_| Err(Status::internal("the request panicked")));
        let mut response = result.unwrap_or_else(|status| respond::failure(&cx, &status));
        trim(&mut response, &cx);
        tracing::debug!(
            verb = %cx.info.verb, path = %cx.info.path, user = %cx.user.name,
            code = response.status().as_u16(), took = ?started.elapsed(), audit = %cx.audit_id,
            "served"
        );
        running.end(response, started)
    }
}

async fn run(
    api: &Arc<Api>,
    cx: &mut Context,
    request_body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    authenticate(api, cx).await?;
    for (_, gate) in GATES {
        gate(api, cx)?;
    }
    match cx.info.resource.clone() {
        // Boxed, so that a request's future is as small as its own verb's.
        Some(r) => Box::pin(verbs::dispatch(api, cx, r, request_body)).await,
        None => paths::serve(api, cx).await,
    }
}

fn timed_out() -> Status {
    let mut status = Status::failure(
        Reason::Timeout,
        "Timeout: request did not complete within requested timeout - context deadline exceeded",
    );
    status.details_mut();
    status
}

/// The first gate, and the only one that may have to wait: whether a service
/// account still exists, the store knows.
async fn authenticate(api: &Api, cx: &mut Context) -> Result<(), Status> {
    let now = service_tokens::now();
    let found = match authn::authenticate(&cx.peer, &cx.headers, &api.tokens, now) {
        Ok(found) => found,
        Err(refusal) => {
            let token = authn::bearer(&cx.headers).ok_or_else(|| refusal.clone())?;
            let ours = api.service_tokens.audiences();
            let holder = service_tokens::identify(api, token, ours).await;
            let (user, _) = holder.map_err(|why| {
                tracing::debug!(why, "a bearer token was refused");
                refusal
            })?;
            Some(user)
        }
    };
    match found {
        Some(user) => cx.user = user,
        None if authz::is_public(&cx.info) => {}
        None => return Err(Status::unauthorized()),
    }
    Ok(())
}

/// Writes one line per change to the log (`RUST_LOG=audit=info`); an audit
/// policy with stages and backends is not there yet.
fn audit(_: &Api, cx: &mut Context) -> Result<(), Status> {
    let reads = cx.info.verb.is_read() || matches!(cx.info.verb, Verb::Other(_));
    if !reads {
        tracing::trace!(
            target: "audit", id = %cx.audit_id, user = %cx.user.name, verb = %cx.info.verb,
            path = %cx.info.path, "request received"
        );
    }
    Ok(())
}

fn authorize(_: &Api, cx: &mut Context) -> Result<(), Status> {
    authz::authorize(&cx.user, &cx.info)
}

/// Refuses writes from outside once a stop has been announced: what is begun
/// now might not be ended. The components of this process go on to the end.
fn not_stopping(api: &Api, cx: &mut Context) -> Result<(), Status> {
    let inside = matches!(cx.peer, Peer::InProcess(_));
    let writes = cx.info.resource.is_some() && !cx.info.verb.is_read();
    if inside || !writes || !api.is_stopping() {
        return Ok(());
    }
    let text = "the server is shutting down";
    Err(Status::failure(Reason::ServiceUnavailable, text).with_retry_after(STOPPING_RETRY_SECONDS))
}

/// Adds what every answer carries.
fn trim(response: &mut Response<BoxBody>, cx: &Context) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&cx.audit_id) {
        headers.insert(AUDIT_ID, id);
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert_with(|| HeaderValue::from_static("no-cache, private"));
    let mut said = std::collections::BTreeSet::new();
    for warning in cx
        .warnings
        .iter()
        .filter(|w| said.insert(*w))
        .take(WARNINGS_MAX)
    {
        // RFC 7234 5.5: code, agent, quoted text.
        let text: String = warning
            .chars()
            .flat_map(|c| match c {
                '"' | '\\' => vec!['\\', c],
                c if c.is_control() => vec![' '],
                c => vec![c],
            })
            .collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            headers.append(WARNING, value);
        }
    }
}
