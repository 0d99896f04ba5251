//! Checks that many kinds share: object metadata, labels, selectors, small
//! numbers and lists. Paths and words are upstream's.

use std::collections::BTreeSet;

use meta::value::{at, str_at};
use meta::{FieldError, names};
use serde_json::Value;

use crate::kind::Kind;

/// The largest sum of the annotations' keys and values.
pub const ANNOTATIONS_MAX: usize = 256 << 10;

/// The longest name of a field manager, in bytes.
pub const FIELD_MANAGER_MAX: usize = 128;

/// The longest subresource that an entry of `managedFields` names, in bytes.
const SUBRESOURCE_MAX: usize = 256;

/// Words of a field that may not change.
pub const IMMUTABLE: &str = "field is immutable";

/// Collects errors.
pub type Errors = Vec<FieldError>;

/// Checks an object's metadata.
pub fn metadata(kind: &Kind, object: &Value) -> Errors {
    let mut errors = Errors::new();
    let (name, generate) = (
        meta::value::name(object),
        str_at(object, "metadata.generateName"),
    );
    if !generate.is_empty() {
        // The base may end in a dash that the suffix completes.
        for error in (kind.name_errors)(generate.strip_suffix('-').unwrap_or(generate)) {
            errors.push(FieldError::invalid(
                "metadata.generateName",
                generate,
                error,
            ));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        for error in (kind.name_errors)(name) {
            errors.push(FieldError::invalid("metadata.name", name, error));
        }
    }
    if kind.namespaced {
        let namespace = meta::value::namespace(object);
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else {
            for error in names::label_errors(namespace) {
                errors.push(FieldError::invalid("metadata.namespace", namespace, error));
            }
        }
    }
    labels(
        at(object, "metadata.labels"),
        "metadata.labels",
        &mut errors,
    );
    annotations(
        at(object, "metadata.annotations"),
        "metadata.annotations",
        &mut errors,
    );
    owners(at(object, "metadata.ownerReferences"), &mut errors);
    finalizers(at(object, "metadata.finalizers"), &mut errors);
    managed_fields(object, &mut errors);
    errors
}

/// Checks the form of the entries of who owns what; whether they can be read was
/// decided where ownership is accounted for.
fn managed_fields(object: &Value, errors: &mut Errors) {
    for (index, entry) in items(object, "metadata.managedFields").iter().enumerate() {
        let path = |field: &str| format!("metadata.managedFields[{index}].{field}");
        match str_at(entry, "operation") {
            "Apply" | "Update" => {}
            "" => errors.push(FieldError::required(path("operation"), "must not be empty")),
            other => {
                let known = ["Apply", "Update"];
                errors.push(FieldError::not_supported(path("operation"), other, &known));
            }
        }
        let fields_type = str_at(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            let why = "must be `FieldsV1`";
            errors.push(FieldError::invalid(path("fieldsType"), fields_type, why));
        }
        field_manager(str_at(entry, "manager"), &path("manager"), errors);
        if str_at(entry, "subresource").len() > SUBRESOURCE_MAX {
            errors.push(FieldError::too_long(path("subresource"), SUBRESOURCE_MAX));
        }
    }
}

/// Checks the name of a field manager.
pub fn field_manager(name: &str, path: &str, errors: &mut Errors) {
    if name.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX));
    }
    for (at, c) in name.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let why = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(c)
        );
        errors.push(FieldError::invalid(path, name, why));
    }
}

/// Tells whether Go prints a character as it is: letters, marks, numbers,
/// punctuation and symbols, and of all spaces only the plain one.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // What is shown escaped is exactly the rest, once the character follows
    // another: marks are escaped only where they have nothing to stand on.
    let text: String = ['a', c].iter().collect();
    text.escape_debug().eq(text.chars())
}

/// Checks a change of an object's metadata.
pub fn metadata_update(new: &Value, old: &Value, errors: &mut Errors) {
    if at(old, "metadata.deletionTimestamp").is_some() {
        let of = |o: &Value| -> BTreeSet<String> {
            items(o, "metadata.finalizers")
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let added: Vec<String> = of(new).difference(&of(old)).cloned().collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(", ")
                ),
            ));
        }
    }
}

