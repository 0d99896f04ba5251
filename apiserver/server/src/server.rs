//! Starting and stopping: certificates, store, caches, listener.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use registry::ipalloc::IpRange;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;

use crate::api::{Api, ApiParts};
use crate::authn::{Peer, Tokens, UserInfo};
use crate::body::{BoxBody, BoxError};
use crate::pki::{Identity, Pki, PkiError};
use crate::serve::tls::{self, ClientTrust, KubeletTrust, TlsError};
use crate::serve::{Handler, Limits, Listener};
use crate::service_tokens::{Keys, ServiceTokens};
use crate::services::ServiceIps;
use crate::storage::compactor::{self, COMPACT_EVERY, COMPACTION_POLL, Compactor, Told};
use crate::storage::embedded::EmbeddedStore;
use crate::storage::etcd::{EtcdConfig, EtcdStore, EtcdTls};
use crate::storage::{Store, StoreError};
use crate::subresources::kubelet::KubeletClient;
use crate::{bootstrap, crds, kubeconfig};

/// The range of cluster IPs when none is given, as kubeadm's.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";
/// The issuer of service accounts' tokens when none is given, as kubeadm's.
pub const SERVICE_ACCOUNT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// How long events are kept when nothing is said, as kube-apiserver keeps them.
pub const EVENT_TTL: Duration = Duration::from_secs(3600);
/// How long the start waits for a store before it gives up.
const STORE_WAIT: Duration = Duration::from_secs(30);
/// How long to wait between two attempts to reach the store at the start.
const STORE_RETRY: Duration = Duration::from_millis(500);
/// How long a stop waits for requests in progress.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Where objects are kept.
#[derive(Clone)]
pub enum StoreSource {
    /// In a store of this process.
    Embedded(kvserver::Handle),
    /// In etcd, or our own store, over gRPC.
    Etcd {
        /// The servers' client URLs.
        endpoints: Vec<String>,
        /// TLS towards them, for `https` URLs.
        tls: Option<EtcdTls>,
    },
    /// In any other implementation, for tests.
    Other(Arc<dyn Store>),
}

/// What a server is started with.
pub struct Config {
    /// Where objects are kept.
    pub store: StoreSource,
    /// Where to listen; port 0 takes any free one.
    pub bind: SocketAddr,
    /// The flag by which the caller lets a user choose the port.
    pub port_flag: &'static str,
    /// Where certificates are kept; created when missing.
    pub cert_dir: PathBuf,
    /// The range of cluster IPs.
    pub service_cidr: String,
    /// Authorities whose client certificates are believed besides our own.
    pub client_ca_file: Option<PathBuf>,
    /// The only authority whose kubelet certificates are believed; without it,
    /// our own and self-signed certificates.
    pub kubelet_ca_file: Option<PathBuf>,
    /// The serving certificate and its key, instead of one of our own.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// The static tokens, in kube-apiserver's format.
    pub token_auth_file: Option<PathBuf>,
    /// How tokens of service accounts are signed, and which are believed.
    pub service_accounts: ServiceAccountConfig,
    /// The address that others are told to use; else the one it serves on, or if
    /// that is none for others, that of the way outward.
    pub advertise: Option<IpAddr>,
    /// Names and addresses the serving certificate is for, besides the obvious.
    pub extra_names: Vec<String>,
    /// How long events are kept.
    pub event_ttl: Duration,
    /// How often history is compacted, and so how much is kept at least; zero
    /// leaves it to others.
    pub compact_every: Duration,
    /// The limits on connections.
    pub limits: Limits,
}

/// How tokens of service accounts are signed, and which are believed.
#[derive(Clone, Debug, Default)]
pub struct ServiceAccountConfig {
    /// The issuers that are believed; the first is named in new tokens. Without
    /// any, kubeadm's.
    pub issuers: Vec<String>,
    /// The audiences of this API; without any, the first issuer.
    pub audiences: Vec<String>,
    /// The key that signs; without it, one of our own.
    pub signing_key_file: Option<PathBuf>,
    /// Public keys, certificates or private keys whose tokens are believed;
    /// without any, the signing key's.
    pub key_files: Vec<PathBuf>,
}

