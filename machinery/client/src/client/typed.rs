//! The verbs for types known at compile time: `client.get::<Pod>(..)`.

use bytes::Bytes;
use futures::Stream;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::Client;
use super::params::{DeleteParams, ListParams, LogParams, Patch, WatchParams};
use super::verbs::{ObjectList, Resource};
use crate::error::Result;
use crate::resource::StaticResource;
use crate::watch::WatchStream;

impl Client {
    /// Opens the verbs of a type.
    pub fn of<T: StaticResource>(&self) -> Resource<T> {
        self.resource(T::resource_ref())
    }

    /// Reads one object.
    pub async fn get<T: StaticResource>(&self, ns: Option<&str>, name: &str) -> Result<T> {
        self.of::<T>().get(ns, name).await
    }

    /// Reads one page of objects; of all namespaces when `ns` is none.
    pub async fn list<T: StaticResource>(
        &self,
        ns: Option<&str>,
        params: &ListParams,
    ) -> Result<ObjectList<T>> {
        self.of::<T>().list(ns, params).await
    }

    /// Reads every page and returns all objects.
    pub async fn list_all<T: StaticResource>(
        &self,
        ns: Option<&str>,
        params: &ListParams,
    ) -> Result<Vec<T>> {
        self.of::<T>().list_all(ns, params).await
    }

    /// Opens a watch; most callers want an informer instead.
    pub async fn watch<T: StaticResource>(
        &self,
        ns: Option<&str>,
        params: &WatchParams,
    ) -> Result<WatchStream<T>> {
        self.of::<T>().watch(ns, params).await
    }

    /// Creates an object; `ns` defaults to the object's own namespace.
    pub async fn create<T: StaticResource>(&self, ns: Option<&str>, object: &T) -> Result<T> {
        self.of::<T>()
            .create(ns.or(object.namespace()), object)
            .await
    }

    /// Replaces an object; `ns` defaults to the object's own namespace.
    pub async fn update<T: StaticResource>(&self, ns: Option<&str>, object: &T) -> Result<T> {
        self.of::<T>()
            .update(ns.or(object.namespace()), object.name(), object)
            .await
    }

    /// Replaces an object's status; `ns` defaults to the object's own namespace.
    pub async fn update_status<T: StaticResource>(
        &self,
        ns: Option<&str>,
        object: &T,
    ) -> Result<T> {
        self.of::<T>()
            .update_status(ns.or(object.namespace()), object.name(), object)
            .await
    }

    /// Changes an object.
    pub async fn patch<T: StaticResource>(
        &self,
        ns: Option<&str>,
        name: &str,
        patch: &Patch,
    ) -> Result<T> {
        self.of::<T>().patch(ns, name, patch).await
    }

    /// Changes an object's status.
    pub async fn patch_status<T: StaticResource>(
        &self,
        ns: Option<&str>,
        name: &str,
        patch: &Patch,
    ) -> Result<T> {
        self.of::<T>().patch_status(ns, name, patch).await
    }

    /// Deletes an object; returns it if it lives on for now.
    pub async fn delete<T: StaticResource>(
        &self,
        ns: Option<&str>,
        name: &str,
        params: &DeleteParams,
    ) -> Result<Option<T>> {
        self.of::<T>().delete(ns, name, params).await
    }

    /// Deletes every object the selectors match.
    pub async fn delete_collection<T: StaticResource>(
        &self,
        ns: Option<&str>,
        params: &DeleteParams,
        list: &ListParams,
    ) -> Result<()> {
        self.of::<T>().delete_collection(ns, params, list).await
    }

    /// Posts to a subresource, such as a pod's `binding`.
    pub async fn create_subresource<T: StaticResource>(
        &self,
        ns: Option<&str>,
        name: &str,
        sub: &str,
        body: &Value,
    ) -> Result<Value> {
        self.of::<T>().create_subresource(ns, name, sub, body).await
    }

    /// Replaces a subresource, such as a namespace's `finalize`.
    pub async fn update_subresource<T: StaticResource>(
        &self,
        ns: Option<&str>,
        name: &str,
        sub: &str,
        body: &Value,
    ) -> Result<Value> {
        self.of::<T>().update_subresource(ns, name, sub, body).await
    }

    /// Streams a container's log.
    pub async fn logs(
        &self,
        ns: Option<&str>,
        pod: &str,
        params: &LogParams,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + use<>> {
        self.of::<Pod>().logs(ns, pod, params).await
    }
}
