//! Streams over websockets, as etcd's grpc-websocket-proxy offers them: each message
//! of the client is read as the next piece of the request's body, each line of the
//! answer is a message to the client.

use std::sync::Arc;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::{
    error,
    messages::Texts,
    metadata,
    routes::Route,
    stream::{self, Failure},
};
use crate::accept::Visit;
use crate::edge::{
    Edge,
    answer::{self, Answer, Body},
};

/// Says whether a request asks for a websocket (RFC 6455, section 4.2.1).
pub(super) fn asked_for<B>(request: &Request<B>) -> bool {
    let lists = |name: header::HeaderName, wanted: &str| {
        request.headers().get_all(name).iter().any(|value| {
            let value = value.to_str().unwrap_or_default();
            value
                .split(',')
                .any(|token| token.trim().eq_ignore_ascii_case(wanted))
        })
    };
    lists(header::CONNECTION, "upgrade") && lists(header::UPGRADE, "websocket")
}

/// Answers with a websocket, and speaks on it until one side ends.
pub(super) fn upgrade(
    edge: &Arc<Edge>,
    route: Arc<Route>,
    mut request: Request<Incoming>,
    visit: Visit,
) -> Answer {
    let headers = request.headers();
    let version = headers.get(header::SEC_WEBSOCKET_VERSION);
    let (Some(key), Some(b"13")) = (
        headers.get(header::SEC_WEBSOCKET_KEY),
        version.map(HeaderValue::as_bytes),
    ) else {
        return answer::refusal(StatusCode::BAD_REQUEST, "Bad Request");
    };
    let accept = derive_accept_key(key.as_bytes());
    let Ok(accept) = HeaderValue::from_str(&accept) else {
        return answer::refusal(StatusCode::BAD_REQUEST, "Bad Request");
    };
    let protocol = headers.get(header::SEC_WEBSOCKET_PROTOCOL).cloned();
    let metadata = metadata(&with_token(headers));
    let upgraded = hyper::upgrade::on(&mut request);
    let edge = Arc::clone(edge);
    tokio::spawn(async move {
        let stop = edge.handle.shared.stop.clone();
        let speak = async {
            // It has its place among the connections for as long as it lasts.
            let _place = visit.place;
            match upgraded.await {
                Ok(upgraded) => speak(&edge, &route, metadata, TokioIo::new(upgraded)).await,
                Err(error) => tracing::debug!(%error, "no websocket came of an upgrade"),
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = speak => {}
        }
    });
    let mut answer = Response::new(Body::Whole(Full::new(Bytes::new())));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if protocol.is_some_and(|protocol| protocol.as_bytes().starts_with(b"Bearer")) {
        let bearer = HeaderValue::from_static("Bearer");
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, bearer);
    }
    answer
}

/// Takes the token from where a browser can put one: the list of protocols, as
/// `Bearer, <token>`. Only scripts set an Authorization header.
fn with_token(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let protocols = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
    let token = protocols
        .and_then(|protocols| protocols.to_str().ok()?.strip_prefix("Bearer,"))
        .and_then(|token| HeaderValue::from_str(token.trim()).ok());
    if let Some(token) = token {
        headers.insert(header::AUTHORIZATION, token);
    }
    headers
}

async fn speak<T>(edge: &Arc<Edge>, route: &Arc<Route>, metadata: HeaderMap, io: T)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let limits = edge.gateway.as_ref().map(|gateway| gateway.limits);
    let limits = limits.unwrap_or_default();
    let config = WebSocketConfig::default()
        .max_message_size(Some(limits.json_bytes))
        .max_frame_size(Some(limits.json_bytes));
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (mut send, receive) = socket.split();
    let parts = receive
        .take_while(|message| {
            let goes_on = matches!(message, Ok(message) if !message.is_close());
            std::future::ready(goes_on)
        })
        .filter_map(|message| {
            let part = match message {
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => Some(message.into_data()),
                // The crate answers pings by itself.
                _ => None,
            };
            std::future::ready(part)
        });
    // A client that closes its websocket is gone, not just silent.
    let (gone, end) = tokio::sync::oneshot::channel();
    let parts = parts.chain(futures::stream::once(async move {
        let _nobody_waits = gone.send(());
        Bytes::new()
    }));
    let texts = Texts::of_parts(parts, limits);
    let talk = async {
        let mut lines = match stream::begin(edge, route, metadata, texts).await {
            Ok(lines) => lines,
            Err(failure) => {
                let text = match failure {
                    Failure::Request(status) => error::body(&status),
                    Failure::Call(status) => error::line(&status),
                };
                return drop(send.send(Message::text(text)).await);
            }
        };
        while let Some(line) = lines.next().await {
            let (line, last) = match line {
                Ok(line) => (line, false),
                Err(status) => (error::line(&status), true),
            };
            if send.send(Message::text(line)).await.is_err() || last {
                break;
            }
        }
        // Whoever is gone is not told.
        let _gone = send.close().await;
    };
    tokio::select! {
        () = talk => {}
        Ok(()) = end => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_asked_for_in_two_headers() {
        let asked = |connection: &str, upgrade: &str| {
            let request = Request::builder()
                .header("connection", connection)
                .header("upgrade", upgrade)
                .body(())
                .unwrap();
            asked_for(&request)
        };
        assert!(asked("Upgrade", "websocket"));
        assert!(asked("keep-alive, upgrade", "WebSocket"));
        assert!(!asked("keep-alive", "websocket"));
        assert!(!asked("upgrade", "h2c"));
    }

    #[test]
    fn a_token_may_stand_among_the_protocols() {
        let mut headers = HeaderMap::new();
        headers.insert("sec-websocket-protocol", "Bearer, t.1".parse().unwrap());
        assert_eq!(with_token(&headers)["authorization"], "t.1");
        headers.insert("sec-websocket-protocol", "chat".parse().unwrap());
        assert!(with_token(&headers).get("authorization").is_none());
    }
}