impl Config {
    /// Creates the configuration of a server on a loopback port.
    pub fn new(store: StoreSource, cert_dir: impl Into<PathBuf>, port: u16) -> Self {
        Self {
            store,
            bind: SocketAddr::from(([127, 0, 0, 1], port)),
            port_flag: "--secure-port",
            cert_dir: cert_dir.into(),
            service_cidr: SERVICE_CIDR.to_owned(),
            client_ca_file: None,
            kubelet_ca_file: None,
            tls_files: None,
            token_auth_file: None,
            service_accounts: ServiceAccountConfig::default(),
            advertise: None,
            extra_names: Vec::new(),
            event_ttl: EVENT_TTL,
            compact_every: COMPACT_EVERY,
            limits: Limits::default(),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken, or may not be bound.
    #[error("cannot listen on {address}: {source}; {}", bind_advice(source, flag))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The flag that chooses its port.
        flag: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Certificates cannot be had.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A setting makes no sense.
    #[error("{flag}: {reason}")]
    Setting {
        /// The setting.
        flag: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The store cannot be reached.
    #[error("cannot reach the store at {endpoints}: {reason}")]
    Store {
        /// Where it was looked for.
        endpoints: String,
        /// What happened there.
        reason: String,
    },
    /// The store was reached, but the first objects could not be made.
    #[error("the store did not become usable within {} s", STORE_WAIT.as_secs())]
    NotReady,
}

/// Says which flag helps when an address cannot be bound.
fn bind_advice(source: &std::io::Error, port_flag: &str) -> String {
    match source.kind() {
        std::io::ErrorKind::AddrNotAvailable => {
            "choose an address of this machine with --bind-address".to_owned()
        }
        _ => format!("choose another port with {port_flag}"),
    }
}

/// The API server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a server and returns when it can be used: listening, caches
    /// filled, system objects there.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        let (serving_token, storage_token) = (CancellationToken::new(), CancellationToken::new());
        let bind_error = |source| StartError::Bind {
            address: config.bind,
            flag: config.port_flag,
            source,
        };
        // First, so that a taken port changes nothing on disk.
        let tcp = TcpListener::bind(config.bind).await.map_err(bind_error)?;
        let addr = tcp.local_addr().map_err(bind_error)?;
        let range = IpRange::parse(&config.service_cidr).map_err(|e| StartError::Setting {
            flag: "--service-cluster-ip-range",
            reason: format!("{:?}: {e}", config.service_cidr),
        })?;
        let pki = Pki::open(&config.cert_dir)?;
        let trust = client_trust(&pki, config.client_ca_file.as_deref())?;
        let serving = serving_identity(&pki, &config, &range)?;
        let server_tls = tls::server_config(&serving, &trust)?;
        let kubelets = kubelets(&pki, config.kubelet_ca_file.as_deref())?;
        let api = Api::start(ApiParts {
            store: open_store(&config.store).await?,
            tokens: tokens(config.token_auth_file.as_deref())?,
            service_tokens: service_tokens(&pki, &config.service_accounts)?,
            service_ips: ServiceIps::new(range),
            kubelets,
            event_ttl_seconds: config.event_ttl.as_secs().max(1),
            shutdown: serving_token.clone(),
            storage: storage_token.clone(),
        });
        keep_compacted(&api, config.compact_every, &storage_token);
        let listener = Listener {
            tcp,
            tls: server_tls,
            trust,
            handler: api.clone(),
            limits: config.limits,
        };
        let serving = tokio::spawn(listener.run(serving_token.clone()));
        let place = bootstrap::Place {
            address: advertised(&config),
            port: addr.port(),
        };
        let keeper = tokio::spawn(bootstrap::run(api.clone(), place));
        tokio::spawn(crds::run(api.clone(), storage_token.clone()));
        let running = Running {
            addr,
            api,
            pki: Arc::new(pki),
            serving,
            keeper,
            serving_token,
            storage_token,
        };
        match tokio::time::timeout(STORE_WAIT, running.ready()).await {
            Ok(()) => Ok(running),
            Err(_) => {
                running.shutdown().await;
                Err(StartError::NotReady)
            }
        }
    }
}

/// Compacts the store's history, if that is ours to do, and tells the caches what it has
/// forgotten, whoever compacted it.
fn keep_compacted(api: &Arc<Api>, every: Duration, token: &CancellationToken) {
    let told = api.clone();
    let told: Told = Arc::new(move || told.stores());
    if !every.is_zero() {
        Compactor::start(api.store.clone(), told.clone(), every, token.clone());
    }
    let store = api.store.clone();
    tokio::spawn(compactor::follow(
        store,
        told,
        COMPACTION_POLL,
        token.clone(),
    ));
}

async fn open_store(source: &StoreSource) -> Result<Arc<dyn Store>, StartError> {
    Ok(match source {
        StoreSource::Embedded(handle) => Arc::new(EmbeddedStore::new(handle.clone())),
        StoreSource::Etcd { endpoints, tls } => {
            let config = EtcdConfig {
                endpoints: endpoints.clone(),
                tls: tls.clone(),
            };
            let connected = connect(&config).await;
            let failed = |error| StartError::Store {
                endpoints: endpoints.join(", "),
                reason: match error {
                    StoreError::Unavailable(text) | StoreError::Unknown(text) => text,
                    other => other.to_string(),
                },
            };
            Arc::new(connected.map_err(failed)?)
        }
        StoreSource::Other(store) => store.clone(),
    })
}

/// Connects to etcd; one that is not there yet is waited for, since it may be
/// starting beside us.
async fn connect(config: &EtcdConfig) -> Result<EtcdStore, StoreError> {
    let deadline = tokio::time::Instant::now() + STORE_WAIT;
    let mut said = false;
    loop {
        match EtcdStore::connect(config).await {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Unknown(_)))
                if tokio::time::Instant::now() + STORE_RETRY < deadline =>
            {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(%error, "the store is not there yet, trying again");
                }
                tokio::time::sleep(STORE_RETRY).await;
            }
            result => return result,
        }
    }
}

