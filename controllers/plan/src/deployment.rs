//! Deployment: move a set of pods from one template to the next, step by step.
//!
//! One sync looks at the Deployment and its ReplicaSets and answers the writes of
//! the next step. The order of concerns is upstream's: a Deployment that is being
//! deleted only reports; one that is paused or was rescaled keeps its proportions
//! ([`scale`]); otherwise the strategy moves on ([`rolling`], [`recreate`]), old
//! sets beyond the history limit go ([`cleanup`]), and [`status`] reports.
//! Revisions, annotations and the new set's name are in [`revision`].
//!
//! Rules follow Kubernetes v1.32 `pkg/controller/deployment`.

mod cleanup;
#[cfg(test)]
mod props;
mod recreate;
pub mod revision;
mod rolling;
mod scale;
pub mod status;
#[cfg(test)]
mod test;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::rounding::{Round, scaled};
use crate::{EventType, Write, object};

/// Is the share of replicas a rollout may add or take away unless told otherwise.
const DEFAULT_ROLLING_SHARE: &str = "25%";

/// Is what the controller sees of one Deployment.
#[derive(Debug)]
pub struct Observed<'a> {
    /// Is the Deployment.
    pub deployment: &'a Deployment,
    /// Holds the ReplicaSets it owns, adopted ones included.
    pub replica_sets: &'a [ReplicaSet],
    /// Counts pods that have not ended, by the uid of their ReplicaSet. Only the
    /// Recreate strategy looks at it.
    pub live_pods: &'a BTreeMap<String, usize>,
}

/// Is what to do about one Deployment.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Holds the writes in order; the first failure ends the sync.
    pub writes: Vec<Write>,
    /// Says when to look again although nothing changes: the progress deadline.
    pub requeue_after: Option<SignedDuration>,
}

/// Decides the next step of a Deployment.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let mut sync = Sync::new(observed, now);
    if observed.deployment.metadata.deletion_timestamp.is_some() {
        return sync.finish_status_only();
    }
    sync.note_pause();
    // Recreate has no proportions to keep: its own steps size the sets, also when
    // a cache that was behind led to several active ones.
    let rescaled = sync.strategy != Strategy::Recreate && scale::was_rescaled(&sync);
    if sync.paused() || rescaled {
        sync.adopt_new_set();
        scale::keep_proportions(&mut sync);
        if sync.paused() {
            cleanup::plan(&mut sync);
        }
        return sync.finish_status_only();
    }
    if sync.strategy == Strategy::Recreate {
        recreate::plan(&mut sync);
    } else {
        rolling::plan(&mut sync);
    }
    sync.finish_rollout()
}

/// Is how pods move to a new template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// Old ones go before new ones come.
    Recreate,
    /// New ones come as old ones go, within two bounds.
    Rolling {
        max_surge: i32,
        max_unavailable: i32,
    },
}

/// Reads the strategy; bounds that would forbid any step let one pod go at a time.
fn strategy(deployment: &Deployment, replicas: i32) -> Strategy {
    let strategy = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref());
    if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate")) {
        return Strategy::Recreate;
    }
    let bounds = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let share = IntOrString::String(DEFAULT_ROLLING_SHARE.to_owned());
    let surge = bounds
        .and_then(|bounds| bounds.max_surge.as_ref())
        .unwrap_or(&share);
    let unavailable = bounds
        .and_then(|bounds| bounds.max_unavailable.as_ref())
        .unwrap_or(&share);
    let max_surge = scaled(surge, replicas, Round::Up).unwrap_or(0).max(0);
    let mut max_unavailable = scaled(unavailable, replicas, Round::Down)
        .unwrap_or(0)
        .max(0);
    if max_surge == 0 && max_unavailable == 0 {
        max_unavailable = 1;
    }
    Strategy::Rolling {
        max_surge,
        max_unavailable: max_unavailable.min(replicas.max(0)),
    }
}

/// Is one sync in progress: what was seen, with the steps so far applied to it.
struct Sync<'a> {
    deployment: &'a Deployment,
    live_pods: &'a BTreeMap<String, usize>,
    now: Timestamp,
    replicas: i32,
    strategy: Strategy,
    /// Holds every owned set, oldest first, sizes as the writes so far leave them.
    sets: Vec<ReplicaSet>,
    /// Is the index of the set that carries the current template.
    new: Option<usize>,
    status: DeploymentStatus,
    /// Is the name of a set this sync creates, for the conditions.
    created: Option<String>,
    revision: Option<String>,
    writes: Vec<Write>,
}

impl<'a> Sync<'a> {
    fn new(observed: &Observed<'a>, now: Timestamp) -> Self {
        let deployment = observed.deployment;
        let replicas = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        let mut sets = observed.replica_sets.to_vec();
        sets.sort_by(|a, b| age_key(a).cmp(&age_key(b)));
        let new = revision::find_new(deployment, &sets);
        Self {
            deployment,
            live_pods: observed.live_pods,
            now,
            replicas,
            strategy: strategy(deployment, replicas),
            sets,
            new,
            status: deployment.status.clone().unwrap_or_default(),
            created: None,
            revision: None,
            writes: Vec::new(),
        }
    }

