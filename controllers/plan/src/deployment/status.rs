//! What a Deployment reports: counts, the Progressing and Available conditions
//! that `kubectl rollout status` and `kubectl wait` read, and the deadline.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use serde_json::json;

use super::{Plan, Sync, actual_replicas, revision};
use crate::{EventType, Write, object};

/// Is the condition about the current rollout.
pub const PROGRESSING: &str = "Progressing";
/// Is the condition about the minimum of available pods.
pub const AVAILABLE: &str = "Available";
/// Is the condition a set reports when its pods are refused.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

const PAUSED: &str = "DeploymentPaused";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const COMPLETE: &str = "NewReplicaSetAvailable";
const CREATE_ERROR: &str = "ReplicaSetCreateError";

/// Means that no deadline is set (`math.MaxInt32` upstream).
const NO_DEADLINE: i32 = i32::MAX;

impl Sync<'_> {
    fn deadline(&self) -> Option<SignedDuration> {
        deadline(self.deployment)
    }

    /// Records that rollouts stopped or go on, so that the time between does not
    /// count against the deadline. A rollout that already failed stays failed.
    pub(super) fn note_pause(&mut self) {
        let reason = condition(&self.status, PROGRESSING).and_then(|c| c.reason.clone());
        if self.deadline().is_none() || reason.as_deref() == Some(TIMED_OUT) {
            return;
        }
        match (self.paused(), reason.as_deref() == Some(PAUSED)) {
            (true, false) => self.progressing("Unknown", PAUSED, "Deployment is paused"),
            (false, true) => {
                self.progressing("Unknown", "DeploymentResumed", "Deployment is resumed");
            }
            _ => {}
        }
    }

    fn progressing(&mut self, status: &str, reason: &str, message: impl Into<String>) {
        set(
            &mut self.status,
            new_condition(PROGRESSING, status, reason, message, self.now),
        );
    }

    /// Names the current template's set, or the Deployment where there is none.
    fn subject(&self) -> String {
        let name = self
            .new
            .map(|index| object::text(&self.sets[index].metadata.name));
        match name.or(self.created.as_deref()) {
            Some(name) => format!("ReplicaSet \"{name}\""),
            None => format!(
                "Deployment \"{}\"",
                object::text(&self.deployment.metadata.name)
            ),
        }
    }

    /// Ends a sync that does not judge the rollout's progress.
    pub(super) fn finish_status_only(mut self) -> Plan {
        self.count();
        self.write_status();
        Plan {
            writes: self.writes,
            requeue_after: None,
        }
    }

    /// Ends a sync of a rollout: judges progress against the deadline.
    pub(super) fn finish_rollout(mut self) -> Plan {
        let old = self.deployment.status.clone().unwrap_or_default();
        self.count();
        self.judge_progress(&old);
        self.note_replica_failure();
        let requeue_after = self.until_deadline();
        self.write_status();
        Plan {
            writes: self.writes,
            requeue_after,
        }
    }

    fn count(&mut self) {
        let sum = |of: &dyn Fn(&ReplicaSet) -> i32| self.sets.iter().map(of).sum::<i32>();
        let available = self.total_available();
        let unavailable = (self.total_spec() - available).max(0);
        let replicas = sum(&actual_replicas);
        let ready = sum(&|set| {
            set.status
                .as_ref()
                .and_then(|s| s.ready_replicas)
                .unwrap_or(0)
        });
        let terminating = sum(&|set| {
            set.status
                .as_ref()
                .and_then(|s| s.terminating_replicas)
                .unwrap_or(0)
        });
        let updated = self
            .new
            .map_or(0, |index| actual_replicas(&self.sets[index]));
        self.status.observed_generation = self.deployment.metadata.generation;
        self.status.replicas = nonzero(replicas);
        self.status.updated_replicas = nonzero(updated);
        self.status.ready_replicas = nonzero(ready);
        self.status.available_replicas = nonzero(available);
        self.status.unavailable_replicas = nonzero(unavailable);
        self.status.terminating_replicas = Some(terminating);
        let next = if available >= self.min_available() {
            (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        };
        set(
            &mut self.status,
            new_condition(AVAILABLE, next.0, next.1, next.2, self.now),
        );
    }

    fn judge_progress(&mut self, old: &DeploymentStatus) {
        if self.deadline().is_none() {
            remove(&mut self.status, PROGRESSING);
            return;
        }
        // A finished rollout is not judged again when pods come and go.
        let finished = condition(&self.status, PROGRESSING)
            .is_some_and(|current| current.reason.as_deref() == Some(COMPLETE));
        if finished && self.status.replicas == self.status.updated_replicas {
            return;
        }
        let subject = self.subject();
        if is_complete(self, &self.status) {
            self.progressing(
                "True",
                COMPLETE,
                format!("{subject} has successfully progressed."),
            );
        } else if has_progressed(old, &self.status) {
            // Progress restarts the deadline, so the update time moves even when
            // status and reason stay.
            let mut next = new_condition(
                PROGRESSING,
                "True",
                "ReplicaSetUpdated",
                format!("{subject} is progressing."),
                self.now,
            );
            if let Some(current) = condition(&self.status, PROGRESSING)
                && current.status == "True"
            {
                next.last_transition_time = current.last_transition_time.clone();
            }
            remove(&mut self.status, PROGRESSING);
            set(&mut self.status, next);
        } else if self.has_timed_out() {
            self.progressing(
                "False",
                TIMED_OUT,
                format!("{subject} has timed out progressing."),
            );
        }
    }

    fn has_timed_out(&self) -> bool {
        let Some(current) = condition(&self.status, PROGRESSING) else {
            return false;
        };
        match current.reason.as_deref() {
            Some(COMPLETE) => false,
            Some(TIMED_OUT) => true,
            _ => self.deadline_at().is_some_and(|at| at < self.now),
        }
    }

    fn deadline_at(&self) -> Option<Timestamp> {
        let since = condition(&self.status, PROGRESSING)?
            .last_update_time
            .as_ref()?
            .0;
        since.checked_add(self.deadline()?).ok()
    }

    /// Returns when the deadline passes, if a rollout is running against one.
    fn until_deadline(&self) -> Option<SignedDuration> {
        let current = condition(&self.status, PROGRESSING)?;
        let settled = matches!(current.reason.as_deref(), Some(TIMED_OUT | PAUSED));
        if settled || is_complete(self, &self.status) {
            return None;
        }
        // One second past: the condition's time has whole seconds.
        let wait = self.deadline_at()?.duration_since(self.now) + SignedDuration::from_secs(1);
        Some(wait.max(SignedDuration::from_secs(1)))
    }

    /// Passes on the first set's report that its pods are refused, the new set's
    /// before any other.
    fn note_replica_failure(&mut self) {
        let order = self.new.into_iter().chain(self.old());
        let failure = order
            .flat_map(|index| self.sets[index].status.iter())
            .flat_map(|status| status.conditions.iter().flatten())
            .find(|condition| condition.type_ == REPLICA_FAILURE);
        match failure.cloned() {
            None => remove(&mut self.status, REPLICA_FAILURE),
            Some(failure) => set(
                &mut self.status,
                DeploymentCondition {
                    type_: REPLICA_FAILURE.to_owned(),
                    status: failure.status,
                    reason: failure.reason,
                    message: failure.message,
                    last_update_time: failure.last_transition_time.clone(),
                    last_transition_time: failure.last_transition_time,
                },
            ),
        }
    }

    /// Writes the status, then the revision annotation. Status goes first: it is
    /// bound to the version that was observed, which the annotation changes.
    fn write_status(&mut self) {
        let old = self.deployment.status.clone().unwrap_or_default();
        if normalised(&old) != normalised(&self.status) {
            let next = Deployment {
                status: Some(self.status.clone()),
                ..self.deployment.clone()
            };
            self.writes
                .push(Write::replace(&next.metadata, Some("status"), &next));
        }
        let metadata = &self.deployment.metadata;
        if let Some(number) = &self.revision
            && revision::annotation(metadata, revision::REVISION) != Some(number)
        {
            let patch = json!({"metadata": {
                "uid": metadata.uid,
                "annotations": {revision::REVISION: number},
            }});
            self.writes
                .push(Write::patch::<Deployment>(metadata, None, patch));
        }
    }
}

