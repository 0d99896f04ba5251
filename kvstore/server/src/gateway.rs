//! The JSON gateway: every RPC of etcd behind a path of its own, as etcd 3.5's
//! grpc-gateway serves it.
//!
//! Nothing here knows an RPC. [`routes`] names the path of each; the descriptors that
//! were compiled with the services say how its messages look in JSON; and the call
//! itself is the one a gRPC client makes, through the same services and counted by
//! the same counters. It carries the token of the HTTP request and no certificate:
//! whose name is on that is not who sends the JSON (etcd: AuthInfoFromTLS).

mod base64;
mod decode;
mod encode;
mod error;
mod json;
mod messages;
mod routes;
mod scanner;
mod stream;
mod websocket;

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tonic::{Code, Status};

use self::routes::Route;
use crate::accept::Visit;
use crate::edge::{
    Edge,
    answer::{self, Answer, JSON},
    call::{self, CallSource},
};

/// How long the body of one whole request may take to arrive; then it is refused.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Headers of an HTTP request that begin so become metadata of the call.
const METADATA_PREFIX: &str = "grpc-metadata-";

/// What is known of the paths, and the limits of one member.
#[derive(Debug)]
pub(crate) struct Gateway {
    routes: HashMap<&'static str, Arc<Route>>,
    limits: Limits,
}

/// How much of a request is read.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    /// Bytes of the largest JSON text: base64 makes four of three, and names and
    /// white space come on top. Beyond it the request is refused.
    json_bytes: usize,
    /// Bytes of the largest message, which is what a refusal names, as etcd's does.
    message_bytes: usize,
}

impl Limits {
    /// Refuses a text that is never read to its end, and so never becomes a message:
    /// its own size stands for the message's, which is not known.
    fn too_large(self, json_bytes: usize) -> Status {
        call::too_large(json_bytes, self.message_bytes)
    }
}

impl Gateway {
    /// Makes a gateway in front of services that take messages of some size.
    pub(crate) fn new(message_bytes_max: usize) -> Self {
        Self {
            routes: routes::resolve(),
            limits: Limits {
                json_bytes: message_bytes_max.saturating_mul(2),
                message_bytes: message_bytes_max,
            },
        }
    }
}

/// Takes a path apart that belongs to the gateway; what is left of it names the call.
/// etcd 3.5 serves `/v3beta` as it serves `/v3`.
pub(crate) fn path(path: &str) -> Option<&str> {
    path.strip_prefix("/v3/")
        .or_else(|| path.strip_prefix("/v3beta/"))
}

/// Reads a request's text as the message of its path and writes that as JSON, and
/// does the same with what it wrote: for the fuzz targets.
pub fn read_twice(path: &str, text: &[u8]) -> Option<(String, Option<String>)> {
    static ROUTES: std::sync::OnceLock<HashMap<&'static str, Arc<Route>>> =
        std::sync::OnceLock::new();
    let route = ROUTES.get_or_init(routes::resolve).get(path)?;
    let rewrite = |text: &[u8]| {
        let message = messages::first(text, &route.input).ok()??;
        let mut out = String::new();
        encode::message(&message, &mut out);
        Some(out)
    };
    let once = rewrite(text)?;
    let twice = rewrite(once.as_bytes());
    Some((once, twice))
}

/// Answers a request for a path of the gateway.
pub(crate) async fn answer(
    edge: &Arc<Edge>,
    path: &str,
    request: Request<Incoming>,
    visit: Visit,
) -> Answer {
    let Some(gateway) = &edge.gateway else {
        return answer::not_found();
    };
    let route = gateway.routes.get(path);
    if websocket::asked_for(&request) {
        return match route {
            Some(route) => websocket::upgrade(edge, Arc::clone(route), request, visit),
            None => not_here(),
        };
    }
    let Some(route) = route else {
        return not_here();
    };
    if request.method() != Method::POST {
        return answer::refusal(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    }
    let (head, body) = request.into_parts();
    let headers = metadata(&head.headers);
    if route.streams_requests || route.streams_replies {
        let texts = messages::Texts::of_body(body, gateway.limits);
        return stream::answer(edge, route, headers, texts).await;
    }
    match collect(body, gateway.limits).await {
        Ok(text) => whole(edge, route, headers, &text).await,
        Err(status) => error::answer(&status),
    }
}

/// Answers a path the gateway does not know (grpc-gateway: OtherErrorHandler).
fn not_here() -> Answer {
    answer::refusal(StatusCode::NOT_FOUND, "Not Found")
}

/// Reads a whole body.
async fn collect(body: Incoming, limits: Limits) -> Result<Bytes, Status> {
    let announced = body.size_hint().exact();
    let announced = announced.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let whole = Limited::new(body, limits.json_bytes).collect();
    match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            // In pieces without an end in sight, all that is known is that it is more.
            let bytes = announced.unwrap_or(limits.json_bytes.saturating_add(1));
            Err(limits.too_large(bytes))
        }
        Ok(Err(error)) => Err(Status::invalid_argument(error.to_string())),
        Err(_late) => Err(Status::deadline_exceeded(
            "the request's body took too long",
        )),
    }
}

