//! The way in for clients that come with bytes: the services and what counts their
//! calls, without a connection.

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::Request;
use http_body_util::BodyExt as _;
use tonic::{Code, Status};

use crate::{
    edge::{
        Edge,
        call::{CallSource, PREFIX_BYTES, call},
    },
    handle::Handle,
};

/// Carries out calls; clones share the member.
#[derive(Clone)]
pub struct Wire(Arc<Edge>);

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Wire {
    pub(super) fn new(handle: Handle) -> Self {
        Self(Edge::new(handle))
    }

    /// Carries out a call that has one message and one reply; `path` is that of the
    /// method, with a slash before it.
    pub async fn call(&self, path: &'static str, message: &[u8]) -> Result<Bytes, Status> {
        let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.len());
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        frame.put_slice(message);
        let mut request = Request::new(CallSource::Once(Some(frame.freeze())));
        *request.uri_mut() = http::Uri::from_static(path);
        let reply = call(&self.0, request).await;
        if let Some(status) = Status::from_header_map(reply.headers()) {
            return Err(status);
        }
        let reply = reply.into_body().collect().await?;
        if let Some(trailers) = reply.trailers()
            && let Some(status) = Status::from_header_map(trailers)
            && status.code() != Code::Ok
        {
            return Err(status);
        }
        let mut message = reply.to_bytes();
        message.advance(PREFIX_BYTES.min(message.len()));
        Ok(message)
    }
}
