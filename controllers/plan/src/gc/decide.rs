//! What to do about one object, given what live reads said about its owners.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::{FOREGROUND, ORPHAN, has_finalizer, is_deleting_dependents};
use crate::{Propagation, Target, Write, object};

/// Is what a live read said about one owner.
#[derive(Clone, Debug)]
pub enum OwnerState {
    /// No object with that name and uid exists.
    Absent,
    /// The owner exists; its metadata as read.
    Present(Box<ObjectMeta>),
}

/// Sorts an object's references by what has become of the owners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    /// Owners that exist and hold the object.
    pub solid: Vec<OwnerReference>,
    /// Owners that are gone.
    pub dangling: Vec<OwnerReference>,
    /// Owners that wait for the object to go first.
    pub waiting: Vec<OwnerReference>,
}

/// Classifies references by the owners' states.
pub fn classify(owners: impl IntoIterator<Item = (OwnerReference, OwnerState)>) -> References {
    let mut references = References::default();
    for (reference, state) in owners {
        match state {
            OwnerState::Absent => references.dangling.push(reference),
            OwnerState::Present(owner) if is_deleting_dependents(&owner) => {
                references.waiting.push(reference);
            }
            OwnerState::Present(_) => references.solid.push(reference),
        }
    }
    references
}

/// Says what the graph knows of the objects that depend on the one at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependents {
    /// Tells whether there are any.
    pub any: bool,
    /// Tells whether one of them is itself waiting for its dependents: the two
    /// may wait for each other in a circle.
    pub any_deleting_dependents: bool,
}

