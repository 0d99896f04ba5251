//! The Node object this kubelet registers, from facts the agent read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus,
    NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// Most pods a node takes (upstream `maxPods`, 110).
pub const PODS_MAX: u32 = 110;

/// What the agent read about its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// The node's name, also its `kubernetes.io/hostname`.
    pub name: String,
    /// The node's address.
    pub ip: String,
    /// The port of the kubelet's server.
    pub kubelet_port: u16,
    /// Number of processors.
    pub cpus: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Space of the root directory's file system in KiB.
    pub disk_kib: u64,
    /// Architecture as Go names it: `amd64`, `arm64`.
    pub architecture: String,
    /// Kernel release.
    pub kernel_version: String,
    /// Name of the operating system's distribution.
    pub os_image: String,
    /// Id of the machine.
    pub machine_id: String,
    /// Id of this boot.
    pub boot_id: String,
    /// Version of this kubelet.
    pub kubelet_version: String,
    /// The runtime with its version, as `process://0.1.0`.
    pub runtime_version: String,
}

/// Builds the Node to register.
pub fn node(facts: &MachineFacts, now: Timestamp) -> Node {
    let pairs = [
        ("kubernetes.io/hostname", facts.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", facts.architecture.as_str()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", facts.architecture.as_str()),
    ];
    let labels = pairs
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    Node {
        metadata: ObjectMeta {
            name: Some(facts.name.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(status(facts, &[], now)),
    }
}

/// Builds the node's status; the times of conditions that did not change, and
/// conditions of others, are taken from `known`.
pub fn status(facts: &MachineFacts, known: &[NodeCondition], now: Timestamp) -> NodeStatus {
    let capacity = capacity(facts);
    let address = |kind: &str, address: &str| NodeAddress {
        type_: kind.to_owned(),
        address: address.to_owned(),
    };
    NodeStatus {
        allocatable: Some(capacity.clone()),
        capacity: Some(capacity),
        addresses: Some(vec![
            address("InternalIP", &facts.ip),
            address("Hostname", &facts.name),
        ]),
        conditions: Some(conditions(known, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: i32::from(facts.kubelet_port),
            }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: facts.architecture.clone(),
            boot_id: facts.boot_id.clone(),
            container_runtime_version: facts.runtime_version.clone(),
            kernel_version: facts.kernel_version.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: facts.kubelet_version.clone(),
            machine_id: facts.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: facts.os_image.clone(),
            system_uuid: facts.machine_id.clone(),
            swap: None,
        }),
        ..NodeStatus::default()
    }
}

fn capacity(facts: &MachineFacts) -> BTreeMap<String, Quantity> {
    [
        ("cpu", facts.cpus.to_string()),
        ("memory", format!("{}Ki", facts.memory_kib)),
        ("ephemeral-storage", format!("{}Ki", facts.disk_kib)),
        ("pods", PODS_MAX.to_string()),
    ]
    .into_iter()
    .map(|(name, quantity)| (name.to_owned(), Quantity(quantity)))
    .collect()
}

/// The four conditions, in the order and words `kubectl describe node` shows.
/// Pressure is not measured yet and reported as absent.
fn conditions(known: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
    let own = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        (
            "Ready",
            "True",
            "KubeletReady",
            "kubelet is posting ready status",
        ),
    ];
    let mut conditions: Vec<_> = own
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let before = known.iter().find(|c| c.type_ == kind && c.status == status);
            NodeCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_heartbeat_time: Some(Time(now)),
                last_transition_time: before
                    .and_then(|c| c.last_transition_time.clone())
                    .or(Some(Time(now))),
            }
        })
        .collect();
    let others = known
        .iter()
        .filter(|c| !own.iter().any(|(kind, ..)| *kind == c.type_));
    conditions.extend(others.cloned());
    conditions
}

/// Reports whether two statuses differ in more than their heartbeat times.
pub fn differs(a: &NodeStatus, b: &NodeStatus) -> bool {
    let strip = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
            condition.last_transition_time = None;
        }
        status
    };
    let (a, b) = (strip(a), strip(b));
    a.conditions != b.conditions
        || a.capacity != b.capacity
        || a.allocatable != b.allocatable
        || a.addresses != b.addresses
        || a.daemon_endpoints != b.daemon_endpoints
        || a.node_info != b.node_info
}

#[cfg(test)]
mod test {
    use super::*;

    fn facts() -> MachineFacts {
        MachineFacts {
            name: "n1".into(),
            ip: "127.0.0.1".into(),
            kubelet_port: 4711,
            cpus: 2,
            memory_kib: 4096,
            architecture: "amd64".into(),
            ..MachineFacts::default()
        }
    }

    #[test]
    fn a_node_carries_what_schedulers_and_proxies_read() {
        let now = Timestamp::from_second(1).unwrap();
        let value = serde_json::to_value(node(&facts(), now)).unwrap();
        assert_eq!(value["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
        assert_eq!(value["status"]["capacity"]["memory"], "4096Ki");
        assert_eq!(value["status"]["allocatable"]["pods"], "110");
        assert_eq!(
            value["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"],
            4711
        );
        assert_eq!(value["status"]["conditions"][3]["type"], "Ready");
        assert_eq!(value["status"]["conditions"][3]["status"], "True");
    }

    #[test]
    fn transition_times_stay_and_heartbeats_alone_are_no_difference() {
        let (one, two) = (
            Timestamp::from_second(1).unwrap(),
            Timestamp::from_second(2).unwrap(),
        );
        let first = status(&facts(), &[], one);
        let mut known = first.conditions.clone().unwrap();
        known.push(NodeCondition {
            type_: "NetworkUnavailable".into(),
            status: "False".into(),
            ..NodeCondition::default()
        });
        let second = status(&facts(), &known, two);
        let conditions = second.conditions.clone().unwrap();
        assert_eq!(conditions[3].last_transition_time, Some(Time(one)));
        assert_eq!(conditions[3].last_heartbeat_time, Some(Time(two)));
        assert_eq!(conditions[4].type_, "NetworkUnavailable");
        assert!(!differs(&first, &status(&facts(), &[], two)));
        assert!(differs(&first, &second));
    }
}
