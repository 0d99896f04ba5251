//! Properties over random histories, against naive recounts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use crate::cache::Cache;
use crate::cycle::Cycle;
use crate::event::ClusterEvent;
use crate::fit_error::ScheduleError;
use crate::framework::testing::{node, pod, pod_with};
use crate::pod::PodInfo;
use crate::queue::{QueuedPod, SchedulingQueue, UNSCHEDULABLE_MAX};

const NODES: [&str; 3] = ["a", "b", "c"];
const PODS: usize = 6;

fn sized(name: &str, milli: u16) -> Arc<PodInfo> {
    pod(name, &format!("{milli}m"), "1Mi")
}

#[derive(Clone, Debug)]
enum CacheOp {
    SetNode(usize, u16),
    RemoveNode(usize),
    Assign(usize, usize, u16),
    Assume(usize, usize, u16),
    Forget(usize),
    Remove(usize),
}

fn cache_op() -> impl Strategy<Value = CacheOp> {
    let (n, p, size) = (0..NODES.len(), 0..PODS, 1..4000u16);
    prop_oneof![
        (n.clone(), size.clone()).prop_map(|(n, s)| CacheOp::SetNode(n, s)),
        n.clone().prop_map(CacheOp::RemoveNode),
        (p.clone(), n.clone(), size.clone()).prop_map(|(p, n, s)| CacheOp::Assign(p, n, s)),
        (p.clone(), n, size).prop_map(|(p, n, s)| CacheOp::Assume(p, n, s)),
        p.clone().prop_map(CacheOp::Forget),
        p.prop_map(CacheOp::Remove),
    ]
}

/// Is what the cache should know, kept without any sums.
#[derive(Default)]
struct Model {
    nodes: BTreeSet<&'static str>,
    pods: BTreeMap<String, (&'static str, i64, bool)>,
}

impl Model {
    fn apply(&mut self, op: &CacheOp, cache: &mut Cache) {
        let name = |p: usize| format!("p{p}");
        match *op {
            CacheOp::SetNode(n, size) => {
                cache.set_node(&node(NODES[n], &format!("{size}m"), "8Gi"));
                self.nodes.insert(NODES[n]);
            }
            CacheOp::RemoveNode(n) => {
                cache.remove_node(NODES[n]);
                self.nodes.remove(NODES[n]);
            }
            CacheOp::Assign(p, n, size) => {
                let info = PodInfo {
                    node_name: NODES[n].into(),
                    ..(*sized(&name(p), size)).clone()
                };
                cache.add_pod(Arc::new(info));
                self.pods.insert(name(p), (NODES[n], size.into(), false));
            }
            CacheOp::Assume(p, n, size) => {
                cache.assume(sized(&name(p), size), NODES[n]);
                self.pods.insert(name(p), (NODES[n], size.into(), true));
            }
            CacheOp::Forget(p) => {
                cache.forget(&name(p));
                if self
                    .pods
                    .get(&name(p))
                    .is_some_and(|(_, _, assumed)| *assumed)
                {
                    self.pods.remove(&name(p));
                }
            }
            CacheOp::Remove(p) => {
                cache.remove_pod(&name(p));
                self.pods.remove(&name(p));
            }
        }
    }

    fn check(&self, cache: &Cache) {
        assert_eq!(cache.node_count(), self.nodes.len());
        assert_eq!(cache.pod_count(), self.pods.len());
        let names: Vec<&str> = cache.nodes().map(|n| n.name.as_str()).collect();
        assert_eq!(names, self.nodes.iter().copied().collect::<Vec<_>>());
        for info in cache.nodes() {
            let here = self.pods.values().filter(|(n, _, _)| *n == info.name);
            let (count, sum) = here.fold((0, 0), |(c, s), (_, size, _)| (c + 1, s + size));
            assert_eq!(
                (info.pods.len(), info.requested.milli_cpu),
                (count, sum),
                "{}",
                info.name
            );
        }
    }
}

#[derive(Clone, Debug)]
enum QueueOp {
    Add(usize, bool),
    Update(usize, u16),
    Delete(usize),
    Pop,
    Reject(bool),
    Fail,
    Done,
    Event(bool),
    Advance(u16),
}

fn queue_op() -> impl Strategy<Value = QueueOp> {
    prop_oneof![
        3 => (0..PODS, prop::bool::weighted(0.1)).prop_map(|(p, gated)| QueueOp::Add(p, gated)),
        1 => (0..PODS, 1..2000u16).prop_map(|(p, size)| QueueOp::Update(p, size)),
        1 => (0..PODS).prop_map(QueueOp::Delete),
        3 => Just(QueueOp::Pop),
        2 => any::<bool>().prop_map(QueueOp::Reject),
        1 => Just(QueueOp::Fail),
        1 => Just(QueueOp::Done),
        1 => any::<bool>().prop_map(QueueOp::Event),
        2 => (0..20_000u16).prop_map(QueueOp::Advance),
    ]
}

fn gated(name: &str) -> Arc<PodInfo> {
    pod_with(name, json!({"schedulingGates": [{"name": "g"}]}))
}

/// Is a queue with what should be in it.
struct Play {
    queue: SchedulingQueue,
    now: Duration,
    /// Says of each pod in the queue whether it is gated.
    waiting: BTreeMap<String, bool>,
    flying: Vec<QueuedPod>,
}

impl Play {
    fn new() -> Self {
        Self {
            queue: SchedulingQueue::default(),
            now: Duration::from_secs(1),
            waiting: BTreeMap::new(),
            flying: Vec::new(),
        }
    }

