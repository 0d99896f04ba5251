//! What a member is started with, and why it may refuse to start.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use thiserror::Error;

/// etcd's default for `--max-request-bytes`.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;
/// etcd's default for `--max-txn-ops`.
pub const TXN_OPS_MAX: usize = 128;
/// etcd's default for `--quota-backend-bytes`.
pub const QUOTA_BACKEND_BYTES: u64 = 2 << 30;

/// Certificates of the client listener, as PEM files.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The server's certificate chain.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
    /// With it every client must show a certificate signed by one of these.
    pub trusted_ca_file: Option<PathBuf>,
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
    /// Where clients are served, as URLs (`http://127.0.0.1:2379`); port 0 is allowed.
    pub listen_client_urls: Vec<String>,
    /// What clients are told to use; the listening URLs if empty.
    pub advertise_client_urls: Vec<String>,
    /// Where `/metrics` and `/health` are served in addition.
    pub listen_metrics_urls: Vec<String>,
    /// What peers are told to use; with the token it makes the member's id.
    pub initial_advertise_peer_urls: Vec<String>,
    /// Names the cluster, so that two clusters never mix.
    pub initial_cluster_token: String,
    /// Certificates for `https` client URLs.
    pub client_tls: Option<ClientTls>,
    /// Above this size of the store, writes are refused.
    pub quota_backend_bytes: u64,
    /// Largest request.
    pub max_request_bytes: usize,
    /// Most operations in one transaction.
    pub max_txn_ops: usize,
    /// How history is forgotten.
    pub auto_compaction: AutoCompaction,
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
            listen_client_urls: Vec::new(),
            advertise_client_urls: Vec::new(),
            listen_metrics_urls: Vec::new(),
            initial_advertise_peer_urls: vec!["http://localhost:2380".to_owned()],
            initial_cluster_token: "etcd-cluster".to_owned(),
            client_tls: None,
            quota_backend_bytes: QUOTA_BACKEND_BYTES,
            max_request_bytes: REQUEST_BYTES_MAX,
            max_txn_ops: TXN_OPS_MAX,
            auto_compaction: AutoCompaction::Off,
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
    #[error("--{flag}: cannot listen on {addr} (port {port}): {source}; choose another port with --{flag}", port = addr.port())]
    Listen {
        /// The flag that named it.
        flag: &'static str,
        /// The address.
        addr: SocketAddr,
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
    #[error("client TLS: {0}")]
    Tls(String),
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
