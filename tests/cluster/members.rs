//! The members of a cluster as processes: started on free ports or in network
//! namespaces of their own, signalled by pid, waited for by condition.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use futures::future::join_all;
use proto::etcdserverpb as pb;

use crate::client::{Client, runtime};
use crate::harness::{Program, free_address, signal, tool, until};
use crate::net::Lan;
use crate::target::Target;

/// A member: where it lives, and its process while it has one.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) client_url: String,
    pub(crate) peer_url: String,
    pub(crate) client: Client,
    /// Its data directory.
    pub(crate) data: PathBuf,
    /// What runs its program elsewhere, such as `ip netns exec`.
    prefix: Vec<String>,
    log: PathBuf,
    program: Option<Program>,
}

impl Member {
    /// Tells whether the process was started and not ended by us.
    pub(crate) fn is_up(&self) -> bool {
        self.program.is_some()
    }

    pub(crate) fn program(&mut self) -> &mut Program {
        self.program.as_mut().unwrap()
    }

    /// Stops its process without any chance to say goodbye.
    pub(crate) fn kill(&mut self) {
        self.program().kill();
        self.program = None;
    }

    /// Freezes it.
    pub(crate) fn freeze(&mut self) {
        signal(self.program().pid(), "STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&mut self) {
        signal(self.program().pid(), "CONT");
    }

    /// Asks it to end and waits until it did.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let ended = self.program().terminate();
        self.program = None;
        ended
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let ended = self.program().wait();
        self.program = None;
        ended
    }

    /// Returns all it ever logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns its metrics, as Prometheus would read them.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = crate::net::http_get(&self.client_url, "/metrics");
        let lines = text.lines().filter(|l| l.starts_with(name));
        lines
            .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// A cluster in a folder of its own.
pub(crate) struct Cluster {
    pub(crate) target: Target,
    pub(crate) members: Vec<Member>,
    flags: Vec<String>,
    lan: Option<Lan>,
    // Declared after the members: they die before their folder goes.
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts so many members on the loopback address and waits until each of
    /// them answers.
    pub(crate) fn start(target: Target, count: usize, flags: &[&str]) -> Self {
        let mut cluster = Self::planned(target, None, flags);
        for _ in 0..count {
            cluster.plan();
        }
        cluster.start_all();
        cluster
    }

    /// Starts three members, each in a network of its own.
    pub(crate) fn start_in(lan: Lan, target: Target, flags: &[&str]) -> Self {
        let mut cluster = Self::planned(target, Some(lan), flags);
        for _ in 0..3 {
            cluster.plan();
        }
        cluster.start_all();
        cluster
    }

