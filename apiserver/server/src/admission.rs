//! Admission: what a write must satisfy, and what is added to it, beyond its
//! own kind's rules.
//!
//! The steps run in the order of [`STEPS`], after decoding and defaulting and
//! before validation. A step that only adjusts the object is pure and lives in
//! crate `registry`; a step that asks other objects lives here.

use meta::{Cause, Reason, Status, value};
use serde_json::Value;

use crate::api::{Api, Target};
use crate::storage::ReadVersion;

/// What is being done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
}

/// The steps, in their order (upstream: `plugins.go`, AllOrderedPlugins).
const STEPS: &[Step] = &[Step::NamespaceLifecycle, Step::KindDefaults];

/// One step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Nothing is created in a namespace that is missing or going away.
    NamespaceLifecycle,
    /// What upstream's ServiceAccount, Priority and DefaultTolerationSeconds
    /// plugins add (`registry::admission`).
    KindDefaults,
}

/// Runs every step on a write.
pub(crate) async fn admit(
    api: &Api,
    target: &Target,
    operation: Operation,
    object: &mut Value,
) -> Result<(), Status> {
    for step in STEPS {
        match (step, operation) {
            (Step::NamespaceLifecycle, Operation::Create) => {
                namespace_lifecycle(api, target, object).await?;
            }
            (Step::NamespaceLifecycle, Operation::Update) => {}
            (Step::KindDefaults, Operation::Create) => {
                registry::admission::admit_create(target.kind(), object)?;
            }
            (Step::KindDefaults, Operation::Update) => {}
        }
    }
    Ok(())
}

/// Namespaces without which nothing works; they may not be deleted.
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Refuses the deletion of what must stay.
pub(crate) fn may_delete(target: &Target, name: &str) -> Result<(), Status> {
    let kind = target.kind();
    if kind.group.is_empty() && kind.plural == "namespaces" && UNDELETABLE.contains(&name) {
        let why = "this namespace may not be deleted";
        return Err(Status::forbidden(&kind.group_resource(), name, why));
    }
    Ok(())
}

async fn namespace_lifecycle(api: &Api, target: &Target, object: &Value) -> Result<(), Status> {
    let Some(namespace) = target.ns() else {
        return Ok(());
    };
    // From the store itself: the cache may not have seen yet that the namespace
    // was created, or that its deletion began.
    let found = api
        .core("namespaces")?
        .store
        .get(None, namespace, ReadVersion::Unset)
        .await?;
    if found.meta.deletion_timestamp.is_none() {
        return Ok(());
    }
    let name = match value::name(object) {
        "" => value::str_at(object, "metadata.generateName"),
        name => name,
    };
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut status = Status::forbidden(&target.kind().group_resource(), name, &why);
    debug_assert_eq!(status.reason, Reason::Forbidden);
    status.details_mut().causes.push(Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    Err(status)
}
