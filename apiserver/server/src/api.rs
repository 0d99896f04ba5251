//! What every request shares: the resources served, and what serves them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meta::Status;
use registry::Kind;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::authn::Tokens;
use crate::discovery::Discovery;
use crate::metrics::Metrics;
use crate::openapi::OpenApi;
use crate::request_info::ResourceRequest;
use crate::services::ServiceIps;
use crate::storage::{ResourceConfig, ResourceStore, Store};
use crate::subresources::log::KubeletClient;

/// A served resource: its kind and where its objects are kept. Two versions of
/// one resource share a store.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// What it is.
    pub(crate) kind: &'static Kind,
    /// Where its objects are.
    pub(crate) store: Arc<ResourceStore>,
}

/// Group, version and plural.
type Coordinates = (&'static str, &'static str, &'static str);

/// Everything a request needs.
pub(crate) struct Api {
    /// The resources, by their coordinates.
    pub(crate) resources: BTreeMap<Coordinates, Resource>,
    /// The raw store.
    pub(crate) store: Arc<dyn Store>,
    /// The static bearer tokens.
    pub(crate) tokens: Tokens,
    /// The discovery documents.
    pub(crate) discovery: Discovery,
    /// The OpenAPI documents.
    pub(crate) openapi: OpenApi,
    /// The counters.
    pub(crate) metrics: Metrics,
    /// The allocator of service addresses.
    pub(crate) service_ips: ServiceIps,
    /// The way to kubelets.
    pub(crate) kubelets: KubeletClient,
    /// Cancelled when the server stops; long-running requests end with it.
    pub(crate) shutdown: CancellationToken,
    /// Whether a stop has been announced.
    pub(crate) stopping: AtomicBool,
    /// Whether what must exist before anything else exists.
    pub(crate) bootstrapped: watch::Sender<bool>,
}

/// The settings of an [`Api`] that are not derived from the kinds.
pub(crate) struct ApiParts {
    /// The raw store.
    pub(crate) store: Arc<dyn Store>,
    /// The static bearer tokens.
    pub(crate) tokens: Tokens,
    /// The allocator of service addresses.
    pub(crate) service_ips: ServiceIps,
    /// The way to kubelets.
    pub(crate) kubelets: KubeletClient,
    /// How long events are kept, in seconds.
    pub(crate) event_ttl_seconds: u64,
    /// Cancelled when the server stops serving.
    pub(crate) shutdown: CancellationToken,
    /// Cancelled when the caches stop, after the last request.
    pub(crate) storage: CancellationToken,
}

impl Api {
    /// Creates the server's core and starts filling the caches of all
    /// resources.
    pub(crate) fn start(parts: ApiParts) -> Arc<Self> {
        let mut stores: BTreeMap<&'static str, Arc<ResourceStore>> = BTreeMap::new();
        let mut resources = BTreeMap::new();
        // Storage kinds first: a store is named after the kind it stores.
        for stored in [true, false] {
            for kind in registry::kinds::all().iter().copied() {
                if kind.conversion.is_none() != stored {
                    continue;
                }
                let store = stores.entry(kind.storage_prefix).or_insert_with(|| {
                    ResourceStore::start(
                        parts.store.clone(),
                        config(kind, parts.event_ttl_seconds),
                        parts.storage.clone(),
                    )
                });
                let resource = Resource {
                    kind,
                    store: store.clone(),
                };
                resources.insert((kind.group, kind.version, kind.plural), resource);
            }
        }
        Arc::new(Self {
            resources,
            store: parts.store,
            tokens: parts.tokens,
            discovery: Discovery::default(),
            openapi: OpenApi::default(),
            metrics: Metrics::default(),
            service_ips: parts.service_ips,
            kubelets: parts.kubelets,
            shutdown: parts.shutdown,
            stopping: AtomicBool::new(false),
            bootstrapped: watch::Sender::new(false),
        })
    }

    /// Returns a served resource.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Resource> {
        let kind = registry::kinds::find(group, version, plural)?;
        self.resources.get(&(kind.group, kind.version, kind.plural))
    }

    /// Returns a core resource that is always served.
    pub(crate) fn core(&self, plural: &'static str) -> Result<&Resource, Status> {
        self.resource("", "v1", plural)
            .ok_or_else(|| Status::internal(format!("resource {plural} is not registered")))
    }

    /// Returns every resource's storage, once each.
    pub(crate) fn stores(&self) -> Vec<Arc<ResourceStore>> {
        let by_prefix: BTreeMap<&str, &Arc<ResourceStore>> = self
            .resources
            .values()
            .map(|r| (r.kind.storage_prefix, &r.store))
            .collect();
        by_prefix.into_values().cloned().collect()
    }

    /// Waits until every cache is filled.
    pub(crate) async fn caches_ready(&self) {
        for resource in self.resources.values() {
            resource.store.ready().await;
        }
    }

    /// Tells whether the server stops, or is about to.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.shutdown.is_cancelled()
    }

    /// Tells whether the system objects exist.
    pub(crate) fn is_bootstrapped(&self) -> bool {
        *self.bootstrapped.borrow()
    }

    /// Waits until the system objects exist.
    pub(crate) async fn bootstrapped(&self) {
        // Never an error: the sender lives in `self`.
        let _ = self.bootstrapped.subscribe().wait_for(|done| *done).await;
    }
}

