//! JSON patch (RFC 6902): a list of operations, all or nothing.
//!
//! Limits, beyond each of which the patch is refused: [`MAX_OPERATIONS`];
//! [`MAX_COPIED`] bytes copied within the document by `copy`, since a few
//! copies of copies would grow it without end; [`MAX_DEPTH`] of the result,
//! since everything that walks a document recurses.

use json_patch::{Patch, PatchErrorKind, PatchOperation};
use serde_json::Value;

use super::PatchError;

/// The most operations of a patch, as upstream's.
pub const MAX_OPERATIONS: usize = 10_000;
/// The most bytes that `copy` operations may add to a document.
pub const MAX_COPIED: usize = 3 << 20;
/// The deepest nesting an operation may lead to.
pub const MAX_DEPTH: usize = 256;

/// Applies a patch and returns the result.
pub fn apply(target: &Value, patch: Value) -> Result<Value, PatchError> {
    if let Value::Array(operations) = &patch
        && operations.len() > MAX_OPERATIONS
    {
        return Err(PatchError::TooManyOperations {
            max: MAX_OPERATIONS,
            got: operations.len(),
        });
    }
    let patch: Patch =
        serde_json::from_value(patch).map_err(|e| PatchError::Malformed(e.to_string()))?;
    let mut result = target.clone();
    let mut copied = 0;
    for operation in &patch.0 {
        check(&result, operation, &mut copied)?;
        if tests_absence(&result, operation) {
            continue;
        }
        json_patch::patch_unsafe(&mut result, std::slice::from_ref(operation)).map_err(
            |e| match e.kind {
                PatchErrorKind::TestFailed => PatchError::TestFailed(operation.path().to_string()),
                _ => PatchError::Unprocessable(e.to_string()),
            },
        )?;
    }
    Ok(result)
}

/// Tells whether an operation asks that a member be null that is not there: to upstream
/// the two are the same, and clients count on it (the first finalizer of an object).
fn tests_absence(document: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else {
        return false;
    };
    let parent = test
        .path
        .parent()
        .and_then(|p| document.pointer(p.as_str()));
    test.value.is_null()
        && parent.is_some_and(Value::is_object)
        && document.pointer(test.path.as_str()).is_none()
}

fn check(
    document: &Value,
    operation: &PatchOperation,
    copied: &mut usize,
) -> Result<(), PatchError> {
    let moved = |from: &json_patch::jsonptr::Pointer| document.pointer(from.as_str());
    let value = match operation {
        PatchOperation::Add(add) => Some(&add.value),
        PatchOperation::Replace(replace) => Some(&replace.value),
        PatchOperation::Move(from) => moved(&from.from),
        PatchOperation::Copy(copy) => {
            let source = moved(&copy.from);
            *copied += source.map_or(0, size);
            if *copied > MAX_COPIED {
                return Err(PatchError::Unprocessable(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                )));
            }
            source
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
    };
    if let Some(value) = value
        && operation.path().count() + depth(value) > MAX_DEPTH
    {
        return Err(PatchError::Unprocessable(format!(
            "{}: nests deeper than {MAX_DEPTH}",
            operation.path()
        )));
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|i| size(i) + 1).sum::<usize>(),
        Value::Object(map) => {
            2 + map
                .iter()
                .map(|(k, v)| k.len() + 4 + size(v))
                .sum::<usize>()
        }
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn applies_all_or_nothing() {
        let target = json!({"a": [1, 2], "b/c": {"d~": 1}});
        let result = apply(
            &target,
            json!([
                {"op": "test", "path": "/a/0", "value": 1},
                {"op": "add", "path": "/a/-", "value": 3},
                {"op": "replace", "path": "/b~1c/d~0", "value": null},
                {"op": "move", "from": "/a/0", "path": "/first"},
                {"op": "copy", "from": "/first", "path": "/again"},
                {"op": "remove", "path": "/a/0"},
            ]),
        );
        assert_eq!(
            result.unwrap(),
            json!({"a": [3], "b/c": {"d~": null}, "first": 1, "again": 1})
        );
    }

    #[test]
    fn what_is_not_there_is_null() {
        let target = json!({"metadata": {"name": "a"}});
        let first = |path: &str, value: Value| {
            let patch = json!([
                {"op": "test", "path": path, "value": value},
                {"op": "add", "path": "/metadata/finalizers", "value": ["x"]},
            ]);
            apply(&target, patch)
        };
        let made = first("/metadata/finalizers", Value::Null).unwrap();
        assert_eq!(made["metadata"]["finalizers"], json!(["x"]));
        assert!(first("/metadata/finalizers", json!([])).is_err());
        assert!(first("/metadata/name", Value::Null).is_err());
        assert!(first("/status/phase", Value::Null).is_err());
    }

    #[test]
    fn tells_failures_apart() {
        let target = json!({"a": 1});
        let test = apply(&target, json!([{"op": "test", "path": "/a", "value": 2}]));
        assert_eq!(test, Err(PatchError::TestFailed("/a".to_owned())));
        assert_eq!(test.unwrap_err().status().code, 422);
        let missing = apply(&target, json!([{"op": "remove", "path": "/b"}]));
        assert!(matches!(missing, Err(PatchError::Unprocessable(_))));
        for malformed in [
            json!({}),
            json!([{"op": "jump"}]),
            json!([{"op": "add", "path": "/x"}]),
        ] {
            let error = apply(&target, malformed).unwrap_err();
            assert_eq!(error.status().code, 400, "{error}");
        }
    }

    #[test]
    fn refuses_bombs() {
        let many = vec![json!({"op": "test", "path": "/a", "value": 1}); MAX_OPERATIONS + 1];
        let error = apply(&json!({"a": 1}), Value::Array(many)).unwrap_err();
        assert_eq!(error.status().code, 413);
        let mut copies = vec![json!({"op": "add", "path": "/a", "value": ["x".repeat(100)]})];
        for _ in 0..100 {
            copies.push(json!({"op": "copy", "from": "/a", "path": "/a/-"}));
        }
        let error = apply(&json!({}), Value::Array(copies)).unwrap_err();
        assert!(matches!(error, PatchError::Unprocessable(_)), "{error}");
        let mut nest = Vec::new();
        for level in 1..1000 {
            nest.push(json!({"op": "add", "path": "/a".repeat(level), "value": {}}));
        }
        let error = apply(&json!({}), Value::Array(nest)).unwrap_err();
        assert!(error.to_string().contains("deeper"), "{error}");
    }
}
