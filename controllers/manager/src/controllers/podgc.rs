//! The shell of pod garbage collection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use client::indexer::BY_NODE_NAME;
use client::{Error, InformerEvent, KubeObject, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plan::podgc::{self, ENDED_PODS_MAX, NodeOf, Verdict};
use plan::{Target, pod as pods};

use crate::controller::{Controller, Reconcile, Requeue};
use crate::world::World;

/// Is how many pods are judged at a time.
const WORKERS: usize = 1;
/// Is the key for counting ended pods; no pod has an empty namespace.
const ENDED: &str = "ended-pods";

struct PodGc {
    world: World,
    /// Says since when a node that pods name has been missing; an entry goes when
    /// the node is back or its pods are gone.
    missing: Mutex<BTreeMap<String, Timestamp>>,
}

/// Describes the controller.
pub fn controller(world: &World) -> Controller {
    let caches = &world.caches;
    let (nodes, on_nodes) = (Arc::clone(&caches.nodes), Arc::clone(&caches.pods));
    let reconciler = PodGc {
        world: world.clone(),
        missing: Mutex::default(),
    };
    Controller::new("pod-garbage-collector", WORKERS, Arc::new(reconciler))
        .watch(&caches.pods, move |change| {
            let pod = change.object();
            let node = pods::node_name(pod);
            let gone = matches!(change, InformerEvent::Deleted(_));
            let stuck = node.is_empty() && pod.is_deleting();
            let orphaned = !node.is_empty() && nodes.store().get_by("", node).is_none();
            if pods::is_terminal(pod) && !gone && became_terminal(change) {
                vec![ObjectKey::new("", ENDED)]
            } else if !gone && (stuck || orphaned) {
                vec![pod.key()]
            } else {
                Vec::new()
            }
        })
        .watch(&caches.nodes, move |change| match change {
            InformerEvent::Deleted(node) => {
                let left = on_nodes.store().by_index(BY_NODE_NAME, node.name());
                left.iter().map(|pod| pod.key()).collect()
            }
            _ => Vec::new(),
        })
}

fn became_terminal(change: &InformerEvent<Pod>) -> bool {
    match change {
        InformerEvent::Updated(old, _) => !pods::is_terminal(old),
        _ => true,
    }
}

#[async_trait]
impl Reconcile for PodGc {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        if key.ns().is_none() && key.name == ENDED {
            return self.drop_surplus().await;
        }
        let Some(pod) = self.world.caches.pods.store().get(key) else {
            return Ok(Requeue::Done);
        };
        let now = self.world.api.now();
        let node = self.node_of(&pod, now);
        match podgc::judge(&pod, node, now) {
            Verdict::Keep => Ok(Requeue::Done),
            Verdict::Later(wait) => Ok(Requeue::After(wait)),
            Verdict::Remove(writes) => {
                // The cache of nodes may be behind: the API itself must say so.
                if node != NodeOf::Present && self.node_exists(&pod).await? {
                    return Ok(Requeue::After(podgc::NODE_QUARANTINE));
                }
                self.world.execute_all(&writes).await?;
                Ok(Requeue::Done)
            }
        }
    }
}

impl PodGc {
    fn node_of(&self, pod: &Pod, now: Timestamp) -> NodeOf {
        let name = pods::node_name(pod);
        let nodes = self.world.caches.nodes.store();
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.retain(|node, _| {
            nodes.get_by("", node).is_none()
                && !self
                    .world
                    .caches
                    .pods
                    .store()
                    .by_index(BY_NODE_NAME, node)
                    .is_empty()
        });
        if name.is_empty() || nodes.get_by("", name).is_some() {
            return NodeOf::Present;
        }
        NodeOf::MissingSince(*missing.entry(name.to_owned()).or_insert(now))
    }

    async fn node_exists(&self, pod: &Pod) -> Result<bool, Error> {
        let name = Some(pods::node_name(pod).to_owned());
        let target = Target::of::<Node>(&ObjectMeta {
            name,
            ..ObjectMeta::default()
        });
        Ok(self.world.api.read(&target).await?.is_some())
    }

    async fn drop_surplus(&self) -> Result<Requeue, Error> {
        let all = self.world.caches.pods.store().list();
        let now = self.world.api.now();
        for pod in podgc::surplus(all.iter().map(|pod| &**pod), ENDED_PODS_MAX) {
            self.world
                .execute_all(&podgc::removal(pod, None, now))
                .await?;
        }
        Ok(Requeue::Done)
    }
}
