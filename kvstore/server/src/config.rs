//! What a member is started with, and why it may refuse to start.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use thiserror::Error;

use crate::auth::{AuthToken, BCRYPT_COST, SIMPLE_TOKEN_TTL};

/// etcd's default for `--max-request-bytes`.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;
/// etcd's default for `--max-txn-ops`.
pub const TXN_OPS_MAX: usize = 128;
/// etcd's default for `--quota-backend-bytes`.
pub const QUOTA_BACKEND_BYTES: u64 = 2 << 30;

/// etcd's default for `--warning-unary-request-duration`.
const WARNING_UNARY_REQUEST: Duration = Duration::from_millis(300);
/// etcd's default for `--warning-apply-duration`.
const WARNING_APPLY: Duration = Duration::from_millis(100);
/// Most calls under way on one connection unless told otherwise; a client queues
/// beyond it (etcd: no limit).
const STREAMS_PER_CONNECTION: u32 = 10_000;

/// Certificates of a listener, as PEM files. Each is read again when it changes.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The server's certificate chain.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
    /// Certificate and key to show as a client, if others.
    pub client_pair: Option<(PathBuf, PathBuf)>,
    /// With it every client must show a certificate signed by one of these.
    pub trusted_ca_file: Option<PathBuf>,
    /// Certificates that are not believed any more, PEM or DER.
    pub crl_file: Option<PathBuf>,
    /// If not empty, a client's subject must have one of these common names.
    pub allowed_cns: Vec<String>,
    /// If not empty, a client's certificate must be for one of these hosts.
    pub allowed_hostnames: Vec<String>,
    /// Whether a client's certificate, if it names addresses or hosts, must name
    /// the address it comes from.
    pub check_address: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// What is spoken on every TLS listener.
#[derive(Clone, Debug, Default)]
pub struct TlsRules {
    /// The lowest version.
    pub min: Option<TlsVersion>,
    /// The highest version.
    pub max: Option<TlsVersion>,
    /// Cipher suites of TLS 1.2 by Go's names; all if empty.
    pub cipher_suites: Vec<String>,
}

/// Certificates that the member makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoTls {
    /// Whether the client listeners get one.
    pub client: bool,
    /// Whether the peer listeners get one.
    pub peer: bool,
    /// How long they are valid, in years of 365 days.
    pub years: u32,
}

impl Default for AutoTls {
    fn default() -> Self {
        Self {
            client: false,
            peer: false,
            years: 1,
        }
    }
}

/// How the liveness of client connections is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Shortest time a client may leave between two pings; zero allows any.
    pub min_time: Duration,
    /// How often a silent client is pinged; zero is never.
    pub interval: Duration,
    /// How long it may take to answer; zero is never pinged.
    pub timeout: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            min_time: Duration::from_secs(5),
            interval: Duration::from_secs(7_200),
            timeout: Duration::from_secs(20),
        }
    }
}

/// Options of listening sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Whether other processes may listen on the same port.
    pub reuse_port: bool,
}

/// How compacted history is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Revisions looked at in one step; a size that delays nobody if not given.
    pub batch: Option<usize>,
    /// Pause between two steps.
    pub pause: Duration,
}

impl Default for Compaction {
    /// Some 100,000 revisions a second, with most of the time left to clients: three
    /// times as many as they can write.
    fn default() -> Self {
        Self {
            batch: None,
            pause: Duration::from_millis(1),
        }
    }
}

/// When the members compare their data (etcd: server/etcdserver/corrupt.go).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorruptionChecks {
    /// Whether a member compares itself with the others before it serves.
    pub initial: bool,
    /// How often the leader compares all members; never if not given.
    pub interval: Option<Duration>,
    /// How often the leader compares what was hashed at compactions; never if not
    /// given.
    pub compacted: Option<Duration>,
}

/// How old history is forgotten without anybody asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCompaction {
    /// Never.
    Off,
    /// Keeps what was current within this time.
    Periodic(Duration),
    /// Keeps this many revisions.
    Revision(i64),
}

/// How rows are written behind the log. The defaults fit every load known; tests
/// use small ones to have much happen soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBehind {
    /// Bytes not yet in rows that start a write-back at once.
    pub bytes: usize,
    /// How long a change waits at most for its write-back to start.
    pub interval: Duration,
    /// Size at which a block of revisions is closed.
    pub block_bytes: usize,
    /// Recent revisions kept in memory beyond those not yet in rows.
    pub window_bytes: usize,
}

impl Default for WriteBehind {
    fn default() -> Self {
        let machine = mvcc::Config::default();
        Self {
            bytes: 4 << 20,
            interval: Duration::from_millis(500),
            block_bytes: machine.block_bytes,
            window_bytes: machine.window_bytes,
        }
    }
}

