//! What the scheduler knows of the cluster: nodes, and pods on them.
//!
//! Watch events change single entries in place; a cycle reads the result. A pod is
//! *assumed* on its node from the moment it is chosen until the watch shows it bound
//! there (confirmed) or the binding failed (forgotten). An assumption does not
//! expire: either end is certain to come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::node::NodeInfo;
use crate::pod::PodInfo;

/// Holds nodes and assigned pods. Bounded by the size of the cluster.
#[derive(Debug, Default)]
pub struct Cache {
    nodes: BTreeMap<String, NodeInfo>,
    /// Says on which node each pod is counted.
    placed: BTreeMap<String, String>,
    assumed: BTreeSet<String>,
    existing: usize,
}

impl Cache {
    /// Adds a node, or takes over a change of it. Returns how it was before, without
    /// its pods, if it existed.
    pub fn set_node(&mut self, node: &Node) -> Option<NodeInfo> {
        let name = node.metadata.name.clone().unwrap_or_default();
        let info = self.nodes.entry(name.clone()).or_default();
        let before = info.exists.then(|| info.emptied());
        info.name = name;
        info.set_node(node);
        if before.is_none() {
            self.existing += 1;
        }
        before
    }

    /// Removes a node. Pods still counted on it stay until their own removal.
    pub fn remove_node(&mut self, name: &str) {
        let Some(info) = self.nodes.get_mut(name) else {
            return;
        };
        if std::mem::replace(&mut info.exists, false) {
            self.existing -= 1;
        }
        self.drop_if_unused(name);
    }

    /// Counts a pod the API shows on a node: adds it, confirms it if it was assumed,
    /// and moves it if it was assumed elsewhere.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.assumed.remove(&pod.uid);
        let node = pod.node_name.clone();
        self.place(pod, node);
    }

    /// Stops counting a pod. Returns it if it was counted.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        self.assumed.remove(uid);
        let node = self.placed.remove(uid)?;
        let pod = self
            .nodes
            .get_mut(&node)
            .and_then(|info| info.remove_pod(uid));
        self.drop_if_unused(&node);
        pod
    }

    /// Counts a pod on the node that was chosen for it.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.assumed.insert(pod.uid.clone());
        self.place(pod, node.to_owned());
    }

    /// Takes back an assumption whose binding failed. Does nothing if the watch has
    /// shown the pod bound meanwhile.
    pub fn forget(&mut self, uid: &str) -> bool {
        self.assumed.contains(uid) && self.remove_pod(uid).is_some()
    }

    /// Tells whether a pod is assumed and not yet confirmed.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.assumed.contains(uid)
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: String) {
        if let Some(before) = self.placed.insert(pod.uid.clone(), node.clone())
            && before != node
        {
            if let Some(info) = self.nodes.get_mut(&before) {
                info.remove_pod(&pod.uid);
            }
            self.drop_if_unused(&before);
        }
        let info = self.nodes.entry(node.clone()).or_default();
        info.name = node;
        info.add_pod(pod);
    }

    fn drop_if_unused(&mut self, name: &str) {
        if self
            .nodes
            .get(name)
            .is_some_and(|info| !info.exists && info.pods.is_empty())
        {
            self.nodes.remove(name);
        }
    }

    /// Returns a node that exists.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(name).filter(|info| info.exists)
    }

    /// Returns the nodes that exist, ordered by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values().filter(|info| info.exists)
    }

    /// Returns how many nodes exist.
    pub fn node_count(&self) -> usize {
        self.existing
    }

    /// Returns how many pods are counted.
    pub fn pod_count(&self) -> usize {
        self.placed.len()
    }
}

#[cfg(test)]
mod tests {
    use crate::framework::testing::{node, pod};

    use super::*;

    fn requested(cache: &Cache, node: &str) -> i64 {
        cache
            .nodes
            .get(node)
            .map_or(-1, |info| info.requested.milli_cpu)
    }

    #[test]
    fn assumed_pods_count_and_are_confirmed_once() {
        let mut cache = Cache::default();
        cache.set_node(&node("a", "4", "8Gi"));
        let p = pod("p", "1", "1Gi");
        cache.assume(Arc::clone(&p), "a");
        assert_eq!(requested(&cache, "a"), 1000);
        let bound = Arc::new(PodInfo {
            node_name: "a".into(),
            ..(*p).clone()
        });
        cache.add_pod(bound);
        assert_eq!(requested(&cache, "a"), 1000, "not twice");
        assert!(
            !cache.forget("p"),
            "confirmed: a late failure changes nothing"
        );
        assert_eq!(requested(&cache, "a"), 1000);
        cache.remove_pod("p");
        assert_eq!((requested(&cache, "a"), cache.pod_count()), (0, 0));
    }

    #[test]
    fn a_failed_binding_is_forgotten() {
        let mut cache = Cache::default();
        cache.set_node(&node("a", "4", "8Gi"));
        cache.assume(pod("p", "1", "1Gi"), "a");
        assert!(cache.forget("p"));
        assert_eq!(requested(&cache, "a"), 0);
    }

    #[test]
    fn a_pod_bound_elsewhere_moves() {
        let mut cache = Cache::default();
        cache.set_node(&node("a", "4", "8Gi"));
        cache.set_node(&node("b", "4", "8Gi"));
        let p = pod("p", "1", "1Gi");
        cache.assume(Arc::clone(&p), "a");
        cache.add_pod(Arc::new(PodInfo {
            node_name: "b".into(),
            ..(*p).clone()
        }));
        assert_eq!((requested(&cache, "a"), requested(&cache, "b")), (0, 1000));
    }

    #[test]
    fn pods_may_come_before_their_node_and_outlive_it() {
        let mut cache = Cache::default();
        let p = Arc::new(PodInfo {
            node_name: "a".into(),
            ..(*pod("p", "1", "1Gi")).clone()
        });
        cache.add_pod(p);
        assert_eq!(cache.node_count(), 0);
        cache.set_node(&node("a", "4", "8Gi"));
        assert_eq!((cache.node_count(), requested(&cache, "a")), (1, 1000));
        cache.remove_node("a");
        assert_eq!(cache.nodes().count(), 0);
        cache.remove_pod("p");
        assert!(cache.nodes.is_empty());
    }

    #[test]
    fn changes_of_a_node_keep_its_pods() {
        let mut cache = Cache::default();
        assert!(cache.set_node(&node("a", "4", "8Gi")).is_none());
        cache.assume(pod("p", "1", "1Gi"), "a");
        let before = cache.set_node(&node("a", "8", "8Gi")).unwrap();
        assert_eq!(before.allocatable.milli_cpu, 4000);
        let now = cache.node("a").unwrap();
        assert_eq!(
            (now.allocatable.milli_cpu, now.requested.milli_cpu),
            (8000, 1000)
        );
        assert_eq!(cache.node_count(), 1);
    }
}
