//! Which pods a ReplicaSet gives up first.
//!
//! The criteria and their order are upstream's `ActivePodsWithRanks`
//! (`pkg/controller/controller_utils.go`, v1.32). Upstream compares pairwise in a
//! way that is not transitive when some ages are equal and others only of the
//! same magnitude; here the criteria form one key, so the order is total: age by
//! magnitude, then restarts, then age of the pod by magnitude, then uid.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::pod;

/// Is the annotation by which users make a pod cheaper or dearer to delete.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Returns the `count` least wanted of the active pods, least wanted first.
pub fn least_wanted(
    active: &[Arc<Pod>],
    related: &[Arc<Pod>],
    count: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut per_node: BTreeMap<&str, usize> = BTreeMap::new();
    for other in related.iter().filter(|other| pod::is_active(other)) {
        *per_node.entry(pod::node_name(other)).or_default() += 1;
    }
    let mut ranked: Vec<&Arc<Pod>> = active.iter().collect();
    ranked.sort_by_cached_key(|candidate| {
        let neighbours = per_node
            .get(pod::node_name(candidate))
            .copied()
            .unwrap_or(0);
        Wanted::of(candidate, neighbours, now)
    });
    ranked.into_iter().take(count).cloned().collect()
}

/// Orders pods from least to most wanted; the fields are the criteria in order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    assigned: bool,
    phase: u8,
    ready: bool,
    deletion_cost: i32,
    neighbours: Reverse<usize>,
    ready_magnitude: i32,
    restarts: Reverse<i32>,
    age_magnitude: i32,
    uid: String,
}

impl Wanted {
    fn of(candidate: &Pod, neighbours: usize, now: Timestamp) -> Self {
        let ready = pod::is_ready(candidate);
        let ready_since = if ready {
            pod::ready_since(candidate)
        } else {
            None
        };
        let created = candidate
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        Self {
            assigned: !pod::node_name(candidate).is_empty(),
            phase: match pod::phase(candidate) {
                "Pending" | "" => 0,
                "Running" => 2,
                _ => 1,
            },
            ready,
            deletion_cost: deletion_cost(candidate),
            neighbours: Reverse(neighbours),
            ready_magnitude: if ready {
                magnitude(ready_since, now)
            } else {
                0
            },
            restarts: Reverse(pod::max_restarts(candidate)),
            age_magnitude: magnitude(created, now),
            uid: candidate.metadata.uid.clone().unwrap_or_default(),
        }
    }
}

fn deletion_cost(candidate: &Pod) -> i32 {
    // A malformed cost is refused by validation where it is checked, and counts
    // as none here.
    candidate
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(DELETION_COST)?.parse().ok())
        .unwrap_or(0)
}

/// Returns the logarithm of an age, so that pods of a like age count as equal
/// and the choice among them is spread (KEP-2185).
fn magnitude(since: Option<Timestamp>, now: Timestamp) -> i32 {
    let Some(since) = since else { return i32::MIN };
    let nanoseconds = now.duration_since(since).as_nanos();
    match u128::try_from(nanoseconds)
        .ok()
        .and_then(u128::checked_ilog2)
    {
        Some(log) => i32::try_from(log).unwrap_or(i32::MAX),
        None => -1,
    }
}
