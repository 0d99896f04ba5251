//! Forwarded ports over SPDY, inside a websocket: for each connection the client
//! opens a stream for errors and one for data, with the port in their headers and
//! a number that says which two belong together.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use spdy::{Decoder, Encoder, Frame, Headers, SpdyError};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::forward::{self, PIECES_MAX};
use super::{PodPorts, socket};
use crate::runtime::Runtime;

/// How many streams may be open or wait for the other half; beyond it a stream is
/// refused.
const STREAMS_MAX: usize = 512;
/// How many frames wait to be written; beyond this their makers wait.
const FRAMES_MAX: usize = 8;
/// RST_STREAM: the stream is not wanted.
const CANCEL: u32 = 5;

/// Forwards ports until the client leaves.
pub(super) async fn tunnel(
    websocket: tokio_tungstenite::WebSocketStream<
        hyper_util::rt::TokioIo<hyper::upgrade::Upgraded>,
    >,
    runtime: Arc<dyn Runtime>,
    pod: PodPorts,
) {
    let (mut reader, messages, writing) = socket::split(websocket);
    let (frames, frames_made) = mpsc::channel(FRAMES_MAX);
    let session = async {
        let mut tunnel = Tunnel::new(runtime, pod, frames);
        if let Err(error) = tunnel.run(&mut reader).await {
            tracing::debug!(%error, "a forward is not SPDY");
        }
    };
    tokio::join!(session, encode(frames_made, messages), writing);
}

async fn encode(mut frames: mpsc::Receiver<Frame>, messages: mpsc::Sender<Bytes>) {
    let mut encoder = Encoder::default();
    while let Some(frame) = frames.recv().await {
        let mut bytes = Vec::new();
        encoder.encode(&frame, &mut bytes);
        if messages.send(bytes.into()).await.is_err() {
            return;
        }
    }
}

/// One of the two streams of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Error,
    Data,
}

/// What a stream's headers say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Purpose {
    half: Half,
    port: u16,
    request: String,
}

/// Reads the headers of a stream.
fn purpose(stream: u32, headers: &Headers) -> Result<Purpose, String> {
    let half = match headers.get("streamtype") {
        Some("error") => Half::Error,
        Some("data") => Half::Data,
        Some(other) => return Err(format!("invalid stream type {other:?}")),
        None => return Err("\"streamType\" header is required".to_owned()),
    };
    let port = headers.get("port").ok_or("\"port\" header is required")?;
    let port = match port.parse::<u16>() {
        Ok(0) => return Err(format!("port {port:?} must be > 0")),
        Ok(port) => port,
        Err(e) => return Err(format!("unable to parse {port:?} as a port: {e}")),
    };
    let request = match (headers.get("requestid"), half) {
        (Some(id), _) if !id.is_empty() => id.to_owned(),
        // Old clients open the error stream first, and the data stream next.
        (_, Half::Error) => stream.to_string(),
        (_, Half::Data) => stream.saturating_sub(2).to_string(),
    };
    Ok(Purpose {
        half,
        port,
        request,
    })
}

/// A connection of which one stream or both are open.
#[derive(Debug, Default)]
struct Pair {
    error: Option<u32>,
    data: Option<(u32, u16, mpsc::Receiver<Bytes>)>,
}

struct Tunnel {
    runtime: Arc<dyn Runtime>,
    pod: Arc<PodPorts>,
    frames: mpsc::Sender<Frame>,
    /// Connections that wait for their other stream, by request.
    halves: BTreeMap<String, Pair>,
    /// Where the data of open streams goes; absent once the client ended it.
    inputs: BTreeMap<u32, mpsc::Sender<Bytes>>,
    /// What carries the data streams that have their other half.
    carriers: BTreeMap<u32, AbortHandle>,
    tasks: JoinSet<u32>,
}

