//! One gRPC call, from the wire or from the gateway, on its way to the services and
//! back: counted as go-grpc-prometheus counts.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::Edge;
use crate::metrics::calls::{Calls, Method};

/// Bytes before each message: a flag and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Where the messages of a call come from.
#[derive(Debug)]
pub(crate) enum CallSource {
    /// A client's connection.
    Wire(Incoming),
    /// One message, with its prefix.
    Once(Option<Bytes>),
    /// Messages as they come, each with its prefix.
    Queue(mpsc::Receiver<Bytes>),
}

/// The messages of a call, counted as they pass.
///
/// The length a message announces is looked at as soon as it is there: a liar gets
/// its error at once, in the words of grpc-go (rpc_util.go, recvMsg), and nothing is
/// kept for it.
pub(crate) struct CallBody {
    source: CallSource,
    frames: Frames,
    counted: Option<Counted>,
}

/// What comes back, counted as it passes.
pub(crate) struct CallReply {
    body: tonic::body::Body,
    frames: Frames,
    counted: Option<Counted>,
    end: Option<End>,
}

/// Answers one call; its path names the method.
pub(crate) async fn call(edge: &Edge, request: Request<CallSource>) -> Response<CallReply> {
    let path = request.uri().path().to_owned();
    let path = path.trim_start_matches('/');
    let (service, method) = path.split_once('/').unwrap_or((path, ""));
    let calls = &edge.handle.shared.metrics.calls;
    let known = calls.method(path);
    let mut end = known.map(|known| End::begin(known, calls));
    let received = known.map(|known| Counted {
        messages: known.received.clone(),
        bytes: calls.received_bytes.clone(),
    });
    let sent = known.map(|known| Counted {
        messages: known.sent.clone(),
        bytes: calls.sent_bytes.clone(),
    });
    let request = request.map(|source| CallBody {
        source,
        frames: Frames::up_to(edge.services.message_bytes_max),
        counted: received,
    });
    let reply = edge.services.call(service, method, request).await;
    // A call that failed says so in the head; all others end well in the trailers.
    if let Some(code) = code_of(reply.headers()) {
        finish(&mut end, code);
    }
    reply.map(|body| CallReply {
        body,
        frames: Frames::up_to(usize::MAX),
        counted: sent,
        end,
    })
}

/// Reads how a call ended, if this is where it says so.
fn code_of(headers: &HeaderMap) -> Option<Code> {
    let code = headers.get(Status::GRPC_STATUS)?;
    Some(Code::from_bytes(code.as_bytes()))
}

fn finish(end: &mut Option<End>, code: Code) {
    if let Some(mut end) = end.take() {
        end.finish(code);
    }
}

/// Counts the end of a call once. A client that goes away before it has cancelled.
struct End {
    method: Option<Arc<Method>>,
    /// When it began, if that is measured.
    began: Option<Instant>,
}

impl End {
    fn begin(method: &Arc<Method>, calls: &Calls) -> Self {
        method.started.inc();
        Self {
            method: Some(Arc::clone(method)),
            began: calls.extensive.then(Instant::now),
        }
    }

    fn finish(&mut self, code: Code) {
        let Some(method) = self.method.take() else {
            return;
        };
        method.handled(code).inc();
        if let (Some(seconds), Some(began)) = (&method.seconds, self.began) {
            seconds.observe(began.elapsed().as_secs_f64());
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.finish(Code::Cancelled);
    }
}

/// Counters of one direction.
struct Counted {
    messages: Counter,
    bytes: Counter,
}

/// What a piece of a byte stream holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Passed {
    /// Messages that begin in it.
    messages: u64,
    /// Its bytes without prefixes.
    bytes: u64,
}

impl Passed {
    fn count(self, counted: Option<&Counted>) {
        if let Some(counted) = counted {
            counted.messages.inc_by(self.messages);
            counted.bytes.inc_by(self.bytes);
        }
    }
}

/// Finds messages in a byte stream, wherever it is cut.
#[derive(Debug)]
struct Frames {
    /// Bytes a message may have.
    limit: usize,
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix seen.
    seen: usize,
    /// Bytes of the message not seen.
    left: usize,
}

impl Frames {
    fn up_to(limit: usize) -> Self {
        Self {
            limit,
            prefix: [0; PREFIX_BYTES],
            seen: 0,
            left: 0,
        }
    }

    /// Follows the messages through a piece.
    fn pass(&mut self, mut data: &[u8]) -> Result<Passed, Status> {
        let mut passed = Passed::default();
        while !data.is_empty() {
            if self.left > 0 {
                let part = self.left.min(data.len());
                self.left -= part;
                passed.bytes += part as u64;
                data = &data[part..];
                continue;
            }
            let part = (PREFIX_BYTES - self.seen).min(data.len());
            self.prefix[self.seen..self.seen + part].copy_from_slice(&data[..part]);
            self.seen += part;
            data = &data[part..];
            if self.seen == PREFIX_BYTES {
                let [_, a, b, c, d] = self.prefix;
                self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                self.seen = 0;
                passed.messages += 1;
                if self.left > self.limit {
                    return Err(too_large(self.left, self.limit));
                }
            }
        }
        Ok(passed)
    }
}

/// Refuses a message in the words of grpc-go.
pub(crate) fn too_large(length: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "grpc: received message larger than max ({length} vs. {limit})"
    ))
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = match &mut this.source {
            CallSource::Wire(body) => {
                // As tonic says it of a connection that broke.
                let frame = ready!(Pin::new(body).poll_frame(cx));
                frame.map(|frame| frame.map_err(|error| Status::from_error(Box::new(error))))
            }
            CallSource::Once(message) => message.take().map(|data| Ok(Frame::data(data))),
            CallSource::Queue(queue) => {
                ready!(queue.poll_recv(cx)).map(|data| Ok(Frame::data(data)))
            }
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            match this.frames.pass(data) {
                Ok(passed) => passed.count(this.counted.as_ref()),
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            CallSource::Wire(body) => body.is_end_stream(),
            CallSource::Once(message) => message.is_none(),
            CallSource::Queue(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            CallSource::Wire(body) => body.size_hint(),
            CallSource::Once(message) => {
                SizeHint::with_exact(message.as_ref().map_or(0, |message| message.len() as u64))
            }
            CallSource::Queue(_) => SizeHint::default(),
        }
    }
}

impl Body for CallReply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    // The own side knows no limit.
                    let passed = this.frames.pass(data).unwrap_or_default();
                    passed.count(this.counted.as_ref());
                }
                if let Some(trailers) = frame.trailers_ref() {
                    let code = code_of(trailers).unwrap_or(Code::Ok);
                    finish(&mut this.end, code);
                }
            }
            Some(Err(status)) => finish(&mut this.end, status.code()),
            None => finish(&mut this.end, Code::Ok),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let stream: Vec<u8> = [3_u8, 0, 70]
            .iter()
            .flat_map(|size| {
                let mut message = vec![0, 0, 0, 0, *size];
                message.extend(std::iter::repeat_n(7, usize::from(*size)));
                message
            })
            .collect();
        for cut in 1..stream.len() {
            let mut frames = Frames::up_to(70);
            let mut sum = (0, 0);
            for part in stream.chunks(cut) {
                let passed = frames.pass(part).unwrap();
                sum = (sum.0 + passed.messages, sum.1 + passed.bytes);
            }
            assert_eq!(sum, (3, 73), "in parts of {cut}");
            let mut frames = Frames::up_to(69);
            let refused = stream.chunks(cut).find_map(|part| frames.pass(part).err());
            assert_eq!(refused.unwrap().code(), Code::ResourceExhausted);
        }
    }
}
