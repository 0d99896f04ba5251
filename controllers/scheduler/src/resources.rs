//! Amounts of compute resources, and what a pod asks for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use meta::quantity::Quantity;

/// Is what a container without a CPU request counts as when nodes are rated.
const DEFAULT_MILLI_CPU: i64 = 100;
/// Is what a container without a memory request counts as when nodes are rated.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Is a list of resources as the API carries it.
pub type ResourceList = BTreeMap<String, ApiQuantity>;

/// Holds one amount of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Is CPU in thousandths of a core.
    pub milli_cpu: i64,
    /// Is memory in bytes.
    pub memory: i64,
    /// Is local scratch space in bytes.
    pub ephemeral_storage: i64,
    /// Is how many pods a node takes; zero in requests.
    pub pods: i64,
    /// Are devices, huge pages and other named resources.
    pub scalar: BTreeMap<String, i64>,
}

impl Resources {
    /// Reads a list; an amount that is no quantity counts as zero, the API server
    /// having refused it.
    pub fn from_list(list: &ResourceList) -> Self {
        let mut resources = Self::default();
        for (name, quantity) in list {
            let quantity: Quantity = quantity.0.parse().unwrap_or_default();
            match name.as_str() {
                "cpu" => resources.milli_cpu = quantity.milli_value(),
                "memory" => resources.memory = quantity.value(),
                "ephemeral-storage" => resources.ephemeral_storage = quantity.value(),
                "pods" => resources.pods = quantity.value(),
                _ => {
                    resources.scalar.insert(name.clone(), quantity.value());
                }
            }
        }
        resources
    }

    /// Adds another amount.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Takes another amount away.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
        self.scalar.retain(|_, amount| *amount != 0);
    }

    /// Raises each amount to the other's.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, Ord::max);
    }

    fn combine(&mut self, other: &Self, f: fn(i64, i64) -> i64) {
        self.milli_cpu = f(self.milli_cpu, other.milli_cpu);
        self.memory = f(self.memory, other.memory);
        self.ephemeral_storage = f(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = f(self.pods, other.pods);
        for (name, amount) in &other.scalar {
            let mine = self.scalar.entry(name.clone()).or_default();
            *mine = f(*mine, *amount);
        }
    }
}

/// Computes what a pod asks for, from what its containers ask for.
///
/// Containers run together, so their requests add up. Init containers run one after
/// the other before, so of them the largest counts; a restartable one (a sidecar)
/// keeps running beside all that follow it. Requests of the pod as a whole replace
/// the sums, and its overhead comes on top.
fn aggregate(spec: &PodSpec, of: impl Fn(&Container) -> Resources) -> Resources {
    let mut total = Resources::default();
    for container in &spec.containers {
        total.add(&of(container));
    }
    let mut sidecars = Resources::default();
    let mut largest = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut running = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            total.add(&running);
            sidecars.add(&running);
            running.clone_from(&sidecars);
        } else {
            running.add(&sidecars);
        }
        largest.raise_to(&running);
    }
    total.raise_to(&largest);
    let whole = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    if let Some(list) = whole {
        let whole = Resources::from_list(list);
        if list.contains_key("cpu") {
            total.milli_cpu = whole.milli_cpu;
        }
        if list.contains_key("memory") {
            total.memory = whole.memory;
        }
    }
    if let Some(overhead) = &spec.overhead {
        total.add(&Resources::from_list(overhead));
    }
    total
}

fn requests(container: &Container) -> Option<&ResourceList> {
    container.resources.as_ref()?.requests.as_ref()
}

/// Returns what a pod asks for.
pub fn pod_requests(spec: &PodSpec) -> Resources {
    aggregate(spec, |container| {
        requests(container)
            .map(Resources::from_list)
            .unwrap_or_default()
    })
}

/// Returns what a pod counts as when nodes are rated: containers that ask for nothing
/// count as a little, so that they spread too.
pub fn pod_nonzero_requests(spec: &PodSpec) -> Resources {
    aggregate(spec, |container| {
        let list = requests(container);
        let mut resources = list.map(Resources::from_list).unwrap_or_default();
        if list.is_none_or(|l| !l.contains_key("cpu")) {
            resources.milli_cpu = DEFAULT_MILLI_CPU;
        }
        if list.is_none_or(|l| !l.contains_key("memory")) {
            resources.memory = DEFAULT_MEMORY;
        }
        resources
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    fn cpu(amount: &str) -> serde_json::Value {
        json!({"requests": {"cpu": amount}})
    }

    #[test]
    fn containers_add_up_and_the_largest_init_container_counts() {
        let spec = spec(json!({
            "initContainers": [
                {"name": "a", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "2", "memory": "3Gi"}}},
            ],
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}},
                {"name": "d", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            ],
        }));
        let total = pod_requests(&spec);
        assert_eq!((total.milli_cpu, total.memory), (3000, 3 << 30));
    }

    #[test]
    fn sidecars_run_beside_what_follows() {
        let spec = spec(json!({
            "initContainers": [
                {"name": "before", "resources": cpu("4")},
                {"name": "side", "restartPolicy": "Always", "resources": cpu("1")},
                {"name": "after", "resources": cpu("3500m")},
            ],
            "containers": [{"name": "c", "resources": cpu("2")}],
        }));
        assert_eq!(
            pod_requests(&spec).milli_cpu,
            4500,
            "3500m beside the sidecar"
        );
    }

    #[test]
    fn overhead_and_pod_level_requests() {
        let spec = spec(json!({
            "containers": [{"name": "c", "resources": cpu("2")}],
            "resources": cpu("3"),
            "overhead": {"cpu": "100m", "example.com/gpu": "1"},
        }));
        let total = pod_requests(&spec);
        assert_eq!(total.milli_cpu, 3100);
        assert_eq!(total.scalar["example.com/gpu"], 1);
    }

    #[test]
    fn silent_containers_count_a_little_when_rated() {
        let spec =
            spec(json!({"containers": [{"name": "a"}, {"name": "b", "resources": cpu("1")}]}));
        let total = pod_nonzero_requests(&spec);
        assert_eq!((total.milli_cpu, total.memory), (1100, 400 << 20));
        assert_eq!(pod_requests(&spec).memory, 0);
    }
}
