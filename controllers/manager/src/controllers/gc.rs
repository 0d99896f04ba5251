//! The garbage collector's shell: watches everything's metadata, reads live, and
//! performs what is decided.

mod monitor;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use async_trait::async_trait;
use client::{ApiResource, Client, Error, InformerEvent, KubeObject, ObjectKey, PartialObject};
use client::{Discovery, ResourceRef};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use meta::GroupVersion;
use plan::gc::absent::{AbsentOwner, AbsentOwners};
use plan::gc::decide::{self, OwnerState};
use plan::gc::graph::{Attempt, Graph};
use plan::gc::{Identity, is_deleting_dependents};
use plan::{Target, Write, object};

use crate::controller::{Controller, Enqueue, Reconcile, Requeue};
use crate::world::World;

/// Is how many objects are looked at a time (upstream's default).
const WORKERS: usize = 20;
/// Is how long an object waits whose owner's kind is not served, or that its
/// watch has not shown yet: discovery is asked again by then.
const UNKNOWN_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// Is how soon a key is looked at again that came before the first lists are in.
const NOT_READY_WAIT: SignedDuration = SignedDuration::from_millis(50);

/// Are resources nobody owns anything by and whose traffic would be for nothing.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

const DELETE: &str = "delete";
const ORPHAN: &str = "orphan";

/// Collects garbage. The keys are `delete/<uid>` and `orphan/<uid>`.
pub struct Collector {
    world: World,
    state: Mutex<State>,
    kinds: RwLock<Kinds>,
    enqueue: OnceLock<Enqueue>,
    ready: AtomicBool,
}

#[derive(Default)]
struct State {
    graph: Graph,
    absent: AbsentOwners,
}

/// Finds the resource of a kind; bounded by what the server serves.
type Kinds = BTreeMap<(String, String), Vec<ApiResource>>;

/// Describes the controller.
pub fn controller(world: &World, client: &Client) -> Controller {
    let collector = Arc::new(Collector::new(world));
    let monitored = Arc::clone(&collector);
    let client = client.clone();
    Controller::new("garbage-collector", WORKERS, collector)
        .background(move |enqueue, token| monitor::run(monitored, client, enqueue, token))
}

/// Tells whether the objects of a resource take part in the graph.
pub fn is_collected(resource: &ApiResource) -> bool {
    let gvr = &resource.resource.gvr;
    let name = (gvr.group.as_str(), gvr.resource.as_str());
    resource.supports(&["list", "watch", "delete"]) && !IGNORED.contains(&name)
}

impl Collector {
    /// Builds a collector that has seen nothing.
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            state: Mutex::default(),
            kinds: RwLock::default(),
            enqueue: OnceLock::new(),
            ready: AtomicBool::new(false),
        }
    }

    /// Lets the collector act: the queue is connected and the graph is whole.
    pub fn start(&self, enqueue: Enqueue) {
        // A second start changes nothing: the queue is the same.
        let _ = self.enqueue.set(enqueue);
        self.ready.store(true, Ordering::Release);
    }

    /// Takes in which kinds are served.
    pub fn learn(&self, discovery: &Discovery) {
        let mut kinds = Kinds::new();
        for found in &discovery.resources {
            let group = found.resource.gvr.group.clone();
            kinds
                .entry((group, found.kind.clone()))
                .or_default()
                .push(found.clone());
        }
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = kinds;
    }

    /// Takes in a change of an object; returns what to look at because of it.
    pub fn observe(
        &self,
        resource: &ApiResource,
        change: &InformerEvent<PartialObject>,
    ) -> Vec<ObjectKey> {
        let seen = change.object();
        let mut state = self.lock();
        let attempts = match change {
            InformerEvent::Deleted(_) => state.forget(seen.uid()),
            InformerEvent::Added(_) | InformerEvent::Updated(..) => {
                let identity = Identity {
                    api_version: resource.resource.gvr.group_version().to_string(),
                    kind: resource.kind.clone(),
                    namespace: seen.namespace().unwrap_or_default().to_owned(),
                    name: seen.name().to_owned(),
                    uid: seen.uid().to_owned(),
                };
                state.graph.upsert(identity, seen.meta())
            }
        };
        attempts.into_iter().map(key_of).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(&self, attempts: Vec<Attempt>) {
        if let Some(enqueue) = self.enqueue.get() {
            attempts.into_iter().map(key_of).for_each(&**enqueue);
        }
    }

    /// Finds where a kind lives, in the version named if that is served.
    fn resolve(&self, api_version: &str, kind: &str) -> Option<ResourceRef> {
        let named = GroupVersion::parse(api_version)?;
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        let served = kinds.get(&(named.group.clone(), kind.to_owned()))?;
        let exact = served
            .iter()
            .find(|found| found.resource.gvr.group_version() == named);
        exact.or(served.first()).map(|found| found.resource.clone())
    }

    fn target(&self, identity: &Identity) -> Where {
        let Some(resource) = self.resolve(&identity.api_version, &identity.kind) else {
            return Where::UnknownKind;
        };
        locate(resource, &identity.namespace, &identity.name)
    }
}

