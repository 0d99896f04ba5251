//! The ReplicaSet controller's shell: claims, creates and deletes pods.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use client::expectations::{EXPECTATIONS_TIMEOUT, ExpectationSet};
use client::{Error, InformerEvent, KubeObject, ObjectKey};
use futures::future::join_all;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plan::replicaset::status::{self, Failure};
use plan::replicaset::{self as planner, Manage};
use plan::{EventType, Write, object};

use crate::controller::{Controller, Reconcile, Requeue};
use crate::own_writes::{CATCH_UP, OwnWrites};
use crate::world::{BY_CONTROLLER, Cache, World, orphans};

/// Is how many ReplicaSets are worked on at a time (upstream's default).
const WORKERS: usize = 5;

type Expected = Arc<Mutex<ExpectationSet<ObjectKey>>>;

struct ReplicaSets {
    world: World,
    expected: Expected,
    written: OwnWrites,
}

/// Describes the controller.
pub fn controller(world: &World) -> Controller {
    let expected = Expected::default();
    let reconciler = ReplicaSets {
        world: world.clone(),
        expected: Arc::clone(&expected),
        written: OwnWrites::default(),
    };
    let caches = &world.caches;
    let sets = Arc::clone(&caches.replica_sets);
    Controller::new("replicaset", WORKERS, Arc::new(reconciler))
        .watch(&caches.replica_sets, |change| [change.key()])
        .watch(&caches.pods, move |change| {
            pod_changed(&sets, &expected, change)
        })
}

fn expectations_timeout() -> SignedDuration {
    SignedDuration::try_from(EXPECTATIONS_TIMEOUT).unwrap_or(SignedDuration::MAX)
}

fn lock(expected: &Expected) -> MutexGuard<'_, ExpectationSet<ObjectKey>> {
    expected.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Observes what was expected, and names the sets a pod's change concerns.
fn pod_changed(
    sets: &Cache<ReplicaSet>,
    expected: &Expected,
    change: &InformerEvent<Pod>,
) -> Vec<ObjectKey> {
    let pod = change.object();
    let owner = pod
        .controller_ref()
        .and_then(|owner| owner_key(sets, pod, owner));
    let mut keys = Vec::new();
    match change {
        InformerEvent::Added(_) if pod.is_deleting() => {
            observe_deletion(expected, owner.as_ref(), pod);
        }
        InformerEvent::Added(_) => {
            if let Some(owner) = &owner {
                lock(expected).creation_observed(owner);
            }
        }
        InformerEvent::Updated(old, _) => {
            if pod.is_deleting() {
                observe_deletion(expected, owner.as_ref(), pod);
            }
            let before = old.controller_ref();
            if before.map(|owner| &owner.uid) != pod.controller_ref().map(|owner| &owner.uid) {
                keys.extend(before.and_then(|owner| owner_key(sets, pod, owner)));
            }
        }
        InformerEvent::Deleted(_) => observe_deletion(expected, owner.as_ref(), pod),
    }
    match owner {
        Some(owner) => keys.push(owner),
        None if pod.controller_ref().is_none() => keys.extend(possible_owners(sets, pod)),
        None => {}
    }
    keys
}

fn observe_deletion(expected: &Expected, owner: Option<&ObjectKey>, pod: &Pod) {
    if let Some(owner) = owner {
        lock(expected).deletion_observed(owner, &pod.uid().to_owned());
    }
}

/// Names the set a reference means, if that set is the one in the cache.
fn owner_key(sets: &Cache<ReplicaSet>, pod: &Pod, owner: &OwnerReference) -> Option<ObjectKey> {
    if owner.kind != "ReplicaSet" {
        return None;
    }
    let set = sets
        .store()
        .get_by(pod.namespace().unwrap_or_default(), &owner.name)?;
    (set.uid() == owner.uid).then(|| set.key())
}

/// Names the sets that might adopt an orphan.
fn possible_owners(sets: &Cache<ReplicaSet>, pod: &Pod) -> Vec<ObjectKey> {
    if pod.is_deleting() || pod.meta().labels.is_none() {
        return Vec::new();
    }
    sets.store()
        .list_namespace(pod.namespace().unwrap_or_default())
        .into_iter()
        .filter(|set| {
            set.spec
                .as_ref()
                .is_some_and(|spec| object::matches(&spec.selector, pod.meta().labels.as_ref()))
        })
        .map(|set| set.key())
        .collect()
}

#[async_trait]
impl Reconcile for ReplicaSets {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let Some(set) = self.world.caches.replica_sets.store().get(key) else {
            lock(&self.expected).forget(key);
            self.written.forget(key);
            return Ok(Requeue::Done);
        };
        if self.written.is_behind(&*set) {
            return Ok(Requeue::After(CATCH_UP));
        }
        // Asked before the pods are read: what is observed in between only makes
        // the answer too careful.
        let satisfied = lock(&self.expected).satisfied(key, self.elapsed());
        let (active, terminating) = self.claim(&set).await?;
        let managed = if satisfied && !set.is_deleting() {
            self.manage(key, &set, &active).await
        } else {
            Ok(())
        };
        let failure = managed.as_ref().err().map(|(failure, _)| failure);
        let now = self.world.api.now();
        let reported = status::observed(&set, &active, terminating, failure, now);
        if let Some(write) = status::update(&set, reported) {
            self.written.note(&self.world.api.execute(&write).await?);
        }
        match managed {
            Ok(()) => {
                let available = status::requeue_after(&set, &active, now);
                // What was expected and is never seen must not hold the set for
                // ever: nothing else may wake it.
                let forgiven = (!satisfied).then(expectations_timeout);
                Ok([available, forgiven].into_iter().flatten().min().into())
            }
            Err((_, error)) => Err(error),
        }
    }
}

