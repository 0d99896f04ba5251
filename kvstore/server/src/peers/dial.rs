//! From a peer's URL to an HTTP/2 connection one can call on.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use proto::peer::{MembersReply, MembersRequest, peer_client::PeerClient};
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
    time::Instant,
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::body::Body;

use super::caller;
use crate::{
    io::Gathered,
    listen::{Place, Url},
    tls::ClientTls,
};

/// How the other end of a connection is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// The caller does it.
    Not,
    /// By pings of HTTP/2: silence this long ends the connection.
    Pings(Duration),
}

/// Bytes that HTTP/2 buffers of one call before it asks for no more.
const SEND_BUFFER_BYTES: usize = 256 << 10;

/// Largest message a peer answers with.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Why a peer could not be reached.
#[derive(Debug, Error)]
pub(crate) enum DialError {
    /// The URL makes no sense.
    #[error("{0}")]
    Url(String),
    /// The connection did not come about.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other end does not speak HTTP/2 as it should.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("no connection within {0:?}")]
    Late(Duration),
}

/// Dials peers.
#[derive(Clone, Debug)]
pub(crate) struct Dialler {
    pub(crate) tls: Arc<ClientTls>,
    /// How long one attempt may take, from looking the host up to HTTP/2.
    pub(crate) timeout: Duration,
}

impl Dialler {
    /// Connects to a URL.
    pub(super) async fn dial(
        &self,
        url: &str,
        watch: Watch,
    ) -> Result<PeerClient<Conn>, DialError> {
        let dialling = self.connect(url, watch);
        match tokio::time::timeout_at(Instant::now() + self.timeout, dialling).await {
            Ok(dialled) => dialled,
            Err(_late) => Err(DialError::Late(self.timeout)),
        }
    }

    /// Asks whoever is served at a URL who the members of its cluster are, as a
    /// stranger; an error says why there is no answer.
    pub(crate) async fn members(&self, url: &str) -> Result<MembersReply, String> {
        let dialled = self.dial(url, Watch::Not).await;
        let mut client = dialled.map_err(|error| error.to_string())?;
        let mut request = tonic::Request::new(MembersRequest {});
        caller::introduce(request.metadata_mut());
        let answered = client.members(request).await;
        let reply = answered.map_err(|status| status.message().to_owned())?;
        Ok(reply.into_inner())
    }

    async fn connect(&self, text: &str, watch: Watch) -> Result<PeerClient<Conn>, DialError> {
        let url = Url::parse(text).map_err(DialError::Url)?;
        let host = url.host();
        match &url.place {
            Place::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                // What is sent is small or already gathered; failing is harmless.
                let _slower = stream.set_nodelay(true);
                self.secure(stream, url.tls, host, watch).await
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                self.secure(stream, url.tls, &host, watch).await
            }
        }
    }

    async fn secure<T>(
        &self,
        stream: T,
        tls: bool,
        host: &str,
        watch: Watch,
    ) -> Result<PeerClient<Conn>, DialError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if !tls {
            return converse(stream, "http", host, watch).await;
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_invalid| DialError::Url(format!("{host:?} cannot be in a certificate")))?;
        let connector = TlsConnector::from(self.tls.current());
        let stream = connector.connect(name, stream).await?;
        converse(stream, "https", host, watch).await
    }
}

async fn converse<T>(
    stream: T,
    scheme: &str,
    host: &str,
    watch: Watch,
) -> Result<PeerClient<Conn>, DialError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_send_buf_size(SEND_BUFFER_BYTES);
    if let Watch::Pings(silence) = watch {
        builder
            .keep_alive_interval(silence / 4)
            .keep_alive_timeout(silence * 3 / 4)
            .keep_alive_while_idle(true);
    }
    let cut = CancellationToken::new();
    let io = Severed {
        cut: Box::pin(cut.clone().cancelled_owned()),
        io: Gathered {
            head: Bytes::new(),
            io: stream,
        },
    };
    let (send, connection) = builder.handshake(TokioIo::new(io)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a peer ended");
        }
    });
    let conn = Conn {
        send,
        _cut: Arc::new(cut.drop_guard()),
    };
    // Nobody reads the authority; it must only be well-formed.
    let authority = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    let origin = format!("{scheme}://{authority}")
        .parse()
        .unwrap_or_else(|_odd| Uri::from_static("http://peer"));
    Ok(PeerClient::with_origin(conn, origin).max_decoding_message_size(REPLY_BYTES_MAX))
}

/// A connection to a peer. It is cut, whatever is under way on it, when the last
/// clone is dropped: a peer that is frozen must not keep what was meant for it.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    send: SendRequest<Body>,
    _cut: Arc<DropGuard>,
}

impl tower::Service<http::Request<Body>> for Conn {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.send.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.send.send_request(request))
    }
}

/// A stream that fails once it is cut. HTTP/2 would otherwise wait for the calls
/// under way to end, which with a frozen peer is for ever.
struct Severed<T> {
    io: T,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<T> fmt::Debug for Severed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Severed").finish_non_exhaustive()
    }
}

impl<T> Severed<T> {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Severed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Severed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