impl State {
    /// Forgets an object; dependents will ask for it, and need not all ask the API.
    fn forget(&mut self, uid: &str) -> Vec<Attempt> {
        if let Some(identity) = self.graph.identity(uid)
            && !self.graph.dependents(uid).is_empty()
        {
            self.absent.insert(AbsentOwner {
                api_version: identity.api_version.clone(),
                kind: identity.kind.clone(),
                namespace: identity.namespace.clone(),
                name: identity.name.clone(),
                uid: identity.uid.clone(),
            });
        }
        self.graph.remove(uid)
    }
}

/// Is where an object would be.
enum Where {
    At(Target),
    /// No such kind is served, now.
    UnknownKind,
    /// The reference names a namespaced owner from outside any namespace, which
    /// can mean no object at all.
    Nowhere,
}

fn locate(resource: ResourceRef, namespace: &str, name: &str) -> Where {
    if resource.namespaced && namespace.is_empty() {
        return Where::Nowhere;
    }
    Where::At(Target {
        gvr: resource.gvr,
        namespace: resource.namespaced.then(|| namespace.to_owned()),
        name: name.to_owned(),
    })
}

fn key_of(attempt: Attempt) -> ObjectKey {
    match attempt {
        Attempt::Delete(uid) => ObjectKey::new(DELETE, uid),
        Attempt::Orphan(uid) => ObjectKey::new(ORPHAN, uid),
    }
}

#[async_trait]
impl Reconcile for Collector {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        if !self.ready.load(Ordering::Acquire) {
            return Ok(Requeue::After(NOT_READY_WAIT));
        }
        match key.namespace.as_str() {
            DELETE => self.attempt_to_delete(&key.name).await,
            ORPHAN => self.attempt_to_orphan(&key.name).await,
            _ => Ok(Requeue::Done),
        }
    }
}

impl Collector {
    async fn attempt_to_delete(&self, uid: &str) -> Result<Requeue, Error> {
        let (identity, facts) = {
            let state = self.lock();
            let Some(identity) = state.graph.identity(uid).cloned() else {
                return Ok(Requeue::Done);
            };
            let Some(facts) = state.graph.facts(uid) else {
                return Ok(Requeue::Done);
            };
            (identity, facts)
        };
        if facts.being_deleted && !facts.deleting_dependents {
            return Ok(Requeue::Done);
        }
        let target = match self.target(&identity) {
            Where::At(target) => target,
            Where::UnknownKind => return Ok(Requeue::After(UNKNOWN_WAIT)),
            Where::Nowhere => return Ok(Requeue::Done),
        };
        let latest = self.world.api.read(&target).await?;
        let Some(latest) = latest.filter(|latest| latest.uid() == uid) else {
            let attempts = self.lock().forget(uid);
            self.enqueue(attempts);
            return Ok(Requeue::Done);
        };
        if facts.deleting_dependents && is_deleting_dependents(latest.meta()) {
            return self.finish_foreground(uid, &target, latest.meta()).await;
        }
        let Some(references) = self.classify(&identity, &target, latest.meta()).await? else {
            return Ok(Requeue::After(UNKNOWN_WAIT));
        };
        let dependents = self.lock().graph.dependents_summary(uid);
        let writes = decide::decide(&target, latest.meta(), &references, dependents);
        self.world.execute_all(&writes).await?;
        // A virtual node stays only until its own watch shows it.
        Ok(if facts.is_virtual {
            Requeue::After(UNKNOWN_WAIT)
        } else {
            Requeue::Done
        })
    }

    /// Sorts an object's references by live reads; nothing if one of them cannot
    /// be judged, now or ever.
    async fn classify(
        &self,
        identity: &Identity,
        target: &Target,
        latest: &ObjectMeta,
    ) -> Result<Option<decide::References>, Error> {
        let mut owners = Vec::new();
        for reference in latest.owner_references.iter().flatten() {
            match self.owner_state(identity, target, reference).await? {
                Some(state) => owners.push((reference.clone(), state)),
                None => return Ok(None),
            }
        }
        Ok(Some(decide::classify(owners)))
    }