/// Returns the elements of a list at a path; none when absent.
pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Checks labels.
pub fn labels(map: Option<&Value>, path: &str, errors: &mut Errors) {
    for (key, value) in map.and_then(Value::as_object).into_iter().flatten() {
        for error in names::qualified_name_errors(key) {
            errors.push(FieldError::invalid(path, key.as_str(), error));
        }
        let value = value.as_str().unwrap_or_default();
        for error in names::label_value_errors(value) {
            errors.push(FieldError::invalid(path, value, error));
        }
    }
}

/// Checks annotations.
pub fn annotations(map: Option<&Value>, path: &str, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in map.and_then(Value::as_object).into_iter().flatten() {
        for error in names::qualified_name_errors(&key.to_lowercase()) {
            errors.push(FieldError::invalid(path, key.as_str(), error));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX));
    }
}

fn owners(list: Option<&Value>, errors: &mut Errors) {
    let mut controllers = 0;
    for (index, owner) in list
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = |field: &str| format!("metadata.ownerReferences[{index}].{field}");
        if meta::GroupVersion::parse(str_at(owner, "apiVersion")).is_none() {
            errors.push(FieldError::invalid(
                path("apiVersion"),
                str_at(owner, "apiVersion"),
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if str_at(owner, field).is_empty() {
                errors.push(FieldError::invalid(
                    path(field),
                    "",
                    format!("{field} must not be empty"),
                ));
            }
        }
        controllers += usize::from(at(owner, "controller") == Some(&Value::Bool(true)));
    }
    if controllers > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            list.cloned().unwrap_or_default(),
            "Only one reference can have Controller set to true",
        ));
    }
}

