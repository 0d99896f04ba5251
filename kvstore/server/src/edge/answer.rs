//! Answers over HTTP, made as Go's `net/http` makes them, down to the line end.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::{Full, combinators::UnsyncBoxBody};
use tower::BoxError;

use super::call::CallReply;

/// What answers a request.
pub(crate) type Answer = Response<Body>;

pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The body of an answer; gRPC, which is most of the traffic, without a box.
pub(crate) enum Body {
    Call(CallReply),
    Whole(Full<Bytes>),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Call(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Call(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_end_stream(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Call(body) => body.size_hint(),
            Self::Whole(body) => body.size_hint(),
            Self::Stream(body) => body.size_hint(),
        }
    }
}

/// Answers with a body of some kind.
pub(crate) fn whole(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Body::Whole(Full::new(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// Answers with nothing, and that all is well.
pub(crate) fn empty() -> Answer {
    Response::new(Body::Whole(Full::default()))
}

/// Refuses with a line of text (Go: http.Error).
pub(crate) fn refusal(status: StatusCode, text: &str) -> Answer {
    let mut answer = whole(status, TEXT, format!("{text}\n"));
    answer.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// Says that there is nothing here (Go: http.NotFound).
pub(crate) fn not_found() -> Answer {
    refusal(StatusCode::NOT_FOUND, "404 page not found")
}

/// Says that only GET is answered (etcd: allowMethod; HEAD is refused too).
pub(crate) fn only_get() -> Answer {
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET"));
    answer
}
