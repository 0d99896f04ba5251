//! The Deployment controller's shell: claims ReplicaSets and performs the plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use client::{Error, InformerEvent, KubeObject, ObjectKey};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use plan::deployment::{self as planner, Observed, status};
use plan::object::{self, Claim};
use plan::{Target, Write};
use serde_json::Value;

use crate::controller::{Controller, Reconcile, Requeue};
use crate::own_writes::{CATCH_UP, OwnWrites};
use crate::world::{BY_CONTROLLER, Caches, World, orphans};

/// Is how many Deployments are worked on at a time (upstream's default).
const WORKERS: usize = 5;

struct Deployments {
    world: World,
    written: OwnWrites,
    sets_written: Arc<OwnWrites>,
}

/// Describes the controller.
pub fn controller(world: &World) -> Controller {
    let caches = &world.caches;
    let (of_sets, of_pods) = (caches.clone(), caches.clone());
    let sets_written = Arc::<OwnWrites>::default();
    let reconciler = Deployments {
        world: world.clone(),
        written: OwnWrites::default(),
        sets_written: Arc::clone(&sets_written),
    };
    Controller::new("deployment", WORKERS, Arc::new(reconciler))
        .watch(&caches.deployments, |change| [change.key()])
        .watch(&caches.replica_sets, move |change| {
            if let InformerEvent::Deleted(set) = change {
                sets_written.forget(&set.key());
            }
            set_changed(&of_sets, change)
        })
        .watch(&caches.pods, move |change| pod_changed(&of_pods, change))
}

fn set_changed(caches: &Caches, change: &InformerEvent<ReplicaSet>) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    if let InformerEvent::Updated(old, new) = change
        && old.controller_ref().map(|owner| &owner.uid)
            != new.controller_ref().map(|owner| &owner.uid)
    {
        keys.extend(owner_key(caches, old));
    }
    let set = change.object();
    match owner_key(caches, set) {
        Some(key) => keys.push(key),
        None if set.controller_ref().is_none() && !set.is_deleting() => {
            keys.extend(possible_owners(caches, set));
        }
        None => {}
    }
    keys
}

/// Names the Deployment that owns a set, if it is the one in the cache.
fn owner_key(caches: &Caches, set: &ReplicaSet) -> Option<ObjectKey> {
    let owner = set
        .controller_ref()
        .filter(|owner| owner.kind == "Deployment")?;
    let namespace = set.namespace().unwrap_or_default();
    let deployment = caches.deployments.store().get_by(namespace, &owner.name)?;
    (deployment.uid() == owner.uid).then(|| deployment.key())
}

/// Names the Deployments that might adopt an orphan.
fn possible_owners(caches: &Caches, set: &ReplicaSet) -> Vec<ObjectKey> {
    caches
        .deployments
        .store()
        .list_namespace(set.namespace().unwrap_or_default())
        .into_iter()
        .filter(|deployment| {
            deployment
                .spec
                .as_ref()
                .is_some_and(|spec| object::matches(&spec.selector, set.meta().labels.as_ref()))
        })
        .map(|deployment| deployment.key())
        .collect()
}

/// The last pod of an old template to end starts the next step of a Recreate;
/// every other step is told by the sets' status.
fn pod_changed(caches: &Caches, change: &InformerEvent<Pod>) -> Option<ObjectKey> {
    let pod = change.object();
    let ended = matches!(change, InformerEvent::Deleted(_)) || plan::pod::is_terminal(pod);
    let owner = pod
        .controller_ref()
        .filter(|owner| ended && owner.kind == "ReplicaSet")?;
    let namespace = pod.namespace().unwrap_or_default();
    let set = caches.replica_sets.store().get_by(namespace, &owner.name)?;
    let key = owner_key(caches, &set)?;
    let deployment = caches.deployments.store().get(&key)?;
    is_recreate(&deployment).then_some(key)
}

fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

