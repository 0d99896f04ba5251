//! Listeners: from URLs to bound sockets.

use std::net::{SocketAddr, ToSocketAddrs as _};

use tokio::net::TcpListener;

use crate::config::StartError;

/// A bound socket, and whether TLS is spoken on it.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: TcpListener,
    pub(crate) addr: SocketAddr,
    pub(crate) tls: bool,
}

/// Binds every URL of a flag.
pub(crate) fn bind(flag: &'static str, urls: &[String]) -> Result<Vec<Bound>, StartError> {
    urls.iter().map(|url| bind_one(flag, url)).collect()
}

fn bind_one(flag: &'static str, url: &str) -> Result<Bound, StartError> {
    let refused = |reason: String| StartError::Flag { flag, reason };
    let uri: http::Uri = url
        .parse()
        .map_err(|error| refused(format!("{url:?} is not a URL: {error}")))?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => {
            return Err(refused(format!(
                "{url:?} must begin with http:// or https://"
            )));
        }
    };
    let host = uri
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let port = uri
        .port_u16()
        .ok_or_else(|| refused(format!("{url:?} has no port")))?;
    let found = (host, port).to_socket_addrs();
    let mut found = found.map_err(|error| refused(format!("cannot resolve {host:?}: {error}")))?;
    let addr = found
        .next()
        .ok_or_else(|| refused(format!("{host:?} has no address")))?;
    let bound = || -> std::io::Result<(TcpListener, SocketAddr)> {
        let listener = std::net::TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        Ok((TcpListener::from_std(listener)?, addr))
    };
    let (listener, addr) = bound().map_err(|source| StartError::Listen { flag, addr, source })?;
    Ok(Bound {
        listener,
        addr,
        tls,
    })
}
