//! Garbage collection: what belongs to something that is gone goes too.
//!
//! [`graph`] keeps who owns whom, fed by every object's metadata; an event on it
//! answers which objects to look at. [`decide`] answers what to do about one of
//! them, from live reads, never from the graph: the graph may lag, and a wrong
//! deletion cannot be taken back. [`absent`] remembers owners known to be gone.
//!
//! Rules follow Kubernetes v1.32 `pkg/controller/garbagecollector`.

pub mod absent;
pub mod decide;
pub mod graph;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Holds an object that is deleted in the foreground until its blocking
/// dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Holds an object that is deleted with its dependents left behind until they
/// have lost their references.
pub const ORPHAN: &str = "orphan";

/// Identifies an object by where it lives and which one it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Is the group and version the object was seen under.
    pub api_version: String,
    /// Is the kind.
    pub kind: String,
    /// Is empty for cluster-scoped objects.
    pub namespace: String,
    /// Is the name.
    pub name: String,
    /// Is the uid.
    pub uid: String,
}

/// Tells whether an object is being deleted and waits for its dependents.
pub fn is_deleting_dependents(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some() && has_finalizer(metadata, FOREGROUND)
}

/// Tells whether an object is being deleted and its dependents are to stay.
pub fn is_orphaning_dependents(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some() && has_finalizer(metadata, ORPHAN)
}

/// Tells whether an object has a finalizer.
pub fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata
        .finalizers
        .iter()
        .flatten()
        .any(|name| name == finalizer)
}