    fn paused(&self) -> bool {
        self.deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.paused)
            .unwrap_or(false)
    }

    /// Returns how many pods a rollout may have beyond the desired number.
    fn max_surge(&self) -> i32 {
        match self.strategy {
            Strategy::Recreate => 0,
            Strategy::Rolling { max_surge, .. } => max_surge,
        }
    }

    /// Returns how many of the desired pods may be missing during a rollout.
    fn max_unavailable(&self) -> i32 {
        match self.strategy {
            Strategy::Recreate => 0,
            Strategy::Rolling {
                max_unavailable, ..
            } => max_unavailable,
        }
    }

    fn min_available(&self) -> i32 {
        self.replicas - self.max_unavailable()
    }

    /// Returns the indexes of the sets with another template, oldest first.
    fn old(&self) -> Vec<usize> {
        (0..self.sets.len())
            .filter(|index| Some(*index) != self.new)
            .collect()
    }

    fn total_spec(&self) -> i32 {
        self.sets.iter().map(spec_replicas).sum()
    }

    fn total_available(&self) -> i32 {
        self.sets.iter().map(available_replicas).sum()
    }

    /// Returns how many pods of a set are available and stay so at its present
    /// size. A set that was just made smaller still reports the pods it is about
    /// to give up; counting those would give up others on their account.
    fn serving(&self, index: usize) -> i32 {
        let set = &self.sets[index];
        available_replicas(set).min(spec_replicas(set))
    }

    /// Sets a ReplicaSet's size and its record of the Deployment's size, with an
    /// event if the size changes. Returns whether it changed.
    fn resize(&mut self, index: usize, size: i32) -> bool {
        let before = spec_replicas(&self.sets[index]);
        let (desired, max) = (self.replicas, self.replicas + self.max_surge());
        let set = &mut self.sets[index];
        let annotated = revision::set_size_annotations(set, desired, max);
        if before == size && !annotated {
            return false;
        }
        if let Some(spec) = &mut set.spec {
            spec.replicas = Some(size);
        }
        let name = object::text(&set.metadata.name).to_owned();
        self.write_set(index);
        if before != size {
            let direction = if before < size { "up" } else { "down" };
            self.scaling_event(&format!(
                "Scaled {direction} replica set {name} from {before} to {size}"
            ));
        }
        before != size
    }

    /// Writes a set as it now stands. A second change in one sync joins the first
    /// write: both are bound to the one version that was observed.
    fn write_set(&mut self, index: usize) {
        let set = &self.sets[index];
        let write = Write::replace(&set.metadata, None, set);
        let Write::Replace { target: wanted, .. } = &write else {
            return;
        };
        let earlier = self
            .writes
            .iter_mut()
            .find(|earlier| matches!(earlier, Write::Replace { target, .. } if target == wanted));
        match earlier {
            Some(earlier) => *earlier = write,
            None => self.writes.push(write),
        }
    }

    fn scaling_event(&mut self, message: &str) {
        self.writes.push(Write::event::<Deployment>(
            &self.deployment.metadata,
            EventType::Normal,
            "ScalingReplicaSet",
            message,
        ));
    }

    /// Brings the new set's annotations, and the Deployment's revision, up to date.
    fn adopt_new_set(&mut self) {
        let Some(index) = self.new else { return };
        let next = revision::max_of(self.old().into_iter().map(|old| &self.sets[old])) + 1;
        let set = &mut self.sets[index];
        let mut changed = revision::annotate(self.deployment, set, next);
        let min_ready = self
            .deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.min_ready_seconds);
        if let Some(spec) = &mut set.spec
            && spec.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0)
        {
            spec.min_ready_seconds = min_ready;
            changed = true;
        }
        self.revision = revision::annotation(&set.metadata, revision::REVISION).map(str::to_owned);
        if changed {
            self.write_set(index);
        }
        status::note_found(self);
    }

    /// Creates the set for the current template, sized for its first step.
    fn create_new_set(&mut self) {
        let next = revision::max_of(self.sets.iter()) + 1;
        let size = rolling::new_set_size(self, 0);
        let max = self.replicas + self.max_surge();
        let set = revision::new_set(self.deployment, next, size, max);
        let name = object::text(&set.metadata.name).to_owned();
        self.writes.push(Write::create(&set.metadata, &set));
        if size > 0 {
            self.scaling_event(&format!("Scaled up replica set {name} from 0 to {size}"));
        }
        self.revision = Some(next.to_string());
        self.created = Some(name);
        status::note_created(self);
    }
}

/// Orders sets from oldest to newest; names break ties of the same second.
fn age_key(set: &ReplicaSet) -> (Option<Timestamp>, &str) {
    let created = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, object::text(&set.metadata.name))
}

fn spec_replicas(set: &ReplicaSet) -> i32 {
    crate::replicaset::replicas(set)
}

fn actual_replicas(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

fn available_replicas(set: &ReplicaSet) -> i32 {
    set.status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}
