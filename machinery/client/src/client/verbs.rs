//! Every verb once, for objects of any shape.

use std::marker::PhantomData;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use http::Method;
use http_body_util::BodyStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::params::{DeleteParams, ListParams, LogParams, Patch, WatchParams};
use super::{Call, Client, read_body};
use crate::error::{Error, Result};
use crate::query::Query;
use crate::resource::{KubeObject, ResourceRef};
use crate::watch::{WatchStream, decode};

const JSON: &str = "application/json";

/// Is a page of objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub struct ObjectList<T> {
    /// Carries the list's resource version and the token of the next page.
    #[serde(default)]
    pub metadata: ListMeta,
    /// Are the objects; the server writes `null` for none.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub items: Vec<T>,
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl<T> ObjectList<T> {
    /// Returns the version of the collection, or an empty text.
    pub fn resource_version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    /// Returns the token of the next page, if there is one.
    pub fn next_page(&self) -> Option<&str> {
        self.metadata
            .continue_
            .as_deref()
            .filter(|token| !token.is_empty())
    }
}

/// Holds the verbs of one resource for objects read as `T`.
#[derive(Clone, Debug)]
pub struct Resource<T> {
    client: Client,
    resource: ResourceRef,
    accept: &'static str,
    accept_list: &'static str,
    shape: PhantomData<fn() -> T>,
}

impl<T> Resource<T> {
    pub(crate) fn new(client: Client, resource: ResourceRef) -> Self {
        Self {
            client,
            resource,
            accept: JSON,
            accept_list: JSON,
            shape: PhantomData,
        }
    }

    /// Returns which resource this is.
    pub fn resource_ref(&self) -> &ResourceRef {
        &self.resource
    }

    fn path(&self, ns: Option<&str>, name: Option<&str>, sub: Option<&str>) -> Result<String> {
        // A name with a slash would quietly address another object.
        for part in [ns, name].into_iter().flatten() {
            if part.contains(['/', '%', '?', '#']) || part == "." || part == ".." {
                return Err(Error::Request(format!(
                    "{part:?} is not a valid path segment"
                )));
            }
        }
        if name == Some("") {
            return Err(Error::Request(format!(
                "{}: the object has no name",
                self.resource
            )));
        }
        Ok(self.resource.path(ns, name, sub))
    }
}

impl<T: KubeObject> Resource<T> {
    /// Asks the server for the shape that `T` names, such as metadata only.
    pub(crate) fn shaped(client: Client, resource: ResourceRef) -> Self {
        let accept = T::ACCEPT;
        Self {
            accept,
            accept_list: T::ACCEPT_LIST,
            ..Self::new(client, resource)
        }
    }
}

impl<T: Serialize + DeserializeOwned> Resource<T> {
    /// Reads one object.
    pub async fn get(&self, ns: Option<&str>, name: &str) -> Result<T> {
        let path = self.path(ns, Some(name), None)?;
        self.client
            .send_json(Call::new(Method::GET, path).accept(self.accept))
            .await
    }

    /// Reads one page of objects; of all namespaces when `ns` is none.
    pub async fn list(&self, ns: Option<&str>, params: &ListParams) -> Result<ObjectList<T>> {
        let mut query = Query::default();
        params.query(&mut query);
        let path = query.finish(&self.path(ns, None, None)?);
        self.client
            .send_json(Call::new(Method::GET, path).accept(self.accept_list))
            .await
    }

    /// Reads every page and returns all objects.
    pub async fn list_all(&self, ns: Option<&str>, params: &ListParams) -> Result<Vec<T>> {
        let mut params = params.clone();
        let mut all = Vec::new();
        loop {
            let page = self.list(ns, &params).await?;
            params.continue_ = page.next_page().map(str::to_owned);
            // The token carries the version; saying both is an error.
            params.resource_version = None;
            params.resource_version_match = None;
            all.extend(page.items);
            if params.continue_.is_none() {
                return Ok(all);
            }
        }
    }

    /// Opens a watch.
    pub async fn watch(&self, ns: Option<&str>, params: &WatchParams) -> Result<WatchStream<T>> {
        let mut query = Query::default();
        params.query(&mut query);
        let path = query.finish(&self.path(ns, None, None)?);
        let response = self
            .client
            .send(Call::new(Method::GET, path).accept(self.accept))
            .await?;
        Ok(decode(response.into_body()))
    }

    /// Creates an object and returns what was stored.
    pub async fn create(&self, ns: Option<&str>, object: &T) -> Result<T> {
        let path = self.path(ns, None, None)?;
        self.write(Method::POST, path, object).await
    }

