//! Values against schemas: what is said, to the letter.

use serde_json::json;

use super::*;

#[track_caller]
fn says(schema: Value, value: Value, wanted: &[&str]) {
    let schema = Structural::parse(&json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"x": schema}}}}));
    let errors = object(&json!({"spec": {"x": value}}), None, &schema);
    let said: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    assert_eq!(said, wanted);
}

#[test]
fn types() {
    says(
        json!({"type": "integer"}),
        json!("a"),
        &["spec.x: Invalid value: \"string\": spec.x in body must be of type integer: \"string\""],
    );
    says(
        json!({"type": "string"}),
        json!(1),
        &["spec.x: Invalid value: \"integer\": spec.x in body must be of type string: \"integer\""],
    );
    says(json!({"type": "number"}), json!(1), &[]);
    says(json!({"type": "integer"}), json!(1.0), &[]);
    says(
        json!({"type": "integer"}),
        json!(1.5),
        &["spec.x: Invalid value: \"number\": spec.x in body must be of type integer: \"number\""],
    );
    says(
        json!({"x-kubernetes-int-or-string": true}),
        json!(true),
        &[
            "spec.x: Invalid value: \"boolean\": spec.x in body must be of type integer,string: \"boolean\"",
        ],
    );
    says(
        json!({"x-kubernetes-int-or-string": true}),
        json!("5%"),
        &[],
    );
    says(
        json!({"type": "string"}),
        json!(null),
        &["spec.x: Invalid value: \"null\": spec.x in body must be of type string: \"null\""],
    );
    says(
        json!({"type": "string", "nullable": true}),
        json!(null),
        &[],
    );
}

#[test]
fn limits_of_texts_and_numbers() {
    says(
        json!({"type": "string", "maxLength": 2}),
        json!("äöü"),
        &["spec.x: Too long: may not be more than 2 bytes"],
    );
    says(
        json!({"type": "string", "minLength": 2}),
        json!("a"),
        &["spec.x: Invalid value: \"a\": spec.x in body should be at least 2 chars long"],
    );
    says(
        json!({"type": "string", "pattern": "^[a-z]+$"}),
        json!("A"),
        &["spec.x: Invalid value: \"A\": spec.x in body should match '^[a-z]+$'"],
    );
    says(
        json!({"type": "integer", "minimum": 1, "maximum": 10}),
        json!(0),
        &["spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1"],
    );
    says(
        json!({"type": "integer", "maximum": 10}),
        json!(11),
        &["spec.x: Invalid value: 11: spec.x in body should be less than or equal to 10"],
    );
    says(
        json!({"type": "number", "maximum": 0.5, "exclusiveMaximum": true}),
        json!(0.5),
        &["spec.x: Invalid value: 0.5: spec.x in body should be less than 0.5"],
    );
    says(
        json!({"type": "integer", "multipleOf": 5}),
        json!(12),
        &["spec.x: Invalid value: 12: spec.x in body should be a multiple of 5"],
    );
    says(
        json!({"type": "string", "enum": ["a", "b"]}),
        json!("c"),
        &["spec.x: Unsupported value: \"c\": supported values: \"a\", \"b\""],
    );
    says(
        json!({"type": "string", "format": "date-time"}),
        json!("now"),
        &["spec.x: Invalid value: \"now\": spec.x in body must be of type date-time: \"now\""],
    );
    says(
        json!({"type": "string", "format": "no-such"}),
        json!("now"),
        &[],
    );
}

#[test]
fn limits_of_lists_and_maps() {
    let strings = json!({"type": "string"});
    says(
        json!({"type": "array", "items": strings, "maxItems": 1}),
        json!(["a", 2]),
        &[
            "spec.x[1]: Invalid value: \"integer\": spec.x[1] in body must be of type string: \"integer\"",
            "spec.x: Too many: 2: must have at most 1 item",
        ],
    );
    says(
        json!({"type": "array", "items": strings, "minItems": 2}),
        json!(["a"]),
        &["spec.x: Invalid value: 1: spec.x in body should have at least 2 items"],
    );
    says(
        json!({"type": "object", "required": ["a"], "properties": {"a": strings}}),
        json!({}),
        &["spec.x.a: Required value"],
    );
    says(
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        json!({"k": "v"}),
        &[
            "spec.x.k: Invalid value: \"string\": spec.x.k in body must be of type integer: \"string\"",
        ],
    );
    says(
        json!({"type": "object", "minProperties": 1, "additionalProperties": strings}),
        json!({}),
        &["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"],
    );
    says(
        json!({"type": "object", "maxProperties": 2, "additionalProperties": strings}),
        json!({"a": "1", "b": "2", "c": "3"}),
        &["spec.x: Too many: 3: must have at most 2 items"],
    );
    let schema = Structural::parse(&json!({"type": "object", "required": ["spec"]}));
    let errors = object(&json!({}), None, &schema);
    assert_eq!(errors[0].to_string(), "spec: Required value");
}

#[test]
fn junctors() {
    let either = json!([{"required": ["a"]}, {"required": ["b"]}]);
    let object = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    says(
        json!({"type": "object", "properties": object, "oneOf": either}),
        json!({"a": "", "b": ""}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ],
    );
    says(
        json!({"type": "object", "properties": object, "oneOf": either}),
        json!({}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). Found none valid",
            "spec.x.a: Required value",
        ],
    );
    says(
        json!({"type": "object", "properties": object, "anyOf": either}),
        json!({}),
        &[
            "<nil>: Invalid value: \"\": \"spec.x\" must validate at least one schema (anyOf)",
            "spec.x.a: Required value",
        ],
    );
    says(
        json!({"type": "object", "properties": object, "anyOf": either}),
        json!({"b": ""}),
        &[],
    );
    says(
        json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 5}]}),
        json!(9),
        &[
            "spec.x: Invalid value: 9: spec.x in body should be less than or equal to 5",
            "<nil>: Invalid value: \"\": \"spec.x\" must validate all the schemas (allOf)",
        ],
    );
    says(
        json!({"type": "string", "not": {"enum": ["x"]}}),
        json!("x"),
        &["<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)"],
    );
}

#[test]
fn what_did_not_change_is_not_held_against_the_client() {
    let schema = Structural::parse(&json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "properties": {
                "n": {"type": "string"}, "v": {"type": "integer", "maximum": 3}, "w": {"type": "string"}}}},
    }}));
    let old = json!({"a": "long", "l": [{"n": "x", "v": 9}]});
    let new = json!({"a": "long", "l": [{"n": "y", "v": 1}, {"n": "x", "v": 9, "w": "z"}]});
    assert!(object(&new, Some(&old), &schema).is_empty());
    assert_eq!(object(&new, None, &schema).len(), 2);
    let worse = json!({"a": "longer", "l": [{"n": "x", "v": 8}]});
    assert_eq!(object(&worse, Some(&old), &schema).len(), 2);
}
