//! Making room: which less important pods would have to go for a pod to fit.
//!
//! Follows kube-scheduler's default preemption. On every node that a pod's end could
//! open, all less important pods are taken off; if the pod then fits, they are put
//! back one by one, the most important first, and those that no longer fit are the
//! victims. Among the nodes the one with the least important victims is taken.
//! Disruption budgets are not known yet.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::cache::Cache;
use crate::cycle::Cycle;
use crate::fit_error::FitError;
use crate::framework::Verdict;
use crate::node::NodeInfo;
use crate::pod::PodInfo;

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

const NEVER: &str = "preemption: not eligible due to preemptionPolicy=Never.";
const TERMINATING: &str =
    "preemption: not eligible due to a terminating pod on the nominated node.";

/// Is what preemption found.
#[derive(Clone, Debug)]
pub enum Preemption {
    /// The pod fits on a node once these pods are gone.
    Victims {
        /// Is the node.
        node: String,
        /// Are the pods to delete, the most important first.
        pods: Vec<Arc<PodInfo>>,
    },
    /// The pod may not preempt, or not now; a promise made before stands. The text
    /// goes behind the reason the pod does not fit.
    NotEligible(String),
    /// Nothing can be done; a promise made before is void.
    NoHelp(String),
}

impl Preemption {
    /// Returns what to put behind the reason the pod does not fit.
    pub fn message(&self) -> Option<&str> {
        match self {
            Preemption::Victims { .. } => None,
            Preemption::NotEligible(text) | Preemption::NoHelp(text) => Some(text),
        }
    }
}

/// Looks for room for a pod that fits nowhere.
pub fn preempt(cycle: &Cycle, pod: &PodInfo, cache: &Cache, error: &FitError) -> Preemption {
    if !pod.may_preempt {
        return Preemption::NotEligible(NEVER.to_owned());
    }
    if waits_for_victims(pod, cache) {
        return Preemption::NotEligible(TERMINATING.to_owned());
    }
    let mut failed = FitError {
        nodes: error.nodes,
        absent: Some(NOT_HELPFUL.to_owned()),
        ..FitError::default()
    };
    let mut candidates = Vec::new();
    for (name, verdict) in &error.verdicts {
        let (Verdict::Unschedulable(_), Some(node)) = (verdict, cache.node(name)) else {
            continue;
        };
        match victims(cycle, pod, node) {
            Ok(pods) => candidates.push((name, pods)),
            Err(verdict) => {
                failed.verdicts.insert(name.clone(), verdict);
            }
        }
    }
    // The first of equals is taken, in order of name.
    match candidates.into_iter().min_by_key(|(_, pods)| cost(pods)) {
        Some((node, pods)) => Preemption::Victims {
            node: node.clone(),
            pods,
        },
        None => Preemption::NoHelp(format!("preemption: {failed}")),
    }
}

/// Tells whether earlier victims of the pod are still on their way out.
fn waits_for_victims(pod: &PodInfo, cache: &Cache) -> bool {
    cache.node(&pod.nominated_node).is_some_and(|node| {
        node.pods
            .values()
            .any(|p| p.priority < pod.priority && p.is_deleting())
    })
}

/// Returns whom the pod would displace on a node, or why even that would not help.
fn victims(cycle: &Cycle, pod: &PodInfo, node: &NodeInfo) -> Result<Vec<Arc<PodInfo>>, Verdict> {
    let mut lesser: Vec<Arc<PodInfo>> = node
        .pods
        .values()
        .filter(|p| p.priority < pod.priority)
        .cloned()
        .collect();
    if lesser.is_empty() {
        return Err(Verdict::unresolvable(NO_VICTIMS));
    }
    let mut without = node.clone();
    for p in &lesser {
        without.remove_pod(&p.uid);
    }
    let verdict = cycle.judge(pod, &without);
    if verdict != Verdict::Fits {
        return Err(verdict);
    }
    // The more important first; of equals, the one that has run for longer.
    lesser.sort_by_key(|p| (Reverse(p.priority), p.start_time.is_none(), p.start_time));
    let mut victims = Vec::new();
    for p in lesser {
        without.add_pod(Arc::clone(&p));
        if cycle.judge(pod, &without) != Verdict::Fits {
            without.remove_pod(&p.uid);
            victims.push(p);
        }
    }
    Ok(victims)
}

/// Orders nodes: the lowest most important victim, the smallest sum of priorities,
/// the fewest victims, and the latest start of the most important ones.
fn cost(victims: &[Arc<PodInfo>]) -> impl Ord + use<> {
    let highest = victims.iter().map(|p| p.priority).max().unwrap_or(i32::MIN);
    // Shifted above zero, so that more victims never make a smaller sum.
    let shifted = |p: &Arc<PodInfo>| i64::from(p.priority) + i64::from(i32::MAX) + 1;
    let sum: i64 = victims.iter().map(shifted).sum();
    let most_important = victims.iter().filter(|p| p.priority == highest);
    let earliest = most_important.filter_map(|p| p.start_time).min();
    (highest, sum, victims.len(), Reverse(earliest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fit_error::ScheduleError;
    use crate::framework::testing::{node, pod_with};

    fn ranked(name: &str, cpu: &str, priority: i32) -> Arc<PodInfo> {
        pod_with(
            name,
            json!({"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu}}}]}),
        )
    }

    fn world(pods: &[(&str, Arc<PodInfo>)]) -> Cache {
        let mut cache = Cache::default();
        for name in ["a", "b"] {
            cache.set_node(&node(name, "4", "8Gi"));
        }
        for (node, pod) in pods {
            let placed = PodInfo {
                node_name: (*node).into(),
                ..(**pod).clone()
            };
            cache.add_pod(Arc::new(placed));
        }
        cache
    }

    fn run(pod: &PodInfo, cache: &Cache) -> Preemption {
        let mut cycle = Cycle::default();
        let Err(ScheduleError::Fit(error)) = cycle.schedule(pod, cache, 0) else {
            panic!("it fits")
        };
        preempt(&cycle, pod, cache, &error)
    }

    #[test]
    fn takes_as_few_and_as_unimportant_as_it_can() {
        let cache = world(&[
            ("a", ranked("a1", "2", 5)),
            ("a", ranked("a2", "2", 1)),
            ("b", ranked("b1", "2", 5)),
            ("b", ranked("b2", "2", 5)),
        ]);
        let Preemption::Victims { node, pods } = run(&ranked("p", "2", 10), &cache) else {
            panic!("no victims")
        };
        let names: Vec<_> = pods.iter().map(|p| p.name.as_str()).collect();
        assert_eq!((node.as_str(), names), ("a", vec!["a2"]));
    }

    #[test]
    fn says_why_it_cannot_help() {
        let full = [("a", ranked("a1", "4", 5)), ("b", ranked("b1", "4", 5))];
        let Preemption::NoHelp(text) = run(&ranked("p", "2", 5), &world(&full)) else {
            panic!("victims of equal priority")
        };
        assert_eq!(
            text,
            "preemption: 0/2 nodes are available: \
             2 No preemption victims found for incoming pod."
        );
        let Preemption::NoHelp(text) = run(&ranked("p", "9", 50), &world(&full)) else {
            panic!("more than any node has")
        };
        assert_eq!(
            text,
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        );
        let polite = pod_with(
            "p",
            json!({"priority": 50, "preemptionPolicy": "Never",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}),
        );
        let Preemption::NotEligible(text) = run(&polite, &world(&full)) else {
            panic!("never")
        };
        assert_eq!(
            text,
            "preemption: not eligible due to preemptionPolicy=Never."
        );
    }
}
