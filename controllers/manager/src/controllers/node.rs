//! The shells of node lifecycle: heartbeats and taints, and eviction by taint.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use client::indexer::BY_NODE_NAME;
use client::{Error, InformerEvent, KubeObject, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use plan::node::eviction::{self, Due};
use plan::node::health::{self, Heartbeat};
use plan::node::taints::{self, Evictions, NO_EXECUTE};
use plan::node::zones::{self, Pace};
use plan::node::{condition, is_ready};

use crate::controller::{Controller, Reconcile, Requeue};
use crate::world::live::NODE_LEASES;
use crate::world::{Cache, World};

/// Is how many nodes are judged at a time.
const WORKERS: usize = 2;
/// Is how many pods are judged at a time.
const EVICTION_WORKERS: usize = 2;

struct Nodes {
    world: World,
    /// Holds one entry per node; an entry goes with its node.
    heartbeats: Mutex<BTreeMap<String, Heartbeat>>,
    /// Says when a node of each zone was last given up; bounded by the zones.
    evicted: Mutex<BTreeMap<String, Timestamp>>,
}

/// Describes the controller that judges heartbeats and sets taints.
pub fn lifecycle(world: &World) -> Controller {
    let caches = &world.caches;
    let nodes = Arc::clone(&caches.nodes);
    let reconciler = Nodes {
        world: world.clone(),
        heartbeats: Mutex::default(),
        evicted: Mutex::default(),
    };
    Controller::new("node-lifecycle", WORKERS, Arc::new(reconciler))
        .watch(&caches.nodes, move |change| {
            // Whether any node is ready decides about the taints of all.
            match change {
                InformerEvent::Updated(old, new) if is_ready(old) == is_ready(new) => {
                    vec![new.key()]
                }
                _ => nodes
                    .store()
                    .keys()
                    .into_iter()
                    .chain([change.key()])
                    .collect(),
            }
        })
        .watch(&caches.node_leases, |change| {
            [ObjectKey::new("", change.object().name())]
        })
}

#[async_trait]
impl Reconcile for Nodes {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let Some(node) = self.world.caches.nodes.store().get(key) else {
            self.heartbeats
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&key.name);
            return Ok(Requeue::Done);
        };
        let left = self.observe(&node);
        if left <= SignedDuration::ZERO && self.condemn(&node).await? {
            // The node's change comes back; the taints follow from it.
            return Ok(Requeue::Done);
        }
        let (evictions, wait) = self.evictions(&node);
        if let Some(write) = taints::plan(&node, evictions, self.world.api.now()) {
            self.world.api.execute(&write).await?;
        }
        if condition(&node, "Ready").is_some_and(|ready| ready.status == "Unknown") {
            self.mark_pods(&node).await?;
        }
        let silence = (left > SignedDuration::ZERO).then_some(left);
        Ok([silence, wait].into_iter().flatten().min().into())
    }
}

impl Nodes {
    /// Takes in the node's last sign of life; returns how long it may be silent.
    fn observe(&self, node: &Node) -> SignedDuration {
        let now = self.world.api.now();
        let lease = self
            .world
            .caches
            .node_leases
            .store()
            .get_by(NODE_LEASES, node.name());
        let mut heartbeats = self
            .heartbeats
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let previous = heartbeats.get(node.name());
        let heartbeat = Heartbeat::observe(previous, node, lease.as_deref(), now);
        let left = heartbeat.left(node, now);
        heartbeats.insert(node.name().to_owned(), heartbeat);
        left
    }

    /// Says whether the node may lose its pods, and when to ask again if not yet.
    /// Leave, once given, is used up: the caller gives the node up.
    fn evictions(&self, node: &Node) -> (Evictions, Option<SignedDuration>) {
        let all = self.world.caches.nodes.store().list();
        if !all.iter().any(|node| is_ready(node)) {
            return (Evictions::Stopped, None);
        }
        if !taints::awaits_eviction(node) {
            return (Evictions::Allowed, None);
        }
        let zone = zones::zone_of(node);
        let (ready, not_ready): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|other| zones::zone_of(other) == zone)
            .partition(|other| is_ready(other));
        let Pace::Every(interval) = zones::pace(ready.len(), not_ready.len()) else {
            // A node that becomes ready again enqueues all others.
            return (Evictions::Held, None);
        };
        let now = self.world.api.now();
        let mut evicted = self.evicted.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = evicted.get(&zone).map(|last| now.duration_since(*last));
        match passed {
            Some(passed) if passed < interval => (Evictions::Held, Some(interval - passed)),
            _ => {
                evicted.insert(zone, now);
                (Evictions::Allowed, None)
            }
        }
    }

    /// Declares a silent node unknown; tells whether that was news.
    async fn condemn(&self, node: &Node) -> Result<bool, Error> {
        let Some(write) = health::mark_unknown(node, self.world.api.now()) else {
            return Ok(false);
        };
        self.world.api.execute(&write).await?;
        if is_ready(node) {
            self.world
                .api
                .execute(&health::not_ready_event(node))
                .await?;
        }
        Ok(true)
    }

    async fn mark_pods(&self, node: &Node) -> Result<(), Error> {
        let now = self.world.api.now();
        for pod in self
            .world
            .caches
            .pods
            .store()
            .by_index(BY_NODE_NAME, node.name())
        {
            let Some(write) = health::mark_pod_not_ready(&pod, now) else {
                continue;
            };
            match self.world.api.execute(&write).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

struct TaintEviction {
    world: World,
}

/// Describes the controller that evicts pods from nodes tainted `NoExecute`.
pub fn taint_eviction(world: &World) -> Controller {
    let caches = &world.caches;
    let nodes = Arc::clone(&caches.nodes);
    let pods = Arc::clone(&caches.pods);
    let reconciler = TaintEviction {
        world: world.clone(),
    };
    Controller::new("taint-eviction", EVICTION_WORKERS, Arc::new(reconciler))
        .watch(&caches.pods, move |change| tainted_pod(&nodes, change))
        .watch(&caches.nodes, move |change| {
            // A removed taint needs no look: what was queued for it finds none.
            let node = change.object();
            if !is_evicting(node) {
                return Vec::new();
            }
            let on_node = pods.store().by_index(BY_NODE_NAME, node.name());
            on_node.iter().map(|pod| pod.key()).collect()
        })
}

fn tainted_pod(nodes: &Cache<Node>, change: &InformerEvent<Pod>) -> Option<ObjectKey> {
    let pod = change.object();
    let name = plan::pod::node_name(pod);
    if matches!(change, InformerEvent::Deleted(_)) || name.is_empty() {
        return None;
    }
    nodes
        .store()
        .get_by("", name)
        .filter(|node| is_evicting(node))
        .map(|_| pod.key())
}

fn is_evicting(node: &Node) -> bool {
    node.spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .any(|taint| taint.effect == NO_EXECUTE)
}

#[async_trait]
impl Reconcile for TaintEviction {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let caches = &self.world.caches;
        let Some(pod) = caches.pods.store().get(key) else {
            return Ok(Requeue::Done);
        };
        let Some(node) = caches.nodes.store().get_by("", plan::pod::node_name(&pod)) else {
            return Ok(Requeue::Done);
        };
        let now = self.world.api.now();
        match eviction::due(&pod, &node, now) {
            Due::Never => Ok(Requeue::Done),
            Due::In(wait) if wait > SignedDuration::ZERO => Ok(Requeue::After(wait)),
            Due::In(_) => {
                self.world.execute_all(&eviction::evict(&pod, now)).await?;
                Ok(Requeue::Done)
            }
        }
    }
}
