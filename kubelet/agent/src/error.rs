//! Why the agent cannot start or go on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the agent cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// `--runtime=cri` and nothing listens at the socket.
    #[error(
        "no container runtime at {socket}: start containerd (or name its socket with \
         --container-runtime-endpoint), or run pods as local processes with --runtime=process"
    )]
    NoRuntimeSocket {
        /// The socket looked for.
        socket: PathBuf,
    },
    /// `--runtime=cri` and a socket is there, but this version cannot use it.
    #[error(
        "the runtime socket {socket} exists, but this version of keelson does not speak CRI \
         yet: use --runtime=process"
    )]
    RuntimeUnsupported {
        /// The socket found.
        socket: PathBuf,
    },
    /// Another agent runs on the same directory.
    #[error(
        "{root} is in use by another kubelet (it holds {lock}): stop it or choose another --root-dir"
    )]
    RootInUse {
        /// The root directory.
        root: PathBuf,
        /// The lock file.
        lock: PathBuf,
    },
    /// The server's port cannot be bound.
    #[error("cannot listen on {address}: {source} (choose another with --port)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A file or directory cannot be used.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A flag's value makes no sense.
    #[error("{0}")]
    Flag(String),
    /// The TLS files do not make a server.
    #[error("TLS configuration: {0}")]
    Tls(String),
    /// Nothing says who may call the kubelet's server.
    #[error(
        "the kubeconfig names no certificate authority, so nothing says who may read this \
         node's logs: name the authority of the API server's client certificate with \
         --client-ca-file"
    )]
    NoClientCa,
    /// The options name no identity for the kubelet's server.
    #[error("the kubelet's server has no TLS identity: it does not serve without one")]
    NoServerIdentity,
    /// The node could not be registered.
    #[error("cannot register node {node}: {source}")]
    Register {
        /// The node's name.
        node: String,
        /// Why not.
        source: client::Error,
    },
    /// The API server cannot be reached as the kubeconfig says.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[source] client::Error),
    /// A runtime operation failed.
    #[error(transparent)]
    Runtime(#[from] crate::runtime::RuntimeError),
}

impl AgentError {
    /// Wraps an I/O error with the path it concerns.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> AgentError {
        let path = path.into();
        move |source| AgentError::File { path, source }
    }
}