fn read_text(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::Io {
        path: path.to_owned(),
        source,
    })
}

fn client_trust(pki: &Pki, file: Option<&Path>) -> Result<ClientTrust, StartError> {
    let mut authorities = vec![pki.ca_pem().to_owned()];
    if let Some(path) = file {
        authorities.push(read_text(path)?);
    }
    Ok(ClientTrust::new(&authorities)?)
}

fn kubelets(pki: &Pki, file: Option<&Path>) -> Result<KubeletClient, StartError> {
    let (ca, trust) = match file {
        Some(path) => (read_text(path)?, KubeletTrust::AuthorityOnly),
        None => (pki.ca_pem().to_owned(), KubeletTrust::SelfSignedToo),
    };
    let identity = pki.kubelet_client()?;
    let verifying = tls::kubelet_config(&ca, trust, &identity)?;
    let trusting = tls::kubelet_config(&ca, KubeletTrust::Anybody, &identity)?;
    Ok(KubeletClient::new(verifying, trusting))
}

fn tokens(file: Option<&Path>) -> Result<Tokens, StartError> {
    let Some(path) = file else {
        return Ok(Tokens::default());
    };
    Tokens::parse(&read_text(path)?).map_err(|reason| StartError::Setting {
        flag: "--token-auth-file",
        reason: format!("{}: {reason}", path.display()),
    })
}

fn service_tokens(pki: &Pki, config: &ServiceAccountConfig) -> Result<ServiceTokens, StartError> {
    let signing = match &config.signing_key_file {
        Some(path) => read_text(path)?,
        None => pki.service_account_key()?,
    };
    let mut checking = Vec::new();
    for path in &config.key_files {
        checking.push(read_text(path)?);
    }
    if config.signing_key_file.is_none() && !checking.is_empty() {
        // What is issued here is believed here, whoever else is.
        checking.push(signing.clone());
    }
    let keys = Keys::of_pems(&signing, &checking).map_err(|e| StartError::Setting {
        flag: "--service-account-signing-key-file, --service-account-key-file",
        reason: e.to_string(),
    })?;
    let mut issuers = config.issuers.clone();
    if issuers.is_empty() {
        issuers.push(SERVICE_ACCOUNT_ISSUER.to_owned());
    }
    let mut audiences = config.audiences.clone();
    if audiences.is_empty() {
        audiences.extend(issuers.first().cloned());
    }
    Ok(ServiceTokens::new(keys, issuers, audiences))
}

fn serving_identity(pki: &Pki, config: &Config, range: &IpRange) -> Result<Identity, StartError> {
    if let Some((cert, key)) = &config.tls_files {
        return Ok(Identity {
            cert_pem: read_text(cert)?,
            key_pem: read_text(key)?,
        });
    }
    let mut names: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
    ]
    .map(str::to_owned)
    .into();
    names.push(range.first().to_string());
    match config.bind.ip() {
        ip if ip.is_unspecified() => names.extend(outbound_address().map(|ip| ip.to_string())),
        ip => names.push(ip.to_string()),
    }
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .to_lowercase();
    if meta::names::subdomain_errors(&host).is_empty() {
        names.push(host);
    }
    names.extend(config.extra_names.iter().cloned());
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|n| seen.insert(n.clone()));
    Ok(pki.api_serving(&names)?)
}

