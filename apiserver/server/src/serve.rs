//! Sockets: accepts connections, speaks TLS and HTTP on them, and closes those
//! that do nothing.
//!
//! The protocol is the one agreed by ALPN; no bytes are sniffed, since a peer
//! that sends none would then be waited for without limit. One task serves one
//! connection and ends it in the same place.

mod activity;
mod drain;
mod outbox;
pub mod tls;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authn::Peer;
use crate::body::{BoxBody, BoxError};
use crate::seldom::Seldom;
use activity::{Activity, ActivityGuard, Guarded};
use drain::Drained;
use outbox::Conversation;
use tls::ClientTrust;

/// How many connections are served at once; beyond it new ones wait in the
/// kernel's backlog, unaccepted.
pub const CONNECTIONS_MAX: usize = 20_000;
/// How many file descriptors are left for everything but connections.
const DESCRIPTORS_RESERVED: u64 = 256;
/// How long a TLS handshake may take; then the connection is dropped.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request head may take to arrive, from the moment one is awaited;
/// then the connection is dropped. kube-apiserver: 32 s.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// How long a connection may have no request; then it is closed gracefully.
/// kube-apiserver: 90 s.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a closing connection may take to finish; then it is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many bytes a request head may have; beyond it 431 is answered and the
/// connection closed. Go's default, which kube-apiserver keeps, is 1 MiB; the
/// longest heads seen carry label selectors of some tens of KiB.
pub const HEAD_BYTES_MAX: usize = 128 * 1024;
/// How many headers a request may have; beyond it 431 is answered.
const HEADERS_MAX: usize = 100;
/// How many requests run at once on one HTTP/2 connection; beyond it the
/// client waits. kube-apiserver has 100; a controller process of ours keeps
/// all its watches on one connection.
const STREAMS_MAX: u32 = 250;
/// How many bytes of one HTTP/2 stream wait for its client at most, beyond the piece of
/// the body that crosses the line. What is here is out of the watch caches' sight, and so
/// must not be what slow clients' memory is made of. (hyper: 400 KiB.)
const SEND_BYTES_MAX: usize = 64 * 1024;
/// How often an HTTP/2 peer is asked whether it lives, and how long it has to
/// answer, so that a watch on a dead network is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How long to wait after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The limits a test may want smaller.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// See [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// See [`HANDSHAKE_TIMEOUT`].
    pub handshake: Duration,
    /// See [`HEADER_TIMEOUT`].
    pub header: Duration,
    /// See [`IDLE_TIMEOUT`].
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            handshake: HANDSHAKE_TIMEOUT,
            header: HEADER_TIMEOUT,
            idle: IDLE_TIMEOUT,
        }
    }
}

/// What answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request of a peer.
    fn handle(
        self: Arc<Self>,
        peer: Peer,
        request: Request<BoxBody>,
    ) -> impl Future<Output = Response<BoxBody>> + Send;
}

/// A listener with everything needed to serve it.
pub struct Listener<H> {
    /// The bound socket.
    pub tcp: TcpListener,
    /// The TLS configuration.
    pub tls: Arc<rustls::ServerConfig>,
    /// Whose certificates are believed.
    pub trust: ClientTrust,
    /// What answers requests.
    pub handler: Arc<H>,
    /// The limits.
    pub limits: Limits,
}

