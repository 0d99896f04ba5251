//! What surrounds the replies of a call: an early end.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body};

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