impl Tunnel {
    fn new(runtime: Arc<dyn Runtime>, pod: PodPorts, frames: mpsc::Sender<Frame>) -> Self {
        Self {
            runtime,
            pod: Arc::new(pod),
            frames,
            halves: BTreeMap::new(),
            inputs: BTreeMap::new(),
            carriers: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    async fn run(&mut self, reader: &mut socket::Reader) -> Result<(), SpdyError> {
        let mut decoder = Decoder::default();
        loop {
            tokio::select! {
                message = reader.next() => {
                    let Some(message) = message else { return Ok(()) };
                    decoder.push(&message);
                    while let Some(frame) = decoder.next_frame()? {
                        self.take(frame).await;
                    }
                }
                Some(Ok(stream)) = self.tasks.join_next() => self.forget(stream),
            }
        }
    }

    async fn take(&mut self, frame: Frame) {
        match frame {
            Frame::SynStream {
                stream, headers, ..
            } => self.open(stream, &headers).await,
            Frame::Data { stream, fin, bytes } => {
                if let Some(input) = self.inputs.get(&stream)
                    && !bytes.is_empty()
                {
                    let _port_closed = input.send(bytes).await;
                }
                if fin {
                    self.inputs.remove(&stream);
                }
            }
            Frame::Reset { stream, .. } => self.forget(stream),
            // Ours are even, and none is sent.
            Frame::Ping { id } if id % 2 == 1 => self.send(Frame::Ping { id }).await,
            _ => {}
        }
    }

    async fn send(&self, frame: Frame) {
        // Who has left is noticed where messages are read.
        let _client_left = self.frames.send(frame).await;
    }

    async fn open(&mut self, stream: u32, headers: &Headers) {
        let full = self.halves.len() + self.carriers.len() >= STREAMS_MAX;
        let purpose = match purpose(stream, headers) {
            Ok(purpose) if !full => purpose,
            refused => {
                tracing::debug!(stream, ?refused, "a stream is refused");
                let status = CANCEL;
                return self.send(Frame::Reset { stream, status }).await;
            }
        };
        self.send(Frame::SynReply {
            stream,
            fin: false,
            headers: Headers::default(),
        })
        .await;
        let pair = self.halves.entry(purpose.request.clone()).or_default();
        match purpose.half {
            Half::Error => pair.error = Some(stream),
            Half::Data => {
                let (input, from_client) = mpsc::channel(PIECES_MAX);
                self.inputs.insert(stream, input);
                pair.data = Some((stream, purpose.port, from_client));
            }
        }
        if pair.error.is_some() && pair.data.is_some() {
            let pair = self.halves.remove(&purpose.request).unwrap_or_default();
            if let (Some(error), Some((data, port, from_client))) = (pair.error, pair.data) {
                self.carry(error, data, port, from_client);
            }
        }
    }

    fn carry(&mut self, error: u32, data: u32, port: u16, from_client: mpsc::Receiver<Bytes>) {
        let (runtime, pod) = (Arc::clone(&self.runtime), Arc::clone(&self.pod));
        let frames = self.frames.clone();
        let carrier = self.tasks.spawn(async move {
            let part = |stream, fin, bytes| Frame::Data { stream, fin, bytes };
            let on = |bytes| part(data, false, bytes);
            let carried = forward::carry(&*runtime, &pod, port, from_client, &frames, on).await;
            let text = carried.err().unwrap_or_default();
            if !text.is_empty() {
                let _client_left = frames.send(part(error, false, text.into())).await;
            }
            for stream in [data, error] {
                let _client_left = frames.send(part(stream, true, Bytes::new())).await;
            }
            data
        });
        self.carriers.insert(data, carrier);
    }

    /// Ends what a stream did.
    fn forget(&mut self, stream: u32) {
        self.inputs.remove(&stream);
        if let Some(carrier) = self.carriers.remove(&stream) {
            carrier.abort();
        }
        self.halves.retain(|_, pair| {
            pair.error != Some(stream) && pair.data.as_ref().is_none_or(|d| d.0 != stream)
        });
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let own = |(n, v): &(&str, &str)| ((*n).to_owned(), (*v).to_owned());
        Headers(pairs.iter().map(own).collect())
    }

    #[test]
    fn streams_say_what_they_are_for() {
        let read = |pairs: &[(&str, &str)]| purpose(7, &headers(pairs));
        let found = read(&[("streamtype", "data"), ("port", "80"), ("requestid", "3")]).unwrap();
        assert_eq!((found.half, found.port), (Half::Data, 80));
        assert_eq!(found.request, "3");
        let old = read(&[("streamtype", "data"), ("port", "80")]).unwrap();
        assert_eq!(old.request, "5");
        for bad in [
            &[("streamtype", "stdin"), ("port", "80")][..],
            &[("port", "80")],
            &[("streamtype", "error")],
            &[("streamtype", "error"), ("port", "0")],
            &[("streamtype", "error"), ("port", "65536")],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
