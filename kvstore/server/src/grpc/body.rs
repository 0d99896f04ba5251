//! What surrounds the messages of a call: limits on the way in, an early end on
//! the way out.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body};

/// Bytes in front of each message: a flag and a length.
const PREFIX_BYTES: usize = 5;

/// A request's body in which no message may be longer than a limit.
///
/// The length a message announces is looked at as soon as it is there: a liar
/// gets its error at once, in the words of grpc-go (rpc_util.go, `recvMsg`), and
/// nothing is kept for it.
pub(crate) struct Limited {
    body: Incoming,
    limit: usize,
    /// What is left to come of the message under way.
    rest: usize,
    prefix: [u8; PREFIX_BYTES],
    /// How much of the next message's prefix is there.
    prefix_len: usize,
}

impl Limited {
    pub(crate) fn new(body: Incoming, limit: usize) -> Self {
        Self {
            body,
            limit,
            rest: 0,
            prefix: [0; PREFIX_BYTES],
            prefix_len: 0,
        }
    }

    /// Follows the messages through a piece of the body.
    fn check(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while !data.is_empty() {
            let passed = self.rest.min(data.len());
            self.rest -= passed;
            data.advance(passed);
            let part = (PREFIX_BYTES - self.prefix_len).min(data.len());
            self.prefix[self.prefix_len..][..part].copy_from_slice(&data[..part]);
            self.prefix_len += part;
            data.advance(part);
            if self.prefix_len == PREFIX_BYTES {
                self.prefix_len = 0;
                let mut length = &self.prefix[1..];
                let length = length.get_u32() as usize;
                if length > self.limit {
                    let limit = self.limit;
                    return Err(Status::resource_exhausted(format!(
                        "grpc: received message larger than max ({length} vs. {limit})"
                    )));
                }
                self.rest = length;
            }
        }
        Ok(())
    }
}

impl HttpBody for Limited {
    type Data = Bytes;
    type Error = tonic::codegen::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match frame {
            None => None,
            Some(Err(error)) => Some(Err(error.into())),
            Some(Ok(frame)) => match frame.data_ref().map_or(Ok(()), |data| self.check(data)) {
                Ok(()) => Some(Ok(frame)),
                Err(status) => Some(Err(status.into())),
            },
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A reply that ends with an error when the leader is lost for long.
struct LeaderBound {
    /// None once the end was sent.
    body: Option<Body>,
    lost: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Ends a reply early when the token fires, with etcd's "no leader".
pub(super) fn bind_to_leader(body: Body, lost: CancellationToken) -> Body {
    Body::new(LeaderBound {
        body: Some(body),
        lost: Box::pin(lost.cancelled_owned()),
    })
}

impl HttpBody for LeaderBound {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.lost.as_mut().poll(cx).is_ready() {
            // Dropping what was under way ends its watches.
            if self.body.take().is_none() {
                return Poll::Ready(None);
            }
            let status: Status = crate::RpcError::from(mvcc::Error::NoLeader).into();
            let mut trailers = HeaderMap::new();
            return Poll::Ready(Some(match status.add_header(&mut trailers) {
                Ok(()) => Ok(Frame::trailers(trailers)),
                Err(error) => Err(error),
            }));
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }
}
