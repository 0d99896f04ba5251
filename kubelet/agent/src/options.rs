//! What the agent is told when it is started.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::images::ImageMap;

/// Where containerd listens unless told otherwise.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// What runs containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RuntimeKind {
    /// Supervised local processes; needs nothing.
    #[default]
    Process,
    /// A container runtime behind a CRI socket.
    Cri,
}

/// What the agent is told when it is started.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The name of the Node object.
    pub node_name: String,
    /// The node's address, which is also its pods'.
    pub node_ip: IpAddr,
    /// Where pods and containers are kept; must not be shared.
    pub root_dir: PathBuf,
    /// Where logs are kept, as `pods/<ns>_<name>_<uid>/<container>/<n>.log`.
    pub log_dir: PathBuf,
    /// The port of the kubelet's server; 0 takes a free one.
    pub port: u16,
    /// What images mean under the `process` runtime.
    pub image_map: ImageMap,
    /// The command that starts a shim; the container's directory is appended.
    pub shim_command: Vec<OsString>,
    /// The kubelet's server identity and whom it answers; see
    /// [`crate::serving`]. Without it the agent does not start.
    pub server_tls: Option<Arc<rustls::ServerConfig>>,
    /// What runs containers.
    pub runtime: RuntimeKind,
    /// The socket of the CRI runtime.
    pub container_runtime_endpoint: PathBuf,
}

impl AgentOptions {
    /// Makes options with the defaults of `keelson up`: loopback address, a
    /// free port, logs beside the pods, shims from this very program.
    pub fn new(node_name: impl Into<String>, root_dir: impl Into<PathBuf>) -> Self {
        let root_dir = root_dir.into();
        AgentOptions {
            node_name: node_name.into(),
            node_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            log_dir: root_dir.join("logs"),
            root_dir,
            port: 0,
            image_map: ImageMap::default(),
            shim_command: default_shim_command(),
            server_tls: None,
            runtime: RuntimeKind::default(),
            container_runtime_endpoint: PathBuf::from(CONTAINERD_SOCKET),
        }
    }
}

/// Returns `[this program, "container-shim"]`.
pub fn default_shim_command() -> Vec<OsString> {
    let program = std::env::current_exe().unwrap_or_else(|_| Path::new("/proc/self/exe").into());
    vec![program.into_os_string(), "container-shim".into()]
}
