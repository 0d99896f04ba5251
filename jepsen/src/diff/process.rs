//! Starts a member of either kind: own folder, own ports, the same flags.

use std::{
    fs::File,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use tempfile::TempDir;

/// A program that serves etcd v3 with etcd's flags.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    /// What comes before the flags, such as a subcommand.
    pub(crate) first: Vec<String>,
}

/// Largest request both accept: small, so that programs reach it cheaply.
pub(crate) const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Most operations in a transaction both accept; small for the same reason.
pub(crate) const TXN_OPS_MAX: usize = 16;

/// What both are told besides their ports. The ids of cluster and member come from
/// these, so they must come out the same. A short election timeout makes the start
/// quick and the shortest lease one second.
fn flags() -> Vec<String> {
    let peer = "http://127.0.0.1:2380";
    vec![
        "--name=default".to_owned(),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--heartbeat-interval=10".to_owned(),
        "--election-timeout=100".to_owned(),
        format!("--max-request-bytes={REQUEST_BYTES_MAX}"),
        format!("--max-txn-ops={TXN_OPS_MAX}"),
        "--log-level=warn".to_owned(),
        // The weakest hash there is: programs change passwords all the time.
        "--bcrypt-cost=4".to_owned(),
    ]
}

/// A running member; killed, and its data removed, when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    folder: TempDir,
    pub(crate) endpoint: String,
}

impl Process {
    /// Starts a member with no data. It does not serve yet.
    pub(crate) fn start(launch: &Launch) -> anyhow::Result<Self> {
        let folder = folder()?;
        let log = File::create(folder.path().join("log"))?;
        let (client, peer) = (free_port()?, free_port()?);
        let endpoint = format!("http://127.0.0.1:{client}");
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.first)
            .args(flags())
            .arg(format!(
                "--data-dir={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--listen-client-urls={endpoint}"))
            .arg(format!("--advertise-client-urls={endpoint}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // What the environment says to one it would say to both, but not the same.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(name);
            }
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", launch.program.display()))?;
        Ok(Self {
            child,
            folder,
            endpoint,
        })
    }

    /// Says how it ended if it did, with the end of its log.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("{status}; its log ends:\n{}", self.log_tail()))
    }

    /// Returns the last lines it logged.
    pub(crate) fn log_tail(&self) -> String {
        const LINES: usize = 20;
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that is gone already is as good as killed.
        if self.child.kill().is_ok() {
            let _reaped = self.child.wait();
        }
    }
}

/// Makes a folder in memory where there is one: neither program's disk is tested.
fn folder() -> std::io::Result<TempDir> {
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("jepsen-");
        builder
    };
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => builder()
            .tempdir_in(memory)
            .or_else(|_full| builder().tempdir()),
        false => builder().tempdir(),
    }
}

/// Returns a port that was free a moment ago. Should somebody else take it first,
/// the start fails and is tried again.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