/// Answers a call with one request and one reply.
async fn whole(edge: &Edge, route: &Route, headers: HeaderMap, text: &[u8]) -> Answer {
    match call_whole(edge, route, headers, text).await {
        Ok(json) => grpc_answer(answer::whole(StatusCode::OK, JSON, json)),
        Err(status) => error::answer(&status),
    }
}

/// Marks an answer that a service gave, as grpc-gateway does.
fn grpc_answer(mut answer: Answer) -> Answer {
    answer.headers_mut().insert(
        HeaderName::from_static("grpc-metadata-content-type"),
        HeaderValue::from_static("application/grpc"),
    );
    answer
}

async fn call_whole(
    edge: &Edge,
    route: &Route,
    headers: HeaderMap,
    text: &[u8],
) -> Result<String, Status> {
    let message = messages::first(text, &route.input)
        .map_err(|refusal| Status::invalid_argument(refusal.to_string()))?;
    let framed = frame(&message.unwrap_or_else(|| route.empty_request()))?;
    let request = request(route, headers, CallSource::Once(Some(framed)));
    let reply = call::call(edge, request).await;
    if let Some(status) = failed(reply.headers()) {
        return Err(status);
    }
    let mut body = messages::Replies::new(reply.into_body());
    let reply = body.next().await.transpose()?;
    // The end says whether all went well, even after a reply.
    while body.next().await.transpose()?.is_some() {}
    let reply = reply.ok_or_else(|| Status::internal("the call had no reply"))?;
    json(reply, &route.output)
}

/// Writes a reply as JSON.
fn json(reply: Bytes, kind: &MessageDescriptor) -> Result<String, Status> {
    let mut out = String::with_capacity(reply.len() * 2);
    let message = DynamicMessage::decode(kind.clone(), reply)
        .map_err(|error| Status::internal(error.to_string()))?;
    encode::message(&message, &mut out);
    Ok(out)
}

/// Encodes a request, with its prefix. Whether it is too large, the call says.
fn frame(message: &DynamicMessage) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let prefix =
        u32::try_from(length).map_err(|_huge| call::too_large(length, u32::MAX as usize))?;
    let mut framed = BytesMut::with_capacity(call::PREFIX_BYTES + length);
    framed.extend_from_slice(&[0]);
    framed.extend_from_slice(&prefix.to_be_bytes());
    message
        .encode(&mut framed)
        .map_err(|error| Status::internal(error.to_string()))?;
    Ok(framed.freeze())
}

/// Makes the call of a route. It has no extensions: nothing of the connection, and so
/// no certificate, goes with it.
fn request(route: &Route, headers: HeaderMap, source: CallSource) -> Request<CallSource> {
    let mut request = Request::new(source);
    *request.method_mut() = Method::POST;
    *request.uri_mut() = route.uri.clone();
    *request.version_mut() = http::Version::HTTP_2;
    *request.headers_mut() = headers;
    request
}

/// Turns headers into the metadata of a call: the token, and what is marked as such.
fn metadata(headers: &HeaderMap) -> HeaderMap {
    let mut metadata = HeaderMap::new();
    for (name, value) in headers {
        let marked = name.as_str().strip_prefix(METADATA_PREFIX);
        let own = match (marked, name) {
            (Some(own), _) => HeaderName::from_bytes(own.as_bytes()).ok(),
            (None, name) if *name == header::AUTHORIZATION => Some(name.clone()),
            (None, _) => None,
        };
        // What frames the call is not the client's to say.
        let own = own.filter(|own| {
            *own != header::CONTENT_TYPE && *own != header::TE && !own.as_str().starts_with("grpc-")
        });
        if let Some(own) = own {
            metadata.append(own, value.clone());
        }
    }
    let grpc = HeaderValue::from_static("application/grpc");
    metadata.insert(header::CONTENT_TYPE, grpc);
    metadata.insert(header::TE, HeaderValue::from_static("trailers"));
    metadata
}

/// Reads the status of a call that failed.
fn failed(headers: &HeaderMap) -> Option<Status> {
    Status::from_header_map(headers).filter(|status| status.code() != Code::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_and_what_is_marked_goes_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "t"),
            ("grpc-metadata-hasleader", "true"),
            ("grpc-metadata-content-type", "x"),
            ("grpc-metadata-grpc-timeout", "1n"),
            ("cookie", "c"),
            ("content-type", "application/json"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let metadata = metadata(&headers);
        assert_eq!(metadata["authorization"], "t");
        assert_eq!(metadata["hasleader"], "true");
        assert_eq!(metadata["content-type"], "application/grpc");
        assert_eq!(metadata.len(), 4, "{metadata:?}");
    }

    #[test]
    fn both_versions_of_the_path_are_one() {
        assert_eq!(path("/v3/kv/range"), Some("kv/range"));
        assert_eq!(path("/v3beta/kv/range"), Some("kv/range"));
        assert_eq!(path("/v3alpha/kv/range"), None);
        assert_eq!(path("/v3"), None);
    }
}
