//! The command line of a member, in etcd's spelling, and its environment.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    config::{AutoCompaction, ClientTls, Config, StartError},
    config::{QUOTA_BACKEND_BYTES, REQUEST_BYTES_MAX, TXN_OPS_MAX},
    server::Server,
};

/// Whether a cluster is new to its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClusterState {
    /// All members start together for the first time.
    New,
    /// The cluster runs and this member joins it.
    Existing,
}

/// What auto-compaction counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompactionMode {
    /// Time.
    Periodic,
    /// Revisions.
    Revision,
}

/// Runs one member of the replicated store, a drop-in for etcd.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Name of this member.
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    pub name: String,
    /// Directory of the data; `<name>.etcd` if not given.
    #[arg(long, env = "ETCD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// URLs to serve clients on, comma-separated.
    #[arg(
        long,
        env = "ETCD_LISTEN_CLIENT_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2379"
    )]
    pub listen_client_urls: Vec<String>,
    /// URLs to tell clients of, comma-separated.
    #[arg(long, env = "ETCD_ADVERTISE_CLIENT_URLS", value_delimiter = ',')]
    pub advertise_client_urls: Vec<String>,
    /// URLs to serve peers on, comma-separated.
    #[arg(
        long,
        env = "ETCD_LISTEN_PEER_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2380"
    )]
    pub listen_peer_urls: Vec<String>,
    /// URLs to tell peers of, comma-separated.
    #[arg(
        long,
        env = "ETCD_INITIAL_ADVERTISE_PEER_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2380"
    )]
    pub initial_advertise_peer_urls: Vec<String>,
    /// Members at the start, as `name=url,name=url`.
    #[arg(long, env = "ETCD_INITIAL_CLUSTER")]
    pub initial_cluster: Option<String>,
    /// Whether the cluster is new.
    #[arg(
        long,
        env = "ETCD_INITIAL_CLUSTER_STATE",
        value_enum,
        default_value = "new"
    )]
    pub initial_cluster_state: ClusterState,
    /// Token that keeps two clusters apart.
    #[arg(
        long,
        env = "ETCD_INITIAL_CLUSTER_TOKEN",
        default_value = "etcd-cluster"
    )]
    pub initial_cluster_token: String,
    /// Bytes of the store above which writes are refused; 0 is the default of 2 GiB.
    #[arg(long, env = "ETCD_QUOTA_BACKEND_BYTES", default_value_t = 0)]
    pub quota_backend_bytes: u64,
    /// Entries between two snapshots. Taken for compatibility: rows are written
    /// behind the log all the time, and the log is released as they are.
    #[arg(long, env = "ETCD_SNAPSHOT_COUNT", default_value_t = 100_000)]
    pub snapshot_count: u64,
    /// Bytes of the largest request.
    #[arg(long, env = "ETCD_MAX_REQUEST_BYTES", default_value_t = REQUEST_BYTES_MAX)]
    pub max_request_bytes: usize,
    /// Operations in one transaction at most.
    #[arg(long, env = "ETCD_MAX_TXN_OPS", default_value_t = TXN_OPS_MAX)]
    pub max_txn_ops: usize,
    /// What auto-compaction counts.
    #[arg(
        long,
        env = "ETCD_AUTO_COMPACTION_MODE",
        value_enum,
        default_value = "periodic"
    )]
    pub auto_compaction_mode: CompactionMode,
    /// How much history to keep: hours or a duration such as 5m, or revisions; 0 is all.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_RETENTION", default_value = "0")]
    pub auto_compaction_retention: String,
    /// URLs to serve metrics and health on in addition, comma-separated.
    #[arg(long, env = "ETCD_LISTEN_METRICS_URLS", value_delimiter = ',')]
    pub listen_metrics_urls: Vec<String>,
    /// Milliseconds between two heartbeats.
    #[arg(long, env = "ETCD_HEARTBEAT_INTERVAL", default_value_t = 100)]
    pub heartbeat_interval: u64,
    /// Milliseconds without a leader until an election.
    #[arg(long, env = "ETCD_ELECTION_TIMEOUT", default_value_t = 1000)]
    pub election_timeout: u64,
    /// How often a quiet watcher hears of progress.
    #[arg(
        long,
        env = "ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL",
        alias = "experimental-watch-progress-notify-interval",
        default_value = "10m"
    )]
    pub watch_progress_notify_interval: String,
    /// Certificate of the client listener, PEM.
    #[arg(long, env = "ETCD_CERT_FILE")]
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(long, env = "ETCD_KEY_FILE")]
    pub key_file: Option<PathBuf>,
    /// Certificates that clients' must be signed by, PEM.
    #[arg(long, env = "ETCD_TRUSTED_CA_FILE")]
    pub trusted_ca_file: Option<PathBuf>,
    /// Whether clients must show a certificate.
    #[arg(long, env = "ETCD_CLIENT_CERT_AUTH", num_args = 0..=1, default_value_t = false, default_missing_value = "true")]
    pub client_cert_auth: bool,
    /// How much to log: debug, info, warn or error.
    #[arg(long, env = "ETCD_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