/// Answers the writes for an object that was read live, its references
/// classified.
///
/// One solid owner keeps the object; the other references are dropped. An object
/// whose owner waits for it goes in the foreground, so that its own dependents
/// go first. Otherwise it goes, with the propagation its finalizers ask for.
pub fn decide(
    target: &Target,
    latest: &ObjectMeta,
    references: &References,
    dependents: Dependents,
) -> Vec<Write> {
    if !references.solid.is_empty() {
        let gone: Vec<&str> = references
            .dangling
            .iter()
            .chain(&references.waiting)
            .map(|reference| reference.uid.as_str())
            .collect();
        if gone.is_empty() {
            return Vec::new();
        }
        let patch = object::release_patch(latest, &gone);
        return vec![Write::Patch {
            target: target.clone(),
            subresource: None,
            patch,
        }];
    }
    if !references.waiting.is_empty() && dependents.any {
        let mut writes = Vec::new();
        let mut version = latest.clone();
        if dependents.any_deleting_dependents
            && let Some(patch) = unblock_patch(latest)
        {
            writes.push(Write::Patch {
                target: target.clone(),
                subresource: None,
                patch,
            });
            // The patch moves the version; the deletion is bound to the uid only.
            version.resource_version = None;
        }
        writes.push(deletion(target, &version, Propagation::Foreground));
        return writes;
    }
    if references.waiting.is_empty() && references.dangling.is_empty() {
        return Vec::new();
    }
    let propagation = if has_finalizer(latest, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(latest, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    vec![deletion(target, latest, propagation)]
}

fn deletion(target: &Target, latest: &ObjectMeta, propagation: Propagation) -> Write {
    Write::Delete {
        target: target.clone(),
        uid: latest.uid.clone(),
        propagation: Some(propagation),
        grace_seconds: None,
    }
}

/// Stops the object from holding back its owners: without this, objects that own
/// each other in a circle would each wait for the other for ever.
fn unblock_patch(latest: &ObjectMeta) -> Option<serde_json::Value> {
    let mut owners = latest.owner_references.clone().unwrap_or_default();
    let mut changed = false;
    for owner in owners
        .iter_mut()
        .filter(|owner| owner.block_owner_deletion == Some(true))
    {
        owner.block_owner_deletion = Some(false);
        changed = true;
    }
    changed.then(|| {
        json!({"metadata": {
            "uid": latest.uid,
            "resourceVersion": latest.resource_version,
            "ownerReferences": owners,
        }})
    })
}

/// Answers for an object that waits for its dependents, none of which blocks it
/// any more: it may go.
pub fn release_foreground(target: &Target, latest: &ObjectMeta) -> Option<Write> {
    remove_finalizer(target, latest, FOREGROUND)
}

/// Answers for an object whose dependents have lost their references: it may go.
pub fn release_orphaning(target: &Target, latest: &ObjectMeta) -> Option<Write> {
    remove_finalizer(target, latest, ORPHAN)
}

fn remove_finalizer(target: &Target, latest: &ObjectMeta, finalizer: &str) -> Option<Write> {
    has_finalizer(latest, finalizer).then(|| Write::Patch {
        target: target.clone(),
        subresource: None,
        patch: object::finalizer_patch(latest, finalizer),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(uid: &str) -> OwnerReference {
        OwnerReference {
            uid: uid.into(),
            block_owner_deletion: Some(true),
            ..OwnerReference::default()
        }
    }

    fn object_with(owners: &[&str], finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            uid: Some("me".into()),
            resource_version: Some("9".into()),
            owner_references: Some(owners.iter().map(|uid| reference(uid)).collect()),
            finalizers: Some(finalizers.iter().map(|name| (*name).to_owned()).collect()),
            ..ObjectMeta::default()
        }
    }

    fn target() -> Target {
        Target {
            gvr: meta::GroupVersionResource::new("", "v1", "pods"),
            namespace: Some("d".into()),
            name: "p".into(),
        }
    }

    fn references(solid: &[&str], dangling: &[&str], waiting: &[&str]) -> References {
        let list = |uids: &[&str]| uids.iter().map(|uid| reference(uid)).collect();
        References {
            solid: list(solid),
            dangling: list(dangling),
            waiting: list(waiting),
        }
    }

    /// Writes an outcome in one word or two.
    fn told(writes: &[Write]) -> String {
        let one = |write: &Write| match write {
            Write::Patch { patch, .. } => match &patch["metadata"]["ownerReferences"] {
                serde_json::Value::Array(owners) => format!("keep {}", owners.len()),
                _ => "keep 0".to_owned(),
            },
            Write::Delete {
                propagation, uid, ..
            } => {
                assert_eq!(uid.as_deref(), Some("me"));
                propagation.map_or("?", Propagation::as_str).to_owned()
            }
            other => format!("{other:?}"),
        };
        writes.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn classifies_by_the_state_of_owners() {
        let waiting = ObjectMeta {
            deletion_timestamp: Some(jiff::Timestamp::UNIX_EPOCH.into()),
            finalizers: Some(vec![FOREGROUND.into()]),
            ..ObjectMeta::default()
        };
        let leaving = ObjectMeta {
            finalizers: None,
            ..waiting.clone()
        };
        let sorted = classify([
            (reference("gone"), OwnerState::Absent),
            (reference("waiting"), OwnerState::Present(Box::new(waiting))),
            (reference("leaving"), OwnerState::Present(Box::new(leaving))),
            (reference("here"), OwnerState::Present(Box::default())),
        ]);
        assert_eq!(
            sorted,
            references(&["leaving", "here"], &["gone"], &["waiting"])
        );
    }

    #[test]
    fn decides_by_the_classes() {
        let none = Dependents::default();
        let some = Dependents {
            any: true,
            any_deleting_dependents: false,
        };
        let circle = Dependents {
            any: true,
            any_deleting_dependents: true,
        };
        for (refs, finalizers, dependents, expect) in [
            (references(&["a"], &[], &[]), vec![], none, ""),
            (references(&["a"], &["b"], &["c"]), vec![], none, "keep 1"),
            (references(&[], &["b"], &[]), vec![], none, "Background"),
            (references(&[], &["b"], &[]), vec![ORPHAN], none, "Orphan"),
            (
                references(&[], &["b"], &[]),
                vec![FOREGROUND],
                none,
                "Foreground",
            ),
            (references(&[], &["b"], &["c"]), vec![], none, "Background"),
            (references(&[], &[], &["c"]), vec![], some, "Foreground"),
            (
                references(&[], &[], &["c"]),
                vec![],
                circle,
                "keep 1, Foreground",
            ),
            (references(&[], &[], &[]), vec![], none, ""),
        ] {
            let all: Vec<&str> = [&refs.solid, &refs.dangling, &refs.waiting]
                .into_iter()
                .flatten()
                .map(|reference| reference.uid.as_str())
                .collect();
            let latest = object_with(&all, &finalizers);
            assert_eq!(
                told(&decide(&target(), &latest, &refs, dependents)),
                expect,
                "{refs:?}"
            );
        }
    }

    #[test]
    fn finalizers_are_taken_off_one_by_one() {
        let latest = object_with(&[], &[FOREGROUND, "other"]);
        let Some(Write::Patch { patch, .. }) = release_foreground(&target(), &latest) else {
            panic!("a patch")
        };
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
        assert_eq!(patch["metadata"]["resourceVersion"], "9");
        assert_eq!(release_orphaning(&target(), &latest), None);
    }
}