    async fn owner_state(
        &self,
        identity: &Identity,
        target: &Target,
        reference: &OwnerReference,
    ) -> Result<Option<OwnerState>, Error> {
        let absent = |namespace: &str| AbsentOwner {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            namespace: namespace.to_owned(),
            name: reference.name.clone(),
            uid: reference.uid.clone(),
        };
        {
            let state = self.lock();
            let known = ["", identity.namespace.as_str()];
            if known
                .iter()
                .any(|namespace| state.absent.contains(&absent(namespace)))
            {
                return Ok(Some(OwnerState::Absent));
            }
        }
        let Some(resource) = self.resolve(&reference.api_version, &reference.kind) else {
            return Ok(None);
        };
        let owner = match locate(resource, &identity.namespace, &reference.name) {
            Where::At(owner) => owner,
            Where::UnknownKind => return Ok(None),
            Where::Nowhere => {
                self.tell_invalid(identity, reference).await?;
                return Ok(None);
            }
        };
        // An object is its own proof: this one was just read.
        let found = if owner == *target {
            None
        } else {
            self.world.api.read(&owner).await?
        };
        match found.filter(|found| found.uid() == reference.uid) {
            Some(found) => Ok(Some(OwnerState::Present(Box::new(found.metadata)))),
            None => {
                let namespace = owner.namespace.unwrap_or_default();
                self.lock().absent.insert(absent(&namespace));
                Ok(Some(OwnerState::Absent))
            }
        }
    }

    async fn tell_invalid(
        &self,
        identity: &Identity,
        reference: &OwnerReference,
    ) -> Result<(), Error> {
        let regarding = k8s_openapi::api::core::v1::ObjectReference {
            api_version: Some(identity.api_version.clone()),
            kind: Some(identity.kind.clone()),
            name: Some(identity.name.clone()),
            namespace: Some(identity.namespace.clone()).filter(|ns| !ns.is_empty()),
            uid: Some(identity.uid.clone()),
            ..Default::default()
        };
        let message = format!(
            "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace \"{}\"",
            reference.api_version,
            reference.kind,
            identity.namespace,
            reference.name,
            reference.uid,
            identity.namespace,
        );
        let event = Write::Event {
            regarding,
            type_: plan::EventType::Warning,
            reason: "OwnerRefInvalidNamespace",
            message,
        };
        self.world.api.execute(&event).await.map(drop)
    }

    /// Lets an object go that waits for its dependents, if none blocks it.
    async fn finish_foreground(
        &self,
        uid: &str,
        target: &Target,
        latest: &ObjectMeta,
    ) -> Result<Requeue, Error> {
        let blocking = self.lock().graph.blocking_dependents(uid);
        if blocking.is_empty() {
            let writes: Vec<Write> = decide::release_foreground(target, latest)
                .into_iter()
                .collect();
            match self.world.execute_all(&writes).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => return Ok(Requeue::Done),
            }
        }
        let waiting = {
            let state = self.lock();
            let not_yet = |dependent: &String| {
                state
                    .graph
                    .facts(dependent)
                    .is_some_and(|facts| !facts.deleting_dependents)
            };
            blocking
                .into_iter()
                .filter(not_yet)
                .map(Attempt::Delete)
                .collect()
        };
        // The last of them to go wakes this object again.
        self.enqueue(waiting);
        Ok(Requeue::Done)
    }

    /// Takes an object's reference out of its dependents, then lets it go.
    async fn attempt_to_orphan(&self, uid: &str) -> Result<Requeue, Error> {
        let (owner, dependents) = {
            let state = self.lock();
            let Some(owner) = state.graph.identity(uid).cloned() else {
                return Ok(Requeue::Done);
            };
            let dependents: Vec<Identity> = state
                .graph
                .dependents(uid)
                .iter()
                .filter_map(|dependent| state.graph.identity(dependent).cloned())
                .collect();
            (owner, dependents)
        };
        for dependent in dependents {
            let Where::At(target) = self.target(&dependent) else {
                continue;
            };
            let latest = self.world.api.read(&target).await?;
            let Some(latest) = latest.filter(|latest| latest.uid() == dependent.uid) else {
                continue;
            };
            let refers = latest
                .meta()
                .owner_references
                .iter()
                .flatten()
                .any(|r| r.uid == uid);
            if refers {
                let patch = object::release_patch(latest.meta(), &[uid]);
                let write = Write::Patch {
                    target,
                    subresource: None,
                    patch,
                };
                match self.world.api.execute(&write).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        let Where::At(target) = self.target(&owner) else {
            return Ok(Requeue::Done);
        };
        let latest = self.world.api.read(&target).await?;
        let writes: Vec<Write> = latest
            .filter(|latest| latest.uid() == uid)
            .and_then(|latest| decide::release_orphaning(&target, latest.meta()))
            .into_iter()
            .collect();
        self.world.execute_all(&writes).await?;
        Ok(Requeue::Done)
    }
}
