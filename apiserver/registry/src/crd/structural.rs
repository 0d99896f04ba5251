//! Whether a schema is structural: every part of a value is described once,
//! outside of the junctors, and the junctors only restrict it.
//!
//! The checks walk the schema as it was written, since they are about what may
//! not be written.

use meta::FieldError;
use meta::value::str_at;
use serde_json::{Map, Value, json};

use super::schema::{Structural, reason};
use super::{prune, validate};

/// Where in a schema a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Checks a schema, and then its defaults; errors are in the order of their
/// texts.
pub(super) fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if schema.is_object() {
        invariants(schema, Level::Root, path, &mut errors);
        completeness(schema, path, &mut errors);
    }
    errors.sort_by_key(ToString::to_string);
    errors
}

/// Checks the defaults of a schema that is structural.
pub(super) fn check_defaults(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|d| !d.is_null()) {
        let path = format!("{path}.default");
        let structural = Structural::parse(schema);
        if prune::default_value(&mut default.clone(), &structural) {
            let words = "must not have unknown fields";
            errors.push(FieldError::invalid(&*path, default.clone(), words));
        }
        errors.extend(validate::default_value(&path, default, &structural));
    }
    for (name, child) in nodes(schema) {
        check_defaults(child, &format!("{path}.{name}"), errors);
    }
}

/// Returns the nodes below a node, with their paths: those that describe.
fn nodes(schema: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (name, child) in members(schema, "properties") {
        found.push((format!("properties[{name}]"), child));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(child) = schema.get(name).filter(|c| c.is_object()) {
            found.push((name.to_owned(), child));
        }
    }
    found
}

fn members<'v>(schema: &'v Value, name: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    let map = schema.get(name).and_then(Value::as_object);
    map.into_iter().flat_map(Map::iter)
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

/// Tells whether something is set that is not empty.
fn has(schema: &Value, name: &str) -> bool {
    match schema.get(name) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

fn invariants(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let ty = str_at(schema, "type");
    if ty == "array" && !has(schema, "items") {
        errors.push(FieldError::required(
            format!("{path}.items"),
            "must be specified",
        ));
    }
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        invariants(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, child) in members(schema, "properties") {
        let at = format!("{path}.properties[{name}]");
        invariants(child, Level::Field, &at, errors);
    }
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if let Some(others) = schema.get("additionalProperties").filter(|a| !a.is_null()) {
        let at = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&*at, "must not be used at the root"));
        }
        if others.is_object() {
            invariants(others, Level::Field, &at, errors);
        }
        if embedded {
            let words = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(at, words));
        }
    }
    extensions(schema, path, errors);
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let skip_any = schema.get("anyOf") == Some(&either);
    let first = schema.get("allOf").and_then(|a| a.get(0));
    let skip_first = first.and_then(|f| f.get("anyOf")) == Some(&either);
    junctors(schema, skip_any, skip_first, path, errors);
    node_type(schema, level, path, errors);
    let preserved = flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && !preserved && members(schema, "properties").next().is_none() {
        errors.push(FieldError::required(
            format!("{path}.properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn extensions(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for name in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ] {
        if flag(schema, name) {
            errors.push(FieldError::invalid(
                format!("{path}.{name}"),
                true,
                "must be false if x-kubernetes-int-or-string is true",
            ));
        }
    }
}

/// Checks the type of a node, and of what every object has.
fn node_type(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let ty = str_at(schema, "type");
    let at = format!("{path}.type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let untyped = flag(schema, "x-kubernetes-int-or-string")
        || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && ty != "object" {
        let words = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match ty {
            "" => FieldError::required(&*at, words),
            ty => FieldError::invalid(&*at, ty, words),
        });
    } else if ty.is_empty() && !untyped {
        let words = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&*at, words));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(at, ty, "must be object at the root"));
    }
    if level != Level::Root && !embedded {
        return;
    }
    for (name, wanted) in [
        ("kind", "string"),
        ("apiVersion", "string"),
        ("metadata", "object"),
    ] {
        let Some(property) = schema.get("properties").and_then(|p| p.get(name)) else {
            continue;
        };
        let at = format!("{path}.properties[{name}]");
        let is = str_at(property, "type");
        if is != wanted {
            let words = format!("must be {wanted}");
            errors.push(FieldError::invalid(format!("{at}.type"), is, words));
        }
        if name == "metadata" && level == Level::Root && says_too_much(property) {
            errors.push(FieldError::forbidden(
                at,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
}

/// Tells whether the schema of the root's metadata describes more than names.
fn says_too_much(metadata: &Value) -> bool {
    let named = members(metadata, "properties").all(|(n, _)| n == "name" || n == "generateName");
    let other = metadata.as_object().into_iter().flatten().any(|(name, _)| {
        !matches!(
            name.as_str(),
            "type" | "properties" | "default" | "description"
        ) && has(metadata, name)
    });
    !named || other || has(metadata, "description")
}

/// Checks what stands in the junctors of a node.
fn junctors(
    schema: &Value,
    skip_any: bool,
    skip_first: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for name in ["anyOf", "allOf", "oneOf"] {
        if name == "anyOf" && skip_any {
            continue;
        }
        let list = schema.get(name).and_then(Value::as_array);
        for (index, child) in list.into_iter().flatten().enumerate() {
            let skip = name == "allOf" && skip_first && index == 0;
            nested(child, skip, &format!("{path}.{name}[{index}]"), errors);
        }
    }
    if let Some(child) = schema.get("not").filter(|n| n.is_object()) {
        nested(child, false, &format!("{path}.not"), errors);
    }
    let pattern = str_at(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = regex::Regex::new(pattern)
    {
        let why = reason(&error.to_string());
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: {why}"),
        ));
    }
}

/// What a schema within a junctor may not say, and why.
const UNSTRUCTURAL: [(&str, &str); 13] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("externalDocs", "must be undefined to be structural"),
    (
        "x-kubernetes-preserve-unknown-fields",
        "must be false to be structural",
    ),
    (
        "x-kubernetes-embedded-resource",
        "must be false to be structural",
    ),
    (
        "x-kubernetes-int-or-string",
        "must be false to be structural",
    ),
    (
        "x-kubernetes-list-map-keys",
        "must be empty to be structural",
    ),
    (
        "x-kubernetes-list-type",
        "must be undefined to be structural",
    ),
    (
        "x-kubernetes-map-type",
        "must be undefined to be structural",
    ),
];

fn nested(schema: &Value, skip_any: bool, path: &str, errors: &mut Vec<FieldError>) {
    junctors(schema, skip_any, false, path, errors);
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, child) in members(schema, "properties") {
        let at = format!("{path}.properties[{name}]");
        if name == "metadata" {
            let words = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(&*at, words));
        }
        nested(child, false, &at, errors);
    }
    for (name, words) in UNSTRUCTURAL {
        if has(schema, name) || (name == "additionalProperties" && schema.get(name).is_some()) {
            errors.push(FieldError::forbidden(format!("{path}.{name}"), words));
        }
    }
    if has(schema, "x-kubernetes-validations") {
        errors.push(FieldError::forbidden(
            format!("{path}.x-kubernetes-validations"),
            "must be empty to be structural",
        ));
    }
}

