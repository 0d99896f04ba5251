//! Messages out of byte streams: JSON texts of a request, gRPC frames of a reply.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream::BoxStream};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tonic::{Code, Status};

use super::{
    Limits,
    decode::{self, Refusal},
    scanner::Scanner,
};
use crate::edge::call::{CallReply, PREFIX_BYTES};

/// Reads the first message of a whole text; none if there is nothing in it. What
/// follows it is passed over (Go: json.Decoder).
pub(super) fn first(
    text: &[u8],
    kind: &MessageDescriptor,
) -> Result<Option<DynamicMessage>, Refusal> {
    let mut scanner = Scanner::default();
    let found = match scanner.scan(text)? {
        Some(found) => Some(found),
        None => scanner.end()?,
    };
    found
        .map(|found| decode::message(&text[found], kind))
        .transpose()
}

/// The messages of a request that stays open, as their JSON comes in.
pub(super) struct Texts {
    parts: BoxStream<'static, Bytes>,
    unread: BytesMut,
    /// A longer message ends the stream.
    limits: Limits,
}

impl Texts {
    /// Reads from the body of a request. A connection that breaks is an end.
    pub(super) fn of_body(body: Incoming, limits: Limits) -> Self {
        let parts = body
            .into_data_stream()
            .take_while(|part| std::future::ready(part.is_ok()))
            .filter_map(|part| std::future::ready(part.ok()));
        Self::of_parts(parts, limits)
    }

    pub(super) fn of_parts(
        parts: impl Stream<Item = Bytes> + Send + 'static,
        limits: Limits,
    ) -> Self {
        Self {
            parts: parts.boxed(),
            unread: BytesMut::new(),
            limits,
        }
    }

    /// Reads the next message; none at the end.
    pub(super) async fn next(
        &mut self,
        kind: &MessageDescriptor,
    ) -> Result<Option<DynamicMessage>, Status> {
        let mut scanner = Scanner::default();
        let unknown = |refusal: Refusal| Status::unknown(refusal.to_string());
        loop {
            let found = scanner
                .scan(&self.unread)
                .map_err(|malformed| unknown(malformed.into()))?;
            if let Some(found) = found {
                let text = self.unread.split_to(found.end);
                let message = decode::message(&text[found], kind).map_err(unknown)?;
                return Ok(Some(message));
            }
            if self.unread.len() > self.limits.json_bytes {
                return Err(self.limits.too_large(self.unread.len()));
            }
            let Some(part) = self.parts.next().await else {
                let found = scanner
                    .end()
                    .map_err(|malformed| unknown(malformed.into()))?;
                let message = found.map(|found| decode::message(&self.unread[found], kind));
                self.unread.clear();
                return message.transpose().map_err(unknown);
            };
            self.unread.extend_from_slice(&part);
        }
    }
}

/// The messages of a reply.
pub(super) struct Replies {
    body: CallReply,
    unread: BytesMut,
    ended: bool,
}

impl Replies {
    pub(super) fn new(body: CallReply) -> Self {
        Self {
            body,
            unread: BytesMut::new(),
            ended: false,
        }
    }

    /// Reads the next message, or why the call failed; none when it ended well.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            if let Some(message) = self.take_message() {
                return Poll::Ready(Some(Ok(message)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => self.ended = true,
                Some(Err(status)) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(status)));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.unread.extend_from_slice(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.ended = true;
                        let status = Status::from_header_map(&trailers);
                        if let Some(status) = status.filter(|status| status.code() != Code::Ok) {
                            return Poll::Ready(Some(Err(status)));
                        }
                    }
                },
            }
        }
    }

    fn take_message(&mut self) -> Option<Bytes> {
        let (_flag, rest) = self.unread.split_first()?;
        let length = u32::from_be_bytes(*rest.first_chunk()?) as usize;
        if self.unread.len() < PREFIX_BYTES + length {
            return None;
        }
        self.unread.advance(PREFIX_BYTES);
        Some(self.unread.split_to(length).freeze())
    }
}
