//! What a plan can ask for: one API request each, or an event for people.

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::GroupVersionResource;
use serde::Serialize;
use serde_json::Value;

/// Names one object of one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Is the resource the object belongs to.
    pub gvr: GroupVersionResource,
    /// Is `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Is the object's name.
    pub name: String,
}

impl Target {
    /// Names an object of a type known at compile time.
    pub fn of<T: Resource>(metadata: &ObjectMeta) -> Self {
        Self {
            gvr: gvr::<T>(),
            namespace: metadata.namespace.clone().filter(|ns| !ns.is_empty()),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// Returns the resource a type's objects are served under.
pub fn gvr<T: Resource>() -> GroupVersionResource {
    GroupVersionResource::new(T::GROUP, T::VERSION, T::URL_PATH_SEGMENT)
}

/// Says what becomes of an object's dependents when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The object goes first; the garbage collector follows.
    Background,
    /// The object stays until its blocking dependents are gone.
    Foreground,
    /// Dependents lose their reference and stay.
    Orphan,
}

impl Propagation {
    /// Returns the wire form of the policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// Is the severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something happened as intended.
    Normal,
    /// Something needs attention.
    Warning,
}

/// Is one thing a controller wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates an object; the body may carry `generateName`.
    Create {
        /// Is the resource to create in.
        gvr: GroupVersionResource,
        /// Is `None` for cluster-scoped objects.
        namespace: Option<String>,
        /// Is the whole object.
        body: Value,
    },
    /// Replaces an object or one subresource by compare-and-swap on the
    /// `metadata.resourceVersion` inside the body.
    Replace {
        /// Names the object.
        target: Target,
        /// Is `status`, `finalize`, or nothing for the object itself.
        subresource: Option<&'static str>,
        /// Is the whole object.
        body: Value,
    },
    /// Applies a JSON merge patch (RFC 7386). Lists are replaced whole, so a
    /// patch of a list also carries the `resourceVersion` it was read at.
    Patch {
        /// Names the object.
        target: Target,
        /// Is `status`, or nothing for the object itself.
        subresource: Option<&'static str>,
        /// Is the merge patch.
        patch: Value,
    },
    /// Deletes an object, only if it still is the one that was seen.
    Delete {
        /// Names the object.
        target: Target,
        /// Is the uid precondition; `None` deletes whatever has the name.
        uid: Option<String>,
        /// Is `None` for the kind's default.
        propagation: Option<Propagation>,
        /// Is `None` for the object's own grace period.
        grace_seconds: Option<i64>,
    },
    /// Deletes every object of one resource in one namespace.
    DeleteCollection {
        /// Is the resource.
        gvr: GroupVersionResource,
        /// Is the namespace.
        namespace: String,
    },
    /// Tells people; never fails and never blocks.
    Event {
        /// Is the object the event is about.
        regarding: ObjectReference,
        /// Is the severity.
        type_: EventType,
        /// Is a short CamelCase word that tools match on.
        reason: &'static str,
        /// Is the sentence people read.
        message: String,
    },
}

impl Write {
    /// Creates an object of a type known at compile time.
    pub fn create<T: Resource + Serialize>(metadata: &ObjectMeta, object: &T) -> Self {
        Self::Create {
            gvr: gvr::<T>(),
            namespace: metadata.namespace.clone().filter(|ns| !ns.is_empty()),
            body: body(object),
        }
    }

    /// Replaces an object of a type known at compile time.
    pub fn replace<T: Resource + Serialize>(
        metadata: &ObjectMeta,
        subresource: Option<&'static str>,
        object: &T,
    ) -> Self {
        Self::Replace {
            target: Target::of::<T>(metadata),
            subresource,
            body: body(object),
        }
    }

    /// Patches an object of a type known at compile time.
    pub fn patch<T: Resource>(
        metadata: &ObjectMeta,
        subresource: Option<&'static str>,
        patch: Value,
    ) -> Self {
        Self::Patch {
            target: Target::of::<T>(metadata),
            subresource,
            patch,
        }
    }

    /// Deletes an object of a type known at compile time, by name and uid.
    pub fn delete<T: Resource>(metadata: &ObjectMeta) -> Self {
        Self::Delete {
            target: Target::of::<T>(metadata),
            uid: metadata.uid.clone(),
            propagation: None,
            grace_seconds: None,
        }
    }

    /// Records an event about an object of a type known at compile time.
    pub fn event<T: Resource>(
        metadata: &ObjectMeta,
        type_: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self::Event {
            regarding: crate::object::reference::<T>(metadata),
            type_,
            reason,
            message: message.into(),
        }
    }
}

/// Turns a typed object into the body of a request.
pub fn body<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).expect("typed objects have text keys and serialise")
}
