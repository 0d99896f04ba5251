//! Metadata every controller reads: owners, selectors, and the claim of objects
//! that a controller's selector matches.

use std::collections::BTreeMap;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference,
};
use serde_json::{Value, json};

/// Returns the text, or an empty one.
pub fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

/// Returns the reference an event or a condition points at an object with.
pub fn reference<T: Resource>(metadata: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(T::API_VERSION.to_owned()),
        kind: Some(T::KIND.to_owned()),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        field_path: None,
    }
}

/// Returns the owner that manages the object, if any.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata
        .owner_references
        .as_deref()?
        .iter()
        .find(|owner| owner.controller == Some(true))
}

/// Builds the reference by which an object becomes managed by `owner`.
pub fn controller_ref<T: Resource>(owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: T::API_VERSION.to_owned(),
        kind: T::KIND.to_owned(),
        name: text(&owner.name).to_owned(),
        uid: text(&owner.uid).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Tells whether labels satisfy a selector. An empty selector matches all.
///
/// An operator this version does not know matches nothing: acting on a guess
/// would adopt or delete the wrong objects.
pub fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value_of = |key: &str| labels.and_then(|labels| labels.get(key));
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, wanted)| value_of(key) == Some(wanted));
    equal
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|requirement| satisfies(requirement, value_of(&requirement.key)))
}

fn satisfies(requirement: &LabelSelectorRequirement, value: Option<&String>) -> bool {
    let listed = |value: &String| requirement.values.iter().flatten().any(|v| v == value);
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// Is what to do with one object that a selector may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is ours already.
    Owned,
    /// It matches and nobody owns it: take it.
    Adopt,
    /// It is ours and no longer matches: let it go.
    Release,
    /// It is none of our business.
    Ignore,
}

/// Decides about one object, as upstream's `BaseControllerRefManager` does.
///
/// Nothing is adopted or released while the owner is being deleted, and nothing
/// is adopted that is being deleted itself.
pub fn claim(owner: &ObjectMeta, selector: &LabelSelector, object: &ObjectMeta) -> Claim {
    let matched = matches(selector, object.labels.as_ref());
    let owner_deleting = owner.deletion_timestamp.is_some();
    match controller_of(object) {
        Some(current) if Some(&current.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if matched => Claim::Owned,
        Some(_) if owner_deleting => Claim::Ignore,
        Some(_) => Claim::Release,
        None if owner_deleting || !matched => Claim::Ignore,
        None if object.deletion_timestamp.is_some() => Claim::Ignore,
        None if object.namespace != owner.namespace => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// Builds the merge patch that makes `owner` the object's managing owner.
pub fn adopt_patch(object: &ObjectMeta, owner: OwnerReference) -> Value {
    let mut owners = object.owner_references.clone().unwrap_or_default();
    owners.retain(|existing| existing.uid != owner.uid);
    owners.push(owner);
    owners_patch(object, &owners)
}

/// Builds the merge patch that removes references to the given owners.
pub fn release_patch(object: &ObjectMeta, uids: &[&str]) -> Value {
    let mut owners = object.owner_references.clone().unwrap_or_default();
    owners.retain(|existing| !uids.contains(&existing.uid.as_str()));
    owners_patch(object, &owners)
}

/// Replaces the list whole, so it is bound to the object and version it was read
/// from: a list someone changed since is a conflict, never an overwrite.
fn owners_patch(object: &ObjectMeta, owners: &[OwnerReference]) -> Value {
    let list = if owners.is_empty() {
        Value::Null
    } else {
        crate::write::body(&owners)
    };
    json!({"metadata": {
        "uid": object.uid,
        "resourceVersion": object.resource_version,
        "ownerReferences": list,
    }})
}

/// Builds the merge patch that removes one finalizer.
pub fn finalizer_patch(object: &ObjectMeta, finalizer: &str) -> Value {
    let left: Vec<&String> = object
        .finalizers
        .iter()
        .flatten()
        .filter(|name| *name != finalizer)
        .collect();
    json!({"metadata": {
        "uid": object.uid,
        "resourceVersion": object.resource_version,
        "finalizers": if left.is_empty() { Value::Null } else { json!(left) },
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        LabelSelector {
            match_labels: None,
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: key.to_owned(),
                operator: operator.to_owned(),
                values: Some(values.iter().map(|v| (*v).to_owned()).collect()),
            }]),
        }
    }

    #[test]
    fn selectors_match_as_labels_say() {
        let have = labels(&[("app", "web"), ("tier", "front")]);
        for (selector, expect) in [
            (LabelSelector::default(), true),
            (requirement("app", "In", &["web", "db"]), true),
            (requirement("app", "NotIn", &["web"]), false),
            (requirement("zone", "NotIn", &["a"]), true),
            (requirement("app", "Exists", &[]), true),
            (requirement("zone", "DoesNotExist", &[]), true),
            (requirement("zone", "Exists", &[]), false),
            (requirement("app", "Gt", &["0"]), false),
        ] {
            assert_eq!(matches(&selector, Some(&have)), expect, "{selector:?}");
        }
    }

    #[test]
    fn claims_by_owner_and_selector() {
        let owner = ObjectMeta {
            uid: Some("o".into()),
            namespace: Some("ns".into()),
            ..ObjectMeta::default()
        };
        let selector = LabelSelector {
            match_labels: Some(labels(&[("a", "b")])),
            match_expressions: None,
        };
        let object = |uid: Option<&str>, label: &str, deleting: bool| ObjectMeta {
            namespace: Some("ns".into()),
            labels: Some(labels(&[("a", label)])),
            deletion_timestamp: deleting.then(|| jiff::Timestamp::UNIX_EPOCH.into()),
            owner_references: uid.map(|uid| {
                vec![OwnerReference {
                    uid: uid.into(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        };
        let dying = ObjectMeta {
            deletion_timestamp: Some(jiff::Timestamp::UNIX_EPOCH.into()),
            ..owner.clone()
        };
        for (owner, object, expect) in [
            (&owner, object(Some("o"), "b", false), Claim::Owned),
            (&owner, object(Some("o"), "c", false), Claim::Release),
            (&owner, object(Some("x"), "b", false), Claim::Ignore),
            (&owner, object(None, "b", false), Claim::Adopt),
            (&owner, object(None, "c", false), Claim::Ignore),
            (&owner, object(None, "b", true), Claim::Ignore),
            (&dying, object(None, "b", false), Claim::Ignore),
            (&dying, object(Some("o"), "c", false), Claim::Ignore),
            (&dying, object(Some("o"), "b", false), Claim::Owned),
        ] {
            assert_eq!(claim(owner, &selector, &object), expect, "{object:?}");
        }
    }

    #[test]
    fn releasing_the_last_owner_removes_the_list() {
        let object = ObjectMeta {
            uid: Some("u".into()),
            owner_references: Some(vec![OwnerReference {
                uid: "o".into(),
                ..Default::default()
            }]),
            ..ObjectMeta::default()
        };
        let patch = release_patch(&object, &["o"]);
        assert_eq!(patch["metadata"]["ownerReferences"], Value::Null);
        assert_eq!(patch["metadata"]["uid"], "u");
    }
}
