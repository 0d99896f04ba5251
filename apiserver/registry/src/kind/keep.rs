//! What an update takes over from the object of before.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Endpoint;

/// Takes over from the old object what an endpoint may not change: the main
/// one the status, the status one all but the status (metadata keeps only
/// what the machinery sets).
pub fn keep_other_half(endpoint: Endpoint, new: &mut Value, old: &Value) {
    match endpoint {
        Endpoint::Main => copy_field(new, old, "status"),
        Endpoint::Status => {
            for name in names_of(new, old) {
                if !matches!(name.as_str(), "status" | "metadata") {
                    copy_field(new, old, &name);
                }
            }
            // Labels and owners change with the main endpoint only; the rest of
            // the metadata is the request's.
            let kept = old.get("metadata");
            match new.get_mut("metadata") {
                Some(metadata) => {
                    for name in ["labels", "ownerReferences"] {
                        copy_field(metadata, kept.unwrap_or(&Value::Null), name);
                    }
                }
                None => put(new, "metadata", kept.cloned()),
            }
        }
        Endpoint::Finalize | Endpoint::Other => {}
    }
}

/// Returns the names of the members that either object has.
fn names_of(new: &Value, old: &Value) -> BTreeSet<String> {
    let names = |of: &Value| -> BTreeSet<String> {
        let members = of.as_object().into_iter();
        members.flat_map(|map| map.keys()).cloned().collect()
    };
    let mut all = names(new);
    all.extend(names(old));
    all
}

/// Makes a field of `new` what it is in `old`.
pub fn copy_field(new: &mut Value, old: &Value, name: &str) {
    // Mostly it is that already, which is told sooner than it is copied.
    let kept = old.get(name);
    if new.get(name) != kept {
        put(new, name, kept.cloned());
    }
}

/// Sets or removes a field.
pub fn put(object: &mut Value, name: &str, value: Option<Value>) {
    if let Value::Object(map) = object {
        match value {
            Some(value) => map.insert(name.to_owned(), value),
            None => map.remove(name),
        };
    }
}