fn config(kind: &'static Kind, event_ttl_seconds: u64) -> ResourceConfig {
    ResourceConfig {
        resource: kind.group_resource(),
        storage_prefix: kind.storage_prefix.to_owned(),
        namespaced: kind.namespaced,
        selectable,
        // Every kubelet watches the pods of its node: the one watch that must
        // not cost work for other nodes' pods.
        index_field: kind
            .selectable
            .iter()
            .copied()
            .find(|f| *f == "spec.nodeName"),
        ttl: (kind.ttl_seconds > 0).then_some(event_ttl_seconds),
    }
}

/// Finds the selectable fields of a stored object of any kind.
fn selectable(object: &Value) -> Vec<(&'static str, String)> {
    let (api_version, kind) = meta::value::type_meta(object);
    registry::kinds::find_kind(api_version, kind)
        .map(|k| k.selectable_fields(object))
        .unwrap_or_default()
}

/// What one request is aimed at.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The resource.
    pub(crate) resource: Resource,
    /// The namespace, for namespaced kinds; `None` is all of them.
    pub(crate) namespace: Option<String>,
    /// The object's name; empty for a collection.
    pub(crate) name: String,
}

impl Target {
    /// Finds what a request is aimed at; 404 for what is not served.
    pub(crate) fn find(api: &Api, r: &ResourceRequest) -> Result<Self, Status> {
        let resource = api
            .resource(&r.group, &r.version, &r.resource)
            .ok_or_else(Status::no_such_path)?
            .clone();
        let kind = resource.kind;
        // `/api/v1/namespaces/{name}` reads as being in that namespace.
        let in_itself = kind.group.is_empty() && kind.plural == "namespaces";
        if r.namespace.is_some() && !kind.namespaced && !in_itself {
            return Err(Status::no_such_path());
        }
        let name = r
            .name
            .clone()
            .filter(|_| r.name_in_path)
            .unwrap_or_default();
        if kind.namespaced && r.namespace.is_none() && !name.is_empty() {
            return Err(Status::no_such_path());
        }
        let namespace = r.namespace.clone().filter(|_| kind.namespaced);
        Ok(Self {
            resource,
            namespace,
            name,
        })
    }

    /// Returns the kind.
    pub(crate) fn kind(&self) -> &'static Kind {
        self.resource.kind
    }

    /// Returns the storage.
    pub(crate) fn store(&self) -> &Arc<ResourceStore> {
        &self.resource.store
    }

    /// Returns the namespace.
    pub(crate) fn ns(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}
