//! Pruning: what a schema does not know is dropped, and named, so that a client
//! can be told.

use meta::{FieldError, GroupVersionKind, Status};
use serde_json::Value;

use super::schema::{Additional, Structural};
use crate::schema::{MAX_UNKNOWN, TypeError};
use crate::table::table;

/// The fields that every object has, whatever its schema says.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// The definition of their metadata.
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A path within an object, as complaints spell it, and what was dropped.
#[derive(Debug, Default)]
struct Walk {
    path: String,
    unknown: Vec<String>,
    /// How many were dropped, named or not.
    dropped: usize,
}

impl Walk {
    fn within<T>(&mut self, segment: &str, walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 && !segment.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(segment);
        let done = walk(self);
        self.path.truncate(length);
        done
    }

    fn drop(&mut self, name: &str) {
        self.dropped += 1;
        if self.unknown.len() < MAX_UNKNOWN {
            let path = self.within(name, |walk| walk.path.clone());
            self.unknown.push(path);
        }
    }
}

/// Checks the metadata of an object and of those embedded in it, drops what the
/// schema does not know, and returns the paths of that. With `keep_all` the
/// definition says that nothing is dropped.
pub fn conform(
    object: &mut Value,
    schema: &Structural,
    keep_all: bool,
    gvk: &GroupVersionKind,
) -> Result<Vec<String>, Status> {
    let mut walk = Walk::default();
    metadata(object, schema, true, &mut walk).map_err(|e| e.status(gvk))?;
    if !keep_all {
        prune(object, schema, true, &mut walk);
    }
    Ok(walk.unknown)
}

/// Drops what the schema does not know from a stored object; tells whether
/// anything was.
pub fn stored(object: &mut Value, schema: &Structural) -> bool {
    let mut walk = Walk::default();
    prune(object, schema, true, &mut walk);
    walk.dropped > 0
}

/// Drops from a value, the default of a schema, what the schema does not know;
/// tells whether anything was.
pub fn default_value(value: &mut Value, schema: &Structural) -> bool {
    let mut walk = Walk::default();
    prune(value, schema, schema.embedded, &mut walk);
    walk.dropped > 0
}

fn prune(value: &mut Value, schema: &Structural, is_object: bool, walk: &mut Walk) {
    let keep = schema.preserve_unknown;
    match value {
        Value::Object(map) => {
            let mut unknown = Vec::new();
            for (name, item) in map.iter_mut() {
                if is_object && OF_EVERY_OBJECT.contains(&name.as_str()) {
                    continue;
                }
                match (schema.properties.get(name), &schema.additional) {
                    (Some(schema), _) => {
                        walk.within(name, |walk| prune(item, schema, schema.embedded, walk));
                    }
                    (None, Some(Additional::Schema(schema))) => {
                        walk.within(name, |walk| prune(item, schema, schema.embedded, walk));
                    }
                    // What may be anything is kept as it is, but what is below
                    // it is not described, and goes.
                    (None, Some(Additional::Allowed(_))) if !keep => {
                        let nothing = Structural::default();
                        walk.within(name, |walk| prune(item, &nothing, false, walk));
                    }
                    (None, None) if !keep => unknown.push(name.clone()),
                    (None, _) => {}
                }
            }
            for name in unknown {
                map.remove(&name);
                walk.drop(&name);
            }
        }
        Value::Array(items) => {
            let nothing = Structural::default();
            let schema = match &schema.items {
                Some(items) => items,
                None if keep => return,
                None => &nothing,
            };
            for (index, item) in items.iter_mut().enumerate() {
                let at = format!("[{index}]");
                walk.within(&at, |walk| prune(item, schema, schema.embedded, walk));
            }
        }
        _ => {}
    }
}

/// Metadata that is none.
enum BadMetadata {
    /// A field of another type.
    Type(TypeError),
    /// Something else than an object.
    Field(FieldError),
}

impl BadMetadata {
    fn status(self, gvk: &GroupVersionKind) -> Status {
        match self {
            Self::Type(error) => Status::bad_request(error.message(gvk)),
            Self::Field(error) => Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {error}",
                kind = gvk.kind,
                version = gvk.version
            )),
        }
    }
}

