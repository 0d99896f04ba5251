//! The flags of `keelson kubelet`, named as the kubelet's where it has them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::AgentError;
use crate::images::{ImageMap, ImageMapping};
use crate::options::{AgentOptions, CONTAINERD_SOCKET, RuntimeKind, default_shim_command};
use crate::serving::{self, Identity};

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
    /// The server's certificate [default: a self-signed one, in pki in the root directory].
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The server's private key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Who may call the server: clients with a certificate of this authority
    /// [default: the cluster's, as the kubeconfig has it].
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
}

impl KubeletArgs {
    /// Turns flags into options, still without the server's identity.
    pub fn options(&self) -> Result<AgentOptions, AgentError> {
        let node_name = match &self.hostname_override {
            Some(name) => name.clone(),
            None => crate::machine::hostname(),
        };
        let root_dir = self.root_dir.clone();
        Ok(AgentOptions {
            server_tls: None,
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

    /// Makes the TLS configuration of a node's server from the flags and the
    /// authority the kubeconfig names.
    pub fn server_tls(
        &self,
        node_name: &str,
        cluster_ca: Option<&[u8]>,
    ) -> Result<Arc<rustls::ServerConfig>, AgentError> {
        let (client_ca, origin) = match (&self.client_ca_file, cluster_ca) {
            (Some(path), _) => {
                let pem = std::fs::read(path).map_err(AgentError::file(path))?;
                (pem, path.as_path())
            }
            (None, Some(pem)) => (pem.to_owned(), Path::new("the kubeconfig's authority")),
            (None, None) => return Err(AgentError::NoClientCa),
        };
        let identity = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(cert), Some(key)) => Identity::from_files(cert, key)?,
            _ => {
                let ip = self.node_ip.to_string();
                let names = [node_name.to_owned(), ip, "localhost".to_owned()];
                Identity::self_signed(&self.root_dir.join("pki"), &names)?
            }
        };
        serving::server_config(identity, &client_ca, origin)
    }
}

/// Runs the node agent until SIGINT or SIGTERM; containers outlive it.
pub fn run(args: &KubeletArgs) -> Result<(), AgentError> {
    let system = |source| AgentError::File {
        path: "the runtime".into(),
        source,
    };
    let config =
        client::ClientConfig::load(args.kubeconfig.as_deref()).map_err(AgentError::Kubeconfig)?;
    let mut options = args.options()?;
    crate::check(&options)?;
    let tls = args.server_tls(&options.node_name, config.ca_pem.as_deref())?;
    options.server_tls = Some(tls);
    let client = client::Client::from_config(&config)
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
