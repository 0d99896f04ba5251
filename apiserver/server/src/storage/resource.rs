//! One resource's objects: the door through which every verb goes.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meta::{GroupResource, Object, ResourceVersion, Status, keys};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use watchcache::{Config, Hub, Limits};

use super::feed::Signals;
use super::metrics::CacheMetrics;
use super::own::Own;
use super::store::{Kv, Store};
use super::trees::Trees;

/// How long a read waits for the cache to reach a revision before it gives up
/// (kube-apiserver's `blockTimeout`).
pub const WAIT_FOR_REVISION: Duration = Duration::from_secs(3);

/// What distinguishes one resource's storage from another's.
#[derive(Clone, Debug)]
pub struct ResourceConfig {
    /// The resource, for messages.
    pub resource: GroupResource,
    /// The directory under `/registry/`, such as `pods` or `services/specs`.
    pub storage_prefix: String,
    /// Whether objects lie in namespaces.
    pub namespaced: bool,
    /// Finds the values of the fields that may be selected by, besides name and
    /// namespace.
    pub selectable: fn(&serde_json::Value) -> Vec<(&'static str, String)>,
    /// The selectable field whose watchers are found by value.
    pub index_field: Option<&'static str>,
    /// After how many seconds without a write an object vanishes (events do).
    pub ttl: Option<u64>,
    /// Reads what is stored where that is not simply what is served.
    pub reader: Option<Reader>,
}

/// Makes what is served of what is stored, when an object is decoded: its
/// schema may have changed since it was written.
#[derive(Clone)]
pub struct Reader(pub Arc<dyn Read>);

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

/// The two things a [`Reader`] does.
pub trait Read: Send + Sync {
    /// Brings a stored object into the form in which it is served; tells
    /// whether it was not in it.
    fn renew(&self, object: &mut serde_json::Value) -> bool;

    /// Finds the values of the selectable fields, in place of
    /// [`ResourceConfig::selectable`].
    fn selectable(&self, object: &serde_json::Value) -> Vec<(&'static str, String)>;
}

/// How many keys can be contended for without their updates waiting for each
/// other's; more than that share a place.
const TURNS: usize = 16;

/// The storage of one resource.
#[derive(Debug)]
pub struct ResourceStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: ResourceConfig,
    /// `/registry/<prefix>/`
    pub(super) root: String,
    /// The cacher with the lines of its watchers; behind one lock that is never
    /// held across an await.
    hub: Mutex<Hub>,
    /// The cacher's revision; 0 before it was filled once.
    pub(super) reached: watch::Sender<u64>,
    /// The cacher's generation while it serves, 0 while it does not.
    pub(super) serving: watch::Sender<u64>,
    pub(super) signals: Signals,
    /// What this process writes and the cache does not have yet.
    pub(super) own: Own,
    /// Trees of what this process changed last.
    trees: Mutex<Trees>,
    pub(super) metrics: CacheMetrics,
    pub(super) token: CancellationToken,
    /// Where updates that met a conflict wait for each other.
    pub(super) turns: [tokio::sync::Mutex<()>; TURNS],
    started: Instant,
}

impl ResourceStore {
    /// Starts keeping a resource. Returns at once; [`Self::ready`] says when
    /// the cache is filled. Ends when `token` is cancelled.
    pub fn start(
        store: Arc<dyn Store>,
        config: ResourceConfig,
        token: CancellationToken,
    ) -> Arc<Self> {
        Self::start_within(store, config, Limits::default(), token)
    }

    /// Starts keeping a resource within other limits than the usual.
    pub(crate) fn start_within(
        store: Arc<dyn Store>,
        config: ResourceConfig,
        limits: Limits,
        token: CancellationToken,
    ) -> Arc<Self> {
        let cacher = Config {
            index_field: config.index_field,
            ..Config::default()
        };
        let this = Arc::new(Self {
            store,
            root: keys::list_prefix(&config.storage_prefix, None),
            config,
            hub: Mutex::new(Hub::new(cacher, limits)),
            reached: watch::Sender::new(0),
            serving: watch::Sender::new(0),
            signals: Signals::default(),
            own: Own::default(),
            trees: Mutex::default(),
            metrics: CacheMetrics::default(),
            token,
            turns: Default::default(),
            started: Instant::now(),
        });
        tokio::spawn(super::feed::run(this.clone()));
        tokio::spawn(super::audit::run(this.clone()));
        this
    }

    /// Waits until the cache is filled (or the store was stopped).
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let (mut serving, token) = (self.serving.subscribe(), self.token.clone());
        async move {
            tokio::select! {
                _ = serving.wait_for(|generation| *generation > 0) => {}
                () = token.cancelled() => {}
            }
        }
    }

    /// Tells whether the cache is filled and may be read.
    pub fn is_ready(&self) -> bool {
        *self.serving.borrow() > 0
    }

    /// Ceases to serve until the state was loaded anew.
    pub(super) fn lose(&self) {
        let now = self.now();
        self.serving.send_replace(0);
        self.lock().lose(now);
    }