impl Args {
    /// Makes a configuration, refusing flags that do not make sense.
    pub fn config(&self) -> Result<Config, StartError> {
        self.check_cluster()?;
        let data_dir = self
            .data_dir
            .clone()
            .unwrap_or_else(|| format!("{}.etcd", self.name).into());
        let interval = "watch-progress-notify-interval";
        Ok(Config {
            name: self.name.clone(),
            listen_client_urls: self.listen_client_urls.clone(),
            advertise_client_urls: self.advertise_client_urls.clone(),
            listen_metrics_urls: self.listen_metrics_urls.clone(),
            initial_advertise_peer_urls: self.initial_advertise_peer_urls.clone(),
            initial_cluster_token: self.initial_cluster_token.clone(),
            client_tls: self.client_tls()?,
            quota_backend_bytes: match self.quota_backend_bytes {
                0 => QUOTA_BACKEND_BYTES,
                bytes => bytes,
            },
            max_request_bytes: self.max_request_bytes,
            max_txn_ops: self.max_txn_ops,
            auto_compaction: self.auto_compaction()?,
            watch_progress_interval: duration(interval, &self.watch_progress_notify_interval)?
                .max(Duration::from_millis(100)),
            heartbeat_interval: self.heartbeat()?,
            election_timeout: Duration::from_millis(self.election_timeout),
            ..Config::new(data_dir)
        })
    }

    /// Checks that the cluster is this one member.
    fn check_cluster(&self) -> Result<(), StartError> {
        let flag = "initial-cluster";
        let refuse = |reason: String| Err(StartError::Flag { flag, reason });
        if self.initial_cluster_state == ClusterState::Existing && self.initial_cluster.is_none() {
            return refuse("joining an existing cluster is not supported yet".to_owned());
        }
        let Some(cluster) = &self.initial_cluster else {
            return Ok(());
        };
        let mut urls = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        for part in cluster
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let Some((name, url)) = part.split_once('=') else {
                return refuse(format!("{part:?} is not name=url"));
            };
            names.insert(name);
            if name == self.name {
                urls.push(url.to_owned());
            }
        }
        if urls.is_empty() {
            return refuse(format!(
                "this member, --name {:?}, is not in {cluster:?}",
                self.name
            ));
        }
        if names.len() > 1 {
            let count = names.len();
            return refuse(format!(
                "names {count} members; this version runs clusters of one member only"
            ));
        }
        let mut advertised = self.initial_advertise_peer_urls.clone();
        urls.sort();
        advertised.sort();
        if urls != advertised {
            return refuse(format!(
                "has {} for {:?}, but --initial-advertise-peer-urls has {}",
                urls.join(","),
                self.name,
                advertised.join(",")
            ));
        }
        Ok(())
    }

    fn client_tls(&self) -> Result<Option<ClientTls>, StartError> {
        let trusted_ca_file = self.trusted_ca_file.clone();
        if self.client_cert_auth && trusted_ca_file.is_none() {
            let reason = "needs --trusted-ca-file".to_owned();
            return Err(StartError::Flag {
                flag: "client-cert-auth",
                reason,
            });
        }
        match (&self.cert_file, &self.key_file) {
            (None, None) => Ok(None),
            (Some(cert_file), Some(key_file)) => Ok(Some(ClientTls {
                cert_file: cert_file.clone(),
                key_file: key_file.clone(),
                trusted_ca_file,
            })),
            (Some(_), None) => {
                let reason = "needs --key-file beside it".to_owned();
                Err(StartError::Flag {
                    flag: "cert-file",
                    reason,
                })
            }
            (None, Some(_)) => {
                let reason = "needs --cert-file beside it".to_owned();
                Err(StartError::Flag {
                    flag: "key-file",
                    reason,
                })
            }
        }
    }

    fn auto_compaction(&self) -> Result<AutoCompaction, StartError> {
        let flag = "auto-compaction-retention";
        let text = self.auto_compaction_retention.trim();
        if text == "0" || text.is_empty() {
            return Ok(AutoCompaction::Off);
        }
        match self.auto_compaction_mode {
            CompactionMode::Revision => match text.parse() {
                Ok(keep @ 1..) => Ok(AutoCompaction::Revision(keep)),
                _ => Err(StartError::Flag {
                    flag,
                    reason: format!("{text:?} is not a number of revisions"),
                }),
            },
            // A bare number is hours, as in etcd.
            CompactionMode::Periodic => Ok(AutoCompaction::Periodic(match text.parse::<u32>() {
                Ok(hours) => Duration::from_secs(3600) * hours,
                Err(_) => duration(flag, text)?,
            })),
        }
    }

    fn heartbeat(&self) -> Result<Duration, StartError> {
        // etcd: server/embed, "should be at least 5 times".
        if self.heartbeat_interval == 0
            || self.heartbeat_interval.saturating_mul(5) > self.election_timeout
        {
            let reason = "must be at least 1 and at most a fifth of --election-timeout".to_owned();
            return Err(StartError::Flag {
                flag: "heartbeat-interval",
                reason,
            });
        }
        Ok(Duration::from_millis(self.heartbeat_interval))
    }
}

