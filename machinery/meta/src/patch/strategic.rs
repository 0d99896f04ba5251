//! Strategic merge patch: a merge patch that knows which lists merge and by
//! which key, and that carries directives.
//!
//! The rules are those of apimachinery's `strategicpatch`. A list merges if its
//! field's patch strategy says so, by the field's merge key when its elements
//! are objects; otherwise it is replaced. Directives in the patch:
//! `$patch: delete|replace|merge` in an object; `$patch` in an element of a
//! merging list, where `delete` removes the elements of the same key and
//! `replace` makes the patch's list the whole list;
//! `$deleteFromPrimitiveList/<field>`; `$setElementOrder/<field>`, which says in
//! which order the elements end up; `$retainKeys`, which drops all other keys.
//!
//! Work is linear in the sizes of object and patch (keys are indexed), and
//! recursion is as deep as the parsed patch, which its reader limits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::PatchError;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// How one field merges.
#[derive(Clone, Debug)]
pub struct FieldRule<S> {
    /// Whether the patch strategy contains `merge`: lists merge.
    pub merge: bool,
    /// Whether the patch strategy contains `replace`: objects are replaced.
    pub replace: bool,
    /// The key that identifies the elements of a merging list of objects;
    /// empty when the type names none.
    pub merge_key: Cow<'static, str>,
    /// What is known of the field's value: of an object's fields, or of the
    /// elements of a list.
    pub schema: Option<S>,
}

/// Knows the fields of a type.
pub trait MergeSchema: Sized {
    /// Returns how a field merges; `None` for a field that is not known, which
    /// then merges like JSON.
    fn field(&self, name: &str) -> Option<FieldRule<Self>>;
}

/// Applies a patch to an object of a type.
pub fn apply<S: MergeSchema>(
    schema: &S,
    original: Value,
    patch: Value,
) -> Result<Value, PatchError> {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err(PatchError::Malformed("Invalid JSON document".to_owned()));
    };
    merge_objects(Some(schema), original, patch).map(Value::Object)
}

fn malformed<T>(message: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::Malformed(message.into()))
}

fn merge_objects<S: MergeSchema>(
    schema: Option<&S>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.remove(PATCH) {
        None => {}
        Some(Value::String(directive)) => match directive.as_str() {
            "replace" => return Ok(patch),
            "delete" => return Ok(Map::new()),
            "merge" => {}
            other => return malformed(format!("unknown patch type found: {other}")),
        },
        Some(_) => return malformed("$patch must be a string"),
    }
    if let Some(retained) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut original, &patch, &retained)?;
    }
    let orders = take_prefixed(&mut patch, ORDER);
    let deletions = take_prefixed(&mut patch, DELETE_FROM);
    for (field, order) in orders {
        let (Value::Array(order), rule) = (order, schema.and_then(|s| s.field(&field))) else {
            return malformed("$setElementOrder must be a list");
        };
        let added = match patch.remove(&field) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            // The list goes, or becomes something else: its order is moot.
            Some(other) => {
                patch.insert(field, other);
                continue;
            }
        };
        let existing = match original.remove(&field) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let removed = deletions
            .iter()
            .find(|(name, _)| *name == field)
            .map(|(_, v)| v);
        let existing = delete_from(existing, removed)?;
        let merged = merge_lists(rule.as_ref(), &field, existing, added, Some(order))?;
        original.insert(field, Value::Array(merged));
    }
    for (field, values) in &deletions {
        if let Some(Value::Array(items)) = original.get_mut(field) {
            *items = delete_from(std::mem::take(items), Some(values))?;
        }
    }
    for (field, value) in patch {
        merge_field(schema, &mut original, field, value)?;
    }
    Ok(original)
}

fn merge_field<S: MergeSchema>(
    schema: Option<&S>,
    original: &mut Map<String, Value>,
    field: String,
    value: Value,
) -> Result<(), PatchError> {
    if value.is_null() {
        original.remove(&field);
        return Ok(());
    }
    let rule = schema.and_then(|s| s.field(&field));
    let merged = match (original.remove(&field), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            if rule.as_ref().is_some_and(|r| r.replace) {
                strip(Value::Object(new))
            } else {
                let inner = rule.as_ref().and_then(|r| r.schema.as_ref());
                Value::Object(merge_objects(inner, old, new)?)
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) if rule.as_ref().is_some_and(|r| r.merge) => {
            Value::Array(merge_lists(rule.as_ref(), &field, old, new, None)?)
        }
        (_, new) => strip(new),
    };
    original.insert(field, merged);
    Ok(())
}

