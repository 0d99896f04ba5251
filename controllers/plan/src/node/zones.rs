//! How fast nodes may lose their pods, by the state of their zone.
//!
//! A zone where many nodes went silent at once is more likely cut off than dead:
//! its nodes are given up slowly, or not at all where the zone is small. The
//! numbers are kube-controller-manager's defaults (`--node-eviction-rate`,
//! `--secondary-node-eviction-rate`, `--unhealthy-zone-threshold`,
//! `--large-cluster-size-threshold`).

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;

/// Is the time between two nodes of a zone in good order: 0.1 a second.
pub const EVICTION_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// Is the time between two nodes of a large zone in disorder: 0.01 a second.
pub const SLOW_EVICTION_INTERVAL: SignedDuration = SignedDuration::from_secs(100);
/// Is the share of nodes not ready, in percent, from which a zone is in disorder.
const UNHEALTHY_PERCENT: usize = 55;
/// Is how many nodes must be not ready for a zone to be in disorder at all.
const UNHEALTHY_MIN: usize = 3;
/// Is the size from which a zone in disorder still gives up nodes, slowly.
const LARGE_ZONE: usize = 51;

/// Is how fast a zone's nodes may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// One node each time this has passed.
    Every(SignedDuration),
    /// None for now.
    Halted,
}

/// Returns the pace of a zone with so many nodes ready and not ready.
pub fn pace(ready: usize, not_ready: usize) -> Pace {
    let total = ready + not_ready;
    let disorder = not_ready >= UNHEALTHY_MIN && not_ready * 100 >= total * UNHEALTHY_PERCENT;
    // A zone where nothing is left is given up at full pace: others are well, or
    // all evictions are stopped.
    if ready == 0 || !disorder {
        Pace::Every(EVICTION_INTERVAL)
    } else if total >= LARGE_ZONE {
        Pace::Every(SLOW_EVICTION_INTERVAL)
    } else {
        Pace::Halted
    }
}

/// Returns the zone a node says it is in; nodes that say nothing share one.
pub fn zone_of(node: &Node) -> String {
    let label = |key: &str| {
        let labels = node.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
            .unwrap_or_default()
    };
    format!(
        "{}/{}",
        label("topology.kubernetes.io/region"),
        label("topology.kubernetes.io/zone")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_by_the_state_of_the_zone() {
        let (fast, slow) = (
            Pace::Every(EVICTION_INTERVAL),
            Pace::Every(SLOW_EVICTION_INTERVAL),
        );
        for (ready, not_ready, expect) in [
            (1, 1, fast),
            (0, 1, fast),
            (0, 30, fast),
            (1, 2, fast),
            (1, 3, Pace::Halted),
            (5, 5, fast),
            (20, 30, Pace::Halted),
            (20, 31, slow),
            (60, 40, fast),
        ] {
            assert_eq!(
                pace(ready, not_ready),
                expect,
                "{ready} ready, {not_ready} not"
            );
        }
    }
}
