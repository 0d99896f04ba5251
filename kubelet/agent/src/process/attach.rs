//! Joining a running container through its shim's socket.

use std::io;
use std::path::Path;

use bytes::Bytes;
use kubelet_core::cri_log::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::RuntimeError;
use crate::session::{self, Backstage, Input, PIECE_BYTES, Session, Wanted};
use crate::shim::attach::{Channel, Frame, socket_path};

/// Joins the container whose directory this is. The session ends with it.
pub(super) async fn join(dir: &Path, wanted: Wanted) -> Result<Session, RuntimeError> {
    let failed = |e: io::Error| RuntimeError::Exec(format!("cannot attach to the container: {e}"));
    let (held, path) = socket_path(dir).map_err(failed)?;
    let socket = UnixStream::connect(path).await.map_err(failed)?;
    drop(held);
    let (from_shim, mut to_shim) = socket.into_split();
    if wanted.stdin {
        // Says that somebody types here, even before anything is typed.
        let hello = Frame::encode(Channel::Stdin, b"");
        to_shim.write_all(&hello).await.map_err(failed)?;
    }
    let (session, stage) = session::pair();
    tokio::spawn(async move {
        let Backstage {
            input,
            output,
            end,
            left,
        } = stage;
        let talk = async {
            tokio::select! {
                heard = hear(from_shim, wanted, output) => heard,
                error = type_in(to_shim, input) => Err(error),
            }
        };
        tokio::select! {
            () = left.cancelled() => {}
            heard = talk => {
                let _nobody_asks = end.send(heard.map(|()| 0).map_err(|e| e.to_string()));
            }
        }
    });
    Ok(session)
}

/// Passes on what the container writes, until it ends.
async fn hear(
    mut from_shim: OwnedReadHalf,
    wanted: Wanted,
    output: mpsc::Sender<(Stream, Bytes)>,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        while let Some(frame) = Frame::take(&mut buffer)? {
            let stream = match frame.channel {
                Channel::Stdout if wanted.stdout => Stream::Stdout,
                Channel::Stderr if wanted.stderr => Stream::Stderr,
                _ => continue,
            };
            let _nobody_listens = output.send((stream, frame.bytes.into())).await;
        }
        buffer.reserve(PIECE_BYTES);
        if from_shim.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Passes on what the user types; returns only with an error.
async fn type_in(mut to_shim: OwnedWriteHalf, mut input: mpsc::Receiver<Input>) -> io::Error {
    while let Some(input) = input.recv().await {
        let frames = match input {
            Input::Bytes(bytes) => bytes
                .chunks(PIECE_BYTES)
                .flat_map(|piece| Frame::encode(Channel::Stdin, piece))
                .collect(),
            Input::End => Frame::encode(Channel::End, b""),
            Input::Resize(size) => {
                let (columns, rows) = (size.columns.to_be_bytes(), size.rows.to_be_bytes());
                Frame::encode(Channel::Resize, &[columns, rows].concat())
            }
        };
        if let Err(error) = to_shim.write_all(&frames).await {
            // The shim may have said its last words before it went.
            tracing::debug!(%error, "a shim takes no input");
            break;
        }
    }
    std::future::pending().await
}
