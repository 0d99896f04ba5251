//! Reading and changing an object's metadata while it is a `Value`.
//!
//! These are the only functions that spell metadata's JSON names for writes, so
//! that a typo cannot make a field in one place and miss it in another.

use serde_json::{Map, Value};

use crate::gvk::GroupVersionKind;
use crate::object::{ObjectMeta, ResourceVersion};

/// Returns the value at a dotted path of object members.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |v, name| v.get(name))
}

/// Returns the string at a dotted path; empty when absent or not a string.
pub fn str_at<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the integer at a dotted path.
pub fn int_at(value: &Value, path: &str) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Returns the object at a member name, making it one if it is not.
pub fn object_mut<'a>(value: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else {
        unreachable!("made an object above")
    };
    let slot = map.entry(name.to_owned()).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Returns the metadata for writing, making it when absent.
pub fn metadata_mut(value: &mut Value) -> &mut Map<String, Value> {
    object_mut(value, "metadata")
}

/// Sets a metadata member; `Null` removes it.
pub fn set_metadata(value: &mut Value, name: &str, to: impl Into<Value>) {
    let to = to.into();
    let metadata = metadata_mut(value);
    if to.is_null() {
        metadata.remove(name);
    } else {
        metadata.insert(name.to_owned(), to);
    }
}

/// Returns the object's name; empty when it has none.
pub fn name(value: &Value) -> &str {
    str_at(value, "metadata.name")
}

/// Returns the object's namespace; empty when it has none.
pub fn namespace(value: &Value) -> &str {
    str_at(value, "metadata.namespace")
}

/// Returns the object's uid; empty when it has none.
pub fn uid(value: &Value) -> &str {
    str_at(value, "metadata.uid")
}

/// Returns the resource version an object carries; `None` when it carries none
/// or one that is no number.
pub fn resource_version(value: &Value) -> Option<ResourceVersion> {
    str_at(value, "metadata.resourceVersion").parse().ok()
}

/// Decodes the whole metadata.
pub fn decode_metadata(value: &Value) -> Result<ObjectMeta, serde_json::Error> {
    match value.get("metadata") {
        None | Some(Value::Null) => Ok(ObjectMeta::default()),
        Some(m) => serde::Deserialize::deserialize(m),
    }
}

/// Returns the `apiVersion` and `kind` of a body.
pub fn type_meta(value: &Value) -> (&str, &str) {
    (str_at(value, "apiVersion"), str_at(value, "kind"))
}

/// Sets the `apiVersion` and `kind` of a body.
pub fn set_type_meta(value: &mut Value, gvk: &GroupVersionKind) {
    let api_version = gvk.api_version();
    if type_meta(value) == (api_version.as_str(), gvk.kind.as_str()) {
        return;
    }
    if let Value::Object(map) = value {
        map.insert("apiVersion".to_owned(), Value::String(api_version));
        map.insert("kind".to_owned(), Value::String(gvk.kind.clone()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_and_writes_metadata() {
        let mut v = json!({"metadata": {"name": "a", "resourceVersion": "7"}});
        assert_eq!(resource_version(&v), Some(ResourceVersion(7)));
        set_metadata(&mut v, "uid", "u");
        set_metadata(&mut v, "name", Value::Null);
        assert_eq!((uid(&v), name(&v)), ("u", ""));
        let mut empty = json!({});
        set_metadata(&mut empty, "namespace", "ns");
        assert_eq!(namespace(&empty), "ns");
    }
}
