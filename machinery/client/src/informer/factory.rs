//! Shares one informer per resource, shape and selector among all who ask.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt, join_all};
use tokio_util::sync::CancellationToken;

use super::{InformerOptions, SharedInformer};
use crate::client::Client;
use crate::resource::{KubeObject, ResourceRef, StaticResource};

/// Makes informers. A clone is the same factory.
#[derive(Clone)]
pub struct InformerFactory {
    client: Client,
    informers: Arc<Mutex<Informers>>,
}

type Informers = BTreeMap<(TypeId, ResourceRef, InformerOptions), Box<dyn AnyInformer>>;

/// Hides the object type of an informer.
trait AnyInformer: Send {
    fn as_any(&self) -> &dyn Any;
    fn start(&self, token: &CancellationToken);
    fn wait_synced(&self) -> BoxFuture<'static, ()>;
}

impl<T: KubeObject> AnyInformer for SharedInformer<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn start(&self, token: &CancellationToken) {
        // The task ends with the token; nobody needs to join it.
        drop(self.spawn(token.clone()));
    }

    fn wait_synced(&self) -> BoxFuture<'static, ()> {
        let informer = self.clone();
        async move { informer.synced().await }.boxed()
    }
}

impl InformerFactory {
    /// Builds a factory that has made nothing.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            informers: Arc::default(),
        }
    }

    /// Returns the client the informers use.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the informer of a type, made on first use.
    pub fn informer<T: StaticResource>(&self, options: InformerOptions) -> SharedInformer<T> {
        self.informer_for(T::resource_ref(), options)
    }

    /// Returns the informer of a resource known at run time, made on first use.
    pub fn informer_for<T: KubeObject>(
        &self,
        resource: ResourceRef,
        options: InformerOptions,
    ) -> SharedInformer<T> {
        let key = (TypeId::of::<T>(), resource.clone(), options.clone());
        let mut informers = self.lock();
        let known = informers.get(&key).and_then(|i| i.as_any().downcast_ref());
        if let Some(informer) = known {
            return SharedInformer::clone(informer);
        }
        let informer = SharedInformer::for_resource(&self.client, resource, options);
        informers.insert(key, Box::new(informer.clone()));
        informer
    }

    /// Starts every informer made so far that is not running, until the token is
    /// cancelled. Call it again after asking for more informers.
    pub fn start(&self, token: &CancellationToken) {
        self.lock()
            .values()
            .for_each(|informer| informer.start(token));
    }

    /// Waits until every informer made so far has synced.
    pub async fn synced(&self) {
        let all: Vec<_> = self
            .lock()
            .values()
            .map(|informer| informer.wait_synced())
            .collect();
        join_all(all).await;
    }

    fn lock(&self) -> MutexGuard<'_, Informers> {
        self.informers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerFactory")
            .field("informers", &self.lock().len())
            .finish()
    }
}
