//! Bodies: what comes in bounded, what goes out boxed.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use futures::{Stream, TryStreamExt};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use meta::Status;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of every request and response.
pub type BoxBody = UnsyncBoxBody<Bytes, BoxError>;

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// Boxes a body that is known whole.
pub fn full(bytes: impl Into<Bytes>) -> BoxBody {
    Full::new(bytes.into())
        .map_err(|e: Infallible| match e {})
        .boxed_unsync()
}

/// Boxes a body that comes in parts.
pub fn streaming<S>(parts: S) -> BoxBody
where
    S: Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
{
    StreamBody::new(parts.map_ok(Frame::data)).boxed_unsync()
}

/// Builds a response with a whole body.
pub fn respond(
    code: StatusCode,
    content_type: &'static str,
    bytes: impl Into<Bytes>,
) -> Response<BoxBody> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Builds the response of a failure, in JSON.
pub fn failure(status: &Status) -> Response<BoxBody> {
    let bytes = serde_json::to_vec(status).unwrap_or_default();
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(code, JSON, bytes);
    let retry = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// Reads a body up to a limit; beyond it the call is refused with 413 and what
/// was read is thrown away, so memory stays flat.
pub async fn read_limited(body: BoxBody, limit: usize) -> Result<Bytes, Status> {
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_large(limit));
    }
    let mut body = body;
    let mut buffer = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|e| Status::bad_request(format!("cannot read request body: {e}")))?;
        if let Ok(data) = frame.into_data() {
            if buffer.len() + data.len() > limit {
                return Err(too_large(limit));
            }
            buffer.extend_from_slice(&data);
        }
    }
    Ok(buffer.freeze())
}

fn too_large(limit: usize) -> Status {
    Status::failure(
        meta::Reason::RequestEntityTooLarge,
        format!("Request entity too large: limit is {limit}"),
    )
}
