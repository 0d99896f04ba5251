//! Connections to the endpoints, and when a call may be tried again.

use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Response, Status};

use crate::storage::store::{StoreError, words};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one attempt of a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pings that find dead connections (kube-apiserver: 30 s and 10 s).
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a call is tried, over all endpoints; then its error is returned.
/// With the pauses it is longer than a store needs to elect another leader.
const ATTEMPTS_MAX: u32 = 10;
/// The pause after the first attempt, doubled after every other up to the greatest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The files of a TLS client, already read.
#[derive(Clone, Debug, Default)]
pub struct EtcdTls {
    /// The authorities to trust, PEM (`--etcd-cafile`).
    pub ca_pem: Option<Vec<u8>>,
    /// The client's certificate, PEM (`--etcd-certfile`).
    pub cert_pem: Option<Vec<u8>>,
    /// Its key, PEM (`--etcd-keyfile`).
    pub key_pem: Option<Vec<u8>>,
}

/// Where the store is.
#[derive(Clone, Debug, Default)]
pub struct EtcdConfig {
    /// URLs, or `host:port` (`--etcd-servers`).
    pub endpoints: Vec<String>,
    /// TLS, for `https` URLs.
    pub tls: Option<EtcdTls>,
}

/// Whether a call may be carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It may: it changes nothing, or only the first of two changes anything.
    Repeatable,
    /// It must not.
    Once,
}

#[derive(Debug)]
pub(super) struct Channels {
    channels: Vec<Channel>,
    /// The one in use.
    at: AtomicUsize,
}

impl Channels {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, StoreError> {
        let channels = config
            .endpoints
            .iter()
            .map(|url| channel(url, config.tls.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        if channels.is_empty() {
            return Err(StoreError::Other("no store endpoint was given".to_owned()));
        }
        Ok(Self {
            channels,
            at: AtomicUsize::new(0),
        })
    }

    pub(super) fn current(&self) -> (usize, Channel) {
        let at = self.at.load(Ordering::Relaxed) % self.channels.len();
        (at, self.channels[at].clone())
    }

    pub(super) fn others(&self) -> impl Iterator<Item = Channel> + '_ {
        let (current, _) = self.current();
        let others = self.channels.iter().enumerate();
        others
            .filter(move |(i, _)| *i != current)
            .map(|(_, c)| c.clone())
    }

    /// Goes over to the next endpoint, unless somebody did already.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.channels.len();
        let _ = self
            .at
            .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls, on as many endpoints as needed and allowed.
    pub(super) async fn call<T, F, Fut>(&self, call: Call, f: F) -> Result<T, StoreError>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut pause = PAUSE_MIN;
        let mut attempt = 1;
        loop {
            let (at, channel) = self.current();
            let status = match timeout(CALL_TIMEOUT, f(channel)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => status,
                Err(_elapsed) => Status::deadline_exceeded("no answer in time"),
            };
            let failed = elsewhere(&status);
            if failed {
                self.leave(at);
            }
            let again = failed && (call == Call::Repeatable || never_sent(&status));
            if !again || attempt == ATTEMPTS_MAX {
                return Err(error(call, &status));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            attempt += 1;
        }
    }
}

fn channel(url: &str, tls: Option<&EtcdTls>) -> Result<Channel, StoreError> {
    let refuse = |e: tonic::transport::Error| {
        StoreError::Other(format!("store endpoint {url:?}: {}", chain(&e)))
    };
    let full = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    let secure = full.starts_with("https://");
    let mut endpoint = Endpoint::from_shared(full)
        .map_err(refuse)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        // A store sends away who pings without a call under way (grpc-go's rule).
        .keep_alive_while_idle(false)
        .tcp_nodelay(true);
    if secure {
        let tls = tls.cloned().unwrap_or_default();
        let mut config = ClientTlsConfig::new();
        if let Some(ca) = tls.ca_pem {
            config = config.ca_certificate(Certificate::from_pem(ca));
        }
        if let (Some(cert), Some(key)) = (tls.cert_pem, tls.key_pem) {
            config = config.identity(Identity::from_pem(cert, key));
        }
        endpoint = endpoint.tls_config(config).map_err(refuse)?;
    }
    Ok(endpoint.connect_lazy())
}

/// Tells whether another endpoint, or the same one later, may do better.
fn elsewhere(status: &Status) -> bool {
    words::recognise(status.message()).is_none()
        && matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown
        )
}