fn metadata(
    value: &mut Value,
    schema: &Structural,
    is_object: bool,
    walk: &mut Walk,
) -> Result<(), BadMetadata> {
    match value {
        Value::Object(map) => {
            if is_object && let Some(own) = map.get_mut("metadata") {
                walk.within("metadata", |walk| one(own, walk))?;
            }
            for (name, item) in map.iter_mut() {
                if is_object && OF_EVERY_OBJECT.contains(&name.as_str()) {
                    continue;
                }
                if let Some(schema) = schema.property(name) {
                    walk.within(name, |walk| metadata(item, schema, schema.embedded, walk))?;
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else {
                return Ok(());
            };
            for (index, item) in items.iter_mut().enumerate() {
                let at = format!("[{index}]");
                walk.within(&at, |walk| metadata(item, schema, schema.embedded, walk))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn one(metadata: &mut Value, walk: &mut Walk) -> Result<(), BadMetadata> {
    if metadata.is_null() {
        return Ok(());
    }
    if !metadata.is_object() {
        let path = walk.path.clone();
        let error = FieldError::invalid(path, metadata.clone(), "must be an object");
        return Err(BadMetadata::Field(error));
    }
    let Some(def) = table().id(METADATA) else {
        return Ok(());
    };
    for name in crate::schema::conform(def, metadata).map_err(BadMetadata::Type)? {
        walk.drop(&name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conformed(schema: Value, object: Value) -> (Value, Vec<String>) {
        let mut object = object;
        let gvk = GroupVersionKind::new("example.com", "v1", "Thing");
        let unknown = conform(&mut object, &Structural::parse(&schema), false, &gvk).unwrap();
        (object, unknown)
    }

    #[test]
    fn what_is_not_described_goes_and_is_named() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {"type": "string"}}}},
        }}}});
        let (object, unknown) = conformed(
            schema,
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "other": 1,
                "metadata": {"name": "x", "bogus": true},
                "spec": {"a": "1", "z": {}, "list": [{"b": "2", "y": 1}], "map": {"k": {"c": "3", "x": 1}}}}),
        );
        assert_eq!(
            object,
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"},
                "spec": {"a": "1", "list": [{"b": "2"}], "map": {"k": {"c": "3"}}}})
        );
        let named = [
            "metadata.bogus",
            "spec.list[0].y",
            "spec.map.k.x",
            "spec.z",
            "other",
        ];
        assert_eq!(unknown, named);
    }

    #[test]
    fn what_is_preserved_stays_but_for_what_is_described_below() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        let (object, _) = conformed(
            schema,
            json!({"other": {"deep": [{"er": 1}]}, "spec": {"a": "1", "b": 2}}),
        );
        assert_eq!(
            object,
            json!({"other": {"deep": [{"er": 1}]}, "spec": {"a": "1"}})
        );
    }

    #[test]
    fn an_embedded_object_keeps_what_every_object_has() {
        let schema = json!({"type": "object", "properties": {"template": {"type": "object",
            "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
        let (object, unknown) = conformed(
            schema,
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "y": 1},
                "spec": {"anything": {"at": "all"}}, "status": {}}}),
        );
        assert_eq!(
            object,
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
                "spec": {"anything": {"at": "all"}}}})
        );
        assert_eq!(unknown, ["template.metadata.y", "template.status"]);
    }

    #[test]
    fn metadata_has_types() {
        let gvk = GroupVersionKind::new("example.com", "v1", "Thing");
        let schema = Structural::parse(&json!({"type": "object"}));
        for (metadata, words) in [
            (json!({"labels": {"a": 1}}), "cannot unmarshal number"),
            (
                json!("x"),
                "metadata: Invalid value: \"x\": must be an object",
            ),
        ] {
            let mut object = json!({"metadata": metadata});
            let refused = conform(&mut object, &schema, false, &gvk).unwrap_err();
            assert_eq!(refused.code, 400);
            assert!(refused.message.contains(words), "{}", refused.message);
        }
    }
}