/// One member of the store.
///
/// [`Config::new`] gives etcd's defaults without any listener: such a store is
/// reached through its [`crate::Handle`] only.
#[derive(Clone, Debug)]
pub struct Config {
    /// The member's name in the cluster.
    pub name: String,
    /// Where the log and the rows live; made if absent.
    pub data_dir: PathBuf,
    /// Where the log lives, if not in the data directory.
    pub wal_dir: Option<PathBuf>,
    /// Where clients are served, as URLs (`http://127.0.0.1:2379`); port 0 is allowed.
    pub listen_client_urls: Vec<String>,
    /// Where clients are served over plain HTTP only; with any,
    /// `listen_client_urls` serve gRPC only.
    pub listen_client_http_urls: Vec<String>,
    /// Where peers are served.
    pub listen_peer_urls: Vec<String>,
    /// What clients are told to use; the listening URLs if empty.
    pub advertise_client_urls: Vec<String>,
    /// Where `/metrics` and `/health` are served in addition.
    pub listen_metrics_urls: Vec<String>,
    /// What peers are told to use; with the token it makes the member's id. What a
    /// member began with stays, as do all settings called initial.
    pub initial_advertise_peer_urls: Vec<String>,
    /// The members of a new cluster, by name; only this one if empty.
    pub initial_cluster: BTreeMap<String, Vec<String>>,
    /// Whether a member without data joins a cluster that runs.
    pub initial_cluster_existing: bool,
    /// Names the cluster, so that two clusters never mix.
    pub initial_cluster_token: String,
    /// Whether member changes that would cost the quorum are refused.
    pub strict_reconfig_check: bool,
    /// Whether a member asks before it stands for election.
    pub pre_vote: bool,
    /// Most learners in the cluster.
    pub max_learners: usize,
    /// Applied entries kept for members that lag. One that lags more gets a snapshot.
    pub catch_up_entries: u64,
    /// When the members compare their data.
    pub corruption_checks: CorruptionChecks,
    /// Certificates for `https` client URLs.
    pub client_tls: Option<TlsFiles>,
    /// Certificates for `https` peer URLs.
    pub peer_tls: Option<TlsFiles>,
    /// Certificates the member makes where none are given.
    pub auto_tls: AutoTls,
    /// What is spoken where TLS is.
    pub tls_rules: TlsRules,
    /// Options of listening sockets.
    pub socket: SocketOptions,
    /// How the liveness of client connections is kept.
    pub keep_alive: KeepAlive,
    /// Most calls under way on one connection.
    pub max_concurrent_streams: u32,
    /// Whether the API is served as JSON too, under `/v3/`.
    pub enable_grpc_gateway: bool,
    /// Origins whose pages in a browser may read answers over HTTP; `*` is all.
    pub cors: Vec<String>,
    /// Names that plain HTTP is answered under; `*` is all.
    pub host_whitelist: Vec<String>,
    /// Whether the time of every gRPC call is measured.
    pub extensive_metrics: bool,
    /// Above this size of the store, writes are refused.
    pub quota_backend_bytes: u64,
    /// How much room the disk is to have: with less, and no quorum of members with
    /// more, the store is closed for writes. None is an eighth of the file system, 256 MiB
    /// at most; zero is never.
    pub disk_reserve_bytes: Option<u64>,
    /// Largest request.
    pub max_request_bytes: usize,
    /// Most operations in one transaction.
    pub max_txn_ops: usize,
    /// Which tokens users get for their passwords.
    pub auth_token: AuthToken,
    /// How long a simple token lives after its last use.
    pub auth_token_ttl: Duration,
    /// How much work a password's hash is, as a power of two, from 4 to 31.
    pub bcrypt_cost: u32,
    /// Whether the common name of a client's certificate says who calls, where no
    /// token does.
    pub client_cert_auth: bool,
    /// How history is forgotten.
    pub auto_compaction: AutoCompaction,
    /// How compacted history is deleted.
    pub compaction: Compaction,
    /// Whether the log is written without waiting for the disk; losing power then
    /// loses what was acknowledged.
    pub unsafe_no_fsync: bool,
    /// Makes the member the only one of its cluster, for when most others are lost for
    /// good. It keeps what was committed; the others can never come back.
    pub force_new_cluster: bool,
    /// Applying a batch that takes longer is logged as slow; zero logs none.
    pub warning_apply_duration: Duration,
    /// A unary call that takes longer is logged as slow; zero logs none.
    pub warning_unary_request_duration: Duration,
    /// How often a quiet watcher that asked for it hears of progress.
    pub watch_progress_interval: Duration,
    /// Time between two heartbeats; one tick of the member.
    pub heartbeat_interval: Duration,
    /// Time without a leader until an election.
    pub election_timeout: Duration,
    /// Size of one segment of the log on disk.
    pub wal_segment_bytes: u64,
    /// How rows are written behind the log.
    pub write_behind: WriteBehind,
}

