//! What a ReplicaSet reports, and when to look again.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;

use crate::{Write, object, pod};

/// Is the condition that says pods could not be created or deleted.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Is what went wrong while pods were created or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Is `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    /// Is the API's answer, for people.
    pub message: String,
}

/// Computes the status from the active pods.
pub fn observed(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&Failure>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let Some(spec) = &set.spec else {
        return ReplicaSetStatus::default();
    };
    let min_ready = super::min_ready(spec);
    let template_labels = spec
        .template
        .as_ref()
        .and_then(|template| template.metadata.as_ref())
        .and_then(|metadata| metadata.labels.clone())
        .unwrap_or_default();
    let labelled = |candidate: &Pod| {
        let labels = candidate.metadata.labels.as_ref();
        template_labels
            .iter()
            .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    };
    let count = |test: &dyn Fn(&Pod) -> bool| {
        number(active.iter().filter(|candidate| test(candidate)).count())
    };
    ReplicaSetStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: nonzero(count(&labelled)),
        ready_replicas: nonzero(count(&pod::is_ready)),
        available_replicas: nonzero(count(&|candidate| {
            pod::is_available(candidate, min_ready, now)
        })),
        terminating_replicas: Some(number(terminating)),
        observed_generation: set.metadata.generation,
        conditions: conditions(set, failure, now),
    }
}

/// A failure already reported keeps its first message and time, as upstream: the
/// condition says since when, not how often.
fn conditions(
    set: &ReplicaSet,
    failure: Option<&Failure>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions: Vec<ReplicaSetCondition> = set
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .cloned()
        .collect();
    match failure {
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        Some(failure) if !conditions.iter().any(|c| c.type_ == REPLICA_FAILURE) => {
            conditions.push(ReplicaSetCondition {
                type_: REPLICA_FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some(failure.reason.to_owned()),
                message: Some(failure.message.clone()),
                last_transition_time: Some(now.into()),
            });
        }
        Some(_) => {}
    }
    (!conditions.is_empty()).then_some(conditions)
}

/// Writes the status if it differs from the one reported.
pub fn update(set: &ReplicaSet, status: ReplicaSetStatus) -> Option<Write> {
    let old = set.status.as_ref().map(normalised).unwrap_or_default();
    if old == normalised(&status) {
        return None;
    }
    let next = ReplicaSet {
        status: Some(status),
        ..set.clone()
    };
    Some(Write::replace(&set.metadata, Some("status"), &next))
}

/// The API does not tell an absent number from zero.
fn normalised(status: &ReplicaSetStatus) -> ReplicaSetStatus {
    ReplicaSetStatus {
        available_replicas: Some(status.available_replicas.unwrap_or(0)),
        conditions: status
            .conditions
            .clone()
            .filter(|conditions| !conditions.is_empty()),
        fully_labeled_replicas: Some(status.fully_labeled_replicas.unwrap_or(0)),
        observed_generation: Some(status.observed_generation.unwrap_or(0)),
        ready_replicas: Some(status.ready_replicas.unwrap_or(0)),
        replicas: status.replicas,
        terminating_replicas: Some(status.terminating_replicas.unwrap_or(0)),
    }
}

/// Returns in how long the next ready pod becomes available, if one is waiting.
///
/// Nothing else would wake the controller at that moment: no object changes.
pub fn requeue_after(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    now: Timestamp,
) -> Option<SignedDuration> {
    let min_ready = super::min_ready(set.spec.as_ref()?);
    active
        .iter()
        .filter(|candidate| !pod::is_available(candidate, min_ready, now))
        .filter_map(|candidate| pod::available_at(candidate, min_ready))
        .min()
        .map(|time| time.duration_since(now).max(SignedDuration::from_millis(1)))
}

/// Counts of zero are left out of the JSON, as the Go types do.
fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Returns the sentence of the event about a pod that was created.
pub fn created_message(pod: &str) -> String {
    format!("Created pod: {pod}")
}

/// Returns the sentence of the event about a pod that was deleted.
pub fn deleted_message(pod: &Pod) -> String {
    format!("Deleted pod: {}", object::text(&pod.metadata.name))
}
