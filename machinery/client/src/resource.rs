//! What the client needs to know of an object's type: where the resource lives
//! (`ResourceRef`) and where its metadata is (`KubeObject`).
//!
//! Types of `k8s-openapi` satisfy both traits by themselves. [`PartialObject`]
//! carries metadata alone, so a caller that learns resources at run time (the
//! garbage collector) can watch anything.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use meta::GroupVersionResource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Names one resource and says whether its objects live in namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceRef {
    /// Is the group, version and plural name.
    pub gvr: GroupVersionResource,
    /// Tells whether object paths carry a namespace.
    pub namespaced: bool,
}

impl ResourceRef {
    /// Builds a reference to a resource whose objects live in namespaces.
    pub fn namespaced(gvr: GroupVersionResource) -> Self {
        Self {
            gvr,
            namespaced: true,
        }
    }

    /// Builds a reference to a cluster-scoped resource.
    pub fn cluster(gvr: GroupVersionResource) -> Self {
        Self {
            gvr,
            namespaced: false,
        }
    }

    /// Returns the path of the collection, or of the object when `name` is given.
    ///
    /// A namespace given for a cluster-scoped resource is ignored.
    pub fn path(&self, ns: Option<&str>, name: Option<&str>, subresource: Option<&str>) -> String {
        let ns = ns.filter(|ns| self.namespaced && !ns.is_empty());
        let mut path = self.gvr.collection_path(ns);
        for part in [name, subresource].into_iter().flatten() {
            path.push('/');
            path.push_str(part);
        }
        path
    }
}

impl fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gvr.fmt(f)
    }
}

/// Identifies an object inside its resource; the key of stores and work queues.
///
/// Orders by namespace first, so a namespace is one contiguous range of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Is empty for cluster-scoped objects.
    pub namespace: String,
    /// Is the object's name.
    pub name: String,
}

impl ObjectKey {
    /// Builds a key; pass an empty namespace for cluster-scoped objects.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns the namespace, or `None` for cluster-scoped objects.
    pub fn ns(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace.as_str())
    }
}

/// Prints `namespace/name`, or `name` alone, as client-go's `MetaNamespaceKeyFunc`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns() {
            Some(ns) => write!(f, "{ns}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl FromStr for ObjectKey {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('/') {
            Some((ns, name)) => Self::new(ns, name),
            None => Self::new("", text),
        })
    }
}

/// Is implemented by every object that has metadata and can cross the wire.
pub trait KubeObject: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// Is what requests put in `Accept` to receive one object of this shape.
    const ACCEPT: &'static str;
    /// Is what list requests put in `Accept`.
    const ACCEPT_LIST: &'static str;

    /// Returns the object's metadata.
    fn meta(&self) -> &ObjectMeta;
    /// Returns the object's metadata for changing it.
    fn meta_mut(&mut self) -> &mut ObjectMeta;

    /// Returns the name, or an empty text.
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace, or `None` for cluster-scoped objects.
    fn namespace(&self) -> Option<&str> {
        self.meta().namespace.as_deref().filter(|ns| !ns.is_empty())
    }

    /// Returns the UID, or an empty text for an object never stored.
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// Returns the resource version, or an empty text.
    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    /// Returns the key under which stores and queues know the object.
    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace().unwrap_or_default(), self.name())
    }

    /// Tells whether deletion has been asked for.
    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    /// Returns the value of a label.
    fn label(&self, key: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta()
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Returns the owner reference that is marked as the controller.
    fn controller_ref(&self) -> Option<&OwnerReference> {
        self.meta()
            .owner_references
            .as_ref()?
            .iter()
            .find(|r| r.controller == Some(true))
    }
}

/// Is implemented by object types whose resource is known at compile time.
pub trait StaticResource: KubeObject {
    /// Returns where the type's objects live.
    fn resource_ref() -> ResourceRef;
    /// Returns `apiVersion` and `kind`.
    fn type_meta() -> (&'static str, &'static str);
}

impl<T> KubeObject for T
where
    T: k8s_openapi::Metadata<Ty = ObjectMeta>
        + Serialize
        + DeserializeOwned
        + Clone
        + Send
        + Sync
        + 'static,
{
    const ACCEPT: &'static str = "application/json";
    const ACCEPT_LIST: &'static str = "application/json";

    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.metadata_mut()
    }
}

impl<T> StaticResource for T
where
    T: KubeObject + k8s_openapi::Resource,
    T::Scope: Scope,
{
    fn resource_ref() -> ResourceRef {
        ResourceRef {
            gvr: GroupVersionResource::new(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT),
            namespaced: <T::Scope as Scope>::NAMESPACED,
        }
    }

    fn type_meta() -> (&'static str, &'static str) {
        (T::API_VERSION, T::KIND)
    }
}

/// Tells from `k8s-openapi`'s scope marker whether objects live in namespaces.
pub trait Scope {
    /// Is true for [`k8s_openapi::NamespaceResourceScope`].
    const NAMESPACED: bool;
}

impl Scope for k8s_openapi::NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scope for k8s_openapi::ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// Holds an object's type and metadata only (`PartialObjectMetadata`).
///
/// The server sends this form of any resource when asked with
/// `Accept: …;as=PartialObjectMetadata;g=meta.k8s.io;v=v1`, so its size does not
/// grow with the object's. `api_version` and `kind` then name the envelope, not
/// the object: ask the [`ResourceRef`] for the type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartialObject {
    /// Is `meta.k8s.io/v1` when the server honoured the request for metadata.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Is `PartialObjectMetadata` when the server honoured the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Is the object's metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
}

impl KubeObject for PartialObject {
    const ACCEPT: &'static str =
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    const ACCEPT_LIST: &'static str =
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Builds the reference that events and bindings use to point at an object.
pub fn object_reference<T: StaticResource>(object: &T) -> ObjectReference {
    let (api_version, kind) = T::type_meta();
    let meta = object.meta();
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// Builds the owner reference a controller puts on what it creates.
pub fn controller_reference<T: StaticResource>(owner: &T) -> OwnerReference {
    let (api_version, kind) = T::type_meta();
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: owner.name().to_owned(),
        uid: owner.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{Node, Pod};

    use super::*;

    #[test]
    fn paths_follow_scope() {
        let deployments = Deployment::resource_ref();
        assert_eq!(
            deployments.path(Some("a"), Some("web"), Some("scale")),
            "/apis/apps/v1/namespaces/a/deployments/web/scale"
        );
        assert_eq!(
            deployments.path(None, None, None),
            "/apis/apps/v1/deployments"
        );
        assert_eq!(
            Node::resource_ref().path(Some("a"), Some("n"), None),
            "/api/v1/nodes/n"
        );
    }

    #[test]
    fn keys_print_and_parse() {
        for text in ["a/b", "b"] {
            let key: ObjectKey = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
        }
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".into());
        pod.metadata.namespace = Some("ns".into());
        assert_eq!(pod.key(), ObjectKey::new("ns", "p"));
    }

    #[test]
    fn partial_objects_keep_metadata_of_any_kind() {
        let partial: PartialObject = serde_json::from_str(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"u"},"spec":{}}"#,
        )
        .unwrap();
        assert_eq!((partial.name(), partial.uid()), ("p", "u"));
    }
}