impl ReplicaSets {
    /// Returns the time as the expectations count it.
    fn elapsed(&self) -> Duration {
        Duration::try_from(self.world.api.now().as_duration()).unwrap_or_default()
    }

    fn owned_pods(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        self.world
            .caches
            .pods
            .store()
            .by_index(BY_CONTROLLER, set.uid())
    }

    /// Adopts and releases; returns the active pods that are ours, and how many
    /// are on their way out.
    async fn claim(&self, set: &ReplicaSet) -> Result<(Vec<Arc<Pod>>, usize), Error> {
        let mut candidates = self.owned_pods(set);
        let orphans = orphans(set.namespace().unwrap_or_default());
        candidates.extend(
            self.world
                .caches
                .pods
                .store()
                .by_index(BY_CONTROLLER, &orphans),
        );
        let mut claims = planner::claims(set, candidates);
        if !claims.adopt.is_empty() && self.world.is_live::<ReplicaSet>(set.meta()).await? {
            for (pod, write) in claims.adopt {
                match self.world.api.execute(&write).await {
                    Ok(_) => claims.owned.push(pod),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        for write in claims.release {
            match self.world.api.execute(&write).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok((claims.owned, claims.terminating))
    }

    /// Holds the pods of all sets with the same owner, for the choice of whom to
    /// give up.
    fn related(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let Some(owner) = set.controller_ref() else {
            return self.owned_pods(set);
        };
        self.world
            .caches
            .replica_sets
            .store()
            .by_index(BY_CONTROLLER, &owner.uid)
            .iter()
            .flat_map(|sibling| self.owned_pods(sibling))
            .collect()
    }

    async fn manage(
        &self,
        key: &ObjectKey,
        set: &ReplicaSet,
        active: &[Arc<Pod>],
    ) -> Result<(), (Failure, Error)> {
        let related = self.related(set);
        let Manage { create, delete } =
            planner::manage(set, active, &related, self.world.api.now());
        if create > 0 {
            self.create(key, set, create).await
        } else if !delete.is_empty() {
            self.delete(key, set, &delete).await
        } else {
            Ok(())
        }
    }

    /// Creates pods in slow-start batches; a batch with a failure is the last.
    async fn create(
        &self,
        key: &ObjectKey,
        set: &ReplicaSet,
        count: usize,
    ) -> Result<(), (Failure, Error)> {
        lock(&self.expected).expect_creations(key.clone(), count, self.elapsed());
        let write = planner::new_pod(set);
        let mut tried = 0;
        let mut failed = None;
        for batch in planner::slow_start(count) {
            let answers = join_all((0..batch).map(|_| self.world.api.execute(&write))).await;
            tried += batch;
            for answer in answers {
                match answer {
                    Ok(pod) => {
                        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                        let message = status::created_message(name);
                        self.tell(set, EventType::Normal, "SuccessfulCreate", message)
                            .await;
                    }
                    Err(error) => {
                        lock(&self.expected).creation_observed(key);
                        // Nothing can be created in a namespace that goes away;
                        // the set goes with it.
                        if !error.is_namespace_terminating() {
                            let message = format!("Error creating: {error}");
                            self.tell(set, EventType::Warning, "FailedCreate", message)
                                .await;
                        }
                        failed.get_or_insert(error);
                    }
                }
            }
            if failed.is_some() {
                break;
            }
        }
        for _ in tried..count {
            lock(&self.expected).creation_observed(key);
        }
        ended(failed, "FailedCreate")
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        set: &ReplicaSet,
        pods: &[Arc<Pod>],
    ) -> Result<(), (Failure, Error)> {
        let uids = pods.iter().map(|pod| pod.uid().to_owned());
        lock(&self.expected).expect_deletions(key.clone(), uids, self.elapsed());
        let deletions = pods.iter().map(|pod| async move {
            let write = Write::delete::<Pod>(pod.meta());
            (pod, self.world.api.execute(&write).await)
        });
        let mut failed = None;
        for (pod, answer) in join_all(deletions).await {
            match answer {
                Ok(_) => {
                    let message = status::deleted_message(pod);
                    self.tell(set, EventType::Normal, "SuccessfulDelete", message)
                        .await;
                }
                Err(error) => {
                    lock(&self.expected).deletion_observed(key, &pod.uid().to_owned());
                    if !error.is_not_found() {
                        let message = format!("Error deleting: {error}");
                        self.tell(set, EventType::Warning, "FailedDelete", message)
                            .await;
                        failed.get_or_insert(error);
                    }
                }
            }
        }
        ended(failed, "FailedDelete")
    }

    async fn tell(
        &self,
        set: &ReplicaSet,
        type_: EventType,
        reason: &'static str,
        message: String,
    ) {
        let event = Write::event::<ReplicaSet>(set.meta(), type_, reason, message);
        if let Err(error) = self.world.api.execute(&event).await {
            tracing::debug!(%error, "an event was not recorded");
        }
    }
}

fn ended(failed: Option<Error>, reason: &'static str) -> Result<(), (Failure, Error)> {
    match failed {
        None => Ok(()),
        Some(error) if error.is_namespace_terminating() => Ok(()),
        Some(error) => Err((
            Failure {
                reason,
                message: error.to_string(),
            },
            error,
        )),
    }
}
