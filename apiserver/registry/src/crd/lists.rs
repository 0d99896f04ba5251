//! What a list of type set or map promises: nothing stands in it twice.

use std::collections::BTreeMap;

use meta::FieldError;
use serde_json::{Map, Value};

use super::schema::{Additional, ListType, Structural};

/// Reports what stands twice in a list of an object that may have it once.
pub fn check(object: &Value, schema: &Structural) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk("", object, schema, &mut errors);
    errors
}

fn walk(path: &str, value: &Value, schema: &Structural, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, item) in map {
                if let Some(schema) = schema.properties.get(name) {
                    let at = match path {
                        "" => name.clone(),
                        path => format!("{path}.{name}"),
                    };
                    walk(&at, item, schema, errors);
                } else if let Some(Additional::Schema(schema)) = &schema.additional {
                    walk(&format!("{path}[{name}]"), item, schema, errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in doubled(items.iter().map(Value::to_string)) {
                        let at = format!("{path}[{index}]");
                        errors.push(FieldError::duplicate(at, items[index].clone()));
                    }
                }
                ListType::Map(keys) => map(path, items, keys, errors),
            }
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(&format!("{path}[{index}]"), item, schema, errors);
                }
            }
        }
        _ => {}
    }
}

/// Returns the index of the second of those that are the same.
fn doubled(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut second = Vec::new();
    for (index, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            second.push(index);
        }
    }
    second
}

fn map(path: &str, items: &[Value], keys: &[String], errors: &mut Vec<FieldError>) {
    for (index, item) in items.iter().enumerate() {
        if !item.is_object() && !item.is_null() {
            errors.push(FieldError::invalid(
                format!("{path}[{index}]"),
                item.clone(),
                "must be an object for an array of list-type map",
            ));
            return;
        }
    }
    let key_of = |item: &Value| -> Value {
        let present = keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(present.collect::<Map<_, _>>())
    };
    for index in doubled(items.iter().map(|item| key_of(item).to_string())) {
        let at = format!("{path}[{index}]");
        errors.push(FieldError::duplicate(at, key_of(&items[index])));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_stands_twice_is_named_once() {
        let schema = Structural::parse(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a", "b"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}},
            "free": {"type": "array", "items": {"type": "string"}},
        }}));
        let object = json!({
            "set": ["x", "y", "x", "x"],
            "map": [{"a": "1", "b": 1}, {"a": "1", "b": 2}, {"a": "1", "b": 1, "c": 3}, {}],
            "free": ["x", "x"],
        });
        let said: Vec<String> = check(&object, &schema)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            [
                "map[2]: Duplicate value: {\"a\":\"1\",\"b\":1}",
                "set[2]: Duplicate value: \"x\"",
            ]
        );
    }
}
