//! A watch over a websocket, as browsers can open one: each event is a message,
//! text for JSON, binary for protobuf. What the client sends is passed over; its
//! close ends the watch.

use bytes::Bytes;
use futures::{SinkExt, Stream, StreamExt};
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use meta::Status;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::body::{self, BoxBody};

/// How long a message from the client may be: none has a meaning.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// With these a browser sends its token; they are no protocol to agree on.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";

/// Says whether a request asks for a websocket.
pub(super) fn asked_for(headers: &HeaderMap) -> bool {
    let lists = |name: HeaderName, wanted: &str| {
        let values = headers.get_all(name).into_iter();
        values.filter_map(|v| v.to_str().ok()).any(|value| {
            value
                .split(',')
                .any(|token| token.trim().eq_ignore_ascii_case(wanted))
        })
    };
    lists(CONNECTION, "upgrade") && lists(UPGRADE, "websocket")
}

/// Answers with a websocket, and speaks on it until one side ends.
pub(super) fn answer(
    headers: &HeaderMap,
    upgrade: OnUpgrade,
    events: impl Stream<Item = Bytes> + Send + 'static,
    text: bool,
) -> Result<Response<BoxBody>, Status> {
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    let (Some(key), Some(b"13")) = (
        headers.get(SEC_WEBSOCKET_KEY),
        version.map(HeaderValue::as_bytes),
    ) else {
        return Err(Status::bad_request("missing or bad WebSocket-Version"));
    };
    let accept = derive_accept_key(key.as_bytes());
    let accept = HeaderValue::from_str(&accept).map_err(Status::internal)?;
    let protocol = protocol(headers)?;
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => speak(TokioIo::new(upgraded), events, text).await,
            Err(error) => tracing::debug!(%error, "no websocket came of an upgrade"),
        }
    });
    let mut response = Response::new(body::full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answered.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        answered.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

/// Agrees to the one protocol that was offered, if one was: none has a meaning
/// here, but a browser gives up without an answer.
fn protocol(headers: &HeaderMap) -> Result<Option<HeaderValue>, Status> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let values: Vec<&str> = values.filter_map(|v| v.to_str().ok()).collect();
    let offered: Vec<&str> = values
        .iter()
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .filter(|p| !p.is_empty() && !p.starts_with(BEARER))
        .collect();
    match offered.as_slice() {
        [] => Ok(None),
        [one] => HeaderValue::from_str(one)
            .map(Some)
            .map_err(Status::internal),
        _ => Err(Status::bad_request("bad protocol")),
    }
}

async fn speak<T>(io: T, events: impl Stream<Item = Bytes>, text: bool)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (mut send, mut receive) = socket.split();
    let gone = async {
        // Pings are answered by the crate, as long as somebody reads.
        while let Some(Ok(message)) = receive.next().await {
            if message.is_close() {
                break;
            }
        }
    };
    let show = async {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let message = match text.then(|| Utf8Bytes::try_from(event.clone())) {
                Some(Ok(text)) => Message::Text(text),
                _ => Message::Binary(event),
            };
            if send.send(message).await.is_err() {
                return;
            }
        }
        // Whether the client hears of the end is its own affair.
        let _gone_already = send.send(Message::Close(None)).await;
    };
    tokio::select! {
        () = gone => {}
        () = show => {}
    }
}
