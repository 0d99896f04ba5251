//! The whole server without a socket: a request goes in, an answer comes out.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::runtime::Runtime;

use crate::authn::Peer;
use crate::body::{BoxBody, BoxError};
use crate::query::Query;
use crate::request_info::RequestInfo;
use crate::serve::Handler;
use crate::storage::memory::MemoryStore;
use crate::{Config, Running, Server, StartError, StoreSource, UserInfo};

/// How long an answer may take: longer than the server itself waits for a version
/// that may still come.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a stream may say nothing before its client hangs up.
const QUIET: Duration = Duration::from_millis(2);

/// The most of a stream that is listened to.
const HEARD_BYTES_MAX: usize = 1 << 20;

/// The server does not come to an end with a request.
#[derive(Debug, thiserror::Error)]
#[error("a request hangs")]
pub struct Hangs;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// How the request ended.
    pub code: StatusCode,
    /// What the answer is.
    pub content_type: String,
    /// What it says; of a stream, how it begins.
    pub body: Bytes,
}

/// A server over a store in memory, and a door to it.
pub struct Door {
    runtime: Runtime,
    running: Running,
}

impl Door {
    /// Starts the server; its certificates go into a directory.
    pub fn open(cert_dir: &Path) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| StartError::Bind {
                address: ([127, 0, 0, 1], 0).into(),
                flag: "",
                source,
            })?;
        let store = StoreSource::Other(Arc::new(MemoryStore::default()));
        let running = runtime.block_on(Server::start(Config::new(store, cert_dir, 0)))?;
        Ok(Self { runtime, running })
    }

    /// Asks as one who may do everything.
    pub fn ask(&self, request: Request<Bytes>) -> Result<Answer, Hangs> {
        let request = request.map(|body| Full::new(body).map_err(BoxError::from).boxed_unsync());
        let peer = Peer::InProcess(UserInfo::component("fuzz"));
        let api = self.running.api.clone();
        self.runtime.block_on(async {
            let answer = async {
                let streams = is_stream(&request);
                let (parts, body) = api.handle(peer, request).await.into_parts();
                let content_type = parts.headers.get(http::header::CONTENT_TYPE);
                let body = match streams && parts.status.is_success() {
                    true => Ok(listen(body).await),
                    false => body.collect().await.map(|b| b.to_bytes()),
                };
                Answer {
                    code: parts.status,
                    content_type: content_type
                        .and_then(|v| v.to_str().ok())
                        .unwrap_or_default()
                        .to_owned(),
                    body: body.unwrap_or_default(),
                }
            };
            tokio::time::timeout(PATIENCE, answer)
                .await
                .map_err(|_late| Hangs)
        })
    }
}

fn is_stream(request: &Request<BoxBody>) -> bool {
    let query = Query::parse(request.uri().query().unwrap_or_default()).unwrap_or_default();
    RequestInfo::parse(request.method(), request.uri().path(), &query).is_long_running(&query)
}

/// Takes what a stream says until it is quiet, and hangs up.
async fn listen(mut body: BoxBody) -> Bytes {
    let mut heard = BytesMut::new();
    while heard.len() < HEARD_BYTES_MAX
        && let Ok(Some(Ok(frame))) = tokio::time::timeout(QUIET, body.frame()).await
    {
        heard.extend(frame.into_data());
    }
    heard.freeze()
}

impl Drop for Door {
    fn drop(&mut self) {
        self.running.begin_shutdown();
    }
}
