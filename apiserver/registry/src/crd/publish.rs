//! A version's schema as OpenAPI documents show it: what every object has is
//! added, and version 2, which is older and knows less, gets what it can hold.

use serde_json::{Map, Value, json};

use crate::openapi::Version;

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What the fields of every object are, in words.
const WORDS: [(&str, &str); 3] = [
    (
        "apiVersion",
        "APIVersion names the group and the version of this representation of the object. Servers convert what they know to the newest form and may refuse what they do not know.",
    ),
    (
        "kind",
        "Kind names the type of the object, in CamelCase. It cannot be changed.",
    ),
    ("metadata", "Standard object's metadata."),
];

/// Makes the schema of a version's objects.
pub fn schema(open_api_v3_schema: &Value, version: Version) -> Value {
    let mut schema = match version {
        Version::V3 => v3(open_api_v3_schema.clone()),
        Version::V2 => v2(open_api_v3_schema),
    };
    if schema.get("type").is_none() {
        crate::kind::put(&mut schema, "type", Some(json!("object")));
    }
    of_every_object(&mut schema, version);
    schema
}

fn of_every_object(schema: &mut Value, version: Version) {
    let properties = meta::value::object_mut(schema, "properties");
    for (name, words) in WORDS {
        let said = properties
            .get(name)
            .and_then(|p| p.get("description"))
            .cloned();
        let said = said.unwrap_or_else(|| Value::from(words));
        let property = match (name, version) {
            ("metadata", Version::V3) => {
                json!({"allOf": [version.reference(METADATA)], "description": said})
            }
            ("metadata", Version::V2) => {
                let mut reference = version.reference(METADATA);
                crate::kind::put(&mut reference, "description", Some(said));
                reference
            }
            _ => json!({"type": "string", "description": said}),
        };
        properties.insert(name.to_owned(), property);
    }
}

/// Completes the objects that are embedded.
fn v3(mut schema: Value) -> Value {
    let Value::Object(map) = &mut schema else {
        return json!({});
    };
    for name in ["properties", "patternProperties"] {
        if let Some(Value::Object(properties)) = map.get_mut(name) {
            for property in properties.values_mut() {
                *property = v3(property.take());
            }
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(name).filter(|i| i.is_object()) {
            *inner = v3(inner.take());
        }
    }
    if map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        of_every_object(&mut schema, Version::V3);
    }
    schema
}

/// The members of a schema that version 2 has as they are.
const V2_AS_IS: [&str; 4] = ["default", "description", "format", "required"];

/// Reduces a schema to what clients of version 2 understand: they refuse what
/// is not described, so what may be anything is described as that.
fn v2(schema: &Value) -> Value {
    let Some(map) = schema.as_object() else {
        return json!({});
    };
    let is = |name: &str| map.get(name) == Some(&Value::Bool(true));
    let mut out = Map::new();
    for (name, value) in map {
        if V2_AS_IS.contains(&name.as_str()) || name.starts_with("x-kubernetes-") {
            out.insert(name.clone(), value.clone());
        }
    }
    out.remove("x-kubernetes-validations");
    if is("nullable") || is("x-kubernetes-int-or-string") {
        return Value::Object(out);
    }
    if let Some(ty) = map.get("type") {
        out.insert("type".to_owned(), ty.clone());
    }
    if is("x-kubernetes-preserve-unknown-fields") {
        return Value::Object(out);
    }
    if let Some(Value::Object(properties)) = map.get("properties") {
        let reduced = properties.iter().map(|(n, p)| (n.clone(), v2(p)));
        out.insert("properties".to_owned(), Value::Object(reduced.collect()));
    }
    for name in ["items", "additionalProperties"] {
        match map.get(name) {
            Some(inner @ Value::Object(_)) => {
                out.insert(name.to_owned(), v2(inner));
            }
            // Anything: a schema that says nothing.
            Some(Value::Bool(true)) => {
                out.insert(name.to_owned(), json!({}));
            }
            _ => {}
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_every_object_has_and_what_the_version_holds() {
        let given = json!({"type": "object", "description": "A tab.", "properties": {
        "spec": {"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "enum": ["x"], "description": "An a."},
            "b": {"type": "string", "nullable": true},
            "c": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "d": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true},
            "e": {"type": "object", "additionalProperties": {"type": "string"}},
        }}}});
        let three = schema(&given, Version::V3);
        assert_eq!(
            three["properties"]["spec"]["properties"]["a"],
            given["properties"]["spec"]["properties"]["a"]
        );
        assert_eq!(three["properties"]["kind"]["type"], "string");
        let embedded = &three["properties"]["spec"]["properties"]["d"]["properties"];
        assert!(embedded["metadata"]["allOf"][0]["$ref"].is_string());
        let two = schema(&given, Version::V2);
        assert_eq!(
            two["properties"]["spec"],
            json!({"type": "object", "required": ["a"], "properties": {
                "a": {"type": "string", "description": "An a."},
                "b": {},
                "c": {"x-kubernetes-int-or-string": true},
                "d": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true},
                "e": {"type": "object", "additionalProperties": {"type": "string"}},
            }})
        );
        let metadata = &two["properties"]["metadata"]["$ref"];
        assert!(metadata.as_str().unwrap().ends_with("ObjectMeta"));
    }
}
