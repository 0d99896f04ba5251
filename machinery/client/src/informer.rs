//! A shared informer: a live, indexed copy of one collection, with handlers.
//!
//! One task drives reflector, DeltaFIFO, store and handlers in that order, so a
//! handler that is told of a change finds it in the store. Handlers run inside that
//! task and must not block: they enqueue keys. There is therefore no queue between
//! informer and handlers that could grow.
//!
//! A relist that finds an object unchanged wakes nobody; a handler that wants to be
//! reminded asks for a resync period.

pub mod factory;
mod run;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Resource};
use crate::delta_fifo::{Delta, DeltaFifo};
use crate::indexer::Store;
use crate::reflector::Deliver;
use crate::resource::{KubeObject, ObjectKey, ResourceRef, StaticResource};
use crate::watch::WatchEvent;

/// Bounds resync periods from below; a shorter one is raised to it (as client-go's).
const RESYNC_PERIOD_MIN: Duration = Duration::from_secs(1);

/// Is what handlers are told.
#[derive(Debug)]
pub enum InformerEvent<T> {
    /// Came into view, or was there when the handler was added.
    Added(Arc<T>),
    /// Changed from the first to the second state.
    Updated(Arc<T>, Arc<T>),
    /// Left the view; this is the last state known, which need not be the final one.
    Deleted(Arc<T>),
}

impl<T: KubeObject> InformerEvent<T> {
    /// Returns the newest state the event carries.
    pub fn object(&self) -> &Arc<T> {
        match self {
            InformerEvent::Added(object)
            | InformerEvent::Updated(_, object)
            | InformerEvent::Deleted(object) => object,
        }
    }

    /// Returns the object's key.
    pub fn key(&self) -> ObjectKey {
        self.object().key()
    }
}

/// Says which part of a collection an informer mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InformerOptions {
    /// Is one namespace; all of them if none.
    pub namespace: Option<String>,
    /// Is a label selector.
    pub label_selector: Option<String>,
    /// Is a field selector, such as `spec.nodeName=a`.
    pub field_selector: Option<String>,
}

