//! A `keelson up` of its own for a benchmark, and what it costs.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tonic::transport::Channel;

use crate::drive::Subject;
use crate::target;

/// How long a cluster may take to come up or go down.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clock ticks per second of `/proc/<pid>/stat`; fixed by Linux's user ABI.
const TICKS_PER_SECOND: u64 = 100;

/// Builds the program in the profile this benchmark was built in.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let folder = here.parent().context("the benchmark lies in no folder")?;
    let Some(cargo) = std::env::var_os("CARGO") else {
        bail!("run through `cargo run --release -p bench`, or give --keelson PATH");
    };
    let mut command = std::process::Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--package",
        "keelson",
        "--bin",
        "keelson",
    ]);
    if folder.ends_with("release") {
        command.arg("--release");
    }
    if !command.status().context("cannot run cargo")?.success() {
        bail!("keelson does not build");
    }
    Ok(folder.join("keelson"))
}

/// A running cluster in a temporary folder.
pub(crate) struct Cluster {
    child: Child,
    store_port: u16,
    lines: Lines<BufReader<ChildStdout>>,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster and waits until its node is ready.
    pub(crate) async fn up(keelson: &Path) -> anyhow::Result<Self> {
        Self::up_with(keelson, &[]).await
    }

    /// Starts only the API over its store, and waits until it serves.
    pub(crate) async fn api_only(keelson: &Path) -> anyhow::Result<Self> {
        Self::up_with(keelson, &["--api-only"]).await
    }

    /// Starts one with more flags and waits until it says that it is ready.
    async fn up_with(keelson: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut child = Command::new(keelson)
            .args(["up", "--port=0", "--store-port=0", "--data-dir"])
            .arg(folder.path().join("data"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", keelson.display()))?;
        let out = child.stdout.take().context("no standard output")?;
        let mut cluster = Self {
            child,
            store_port: 0,
            lines: BufReader::new(out).lines(),
            folder,
        };
        tokio::time::timeout(PATIENCE, cluster.await_ready())
            .await
            .context("the cluster did not become ready")??;
        Ok(cluster)
    }

    async fn await_ready(&mut self) -> anyhow::Result<()> {
        while let Some(line) = self.lines.next_line().await? {
            if let Some(port) = line.strip_prefix("store       http://127.0.0.1:") {
                self.store_port = port.parse()?;
            }
            if line.starts_with("ready in") {
                return Ok(());
            }
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        bail!("the cluster ended before it was ready:\n{log}")
    }

    /// Returns a client with the written kubeconfig, over TLS like any other.
    pub(crate) fn client(&self) -> anyhow::Result<client::Client> {
        Ok(client::Client::from_config(&self.config()?)?)
    }

    /// Returns what the written kubeconfig says.
    pub(crate) fn config(&self) -> anyhow::Result<client::ClientConfig> {
        Ok(client::ClientConfig::from_file(&self.kubeconfig())?)
    }

    /// Returns where the kubeconfig was written.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("data/kubeconfig")
    }

    /// Returns the server's resident memory in megabytes.
    pub(crate) fn rss_mb(&self) -> anyhow::Result<u64> {
        rss_mb(self.pid()?)
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the cluster ended")
    }

    /// Has the store forget what is past: the rates that are measured here would fill
    /// its quota sooner than the API server has it compacted.
    pub(crate) async fn forget_past(&self) -> anyhow::Result<()> {
        let url = format!("http://127.0.0.1:{}", self.store_port);
        let channel = Channel::from_shared(url)?.connect().await?;
        Ok(target::compact(channel).await?)
    }

    /// Ends the cluster and its pods.
    pub(crate) async fn down(mut self) -> anyhow::Result<()> {
        terminate(&mut self.child, PATIENCE).await?;
        Ok(())
    }
}

/// Asks a process to end and waits until it has.
pub(crate) async fn terminate(child: &mut Child, patience: Duration) -> anyhow::Result<ExitStatus> {
    let pid = child.id().context("it ended by itself")?.to_string();
    Command::new("kill").args(["-TERM", &pid]).status().await?;
    let ended = tokio::time::timeout(patience, child.wait()).await;
    Ok(ended.context("does not end")??)
}

impl Subject for Cluster {
    fn cpu_us(&self) -> anyhow::Result<u64> {
        cpu_us(self.pid()?)
    }

    async fn syncs(&self) -> anyhow::Result<u64> {
        target::syncs_of(self.store_port).await
    }

    fn data_bytes(&self) -> u64 {
        target::taken(&self.folder.path().join("data"))
    }

    fn forget_peak(&self) -> anyhow::Result<()> {
        forget_peak(self.pid()?)
    }

    fn peak_rss_mb(&self) -> anyhow::Result<u64> {
        peak_rss_mb(self.pid()?)
    }
}

/// Returns the CPU a process has used, in microseconds.
pub(crate) fn cpu_us(pid: u32) -> anyhow::Result<u64> {
    let stat = proc_file(pid, "stat")?;
    let after = stat.rsplit_once(')').context("no command in stat")?.1;
    let mut fields = after.split_whitespace().skip(11);
    let mut next =
        || -> anyhow::Result<u64> { Ok(fields.next().context("a short stat line")?.parse()?) };
    Ok((next()? + next()?) * 1_000_000 / TICKS_PER_SECOND)
}

/// Returns the CPU that everything on this machine has used, in microseconds.
pub(crate) fn busy_us() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("an empty /proc/stat")?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    // proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
    let busy = fields.iter().take(8).sum::<u64>() - fields.iter().skip(3).take(2).sum::<u64>();
    Ok(busy * 1_000_000 / TICKS_PER_SECOND)
}

/// Returns a process's resident memory in megabytes.
pub(crate) fn rss_mb(pid: u32) -> anyhow::Result<u64> {
    memory_mb(pid, "VmRSS:")
}

/// Begins to measure the peak of a process's memory anew (proc(5), `clear_refs`).
pub(crate) fn forget_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Returns the most memory a process had in use since [`forget_peak`].
pub(crate) fn peak_rss_mb(pid: u32) -> anyhow::Result<u64> {
    memory_mb(pid, "VmHWM:")
}

/// Returns a figure of a process's memory in megabytes.
pub(crate) fn memory_mb(pid: u32, name: &str) -> anyhow::Result<u64> {
    Ok(memory_kb(pid, name)? / 1024)
}

/// Returns a figure of a process's memory in kilobytes.
pub(crate) fn memory_kb(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = proc_file(pid, "status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with(name))
        .with_context(|| format!("no {name} in status"))?;
    let number = line.split_whitespace().nth(1).context("no number")?;
    Ok(number.parse()?)
}

fn proc_file(pid: u32, name: &str) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(format!("/proc/{pid}/{name}"))?)
}
