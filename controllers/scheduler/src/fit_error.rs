//! Why a pod fits nowhere, in the words users know.
//!
//! ```text
//! 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.
//! preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, …
//! ```
//! (one line). Follows `FitError.Error` of kube-scheduler 1.36: a reason is counted
//! once per node that gave it, reasons are sorted as texts, count included.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::framework::Verdict;

/// Says why a cycle chose no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The cluster has no node.
    #[error("no nodes available to schedule pods")]
    NoNodes,
    /// No node fits.
    #[error(transparent)]
    Fit(Box<FitError>),
}

/// Holds what each node said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitError {
    /// Is how many nodes the cluster has.
    pub nodes: usize,
    /// Is the reason, if the pod was rejected before any node was looked at.
    pub pre_filter: Option<String>,
    /// Are the verdicts by node.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Is the reason of nodes without a verdict of their own.
    pub absent: Option<String>,
    /// Names the plugins that rejected the pod, or a node for it.
    pub rejected_by: BTreeSet<&'static str>,
    /// Says what preemption found.
    pub post_filter: Option<String>,
}

impl std::error::Error for FitError {}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.nodes)?;
        match &self.pre_filter {
            Some(reason) => write!(f, " {reason}.")?,
            None => {
                let reasons = self.reasons();
                if !reasons.is_empty() {
                    write!(f, " {}.", reasons.join(", "))?;
                }
            }
        }
        match &self.post_filter {
            Some(text) => write!(f, " {text}"),
            None => Ok(()),
        }
    }
}

impl FitError {
    fn reasons(&self) -> Vec<String> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in self.verdicts.values().flat_map(Verdict::reasons) {
            *counts.entry(reason).or_default() += 1;
        }
        let silent = self.nodes.saturating_sub(self.verdicts.len());
        if let Some(reason) = self.absent.as_deref().filter(|_| silent > 0) {
            *counts.entry(reason).or_default() += silent;
        }
        let mut texts: Vec<String> = counts
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        texts.sort();
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sorts_as_texts() {
        let unschedulable = |reasons: &[&str]| {
            Verdict::Unschedulable(reasons.iter().map(|r| (*r).to_owned()).collect())
        };
        let mut verdicts: BTreeMap<String, Verdict> = (0..11)
            .map(|i| {
                (
                    format!("n{i}"),
                    unschedulable(&["Insufficient cpu", "Too many pods"]),
                )
            })
            .collect();
        verdicts.insert(
            "x".into(),
            Verdict::unresolvable("node(s) had untolerated taint(s)"),
        );
        verdicts.insert("y".into(), unschedulable(&["Insufficient memory"]));
        let error = FitError {
            nodes: 13,
            verdicts,
            post_filter: Some("preemption: not eligible due to preemptionPolicy=Never.".into()),
            ..FitError::default()
        };
        assert_eq!(
            error.to_string(),
            "0/13 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), \
             11 Insufficient cpu, 11 Too many pods. \
             preemption: not eligible due to preemptionPolicy=Never."
        );
    }

    #[test]
    fn a_reason_before_any_node_stands_alone() {
        let error = FitError {
            nodes: 3,
            pre_filter: Some("pod affinity terms conflict".into()),
            absent: Some("never shown".into()),
            ..FitError::default()
        };
        assert_eq!(
            error.to_string(),
            "0/3 nodes are available: pod affinity terms conflict."
        );
    }
}