/// Tells whether the connection was never made, so that nothing was sent.
fn never_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Reads what a status says happened.
pub(super) fn error(call: Call, status: &Status) -> StoreError {
    let message = status.message();
    if let Some(known) = words::recognise(message) {
        return known;
    }
    let text = || match status.source() {
        Some(source) => once(message, source),
        None => message.to_owned(),
    };
    match status.code() {
        // The client's own limits: the request was not sent.
        Code::OutOfRange => StoreError::TooLarge,
        Code::ResourceExhausted if message.contains("larger than") => StoreError::TooLarge,
        _ if !elsewhere(status) => StoreError::Other(message.to_owned()),
        _ if call == Call::Repeatable || never_sent(status) => StoreError::Unavailable(text()),
        _ => StoreError::Unknown(text()),
    }
}

/// Says an error and its last cause, which the causes between them only repeat.
fn once(message: &str, source: &dyn std::error::Error) -> String {
    let mut last = source;
    while let Some(next) = last.source() {
        last = next;
    }
    let cause = last.to_string();
    match message.contains(&cause) {
        true => message.to_owned(),
        false => format!("{message}: {cause}"),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn channels(endpoints: &[&str]) -> Channels {
        let endpoints = endpoints.iter().map(|&e| e.to_owned()).collect();
        Channels::new(&EtcdConfig {
            endpoints,
            tls: None,
        })
        .unwrap()
    }

    #[test]
    fn says_what_happened() {
        let compacted = Status::out_of_range(words::COMPACTED);
        assert_eq!(
            error(Call::Repeatable, &compacted),
            StoreError::Compacted(None)
        );
        let changed = Status::unavailable("etcdserver: leader changed");
        assert!(matches!(
            error(Call::Once, &changed),
            StoreError::Unknown(_)
        ));
        assert!(matches!(
            error(Call::Repeatable, &changed),
            StoreError::Unavailable(_)
        ));
        let refused = Status::invalid_argument("etcdserver: key is not provided");
        assert!(matches!(error(Call::Once, &refused), StoreError::Other(_)));
    }

    #[tokio::test]
    async fn repeats_only_what_may_be() {
        let two = channels(&["127.0.0.1:1", "127.0.0.1:2"]);
        for (call, want) in [(Call::Repeatable, ATTEMPTS_MAX), (Call::Once, 1)] {
            let tries = AtomicU32::new(0);
            let result: Result<(), _> = two
                .call(call, |_| {
                    tries.fetch_add(1, Ordering::Relaxed);
                    async { Err(Status::unavailable("etcdserver: request timed out")) }
                })
                .await;
            assert!(result.is_err());
            assert_eq!(tries.into_inner(), want, "{call:?}");
        }
    }

    #[tokio::test]
    async fn a_write_that_was_never_sent_is_tried_elsewhere() {
        // A port that was bound and let go refuses connections.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = free.local_addr().unwrap().to_string();
        drop(free);
        let one = channels(&[&url]);
        let tries = AtomicU32::new(0);
        let result = one
            .call(Call::Once, |channel| {
                tries.fetch_add(1, Ordering::Relaxed);
                async move {
                    let mut client = proto::etcdserverpb::kv_client::KvClient::new(channel);
                    client.put(proto::etcdserverpb::PutRequest::default()).await
                }
            })
            .await;
        assert!(
            matches!(result, Err(StoreError::Unavailable(_))),
            "{result:?}"
        );
        assert_eq!(tries.into_inner(), ATTEMPTS_MAX);
        let text = result.unwrap_err().to_string();
        assert_eq!(text.matches("tcp connect error").count(), 1, "{text}");
        assert_eq!(text.matches("refused").count(), 1, "{text}");
    }
}