fn finalizers(list: Option<&Value>, errors: &mut Errors) {
    let texts: Vec<&str> = list
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for text in &texts {
        for error in names::qualified_name_errors(text) {
            errors.push(FieldError::invalid("metadata.finalizers", *text, error));
        }
        let known = [crate::rest::FOREGROUND, crate::rest::ORPHAN, "kubernetes"];
        if !text.contains('/') && !known.contains(text) {
            errors.push(FieldError::invalid(
                "metadata.finalizers",
                *text,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    if texts.contains(&crate::rest::FOREGROUND) && texts.contains(&crate::rest::ORPHAN) {
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            list.cloned().unwrap_or_default(),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

/// Checks that a number is not below zero.
pub fn not_negative(object: &Value, path: &str, errors: &mut Errors) {
    if let Some(number) = meta::value::int_at(object, path)
        && number < 0
    {
        errors.push(FieldError::invalid(
            path,
            number,
            "must be greater than or equal to 0",
        ));
    }
}

/// Checks that a number in an object that stands at `path` is not below zero.
pub fn natural(object: &Value, path: &str, field: &str, errors: &mut Errors) {
    let mut found = Errors::new();
    not_negative(object, field, &mut found);
    errors.extend(found.into_iter().map(|mut error| {
        error.field = format!("{path}.{}", error.field);
        error
    }));
}

/// Checks that a text is one of a set.
pub fn one_of(text: &str, path: &str, supported: &[&str], errors: &mut Errors) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&text) {
        errors.push(FieldError::not_supported(path, text, supported));
    }
}

/// Checks a port number.
pub fn port(number: i64, path: &str, errors: &mut Errors) {
    if !(1..=65535).contains(&number) {
        errors.push(FieldError::invalid(
            path,
            number,
            "must be between 1 and 65535, inclusive",
        ));
    }
}

/// Checks a port number or name.
pub fn port_or_name(value: Option<&Value>, path: &str, errors: &mut Errors) {
    match value {
        Some(Value::Number(number)) => port(number.as_i64().unwrap_or(0), path, errors),
        Some(Value::String(name)) => {
            for error in port_name_errors(name) {
                errors.push(FieldError::invalid(path, name.as_str(), error));
            }
        }
        _ => errors.push(FieldError::required(path, "")),
    }
}

/// Returns what is wrong with a port's name (IANA service name, RFC 6335).
pub fn port_name_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let mut say = |bad: bool, text: &str| {
        if bad {
            errors.push(text.to_owned());
        }
    };
    say(name.len() > 15, "must be no more than 15 characters");
    say(
        name.is_empty()
            || !name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    say(
        !name.bytes().any(|b| b.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    say(name.contains("--"), "must not contain consecutive hyphens");
    say(
        name.starts_with('-') || name.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    errors
}

/// Checks a label selector object.
pub fn selector(selector: Option<&Value>, path: &str, errors: &mut Errors) {
    let Some(selector) = selector else { return };
    labels(
        selector.get("matchLabels"),
        &format!("{path}.matchLabels"),
        errors,
    );
    for (index, term) in items(selector, "matchExpressions").iter().enumerate() {
        let at = format!("{path}.matchExpressions[{index}]");
        let values = items(term, "values");
        match str_at(term, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                format!("{at}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{at}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(
                format!("{at}.operator"),
                other,
                "not a valid selector operator",
            )),
        }
        for error in names::qualified_name_errors(str_at(term, "key")) {
            errors.push(FieldError::invalid(
                format!("{at}.key"),
                str_at(term, "key"),
                error,
            ));
        }
    }
}

/// Tells whether two values mean the same to Go's semantic comparison: what is
/// absent equals what is empty.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    // Most are the same to the letter, which is told without looking anything up.
    a == b || means_same(a, b)
}

fn means_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let present = |v: &&Value| match v {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    };
    match (a.filter(present), b.filter(present)) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter().all(|(key, is)| means_same(Some(is), b.get(key)))
                && b.iter()
                    .all(|(key, is)| a.contains_key(key) || !present(&is))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means_same(Some(a), Some(b)))
        }
        (a, b) => a == b,
    }
}

/// Checks that a field did not change.
pub fn immutable(new: &Value, old: &Value, path: &str, errors: &mut Errors) {
    let (new, old) = (at(new, path), at(old, path));
    if !same(new, old) {
        errors.push(FieldError::invalid(
            path,
            new.cloned().unwrap_or_default(),
            IMMUTABLE,
        ));
    }
}

/// Reports every element of a list whose key stands a second time.
pub fn unique(list: &[Value], path: &str, key: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, item) in list.iter().enumerate() {
        let text = str_at(item, key);
        if !text.is_empty() && !seen.insert(text) {
            errors.push(FieldError::duplicate(
                format!("{path}[{index}].{key}"),
                text,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_go_prints_is_printable() {
        for c in ['a', ' ', '~', 'é', '\u{301}', '漢', '€', '🦀', '"', '\\'] {
            assert!(is_printable(c), "{c:?}");
        }
        for c in [
            '\0', '\n', '\x7f', '\u{a0}', '\u{ad}', '\u{200b}', '\u{2028}', '\u{3000}', '\u{feff}',
            '\u{e000}', '\u{ffff}',
        ] {
            assert!(!is_printable(c), "{c:?}");
        }
    }

    #[test]
    fn entries_are_checked_in_known_words() {
        let object = json!({"metadata": {"managedFields": [
            {"operation": "Apply", "fieldsType": "FieldsV1", "manager": "é b"},
            {"manager": "a\tb", "subresource": "s".repeat(257)},
            {"operation": "Delete", "fieldsType": "F2", "manager": "m".repeat(129)},
        ]}});
        let mut errors = Errors::new();
        managed_fields(&object, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "metadata.managedFields[1].operation: Required value: must not be empty",
                "metadata.managedFields[1].manager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)",
                "metadata.managedFields[1].subresource: Too long: may not be more than 256 bytes",
                "metadata.managedFields[2].operation: Unsupported value: \"Delete\": supported values: \"Apply\", \"Update\"",
                "metadata.managedFields[2].fieldsType: Invalid value: \"F2\": must be `FieldsV1`",
                "metadata.managedFields[2].manager: Too long: may not be more than 128 bytes",
            ]
        );
    }
}