impl InformerOptions {
    /// Mirrors everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Narrows by labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Narrows by fields.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// Narrows to a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}

/// Identifies a handler for removing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandlerId(u64);

type Callback<T> = Box<dyn Fn(&InformerEvent<T>) + Send + Sync>;

/// Mirrors a collection. A clone is the same informer.
pub struct SharedInformer<T: KubeObject> {
    shared: Arc<Shared<T>>,
}

impl<T: KubeObject> Clone for SharedInformer<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

struct Shared<T: KubeObject> {
    api: Resource<T>,
    options: InformerOptions,
    store: Store<T>,
    processor: Mutex<Processor<T>>,
    synced: watch::Sender<bool>,
    started: AtomicBool,
    /// Tells the resync timer that a period was added.
    resync_changed: Notify,
}

struct Processor<T: KubeObject> {
    fifo: DeltaFifo<Arc<T>>,
    handlers: BTreeMap<HandlerId, Handler<T>>,
    next_id: u64,
}

struct Handler<T: KubeObject> {
    callback: Callback<T>,
    resync: Option<Resync>,
    /// Is set while a resync that is due for this handler is handed out.
    syncing: bool,
}

struct Resync {
    period: Duration,
    due: Instant,
}

impl<T: StaticResource> SharedInformer<T> {
    /// Builds an informer of a type; it starts with [`SharedInformer::spawn`].
    pub fn new(client: &Client, options: InformerOptions) -> Self {
        Self::for_resource(client, T::resource_ref(), options)
    }
}

impl<T: KubeObject> SharedInformer<T> {
    /// Builds an informer of a resource known at run time.
    pub fn for_resource(client: &Client, resource: ResourceRef, options: InformerOptions) -> Self {
        let processor = Processor {
            fifo: DeltaFifo::default(),
            handlers: BTreeMap::new(),
            next_id: 0,
        };
        let shared = Shared {
            api: Resource::shaped(client.clone(), resource),
            options,
            store: Store::default(),
            processor: Mutex::new(processor),
            synced: watch::Sender::new(false),
            started: AtomicBool::new(false),
            resync_changed: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the mirror.
    pub fn store(&self) -> &Store<T> {
        &self.shared.store
    }

    /// Returns the resource that is mirrored.
    pub fn resource_ref(&self) -> &ResourceRef {
        self.shared.api.resource_ref()
    }

    /// Adds an index over the mirror, at any time.
    pub fn add_index<F>(&self, name: &str, function: F)
    where
        F: Fn(&T) -> Vec<String> + Send + Sync + 'static,
    {
        self.shared.store.add_index(name, Arc::new(function));
    }

    /// Adds a handler, at any time. What is already mirrored is replayed to it as
    /// added before this returns.
    ///
    /// The handler must not block, and must not add or remove handlers.
    pub fn add_handler<F>(&self, handler: F) -> HandlerId
    where
        F: Fn(&InformerEvent<T>) + Send + Sync + 'static,
    {
        self.register(Box::new(handler), None)
    }

    /// Adds a handler that is also reminded of every object each `period`, as an
    /// update from the object to itself.
    pub fn add_handler_with_resync<F>(&self, period: Duration, handler: F) -> HandlerId
    where
        F: Fn(&InformerEvent<T>) + Send + Sync + 'static,
    {
        let period = period.max(RESYNC_PERIOD_MIN);
        self.register(Box::new(handler), Some(period))
    }

    fn register(&self, callback: Callback<T>, period: Option<Duration>) -> HandlerId {
        let mut processor = self.shared.lock();
        for object in self.shared.store.list() {
            callback(&InformerEvent::Added(object));
        }
        let id = HandlerId(processor.next_id);
        processor.next_id += 1;
        let resync = period.map(|period| Resync {
            period,
            due: Instant::now() + period,
        });
        processor.handlers.insert(
            id,
            Handler {
                callback,
                resync,
                syncing: false,
            },
        );
        drop(processor);
        self.shared.resync_changed.notify_one();
        id
    }

    /// Removes a handler; it is not called again once this returned.
    pub fn remove_handler(&self, id: HandlerId) {
        self.shared.lock().handlers.remove(&id);
    }

    /// Tells whether the first list is in the store and was given to the handlers.
    pub fn has_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until [`SharedInformer::has_synced`].
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // Fails only when the sender is gone, and `self` holds it.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Mirrors until the token is cancelled. Only the first call does anything.
    pub async fn run(&self, token: CancellationToken) {
        if self.shared.started.swap(true, Ordering::SeqCst) {
            tracing::warn!(resource = %self.resource_ref(), "informer was already started");
            return;
        }
        tokio::select! {
            () = token.cancelled() => {}
            () = self.shared.reflect() => {}
            () = self.shared.resync_loop() => {}
        }
    }

    /// Starts mirroring in a task of its own, unless it was started before.
    pub fn spawn(&self, token: CancellationToken) -> Option<JoinHandle<()>> {
        if self.shared.started.load(Ordering::SeqCst) {
            return None;
        }
        let informer = self.clone();
        Some(tokio::spawn(async move { informer.run(token).await }))
    }
}

impl<T: KubeObject> fmt::Debug for SharedInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("resource", self.resource_ref())
            .field("options", &self.shared.options)
            .field("store", &self.shared.store)
            .finish_non_exhaustive()
    }
}

impl<T: KubeObject> Shared<T> {
    /// Takes over what the reflector delivers: into the store, then to the handlers.
    fn take_over(&self, deliver: Deliver<Arc<T>>, resource_version: &str) {
        let mut processor = self.lock();
        let processor = &mut *processor;
        match deliver {
            Deliver::Nothing => {}
            Deliver::Replace(objects) => {
                let list = objects.into_iter().map(|o| (o.key(), o)).collect();
                processor.fifo.replace(list, &self.store);
            }
            Deliver::Change(event) => {
                if let Some((object, delta)) = delta_of(event) {
                    processor.fifo.push(object.key(), delta);
                }
            }
        }
        self.drain(processor);
        self.store.set_resource_version(resource_version);
        if processor.fifo.has_synced() {
            self.synced
                .send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    /// Re-sends every object to the handlers whose time has come.
    fn resync(&self, now: Instant) {
        let mut processor = self.lock();
        let processor = &mut *processor;
        let mut any = false;
        for handler in processor.handlers.values_mut() {
            if let Some(resync) = &mut handler.resync
                && resync.due <= now
            {
                resync.due = now + resync.period;
                handler.syncing = true;
                any = true;
            }
        }
        if any {
            processor.fifo.resync(&self.store);
            self.drain(processor);
            processor
                .handlers
                .values_mut()
                .for_each(|h| h.syncing = false);
        }
    }

    fn drain(&self, processor: &mut Processor<T>) {
        while let Some((key, deltas)) = processor.fifo.pop() {
            for delta in deltas {
                self.apply(&processor.handlers, &key, delta);
            }
        }
    }

    fn apply(
        &self,
        handlers: &BTreeMap<HandlerId, Handler<T>>,
        key: &ObjectKey,
        delta: Delta<Arc<T>>,
    ) {
        let event = match delta {
            Delta::Added(new) | Delta::Updated(new) | Delta::Replaced(new) | Delta::Sync(new) => {
                match self.store.insert(key.clone(), Arc::clone(&new)) {
                    None => InformerEvent::Added(new),
                    Some(old) => InformerEvent::Updated(old, new),
                }
            }
            Delta::Deleted(last) => {
                self.store.remove(key);
                InformerEvent::Deleted(last)
            }
            Delta::DeletedUnknown(last) => {
                if self.store.remove(key).is_none() {
                    return;
                }
                InformerEvent::Deleted(last)
            }
        };
        let unchanged = match &event {
            InformerEvent::Updated(old, new) => {
                old.resource_version() == new.resource_version()
                    && !new.resource_version().is_empty()
            }
            InformerEvent::Added(_) | InformerEvent::Deleted(_) => false,
        };
        for handler in handlers.values() {
            if !unchanged || handler.syncing {
                (handler.callback)(&event);
            }
        }
    }

    /// Returns when the next handler wants a resync.
    fn next_resync(&self) -> Option<Instant> {
        let processor = self.lock();
        processor
            .handlers
            .values()
            .filter_map(|h| h.resync.as_ref())
            .map(|r| r.due)
            .min()
    }

    fn lock(&self) -> MutexGuard<'_, Processor<T>> {
        // A handler's panic unwinds the informer's task, which ends the mirror; until
        // then the state is whole.
        self.processor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn delta_of<T>(event: WatchEvent<Arc<T>>) -> Option<(Arc<T>, Delta<Arc<T>>)> {
    match event {
        WatchEvent::Added(o) => Some((Arc::clone(&o), Delta::Added(o))),
        WatchEvent::Modified(o) => Some((Arc::clone(&o), Delta::Updated(o))),
        WatchEvent::Deleted(o) => Some((Arc::clone(&o), Delta::Deleted(o))),
        WatchEvent::Bookmark { .. } | WatchEvent::Error(_) => None,
    }
}
