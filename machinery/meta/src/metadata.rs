//! What the machinery knows of an object's metadata.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::owner::OwnerReference;

/// The metadata the machinery decides on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// The name, unique within namespace and resource.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The namespace; empty at cluster scope.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: String,
    /// The uid, unique over all time.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// How often the desired state changed.
    #[serde(deserialize_with = "null_is_default")]
    pub generation: i64,
    /// The labels.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
    /// When it was created, as written.
    pub creation_timestamp: Option<String>,
    /// Since when it is being deleted, as written.
    pub deletion_timestamp: Option<String>,
    /// The grace that deletion gives, in seconds.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Who must act before it may go.
    #[serde(deserialize_with = "null_is_default")]
    pub finalizers: Vec<String>,
    /// Whom it exists for.
    #[serde(deserialize_with = "null_is_default")]
    pub owner_references: Vec<OwnerReference>,
}

fn null_is_default<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

impl ObjectMeta {
    /// Reads metadata that is a tree already.
    pub(crate) fn of(metadata: &Value) -> Result<Self, serde_json::Error> {
        match metadata.as_object().and_then(read) {
            Some(meta) => Ok(meta),
            // It has the last word, and the words for what is wrong.
            None => Self::deserialize(metadata),
        }
    }
}

/// Reads what is in order, as serde does at many times the cost: every write needs it.
/// `None` for anything else.
fn read(metadata: &Map<String, Value>) -> Option<ObjectMeta> {
    let mut meta = ObjectMeta::default();
    // Null is nothing, whatever it stands for.
    for (name, value) in metadata.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "name" => meta.name = text(value)?,
            "namespace" => meta.namespace = text(value)?,
            "uid" => meta.uid = text(value)?,
            "generation" => meta.generation = value.as_i64()?,
            "labels" => {
                let labels = value.as_object()?.iter();
                let labels = labels.map(|(key, value)| Some((key.clone(), text(value)?)));
                meta.labels = labels.collect::<Option<_>>()?;
            }
            "creationTimestamp" => meta.creation_timestamp = Some(text(value)?),
            "deletionTimestamp" => meta.deletion_timestamp = Some(text(value)?),
            "deletionGracePeriodSeconds" => {
                meta.deletion_grace_period_seconds = Some(value.as_i64()?);
            }
            "finalizers" => {
                let finalizers = value.as_array()?.iter();
                meta.finalizers = finalizers.map(text).collect::<Option<_>>()?;
            }
            "ownerReferences" => {
                let owners = value.as_array()?.iter();
                meta.owner_references = owners.map(read_owner).collect::<Option<_>>()?;
            }
            _ => {}
        }
    }
    Some(meta)
}

fn read_owner(owner: &Value) -> Option<OwnerReference> {
    let mut read = OwnerReference::default();
    for (name, value) in owner.as_object()? {
        match name.as_str() {
            "apiVersion" => read.api_version = text(value)?,
            "kind" => read.kind = text(value)?,
            "name" => read.name = text(value)?,
            "uid" => read.uid = text(value)?,
            "controller" if !value.is_null() => read.controller = Some(value.as_bool()?),
            "blockOwnerDeletion" if !value.is_null() => {
                read.block_owner_deletion = Some(value.as_bool()?);
            }
            _ => {}
        }
    }
    Some(read)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// What is read here is what serde reads; what it refuses is refused in its words.
    fn check(metadata: &Value) -> bool {
        let theirs = ObjectMeta::deserialize(metadata).map_err(|e| e.to_string());
        let ours = metadata.as_object().and_then(read);
        if let Some(ours) = &ours {
            assert_eq!(Ok(ours), theirs.as_ref(), "{metadata}");
        }
        let either = ObjectMeta::of(metadata).map_err(|e| e.to_string());
        assert_eq!(either, theirs, "{metadata}");
        ours.is_some()
    }

    #[test]
    fn metadata_in_order_is_read_here() {
        for metadata in [
            json!({}),
            json!({"annotations": {"a": 1}, "managedFields": [{"manager": 3}], "selfLink": 7}),
            json!({
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": -1,
                "deletionTimestamp": "x", "finalizers": ["b", "a"], "generation": i64::MAX,
                "labels": {"b": "", "a": "é"}, "name": "a", "namespace": "n", "uid": "u",
                "ownerReferences": [{}, {"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u",
                    "controller": true, "blockOwnerDeletion": null, "else": null}],
            }),
            json!({
                "creationTimestamp": null, "deletionGracePeriodSeconds": null,
                "deletionTimestamp": null, "finalizers": null, "generation": null,
                "labels": null, "name": null, "namespace": null, "uid": null,
                "ownerReferences": null,
            }),
        ] {
            assert!(check(&metadata), "{metadata}");
        }
    }

    #[test]
    fn metadata_of_a_wrong_type_is_refused() {
        for metadata in [
            json!(null),
            json!("x"),
            json!({"name": 3}),
            json!({"generation": 1.0}),
            json!({"generation": u64::MAX}),
            json!({"labels": {"a": null}}),
            json!({"finalizers": "a"}),
            json!({"finalizers": [null]}),
            json!({"ownerReferences": {}}),
            json!({"ownerReferences": [null]}),
            json!({"ownerReferences": [{"kind": null}]}),
            json!({"ownerReferences": [{"controller": "true"}]}),
        ] {
            assert!(!check(&metadata) && ObjectMeta::of(&metadata).is_err());
        }
        // What nobody writes, and serde reads.
        let list = json!(["n", "ns", "u", 1, {}, null, null, null, [], []]);
        assert!(!check(&list) && ObjectMeta::of(&list).is_ok());
    }

    fn anything() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            Just(json!(1.5)),
            "[a-z]{0,3}".prop_map(Value::from),
        ]
    }

    fn any_of(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
        let member = (
            proptest::sample::select(names),
            prop_oneof![anything(), "[a-z]{0,3}".prop_map(Value::from)],
        );
        proptest::collection::vec(member, 0..4).prop_map(|members| members.into_iter().collect())
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_as_by_serde(
            members in proptest::collection::vec(
                (
                    proptest::sample::select(&[
                        "name", "namespace", "uid", "generation", "labels", "creationTimestamp",
                        "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers",
                        "ownerReferences", "annotations", "Name",
                    ][..]),
                    prop_oneof![
                        anything(),
                        any_of(&["a", "b", "name"]),
                        proptest::collection::vec(
                            prop_oneof![
                                anything(),
                                any_of(&[
                                    "apiVersion", "kind", "name", "uid", "controller",
                                    "blockOwnerDeletion", "other",
                                ]),
                            ],
                            0..3,
                        ).prop_map(Value::from),
                    ],
                ),
                0..5,
            ),
        ) {
            check(&members.into_iter().collect());
        }
    }
}
