//! Commands and attached containers over a websocket: `v4.channel.k8s.io` and
//! `v5.channel.k8s.io`. A message's first byte names its channel.

use bytes::Bytes;
use kubelet_core::cri_log::Stream;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{socket, status};
use crate::runtime::RuntimeError;
use crate::session::{Input, Session, Wanted};
use crate::terminal::Size;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Version 5: the second byte names a channel that ends.
const END: u8 = 255;

/// A terminal's size as clients send it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GivenSize {
    width: u16,
    height: u16,
}

/// Speaks for a session until it ends or the client leaves.
pub(super) async fn speak(
    websocket: tokio_tungstenite::WebSocketStream<
        hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>,
    >,
    protocol: &'static str,
    session: Result<Session, RuntimeError>,
    wanted: Wanted,
    command: &str,
) {
    let (mut reader, messages, writing) = socket::split(websocket);
    let talking = async {
        // Says that the stream is there, before there is any output.
        let first = match (wanted.stdout, wanted.stderr) {
            (true, _) => STDOUT,
            (false, true) => STDERR,
            (false, false) => ERROR,
        };
        let _client_left = messages.send(Bytes::copy_from_slice(&[first])).await;
        match session {
            Ok(session) => talk(&mut reader, session, messages, protocol, wanted, command).await,
            Err(error) => say(&messages, &not_run(&error)).await,
        }
        reader
    };
    let goodbye = async {
        let mut reader = talking.await;
        socket::await_goodbye(&mut reader).await;
    };
    tokio::join!(writing, goodbye);
}

fn not_run(error: &dyn std::fmt::Display) -> Value {
    status::failed(&format!("error executing command in container: {error}"))
}

async fn talk(
    reader: &mut socket::Reader,
    session: Session,
    messages: mpsc::Sender<Bytes>,
    protocol: &'static str,
    wanted: Wanted,
    command: &str,
) {
    // Whole, so that it ends when this does.
    let mut session = session;
    let input = session.input.clone();
    let listening = async {
        while let Some((stream, bytes)) = session.output.recv().await {
            let channel = match stream {
                Stream::Stdout => STDOUT,
                Stream::Stderr => STDERR,
            };
            let message = [&[channel], bytes.as_ref()].concat();
            if messages.send(message.into()).await.is_err() {
                return None;
            }
        }
        Some((&mut session.end).await)
    };
    let ended = tokio::select! {
        ended = listening => ended,
        () = obey(reader, input, protocol, wanted) => None,
    };
    let Some(ended) = ended else { return };
    let said = match ended {
        Ok(Ok(0)) => status::success(),
        Ok(Ok(code)) => status::exited(command, code),
        Ok(Err(error)) => not_run(&error),
        Err(_) => not_run(&"its end is unknown"),
    };
    say(&messages, &said).await;
}

async fn say(messages: &mpsc::Sender<Bytes>, status: &Value) {
    let message = [&[ERROR], status.to_string().as_bytes()].concat();
    let _client_left = messages.send(message.into()).await;
}

/// Passes on what the client sends; returns when it has left.
async fn obey(
    reader: &mut socket::Reader,
    input: mpsc::Sender<Input>,
    protocol: &'static str,
    wanted: Wanted,
) {
    while let Some(message) = reader.next().await {
        if let Some(sent) = read(message, protocol, wanted) {
            // What an ended command was to read is thrown away.
            let _ended = input.send(sent).await;
        }
    }
}

/// Reads one message; one that means nothing is passed over.
fn read(message: Bytes, protocol: &'static str, wanted: Wanted) -> Option<Input> {
    let rest = message.slice(1.min(message.len())..);
    match *message.first()? {
        STDIN if wanted.stdin && !rest.is_empty() => Some(Input::Bytes(rest)),
        RESIZE if wanted.tty => {
            let size: GivenSize = serde_json::from_slice(&rest).ok()?;
            Some(Input::Resize(Size {
                columns: size.width,
                rows: size.height,
            }))
        }
        END if protocol == socket::V5 && wanted.stdin => {
            (rest.first() == Some(&STDIN)).then_some(Input::End)
        }
        _ => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const ALL: Wanted = Wanted {
        stdin: true,
        stdout: true,
        stderr: true,
        tty: true,
    };

    #[test]
    fn messages_are_read_by_their_channel() {
        let get = |bytes: &'static [u8]| read(Bytes::from_static(bytes), socket::V5, ALL);
        assert_eq!(
            get(b"\0typed"),
            Some(Input::Bytes(Bytes::from_static(b"typed")))
        );
        assert_eq!(get(b"\xff\0"), Some(Input::End));
        let size = Size {
            columns: 80,
            rows: 24,
        };
        assert_eq!(
            get(b"\x04{\"Width\":80,\"Height\":24}\n"),
            Some(Input::Resize(size))
        );
        for nothing in [
            &b""[..],
            b"\0",
            b"\x01no",
            b"\xff\x01",
            b"\xff",
            b"\x04{}",
            b"\x09x",
        ] {
            assert_eq!(get(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn nothing_is_taken_that_was_not_wanted() {
        let mute = Wanted {
            stdin: false,
            tty: false,
            ..ALL
        };
        let get = |bytes: &'static [u8]| read(Bytes::from_static(bytes), socket::V5, mute);
        assert_eq!(get(b"\0typed"), None);
        assert_eq!(get(b"\xff\0"), None);
        assert_eq!(get(b"\x04{\"Width\":80,\"Height\":24}"), None);
        let old = read(Bytes::from_static(b"\xff\0"), socket::V4, ALL);
        assert_eq!(old, None, "version 4 has no end of a channel");
    }
}
