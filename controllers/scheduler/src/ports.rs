//! Ports that pods take on the node itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;

const ANY_ADDRESS: &str = "0.0.0.0";

/// Is one port of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// Is `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Is the port.
    pub port: i32,
    /// Is the node's address; `0.0.0.0` stands for all of them.
    pub address: String,
}

/// Returns the node ports that a pod takes.
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            let text = |value: &Option<String>, default: &str| {
                value
                    .clone()
                    .filter(|v| !v.is_empty())
                    .unwrap_or_else(|| default.to_owned())
            };
            Some(HostPort {
                protocol: text(&p.protocol, "TCP"),
                port,
                address: text(&p.host_ip, ANY_ADDRESS),
            })
        })
        .collect()
}

/// Counts the ports taken on one node.
#[derive(Clone, Debug, Default)]
pub struct UsedPorts(BTreeMap<HostPort, u32>);

impl UsedPorts {
    /// Takes ports.
    pub fn add(&mut self, ports: &[HostPort]) {
        for port in ports {
            *self.0.entry(port.clone()).or_default() += 1;
        }
    }

    /// Gives ports back.
    pub fn remove(&mut self, ports: &[HostPort]) {
        for port in ports {
            if let Some(count) = self.0.get_mut(port) {
                *count -= 1;
                if *count == 0 {
                    self.0.remove(port);
                }
            }
        }
    }

    /// Tells whether a port is taken: all addresses clash with any one.
    pub fn conflicts(&self, wanted: &HostPort) -> bool {
        self.0.keys().any(|used| clash(used, wanted))
    }
}

/// Tells whether two pods that take these ports could not share a node.
pub fn clash(a: &HostPort, b: &HostPort) -> bool {
    a.port == b.port
        && a.protocol == b.protocol
        && (a.address == b.address || a.address == ANY_ADDRESS || b.address == ANY_ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(protocol: &str, port: i32, address: &str) -> HostPort {
        HostPort {
            protocol: protocol.into(),
            port,
            address: address.into(),
        }
    }

    #[test]
    fn all_addresses_clash_with_any() {
        let mut used = UsedPorts::default();
        used.add(&[port("TCP", 80, "127.0.0.1")]);
        assert!(used.conflicts(&port("TCP", 80, "127.0.0.1")));
        assert!(used.conflicts(&port("TCP", 80, "0.0.0.0")));
        assert!(!used.conflicts(&port("TCP", 80, "10.0.0.1")));
        assert!(!used.conflicts(&port("UDP", 80, "0.0.0.0")));
        assert!(!used.conflicts(&port("TCP", 81, "0.0.0.0")));
    }

    #[test]
    fn ports_are_counted() {
        let mut used = UsedPorts::default();
        let p = port("TCP", 80, "0.0.0.0");
        used.add(std::slice::from_ref(&p));
        used.add(std::slice::from_ref(&p));
        used.remove(std::slice::from_ref(&p));
        assert!(used.conflicts(&p));
        used.remove(std::slice::from_ref(&p));
        assert!(!used.conflicts(&p));
    }
}