/// Returns the address that others are told to use, as kube-apiserver chooses it.
fn advertised(config: &Config) -> Option<IpAddr> {
    let given = config.advertise.filter(|ip| !ip.is_unspecified());
    given.or_else(|| match config.bind.ip() {
        ip if ip.is_unspecified() || ip.is_loopback() => outbound_address(),
        ip => Some(ip),
    })
}

/// Returns the address other machines see this one under: that of the route
/// outward. Nothing is sent.
pub fn outbound_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

/// A service that answers API requests of a component of this process.
pub type LocalService =
    BoxCloneSyncService<Request<Full<Bytes>>, Response<BoxBody>, std::convert::Infallible>;

/// A server that runs.
pub struct Running {
    /// Where it listens.
    pub addr: SocketAddr,
    pub(crate) api: Arc<Api>,
    pki: Arc<Pki>,
    serving: JoinHandle<()>,
    /// Looks after the system objects; says goodbye when it ends.
    keeper: JoinHandle<()>,
    serving_token: CancellationToken,
    storage_token: CancellationToken,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.addr)
    }
}

impl Running {
    /// Returns a way to the pipeline without a socket: no TLS, no
    /// authentication, everything else as for any client.
    pub fn local_service(&self, user: UserInfo) -> LocalService {
        let api = self.api.clone();
        BoxCloneSyncService::new(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let (api, peer) = (api.clone(), Peer::InProcess(user.clone()));
            async move {
                let request = request.map(|b| b.map_err(BoxError::from).boxed_unsync());
                Ok(api.handle(peer, request).await)
            }
        }))
    }

    /// Returns the cluster's certificates.
    pub fn pki(&self) -> &Arc<Pki> {
        &self.pki
    }

    /// Returns the URL under which this machine reaches the server.
    pub fn url(&self) -> String {
        let ip = match self.addr.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        format!("https://{}", SocketAddr::new(ip, self.addr.port()))
    }

    /// Returns the text of a kubeconfig for an identity.
    pub fn kubeconfig(&self, user: &str, identity: &Identity) -> String {
        kubeconfig::render(&self.url(), self.pki.ca_pem(), user, identity)
    }

    /// Writes the administrator's kubeconfig, readable by its owner only.
    pub fn write_admin_kubeconfig(&self, path: &Path) -> Result<(), PkiError> {
        kubeconfig::write(
            path,
            &self.kubeconfig("kubernetes-admin", &self.pki.admin()?),
        )
    }

    /// Returns the TLS configuration of a kubelet of this cluster, which lets
    /// in only those who hold a client certificate of the cluster.
    pub fn kubelet_tls(
        &self,
        node: &str,
        names: &[String],
    ) -> Result<Arc<rustls::ServerConfig>, StartError> {
        let identity = self.pki.kubelet_serving(node, names)?;
        Ok(tls::mutual_config(&identity, self.pki.ca_pem())?)
    }

    /// Waits until the server can be used.
    pub async fn ready(&self) {
        self.api.caches_ready().await;
        self.api.custom_served().await;
        self.api.bootstrapped().await;
    }

    /// Announces the stop: from now on `/readyz` fails, and writes that come
    /// over the network are answered with 503 and when to try again. Everything
    /// else goes on, and so do the components of this process, so that a kubelet
    /// can still report how its pods ended.
    pub fn begin_shutdown(&self) {
        self.api.stopping.store(true, Ordering::Release);
    }

    /// Stops accepting, lets requests in progress end, ends watches, then stops
    /// the caches.
    pub async fn shutdown(self) {
        self.begin_shutdown();
        self.serving_token.cancel();
        if tokio::time::timeout(STOP_WAIT, self.serving).await.is_err() {
            tracing::warn!("connections were still open when the server stopped");
        }
        if tokio::time::timeout(STOP_WAIT, self.keeper).await.is_err() {
            tracing::warn!("the system objects were still being written when the server stopped");
        }
        self.storage_token.cancel();
    }
}
