//! The members of a cluster as processes: started on free ports or in network
//! namespaces of their own, signalled by pid, waited for by condition.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use futures::future::join_all;
use proto::etcdserverpb as pb;
use rustix::process::Signal;

use crate::client::{Client, runtime};
use crate::error::{Error, Result};
use crate::lan::Lan;
use crate::process::Process;
use crate::wait::until;

/// How long one question whether a member is healthy may take.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);

/// A program that serves etcd v3 with etcd's flags.
#[derive(Clone, Debug)]
pub struct Target {
    program: PathBuf,
    /// What comes before the flags, such as a subcommand.
    first: Option<&'static str>,
    /// Whether it is ours.
    pub ours: bool,
}

impl Target {
    /// Names a `keelson` program.
    pub fn keelson(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            first: Some("kvstore"),
            ours: true,
        }
    }

    /// Names a program of ours that runs a member with a subcommand of its own.
    pub fn built_in(program: impl Into<PathBuf>, first: &'static str) -> Self {
        Self {
            program: program.into(),
            first: Some(first),
            ours: true,
        }
    }

    /// Names an etcd.
    pub fn etcd(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            first: None,
            ours: false,
        }
    }

    /// Returns where the program is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Begins a command that runs a member; a prefix may put it somewhere else.
    fn command(&self, prefix: &[String]) -> Command {
        let program = self.program.as_os_str();
        let mut command = match prefix.split_first() {
            None => Command::new(program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.args(self.first);
        command
    }
}

/// A member: where it lives, and its process while it has one.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub client_url: String,
    /// Where the others reach it.
    pub peer_url: String,
    /// Where it listens for the others; differs if somebody stands between.
    pub peer_listen: String,
    /// Asks it what operators ask.
    pub client: Client,
    /// Its data directory.
    pub data: PathBuf,
    /// What its environment says besides the usual.
    pub env: Vec<(String, String)>,
    /// Whether it is a member no longer.
    pub removed: bool,
    /// What runs its program elsewhere, such as `ip netns exec`.
    prefix: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

impl Member {
    /// Tells whether the process was started and not ended by us.
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Returns its process.
    pub fn process(&mut self) -> Result<&mut Process> {
        let down = || Error::Unfit(format!("{} does not run", self.name));
        self.process.as_mut().ok_or_else(down)
    }

    /// Stops its process without any chance to say goodbye.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Freezes it.
    pub fn freeze(&mut self) -> Result<()> {
        self.process()?.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn thaw(&mut self) -> Result<()> {
        self.process()?.signal(Signal::CONT)
    }

    /// Asks it to end and waits until it did.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let ended = self.process()?.terminate()?;
        self.process = None;
        Ok(ended)
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let ended = self.process()?.wait()?;
        self.process = None;
        Ok(ended)
    }

    /// Returns how it ended, if it did by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let ended = self.process.as_mut()?.ended()?;
        self.process = None;
        Some(ended)
    }

    /// Returns all it ever logged.
    pub fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// A cluster in a folder of its own.
#[derive(Debug)]
pub struct Cluster {
    /// What the members run.
    pub target: Target,
    /// Everybody who ever was a member, in the order of their coming.
    pub members: Vec<Member>,
    flags: Vec<String>,
    lan: Option<Lan>,
    // Declared after the members: they die before their folder goes.
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts so many members, each in a network of its own if there is a lan, else
    /// on the loopback address, and waits until each of them answers.
    pub fn start(target: Target, count: usize, lan: Option<Lan>, flags: &[&str]) -> Result<Self> {
        let mut cluster = Self::planned(target, lan, flags)?;
        for _ in 0..count {
            cluster.plan()?;
        }
        cluster.start_all()?;
        Ok(cluster)
    }

    /// Prepares a cluster without members.
    pub fn planned(target: Target, lan: Option<Lan>, flags: &[&str]) -> Result<Self> {
        Ok(Self {
            target,
            members: Vec::new(),
            flags: flags.iter().map(|&f| f.to_owned()).collect(),
            lan,
            folder: tempfile::Builder::new()
                .prefix("faults-")
                .tempdir()
                .map_err(Error::io("a folder"))?,
        })
    }

    /// Gives a member a name, addresses and a folder, and returns its place.
    pub fn plan(&mut self) -> Result<usize> {
        let at = self.members.len();
        let name = format!("m{at}");
        let (client_url, peer_url, prefix) = match &self.lan {
            Some(lan) => {
                lan.admit(at)?;
                (lan.client_url(at), lan.peer_url(at), lan.prefix(at))
            }
            None => (free_url()?, free_url()?, Vec::new()),
        };
        self.members.push(Member {
            client: Client::new(&client_url),
            data: self.folder.path().join(&name),
            log: self.folder.path().join(format!("{name}.log")),
            name,
            client_url,
            peer_listen: peer_url.clone(),
            peer_url,
            env: Vec::new(),
            removed: false,
            prefix,
            process: None,
        });
        Ok(at)
    }

    /// Starts all members as a new cluster.
    pub fn start_all(&mut self) -> Result<()> {
        for at in 0..self.members.len() {
            self.restart(at)?;
        }
        self.await_healthy()
    }

    /// Starts one member; one that has data needs to know nothing else.
    pub fn spawn(&mut self, at: usize, more: &[&str]) -> Result<()> {
        let member = &mut self.members[at];
        if member.process.is_some() {
            return Err(Error::Unfit(format!("{} runs already", member.name)));
        }
        let mut command = self.target.command(&member.prefix);
        command
            .envs(member.env.iter().map(|(k, v)| (k, v)))
            .args(["--name", &member.name])
            .args(["--listen-client-urls", &member.client_url])
            .args(["--advertise-client-urls", &member.client_url])
            .args(["--listen-peer-urls", &member.peer_listen])
            .args(["--initial-advertise-peer-urls", &member.peer_url])
            .arg("--data-dir")
            .arg(&member.data)
            .arg("--initial-cluster-token=keelson-test")
            .args(&self.flags)
            .args(more);
        member.process = Some(Process::spawn(&mut command, &member.log)?);
        Ok(())
    }

    /// Starts a member as one of the first ones, or again on its data.
    pub fn restart(&mut self, at: usize) -> Result<()> {
        let all = self.members.iter();
        let all: Vec<String> = all.map(|m| format!("{}={}", m.name, m.peer_url)).collect();
        let all = all.join(",");
        self.spawn(
            at,
            &["--initial-cluster-state=new", "--initial-cluster", &all],
        )
    }

    /// Starts a member that was added to these others.
    pub fn join(&mut self, at: usize, others: &[usize]) -> Result<()> {
        let all = others.iter().chain([&at]).map(|&i| &self.members[i]);
        let all: Vec<String> = all.map(|m| format!("{}={}", m.name, m.peer_url)).collect();
        let all = all.join(",");
        let flags = [
            "--initial-cluster-state=existing",
            "--initial-cluster",
            &all,
        ];
        self.spawn(at, &flags)
    }

    /// Returns the places of the members whose processes run.
    pub fn running(&self) -> Vec<usize> {
        let all = 0..self.members.len();
        all.filter(|&at| self.members[at].is_up()).collect()
    }

    /// Returns the places of those who are members, running or not.
    pub fn current(&self) -> Vec<usize> {
        let all = 0..self.members.len();
        all.filter(|&at| !self.members[at].removed).collect()
    }

    /// Waits until every running member answers a linearizable read.
    pub fn await_healthy(&self) -> Result<()> {
        for at in self.running() {
            until(format!("m{at} to be healthy"), || self.answers(at))?;
        }
        Ok(())
    }

    /// Tells whether a member answers a linearizable read.
    pub fn answers(&self, at: usize) -> std::result::Result<(), String> {
        let client = &self.members[at].client;
        let read = runtime().block_on(client.get("health", false, HEALTH_PATIENCE));
        match read {
            Ok(_) => Ok(()),
            // Who asks who one is serves, too.
            Err(status) if status.code() == tonic::Code::InvalidArgument => Ok(()),
            Err(status) => Err(status.to_string()),
        }
    }

    /// Asks all running members at once; the silent are left out.
    pub fn statuses(&self) -> BTreeMap<usize, pb::StatusResponse> {
        let running = self.running().into_iter();
        let asked = running.map(|at| {
            let client = self.members[at].client.clone();
            async move { Some((at, client.status().await.ok()?)) }
        });
        let answers = runtime().block_on(join_all(asked));
        answers.into_iter().flatten().collect()
    }

    /// Returns the place of the member whom a majority follows.
    pub fn leader(&self) -> Result<usize> {
        until("a leader", || {
            let statuses = self.statuses();
            let followed = |who: u64| statuses.values().filter(|s| s.leader == who).count();
            let needed = self.running().len() / 2 + 1;
            let mut ids = statuses.iter().map(|(at, s)| (*at, id(s)));
            ids.find(|&(_, id)| followed(id) >= needed)
                .map(|(at, _)| at)
                .ok_or_else(|| format!("{statuses:?}"))
        })
    }

    /// Returns the id of a member.
    pub fn id_of(&self, at: usize) -> Result<u64> {
        let member = &self.members[at];
        until(format!("the id of {}", member.name), || {
            let status = runtime().block_on(member.client.status());
            status.map(|s| id(&s)).map_err(|e| e.to_string())
        })
    }

    /// Tells whether every running member follows one leader.
    pub fn whole(&self) -> std::result::Result<(), String> {
        let statuses = self.statuses();
        let leaders: BTreeSet<u64> = statuses.values().map(|s| s.leader).collect();
        if statuses.len() == self.running().len() && leaders.len() == 1 && !leaders.contains(&0) {
            Ok(())
        } else {
            Err(format!("{statuses:?}"))
        }
    }

    /// Waits until all running members are at one revision, and returns it.
    pub fn settled(&self) -> Result<i64> {
        let up = self.running().len();
        until("one revision on all members", || {
            let statuses = self.statuses();
            let mut revisions: Vec<i64> = statuses.values().map(revision).collect();
            let found = revisions.clone();
            revisions.dedup();
            match revisions[..] {
                [one] if found.len() == up => Ok(one),
                _ => Err(format!("{found:?} of {up} members")),
            }
        })
    }

    /// Returns each running member's hash at a revision, and what it compacted.
    pub fn hashes(&self, revision: i64) -> Result<Vec<(String, u32, i64)>> {
        let running = self.members.iter().filter(|m| m.is_up());
        let hashes = running.map(|m| {
            let hash = runtime().block_on(m.client.hash_kv(revision));
            let hash =
                hash.map_err(|e| Error::Refused(format!("hash of {}", m.name), Box::new(e)))?;
            Ok((m.name.clone(), hash.hash, hash.compact_revision))
        });
        hashes.collect()
    }

    /// Returns the network the members are in, if each has its own.
    pub fn lan(&self) -> Option<&Lan> {
        self.lan.as_ref()
    }

    /// Returns the folder of the cluster.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Copies the logs of all members into a folder.
    pub fn keep_logs(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        for member in self.members.iter().filter(|m| m.log.exists()) {
            fs::copy(&member.log, folder.join(format!("{}.log", member.name)))?;
        }
        Ok(())
    }
}

/// Returns the id of the member that says this.
pub fn id(status: &pb::StatusResponse) -> u64 {
    status.header.as_ref().map_or(0, |h| h.member_id)
}

/// Returns the revision the member is at.
pub fn revision(status: &pb::StatusResponse) -> i64 {
    status.header.as_ref().map_or(0, |h| h.revision)
}

/// Returns the URL of a port nobody has now, for programs that cannot take port 0.
fn free_url() -> Result<String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let free = free.map_err(Error::io("a free port"))?;
    Ok(format!("http://{free}"))
}
