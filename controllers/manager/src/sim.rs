//! The level-triggered harness: every controller at once, in a world whose watches
//! lose and repeat events and whose process dies at any write, under a seed.
//!
//! Whatever happens on the way, once the faults stop the cluster must come to the
//! same end as without them. The controllers are the real ones; only caches, API
//! and clock are of the simulation.

mod agents;
mod http;
mod process;
mod rng;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use plan::Propagation;
use serde_json::Value;

use self::agents::{Deed, NODES};
use self::process::{Fate, Process};
use self::rng::Rng;
use self::server::{Server, is_deleting};

/// Bounds the steps of the calm after the faults; a world that still moves then
/// does not converge.
const CALM_STEPS_MAX: usize = 60_000;
/// Is for how long timers are followed at the end: longer than every wait that may
/// hold a decision (expectations 5 min, tolerations 5 min, deadlines 10 min).
const CALM_TIME: SignedDuration = SignedDuration::from_secs(20 * 60);
/// Is the pace of time, at which nodes report.
const TICK: SignedDuration = SignedDuration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    None,
    /// Watches lose and repeat events.
    Watches,
    /// The process dies at a write, and watches misbehave.
    Crashes,
}

struct Cluster {
    server: Arc<Server>,
    process: Process,
    rng: Rng,
    faults: Faults,
    alive: Vec<&'static str>,
    /// Is the greatest size each ReplicaSet was ever asked to have.
    asked: BTreeMap<String, i64>,
    crashes: u64,
}

impl Cluster {
    fn new(seed: u64, faults: Faults) -> Self {
        let server = Arc::new(Server::new());
        agents::bootstrap(&mut server.lock());
        let mut rng = Rng::new(seed);
        let process = Process::start(&server, &mut rng, None);
        let alive = NODES.to_vec();
        Self {
            server,
            process,
            rng,
            faults,
            alive,
            asked: BTreeMap::new(),
            crashes: 0,
        }
    }

    /// Does the deeds one after another with so many steps of everything between.
    fn play(&mut self, deeds: &[Deed]) {
        if self.faults == Faults::Crashes {
            self.restart();
        }
        for deed in deeds {
            for _ in 0..self.rng.below(120) {
                self.step();
            }
            if let Deed::LoseNode(lost) = deed {
                self.alive.retain(|node| node != lost);
                self.settle(SignedDuration::from_secs(600));
            }
            agents::perform(&mut self.server.lock(), deed);
        }
    }

    fn restart(&mut self) {
        let crash_after = (self.faults == Faults::Crashes).then(|| self.rng.below(25) as u64);
        self.process = Process::start(&self.server, &mut self.rng, crash_after);
        self.crashes += 1;
    }

    fn fate(&mut self) -> Fate {
        match (self.faults, self.rng.below(10)) {
            (Faults::None, _) | (_, 4..) => Fate::Delivered,
            (_, 0..2) => Fate::Repeated,
            _ => Fate::Lost,
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..8 => {
                let fate = self.fate();
                self.process.deliver(&mut self.rng, fate);
            }
            8..15 => {
                self.process.reconcile(&mut self.rng);
            }
            15..18 => {
                agents::step(&mut self.server.lock(), &self.alive, &mut self.rng);
            }
            18 if self.faults != Faults::None && self.rng.chance(20) => {
                self.process.relist(false);
            }
            _ => {
                let by = SignedDuration::from_millis(200);
                agents::pass_time(&mut self.server.lock(), by, &[]);
            }
        }
        if self.process.fuse.lock().unwrap().blown {
            self.restart();
        }
        self.check_no_storm();
    }

    /// Without crashes, expectations keep a set from ever having more pods than it
    /// was asked for: a cache that is behind is not acted on.
    fn check_no_storm(&mut self) {
        let server = self.server.lock();
        let mut active: BTreeMap<String, i64> = BTreeMap::new();
        for (_, pod) in server.of("pods") {
            let ended = matches!(
                pod["status"]["phase"].as_str(),
                Some("Failed" | "Succeeded")
            );
            if let Some(owner) = pod["metadata"]["ownerReferences"][0]["uid"].as_str()
                && !ended
                && !is_deleting(pod)
            {
                *active.entry(owner.to_owned()).or_default() += 1;
            }
        }
        for (_, set) in server.of("replicasets") {
            let uid = set["metadata"]["uid"].as_str().unwrap().to_owned();
            let size = set["spec"]["replicas"].as_i64().unwrap();
            let asked = self.asked.entry(uid.clone()).or_default();
            *asked = size.max(*asked);
            let have = active.get(&uid).copied().unwrap_or(0);
            assert!(
                self.faults != Faults::None || have <= *asked,
                "{} has {have} pods and was never asked for more than {asked}",
                set["metadata"]["name"]
            );
        }
    }

