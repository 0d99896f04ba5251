//! One life of the controllers' process: caches fed by watches that may lose or
//! repeat events, queues, and an API whose answers may never come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use client::indexer::{BY_NODE_NAME, Store, node_name};
use client::{Discovery, Error, InformerEvent, KubeObject, ObjectKey, PartialObject};
use futures::executor::block_on;
use jiff::{SignedDuration, Timestamp};
use meta::GroupVersionResource;
use plan::{Target, Write};
use serde_json::Value;

use super::rng::Rng;
use super::server::{Logged, Server, Verb, gvr};
use crate::controller::{Enqueue, Reconcile, Requeue};
use crate::controllers::gc::{Collector, is_collected};
use crate::controllers::{self, Setup};
use crate::world::live::NODE_LEASES;
use crate::world::{Api, BY_CONTROLLER, Caches, Handler, Source, World, controller_uid};

/// Fails the process's writes from a chosen one on; half of the time that one is
/// performed and only its answer is lost.
#[derive(Debug)]
pub(super) struct Fuse {
    left: Option<u64>,
    performed: bool,
    pub(super) blown: bool,
    pub(super) writes: u64,
}

struct SimApi {
    server: Arc<Server>,
    fuse: Arc<Mutex<Fuse>>,
}

#[async_trait]
impl Api for SimApi {
    async fn execute(&self, write: &Write) -> Result<Value, Error> {
        let mut fuse = self.fuse.lock().unwrap();
        if matches!(write, Write::Event { .. }) {
            return Ok(Value::Null);
        }
        let lost = || Error::Transport("the connection broke".into());
        if fuse.blown {
            return Err(lost());
        }
        fuse.writes += 1;
        if let Some(left) = &mut fuse.left {
            if *left == 0 {
                fuse.blown = true;
                if fuse.performed {
                    drop(self.server.lock().perform(write));
                }
                return Err(lost());
            }
            *left -= 1;
        }
        self.server.lock().perform(write)
    }

    async fn read(&self, target: &Target) -> Result<Option<PartialObject>, Error> {
        let found = self.read_whole(target).await?;
        Ok(found.map(|found| serde_json::from_value(found).unwrap()))
    }

    async fn read_whole(&self, target: &Target) -> Result<Option<Value>, Error> {
        let namespace = target.namespace.clone().unwrap_or_default();
        let key = (target.gvr.clone(), namespace, target.name.clone());
        Ok(self.server.lock().objects.get(&key).cloned())
    }

    async fn list(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<PartialObject>, Error> {
        let server = self.server.lock();
        let found = server
            .objects
            .iter()
            .filter(|(key, _)| key.0 == *gvr && key.1 == namespace);
        Ok(found
            .map(|(_, object)| serde_json::from_value(object.clone()).unwrap())
            .collect())
    }

    async fn discover(&self) -> Result<Discovery, Error> {
        Ok(Server::discovery())
    }

    fn now(&self) -> Timestamp {
        self.server.lock().now
    }
}

struct SimCache<T> {
    store: Store<T>,
    handlers: Mutex<Vec<Handler<T>>>,
}

impl<T: KubeObject> SimCache<T> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            store: Store::default(),
            handlers: Mutex::default(),
        })
    }

    fn upsert(&self, object: T) {
        let object = Arc::new(object);
        let change = match self.store.insert(object.key(), Arc::clone(&object)) {
            Some(old) => InformerEvent::Updated(old, object),
            None => InformerEvent::Added(object),
        };
        self.tell(&change);
    }

    fn remove(&self, key: &ObjectKey) {
        if let Some(old) = self.store.remove(key) {
            self.tell(&InformerEvent::Deleted(old));
        }
    }

    fn tell(&self, change: &InformerEvent<T>) {
        self.handlers
            .lock()
            .unwrap()
            .iter()
            .for_each(|handler| handler(change));
    }
}

impl<T: KubeObject> Source<T> for SimCache<T> {
    fn store(&self) -> &Store<T> {
        &self.store
    }

    fn subscribe(&self, handler: Handler<T>) {
        for object in self.store.list() {
            handler(&InformerEvent::Added(object));
        }
        self.handlers.lock().unwrap().push(handler);
    }
}

/// Is what happens to one watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Delivered,
    Repeated,
    Lost,
}

/// Takes in watch events of one resource.
trait Sink {
    fn apply(&self, event: &Logged);
    fn replace(&self, objects: Vec<Value>);
}

/// Is one watch: which resource, how far it has read, and whether it lost events.
struct Feed {
    gvr: GroupVersionResource,
    namespace: Option<&'static str>,
    cursor: usize,
    lossy: bool,
    sink: Box<dyn Sink>,
}

impl<T: KubeObject> Sink for Arc<SimCache<T>> {
    fn apply(&self, event: &Logged) {
        let object: T = serde_json::from_value(event.object.clone()).unwrap();
        match event.verb {
            Verb::Upsert => self.upsert(object),
            Verb::Delete => self.remove(&object.key()),
        }
    }

