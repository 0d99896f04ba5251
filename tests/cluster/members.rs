//! The clusters of the crate `faults` as these tests use them: a surprise ends
//! the test, and leaves the members' logs behind.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::Command;

pub(crate) use faults::cluster::{id, revision};
use faults::{Lan, Target};

use crate::harness::tool;

/// A cluster in a folder of its own.
pub(crate) struct Cluster(faults::Cluster);

impl Cluster {
    /// Starts so many members on the loopback address and waits until each of
    /// them answers.
    pub(crate) fn start(target: Target, count: usize, flags: &[&str]) -> Self {
        Self(faults::Cluster::start(target, count, None, flags).unwrap())
    }

    /// Starts three members, each in a network of its own.
    pub(crate) fn start_in(lan: Lan, target: Target, flags: &[&str]) -> Self {
        Self(faults::Cluster::start(target, 3, Some(lan), flags).unwrap())
    }

    /// Prepares a cluster without members.
    pub(crate) fn planned(target: Target) -> Self {
        Self(faults::Cluster::planned(target, None, &[]).unwrap())
    }

    pub(crate) fn plan(&mut self) -> usize {
        self.0.plan().unwrap()
    }

    pub(crate) fn spawn(&mut self, at: usize, more: &[&str]) {
        self.0.spawn(at, more).unwrap();
    }

    pub(crate) fn restart(&mut self, at: usize) {
        self.0.restart(at).unwrap();
    }

    pub(crate) fn start_all(&mut self) {
        self.0.start_all().unwrap();
    }

    pub(crate) fn await_healthy(&self) {
        self.0.await_healthy().unwrap();
    }

    pub(crate) fn leader(&self) -> usize {
        self.0.leader().unwrap()
    }

    pub(crate) fn settled(&self) -> i64 {
        self.0.settled().unwrap()
    }

    /// Checks that all running members have the same hash at a revision.
    pub(crate) fn assert_same_hash(&self, revision: i64) {
        let hashes = self.0.hashes(revision).unwrap();
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
}

impl Deref for Cluster {
    type Target = faults::Cluster;

    fn deref(&self) -> &faults::Cluster {
        &self.0
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut faults::Cluster {
        &mut self.0
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
        let _best_effort = self.0.keep_logs(&kept);
        eprintln!("the logs of the members are in {}", kept.display());
    }
}