    /// Ends the faults and follows events and timers until nothing moves.
    fn settle(&mut self, time: SignedDuration) {
        let faults = std::mem::replace(&mut self.faults, Faults::None);
        if faults == Faults::Crashes {
            self.restart();
        }
        let deadline = self.server.lock().now.checked_add(time).unwrap();
        for _ in 0..CALM_STEPS_MAX {
            let moved = self.process.relist(true)
                | self.process.deliver(&mut self.rng, Fate::Delivered)
                | self.process.reconcile(&mut self.rng)
                | agents::step(&mut self.server.lock(), &self.alive, &mut self.rng);
            if moved {
                continue;
            }
            let now = self.server.lock().now;
            if now >= deadline {
                self.faults = faults;
                return;
            }
            let timer = self
                .process
                .next_timer()
                .map_or(TICK, |at| at.duration_since(now));
            let by = timer.clamp(SignedDuration::from_millis(1), TICK);
            agents::pass_time(&mut self.server.lock(), by, &self.alive);
        }
        panic!("does not settle:\n{}", self.process.waiting());
    }

    /// Tells what users would see, without what may differ from run to run.
    fn portrait(&self) -> String {
        let server = self.server.lock();
        let mut lines = Vec::new();
        for ((gvr, namespace, name), object) in &server.objects {
            let line = match gvr.resource.as_str() {
                "pods" => pod_line(object),
                "replicasets" => set_line(object),
                "deployments" => deployment_line(object),
                "nodes" => format!(
                    "{} {}",
                    object["spec"]["taints"], object["status"]["conditions"][0]["status"]
                ),
                "leases" => continue,
                _ => name.clone(),
            };
            // Old sets are history: which there are depends on what was seen.
            if !line.is_empty() {
                lines.push(format!(
                    "{} {namespace} {line} {}",
                    gvr.resource,
                    is_deleting(object)
                ));
            }
        }
        lines.sort();
        lines.join("\n")
    }

    /// Checks what must hold at rest whatever the history.
    fn check_rest(&self, run: &str) {
        let server = self.server.lock();
        let uids: Vec<&str> = server
            .objects
            .values()
            .filter_map(|object| object["metadata"]["uid"].as_str())
            .collect();
        for ((gvr, _, name), object) in &server.objects {
            for owner in object["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let uid = owner["uid"].as_str().unwrap();
                assert!(
                    uids.contains(&uid),
                    "{run}: {} {name} belongs to {uid}, which is gone",
                    gvr.resource
                );
            }
        }
        for (_, set) in server.of("replicasets") {
            let current = set["status"]["replicas"].as_i64().unwrap_or(0);
            assert_eq!(
                set["spec"]["replicas"].as_i64(),
                Some(current),
                "{}",
                set["metadata"]["name"]
            );
        }
    }
}

fn pod_line(pod: &Value) -> String {
    let owner = pod["metadata"]["ownerReferences"][0]["name"]
        .as_str()
        .unwrap_or("-");
    let image = &pod["spec"]["containers"][0]["image"];
    let ready = &pod["status"]["conditions"][0]["status"];
    match pod["status"]["phase"].as_str() {
        // Ended pods are kept for people to look at.
        Some("Failed") => String::new(),
        phase => format!("{owner} {image} {phase:?} ready {ready}"),
    }
}

fn set_line(set: &Value) -> String {
    if set["spec"]["replicas"] == 0 {
        return String::new();
    }
    let status = &set["status"];
    format!(
        "{} {} {} {}",
        set["metadata"]["name"],
        status["replicas"],
        status["readyReplicas"],
        status["availableReplicas"]
    )
}

fn deployment_line(deployment: &Value) -> String {
    let status = &deployment["status"];
    let conditions: BTreeMap<&str, String> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            (
                c["type"].as_str().unwrap(),
                format!("{} {}", c["status"], c["reason"]),
            )
        })
        .collect();
    let observed = status["observedGeneration"] == deployment["metadata"]["generation"];
    format!(
        "{} {} {} {} {observed} {conditions:?}",
        deployment["metadata"]["name"],
        status["replicas"],
        status["updatedReplicas"],
        status["availableReplicas"],
    )
}

fn deployment(namespace: &'static str, name: &'static str, replicas: i32) -> Deed {
    Deed::Deployment {
        namespace,
        name,
        replicas,
        strategy: "RollingUpdate",
    }
}

fn delete(
    resource: &'static str,
    namespace: &'static str,
    name: &'static str,
    how: Propagation,
) -> Deed {
    Deed::Delete {
        resource,
        namespace,
        name,
        how,
    }
}

