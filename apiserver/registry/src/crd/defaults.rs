//! Defaults: nulls that a schema does not allow go, and what is absent becomes
//! what the schema says.

use serde_json::Value;

use super::schema::{Additional, Structural};

/// Defaults an object; tells whether it changed.
///
/// First the nulls: one that is not allowed and for which there is no default
/// is as if it were not there. One for which there is becomes the default.
pub fn apply(object: &mut Value, schema: &Structural) -> bool {
    let nulls = drop_nulls(object, Some(schema));
    fill(object, schema) || nulls
}

fn is_unwanted(value: &Value, schema: Option<&Structural>) -> bool {
    value.is_null() && schema.is_some_and(|s| !s.nullable)
}

fn drop_nulls(value: &mut Value, schema: Option<&Structural>) -> bool {
    let mut changed = false;
    match value {
        Value::Object(map) => map.retain(|name, item| {
            let schema = schema.and_then(|s| s.property(name));
            if is_unwanted(item, schema) && schema.is_some_and(|s| s.default.is_none()) {
                changed = true;
                return false;
            }
            changed |= drop_nulls(item, schema);
            true
        }),
        Value::Array(items) => {
            let schema = schema.and_then(|s| s.items.as_deref());
            for item in items {
                changed |= drop_nulls(item, schema);
            }
        }
        _ => {}
    }
    changed
}

fn fill(value: &mut Value, schema: &Structural) -> bool {
    let mut changed = false;
    match value {
        Value::Object(map) => {
            for (name, schema) in &schema.properties {
                let Some(default) = &schema.default else {
                    continue;
                };
                let there = map.get(name);
                if there.is_none() || there.is_some_and(|v| is_unwanted(v, Some(schema))) {
                    map.insert(name.clone(), default.clone());
                    changed = true;
                }
            }
            for (name, item) in map.iter_mut() {
                if let Some(schema) = schema.properties.get(name) {
                    changed |= fill(item, schema);
                } else if let Some(Additional::Schema(schema)) = &schema.additional {
                    changed |= replace_null(item, schema);
                    changed |= fill(item, schema);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    changed |= replace_null(item, schema);
                    changed |= fill(item, schema);
                }
            }
        }
        _ => {}
    }
    changed
}

fn replace_null(item: &mut Value, schema: &Structural) -> bool {
    match &schema.default {
        Some(default) if is_unwanted(item, Some(schema)) => {
            *item = default.clone();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn defaulted(schema: Value, mut object: Value) -> Value {
        let schema = Structural::parse(&schema);
        let before = object.clone();
        let changed = apply(&mut object, &schema);
        assert_eq!(changed, before != object, "{before} {object}");
        let once = object.clone();
        assert!(!apply(&mut object, &schema), "{once} {object}");
        object
    }

    #[test]
    fn defaults_appear_where_their_parent_is() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "A"},
            "b": {"type": "object", "properties": {"c": {"type": "integer", "default": 3}}},
            "d": {"type": "object", "default": {}, "properties": {"e": {"type": "boolean", "default": true}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"f": {"type": "string", "default": "F"}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object",
                "properties": {"g": {"type": "string", "default": "G"}}}},
        }});
        assert_eq!(
            defaulted(schema.clone(), json!({})),
            json!({"a": "A", "d": {"e": true}})
        );
        assert_eq!(
            defaulted(
                schema,
                json!({"a": "x", "b": {}, "d": {"e": false}, "l": [{}, {"f": "y"}], "m": {"k": {}}})
            ),
            json!({"a": "x", "b": {"c": 3}, "d": {"e": false}, "l": [{"f": "F"}, {"f": "y"}],
                "m": {"k": {"g": "G"}}})
        );
    }

    #[test]
    fn nulls_are_values_only_where_they_may_be() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "nullable": true, "default": "A"},
            "b": {"type": "string", "default": "B"},
            "c": {"type": "string"},
            "d": {"type": "string", "nullable": true},
            "l": {"type": "array", "items": {"type": "string", "default": "L"}},
            "n": {"type": "array", "items": {"type": "string"}},
        }});
        let given = json!({"a": null, "b": null, "c": null, "d": null, "l": [null], "n": [null], "x": null});
        assert_eq!(
            defaulted(schema, given),
            json!({"a": null, "b": "B", "d": null, "l": ["L"], "n": [null], "x": null})
        );
    }
}