impl Config {
    /// Makes a configuration with etcd's defaults and no listener.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: "default".to_owned(),
            data_dir: data_dir.into(),
            wal_dir: None,
            listen_client_urls: Vec::new(),
            listen_client_http_urls: Vec::new(),
            listen_peer_urls: Vec::new(),
            advertise_client_urls: Vec::new(),
            listen_metrics_urls: Vec::new(),
            initial_advertise_peer_urls: vec!["http://localhost:2380".to_owned()],
            initial_cluster: BTreeMap::new(),
            initial_cluster_existing: false,
            initial_cluster_token: "etcd-cluster".to_owned(),
            strict_reconfig_check: true,
            pre_vote: true,
            max_learners: 1,
            catch_up_entries: 5_000,
            corruption_checks: CorruptionChecks::default(),
            client_tls: None,
            peer_tls: None,
            auto_tls: AutoTls::default(),
            tls_rules: TlsRules::default(),
            socket: SocketOptions::default(),
            keep_alive: KeepAlive::default(),
            max_concurrent_streams: STREAMS_PER_CONNECTION,
            enable_grpc_gateway: true,
            cors: vec!["*".to_owned()],
            host_whitelist: vec!["*".to_owned()],
            extensive_metrics: false,
            quota_backend_bytes: QUOTA_BACKEND_BYTES,
            disk_reserve_bytes: None,
            max_request_bytes: REQUEST_BYTES_MAX,
            max_txn_ops: TXN_OPS_MAX,
            auth_token: AuthToken::Simple,
            auth_token_ttl: SIMPLE_TOKEN_TTL,
            bcrypt_cost: BCRYPT_COST,
            client_cert_auth: false,
            auto_compaction: AutoCompaction::Off,
            compaction: Compaction::default(),
            unsafe_no_fsync: false,
            force_new_cluster: false,
            warning_apply_duration: WARNING_APPLY,
            warning_unary_request_duration: WARNING_UNARY_REQUEST,
            watch_progress_interval: Duration::from_secs(600),
            heartbeat_interval: Duration::from_millis(100),
            election_timeout: Duration::from_millis(1000),
            wal_segment_bytes: disk::SEGMENT_BYTES,
            write_behind: WriteBehind::default(),
        }
    }
}

/// Says why a member does not start; nothing was changed on disk unless said.
#[derive(Debug, Error)]
pub enum StartError {
    /// A flag does not make sense.
    #[error("--{flag}: {reason}")]
    Flag {
        /// The flag, without dashes.
        flag: &'static str,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("--{flag}: cannot listen on {address}: {source}; choose another with --{flag}")]
    Listen {
        /// The flag that named it.
        flag: &'static str,
        /// The address, or the path of a socket.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The data directory is not usable: in use, of another format, or damaged.
    #[error(transparent)]
    Disk(#[from] disk::DiskError),
    /// The log and the rows do not fit together.
    #[error("data directory {dir}: {source}")]
    Member {
        /// The data directory.
        dir: PathBuf,
        /// What does not fit.
        source: member::MemberError,
    },
    /// The rows cannot be read.
    #[error("data directory {dir}: {source}")]
    Backend {
        /// The data directory.
        dir: PathBuf,
        /// What the backend said.
        source: mvcc::BackendError,
    },
    /// A log entry is not a membership change this version knows.
    #[error("data directory {dir}: log entry {index}: {reason}")]
    Change {
        /// The data directory.
        dir: PathBuf,
        /// The entry.
        index: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A log entry is not a command this version knows.
    #[error("data directory {dir}: log entry {index}: {source}")]
    Entry {
        /// The data directory.
        dir: PathBuf,
        /// The entry.
        index: u64,
        /// What is wrong with it.
        source: mvcc::CodecError,
    },
    /// The certificates cannot be used.
    #[error("{what} TLS: {reason}")]
    Tls {
        /// Whose: the client listeners' or the peer listeners'.
        what: &'static str,
        /// The file and what is wrong with it.
        reason: String,
    },
    /// A thread or a runtime could not be made.
    #[error("cannot start {what}: {source}")]
    System {
        /// What was to be started.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The member stopped while it was starting.
    #[error("the member stopped while starting; its log says why")]
    Stopped,
}
