//! The REST verbs over one transport.
//!
//! Three doors to the same code: `client.get::<Pod>(..)` for types known at compile
//! time, [`Client::resource`] for any shape of a resource known at run time (JSON
//! values, metadata only), and [`Client::request_raw`] for everything else.

pub mod discovery;
pub mod params;
mod typed;
mod verbs;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use meta::{Reason, Status};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::verbs::{ObjectList, Resource};
use crate::config::ClientConfig;
use crate::error::{Error, Result};
use crate::resource::{PartialObject, ResourceRef};
use crate::transport::{RequestBody, ResponseBody, Transport};

/// Bounds a request that is not a watch or a log; beyond it the caller gets
/// [`Error::Transport`]. Slightly over the server's own limit of 60 s, so that the
/// server's answer wins.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);
/// Bounds the body of an answer that is not a stream; a longer one is an error.
const RESPONSE_BYTES_MAX: usize = 512 << 20;
/// Bounds how much of an error's body is read to explain it.
const ERROR_BODY_BYTES_MAX: usize = 1 << 20;

/// Talks to one API server. A clone shares its connections.
#[derive(Clone, Debug)]
pub struct Client {
    transport: Transport,
    field_manager: Arc<str>,
}

impl Client {
    /// Builds a client over a transport.
    pub fn new(transport: Transport) -> Self {
        Self {
            transport,
            field_manager: "keelson".into(),
        }
    }

    /// Builds a client from a configuration.
    pub fn from_config(config: &ClientConfig) -> Result<Self> {
        Ok(Self::new(Transport::https(config)?))
    }

    /// Changes the name under which changes are recorded (and the User-Agent).
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.field_manager = name.into();
        self.transport = self
            .transport
            .with_user_agent(&format!("{name}/{}", env!("CARGO_PKG_VERSION")));
        self
    }

    /// Opens the verbs of a resource for objects read as `T`.
    ///
    /// See [`Client::dynamic`] for objects of any kind, [`Client::metadata`] for
    /// metadata only.
    pub fn resource<T>(&self, resource: ResourceRef) -> Resource<T> {
        Resource::new(self.clone(), resource)
    }

    /// Opens the verbs of a resource for whole objects of any kind.
    pub fn dynamic(&self, resource: ResourceRef) -> Resource<Value> {
        self.resource(resource)
    }

    /// Opens the verbs of a resource for the metadata of its objects.
    pub fn metadata(&self, resource: ResourceRef) -> Resource<PartialObject> {
        Resource::shaped(self.clone(), resource)
    }

    /// Sends any request and returns the answer as it comes, error codes included.
    ///
    /// The URI needs only path and query.
    pub async fn request_raw(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>> {
        self.transport.send(request).await
    }

    /// Returns the body of a GET, for endpoints that are not resources (`/readyz`,
    /// `/version`).
    pub async fn get_raw(&self, path: &str) -> Result<Bytes> {
        let response = self.send(Call::new(Method::GET, path)).await?;
        read_body(response).await
    }

    pub(crate) fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Sends a call and turns every code outside 2xx into [`Error::Api`].
    ///
    /// Boxed: it keeps the futures of all verbs small, and the compiler able to tell
    /// that they may move between threads.
    pub(crate) fn send(&self, call: Call) -> BoxFuture<'static, Result<Response<ResponseBody>>> {
        let transport = self.transport.clone();
        Box::pin(async move {
            let request = call.into_request()?;
            let response = timed(transport.send(request)).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            Err(timed(async { Ok(error_of(response).await) }).await?)
        })
    }

    /// Sends a call and decodes the whole answer.
    pub(crate) async fn send_json<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let response = self.send(call).await?;
        let body = read_body(response).await?;
        serde_json::from_slice(&body).map_err(Error::Decode)
    }
}

/// Is one request before it has headers.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path_and_query: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn new(method: Method, path_and_query: impl Into<String>) -> Self {
        Self {
            method,
            path_and_query: path_and_query.into(),
            accept: "application/json, */*",
            content_type: "application/json",
            body: Bytes::new(),
        }
    }

    pub(crate) fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(crate) fn body(mut self, body: Vec<u8>) -> Self {
        self.body = body.into();
        self
    }

    fn into_request(self) -> Result<Request<RequestBody>> {
        let mut builder = Request::builder()
            .method(self.method)
            .uri(&self.path_and_query)
            .header(ACCEPT, self.accept);
        if !self.body.is_empty() {
            builder = builder.header(CONTENT_TYPE, self.content_type);
        }
        builder
            .body(Full::new(self.body))
            .map_err(|e| Error::Request(format!("{}: {e}", self.path_and_query)))
    }
}

async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(REQUEST_TIMEOUT, work).await {
        Ok(result) => result,
        Err(elapsed) => Err(Error::Transport(Box::new(elapsed))),
    }
}

async fn read_body(response: Response<ResponseBody>) -> Result<Bytes> {
    timed(collect(response.into_body(), RESPONSE_BYTES_MAX)).await
}

/// Reads a whole body; one longer than `bytes_max` is an error.
async fn collect(mut body: ResponseBody, bytes_max: usize) -> Result<Bytes> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Error::Transport)?.into_data() else {
            continue;
        };
        if first.len() + whole.len() + data.len() > bytes_max {
            return Err(Error::Transport(
                format!("answer over {bytes_max} bytes").into(),
            ));
        }
        // Most answers are one frame, which then is not copied.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() {
        first
    } else {
        whole.freeze()
    })
}

/// Explains a refused request: by its `Status`, or by its code and text when
/// something other than an API server answered.
async fn error_of(response: Response<ResponseBody>) -> Error {
    let code = response.status();
    let body = match collect(response.into_body(), ERROR_BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    Error::Api(Box::new(status_of(code, &body)))
}

fn status_of(code: StatusCode, body: &[u8]) -> Status {
    match serde_json::from_slice::<Status>(body) {
        Ok(mut status) if status.kind == "Status" && !status.status.is_empty() => {
            if status.code == 0 {
                status.code = code.as_u16();
            }
            status
        }
        _ => {
            let reason = match code {
                StatusCode::NOT_FOUND => Reason::NotFound,
                StatusCode::UNAUTHORIZED => Reason::Unauthorized,
                StatusCode::FORBIDDEN => Reason::Forbidden,
                StatusCode::TOO_MANY_REQUESTS => Reason::TooManyRequests,
                StatusCode::SERVICE_UNAVAILABLE => Reason::ServiceUnavailable,
                StatusCode::GATEWAY_TIMEOUT => Reason::Timeout,
                _ => Reason::Unknown,
            };
            let text = String::from_utf8_lossy(body);
            let text = text.trim();
            let message = if text.is_empty() {
                code.to_string()
            } else {
                format!("{code}: {text}")
            };
            Status::failure(reason, message).with_code(code.as_u16())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_or_made_up() {
        let body = br#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","message":"m","code":409}"#;
        let status = status_of(StatusCode::CONFLICT, body);
        assert_eq!((status.reason, status.code), (Reason::AlreadyExists, 409));

        let status = status_of(StatusCode::BAD_GATEWAY, b"proxy says no\n");
        assert_eq!(status.code, 502);
        assert!(
            status.message.ends_with("proxy says no"),
            "{}",
            status.message
        );
    }
}
