//! What a schema may not say at any of its nodes, structural or not: members
//! that are not supported, and list and map types that contradict themselves.

use meta::FieldError;
use meta::value::str_at;
use serde_json::{Map, Value};

use crate::validate::{Errors, items};

/// Where a node stands, as far as that decides what it may say.
#[derive(Clone, Copy)]
struct Place {
    root: bool,
    /// Whether it is within the metadata, kind or version of an object.
    in_meta: bool,
    /// Why there may be no default here.
    no_default: Option<&'static str>,
}

/// Checks a schema.
pub(super) fn check(schema: &Value, path: &str, errors: &mut Errors) {
    let place = Place {
        root: true,
        in_meta: false,
        no_default: None,
    };
    node(schema, place, path, errors);
}

const UNSUPPORTED: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

fn is_set(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(_) => true,
    }
}

fn node(schema: &Value, place: Place, path: &str, errors: &mut Errors) {
    let Some(map) = schema.as_object() else {
        return;
    };
    supported(map, place, path, errors);
    if map.get("uniqueItems") == Some(&Value::Bool(true)) {
        let words =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), words));
    }
    let properties = map.get("properties").and_then(Value::as_object);
    if let Some(others) = map.get("additionalProperties").filter(|a| !a.is_null()) {
        let at = format!("{path}.additionalProperties");
        if properties.is_some_and(|p| !p.is_empty()) && *others != Value::Bool(true) {
            let words = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(&*at, words));
        }
        let in_meta = "inside additionalProperties applying to object metadata";
        let below = Place {
            root: false,
            no_default: place.no_default.or(place.in_meta.then_some(in_meta)),
            ..place
        };
        node(others, below, &at, errors);
    }
    let embedded = map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    for (name, child) in properties.into_iter().flatten() {
        let of_every_object = match name.as_str() {
            "metadata" => Some("in top-level metadata"),
            "kind" => Some("in top-level kind"),
            "apiVersion" => Some("in top-level apiVersion"),
            _ => None,
        };
        let below = Place {
            root: false,
            in_meta: place.in_meta || ((place.root || embedded) && of_every_object.is_some()),
            no_default: place.no_default.or(of_every_object.filter(|_| place.root)),
        };
        node(child, below, &format!("{path}.properties[{name}]"), errors);
    }
    let below = Place {
        root: false,
        ..place
    };
    for name in ["allOf", "oneOf", "anyOf"] {
        for (index, child) in items(schema, name).iter().enumerate() {
            node(child, below, &format!("{path}.{name}[{index}]"), errors);
        }
    }
    for name in ["not", "items"] {
        if let Some(child) = map.get(name) {
            node(child, below, &format!("{path}.{name}"), errors);
        }
    }
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(at, false, "must be true or undefined"));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    rules(schema, path, errors);
}

fn supported(map: &Map<String, Value>, place: Place, path: &str, errors: &mut Errors) {
    for name in UNSUPPORTED {
        if is_set(map.get(name)) {
            let words = format!("{name} is not supported");
            errors.push(FieldError::forbidden(format!("{path}.{name}"), words));
        }
    }
    let ty = map.get("type").and_then(Value::as_str).unwrap_or_default();
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(
            format!("{path}.type"),
            ty,
            &TYPES,
        ));
    }
    if map.get("items").is_some_and(Value::is_array) {
        let words = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), words));
    }
    if let Some(why) = place.no_default
        && map.get("default").is_some_and(|d| !d.is_null())
    {
        let words = format!("must not be set {why}");
        errors.push(FieldError::forbidden(format!("{path}.default"), words));
    }
    if place.in_meta && map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        let at = format!("{path}.x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(
            at,
            "must not be used inside of resource meta",
        ));
    }
}

/// Reports a type that does not go with an extension.
fn wrong_type(ty: &str, path: &str, words: &str) -> FieldError {
    let at = format!("{path}.type");
    match ty {
        "" => FieldError::required(at, words),
        ty => FieldError::invalid(at, ty, words),
    }
}

fn map_type(schema: &Value, path: &str, errors: &mut Errors) {
    let Some(map_type) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) else {
        return;
    };
    let ty = str_at(schema, "type");
    if ty != "object" {
        let words = "must be object if x-kubernetes-map-type is specified";
        errors.push(wrong_type(ty, path, words));
    }
    let known = ["atomic", "granular"];
    if !known.contains(&map_type) {
        let at = format!("{path}.x-kubernetes-map-type");
        errors.push(FieldError::not_supported(at, map_type, &known));
    }
}

