//! One member of a store, ours or a peer's, in a folder of its own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use proto::etcdserverpb::{self as pb, kv_client::KvClient};
use tokio::process::{Child, Command};
use tonic::transport::Channel;

use crate::cluster;

/// How long a member may take to come up or go down.
const PATIENCE: Duration = Duration::from_secs(180);

/// What may be stored: more than any run writes.
const QUOTA_BYTES: u64 = 8 << 30;

pub(crate) struct Target {
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Target {
    pub(crate) fn keelson(program: &Path) -> anyhow::Result<Self> {
        Self::new("keelson", program, vec!["kvstore".to_owned()])
    }

    /// Reads `etcd=PATH`.
    pub(crate) fn peer(peer: &str) -> anyhow::Result<Self> {
        let (name, path) = peer.split_once('=').context("--peer wants NAME=PATH")?;
        Self::new(name, Path::new(path), Vec::new())
    }

    fn new(name: &str, program: &Path, arguments: Vec<String>) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments,
            folder: tempfile::tempdir()?,
            port: 0,
            child: None,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts the member and waits until it answers.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        // The ports were free a moment ago, which is all that can be known.
        let free = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        self.port = free[0].local_addr()?.port();
        let peers = format!("http://127.0.0.1:{}", free[1].local_addr()?.port());
        drop(free);
        let log = std::fs::File::create(self.folder.path().join("log"))?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .arg("--data-dir")
            .arg(self.folder.path().join("data"))
            .args(["--listen-client-urls", &self.url()])
            .args(["--advertise-client-urls", &self.url()])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .args(["--quota-backend-bytes", &QUOTA_BYTES.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        let ready = async {
            while !self.answers().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, ready).await.is_err() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            bail!("{} does not answer:\n{log}", self.name);
        }
        Ok(())
    }

    /// Says whether a linearizable read succeeds.
    async fn answers(&self) -> bool {
        let Ok(channel) = self.connect().await else {
            return false;
        };
        let request = pb::RangeRequest {
            key: "\0".into(),
            ..pb::RangeRequest::default()
        };
        KvClient::new(channel).range(request).await.is_ok()
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Channel> {
        Ok(Channel::from_shared(self.url())?.connect().await?)
    }

    pub(crate) fn cpu_us(&self) -> anyhow::Result<u64> {
        cluster::cpu_us(self.pid()?)
    }

    pub(crate) fn rss_mb(&self) -> anyhow::Result<u64> {
        cluster::rss_mb(self.pid()?)
    }

    /// Returns the bytes its files take on disk.
    pub(crate) fn data_bytes(&self) -> u64 {
        taken(&self.folder.path().join("data"))
    }

    fn pid(&self) -> anyhow::Result<u32> {
        let child = self.child.as_ref().context("it was not started")?;
        child.id().context("it ended")
    }

    /// Returns the most memory it had in use since [`Target::forget_peak`].
    pub(crate) fn peak_rss_mb(&self) -> anyhow::Result<u64> {
        cluster::memory_mb(self.pid()?, "VmHWM:")
    }

    /// Begins to measure the peak of memory anew (proc(5), `clear_refs`).
    pub(crate) fn forget_peak(&self) -> anyhow::Result<()> {
        let path = format!("/proc/{}/clear_refs", self.pid()?);
        std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
    }

    /// Ends the member and waits until it has.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        let pid = self.pid()?.to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await?;
        if let Some(mut child) = self.child.take() {
            tokio::time::timeout(PATIENCE, child.wait())
                .await
                .context("does not end")??;
        }
        Ok(())
    }
}

/// Adds up the blocks of all files below a folder.
fn taken(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => taken(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_gone) => 0,
        })
        .sum()
}
