//! What the agent asks of whatever runs containers.
//!
//! One implementation today, [`crate::process`]; CRI is to follow behind the
//! same trait. A runtime pushes its own events (an evented PLEG); the relist is
//! a backstop, not the mechanism.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kubelet_core::runtime::ContainerInstance;
use kubelet_core::security::RunAs;
use tokio::net::TcpStream;

use crate::images::{ImageError, ResolvedImage};
use crate::session::{Session, Wanted};

/// Everything a container needs to start, all references resolved.
#[derive(Clone, Debug)]
pub struct StartRequest {
    /// The pod's UID.
    pub pod_uid: String,
    /// The pod's namespace.
    pub pod_namespace: String,
    /// The pod's name.
    pub pod_name: String,
    /// The grace the container is given if its pod vanishes.
    pub grace_seconds: i64,
    /// The container's name.
    pub container: String,
    /// How many instances came before.
    pub attempt: u32,
    /// Hash of the spec it is started from.
    pub spec_hash: String,
    /// The image as the spec names it.
    pub image: String,
    /// What the image came to.
    pub resolved: ResolvedImage,
    /// `command` of the spec, references expanded.
    pub command: Vec<String>,
    /// `args` of the spec, references expanded.
    pub args: Vec<String>,
    /// Environment of the spec, resolved.
    pub env: Vec<(String, String)>,
    /// `workingDir` of the spec.
    pub working_dir: Option<String>,
    /// The host name the container should see.
    pub hostname: String,
    /// Its mounts.
    pub mounts: Vec<Mount>,
    /// Whom it runs as, if not as the agent.
    pub run_as: Option<RunAs>,
    /// Whether it reads what those attached to it type.
    pub stdin: bool,
    /// Whether its input ends with the first who typed.
    pub stdin_once: bool,
    /// Whether it runs on a terminal.
    pub tty: bool,
}

/// A directory or file a container expects at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The volume's name.
    pub volume: String,
    /// Where the container expects it.
    pub path: String,
    /// Where it is.
    pub source: PathBuf,
}

/// A container instance with the pod it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodContainer {
    /// The pod's UID.
    pub pod_uid: String,
    /// The pod's namespace.
    pub pod_namespace: String,
    /// The pod's name.
    pub pod_name: String,
    /// The grace recorded when it was started.
    pub grace_seconds: i64,
    /// The instance.
    pub instance: ContainerInstance,
}

/// What a command run inside a container came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit code, `None` if it was ended for taking too long.
    pub exit_code: Option<i32>,
    /// The beginning of what it wrote to both streams.
    pub output: String,
}

/// Why a runtime could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// It knows no such container.
    #[error("container {0} not found")]
    NotFound(String),
    /// The container does not run.
    #[error("container {0} is not running")]
    NotRunning(String),
    /// The container still runs and cannot be removed.
    #[error("container {0} is still running")]
    StillRunning(String),
    /// A file or directory could not be used.
    #[error("{path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The shim could not be started.
    #[error("cannot start the container's shim {program}: {source}")]
    Shim {
        /// The shim's program.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The shim did not answer.
    #[error("the container's shim did not answer: {0}")]
    ShimSilent(String),
    /// The agent is ending and starts nothing any more.
    #[error("the agent is ending")]
    Closed,
    /// A command could not be run inside the container.
    #[error("{0}")]
    Exec(String),
}

/// Whatever runs containers.
pub trait Runtime: Send + Sync + 'static {
    /// Returns name and version as the node reports them.
    fn version(&self) -> String;

    /// Finds out what an image means here.
    fn resolve_image(&self, image: &str, has_command: bool) -> Result<ResolvedImage, ImageError>;

    /// Starts a container. A command that cannot be run is not an error: the
    /// instance comes back exited, with reason `StartError`.
    fn start(
        &self,
        request: StartRequest,
    ) -> BoxFuture<'_, Result<ContainerInstance, RuntimeError>>;

    /// Asks a container to end and kills it when the grace is over; returns
    /// once it is gone. A second call may only shorten the grace.
    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Removes an ended container with its logs.
    fn remove(&self, id: &str) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Lists every container known, after looking again.
    fn relist(&self) -> BoxFuture<'_, Vec<PodContainer>>;

    /// Runs a command beside a container, in its environment.
    fn exec(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<ExecOutput, RuntimeError>>;

    /// Runs a command beside a container, in its environment, with somebody at
    /// the other end.
    fn run(
        &self,
        id: &str,
        command: Vec<String>,
        wanted: Wanted,
    ) -> BoxFuture<'_, Result<Session, RuntimeError>>;

    /// Joins a running container: hears what it writes from now on, types what
    /// it reads.
    fn attach(&self, id: &str, wanted: Wanted) -> BoxFuture<'_, Result<Session, RuntimeError>>;

    /// Connects to a port of a pod, as from inside it.
    fn connect(&self, pod_uid: &str, port: u16) -> BoxFuture<'_, io::Result<TcpStream>>;

    /// Returns where a container's log is.
    fn log_path(&self, id: &str) -> Option<PathBuf>;

    /// Refuses further starts and waits for those under way.
    fn close(&self) -> BoxFuture<'_, ()>;

    /// Reports whether a container's log may still grow.
    fn is_alive(&self, id: &str) -> bool;
}

/// Returns the current time. The only clock of the agent.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
