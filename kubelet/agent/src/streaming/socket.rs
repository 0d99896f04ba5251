//! Websockets: the handshake, and messages both ways.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// Channels of bytes, the first byte of a message naming the channel.
pub(super) const V4: &str = "v4.channel.k8s.io";
/// The same, with a message that ends one channel.
pub(super) const V5: &str = "v5.channel.k8s.io";
/// The bytes of a SPDY session, in messages of any size.
pub(super) const SPDY_TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// The longest message that is read; beyond it the stream is ended. Clients send
/// pieces of some tens of KiB.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// How many messages wait to be written; beyond this their makers wait.
const MESSAGES_MAX: usize = 8;
/// How often the other end is asked whether it is there. One that vanished
/// without a word is noticed by the answer that its machine gives.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the other end may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(5);

/// A handshake that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// The subprotocol chosen.
    pub(super) protocol: &'static str,
    key: HeaderValue,
}

impl Accepted {
    /// Returns the headers of the answer.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.key.clone());
        let protocol = HeaderValue::from_static(self.protocol);
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        headers
    }
}

/// Checks a handshake (RFC 6455, 4.2) and chooses the first subprotocol of the
/// client's that is among ours.
pub(super) fn accept(
    headers: &HeaderMap,
    ours: &[&'static str],
) -> Result<Accepted, (StatusCode, String)> {
    let refuse = |code, text: &str| Err((code, text.to_owned()));
    let lists = |name: header::HeaderName, wanted: &str| {
        words(headers, &name).any(|word| word.eq_ignore_ascii_case(wanted))
    };
    if !lists(header::CONNECTION, "upgrade") || !lists(header::UPGRADE, "websocket") {
        let text = "unable to upgrade: only websockets are served here";
        return refuse(StatusCode::BAD_REQUEST, text);
    }
    let version = headers.get(header::SEC_WEBSOCKET_VERSION);
    let (Some(key), Some(b"13")) = (
        headers.get(header::SEC_WEBSOCKET_KEY),
        version.map(HeaderValue::as_bytes),
    ) else {
        let text = "unable to upgrade: not a websocket handshake of version 13";
        return refuse(StatusCode::BAD_REQUEST, text);
    };
    let asked = || words(headers, &header::SEC_WEBSOCKET_PROTOCOL);
    let chosen = asked().find_map(|word| ours.iter().find(|o| **o == word));
    let Some(protocol) = chosen else {
        let asked: Vec<&str> = asked().collect();
        let text = format!("requested protocol(s) are not supported: {asked:?}; supports {ours:?}");
        return refuse(StatusCode::FORBIDDEN, &text);
    };
    match HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        Ok(key) => Ok(Accepted { protocol, key }),
        Err(_) => refuse(StatusCode::BAD_REQUEST, "unable to upgrade: bad key"),
    }
}

/// Lists the words of a header that may come several times.
fn words<'a>(
    headers: &'a HeaderMap,
    name: &header::HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| {
        text.split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
    })
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Begins to speak on an upgraded connection.
pub(super) async fn open(upgraded: Upgraded) -> Socket {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}

/// Reads messages; pings are answered on the way.
pub(super) struct Reader(SplitStream<Socket>);

impl Reader {
    /// Returns the next message; `None` when the client has left.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.0.next().await? {
                Ok(message @ (Message::Binary(_) | Message::Text(_))) => {
                    return Some(message.into_data());
                }
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

/// Splits a socket into what reads it, what messages are handed to, and what
/// writes them until their makers are gone, and then says goodbye.
pub(super) fn split(
    socket: Socket,
) -> (Reader, mpsc::Sender<Bytes>, impl Future<Output = ()> + Send) {
    let (sink, stream) = socket.split();
    let (sender, messages) = mpsc::channel(MESSAGES_MAX);
    (Reader(stream), sender, write(sink, messages))
}

async fn write(mut sink: SplitSink<Socket, Message>, mut messages: mpsc::Receiver<Bytes>) {
    let mut pings = tokio::time::interval(PING_INTERVAL);
    // The first comes at once.
    pings.tick().await;
    loop {
        let message = tokio::select! {
            message = messages.recv() => message.map(Message::Binary),
            _ = pings.tick() => Some(Message::Ping(Bytes::new())),
        };
        let Some(message) = message else { break };
        if sink.send(message).await.is_err() {
            return;
        }
    }
    let goodbye = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    match tokio::time::timeout(GOODBYE, sink.send(Message::Close(Some(goodbye)))).await {
        Ok(Ok(()) | Err(Error::ConnectionClosed)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a websocket's end could not be said"),
        Err(_) => tracing::debug!("a websocket's end was not taken"),
    }
}

/// Waits for the client's goodbye, so that it has read everything.
pub(super) async fn await_goodbye(reader: &mut Reader) {
    let rest = async { while reader.next().await.is_some() {} };
    if tokio::time::timeout(GOODBYE, rest).await.is_err() {
        tracing::debug!("a client does not say goodbye");
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn handshake(
        change: &[(&'static str, &'static str)],
    ) -> Result<Accepted, (StatusCode, String)> {
        let mut headers = HeaderMap::new();
        let usual = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            (
                "sec-websocket-protocol",
                "v9.channel.k8s.io, v4.channel.k8s.io",
            ),
        ];
        for (name, value) in usual.iter().chain(change) {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        accept(&headers, &[V5, V4])
    }

    #[test]
    fn the_first_protocol_that_both_know_is_chosen() {
        let headers = handshake(&[]).unwrap().headers();
        // The example of RFC 6455.
        assert_eq!(
            headers["sec-websocket-accept"],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(headers["sec-websocket-protocol"], V4);
    }

    #[test]
    fn what_is_no_handshake_is_refused() {
        for (name, value, code) in [
            ("upgrade", "SPDY/3.1", 400),
            ("connection", "keep-alive", 400),
            ("sec-websocket-version", "8", 400),
            ("sec-websocket-protocol", "channel.k8s.io", 403),
        ] {
            let (got, _) = handshake(&[(name, value)]).unwrap_err();
            assert_eq!(got.as_u16(), code, "{name}: {value}");
        }
    }
}
