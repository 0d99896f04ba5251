//! Request bodies that nobody wants to the end.
//!
//! A refusal (401, 413) is answered before the request's body has arrived. On
//! HTTP/2, letting go of the rest resets the stream (RFC 9113 8.1), and clients
//! that are still sending take the reset for the answer: curl and Go report a
//! stream error instead of our status. So what was left unread is read and
//! thrown away, within limits, while the answer is on its way. HTTP/1.1 needs
//! none of this: there the connection closes after the answer.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::body::BoxError;

/// How many bytes of an unwanted body are thrown away; beyond it the stream is
/// reset. Far above any body that kubectl sends by mistake.
pub(super) const DRAIN_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How long an unwanted body is listened to; then the stream is reset.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// An HTTP/2 request's body whose unread rest is thrown away when it is
/// dropped.
pub(super) struct Drained(Option<Incoming>);

impl Drained {
    /// Wraps a body.
    pub(super) fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for Drained {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = self.0.as_mut() else {
            return Poll::Ready(None);
        };
        Pin::new(body)
            .poll_frame(cx)
            .map_err(|e| Box::new(e) as BoxError)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        let unread = self.0.take().filter(|body| !body.is_end_stream());
        // Without a runtime the connection is going down with it.
        if let (Some(body), Ok(runtime)) = (unread, tokio::runtime::Handle::try_current()) {
            // Ends by itself, and with its connection: at most as many of these
            // run as the connection has streams.
            runtime.spawn(tokio::time::timeout(DRAIN_TIMEOUT, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut left = DRAIN_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