    fn replace(&self, objects: Vec<Value>) {
        let objects: Vec<T> = objects
            .into_iter()
            .map(|object| serde_json::from_value(object).unwrap())
            .collect();
        let listed: BTreeSet<ObjectKey> = objects.iter().map(KubeObject::key).collect();
        for key in self
            .store
            .keys()
            .into_iter()
            .filter(|key| !listed.contains(key))
        {
            self.remove(&key);
        }
        for object in objects {
            let known = self.store.get(&object.key());
            // An object that was replaced by one of the same name is a deletion too.
            if known
                .as_ref()
                .is_some_and(|known| known.uid() != object.uid())
            {
                self.remove(&object.key());
            }
            if known.is_none_or(|known| known.resource_version() != object.resource_version()) {
                self.upsert(object);
            }
        }
    }
}

impl Feed {
    fn new(resource: &str, sink: Box<dyn Sink>) -> Self {
        Self {
            gvr: gvr(resource),
            namespace: None,
            cursor: 0,
            lossy: false,
            sink,
        }
    }

    fn concerns(&self, event: &Logged) -> bool {
        let namespace = event.object["metadata"]["namespace"].as_str();
        event.gvr == self.gvr
            && self
                .namespace
                .is_none_or(|wanted| namespace == Some(wanted))
    }

    /// Moves the cursor to the next event that concerns the watch.
    fn next(&mut self, server: &Server) -> Option<Logged> {
        let inner = server.lock();
        while let Some(event) = inner.log.get(self.cursor) {
            if self.concerns(event) {
                return Some(event.clone());
            }
            self.cursor += 1;
        }
        None
    }

    fn relist(&mut self, server: &Server) {
        let objects = {
            let inner = server.lock();
            self.cursor = inner.log.len();
            let all = inner.objects.iter().filter(|(key, _)| key.0 == self.gvr);
            all.filter(|(key, _)| self.namespace.is_none_or(|wanted| key.1 == wanted))
                .map(|(_, object)| object.clone())
                .collect()
        };
        self.lossy = false;
        self.sink.replace(objects);
    }
}

#[derive(Default)]
struct Queue {
    ready: BTreeSet<ObjectKey>,
    later: BTreeMap<ObjectKey, Timestamp>,
}

