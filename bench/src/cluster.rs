//! A `keelson up` of its own for a benchmark, and what it costs.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

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
    lines: Lines<BufReader<ChildStdout>>,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster and waits until its node is ready.
    pub(crate) async fn up(keelson: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut child = Command::new(keelson)
            .args(["up", "--port=0", "--store-port=0", "--data-dir"])
            .arg(folder.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", keelson.display()))?;
        let out = child.stdout.take().context("no standard output")?;
        let mut cluster = Self {
            child,
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
            if line.starts_with("ready in") {
                return Ok(());
            }
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        bail!("the cluster ended before it was ready:\n{log}")
    }

    /// Returns a client with the written kubeconfig, over TLS like any other.
    pub(crate) fn client(&self) -> anyhow::Result<client::Client> {
        let path = self.folder.path().join("data/kubeconfig");
        let config = client::ClientConfig::from_file(&path)?;
        Ok(client::Client::from_config(&config)?)
    }

    /// Returns the CPU the server has used, in microseconds.
    pub(crate) fn cpu_us(&self) -> anyhow::Result<u64> {
        let stat = self.proc_file("stat")?;
        let after = stat.rsplit_once(')').context("no command in stat")?.1;
        let mut fields = after.split_whitespace().skip(11);
        let mut next =
            || -> anyhow::Result<u64> { Ok(fields.next().context("a short stat line")?.parse()?) };
        Ok((next()? + next()?) * 1_000_000 / TICKS_PER_SECOND)
    }

    /// Returns the server's resident memory in megabytes.
    pub(crate) fn rss_mb(&self) -> anyhow::Result<u64> {
        let status = self.proc_file("status")?;
        let line = status
            .lines()
            .find(|l| l.starts_with("VmRSS:"))
            .context("no VmRSS")?;
        let kb: u64 = line
            .split_whitespace()
            .nth(1)
            .context("no number")?
            .parse()?;
        Ok(kb / 1024)
    }

    fn proc_file(&self, name: &str) -> anyhow::Result<String> {
        let pid = self.child.id().context("the cluster ended")?;
        Ok(std::fs::read_to_string(format!("/proc/{pid}/{name}"))?)
    }

    /// Ends the cluster and its pods.
    pub(crate) async fn down(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().context("the cluster ended")?.to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await?;
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .context("does not end")??;
        Ok(())
    }
}