    /// Prepares a cluster without members.
    pub(crate) fn planned(target: Target, lan: Option<Lan>, flags: &[&str]) -> Self {
        Self {
            target,
            members: Vec::new(),
            flags: flags.iter().map(|&f| f.to_owned()).collect(),
            lan,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Gives a member a name, addresses and a folder, and returns its place.
    pub(crate) fn plan(&mut self) -> usize {
        let at = self.members.len();
        let name = format!("m{at}");
        let (client_url, peer_url, prefix) = match &self.lan {
            Some(lan) => (lan.client_url(at), lan.peer_url(at), lan.prefix(at)),
            None => {
                let address = || format!("http://{}", free_address());
                (address(), address(), Vec::new())
            }
        };
        self.members.push(Member {
            client: Client::new(&client_url),
            data: self.folder.path().join(&name),
            log: self.folder.path().join(format!("{name}.log")),
            name,
            client_url,
            peer_url,
            prefix,
            program: None,
        });
        at
    }

    /// Starts all members as a new cluster.
    pub(crate) fn start_all(&mut self) {
        let all = self.members.iter();
        let all: Vec<String> = all.map(|m| format!("{}={}", m.name, m.peer_url)).collect();
        for at in 0..self.members.len() {
            self.spawn(
                at,
                &[
                    "--initial-cluster-state=new",
                    "--initial-cluster",
                    &all.join(","),
                ],
            );
        }
        self.await_healthy();
    }

    /// Starts one member; one that has data needs to know nothing else.
    pub(crate) fn spawn(&mut self, at: usize, more: &[&str]) {
        let member = &mut self.members[at];
        assert!(member.program.is_none(), "{} runs already", member.name);
        let mut command = self.target.command(&member.prefix);
        command
            .args(["--name", &member.name])
            .args(["--listen-client-urls", &member.client_url])
            .args(["--advertise-client-urls", &member.client_url])
            .args(["--listen-peer-urls", &member.peer_url])
            .args(["--initial-advertise-peer-urls", &member.peer_url])
            .arg("--data-dir")
            .arg(&member.data)
            .arg("--initial-cluster-token=keelson-test")
            .args(&self.flags)
            .args(more);
        member.program = Some(Program::spawn(&mut command, &member.log));
    }

    /// Starts a member that was stopped on its data.
    pub(crate) fn restart(&mut self, at: usize) {
        let all = self.members.iter();
        let all: Vec<String> = all.map(|m| format!("{}={}", m.name, m.peer_url)).collect();
        self.spawn(
            at,
            &[
                "--initial-cluster-state=new",
                "--initial-cluster",
                &all.join(","),
            ],
        );
    }

    /// Waits until every running member answers a linearizable read.
    pub(crate) fn await_healthy(&self) {
        for member in self.members.iter().filter(|m| m.is_up()) {
            until(&format!("{} to be healthy", member.name), || {
                let patience = std::time::Duration::from_secs(2);
                let read = member.client.get("health", false, patience);
                runtime().block_on(read).map_err(|e| e.to_string())
            });
        }
    }

    /// Asks all running members at once; the silent are left out.
    pub(crate) fn statuses(&self) -> BTreeMap<usize, pb::StatusResponse> {
        let running = self.members.iter().enumerate().filter(|(_, m)| m.is_up());
        let asked = running.map(|(at, m)| async move { Some((at, m.client.status().await.ok()?)) });
        let answers = runtime().block_on(join_all(asked));
        answers.into_iter().flatten().collect()
    }

    /// Returns the place of the member whom a majority follows.
    pub(crate) fn leader(&self) -> usize {
        until("a leader", || {
            let statuses = self.statuses();
            let ids = statuses.iter().map(|(at, s)| (*at, id(s)));
            let followed = |who: u64| statuses.values().filter(|s| s.leader == who).count();
            let needed = self.members.iter().filter(|m| m.is_up()).count() / 2 + 1;
            ids.into_iter()
                .find(|&(_, id)| followed(id) >= needed)
                .map(|(at, _)| at)
                .ok_or_else(|| format!("{statuses:?}"))
        })
    }

    /// Tells whether every running member follows one leader.
    pub(crate) fn whole(&self) -> Result<(), String> {
        let statuses = self.statuses();
        let up = self.members.iter().filter(|m| m.is_up()).count();
        let leaders: BTreeSet<u64> = statuses.values().map(|s| s.leader).collect();
        if statuses.len() == up && leaders.len() == 1 && !leaders.contains(&0) {
            Ok(())
        } else {
            Err(format!("{statuses:?}"))
        }
    }

    /// Waits until all running members are at one revision, and returns it.
    pub(crate) fn settled(&self) -> i64 {
        let up = self.members.iter().filter(|m| m.is_up()).count();
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

    /// Checks that all running members have the same hash at a revision.
    pub(crate) fn assert_same_hash(&self, revision: i64) {
        let running = self.members.iter().filter(|m| m.is_up());
        let hashes: Vec<(String, u32, i64)> = running
            .map(|m| {
                let hash = runtime().block_on(m.client.hash_kv(revision)).unwrap();
                (m.name.clone(), hash.hash, hash.compact_revision)
            })
            .collect();
        let same = hashes
            .windows(2)
            .all(|w| w[0].1 == w[1].1 && w[0].2 == w[1].2);
        assert!(same, "hashes differ at revision {revision}: {hashes:?}");
    }

    /// Runs etcdctl against the members at these places; splits at spaces.
    pub(crate) fn etcdctl(&self, at: &[usize], line: &str) -> Result<String, String> {
        let urls: Vec<&str> = at
            .iter()
            .map(|&i| self.members[i].client_url.as_str())
            .collect();
        let out = Command::new(tool("etcdctl").unwrap())
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &urls.join(","), "--command-timeout=10s"])
            .args(line.split_whitespace())
            .output()
            .unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if out.status.success() {
            Ok(said(&out.stdout))
        } else {
            Err(said(&out.stderr))
        }
    }

    /// Returns the network the members are in.
    pub(crate) fn lan(&self) -> &Lan {
        self.lan.as_ref().unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // What a failed test leaves behind, for whoever looks into it.
        let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("cluster-logs-{}", std::process::id()));
        let _ = fs::create_dir_all(&kept);
        for member in &self.members {
            let _ = fs::copy(&member.log, kept.join(format!("{}.log", member.name)));
        }
        eprintln!("the logs of the members are in {}", kept.display());
    }
}

/// Returns the id of the member that says this.
pub(crate) fn id(status: &pb::StatusResponse) -> u64 {
    status.header.as_ref().map_or(0, |h| h.member_id)
}

/// Returns the revision the member is at.
pub(crate) fn revision(status: &pb::StatusResponse) -> i64 {
    status.header.as_ref().map_or(0, |h| h.revision)
}