/// Checks that what the junctors speak of is described outside of them.
fn completeness(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    described(schema, Some(schema), path, path, errors);
    for (name, child) in nodes(schema) {
        completeness(child, &format!("{path}.{name}"), errors);
    }
}

fn described(
    of: &Value,
    by: Option<&Value>,
    by_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = of.get(name).and_then(Value::as_array);
        for (index, child) in list.into_iter().flatten().enumerate() {
            let at = format!("{path}.{name}[{index}]");
            described_nested(child, by, by_path, &at, errors);
        }
    }
    if let Some(child) = of.get("not").filter(|n| n.is_object()) {
        described_nested(child, by, by_path, &format!("{path}.not"), errors);
    }
}

fn described_nested(
    of: &Value,
    by: Option<&Value>,
    by_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(by) = by else {
        let words = format!("because it is defined in {path}");
        errors.push(FieldError::required(by_path, words));
        return;
    };
    described(of, Some(by), by_path, path, errors);
    if let Some(items) = of.get("items").filter(|i| i.is_object()) {
        let inner = by.get("items").filter(|i| i.is_object());
        let (by_path, path) = (format!("{by_path}.items"), format!("{path}.items"));
        described_nested(items, inner, &by_path, &path, errors);
    }
    for (name, child) in members(of, "properties") {
        let inner = by.get("properties").and_then(|p| p.get(name));
        let at = |path: &str| format!("{path}.properties[{name}]");
        described_nested(child, inner, &at(by_path), &at(path), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(schema: Value, wanted: &[&str]) {
        let said: Vec<String> = check(&schema, "s")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(said, wanted);
    }

    #[test]
    fn every_node_has_a_type() {
        says(
            json!({}),
            &["s.type: Required value: must not be empty at the root"],
        );
        says(
            json!({"type": "object", "properties": {"a": {}, "b": {"type": "array"},
                "c": {"type": "array", "items": {}}, "d": {"x-kubernetes-int-or-string": true}}}),
            &[
                "s.properties[a].type: Required value: must not be empty for specified object fields",
                "s.properties[b].items: Required value: must be specified",
                "s.properties[c].items.type: Required value: must not be empty for specified array items",
            ],
        );
        says(
            json!({"type": "array", "items": {"type": "string"}}),
            &["s.type: Invalid value: \"array\": must be object at the root"],
        );
    }

    #[test]
    fn junctors_only_restrict() {
        says(
            json!({"type": "object", "properties": {"a": {"type": "string"}},
                "anyOf": [{"properties": {"a": {"type": "string"}, "b": {"minLength": 1}}}]}),
            &[
                "s.anyOf[0].properties[a].type: Forbidden: must be empty to be structural",
                "s.properties[b]: Required value: because it is defined in s.anyOf[0].properties[b]",
            ],
        );
        says(
            json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
            &[],
        );
        says(
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
            &[
                "s.properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: unclosed group",
            ],
        );
    }

    #[test]
    fn the_root_is_an_object_like_any_other() {
        says(
            json!({"type": "object", "additionalProperties": {"type": "string"},
                "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}},
                    "kind": {"type": "integer"}}}),
            &[
                "s.additionalProperties: Forbidden: must not be used at the root",
                "s.properties[kind].type: Invalid value: \"integer\": must be string",
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        );
        says(
            json!({"type": "object", "properties": {"metadata": {"type": "object",
                "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
            &[],
        );
        says(
            json!({"type": "object", "properties": {"e": {"type": "object",
                "x-kubernetes-embedded-resource": true}}}),
            &[
                "s.properties[e].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ],
        );
    }

    #[test]
    fn defaults_fit_their_schema() {
        let mut errors = Vec::new();
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"},
            "b": {"type": "object", "properties": {"c": {"type": "string"}}, "default": {"c": "1", "d": 2}}}});
        check_defaults(&schema, "s", &mut errors);
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "s.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
                "s.properties[b].default: Invalid value: {\"c\":\"1\",\"d\":2}: must not have unknown fields",
            ]
        );
    }
}
