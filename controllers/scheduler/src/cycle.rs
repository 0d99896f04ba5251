//! One pod's way through the plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::Cache;
use crate::event::ClusterEvent;
use crate::fit_error::{FitError, ScheduleError};
use crate::framework::{PreFilter, Verdict};
use crate::node::NodeInfo;
use crate::plugins::{Registered, default_plugins};
use crate::pod::PodInfo;

/// Below this many nodes all of them are looked at.
const FEASIBLE_NODES_MIN: usize = 100;
/// Bounds the share of nodes looked at from below, in percent.
const PERCENT_MIN: usize = 5;

/// Is where a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Is the node.
    pub node: String,
    /// Is how many nodes were looked at.
    pub evaluated: usize,
    /// Is how many of them fit.
    pub feasible: usize,
}

/// Runs pods through the plugins of a profile.
#[derive(Debug)]
pub struct Cycle {
    plugins: Vec<Registered>,
    /// Is the position in the list of nodes where the next cycle begins, so that in a
    /// large cluster every node gets its turn.
    next_start: usize,
    /// Are pods that were promised room on a node, by node and UID.
    nominated: BTreeMap<String, BTreeMap<String, Arc<PodInfo>>>,
}

impl Default for Cycle {
    fn default() -> Self {
        Self::new(default_plugins())
    }
}

/// Is what the plugins said of the pod alone.
struct Prepared<'a> {
    filters: Vec<&'a Registered>,
    only: Option<BTreeSet<String>>,
    only_by: Vec<&'static str>,
}

impl Cycle {
    /// Builds a cycle over plugins.
    pub fn new(plugins: Vec<Registered>) -> Self {
        Self {
            plugins,
            next_start: 0,
            nominated: BTreeMap::new(),
        }
    }

    /// Chooses a node. `random` is a fresh random number; it decides between equally
    /// good nodes.
    pub fn schedule(
        &mut self,
        pod: &PodInfo,
        cache: &Cache,
        random: u64,
    ) -> Result<Choice, ScheduleError> {
        let nodes: Vec<&NodeInfo> = cache.nodes().collect();
        if nodes.is_empty() {
            return Err(ScheduleError::NoNodes);
        }
        let mut error = FitError {
            nodes: nodes.len(),
            ..FitError::default()
        };
        let prepared = match self.prepare(pod, &mut error) {
            Some(prepared) => prepared,
            None => return Err(ScheduleError::Fit(Box::new(error))),
        };
        let start = self.next_start % nodes.len();
        let wanted = feasible_nodes_to_find(nodes.len());
        let mut feasible = Vec::new();
        let mut evaluated = 0;
        for offset in 0..nodes.len() {
            let node = nodes[(start + offset) % nodes.len()];
            if prepared
                .only
                .as_ref()
                .is_some_and(|names| !names.contains(&node.name))
            {
                continue;
            }
            evaluated += 1;
            match self.filter(&prepared.filters, pod, node) {
                (_, Verdict::Fits) => feasible.push(node),
                (plugin, verdict) => {
                    error.rejected_by.insert(plugin);
                    error.verdicts.insert(node.name.clone(), verdict);
                }
            }
            if feasible.len() >= wanted {
                break;
            }
        }
        if feasible.is_empty() {
            if let Some(names) = prepared.only {
                error.absent = Some(only_reason(&prepared.only_by, &names));
                error.rejected_by.extend(&prepared.only_by);
            }
            return Err(ScheduleError::Fit(Box::new(error)));
        }
        let node = self.best(pod, &feasible, random).name.clone();
        let choice = Choice {
            node,
            evaluated,
            feasible: feasible.len(),
        };
        self.next_start = (start + evaluated) % nodes.len();
        Ok(choice)
    }