/// Reads a duration as Go writes it: numbers with units, such as `1h30m` or `500ms`.
fn duration(flag: &'static str, text: &str) -> Result<Duration, StartError> {
    let refused = || StartError::Flag {
        flag,
        reason: format!("{text:?} is not a duration such as 5s, 10m or 1h30m"),
    };
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(refused)?;
        let number: f64 = rest[..digits].parse().map_err(|_not_a_number| refused())?;
        let tail = &rest[digits..];
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let seconds = match &tail[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(refused()),
        };
        total +=
            Duration::try_from_secs_f64(number * seconds).map_err(|_out_of_range| refused())?;
        rest = &tail[unit..];
    }
    if total.is_zero() {
        Err(refused())
    } else {
        Ok(total)
    }
}

/// Runs a member until SIGINT or SIGTERM, or until it fails.
pub fn run(args: &Args) -> Result<(), StartError> {
    let config = args.config()?;
    let system = |what| move |source| StartError::System { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("the main runtime"))?;
    runtime.block_on(async {
        let mut interrupt =
            signal(SignalKind::interrupt()).map_err(system("the signal handler"))?;
        let mut terminate =
            signal(SignalKind::terminate()).map_err(system("the signal handler"))?;
        let mut running = Server::start(config).await?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = running.wait() => return Err(StartError::Stopped),
        }
        tracing::info!("stopping");
        running.shutdown().await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &[&str]) -> Result<Config, StartError> {
        let args = [&["kvstore"], args].concat();
        Args::try_parse_from(args).unwrap().config()
    }

    fn refusal(args: &[&str]) -> String {
        config(args).unwrap_err().to_string()
    }

    #[test]
    fn etcds_flags_are_understood() {
        let config = config(&[
            "--name=a",
            "--data-dir=/d",
            "--listen-client-urls=http://127.0.0.1:1,http://127.0.0.1:2",
            "--initial-advertise-peer-urls=http://10.0.0.1:2380",
            "--initial-cluster=a=http://10.0.0.1:2380",
            "--auto-compaction-retention=5m",
            "--experimental-watch-progress-notify-interval=5s",
        ])
        .unwrap();
        assert_eq!(config.listen_client_urls.len(), 2);
        assert_eq!(
            config.auto_compaction,
            AutoCompaction::Periodic(Duration::from_secs(300))
        );
        assert_eq!(config.watch_progress_interval, Duration::from_secs(5));
        assert_eq!(config.quota_backend_bytes, QUOTA_BACKEND_BYTES);
    }

    #[test]
    fn retention_is_hours_duration_or_revisions() {
        let retention = |args: &[&str]| config(args).unwrap().auto_compaction;
        assert_eq!(
            retention(&["--auto-compaction-retention=0"]),
            AutoCompaction::Off
        );
        let hour = AutoCompaction::Periodic(Duration::from_secs(3600));
        assert_eq!(retention(&["--auto-compaction-retention=1"]), hour);
        let revisions = [
            "--auto-compaction-mode=revision",
            "--auto-compaction-retention=1000",
        ];
        assert_eq!(retention(&revisions), AutoCompaction::Revision(1000));
    }

    #[test]
    fn senseless_flags_are_refused_by_name() {
        let error = refusal(&["--initial-cluster=b=http://localhost:2380"]);
        assert!(
            error.contains("--initial-cluster") && error.contains("default"),
            "{error}"
        );
        let error =
            refusal(&["--initial-cluster=default=http://localhost:2380,b=http://localhost:3380"]);
        assert!(
            error.contains("--initial-cluster") && error.contains("2 members"),
            "{error}"
        );
        let error = refusal(&["--initial-cluster=default=http://localhost:1"]);
        assert!(error.contains("--initial-advertise-peer-urls"), "{error}");
        let error = refusal(&["--cert-file=x"]);
        assert!(error.contains("--key-file"), "{error}");
        let error = refusal(&["--auto-compaction-retention=soon"]);
        assert!(error.contains("--auto-compaction-retention"), "{error}");
        let error = refusal(&["--heartbeat-interval=500"]);
        assert!(error.contains("--heartbeat-interval"), "{error}");
    }
}