    fn apply(&mut self, op: &QueueOp) {
        match *op {
            QueueOp::Add(p, is_gated) => self.add(&format!("p{p}"), is_gated),
            QueueOp::Update(p, size) => {
                let name = format!("p{p}");
                if let Some(is_gated) = self.waiting.get_mut(&name) {
                    *is_gated = false;
                    self.queue.update(sized(&name, size), self.now);
                }
            }
            QueueOp::Delete(p) => {
                let name = format!("p{p}");
                self.queue.delete(&name);
                self.waiting.remove(&name);
            }
            QueueOp::Pop => {
                if let Some(q) = self.queue.pop(self.now) {
                    assert_eq!(
                        self.waiting.remove(&q.pod.uid),
                        Some(false),
                        "{}",
                        q.pod.uid
                    );
                    self.flying.push(q);
                }
            }
            QueueOp::Reject(hint) => {
                if let Some(q) = self.land() {
                    self.queue
                        .reject(q, ["X"].into(), &|_, _, _| hint, self.now);
                }
            }
            QueueOp::Fail => {
                if let Some(q) = self.land() {
                    self.queue.fail(q, self.now);
                }
            }
            QueueOp::Done => {
                if let Some(q) = self.flying.pop() {
                    self.queue.done(&q.pod.uid);
                }
            }
            QueueOp::Event(hint) => {
                let event = ClusterEvent::AssignedPodGone(sized("gone", 1));
                self.queue.on_event(event, &|_, _, _| hint, self.now);
            }
            QueueOp::Advance(ms) => self.now += Duration::from_millis(u64::from(ms)),
        }
        let (active, backoff, rest) = self.queue.depths();
        assert_eq!(
            active + backoff + rest,
            self.waiting.len(),
            "each pod in one room"
        );
    }

    fn add(&mut self, name: &str, is_gated: bool) {
        if self.flying.iter().all(|q| q.pod.uid != name) {
            let info = if is_gated {
                gated(name)
            } else {
                sized(name, 100)
            };
            self.queue.add(info, self.now);
            self.waiting.insert(name.to_owned(), is_gated);
        }
    }

    fn land(&mut self) -> Option<QueuedPod> {
        let q = self.flying.pop()?;
        self.waiting.insert(q.pod.uid.clone(), false);
        Some(q)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_are_what_a_recount_gives(ops in prop::collection::vec(cache_op(), 0..60)) {
        let (mut cache, mut model) = (Cache::default(), Model::default());
        for op in &ops {
            model.apply(op, &mut cache);
            model.check(&cache);
        }
    }

    #[test]
    fn no_pod_is_ever_lost(ops in prop::collection::vec(queue_op(), 0..80)) {
        let mut play = Play::new();
        for op in &ops {
            play.apply(op);
        }
        let Play { mut queue, now, waiting, flying } = play;
        for q in flying {
            queue.done(&q.pod.uid);
        }
        let later = now + UNSCHEDULABLE_MAX * 2;
        let mut popped = BTreeSet::new();
        while let Some(q) = queue.pop(later) {
            prop_assert!(popped.insert(q.pod.uid.clone()), "popped twice");
            queue.done(&q.pod.uid);
        }
        let open: BTreeSet<String> =
            waiting.iter().filter(|(_, gated)| !**gated).map(|(p, _)| p.clone()).collect();
        prop_assert_eq!(popped, open);
    }

    #[test]
    fn a_choice_fits_and_an_error_names_every_node(
        sizes in prop::collection::vec(1..4000u16, 1..6),
        taken in prop::collection::vec((0..6usize, 1..3000u16), 0..12),
        wanted in 1..4000u16,
        random in any::<u64>(),
    ) {
        let mut cache = Cache::default();
        for (i, size) in sizes.iter().enumerate() {
            cache.set_node(&node(&format!("n{i}"), &format!("{size}m"), "8Gi"));
        }
        for (i, (n, size)) in taken.iter().enumerate() {
            let name = format!("n{}", n % sizes.len());
            cache.assume(sized(&format!("t{i}"), *size), &name);
        }
        let wants = i64::from(wanted);
        let fits: BTreeSet<String> = cache
            .nodes()
            .filter(|n| n.requested.milli_cpu + wants <= n.allocatable.milli_cpu)
            .map(|n| n.name.clone())
            .collect();
        match Cycle::default().schedule(&sized("p", wanted), &cache, random) {
            Ok(choice) => {
                prop_assert!(fits.contains(&choice.node));
                prop_assert_eq!(choice.feasible, fits.len());
            }
            Err(ScheduleError::Fit(error)) => {
                prop_assert!(fits.is_empty());
                prop_assert_eq!(error.verdicts.len(), sizes.len());
                let text = format!("0/{0} nodes are available: {0} Insufficient cpu.", sizes.len());
                prop_assert_eq!(error.to_string(), text);
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