    /// Asks the plugins about the pod alone; none if one rejects it.
    fn prepare(&self, pod: &PodInfo, error: &mut FitError) -> Option<Prepared<'_>> {
        let mut prepared = Prepared {
            filters: Vec::new(),
            only: None,
            only_by: Vec::new(),
        };
        for registered in &self.plugins {
            let name = registered.plugin.name();
            match registered.plugin.pre_filter(pod) {
                PreFilter::Skip => continue,
                PreFilter::Continue => {}
                PreFilter::Only(names) => {
                    prepared.only_by.push(name);
                    prepared.only = Some(match prepared.only.take() {
                        Some(others) => &others & &names,
                        None => names,
                    });
                }
                PreFilter::Reject(reason) => {
                    error.pre_filter = Some(reason);
                    error.rejected_by.insert(name);
                    return None;
                }
            }
            prepared.filters.push(registered);
        }
        Some(prepared)
    }

    /// Judges a node: as it is, and as it would be once the pods arrive that were
    /// promised room on it and are at least as important.
    fn filter(
        &self,
        filters: &[&Registered],
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> (&'static str, Verdict) {
        let promised = self.nominated.get(&node.name).into_iter().flatten();
        let mut promised = promised
            .filter(|(uid, p)| **uid != pod.uid && p.priority >= pod.priority)
            .peekable();
        if promised.peek().is_some() {
            let mut later = node.clone();
            promised.for_each(|(_, p)| later.add_pod(Arc::clone(p)));
            let verdict = run_filters(filters, pod, &later);
            if verdict.1 != Verdict::Fits {
                return verdict;
            }
        }
        run_filters(filters, pod, node)
    }

    /// Judges a node as preemption needs it.
    pub(crate) fn judge(&self, pod: &PodInfo, node: &NodeInfo) -> Verdict {
        let filters: Vec<&Registered> = self
            .plugins
            .iter()
            .filter(|r| r.plugin.pre_filter(pod) != PreFilter::Skip)
            .collect();
        self.filter(&filters, pod, node).1
    }

    /// Rates nodes and returns one of the best.
    fn best<'n>(&self, pod: &PodInfo, nodes: &[&'n NodeInfo], random: u64) -> &'n NodeInfo {
        if let [only] = nodes {
            return only;
        }
        let totals = self.totals(pod, nodes);
        let highest = totals.iter().copied().max().unwrap_or(0);
        let best: Vec<&NodeInfo> = nodes
            .iter()
            .zip(&totals)
            .filter(|(_, s)| **s == highest)
            .map(|(n, _)| *n)
            .collect();
        let count = u64::try_from(best.len()).unwrap_or(1).max(1);
        let at = usize::try_from(random % count).unwrap_or(0);
        best[at]
    }

    fn totals(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        for registered in self.plugins.iter().filter(|r| r.weight > 0) {
            let plugin = &registered.plugin;
            let scores: Option<Vec<i64>> = nodes.iter().map(|n| plugin.score(pod, n)).collect();
            let Some(mut scores) = scores else { continue };
            plugin.normalize(&mut scores);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += score * registered.weight;
            }
        }
        totals
    }

    /// Rates nodes that fit, for tests and diagnosis: total score by node.
    pub fn scores(&self, pod: &PodInfo, cache: &Cache) -> BTreeMap<String, i64> {
        let nodes: Vec<&NodeInfo> = cache.nodes().collect();
        let totals = self.totals(pod, &nodes);
        nodes.iter().map(|n| n.name.clone()).zip(totals).collect()
    }

    /// Tells whether a change may let a pod fit that these plugins rejected. Without
    /// a rejecting plugin anything may help.
    pub fn may_help(
        &self,
        rejected_by: &BTreeSet<&'static str>,
        pod: &PodInfo,
        event: &ClusterEvent,
    ) -> bool {
        rejected_by.is_empty()
            || self
                .plugins
                .iter()
                .any(|r| rejected_by.contains(r.plugin.name()) && r.plugin.may_help(pod, event))
    }

    /// Promises a pod room on a node, in place of an earlier promise.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.clear_nomination(&pod.uid);
        self.nominated
            .entry(node.to_owned())
            .or_default()
            .insert(pod.uid.clone(), pod);
    }

    /// Takes a promise back: the pod is placed or gone.
    pub fn clear_nomination(&mut self, uid: &str) {
        self.nominated.retain(|_, pods| {
            pods.remove(uid);
            !pods.is_empty()
        });
    }
}

fn run_filters(filters: &[&Registered], pod: &PodInfo, node: &NodeInfo) -> (&'static str, Verdict) {
    for registered in filters {
        let verdict = registered.plugin.filter(pod, node);
        if verdict != Verdict::Fits {
            return (registered.plugin.name(), verdict);
        }
    }
    ("", Verdict::Fits)
}

fn only_reason(plugins: &[&'static str], names: &BTreeSet<String>) -> String {
    let plugins = plugins.join(" ");
    if names.is_empty() {
        return format!("node(s) didn't satisfy plugin(s) [{plugins}] simultaneously");
    }
    format!("node(s) didn't satisfy plugin(s) [{plugins}]")
}

/// Returns after how many nodes that fit a cycle stops looking: in a large cluster a
/// good node is worth more than the best one later (kube-scheduler's
/// `percentageOfNodesToScore` with its default of 0).
fn feasible_nodes_to_find(nodes: usize) -> usize {
    if nodes < FEASIBLE_NODES_MIN {
        return nodes;
    }
    let percent = 50usize.saturating_sub(nodes / 125).max(PERCENT_MIN);
    (nodes * percent / 100).max(FEASIBLE_NODES_MIN)
}

#[cfg(test)]
mod test;
