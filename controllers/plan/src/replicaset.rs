//! ReplicaSet: keep a number of pods of one template.
//!
//! A sync has three parts, in this order, because each needs the effect of the
//! one before: [`claims`] says which pods are ours, [`manage`] how many to create
//! or which to delete, [`status::update`] what to report. The order in which pods
//! are given up is [`rank`].
//!
//! Rules follow Kubernetes v1.32 `pkg/controller/replicaset/replica_set.go`.

pub mod rank;
pub mod status;
#[cfg(test)]
mod test;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::{self, Claim};
use crate::{Write, pod};

/// Bounds how many pods one sync creates or deletes; the rest waits for the next
/// sync, so one huge ReplicaSet cannot starve the others (upstream BurstReplicas).
pub const BURST_REPLICAS: usize = 500;

/// Is the size of the first batch of creations. Each batch that succeeds whole
/// doubles the next, so a set whose pods are all refused costs one request.
pub const SLOW_START_INITIAL: usize = 1;

/// Returns the desired number of pods.
pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// Returns how long a pod must be ready before it counts as available.
pub fn min_ready(spec: &ReplicaSetSpec) -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(i64::from(spec.min_ready_seconds.unwrap_or(0)))
}

/// Is what the ReplicaSet's selector says about the pods of its namespace.
#[derive(Debug, Default)]
pub struct Claims {
    /// Holds the active pods that are ours.
    pub owned: Vec<Arc<Pod>>,
    /// Holds our pods that are being deleted and have not ended.
    pub terminating: usize,
    /// Holds orphans to take. They count as ours once the write succeeded.
    pub adopt: Vec<(Arc<Pod>, Write)>,
    /// Holds writes that let go of pods that no longer match.
    pub release: Vec<Write>,
}

/// Sorts the pods of the namespace into ours, to adopt and to release.
///
/// Pods that ended are neither counted nor touched.
pub fn claims(set: &ReplicaSet, pods: impl IntoIterator<Item = Arc<Pod>>) -> Claims {
    let mut claims = Claims::default();
    let Some(spec) = &set.spec else { return claims };
    let uid = object::text(&set.metadata.uid);
    for candidate in pods {
        if pod::is_terminal(&candidate) {
            continue;
        }
        match object::claim(&set.metadata, &spec.selector, &candidate.metadata) {
            Claim::Ignore => {}
            Claim::Owned if pod::is_active(&candidate) => claims.owned.push(candidate),
            Claim::Owned => claims.terminating += 1,
            Claim::Adopt => {
                let owner = object::controller_ref::<ReplicaSet>(&set.metadata);
                let patch = object::adopt_patch(&candidate.metadata, owner);
                let write = Write::patch::<Pod>(&candidate.metadata, None, patch);
                claims.adopt.push((candidate, write));
            }
            Claim::Release => {
                let patch = object::release_patch(&candidate.metadata, &[uid]);
                claims
                    .release
                    .push(Write::patch::<Pod>(&candidate.metadata, None, patch));
            }
        }
    }
    claims
}

/// Is the difference between the pods there are and the pods there should be.
#[derive(Debug, Default)]
pub struct Manage {
    /// Is how many pods to create, in slow-start batches.
    pub create: usize,
    /// Holds the pods to delete, least wanted first.
    pub delete: Vec<Arc<Pod>>,
}

/// Decides how many pods to create or which to delete.
///
/// `related` holds the pods of every ReplicaSet with the same owner: a node that
/// runs several of them gives one up first.
pub fn manage(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    related: &[Arc<Pod>],
    now: Timestamp,
) -> Manage {
    let desired = usize::try_from(replicas(set)).unwrap_or(0);
    if active.len() <= desired {
        let create = (desired - active.len()).min(BURST_REPLICAS);
        return Manage {
            create,
            delete: Vec::new(),
        };
    }
    let surplus = (active.len() - desired).min(BURST_REPLICAS);
    Manage {
        create: 0,
        delete: rank::least_wanted(active, related, surplus, now),
    }
}

/// Builds the pod that fills one missing replica.
pub fn new_pod(set: &ReplicaSet) -> Write {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.clone())
        .unwrap_or_default();
    let template_meta = template.metadata.unwrap_or_default();
    let name = object::text(&set.metadata.name);
    let pod = Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: set.metadata.namespace.clone(),
            labels: template_meta.labels,
            annotations: template_meta.annotations,
            finalizers: template_meta.finalizers,
            owner_references: Some(vec![object::controller_ref::<ReplicaSet>(&set.metadata)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    };
    Write::create(&pod.metadata, &pod)
}

/// Yields the sizes of slow-start batches: 1, 2, 4, … until `total` is reached.
pub fn slow_start(total: usize) -> impl Iterator<Item = usize> {
    let mut left = total;
    let mut next = SLOW_START_INITIAL;
    std::iter::from_fn(move || {
        let batch = next.min(left);
        left -= batch;
        next = next.saturating_mul(2);
        (batch > 0).then_some(batch)
    })
}