/// Takes the members out of a patch whose names begin with a prefix.
fn take_prefixed(patch: &mut Map<String, Value>, prefix: &str) -> Vec<(String, Value)> {
    let names: Vec<String> = patch
        .keys()
        .filter(|k| k.starts_with(prefix))
        .cloned()
        .collect();
    names
        .into_iter()
        .filter_map(|name| {
            patch
                .remove(&name)
                .map(|v| (name[prefix.len()..].to_owned(), v))
        })
        .collect()
}

fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    retained: &Value,
) -> Result<(), PatchError> {
    let names: Option<Vec<&str>> = retained
        .as_array()
        .and_then(|list| list.iter().map(Value::as_str).collect());
    let Some(names) = names else {
        return malformed("invalid patch format of retainKeys: it must be a list of strings");
    };
    let plain = |name: &str| {
        name.rsplit_once('/')
            .map_or(name, |(_, field)| field)
            .to_owned()
    };
    if patch.keys().any(|k| !names.contains(&plain(k).as_str())) {
        return malformed(
            "invalid patch format of retainKeys: it must be a superset of the patch's keys",
        );
    }
    original.retain(|name, _| names.contains(&name.as_str()));
    Ok(())
}

fn delete_from(items: Vec<Value>, removed: Option<&Value>) -> Result<Vec<Value>, PatchError> {
    match removed {
        None => Ok(items),
        Some(Value::Array(removed)) => {
            let gone: BTreeMap<String, ()> = removed.iter().map(|v| (v.to_string(), ())).collect();
            Ok(items
                .into_iter()
                .filter(|i| !gone.contains_key(&i.to_string()))
                .collect())
        }
        Some(_) => malformed("$deleteFromPrimitiveList must be a list"),
    }
}

/// Removes what only a patch may contain: directives and nulls.
fn strip(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let directive = |name: &str| {
                name == PATCH
                    || name == RETAIN_KEYS
                    || name.starts_with(ORDER)
                    || name.starts_with(DELETE_FROM)
            };
            let kept = map
                .into_iter()
                .filter(|(name, v)| !directive(name) && !v.is_null());
            Value::Object(kept.map(|(name, v)| (name, strip(v))).collect())
        }
        Value::Array(items) => {
            let deletes = |v: &Value| v.get(PATCH).and_then(Value::as_str) == Some("delete");
            let bare = |v: &Value| {
                v.as_object()
                    .is_some_and(|m| m.len() == 1 && m.contains_key(PATCH))
            };
            let kept = items.into_iter().filter(|v| !deletes(v) && !bare(v));
            Value::Array(kept.map(strip).collect())
        }
        other => other,
    }
}

fn merge_lists<S: MergeSchema>(
    rule: Option<&FieldRule<S>>,
    field: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
    order: Option<Vec<Value>>,
) -> Result<Vec<Value>, PatchError> {
    let objects = original
        .iter()
        .chain(&patch)
        .chain(order.iter().flatten())
        .any(Value::is_object);
    let key = if objects {
        let Some(rule) = rule.filter(|r| !r.merge_key.is_empty()) else {
            return Err(PatchError::Unprocessable(format!(
                "cannot merge lists without merge key for {field}"
            )));
        };
        Some(rule.merge_key.as_ref())
    } else {
        None
    };
    let (original, patch, replaced) = match key {
        Some(key) => list_directives(original, patch, key)?,
        None => (original, patch, false),
    };
    if replaced {
        return Ok(patch.into_iter().map(strip).collect());
    }
    let server_order = keys_of(&original, key)?;
    let patch_order = match &order {
        Some(order) => keys_of(order, key)?,
        None => keys_of(&patch, key)?,
    };
    if order.is_some() {
        let positions = positions(&patch_order);
        for item in &patch {
            if !positions.contains_key(&identity(item, key)?) {
                return malformed(format!(
                    "The order in patch list doesn't match $setElementOrder list for {field}"
                ));
            }
        }
    }
    let merged = unite(rule, key, original, patch)?;
    Ok(arrange(merged, &patch_order, &server_order))
}

