//! Connections to an API server, each opened and held by hand: which watcher is on
//! which, and how much it may be sent ahead, is what is measured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use client::ClientConfig;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::order::Door;

/// How long a connection may take to open, and a request to be answered.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much a server may send ahead on a stream and on a connection.
const WINDOWS: (u32, u32) = (1 << 20, 16 << 20);
/// The same for one who does not read: what the protocol begins with.
const SMALL_WINDOWS: (u32, u32) = (65_535, 65_535);

pub(super) const JSON: &str = "application/json";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(super) const PROTOBUF_WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// A server and how it is entered.
pub(super) struct Site {
    host: String,
    port: u16,
    base: String,
    name: ServerName<'static>,
    tls: [TlsConnector; 2],
    authorization: Option<HeaderValue>,
}

/// How a connection is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    pub(super) http1: bool,
    /// Whether the server may send but little ahead.
    pub(super) small: bool,
}

impl Site {
    pub(super) fn of(door: &Door) -> anyhow::Result<Self> {
        let Door::Api { kubeconfig, url } = door else {
            bail!("a store does not speak HTTPS");
        };
        let mut config = ClientConfig::from_file(kubeconfig)?;
        if let Some(url) = url {
            config.server.clone_from(url);
        }
        let uri: Uri = config.server.parse().context("the server's URL")?;
        ensure!(uri.scheme_str() == Some("https"), "{uri} is not https://");
        let host = uri.host().context("a URL without a host")?.to_owned();
        let bare = host.trim_matches(['[', ']']).to_owned();
        let name = config.tls_server_name.clone().unwrap_or(bare.clone());
        let tls = |protocol: &[u8]| -> anyhow::Result<TlsConnector> {
            let mut tls = config.tls()?;
            tls.alpn_protocols = vec![protocol.to_owned()];
            Ok(TlsConnector::from(Arc::new(tls)))
        };
        let authorization = config.token.as_ref().map(|token| {
            HeaderValue::try_from(format!("Bearer {token}")).context("the bearer token")
        });
        Ok(Self {
            port: uri.port_u16().unwrap_or(443),
            base: config.server.trim_end_matches('/').to_owned(),
            name: ServerName::try_from(name)?,
            tls: [tls(b"h2")?, tls(b"http/1.1")?],
            host: bare,
            authorization: authorization.transpose()?,
        })
    }

    /// Opens a connection.
    pub(super) async fn connect(self: &Arc<Self>, manner: Manner) -> anyhow::Result<Connection> {
        let opened = tokio::time::timeout(PATIENCE, self.open(manner)).await;
        opened.context("a connection does not open")?
    }

    async fn open(self: &Arc<Self>, manner: Manner) -> anyhow::Result<Connection> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        tcp.set_nodelay(true)?;
        let tls = &self.tls[usize::from(manner.http1)];
        let stream = tls.connect(self.name.clone(), tcp).await?;
        let io = TokioIo::new(stream);
        let sender = if manner.http1 {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection);
            Sender::Http1(sender)
        } else {
            let (stream, all) = if manner.small { SMALL_WINDOWS } else { WINDOWS };
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .initial_stream_window_size(stream)
                .initial_connection_window_size(all)
                .handshake(io)
                .await?;
            tokio::spawn(connection);
            Sender::Http2(sender)
        };
        Ok(Connection {
            site: Arc::clone(self),
            sender,
        })
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// An open connection.
pub(super) struct Connection {
    site: Arc<Site>,
    sender: Sender,
}

/// What is asked of a server.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) accept: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

impl<'a> Ask<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self {
            method: Method::GET,
            path,
            accept: JSON,
            content_type: JSON,
            body: Bytes::new(),
        }
    }

    pub(super) fn with(method: Method, path: &'a str, content_type: &'static str) -> Self {
        Self {
            method,
            content_type,
            ..Self::get(path)
        }
    }

    pub(super) fn body(self, body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
    }
}

impl Connection {
    /// Returns another handle of an HTTP/2 connection.
    pub(super) fn share(&self) -> anyhow::Result<Self> {
        let Sender::Http2(sender) = &self.sender else {
            bail!("HTTP/1.1 has one request at a time");
        };
        Ok(Self {
            site: Arc::clone(&self.site),
            sender: Sender::Http2(sender.clone()),
        })
    }

    /// Asks, and returns the answer as it begins.
    pub(super) async fn begin(&mut self, ask: Ask<'_>) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder().method(ask.method);
        request = match &self.sender {
            // HTTP/1.1 names the host in a header, HTTP/2 in the URI.
            Sender::Http1(_) => request
                .uri(ask.path)
                .header(HOST, format!("{}:{}", self.site.host, self.site.port)),
            Sender::Http2(_) => request.uri(format!("{}{}", self.site.base, ask.path)),
        };
        if let Some(value) = &self.site.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request
            .header(ACCEPT, ask.accept)
            .header(CONTENT_TYPE, ask.content_type)
            .body(Full::new(ask.body))?;
        let answer = async {
            match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        Ok(answer.context("no answer")??)
    }

    /// Asks, and returns the whole answer, whatever it is.
    pub(super) async fn ask(&mut self, ask: Ask<'_>) -> anyhow::Result<(StatusCode, Bytes)> {
        let answer = self.begin(ask).await?;
        let status = answer.status();
        let body = tokio::time::timeout(PATIENCE, answer.into_body().collect()).await;
        Ok((status, body.context("an answer without end")??.to_bytes()))
    }

    /// Asks, and returns the whole answer, which must be a success.
    pub(super) async fn must(&mut self, ask: Ask<'_>) -> anyhow::Result<Bytes> {
        let what = format!("{} {}", ask.method, ask.path);
        let (status, body) = self.ask(ask).await?;
        let said = || String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
        ensure!(status.is_success(), "{what}: {status} {}", said());
        Ok(body)
    }
}