/// Counts of zero are left out of the JSON, as the Go types do.
fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

/// Records the first sight of a set that needs no creation, so that the deadline
/// has a start.
pub(super) fn note_found(sync: &mut Sync<'_>) {
    let Some(index) = sync.new else { return };
    if sync.deadline().is_some() && condition(&sync.status, PROGRESSING).is_none() {
        let name = object::text(&sync.sets[index].metadata.name).to_owned();
        sync.progressing(
            "True",
            "FoundNewReplicaSet",
            format!("Found new replica set \"{name}\""),
        );
    }
}

/// Records that a set is created for the current template.
pub(super) fn note_created(sync: &mut Sync<'_>) {
    if sync.deadline().is_some() {
        let name = sync.created.clone().unwrap_or_default();
        let message = format!("Created new replica set \"{name}\"");
        sync.progressing("True", "NewReplicaSetCreated", message);
    }
}

/// Tells whether every desired pod is of the current template and available, and
/// no other is left.
pub(super) fn is_complete(sync: &Sync<'_>, status: &DeploymentStatus) -> bool {
    status.updated_replicas.unwrap_or(0) == sync.replicas
        && status.replicas.unwrap_or(0) == sync.replicas
        && status.available_replicas.unwrap_or(0) == sync.replicas
        && status.observed_generation.unwrap_or(0)
            >= sync.deployment.metadata.generation.unwrap_or(0)
}

fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let updated = |status: &DeploymentStatus| status.updated_replicas.unwrap_or(0);
    let outdated = |status: &DeploymentStatus| status.replicas.unwrap_or(0) - updated(status);
    let ready = |status: &DeploymentStatus| status.ready_replicas.unwrap_or(0);
    let available = |status: &DeploymentStatus| status.available_replicas.unwrap_or(0);
    updated(new) > updated(old)
        || outdated(new) < outdated(old)
        || ready(new) > ready(old)
        || available(new) > available(old)
}

/// Answers a creation that found its name taken by a set of another template:
/// counts the collision, so that the next sync asks for another name.
///
/// Returns nothing if the set found is the one that was to be created; the cache
/// is only behind.
pub fn on_name_taken(deployment: &Deployment, found: &ReplicaSet) -> Option<Write> {
    let ours = object::controller_of(&found.metadata)
        .is_some_and(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref());
    if ours && revision::find_new(deployment, std::slice::from_ref(found)).is_some() {
        return None;
    }
    let mut next = deployment.clone();
    let status = next.status.get_or_insert_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
    Some(Write::replace(&deployment.metadata, Some("status"), &next))
}

/// Answers a creation the API refused: says so where users look.
pub fn on_create_refused(
    deployment: &Deployment,
    name: &str,
    error: &str,
    now: Timestamp,
) -> Vec<Write> {
    let message = format!("Failed to create new replica set \"{name}\": {error}");
    let metadata = &deployment.metadata;
    let event =
        Write::event::<Deployment>(metadata, EventType::Warning, CREATE_ERROR, message.clone());
    let mut next = deployment.clone();
    let status = next.status.get_or_insert_default();
    let before = status.clone();
    if deadline(deployment).is_some() {
        set(
            status,
            new_condition(PROGRESSING, "False", CREATE_ERROR, message, now),
        );
    }
    if *status == before {
        return vec![event];
    }
    vec![event, Write::replace(metadata, Some("status"), &next)]
}

fn deadline(deployment: &Deployment) -> Option<SignedDuration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != NO_DEADLINE).then(|| SignedDuration::from_secs(i64::from(seconds)))
}

fn condition<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status
        .conditions
        .as_deref()?
        .iter()
        .find(|condition| condition.type_ == type_)
}

fn new_condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.into()),
        last_update_time: Some(now.into()),
        last_transition_time: Some(now.into()),
    }
}

/// Sets a condition unless one with the same status and reason is there; the
/// transition time moves only when the status does.
fn set(status: &mut DeploymentStatus, mut next: DeploymentCondition) {
    if let Some(current) = condition(status, &next.type_) {
        if current.status == next.status && current.reason == next.reason {
            return;
        }
        if current.status == next.status {
            next.last_transition_time = current.last_transition_time.clone();
        }
    }
    remove(status, &next.type_);
    status.conditions.get_or_insert_default().push(next);
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}

/// The API does not tell an absent number from zero.
fn normalised(status: &DeploymentStatus) -> DeploymentStatus {
    let number = |value: Option<i32>| Some(value.unwrap_or(0));
    DeploymentStatus {
        available_replicas: number(status.available_replicas),
        collision_count: number(status.collision_count),
        conditions: status
            .conditions
            .clone()
            .filter(|conditions| !conditions.is_empty()),
        observed_generation: Some(status.observed_generation.unwrap_or(0)),
        ready_replicas: number(status.ready_replicas),
        replicas: number(status.replicas),
        terminating_replicas: number(status.terminating_replicas),
        unavailable_replicas: number(status.unavailable_replicas),
        updated_replicas: number(status.updated_replicas),
    }
}
