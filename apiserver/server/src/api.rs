//! What every request shares: the resources served, and what serves them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meta::Status;
use registry::Kind;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::authn::Tokens;
use crate::metrics::Metrics;
use crate::request_info::ResourceRequest;
use crate::resources::{Resource, Resources};
use crate::service_tokens::ServiceTokens;
use crate::services::ServiceIps;
use crate::storage::{ResourceStore, Store};
use crate::subresources::kubelet::KubeletClient;

/// Everything a request needs.
pub(crate) struct Api {
    /// The resources that are served.
    pub(crate) resources: Resources,
    /// The raw store.
    pub(crate) store: Arc<dyn Store>,
    /// The static bearer tokens.
    pub(crate) tokens: Tokens,
    /// The tokens of service accounts.
    pub(crate) service_tokens: ServiceTokens,
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
    /// Whether the custom resources that were defined at the start are served.
    pub(crate) custom_served: watch::Sender<bool>,
    /// Whether what must exist before anything else exists.
    pub(crate) bootstrapped: watch::Sender<bool>,
}

/// The settings of an [`Api`] that are not derived from the kinds.
pub(crate) struct ApiParts {
    /// The raw store.
    pub(crate) store: Arc<dyn Store>,
    /// The static bearer tokens.
    pub(crate) tokens: Tokens,
    /// The tokens of service accounts.
    pub(crate) service_tokens: ServiceTokens,
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
        let resources = Resources::start(&parts.store, parts.event_ttl_seconds, &parts.storage);
        Arc::new(Self {
            resources,
            store: parts.store,
            tokens: parts.tokens,
            service_tokens: parts.service_tokens,
            metrics: Metrics::default(),
            service_ips: parts.service_ips,
            kubelets: parts.kubelets,
            shutdown: parts.shutdown,
            stopping: AtomicBool::new(false),
            custom_served: watch::Sender::new(false),
            bootstrapped: watch::Sender::new(false),
        })
    }

    /// Returns a core resource that is always served.
    pub(crate) fn core(&self, plural: &'static str) -> Result<&Resource, Status> {
        self.resources
            .builtin("", "v1", plural)
            .ok_or_else(|| Status::internal(format!("resource {plural} is not registered")))
    }

    /// Returns every resource's storage, once each.
    pub(crate) fn stores(&self) -> Vec<Arc<ResourceStore>> {
        self.resources.stores()
    }

    /// Waits until every cache is filled.
    pub(crate) async fn caches_ready(&self) {
        for store in self.stores() {
            store.ready().await;
        }
    }

    /// Waits until the custom resources are served.
    pub(crate) async fn custom_served(&self) {
        // Never an error: the sender lives in `self`.
        let _ = self.custom_served.subscribe().wait_for(|done| *done).await;
    }

    /// Refuses a path at which nothing is served; while it is not known yet
    /// what is, the client is to ask again.
    pub(crate) fn no_such_path(&self) -> Status {
        if *self.custom_served.borrow() {
            return Status::no_such_path();
        }
        let text = "the request has been made before all known HTTP paths have been installed, please retry";
        Status::failure(meta::Reason::ServiceUnavailable, text).with_retry_after(1)
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
            .resources
            .find(&r.group, &r.version, &r.resource)
            .ok_or_else(|| api.no_such_path())?;
        let kind = &resource.kind;
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
    pub(crate) fn kind(&self) -> &Kind {
        &self.resource.kind
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