fn list_type(schema: &Value, path: &str, errors: &mut Errors) {
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = items(schema, "x-kubernetes-list-map-keys");
    let at = format!("{path}.x-kubernetes-list-type");
    if !keys.is_empty() && list_type != Some("map") {
        let words = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(&*at, words),
            Some(ty) => FieldError::invalid(&*at, ty, words),
        });
    }
    let Some(list_type) = list_type else { return };
    let ty = str_at(schema, "type");
    let of = schema.get("items").filter(|i| i.is_object());
    if ty != "array" {
        let words = "must be array if x-kubernetes-list-type is specified";
        errors.push(wrong_type(ty, path, words));
    } else if let (Some(of), "set") = (of, list_type) {
        set_items(of, path, errors);
    }
    let known = ["atomic", "set", "map"];
    if !known.contains(&list_type) {
        errors.push(FieldError::not_supported(at, list_type, &known));
    }
    if list_type == "map" {
        list_map(schema, of, keys, path, errors);
    }
    if matches!(list_type, "set" | "map")
        && of.is_some_and(|o| o.get("nullable") == Some(&Value::Bool(true)))
    {
        let words = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(
            format!("{path}.items.nullable"),
            words,
        ));
    }
}

fn set_items(of: &Value, path: &str, errors: &mut Errors) {
    let words = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let wrong = |name: &str| {
        let is = of.get(name).cloned().unwrap_or_default();
        FieldError::invalid(format!("{path}.items.{name}"), is, words)
    };
    match str_at(of, "type") {
        "array" if !matches!(str_at(of, "x-kubernetes-list-type"), "" | "atomic") => {
            errors.push(wrong("x-kubernetes-list-type"));
        }
        "object" if str_at(of, "x-kubernetes-map-type") != "atomic" => {
            errors.push(wrong("x-kubernetes-map-type"));
        }
        _ => {}
    }
}

fn list_map(schema: &Value, of: Option<&Value>, keys: &[Value], path: &str, errors: &mut Errors) {
    let at_keys = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let words = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&*at_keys, words));
    }
    let Some(of) = of else {
        if !schema.get("items").is_some_and(Value::is_array) {
            let words = "must have a schema if x-kubernetes-list-type is map";
            errors.push(FieldError::required(format!("{path}.items"), words));
        }
        return;
    };
    let ty = str_at(of, "type");
    if ty != "object" {
        errors.push(FieldError::invalid(
            format!("{path}.items.type"),
            ty,
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
        return;
    }
    let whole = Value::Array(keys.to_vec());
    let required = items(of, "required");
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        if keys[..index].contains(key) {
            let words = "must not contain duplicate entries";
            errors.push(FieldError::invalid(&*at_keys, whole.clone(), words));
        }
        let Some(property) = of.get("properties").and_then(|p| p.get(name)) else {
            let words = "entries must all be names of item properties";
            errors.push(FieldError::invalid(&*at_keys, whole.clone(), words));
            continue;
        };
        let at = format!("{path}.items.properties[{name}]");
        if matches!(str_at(property, "type"), "array" | "object") {
            let words = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(format!("{at}.type"), ty, words));
        }
        if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
            let words = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{at}.default"), words));
        }
        if property.get("nullable") == Some(&Value::Bool(true)) {
            let words = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{at}.nullable"), words));
        }
    }
}

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Checks what can be told of the rules without understanding them.
fn rules(schema: &Value, path: &str, errors: &mut Errors) {
    for (index, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
        let at = |name: &str| format!("{path}.x-kubernetes-validations[{index}].{name}");
        let (text, message) = (str_at(rule, "rule"), str_at(rule, "message"));
        let (rule_lines, message_lines) =
            (text.trim().contains('\n'), message.trim().contains('\n'));
        if text.trim().is_empty() {
            errors.push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let words = "message must be non-empty if specified";
            errors.push(FieldError::invalid(at("message"), message, words));
        } else if message_lines {
            let words = "message must not contain line breaks";
            errors.push(FieldError::invalid(at("message"), message, words));
        } else if rule_lines && message.trim().is_empty() {
            let words = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(at("message"), words));
        }
        let reason = str_at(rule, "reason");
        if !reason.is_empty() && !REASONS.contains(&reason) {
            errors.push(FieldError::not_supported(at("reason"), reason, &REASONS));
        }
    }
}