/// Carries out `$patch` in the elements of a patch's list: returns the
/// original list without the deleted, the patch without the directives, and
/// whether the patch is the whole list.
fn list_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>, bool), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted = BTreeMap::new();
    let mut replaced = false;
    for item in patch {
        match item
            .get(PATCH)
            .map(|d| d.as_str().unwrap_or_default().to_owned())
            .as_deref()
        {
            None => plain.push(item),
            Some("delete") => {
                deleted.insert(identity(&item, Some(key))?, ());
            }
            Some("replace") => replaced = true,
            Some("merge") => {
                return malformed("merging lists cannot yet be specified in the patch");
            }
            Some(other) => return malformed(format!("unknown patch type found: {other}")),
        }
    }
    if !deleted.is_empty() {
        original.retain(|item| match identity(item, Some(key)) {
            Ok(id) => !deleted.contains_key(&id),
            Err(_) => true,
        });
    }
    Ok((original, plain, replaced))
}

/// Returns what identifies an element: the value of its key, or itself.
fn identity(item: &Value, key: Option<&str>) -> Result<String, PatchError> {
    let Some(key) = key else {
        return Ok(item.to_string());
    };
    match item.get(key) {
        Some(value) => Ok(value.to_string()),
        None => Err(PatchError::Unprocessable(format!(
            "map: {item} does not contain declared merge key: {key}"
        ))),
    }
}

fn keys_of(items: &[Value], key: Option<&str>) -> Result<Vec<String>, PatchError> {
    items.iter().map(|item| identity(item, key)).collect()
}

fn positions(keys: &[String]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (at, key) in keys.iter().enumerate() {
        found.entry(key.clone()).or_insert(at);
    }
    found
}

/// Merges the elements of two lists by identity; new ones go to the end.
fn unite<S: MergeSchema>(
    rule: Option<&FieldRule<S>>,
    key: Option<&str>,
    original: Vec<Value>,
    patch: Vec<Value>,
) -> Result<Vec<(String, Value)>, PatchError> {
    let mut merged: Vec<(String, Value)> = Vec::with_capacity(original.len() + patch.len());
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    for item in original {
        let id = identity(&item, key)?;
        // A set keeps one of each; a list of objects keeps what the server has.
        if key.is_none() && at.contains_key(&id) {
            continue;
        }
        at.entry(id.clone()).or_insert(merged.len());
        merged.push((id, item));
    }
    for item in patch {
        let id = identity(&item, key)?;
        let Some(&position) = at.get(&id) else {
            at.insert(id.clone(), merged.len());
            merged.push((id, strip(item)));
            continue;
        };
        if let (Value::Object(old), Value::Object(new)) = (&mut merged[position].1, item) {
            let inner = rule.and_then(|r| r.schema.as_ref());
            merged[position].1 = Value::Object(merge_objects(inner, std::mem::take(old), new)?);
        }
    }
    Ok(merged)
}

/// Orders the merged elements: those the patch names in the patch's order,
/// the others in the server's, interleaved as the server had them.
fn arrange(
    merged: Vec<(String, Value)>,
    patch_order: &[String],
    server_order: &[String],
) -> Vec<Value> {
    let (patch_at, server_at) = (positions(patch_order), positions(server_order));
    let (mut named, mut others): (Vec<_>, Vec<_>) = merged
        .into_iter()
        .partition(|(id, _)| patch_at.contains_key(id));
    named.sort_by_key(|(id, _)| patch_at.get(id).copied());
    others.sort_by_key(|(id, _)| server_at.get(id).copied());
    let mut result = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let other_first = match (named.peek(), others.peek()) {
            (None, None) => return result,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some((n, _)), Some((o, _))) => match (server_at.get(n), server_at.get(o)) {
                (Some(n), Some(o)) => o < n,
                _ => false,
            },
        };
        let next = if other_first {
            others.next()
        } else {
            named.next()
        };
        result.extend(next.map(|(_, item)| item));
    }
}

#[cfg(test)]
mod tests;
