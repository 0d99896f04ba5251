//! The flags of `keelson kubelet`, named as the kubelet's where it has them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use crate::error::AgentError;
use crate::images::{ImageMap, ImageMapping};
use crate::options::{AgentOptions, CONTAINERD_SOCKET, RuntimeKind, default_shim_command};

/// The port kubelets listen on.
pub const KUBELET_PORT: u16 = 10250;

/// Runs the node agent.
#[derive(Clone, Debug, clap::Args)]
pub struct KubeletArgs {
    /// How to reach the API server.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// The name of this node [default: the machine's host name].
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// The node's address, also its pods'.
    #[arg(long, default_value = "127.0.0.1")]
    pub node_ip: IpAddr,
    /// Where pods and containers are kept.
    #[arg(long, default_value = "/var/lib/keelson/kubelet")]
    pub root_dir: PathBuf,
    /// Where logs are kept [default: logs in the root directory].
    #[arg(long)]
    pub log_dir: Option<PathBuf>,
    /// The port of the kubelet's server; 0 takes a free one.
    #[arg(long, default_value_t = KUBELET_PORT)]
    pub port: u16,
    /// Gives an image a meaning: image=directory-or-command. May be repeated.
    #[arg(long = "image-map", value_name = "IMAGE=DIR|COMMAND")]
    pub image_map: Vec<ImageMapping>,
    /// What runs containers.
    #[arg(long, value_enum, default_value_t)]
    pub runtime: RuntimeKind,
    /// The socket of the CRI runtime.
    #[arg(long, default_value = CONTAINERD_SOCKET)]
    pub container_runtime_endpoint: PathBuf,
    /// The server's certificate.
    #[arg(long, requires = "tls_private_key_file", requires = "client_ca_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The server's private key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Who may call the server: clients with a certificate of this authority.
    #[arg(long, requires = "tls_cert_file")]
    pub client_ca_file: Option<PathBuf>,
}

impl KubeletArgs {
    /// Turns flags into options.
    pub fn options(&self) -> Result<AgentOptions, AgentError> {
        let node_name = match &self.hostname_override {
            Some(name) => name.clone(),
            None => crate::machine::hostname(),
        };
        let server_tls = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(cert), Some(key)) => {
                let ca = self.client_ca_file.as_deref();
                let ca = ca.ok_or_else(|| AgentError::Tls("--client-ca-file is missing".into()))?;
                Some(server_tls(cert, key, ca)?)
            }
            _ => None,
        };
        let root_dir = self.root_dir.clone();
        Ok(AgentOptions {
            node_name: node_name.to_lowercase(),
            node_ip: self.node_ip,
            log_dir: self
                .log_dir
                .clone()
                .unwrap_or_else(|| root_dir.join("logs")),
            root_dir,
            port: self.port,
            image_map: ImageMap(self.image_map.clone()),
            shim_command: default_shim_command(),
            server_tls,
            runtime: self.runtime,
            container_runtime_endpoint: self
                .container_runtime_endpoint
                .strip_prefix("unix://")
                .map_or_else(
                    |_| self.container_runtime_endpoint.clone(),
                    |p| Path::new("/").join(p),
                ),
        })
    }
}

/// Reads a server identity and the authority of those who may call it.
fn server_tls(
    cert: &Path,
    key: &Path,
    client_ca: &Path,
) -> Result<Arc<rustls::ServerConfig>, AgentError> {
    let bad = |path: &Path, error: &dyn std::fmt::Display| {
        AgentError::Tls(format!("{}: {error}", path.display()))
    };
    let certificates = |path: &Path| {
        CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| bad(path, &e))
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(client_ca)? {
        roots.add(certificate).map_err(|e| bad(client_ca, &e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|e| bad(client_ca, &e))?;
    let private_key = PrivateKeyDer::from_pem_file(key).map_err(|e| bad(key, &e))?;
    rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| AgentError::Tls(e.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(cert)?, private_key)
        .map(Arc::new)
        .map_err(|e| bad(cert, &e))
}

/// Runs the node agent until SIGINT or SIGTERM; containers outlive it.
pub fn run(args: &KubeletArgs) -> Result<(), AgentError> {
    let system = |source| AgentError::File {
        path: "the runtime".into(),
        source,
    };
    let options = args.options()?;
    crate::check(&options)?;
    let client = client::ClientConfig::load(args.kubeconfig.as_deref())
        .and_then(|config| client::Client::from_config(&config))
        .map_err(AgentError::Kubeconfig)?
        .named("kubelet");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system)?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
        let token = tokio_util::sync::CancellationToken::new();
        let (ready, _address) = tokio::sync::oneshot::channel();
        let work = crate::run(client, options, ready, token.clone());
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => return ended,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        token.cancel();
        work.await
    })
}

#[cfg(test)]
mod test;