/// Is a controller with its queue.
type Driven = (&'static str, Arc<dyn Reconcile>, Arc<Mutex<Queue>>);

pub(super) struct Process {
    server: Arc<Server>,
    pub(super) fuse: Arc<Mutex<Fuse>>,
    feeds: Vec<Feed>,
    controllers: Vec<Driven>,
}

/// Is how long a failed key waits in the simulation.
const RETRY: SignedDuration = SignedDuration::from_millis(100);

impl Process {
    /// Starts the controllers on what a list may show: the state of a moment ago.
    pub(super) fn start(server: &Arc<Server>, rng: &mut Rng, crash_after: Option<u64>) -> Self {
        let performed = rng.chance(50);
        let fuse = Fuse {
            left: crash_after,
            performed,
            blown: false,
            writes: 0,
        };
        let fuse = Arc::new(Mutex::new(fuse));
        let api = Arc::new(SimApi {
            server: Arc::clone(server),
            fuse: Arc::clone(&fuse),
        });
        let (caches, mut feeds) = caches();
        let world = World { api, caches };
        let setup = Setup {
            world: &world,
            client: None,
            cluster_ca: Some("PEM"),
        };
        let mut process = Self {
            server: Arc::clone(server),
            fuse,
            feeds: Vec::new(),
            controllers: Vec::new(),
        };
        for controller in controllers::ALL
            .iter()
            .filter_map(|(_, build)| build(&setup))
        {
            let queue = Arc::new(Mutex::new(Queue::default()));
            let subscribed = controller.subscribe(enqueue(&queue));
            process
                .controllers
                .push((subscribed.name, subscribed.reconciler(), queue));
        }
        let collector = Arc::new(Collector::new(&world));
        let queue = Arc::new(Mutex::new(Queue::default()));
        collector.learn(&Server::discovery());
        collector.start(enqueue(&queue));
        for resource in Server::discovery()
            .resources
            .into_iter()
            .filter(is_collected)
        {
            let cache: Arc<SimCache<PartialObject>> = SimCache::new();
            let (collector, enqueue, name) = (
                Arc::clone(&collector),
                enqueue(&queue),
                resource.resource.gvr.resource.clone(),
            );
            cache.subscribe(Box::new(move |change| {
                collector
                    .observe(&resource, change)
                    .into_iter()
                    .for_each(&*enqueue);
            }));
            feeds.push(Feed::new(&name, Box::new(cache)));
        }
        process
            .controllers
            .push(("garbage-collector", collector, queue));
        let length = server.lock().log.len();
        let listed = length - rng.below(length.min(15) + 1);
        process.feeds = feeds;
        process.replay(listed);
        process
    }

    /// Brings every cache to the state after `count` events.
    fn replay(&mut self, count: usize) {
        for feed in &mut self.feeds {
            while let Some(event) = feed.next(&self.server) {
                if feed.cursor >= count {
                    break;
                }
                feed.sink.apply(&event);
                feed.cursor += 1;
            }
        }
    }

    /// Lets one watch that has something to tell tell it, with this fate.
    pub(super) fn deliver(&mut self, rng: &mut Rng, fate: Fate) -> bool {
        let first = rng.below(self.feeds.len());
        for offset in 0..self.feeds.len() {
            let index = (first + offset) % self.feeds.len();
            let feed = &mut self.feeds[index];
            let Some(event) = feed.next(&self.server) else {
                continue;
            };
            feed.cursor += 1;
            match fate {
                Fate::Delivered => feed.sink.apply(&event),
                Fate::Repeated => {
                    feed.sink.apply(&event);
                    feed.sink.apply(&event);
                }
                Fate::Lost => feed.lossy = true,
            }
            return true;
        }
        false
    }

    /// Lets watches that lost events start over; one of them, or all.
    pub(super) fn relist(&mut self, all: bool) -> bool {
        let mut any = false;
        for feed in self.feeds.iter_mut().filter(|feed| feed.lossy) {
            feed.relist(&self.server);
            any = true;
            if !all {
                break;
            }
        }
        any
    }

    /// Works on one key that is ready; false if there is none.
    pub(super) fn reconcile(&mut self, rng: &mut Rng) -> bool {
        let now = self.server.lock().now;
        let first = rng.below(self.controllers.len());
        for offset in 0..self.controllers.len() {
            let (_, reconciler, queue) =
                &self.controllers[(first + offset) % self.controllers.len()];
            let key = {
                let mut queue = queue.lock().unwrap();
                let due: Vec<ObjectKey> = queue
                    .later
                    .iter()
                    .filter(|(_, at)| **at <= now)
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in due {
                    queue.later.remove(&key);
                    queue.ready.insert(key);
                }
                let pick = rng.below(queue.ready.len().max(1));
                let Some(key) = queue.ready.iter().nth(pick).cloned() else {
                    continue;
                };
                queue.ready.remove(&key);
                key
            };
            let answer = block_on(reconciler.reconcile(&key));
            let wait = match answer {
                Ok(Requeue::Done) => return true,
                Ok(Requeue::After(wait)) => wait,
                Err(_) => RETRY,
            };
            let at = now.checked_add(wait).unwrap();
            let mut queue = queue.lock().unwrap();
            let earliest = queue.later.get(&key).map_or(at, |known| at.min(*known));
            queue.later.insert(key, earliest);
            return true;
        }
        false
    }

    /// Returns when the next delayed key comes due.
    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        let next = |queue: &Arc<Mutex<Queue>>| queue.lock().unwrap().later.values().min().copied();
        self.controllers
            .iter()
            .filter_map(|(_, _, queue)| next(queue))
            .min()
    }

    /// Describes what still waits, for the message of a run that does not settle.
    pub(super) fn waiting(&self) -> String {
        let waiting = self.controllers.iter().map(|(name, _, queue)| {
            let queue = queue.lock().unwrap();
            format!("{name}: ready {:?}, later {:?}", queue.ready, queue.later)
        });
        waiting.collect::<Vec<_>>().join("\n")
    }
}

fn enqueue(queue: &Arc<Mutex<Queue>>) -> Enqueue {
    let queue = Arc::clone(queue);
    Arc::new(move |key| {
        queue.lock().unwrap().ready.insert(key);
    })
}

fn caches() -> (Caches, Vec<Feed>) {
    let pods = SimCache::new();
    pods.store.add_index(
        BY_CONTROLLER,
        Arc::new(|pod: &k8s_openapi::api::core::v1::Pod| controller_uid(pod.meta())),
    );
    pods.store.add_index(BY_NODE_NAME, Arc::new(node_name));
    let replica_sets = SimCache::new();
    replica_sets.store.add_index(
        BY_CONTROLLER,
        Arc::new(|set: &k8s_openapi::api::apps::v1::ReplicaSet| controller_uid(set.meta())),
    );
    let deployments = SimCache::new();
    let namespaces = SimCache::new();
    let nodes = SimCache::new();
    let node_leases = SimCache::new();
    let service_accounts = SimCache::new();
    let root_cas = SimCache::new();
    let mut leases = Feed::new("leases", Box::new(Arc::clone(&node_leases)));
    leases.namespace = Some(NODE_LEASES);
    let feeds = vec![
        Feed::new("pods", Box::new(Arc::clone(&pods))),
        Feed::new("replicasets", Box::new(Arc::clone(&replica_sets))),
        Feed::new("deployments", Box::new(Arc::clone(&deployments))),
        Feed::new("namespaces", Box::new(Arc::clone(&namespaces))),
        Feed::new("nodes", Box::new(Arc::clone(&nodes))),
        leases,
        Feed::new("serviceaccounts", Box::new(Arc::clone(&service_accounts))),
        Feed::new("configmaps", Box::new(Arc::clone(&root_cas))),
    ];
    let caches = Caches {
        pods,
        replica_sets,
        deployments,
        namespaces,
        nodes,
        node_leases,
        service_accounts,
        root_cas,
    };
    (caches, feeds)
}
