//! `keelson apiserver`: kube-apiserver's flags, as far as they mean something
//! here.

mod accepted;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use self::accepted::Accepted;
use crate::pki::PkiError;
use crate::server::{
    Config, Running, SERVICE_CIDR, Server, ServiceAccountConfig, StartError, StoreSource,
};
use crate::storage::etcd::EtcdTls;

/// Serves the Kubernetes API over an etcd.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Client URLs of the store: etcd, or `keelson kvstore`.
    #[arg(long, value_delimiter = ',', default_value = "http://127.0.0.1:2379")]
    pub etcd_servers: Vec<String>,
    /// Authority of the store's certificates.
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate towards the store.
    #[arg(long, requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Port to serve HTTPS on; 0 takes any free one.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Address to serve on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Directory of the cluster's certificates; created and filled when missing.
    #[arg(long, default_value = "keelson-pki")]
    pub cert_dir: PathBuf,
    /// Authorities whose client certificates are believed besides our own.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// The only authority of kubelets' serving certificates. Without it, those
    /// of our own authority are believed, and self-signed ones too.
    #[arg(long)]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Serving certificate, instead of a generated one.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of that certificate.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Range of cluster IPs.
    #[arg(long, default_value = SERVICE_CIDR)]
    pub service_cluster_ip_range: String,
    /// Static bearer tokens: token,user,uid,"group1,group2".
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Issuers of service accounts' tokens that are believed; new tokens name
    /// the first [default: https://kubernetes.default.svc.cluster.local].
    #[arg(long)]
    pub service_account_issuer: Vec<String>,
    /// Public keys, certificates or private keys of service accounts' tokens
    /// [default: the signing key's].
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// Private key that signs service accounts' tokens
    /// [default: sa.key in --cert-dir, made when missing].
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Audiences of this API, of which a token must have one
    /// [default: the first issuer].
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// How long events are kept, in seconds or as 1h30m.
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    pub event_ttl: Duration,
    /// How often the store's history is compacted; 0 leaves it to others.
    #[arg(long, default_value = "5m", value_parser = parse_duration)]
    pub etcd_compaction_interval: Duration,
    /// Where to write the administrator's kubeconfig
    /// [default: admin.kubeconfig in --cert-dir].
    #[arg(long)]
    pub kubeconfig_out: Option<PathBuf>,
    /// Address clients are told to use; goes into the serving certificate, and behind
    /// the service kubernetes.
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Names and addresses the generated serving certificate is also for.
    #[arg(long, value_delimiter = ',')]
    pub apiserver_cert_extra_sans: Vec<String>,
    /// What else kube-apiserver has.
    #[command(flatten)]
    pub accepted: Accepted,
}

/// Why the command fails.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The kubeconfig cannot be written.
    #[error(transparent)]
    Kubeconfig(#[from] PkiError),
    /// Threads or signals cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

/// How many turns of tasks a busy thread takes before it looks at its sockets. A turn
/// that sends a part of a long list takes a tenth of a millisecond and more, so with
/// tokio's 61 whoever asks beside such lists waits for ten.
const TURNS_BETWEEN_LOOKS: u32 = 8;

/// Returns the kind of runtime that the server wants.
pub fn runtime() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().event_interval(TURNS_BETWEEN_LOOKS);
    builder
}

/// Runs the server until SIGINT or SIGTERM.
pub fn run(args: Args) -> Result<(), RunError> {
    runtime().build()?.block_on(serve(args))
}

async fn serve(args: Args) -> Result<(), RunError> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let kubeconfig = args.kubeconfig_out.clone();
    let kubeconfig = kubeconfig.unwrap_or_else(|| args.cert_dir.join("admin.kubeconfig"));
    let running: Running = tokio::select! {
        started = Server::start(config(args)?) => started?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    running.write_admin_kubeconfig(&kubeconfig)?;
    tracing::info!(url = running.url(), kubeconfig = %kubeconfig.display(), "serving the Kubernetes API");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
    running.shutdown().await;
    Ok(())
}

/// Reads a PEM file that a flag names.
fn pem(flag: &'static str, path: Option<PathBuf>) -> Result<Option<Vec<u8>>, StartError> {
    let Some(path) = path else { return Ok(None) };
    std::fs::read(&path)
        .map(Some)
        .map_err(|e| StartError::Setting {
            flag,
            reason: format!("{}: {e}", path.display()),
        })
}

fn config(args: Args) -> Result<Config, StartError> {
    let tls = EtcdTls {
        ca_pem: pem("--etcd-cafile", args.etcd_cafile)?,
        cert_pem: pem("--etcd-certfile", args.etcd_certfile)?,
        key_pem: pem("--etcd-keyfile", args.etcd_keyfile)?,
    };
    let tls = (tls.ca_pem.is_some() || tls.cert_pem.is_some()).then_some(tls);
    let store = StoreSource::Etcd {
        endpoints: args.etcd_servers,
        tls,
    };
    let mut config = Config::new(store, args.cert_dir, args.secure_port);
    config.bind = SocketAddr::new(args.bind_address, args.secure_port);
    config.service_cidr = args.service_cluster_ip_range;
    config.client_ca_file = args.client_ca_file;
    config.kubelet_ca_file = args.kubelet_certificate_authority;
    config.tls_files = args.tls_cert_file.zip(args.tls_private_key_file);
    config.token_auth_file = args.token_auth_file;
    config.service_accounts = ServiceAccountConfig {
        issuers: args.service_account_issuer,
        audiences: args.api_audiences,
        signing_key_file: args.service_account_signing_key_file,
        key_files: args.service_account_key_file,
    };
    config.event_ttl = args.event_ttl;
    config.compact_every = args.etcd_compaction_interval;
    config.advertise = args.advertise_address;
    config.extra_names = args.apiserver_cert_extra_sans;
    config
        .extra_names
        .extend(args.advertise_address.map(|ip| ip.to_string()));
    Ok(config)
}

/// Parses Go's durations (`1h30m`, `90s`) and plain seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let bad = || format!("{text:?} is no duration; write 90s, 15m or 1h30m");
    let mut total = 0_u64;
    let mut number = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit = match c {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(bad()),
        };
        let n: u64 = number
            .parse()
            .map_err(|_ignored: std::num::ParseIntError| bad())?;
        total = n
            .checked_mul(unit)
            .and_then(|s| total.checked_add(s))
            .ok_or_else(bad)?;
        number.clear();
    }
    if number.is_empty() && !text.is_empty() {
        Ok(Duration::from_secs(total))
    } else {
        Err(bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("1h30m").unwrap().as_secs(), 5400);
        assert_eq!(parse_duration("90").unwrap().as_secs(), 90);
        for bad in ["", "1x", "h", "10m5"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
