//! The way requests leave: one boxed service, over TLS or in this process.
//!
//! Everything above (verbs, watches, logs) sees only `http::Request` in and
//! `http::Response` out, so a whole control plane can run over the apiserver's own
//! service without a socket, and tests can answer requests with a closure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::ServerName;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use crate::config::ClientConfig;
use crate::error::{BoxError, Error, Result};
use crate::tls;

/// Is the body of every request: requests are small and known whole.
pub type RequestBody = Full<Bytes>;
/// Is the body of every response: it may be an endless watch.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// Bounds how long a TCP connect may take; beyond it the request fails and the
/// caller's backoff decides.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Is how often an HTTP/2 connection in use is pinged (client-go: 30 s).
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
/// Bounds the wait for a ping's answer; beyond it the connection is closed and all
/// its watches end (client-go: 15 s).
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Bounds what the server may send ahead on one stream; then it waits for us. Fixed,
/// because an adaptive window costs a ping with every answer.
const HTTP2_STREAM_WINDOW: u32 = 2 << 20;
/// Bounds what the server may send ahead on all streams together. Watches read at
/// once what comes, so none can take all of it for long.
const HTTP2_CONNECTION_WINDOW: u32 = 16 << 20;
/// Bounds how long an unused connection is kept.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

type Inner = BoxCloneSyncService<Request<RequestBody>, Response<ResponseBody>, BoxError>;

/// Sends requests to one API server.
///
/// A clone shares connections with its origin.
#[derive(Clone)]
pub struct Transport {
    inner: Inner,
    scheme: Scheme,
    authority: Authority,
    path_prefix: Arc<str>,
    user_agent: HeaderValue,
    authorization: Option<HeaderValue>,
}

impl Transport {
    /// Opens a pooled HTTPS (or plain HTTP) transport to `config.server`.
    ///
    /// Connects lazily. HTTP/2 is used when the server offers it by ALPN, so all
    /// requests and watches share one connection.
    pub fn https(config: &ClientConfig) -> Result<Self> {
        let server: Uri = config
            .server
            .parse()
            .map_err(|e| Error::Config(format!("server URL {:?}: {e}", config.server)))?;
        let (Some(scheme), Some(authority)) = (server.scheme(), server.authority()) else {
            return Err(Error::Config(format!(
                "server URL {:?} needs https://",
                config.server
            )));
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));

        let tls = tls::client_config(config, scheme == &Scheme::HTTPS)?;
        let mut https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http();
        if let Some(name) = &config.tls_server_name {
            let name = ServerName::try_from(name.clone())
                .map_err(|e| Error::Config(format!("tls-server-name {name:?}: {e}")))?;
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let connector = https.enable_http1().enable_http2().wrap_connector(tcp);

        let client: HyperClient<_, RequestBody> = HyperClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .http2_initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .http2_initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
            .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT)
            .build(connector);

        let mut transport = Self::service(client);
        transport.scheme = scheme.clone();
        transport.authority = authority.clone();
        transport.path_prefix = server.path().trim_end_matches('/').into();
        transport = transport.with_user_agent(&config.user_agent);
        if let Some(token) = &config.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|e| Error::Config(format!("bearer token: {e}")))?;
            value.set_sensitive(true);
            transport.authorization = Some(value);
        }
        Ok(transport)
    }

    /// Wraps a service of this process, for instance the apiserver's own.
    ///
    /// Requests reach it with an absolute URI of the made-up host `keelson`.
    pub fn service<S, B>(service: S) -> Self
    where
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let inner = service
            .map_response(|r: Response<B>| r.map(|b| b.map_err(Into::into).boxed_unsync()))
            .map_err(Into::into);
        Self {
            inner: BoxCloneSyncService::new(inner),
            scheme: Scheme::HTTP,
            authority: Authority::from_static("keelson"),
            path_prefix: "".into(),
            user_agent: HeaderValue::from_static(crate::USER_AGENT),
            authorization: None,
        }
    }

    /// Changes what the requests call themselves; text no header may carry is ignored.
    #[must_use]
    pub fn with_user_agent(mut self, name: &str) -> Self {
        if let Ok(value) = HeaderValue::try_from(name) {
            self.user_agent = value;
        }
        self
    }

    /// Sends a request whose URI needs only path and query.
    pub async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ResponseBody>, Error> {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", PathAndQuery::as_str);
        let path = format!("{}{path}", self.path_prefix);
        *request.uri_mut() = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .map_err(|e| Error::Request(e.to_string()))?;
        let headers = request.headers_mut();
        headers
            .entry(USER_AGENT)
            .or_insert_with(|| self.user_agent.clone());
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        self.inner
            .clone()
            .oneshot(request)
            .await
            .map_err(Error::Transport)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Transport({}://{}{})",
            self.scheme, self.authority, self.path_prefix
        )
    }
}