#[async_trait]
impl Reconcile for Deployments {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let Some(deployment) = self.world.caches.deployments.store().get(key) else {
            self.written.forget(key);
            return Ok(Requeue::Done);
        };
        if self.written.is_behind(&*deployment) {
            return Ok(Requeue::After(CATCH_UP));
        }
        let sets = self.claim(&deployment).await?;
        if sets.iter().any(|set| self.sets_written.is_behind(set)) {
            return Ok(Requeue::After(CATCH_UP));
        }
        let live_pods = self.live_pods(&deployment, &sets);
        let observed = Observed {
            deployment: &deployment,
            replica_sets: &sets,
            live_pods: &live_pods,
        };
        let plan = planner::plan(&observed, self.world.api.now());
        for write in &plan.writes {
            match self.world.api.execute(write).await {
                Ok(left) => self.note(write, &left),
                Err(error) if matches!(write, Write::Create { .. }) => {
                    return self.not_created(&deployment, error).await;
                }
                Err(error) if matches!(write, Write::Delete { .. }) && error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(plan.requeue_after.into())
    }
}

impl Deployments {
    fn note(&self, write: &Write, left: &Value) {
        let (Write::Replace { target, .. } | Write::Patch { target, .. }) = write else {
            return;
        };
        match target.gvr.resource.as_str() {
            "deployments" => self.written.note(left),
            "replicasets" => self.sets_written.note(left),
            _ => {}
        }
    }

    /// Adopts and releases; returns the sets that are ours.
    async fn claim(&self, deployment: &Deployment) -> Result<Vec<ReplicaSet>, Error> {
        let Some(spec) = &deployment.spec else {
            return Ok(Vec::new());
        };
        let store = self.world.caches.replica_sets.store();
        let orphans = orphans(deployment.namespace().unwrap_or_default());
        let mut candidates = store.by_index(BY_CONTROLLER, deployment.uid());
        candidates.extend(store.by_index(BY_CONTROLLER, &orphans));
        let mut owned = Vec::new();
        let mut live = None;
        for set in candidates {
            let patch = match object::claim(deployment.meta(), &spec.selector, set.meta()) {
                Claim::Ignore => continue,
                Claim::Owned => {
                    owned.push(ReplicaSet::clone(&set));
                    continue;
                }
                Claim::Release => object::release_patch(set.meta(), &[deployment.uid()]),
                Claim::Adopt => {
                    if live.is_none() {
                        live = Some(self.world.is_live::<Deployment>(deployment.meta()).await?);
                    }
                    if live != Some(true) {
                        continue;
                    }
                    let owner = object::controller_ref::<Deployment>(deployment.meta());
                    object::adopt_patch(set.meta(), owner)
                }
            };
            // What was adopted or released comes back as a change of the set and
            // is planned with then: its version is another now.
            let write = Write::patch::<ReplicaSet>(set.meta(), None, patch);
            match self.world.api.execute(&write).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(owned)
    }

    fn live_pods(&self, deployment: &Deployment, sets: &[ReplicaSet]) -> BTreeMap<String, usize> {
        if !is_recreate(deployment) {
            return BTreeMap::new();
        }
        let pods = self.world.caches.pods.store();
        sets.iter()
            .map(|set| {
                let owned = pods.by_index(BY_CONTROLLER, set.uid());
                let live = owned
                    .iter()
                    .filter(|pod| !plan::pod::is_terminal(pod))
                    .count();
                (set.uid().to_owned(), live)
            })
            .collect()
    }

    /// Answers a new set that could not be created.
    async fn not_created(&self, deployment: &Deployment, error: Error) -> Result<Requeue, Error> {
        if error.is_namespace_terminating() {
            return Ok(Requeue::Done);
        }
        let name = planner::revision::new_set_name(deployment);
        if error.is_already_exists() {
            let mut target = Target::of::<Deployment>(deployment.meta());
            target.gvr = plan::write::gvr::<ReplicaSet>();
            target.name = name;
            let found = self.world.api.read_whole(&target).await?;
            let found = found.map(serde_json::from_value::<ReplicaSet>).transpose();
            let Some(found) = found.map_err(Error::Decode)? else {
                return Err(error);
            };
            if let Some(write) = status::on_name_taken(deployment, &found) {
                self.world.api.execute(&write).await?;
            }
            // Ours already, and the cache will show it; or another name is tried
            // when the cache shows the new count.
            return Ok(Requeue::Done);
        }
        let now = self.world.api.now();
        let writes = status::on_create_refused(deployment, &name, &error.to_string(), now);
        self.world.execute_all(&writes).await?;
        Err(error)
    }
}
