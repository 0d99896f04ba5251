//! What this machine is: read once, reported in the Node.

use std::fs;
use std::path::Path;

use kubelet_core::fields::NodeFacts;
use kubelet_core::node::MachineFacts;

use crate::options::AgentOptions;

/// The Kubernetes version whose kubelet this one behaves as, for tools that
/// compare versions; in the form the API server's own version has.
const KUBELET_VERSION: &str = concat!("v1.36.0+keelson.", env!("CARGO_PKG_VERSION"));

/// Returns the machine's host name, lower-cased as node names are.
pub fn hostname() -> String {
    let name = read("/proc/sys/kernel/hostname");
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name.to_lowercase()
    }
}

/// Reads the machine's facts.
pub(crate) fn facts(options: &AgentOptions, port: u16, runtime_version: String) -> MachineFacts {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    MachineFacts {
        name: options.node_name.clone(),
        ip: options.node_ip.to_string(),
        kubelet_port: port,
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_kib: memory_kib(&read("/proc/meminfo")),
        disk_kib: disk_kib(&options.root_dir),
        architecture: architecture().to_owned(),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        os_image: os_image(&read("/etc/os-release")),
        machine_id: read("/etc/machine-id"),
        boot_id: crate::proc::boot_id(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        runtime_version,
    }
}

/// Derives what pods may ask about their node.
pub(crate) fn node_facts(machine: &MachineFacts) -> NodeFacts {
    NodeFacts {
        node_name: machine.name.clone(),
        host_ip: machine.ip.clone(),
        // A process shares the machine's network.
        pod_ip: machine.ip.clone(),
        allocatable_cpu_milli: i64::from(machine.cpus) * 1000,
        allocatable_memory_bytes: i64::try_from(machine.memory_kib).unwrap_or(0) * 1024,
    }
}

/// Names the architecture as Go and the `kubernetes.io/arch` label do.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

fn memory_kib(meminfo: &str) -> u64 {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    total
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn disk_kib(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |fs| fs.f_blocks.saturating_mul(fs.f_frsize) / 1024)
}

fn os_image(os_release: &str) -> String {
    let name = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(
        || "Linux".to_owned(),
        |name| name.trim_matches('"').to_owned(),
    )
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn proc_and_etc_are_read() {
        assert_eq!(
            memory_kib("MemFree: 1 kB\nMemTotal:       24606376 kB\n"),
            24_606_376
        );
        assert_eq!(memory_kib(""), 0);
        assert_eq!(os_image("NAME=x\nPRETTY_NAME=\"Debian 13\"\n"), "Debian 13");
        assert!(!hostname().is_empty());
    }

    /// Build metadata is dot-separated (Semantic Versioning 2.0.0, item 10).
    #[test]
    fn the_version_has_the_api_servers_form() {
        assert_eq!(
            KUBELET_VERSION,
            format!("v1.36.0+keelson.{}", crate::VERSION)
        );
    }
}