/// Runs a scenario without faults, then with them under many seeds: the end must
/// be the same.
fn converges(deeds: &[Deed], seeds: u64) {
    // A long run: KEELSON_SIM_SEEDS=200 cargo test -p manager sim::
    let asked = std::env::var("KEELSON_SIM_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let seeds = asked.unwrap_or(seeds);
    let end = |seed: u64, faults: Faults| {
        let mut cluster = Cluster::new(seed, faults);
        cluster.play(deeds);
        cluster.settle(CALM_TIME);
        cluster.check_rest(&format!("seed {seed}, {faults:?}"));
        (cluster.portrait(), cluster.crashes)
    };
    let (expect, _) = end(0, Faults::None);
    assert!(!expect.is_empty());
    let mut crashes = 0;
    for seed in 0..seeds {
        for faults in [Faults::None, Faults::Watches, Faults::Crashes] {
            let (found, crashed) = end(seed, faults);
            crashes += crashed;
            assert_eq!(found, expect, "seed {seed}, {faults:?}");
        }
    }
    assert!(
        crashes > seeds,
        "the process was to die now and then: {crashes}"
    );
}

#[test]
fn rollouts_converge() {
    converges(
        &[
            deployment("default", "web", 3),
            Deed::Scale("web", 5),
            Deed::Image("web", "v2"),
            Deed::Scale("web", 2),
            Deed::Image("web", "v3"),
            Deed::Image("web", "v2"),
            Deed::Scale("web", 4),
        ],
        6,
    );
}

#[test]
fn recreate_converges() {
    converges(
        &[
            Deed::Deployment {
                namespace: "default",
                name: "one",
                replicas: 3,
                strategy: "Recreate",
            },
            Deed::Image("one", "v2"),
            Deed::Scale("one", 1),
            Deed::Image("one", "v3"),
        ],
        5,
    );
}

#[test]
fn deletions_converge() {
    converges(
        &[
            deployment("default", "background", 2),
            deployment("default", "foreground", 2),
            deployment("default", "stays", 1),
            delete(
                "deployments",
                "default",
                "background",
                Propagation::Background,
            ),
            delete(
                "deployments",
                "default",
                "foreground",
                Propagation::Foreground,
            ),
            Deed::LooseSet,
        ],
        5,
    );
}

/// A namespace goes with everything in it, and the ones that stay are furnished.
#[test]
fn namespaces_converge() {
    converges(
        &[
            Deed::Namespace("team"),
            deployment("team", "web", 2),
            Deed::Namespace("stays"),
            delete("namespaces", "", "team", Propagation::Background),
        ],
        5,
    );
}

/// A node dies, its pods are replaced elsewhere, and when it is removed for good
/// what was left of them goes.
#[test]
fn lost_nodes_converge() {
    converges(
        &[
            deployment("default", "web", 4),
            Deed::LoseNode("n2"),
            Deed::RemoveNode("n2"),
        ],
        4,
    );
}

#[test]
fn an_orphaning_deletion_leaves_the_set() {
    for faults in [Faults::None, Faults::Watches, Faults::Crashes] {
        for seed in 0..4 {
            let mut cluster = Cluster::new(seed, faults);
            cluster.play(&[deployment("default", "web", 2)]);
            cluster.settle(CALM_TIME);
            cluster.play(&[delete("deployments", "default", "web", Propagation::Orphan)]);
            cluster.settle(CALM_TIME);
            cluster.check_rest(&format!("seed {seed}, {faults:?}"));
            let server = cluster.server.lock();
            assert_eq!(server.of("deployments").count(), 0);
            let sets: Vec<_> = server.of("replicasets").collect();
            assert_eq!(sets.len(), 1, "seed {seed}, {faults:?}");
            assert!(sets[0].1["metadata"]["ownerReferences"].is_null());
            assert_eq!(server.of("pods").count(), 2);
        }
    }
}

/// Pods that fail are replaced, also while everything else fails.
#[test]
fn failing_pods_are_replaced() {
    for (seed, faults) in [
        (1, Faults::None),
        (2, Faults::Watches),
        (3, Faults::Crashes),
    ] {
        let mut cluster = Cluster::new(seed, faults);
        cluster.play(&[deployment("default", "web", 3)]);
        for _ in 0..300 {
            cluster.step();
            if cluster.rng.chance(5) {
                agents::fail_pod(&mut cluster.server.lock(), &mut cluster.rng);
            }
        }
        cluster.settle(CALM_TIME);
        let server = cluster.server.lock();
        let running = server
            .of("pods")
            .filter(|(_, pod)| pod["status"]["phase"] == "Running")
            .count();
        assert_eq!(running, 3, "{faults:?}");
    }
}
