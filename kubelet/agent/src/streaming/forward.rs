//! Forwarded ports: bytes between a client and a port of a pod, and the way
//! without SPDY, `v4.channel.k8s.io`, where the ports stand in the query and each
//! has a channel for data and one for errors.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::{PodPorts, socket};
use crate::runtime::Runtime;
use crate::session::PIECE_BYTES;

/// How many pieces wait for a port that takes none; beyond this their sender waits.
pub(super) const PIECES_MAX: usize = 8;

/// Connects to a port and copies both ways until the pod closes the connection.
/// The client's end is passed on; what the pod still sends is heard. The error
/// is the text that clients print.
pub(super) async fn carry<T>(
    runtime: &dyn Runtime,
    pod: &PodPorts,
    port: u16,
    mut from_client: mpsc::Receiver<Bytes>,
    to_client: &mpsc::Sender<T>,
    wrap: impl Fn(Bytes) -> T,
) -> Result<(), String> {
    let failed = |what: String| {
        let (name, uid) = (&pod.name, &pod.uid);
        format!("error forwarding port {port} to pod {name}, uid {uid}: {what}")
    };
    let connected = runtime.connect(&pod.uid, port).await;
    let socket =
        connected.map_err(|e| failed(format!("failed to connect to localhost:{port}: {e}")))?;
    let (mut read, mut write) = socket.into_split();
    let up = async {
        while let Some(bytes) = from_client.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // One that closed already has nothing to hear.
        let _closed = write.shutdown().await;
        std::future::pending().await
    };
    let down = async {
        loop {
            let mut buffer = BytesMut::with_capacity(PIECE_BYTES);
            match read.read_buf(&mut buffer).await {
                Ok(0) => return Ok(()),
                Ok(_) if to_client.send(wrap(buffer.freeze())).await.is_err() => return Ok(()),
                Ok(_) => {}
                Err(e) => return Err(failed(e.to_string())),
            }
        }
    };
    tokio::select! {
        never = up => never,
        carried = down => carried,
    }
}

/// The channels of the port at an index: data and errors.
fn channels_of(index: usize) -> Option<(u8, u8)> {
    let data = u8::try_from(index.checked_mul(2)?).ok()?;
    Some((data, data.checked_add(1)?))
}

/// Forwards the ports of the query until the pod closes them all or the client
/// leaves.
pub(super) async fn channels(
    websocket: tokio_tungstenite::WebSocketStream<
        hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>,
    >,
    runtime: Arc<dyn Runtime>,
    pod: &PodPorts,
) {
    let (mut reader, messages, writing) = socket::split(websocket);
    let talking = async {
        let mut inputs = Vec::new();
        let mut ports = FuturesUnordered::new();
        for (index, port) in pod.ports.iter().copied().enumerate() {
            let Some((data, error)) = channels_of(index) else {
                break;
            };
            // Each channel begins with the port's number.
            for channel in [data, error] {
                let [low, high] = port.to_le_bytes();
                let hello = Bytes::copy_from_slice(&[channel, low, high]);
                let _client_left = messages.send(hello).await;
            }
            let (input, from_client) = mpsc::channel(PIECES_MAX);
            inputs.push(Some(input));
            let (runtime, messages) = (Arc::clone(&runtime), messages.clone());
            ports.push(async move {
                let on = move |bytes: Bytes| Bytes::from([&[data], bytes.as_ref()].concat());
                let carried = carry(&*runtime, pod, port, from_client, &messages, on).await;
                if let Err(text) = carried {
                    let message = [&[error], text.as_bytes()].concat();
                    let _client_left = messages.send(message.into()).await;
                }
                index
            });
        }
        drop(messages);
        loop {
            tokio::select! {
                done = ports.next() => match done {
                    Some(index) => inputs[index] = None,
                    None => break,
                },
                message = reader.next() => match message {
                    Some(message) => pass_on(&inputs, message).await,
                    None => break,
                },
            }
        }
        drop(ports);
        reader
    };
    let goodbye = async {
        let mut reader = talking.await;
        socket::await_goodbye(&mut reader).await;
    };
    tokio::join!(writing, goodbye);
}

async fn pass_on(inputs: &[Option<mpsc::Sender<Bytes>>], message: Bytes) {
    let Some(channel) = message.first().filter(|c| **c % 2 == 0) else {
        return;
    };
    if let Some(Some(input)) = inputs.get(usize::from(*channel / 2))
        && message.len() > 1
    {
        let _port_closed = input.send(message.slice(1..)).await;
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn ports_have_two_channels_each() {
        assert_eq!(channels_of(0), Some((0, 1)));
        assert_eq!(channels_of(127), Some((254, 255)));
        assert_eq!(channels_of(128), None);
    }
}
