//! A store, ours or a peer's, in a folder of its own: one member or several.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use proto::etcdserverpb::{self as pb, kv_client::KvClient, maintenance_client::MaintenanceClient};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tonic::transport::Channel;

use crate::cluster;
use crate::drive::Subject;

/// How long a member may take to come up or go down.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often a member that comes up is asked whether it has.
const PAUSE: Duration = Duration::from_millis(2);

/// What may be stored: more than any run writes.
const QUOTA_BYTES: u64 = 8 << 30;

pub(crate) struct Target {
    pub(crate) name: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
    members: Vec<Member>,
    /// The place of the member that led when all had come up.
    leader: usize,
}

#[derive(Default)]
struct Member {
    port: u16,
    peer_port: u16,
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
            members: vec![Member::default()],
            leader: 0,
        })
    }

    /// Lets it have so many members.
    pub(crate) fn with_members(mut self, count: usize) -> Self {
        self.members.resize_with(count, Member::default);
        self
    }

    /// Returns where the leader serves clients.
    pub(crate) fn url(&self) -> String {
        self.url_of(self.leader)
    }

    fn url_of(&self, at: usize) -> String {
        format!("http://127.0.0.1:{}", self.members[at].port)
    }

    fn data(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("data-{at}"))
    }

    /// Starts all members and waits until each answers.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        // The ports were free a moment ago, which is all that can be known.
        let mut held = Vec::new();
        for member in &mut self.members {
            for port in [&mut member.port, &mut member.peer_port] {
                let free = TcpListener::bind("127.0.0.1:0")?;
                *port = free.local_addr()?.port();
                held.push(free);
            }
        }
        drop(held);
        for at in 0..self.members.len() {
            self.spawn(at)?;
        }
        for at in 0..self.members.len() {
            self.await_answer(at).await?;
        }
        self.leader = self.find_leader().await?;
        Ok(())
    }

    /// Starts one member on whatever data it has.
    pub(crate) fn spawn(&mut self, at: usize) -> anyhow::Result<()> {
        let peers: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(nth, m)| format!("m{nth}=http://127.0.0.1:{}", m.peer_port))
            .collect();
        let peer_url = format!("http://127.0.0.1:{}", self.members[at].peer_port);
        let log = std::fs::File::create(self.folder.path().join(format!("log-{at}")))?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .args(["--name", &format!("m{at}")])
            .arg("--data-dir")
            .arg(self.data(at))
            .args(["--listen-client-urls", &self.url_of(at)])
            .args(["--advertise-client-urls", &self.url_of(at)])
            .args(["--listen-peer-urls", &peer_url])
            .args(["--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &peers.join(",")])
            .args(["--quota-backend-bytes", &QUOTA_BYTES.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.members[at].child = Some(child);
        Ok(())
    }

    /// Waits until a member answers a linearizable read.
    pub(crate) async fn await_answer(&self, at: usize) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !self.answers(at).await {
            if Instant::now() >= until {
                let log = self.folder.path().join(format!("log-{at}"));
                let log = std::fs::read_to_string(log).unwrap_or_default();
                bail!("{} does not answer:\n{log}", self.name);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn answers(&self, at: usize) -> bool {
        let Ok(channel) = self.connect_to(at).await else {
            return false;
        };
        let request = pb::RangeRequest {
            key: "\0".into(),
            ..pb::RangeRequest::default()
        };
        KvClient::new(channel).range(request).await.is_ok()
    }

    async fn find_leader(&self) -> anyhow::Result<usize> {
        for at in 0..self.members.len() {
            let status = self.status(at).await?;
            if status.header.is_some_and(|h| h.member_id == status.leader) {
                return Ok(at);
            }
        }
        bail!("{} has no leader", self.name)
    }

    pub(crate) async fn status(&self, at: usize) -> anyhow::Result<pb::StatusResponse> {
        let mut client = MaintenanceClient::new(self.connect_to(at).await?);
        Ok(client.status(pb::StatusRequest {}).await?.into_inner())
    }

    /// Connects to the leader.
    pub(crate) async fn connect(&self) -> anyhow::Result<Channel> {
        self.connect_to(self.leader).await
    }

    async fn connect_to(&self, at: usize) -> anyhow::Result<Channel> {
        let endpoint = Channel::from_shared(self.url_of(at))?.tcp_nodelay(true);
        Ok(endpoint.connect().await?)
    }

    /// Returns the place of a member that does not lead.
    pub(crate) fn follower(&self) -> usize {
        (self.leader + 1) % self.members.len()
    }

    /// Returns the processes that run.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        let running = self.members.iter().filter_map(|m| m.child.as_ref());
        running.filter_map(Child::id)
    }

    fn sum(&self, of: impl Fn(u32) -> anyhow::Result<u64>) -> anyhow::Result<u64> {
        self.pids().map(of).sum()
    }

    /// Returns the memory of all members.
    pub(crate) fn rss_mb(&self) -> anyhow::Result<u64> {
        self.sum(cluster::rss_mb)
    }

    /// Ends all members and waits until they have.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        for at in 0..self.members.len() {
            self.stop_member(at).await?;
        }
        Ok(())
    }

    pub(crate) async fn stop_member(&mut self, at: usize) -> anyhow::Result<()> {
        let Some(mut child) = self.members[at].child.take() else {
            return Ok(());
        };
        cluster::terminate(&mut child, PATIENCE).await?;
        Ok(())
    }

    /// Removes what the members, which must have ended, stored.
    pub(crate) fn clear(&self) -> anyhow::Result<()> {
        for at in 0..self.members.len() {
            std::fs::remove_dir_all(self.data(at))?;
        }
        Ok(())
    }
}

impl Subject for Target {
    fn cpu_us(&self) -> anyhow::Result<u64> {
        self.sum(cluster::cpu_us)
    }

    async fn syncs(&self) -> anyhow::Result<u64> {
        let mut syncs = 0;
        for member in &self.members {
            syncs += syncs_of(member.port).await?;
        }
        Ok(syncs)
    }

    fn data_bytes(&self) -> u64 {
        (0..self.members.len())
            .map(|at| taken(&self.data(at)))
            .sum()
    }

    fn forget_peak(&self) -> anyhow::Result<()> {
        self.pids().try_for_each(cluster::forget_peak)
    }

    fn peak_rss_mb(&self) -> anyhow::Result<u64> {
        self.sum(cluster::peak_rss_mb)
    }
}

/// Returns how often the member that serves there has synced the log and the rows.
pub(crate) async fn syncs_of(port: u16) -> anyhow::Result<u64> {
    const COUNTS: [&str; 2] = [
        "etcd_disk_wal_fsync_duration_seconds_count ",
        "etcd_disk_backend_commit_duration_seconds_count ",
    ];
    let mut syncs = 0;
    let text = http_get(SocketAddr::from(([127, 0, 0, 1], port)), "/metrics").await?;
    let counts = text
        .lines()
        .filter_map(|line| COUNTS.iter().find_map(|name| line.strip_prefix(name)));
    for count in counts {
        syncs += count.trim().parse::<f64>()? as u64;
    }
    Ok(syncs)
}

/// Asks a server over plain HTTP.
pub(crate) async fn http_get(server: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(server).await?;
    let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Adds up the blocks of all files below a folder.
pub(crate) fn taken(folder: &Path) -> u64 {
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

/// Has a store forget all that is past, and waits until it has.
pub(crate) async fn compact(channel: Channel) -> Result<(), tonic::Status> {
    let mut kv = KvClient::new(channel);
    let now = kv.range(pb::RangeRequest {
        key: "\0".into(),
        ..pb::RangeRequest::default()
    });
    let header = now.await?.into_inner().header;
    kv.compact(pb::CompactionRequest {
        revision: header.map_or(0, |header| header.revision),
        physical: true,
    })
    .await?;
    Ok(())
}