    /// Replaces an object and returns what was stored.
    pub async fn update(&self, ns: Option<&str>, name: &str, object: &T) -> Result<T> {
        let path = self.path(ns, Some(name), None)?;
        self.write(Method::PUT, path, object).await
    }

    /// Replaces an object's status and returns what was stored.
    pub async fn update_status(&self, ns: Option<&str>, name: &str, object: &T) -> Result<T> {
        let path = self.path(ns, Some(name), Some("status"))?;
        self.write(Method::PUT, path, object).await
    }

    /// Changes an object and returns what was stored.
    pub async fn patch(&self, ns: Option<&str>, name: &str, patch: &Patch) -> Result<T> {
        self.patch_sub(ns, name, None, patch).await
    }

    /// Changes an object's status and returns what was stored.
    pub async fn patch_status(&self, ns: Option<&str>, name: &str, patch: &Patch) -> Result<T> {
        self.patch_sub(ns, name, Some("status"), patch).await
    }

    async fn patch_sub(
        &self,
        ns: Option<&str>,
        name: &str,
        sub: Option<&str>,
        patch: &Patch,
    ) -> Result<T> {
        let mut query = Query::default();
        query.push("fieldManager", self.client.field_manager());
        if matches!(patch, Patch::Apply(_)) {
            query.push("force", "true");
        }
        let path = query.finish(&self.path(ns, Some(name), sub)?);
        let mut call = Call::new(Method::PATCH, path)
            .accept(self.accept)
            .body(patch.body()?);
        call.content_type = patch.content_type();
        self.client.send_json(call).await
    }

    /// Deletes an object. Returns the object if it lives on (finalizers, grace), and
    /// none if the server says it is gone.
    pub async fn delete(
        &self,
        ns: Option<&str>,
        name: &str,
        params: &DeleteParams,
    ) -> Result<Option<T>> {
        let path = self.path(ns, Some(name), None)?;
        let call = Call::new(Method::DELETE, path)
            .accept(self.accept)
            .body(params.body()?);
        let body = read_body(self.client.send(call).await?).await?;
        let kind: KindOnly = serde_json::from_slice(&body).map_err(Error::Decode)?;
        if kind.kind == "Status" {
            return Ok(None);
        }
        serde_json::from_slice(&body)
            .map(Some)
            .map_err(Error::Decode)
    }

    /// Deletes every object the selectors of `list` match.
    pub async fn delete_collection(
        &self,
        ns: Option<&str>,
        params: &DeleteParams,
        list: &ListParams,
    ) -> Result<()> {
        let mut query = Query::default();
        list.query(&mut query);
        let path = query.finish(&self.path(ns, None, None)?);
        let call = Call::new(Method::DELETE, path).body(params.body()?);
        read_body(self.client.send(call).await?).await.map(drop)
    }

    /// Reads a subresource, such as `scale`.
    pub async fn get_subresource(&self, ns: Option<&str>, name: &str, sub: &str) -> Result<Value> {
        let path = self.path(ns, Some(name), Some(sub))?;
        self.client.send_json(Call::new(Method::GET, path)).await
    }

    /// Posts to a subresource, such as `binding`.
    pub async fn create_subresource(
        &self,
        ns: Option<&str>,
        name: &str,
        sub: &str,
        body: &Value,
    ) -> Result<Value> {
        let path = self.path(ns, Some(name), Some(sub))?;
        self.write(Method::POST, path, body).await
    }

    /// Replaces a subresource, such as `finalize`.
    pub async fn update_subresource(
        &self,
        ns: Option<&str>,
        name: &str,
        sub: &str,
        body: &Value,
    ) -> Result<Value> {
        let path = self.path(ns, Some(name), Some(sub))?;
        self.write(Method::PUT, path, body).await
    }

    /// Streams a container's log.
    pub async fn logs(
        &self,
        ns: Option<&str>,
        pod: &str,
        params: &LogParams,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + use<T>> {
        let mut query = Query::default();
        params.query(&mut query);
        let path = query.finish(&self.path(ns, Some(pod), Some("log"))?);
        let response = self.client.send(Call::new(Method::GET, path)).await?;
        let frames = BodyStream::new(response.into_body());
        Ok(frames
            .map_err(Error::Transport)
            .try_filter_map(|frame| async { Ok(frame.into_data().ok()) })
            .boxed())
    }

    async fn write<B: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        path: String,
        object: &B,
    ) -> Result<R> {
        let mut query = Query::default();
        query.push("fieldManager", self.client.field_manager());
        let body = serde_json::to_vec(object).map_err(Error::Encode)?;
        let call = Call::new(method, query.finish(&path))
            .accept(self.accept)
            .body(body);
        self.client.send_json(call).await
    }
}

#[derive(Deserialize)]
struct KindOnly {
    #[serde(default)]
    kind: String,
}
