//! The world a controller lives in: caches it reads, an API it writes, a clock.
//!
//! Controllers know nothing else. The same code therefore runs on informers and a
//! real API server ([`live`]) and in a simulated world whose watches lose events
//! and whose writes fail (`sim`, in tests).

pub mod live;

use std::sync::Arc;

use async_trait::async_trait;
use client::indexer::Store;
use client::{Discovery, Error, InformerEvent, PartialObject, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::GroupVersionResource;
use plan::{Target, Write, object};
use serde_json::Value;

/// Files objects by the uid of their managing owner; those without one are under
/// [`orphans`] of their namespace.
pub const BY_CONTROLLER: &str = "controller";

/// Names the place in [`BY_CONTROLLER`] of a namespace's objects without manager.
pub fn orphans(namespace: &str) -> String {
    // A uid has no slash.
    format!("orphans/{namespace}")
}

/// Files an object for [`BY_CONTROLLER`].
pub fn controller_uid(metadata: &ObjectMeta) -> Vec<String> {
    vec![match object::controller_of(metadata) {
        Some(owner) => owner.uid.clone(),
        None => orphans(object::text(&metadata.namespace)),
    }]
}

/// Is called with every change; must not block.
pub type Handler<T> = Box<dyn Fn(&InformerEvent<T>) + Send + Sync>;

/// Is a cache of one kind that tells of its changes.
pub trait Source<T>: Send + Sync {
    /// Returns the cache.
    fn store(&self) -> &Store<T>;
    /// Adds a handler; it is told of what is cached first.
    fn subscribe(&self, handler: Handler<T>);
}

impl<T: client::KubeObject> Source<T> for SharedInformer<T> {
    fn store(&self) -> &Store<T> {
        SharedInformer::store(self)
    }

    fn subscribe(&self, handler: Handler<T>) {
        self.add_handler(handler);
    }
}

/// Shares a cache.
pub type Cache<T> = Arc<dyn Source<T>>;

/// Holds one cache per kind that controllers read.
#[derive(Clone)]
pub struct Caches {
    /// Is indexed by managing owner and by node.
    pub pods: Cache<Pod>,
    /// Is indexed by managing owner.
    pub replica_sets: Cache<ReplicaSet>,
    /// Holds every Deployment.
    pub deployments: Cache<Deployment>,
    /// Holds every Namespace.
    pub namespaces: Cache<Namespace>,
    /// Holds every Node.
    pub nodes: Cache<Node>,
    /// Holds the Leases of nodes only.
    pub node_leases: Cache<Lease>,
    /// Holds every ServiceAccount.
    pub service_accounts: Cache<ServiceAccount>,
    /// Holds the ConfigMaps named `kube-root-ca.crt` only.
    pub root_cas: Cache<ConfigMap>,
}

/// Is the API as controllers use it.
#[async_trait]
pub trait Api: Send + Sync {
    /// Performs one write and returns the object it leaves, if any.
    async fn execute(&self, write: &Write) -> Result<Value, Error>;
    /// Reads an object's metadata from the API itself, past every cache.
    async fn read(&self, target: &Target) -> Result<Option<PartialObject>, Error>;
    /// Reads a whole object from the API itself.
    async fn read_whole(&self, target: &Target) -> Result<Option<Value>, Error>;
    /// Lists the metadata of a resource's objects in a namespace.
    async fn list(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<PartialObject>, Error>;
    /// Lists the resources that are served.
    async fn discover(&self) -> Result<Discovery, Error>;
    /// Returns the time.
    fn now(&self) -> Timestamp;
}

/// Is everything a controller is built from.
#[derive(Clone)]
pub struct World {
    /// Is what it writes to.
    pub api: Arc<dyn Api>,
    /// Is what it reads.
    pub caches: Caches,
}

impl World {
    /// Performs writes in order; the first failure ends it.
    ///
    /// A deletion of what is gone has done its work.
    pub async fn execute_all(&self, writes: &[Write]) -> Result<(), Error> {
        for write in writes {
            match self.api.execute(write).await {
                Ok(_) => {}
                Err(error) if matches!(write, Write::Delete { .. }) && error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells whether an object is still the one seen and not being deleted. Asked
    /// before objects are adopted: a cache may show an owner that is long gone.
    pub async fn is_live<T: k8s_openapi::Resource>(
        &self,
        metadata: &ObjectMeta,
    ) -> Result<bool, Error> {
        let found = self.api.read(&Target::of::<T>(metadata)).await?;
        Ok(found.is_some_and(|found| {
            found.metadata.uid == metadata.uid && found.metadata.deletion_timestamp.is_none()
        }))
    }
}