    /// Ends every watch without an error: clients resume elsewhere.
    pub(super) fn close(&self) {
        let now = self.now();
        self.serving.send_replace(0);
        self.lock().close(now);
    }

    /// Learns that the store has forgotten what was before `revision`, so that
    /// exact lists before it are refused here too.
    pub fn compacted(&self, revision: u64) {
        self.lock().cacher.compacted(revision);
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ResourceConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn metrics(&self) -> &CacheMetrics {
        &self.metrics
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Hub> {
        // A panic under the lock is a bug; the state is still whole, because
        // every change of it is a single call of the pure cacher.
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time as the cacher counts it.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the key under which the store keeps what lies under a key below
    /// [`Self::root`].
    pub(super) fn full(&self, key: &str) -> String {
        [self.root.as_str(), key].concat()
    }

    /// Returns an object's key below [`Self::root`].
    pub(super) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace.filter(|_| self.config.namespaced) {
            Some(ns) => [ns, "/", name].concat(),
            None => name.to_owned(),
        }
    }

    /// Decodes what the store keeps under a key.
    pub(super) fn decode(&self, kv: &Kv) -> Result<Arc<Object>, Status> {
        self.decode_parts(kv.value.clone(), kv.mod_revision)
            .map_err(|e| undecodable(kv, &e))
    }

    /// Returns what the store keeps under a key if this process has it already.
    pub(super) fn known(&self, key: &str, kv: &Kv) -> Option<Arc<Object>> {
        // The same revision in another history is another state.
        let is_it = |o: &Arc<Object>| {
            o.resource_version.0 == kv.mod_revision && (o.renewed || *o.body() == kv.value)
        };
        let cached = self.cached(key).filter(is_it);
        cached.or_else(|| self.own.recall(key, &kv.value, kv.mod_revision))
    }

    /// Decodes what the store keeps under a key for who asked for just that: nobody
    /// selects it, so the values of its fields are left out where nothing else needs
    /// the whole of it read.
    pub(super) fn decode_one(&self, kv: &Kv) -> Result<Arc<Object>, Status> {
        if self.config.reader.is_some() {
            return self.decode(kv);
        }
        Object::decode(
            kv.value.clone(),
            ResourceVersion(kv.mod_revision),
            Vec::new(),
        )
        .map(Arc::new)
        .map_err(|e| undecodable(kv, &e))
    }

    pub(super) fn decode_parts(
        &self,
        body: Bytes,
        revision: u64,
    ) -> Result<Arc<Object>, meta::object::ObjectError> {
        let mut value = meta::json::from_slice(&body)?;
        let renewed = match &self.config.reader {
            Some(Reader(reader)) => reader.renew(&mut value),
            None => false,
        };
        let (fields, version) = (self.fields(&value), ResourceVersion(revision));
        let object = match renewed {
            true => Object::decode_renewed(serde_json::to_vec(&value)?.into(), version, fields)?,
            false => Object::decode(body, version, fields)?,
        };
        Ok(Arc::new(object))
    }

    /// Tells whether an object that is written is served as it is, and not renewed
    /// first: the version it was written through may know less of it.
    pub(super) fn serves_as_written(&self, object: &serde_json::Value) -> bool {
        match &self.config.reader {
            Some(Reader(reader)) => !reader.renew(&mut object.clone()),
            None => true,
        }
    }

    /// Finds the values of the selectable fields of an object in the form in
    /// which it is served.
    pub(super) fn fields(&self, object: &serde_json::Value) -> Vec<(&'static str, String)> {
        match &self.config.reader {
            Some(Reader(reader)) => reader.selectable(object),
            None => (self.config.selectable)(object),
        }
    }

    /// Returns a receiver of the cache's revision, which wakes with every
    /// change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.reached.subscribe()
    }

    /// Returns the newest state of an object that this process knows to have
    /// been: what it wrote may not have come back through the feed yet.
    pub(super) fn newest(&self, key: &str) -> Option<Arc<Object>> {
        // In this order: what goes from here meanwhile has come to the cache.
        let written = self.own.newest(key);
        let cached = self.cached(key);
        let known = cached.as_ref().map_or(0, |c| c.resource_version.0);
        written.filter(|w| w.resource_version.0 > known).or(cached)
    }

    /// The trees of what was changed last.
    pub(super) fn trees(&self) -> MutexGuard<'_, Trees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached object under a key.
    pub(super) fn cached(&self, key: &str) -> Option<Arc<Object>> {
        self.lock().cacher.get(key).cloned()
    }

    pub(super) fn not_found(&self, name: &str) -> Status {
        Status::not_found(&self.config.resource, name)
    }

    pub(super) fn not_ready(&self) -> Status {
        let seconds = self.lock().cacher.retry_after(self.now());
        Status::failure(meta::Reason::TooManyRequests, "storage is (re)initializing")
            .with_retry_after(seconds)
    }
}

fn undecodable(kv: &Kv, error: &meta::object::ObjectError) -> Status {
    Status::internal(format!(
        "unable to decode the object at {}: {error}",
        kv.key
    ))
}
