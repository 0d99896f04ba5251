//! Listeners: from URLs to bound sockets.

mod url;

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    os::unix::fs::FileTypeExt as _,
    path::PathBuf,
    time::Duration,
};

use tokio::net::{TcpListener, TcpSocket, UnixListener};

pub(crate) use self::url::{Place, Url};
use crate::config::{Config, StartError};

/// Connections the system keeps until they are accepted; it refuses more.
const BACKLOG: u32 = 1_024;

/// How long a connection may be silent before the system looks whether the other
/// end is there, and how often it looks again (etcd: transport, keepalive listener;
/// Go looks nine times).
const TCP_IDLE: Duration = Duration::from_secs(30);
const TCP_PROBES: u32 = 9;

/// Who comes in, and what is served to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Clients: gRPC, and plain HTTP too unless that has a door of its own.
    Clients {
        /// Whether plain HTTP is served.
        http: bool,
    },
    /// Clients with plain HTTP only.
    Http,
    /// Whoever looks after the member: metrics and health.
    Metrics,
    /// Other members.
    Peers,
}

impl Door {
    /// Names the flag whose URLs it has.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Clients { .. } => "listen-client-urls",
            Self::Http => "listen-client-http-urls",
            Self::Metrics => "listen-metrics-urls",
            Self::Peers => "listen-peer-urls",
        }
    }
}

/// A bound socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

/// A listener and what is spoken on it.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: Socket,
    pub(crate) door: Door,
    /// Whether plain text is spoken.
    pub(crate) plain: bool,
    /// Whether TLS is spoken; with `plain`, the first byte tells.
    pub(crate) tls: bool,
}

impl Bound {
    /// Returns the address, unless it is a path.
    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(_, addr) => Some(*addr),
            Socket::Unix(..) => None,
        }
    }

    /// Returns the address, or the path, as text.
    pub(crate) fn address(&self) -> String {
        match &self.socket {
            Socket::Tcp(_, addr) => addr.to_string(),
            Socket::Unix(_, path) => path.display().to_string(),
        }
    }

    /// Returns the URLs that lead here.
    pub(crate) fn urls(&self) -> impl Iterator<Item = String> {
        let (plain, tls) = match &self.socket {
            Socket::Tcp(..) => ("http", "https"),
            Socket::Unix(..) => ("unix", "unixs"),
        };
        let schemes = [(self.plain, plain), (self.tls, tls)];
        let address = self.address();
        schemes
            .into_iter()
            .filter(|(spoken, _)| *spoken)
            .map(move |(_, scheme)| format!("{scheme}://{address}"))
    }
}

/// Returns every door with its URLs.
fn doors(config: &Config) -> [(Door, &[String]); 4] {
    let http = config.listen_client_http_urls.is_empty();
    [
        (Door::Clients { http }, &config.listen_client_urls),
        (Door::Http, &config.listen_client_http_urls),
        (Door::Metrics, &config.listen_metrics_urls),
        (Door::Peers, &config.listen_peer_urls),
    ]
}

/// Returns the hosts that a door's certificate should name.
pub(crate) fn hosts(urls: &[String]) -> Vec<String> {
    let hosts = urls.iter().filter_map(|url| Url::parse(url).ok());
    hosts.map(|url| url.host()).collect()
}