impl<H: Handler> Listener<H> {
    /// Serves until the token is cancelled, then closes every connection
    /// gracefully and returns when all are gone.
    pub async fn run(self, shutdown: CancellationToken) {
        let slots = Arc::new(Semaphore::new(connection_slots(self.limits.connections)));
        let tracker = TaskTracker::new();
        let shared = Arc::new(Connections {
            tls: TlsAcceptor::from(self.tls),
            trust: self.trust,
            handler: self.handler,
            limits: self.limits,
            shutdown: shutdown.clone(),
        });
        loop {
            let slot = tokio::select! {
                () = shutdown.cancelled() => break,
                slot = slots.clone().acquire_owned() => slot,
            };
            let Ok(slot) = slot else { break };
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = self.tcp.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    let shared = shared.clone();
                    tracker.spawn(async move {
                        shared.serve(stream, from).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        tracker.close();
        tracker.wait().await;
    }
}

/// Raises the soft limit of open files to the hard one and returns how many
/// connections fit under it.
fn connection_slots(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "cannot raise the limit of open files");
        }
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let fit = files.saturating_sub(DESCRIPTORS_RESERVED).max(64);
    usize::try_from(fit).unwrap_or(usize::MAX).min(wanted)
}

/// What every connection needs.
struct Connections<H> {
    tls: TlsAcceptor,
    trust: ClientTrust,
    handler: Arc<H>,
    limits: Limits,
    shutdown: CancellationToken,
}

impl<H: Handler> Connections<H> {
    async fn serve(self: Arc<Self>, tcp: TcpStream, from: SocketAddr) {
        if let Err(error) = tcp.set_nodelay(true) {
            tracing::debug!(%from, %error, "cannot set TCP_NODELAY");
        }
        let handshake = tokio::time::timeout(self.limits.handshake, self.tls.accept(tcp));
        let stream = tokio::select! {
            () = self.shutdown.cancelled() => return,
            result = handshake => match result {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%from, %error, "TLS handshake failed"),
                Err(_) => return tracing::debug!(%from, "TLS handshake timed out"),
            },
        };
        let session = stream.get_ref().1;
        let http2 = session.alpn_protocol() == Some(b"h2");
        let peer = self.trust.identify(session.peer_certificates());
        let activity = Arc::new(Activity::new(http2));
        let (handler, seen) = (self.handler.clone(), activity.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let guard = seen.clone().begin();
            let request = request.map(|b| match http2 {
                true => Drained::new(b).boxed_unsync(),
                false => b.map_err(|e| Box::new(e) as BoxError).boxed_unsync(),
            });
            answer(handler.clone(), peer.clone(), request, guard)
        });
        let result = if http2 {
            let (outbox, sender) = outbox::new(stream);
            let connection = http2_builder().serve_connection(TokioIo::new(outbox), service);
            let connection = pin!(connection);
            let conversation = Conversation {
                connection,
                sender,
                others: || activity.is_about_to_speak(),
                yielded: false,
            };
            self.drive(pin!(conversation), &activity, |mut c| {
                c.connection.as_mut().graceful_shutdown();
            })
            .await
        } else {
            // Here hyper itself gathers what it has, up to its next flush: rustls takes
            // the slices of several chunks for one record.
            let connection = self
                .http1_builder()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            self.drive(pin!(connection), &activity, |c| c.graceful_shutdown())
                .await
        };
        if let Err(error) = result {
            tracing::debug!(%from, %error, "connection ended");
        }
    }

    fn http1_builder(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX);
        builder
    }

    /// Runs a connection until it ends, has been idle too long, or the server
    /// stops; the latter two give it a moment to end gracefully.
    async fn drive<C>(
        &self,
        mut connection: Pin<&mut C>,
        activity: &Arc<Activity>,
        close: fn(Pin<&mut C>),
    ) -> Result<(), hyper::Error>
    where
        C: Future<Output = Result<(), hyper::Error>>,
    {
        let (stop, activity) = (self.shutdown.clone(), activity.clone());
        let mut over = Seldom::new(over(stop, activity, self.limits.idle));
        let ended = poll_fn(|cx| match connection.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => over.poll(cx).map(|()| None),
        });
        if let Some(result) = ended.await {
            return result;
        }
        close(connection.as_mut());
        tokio::time::timeout(CLOSE_TIMEOUT, connection)
            .await
            .unwrap_or(Ok(()))
    }
}

/// Waits until the server stops or a connection has been idle too long.
async fn over(stop: CancellationToken, activity: Arc<Activity>, idle: Duration) {
    let mut check = Instant::now() + idle;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(check) => {}
        }
        let now = Instant::now();
        match activity.idle_since() {
            Some(since) if since + idle <= now => return,
            Some(since) => check = since + idle,
            None => check = now + idle,
        }
    }
}

/// Answers one request. What the handler's future takes is given back before the body
/// is sent: a stream's task is as large as the largest thing it ever holds, and some
/// last for hours. Being boxed, it is also not moved each time the task is.
async fn answer<H: Handler>(
    handler: Arc<H>,
    peer: Peer,
    request: Request<BoxBody>,
    guard: ActivityGuard,
) -> Result<Response<Guarded>, Infallible> {
    let response = Box::pin(handler.handle(peer, request)).await;
    Ok(response.map(|body| Guarded::new(body, guard)))
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Api;

    fn size_of_future<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// A stream's task is as large as the larger of these, for as long as the stream
    /// lasts.
    #[test]
    fn a_stream_that_waits_is_small() {
        let (answer, body) = (size_of_future(answer::<Api>), size_of::<Guarded>());
        assert!(answer <= 512 && body <= 64, "{answer}, {body}");
    }
}
