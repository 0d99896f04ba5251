//! One container's directory: the record from which everything is recovered.
//!
//! | file | written by | says |
//! |---|---|---|
//! | `spec.json` | agent, before the directory appears | what was meant to run |
//! | `lock` | shim, held while it lives | whether a shim is alive |
//! | `shim.json` | shim, before it starts the process | which process the shim is |
//! | `state.json` | shim, after it started the process | which process the container is |
//! | `exit.json` | shim, last (or the agent for a shim that was killed) | how it ended |
//! | `attach` | shim, a socket | where those come in who attach |
//! | `rootfs/` | agent | links to the container's mounts; the default working directory |
//!
//! Every JSON file is written beside its place and renamed, so it is there
//! whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubelet_core::security::RunAs;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The variable that marks every process of a container with its id.
pub(crate) const CONTAINER_ID_VARIABLE: &str = "KEELSON_CONTAINER_ID";

/// What was meant to run: the intent, written before anything happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerSpec {
    pub(crate) id: String,
    pub(crate) pod_uid: String,
    pub(crate) pod_namespace: String,
    pub(crate) pod_name: String,
    pub(crate) grace_seconds: i64,
    pub(crate) container: String,
    pub(crate) attempt: u32,
    pub(crate) spec_hash: String,
    pub(crate) image: String,
    pub(crate) image_id: String,
    pub(crate) created_at: Timestamp,
    /// The command and its arguments; never on the shim's own command line.
    pub(crate) argv: Vec<String>,
    /// The whole environment.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) working_dir: PathBuf,
    pub(crate) log_path: PathBuf,
    /// Whom the command runs as, if not as the shim.
    #[serde(default)]
    pub(crate) run_as: Option<RunAs>,
    /// Whether the command reads what those attached type.
    #[serde(default)]
    pub(crate) stdin: bool,
    /// Whether its input ends with the first who typed.
    #[serde(default)]
    pub(crate) stdin_once: bool,
    /// Whether it runs on a terminal.
    #[serde(default)]
    pub(crate) tty: bool,
}

/// Which process the shim is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimRecord {
    pub(crate) pid: i32,
    pub(crate) start_ticks: u64,
    pub(crate) boot_id: String,
}

/// Which process the container is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateRecord {
    pub(crate) pid: i32,
    pub(crate) start_ticks: u64,
    pub(crate) started_at: Timestamp,
}

/// How the container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitRecord {
    pub(crate) exit_code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// One container's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerDir {
    path: PathBuf,
}

/// The exclusive right to a container: a shim's while it lives, the agent's
/// while it removes a dead container.
#[derive(Debug)]
pub(crate) struct ContainerLock {
    _file: File,
}

impl ContainerDir {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        ContainerDir { path: path.into() }
    }

    /// Makes the directory with its intent in one step: it appears whole.
    pub(crate) fn create(parent: &Path, spec: &ContainerSpec) -> io::Result<Self> {
        let staging = ContainerDir::new(parent.join(format!("{STAGING_PREFIX}{}", spec.id)));
        // The environment may hold secrets: nobody else may look inside.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&staging.path)?;
        staging.write("spec.json", spec)?;
        fs::create_dir_all(staging.rootfs())?;
        let path = parent.join(&spec.id);
        fs::rename(&staging.path, &path)?;
        Ok(ContainerDir { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.path.join("rootfs")
    }

    pub(crate) fn spec(&self) -> io::Result<ContainerSpec> {
        match self.read("spec.json")? {
            Some(spec) => Ok(spec),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    pub(crate) fn shim(&self) -> io::Result<Option<ShimRecord>> {
        self.read("shim.json")
    }

    pub(crate) fn state(&self) -> io::Result<Option<StateRecord>> {
        self.read("state.json")
    }

    pub(crate) fn exit(&self) -> io::Result<Option<ExitRecord>> {
        self.read("exit.json")
    }

    pub(crate) fn write_shim(&self, record: &ShimRecord) -> io::Result<()> {
        self.write("shim.json", record)
    }

    pub(crate) fn write_state(&self, record: &StateRecord) -> io::Result<()> {
        self.write("state.json", record)
    }

    pub(crate) fn write_exit(&self, record: &ExitRecord) -> io::Result<()> {
        self.write("exit.json", record)
    }

    /// Takes the lock, `None` if another process holds it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<ContainerLock>> {
        let path = self.path.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(ContainerLock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the directory. The lock must be held: a shim that is still about
    /// to start takes it afterwards, finds no `spec.json` and gives up.
    pub(crate) fn remove(&self, _lock: &ContainerLock) -> io::Result<()> {
        fs::remove_file(self.path.join("spec.json")).or_else(missing_is_fine)?;
        fs::remove_dir_all(&self.path).or_else(missing_is_fine)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> io::Result<()> {
        let staging = self.path.join(format!(".{name}"));
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&staging)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        fs::rename(staging, self.path.join(name))
    }
}

/// Prefix of directories that are not containers yet.
pub(crate) const STAGING_PREFIX: &str = ".new-";

pub(crate) fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound {
        Ok(())
    } else {
        Err(error)
    }
}