/// Checks that all listeners make sense, without binding any.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    for (door, urls) in doors(config) {
        let flag = door.flag();
        let refuse = |reason: String| Err(StartError::Flag { flag, reason });
        for text in urls {
            let url = Url::parse(text).map_err(|reason| StartError::Flag { flag, reason })?;
            if !url.may_bind() {
                return refuse(format!("expected IP in URL for binding ({text})"));
            }
            let peers = door == Door::Peers;
            let (files, auto, flags) = match peers {
                true => (
                    &config.peer_tls,
                    config.auto_tls.peer,
                    "--peer-cert-file, --peer-key-file",
                ),
                false => (
                    &config.client_tls,
                    config.auto_tls.client,
                    "--cert-file, --key-file",
                ),
            };
            if url.tls && files.is_none() && !auto {
                return refuse(format!(
                    "TLS key/cert ({flags}) must be provided for {text}"
                ));
            }
            let fixed = !matches!(url.place, Place::Tcp { port: 0, .. });
            if fixed && door == Door::Http && config.listen_client_urls.contains(text) {
                return refuse(format!(
                    "cannot bind both --listen-client-urls and --listen-client-http-urls on the \
                     same url {text}"
                ));
            }
        }
    }
    Ok(())
}

/// Binds every listener.
pub(crate) fn bind_all(config: &Config) -> Result<Vec<Bound>, StartError> {
    check(config)?;
    let mut all = Vec::new();
    for (door, urls) in doors(config) {
        let mut of_door: Vec<(Place, Bound)> = Vec::new();
        for text in urls {
            let flag = door.flag();
            let url = Url::parse(text).map_err(|reason| StartError::Flag { flag, reason })?;
            warn_of_unused(door, &url, text, config);
            // Plain text and TLS may share a port (etcd: embed, serveCtx).
            let same = of_door.iter_mut().find(|(place, _)| {
                *place == url.place && !matches!(place, Place::Tcp { port: 0, .. })
            });
            if let Some((_, bound)) = same {
                bound.plain |= !url.tls;
                bound.tls |= url.tls;
                continue;
            }
            let socket = bind(&url.place, config).map_err(|source| StartError::Listen {
                flag,
                address: text.clone(),
                source,
            })?;
            let bound = Bound {
                socket,
                door,
                plain: !url.tls,
                tls: url.tls,
            };
            of_door.push((url.place, bound));
        }
        all.extend(of_door.into_iter().map(|(_, bound)| bound));
    }
    Ok(all)
}

/// Warns of certificates that a URL without TLS leaves unused.
fn warn_of_unused(door: Door, url: &Url, text: &str, config: &Config) {
    let files = match door {
        Door::Clients { .. } | Door::Http => &config.client_tls,
        Door::Peers => &config.peer_tls,
        Door::Metrics => return,
    };
    if let Some(files) = files.as_ref().filter(|_| !url.tls) {
        tracing::warn!(
            url = text,
            client_cert_auth = files.trusted_ca_file.is_some(),
            "scheme is http or unix while key and cert files are present; ignoring key and cert \
             files, and client cert auth, for this URL"
        );
    }
}

fn bind(place: &Place, config: &Config) -> io::Result<Socket> {
    match place {
        Place::Tcp { host, port } => bind_tcp(host, *port, config),
        Place::Unix(path) => {
            // A socket that an earlier process left behind (etcd: NewUnixListener).
            if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
                std::fs::remove_file(path)?;
            }
            Ok(Socket::Unix(UnixListener::bind(path)?, path.clone()))
        }
    }
}

fn bind_tcp(host: &str, port: u16, config: &Config) -> io::Result<Socket> {
    let mut found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    // As Go does for a listener.
    found.sort_by_key(SocketAddr::is_ipv6);
    let addr = *found
        .first()
        .ok_or_else(|| io::Error::other(format!("{host:?} has no address")))?;
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(config.socket.reuse_port)?;
    // Connections inherit these from their listener.
    socket.set_keepalive(true)?;
    rustix::net::sockopt::set_tcp_keepidle(&socket, TCP_IDLE)?;
    rustix::net::sockopt::set_tcp_keepintvl(&socket, TCP_IDLE)?;
    rustix::net::sockopt::set_tcp_keepcnt(&socket, TCP_PROBES)?;
    socket.bind(addr)?;
    let listener = socket.listen(BACKLOG)?;
    let addr = listener.local_addr()?;
    Ok(Socket::Tcp(listener, addr))
}
