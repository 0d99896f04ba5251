//! From a listening socket to a connection that is ready for requests: who may come
//! in, through which door, and what is known of them.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};

use crate::{
    auth::PeerCertificate,
    edge::{self, Edge},
    listen::{Bound, Door, Socket},
    tls::{self, Certificates},
};

/// Most connections of a listener at a time. Beyond it a new one waits to be
/// accepted until another ends.
const CONNECTIONS_MAX: usize = 20_000;

/// How long a new connection may take to say anything, again to finish its TLS
/// handshake, and again to say which protocol it speaks. Then it is closed.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long calls under way may take to end when the member stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The first byte of a TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection, as far as it is known before its first request.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) door: Door,
    /// Where it comes from.
    pub(crate) remote: Arc<str>,
    /// The certificate that was shown and believed.
    pub(crate) certificate: Option<PeerCertificate>,
    /// Whether it speaks TLS.
    pub(crate) secure: bool,
    /// Its place among [`CONNECTIONS_MAX`]: whoever outlives HTTP, a websocket, keeps
    /// it.
    pub(crate) place: Arc<OwnedSemaphorePermit>,
}

/// What all connections of a listener share.
#[derive(Clone)]
struct Host {
    door: Door,
    plain: bool,
    certificates: Option<Arc<Certificates>>,
    edge: Arc<Edge>,
}

enum Stream {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

/// Serves one listener until the member stops.
pub(crate) async fn serve(bound: Bound, certificates: Option<Arc<Certificates>>, edge: Arc<Edge>) {
    let host = Host {
        door: bound.door,
        plain: bound.plain,
        certificates,
        edge,
    };
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let stop = host.edge.handle.shared.stop.clone();
    while let Ok(place) = Arc::clone(&connections).acquire_owned().await {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&bound.socket) => accepted,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                // Out of descriptors, most likely; it passes as connections end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (host, watcher) = (host.clone(), graceful.watcher());
        tokio::spawn(async move {
            greet(stream, host, Arc::new(place), watcher).await;
        });
    }
    // Whoever is still busy then is cut off with the runtime.
    let _late = tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
    if let Socket::Unix(_, path) = &bound.socket {
        // A path that stays is replaced by whoever binds it next.
        let _stays = std::fs::remove_file(path);
    }
}

async fn accept(socket: &Socket) -> io::Result<Stream> {
    match socket {
        Socket::Tcp(listener, _) => {
            let (stream, remote) = listener.accept().await?;
            Ok(Stream::Tcp(stream, remote))
        }
        Socket::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
    }
}

/// Waits for the client to say something, and tells TLS from plain text by it.
async fn greet(stream: Stream, host: Host, place: Arc<OwnedSemaphorePermit>, watcher: Watcher) {
    let mut visit = Visit {
        door: host.door,
        remote: "@".into(),
        certificate: None,
        secure: !host.plain,
        place,
    };
    match stream {
        Stream::Tcp(stream, remote) => {
            // Small answers must not wait for an acknowledgement; failing is harmless.
            let _slower = stream.set_nodelay(true);
            let mut first = [0];
            let peeked = tokio::time::timeout(GREETING_TIMEOUT, stream.peek(&mut first)).await;
            if !matches!(peeked, Ok(Ok(1..))) {
                return;
            }
            visit.remote = remote.to_string().into();
            visit.secure |= first[0] == TLS_HANDSHAKE;
            enter(stream, Some(remote), visit, host, watcher).await;
        }
        Stream::Unix(stream) => {
            let ready = tokio::time::timeout(GREETING_TIMEOUT, stream.readable()).await;
            if matches!(ready, Ok(Ok(()))) {
                enter(stream, None, visit, host, watcher).await;
            }
        }
    }
}

/// Takes a connection through its TLS handshake, if it has one, to the edge.
async fn enter<T>(
    stream: T,
    remote: Option<SocketAddr>,
    mut visit: Visit,
    host: Host,
    watcher: Watcher,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let certificates = host.certificates.filter(|_| visit.secure);
    let Some(certificates) = certificates else {
        visit.secure = false;
        edge::converse(stream, visit, host.edge, watcher).await;
        return;
    };
    let ip = remote.map(|addr| addr.ip().to_canonical());
    let greeting = shake_hands(stream, ip, &certificates);
    match tokio::time::timeout(GREETING_TIMEOUT, greeting).await {
        Ok(Ok(stream)) => {
            let name = tls::peer_common_name(stream.get_ref().1);
            visit.certificate = name.map(|name| PeerCertificate {
                common_name: name.into(),
            });
            edge::converse(stream, visit, host.edge, watcher).await;
        }
        Ok(Err(failure)) => failure.log(&visit),
        Err(_late) => tracing::warn!(
            remote_addr = %visit.remote,
            "rejected connection: the TLS handshake took too long"
        ),
    }
}

/// A handshake that failed.
struct Failure {
    server_name: String,
    reason: String,
    /// Whether the client only hung up.
    gone: bool,
}

impl Failure {
    fn log(&self, visit: &Visit) {
        let endpoint = match visit.door {
            Door::Peers => "peer",
            _ => "client",
        };
        let (remote_addr, server_name) = (&*visit.remote, &*self.server_name);
        let error = &*self.reason;
        // Probes that only connect must not fill the log (etcd: embed, setupLogging).
        if self.gone {
            tracing::debug!(
                remote_addr,
                server_name,
                error,
                "rejected connection on {endpoint} endpoint"
            );
        } else {
            tracing::warn!(
                remote_addr,
                server_name,
                error,
                "rejected connection on {endpoint} endpoint"
            );
        }
    }
}

async fn shake_hands<T>(
    stream: T,
    remote: Option<IpAddr>,
    certificates: &Certificates,
) -> Result<TlsStream<T>, Failure>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut server_name = String::new();
    let failed = |server_name: &str, error: &io::Error| Failure {
        server_name: server_name.to_owned(),
        reason: error.to_string(),
        gone: error.kind() == io::ErrorKind::UnexpectedEof,
    };
    let acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
    let start = acceptor
        .await
        .map_err(|error| failed(&server_name, &error))?;
    if let Some(name) = start.client_hello().server_name() {
        name.clone_into(&mut server_name);
    }
    let refuse = |reason| Failure {
        server_name: server_name.clone(),
        reason,
        gone: false,
    };
    let config = certificates.current().map_err(refuse)?;
    let stream = start.into_stream(config).await;
    let stream = stream.map_err(|error| failed(&server_name, &error))?;
    let checked = certificates.check_address(stream.get_ref().1, remote).await;
    checked.map_err(refuse)?;
    Ok(stream)
}
