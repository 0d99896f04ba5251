//! Field validation on the server: what an object may not have is named.

use serde_json::{Value, json};

use crate::api::{APPLY, Api};
use crate::crds::{Definition, anything};

const STRICT: &str = "fieldValidation=Strict";

fn says(answer: &crate::api::Answer, words: &[&str]) {
    let message = answer.refused(400);
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message:?}");
    }
}

/// A Deployment as text, with these lines among its spec's and its metadata's fields.
fn deployment(name: &str, spec: &str, metadata: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment",
        "metadata":{{"name":"{name}"{metadata},"labels":{{"app":"nginx"}}}},
        "spec":{{{spec}"selector":{{"matchLabels":{{"app":"nginx"}}}},
        "template":{{"metadata":{{"labels":{{"app":"nginx"}}}},
        "spec":{{"containers":[{{"name":"nginx","image":"host"}}]}}}}}}}}"#
    )
}

pub(crate) fn fields_typed(api: &Api) {
    let namespace = api.namespace();
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let spec = r#""unknown1":"val1","unknownDupe":"valDupe","unknownDupe":"valDupe2","paused":true,"paused":false,"replicas":0,"#;
    let strict = format!("{path}?{STRICT}");
    let body = deployment("typed", spec, "");
    let answer = api.post_text(&strict, "application/json", &body);
    let words = [
        "strict decoding error",
        r#"unknown field "spec.unknown1""#,
        r#"unknown field "spec.unknownDupe""#,
        r#"duplicate field "spec.paused""#,
    ];
    says(&answer, &words);
    api.get(&format!("{path}/typed")).refused(404);
    // Told to warn, the server warns and takes it.
    let answer = api.post_text(
        &format!("{path}?fieldValidation=Warn"),
        "application/json",
        &body,
    );
    answer.ok();
    let warnings: Vec<&str> = answer
        .headers
        .get_all("warning")
        .iter()
        .filter_map(|w| w.to_str().ok())
        .collect();
    assert!(
        warnings.iter().any(|w| w.contains("spec.unknown1")),
        "{warnings:?}"
    );
    // Applied, a field that the type has not is refused too.
    let unknown = deployment("applied", r#""unknown1":"val1","replicas":0,"#, "");
    let apply = format!("{path}/applied?fieldManager=field_validation_mgr&{STRICT}");
    let answer = api.patch_text(&apply, APPLY, &unknown);
    // Upstream too says no better than 500.
    assert!((400..=500).contains(&answer.code), "{}", answer.text());
    assert!(answer.text().contains("unknown1"), "{}", answer.text());
}

pub(crate) fn fields_metadata(api: &Api) {
    let namespace = api.namespace();
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments?{STRICT}");
    let body = deployment("meta", "", r#","unknownMeta":"unknownVal""#);
    let answer = api.post_text(&path, "application/json", &body);
    says(&answer, &[r#"unknown field "metadata.unknownMeta""#]);
}

/// A schema with a spec of two fields.
fn schema() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "foo": {"type": "string"},
        "cronSpec": {"type": "string"},
        "ports": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
            "items": {"type": "object", "required": ["containerPort", "protocol"],
                "properties": {
                    "containerPort": {"type": "integer", "format": "int32"},
                    "hostIP": {"type": "string"},
                    "protocol": {"type": "string"},
                }}},
    }}}})
}

/// Applies and creates a custom resource, strictly.
fn both(api: &Api, definition: &Definition<'_>, fields: &Value) -> [crate::api::Answer; 2] {
    let namespace = api.namespace();
    let path = definition.path("v1", &namespace);
    let applied = api.patch_text(
        &format!("{path}/applied?fieldManager=field_validation_mgr&{STRICT}"),
        APPLY,
        &definition.resource("v1", "applied", fields).to_string(),
    );
    let made = api.post(
        &format!("{path}?{STRICT}"),
        &definition.resource("v1", "made", fields),
    );
    [applied, made]
}

pub(crate) fn fields_valid(api: &Api) {
    let definition = Definition::new(api, &schema());
    let fields = json!({"spec": {"cronSpec": "* * * * */5", "foo": "foo1",
        "ports": [{"containerPort": 8080, "hostIP": "1.2.3.4", "protocol": "TCP"}]}});
    for answer in both(api, &definition, &fields) {
        assert_eq!(answer.ok()["spec"], fields["spec"]);
    }
}

pub(crate) fn fields_no_schema(api: &Api) {
    let definition = Definition::new(api, &anything());
    let fields = json!({"spec": {"unknown": {"deep": [1, {"a": null}]}}, "top": true});
    for answer in both(api, &definition, &fields) {
        assert_eq!(answer.ok()["top"], true);
    }
}

pub(crate) fn fields_extra(api: &Api) {
    let definition = Definition::new(api, &schema());
    let fields = json!({"spec": {"cronSpec": "* * * * */5", "extraProperty": "more"}});
    let [applied, made] = both(api, &definition, &fields);
    assert!((400..=500).contains(&applied.code), "{}", applied.text());
    assert!(
        applied.text().contains("extraProperty"),
        "{}",
        applied.text()
    );
    says(&made, &[r#"unknown field "spec.extraProperty""#]);
}

pub(crate) fn fields_duplicate(api: &Api) {
    let definition = Definition::new(api, &anything());
    let namespace = api.namespace();
    let path = format!("{}?{STRICT}", definition.path("v1", &namespace));
    let text = format!(
        r#"{{"apiVersion":"{}/v1","kind":"{}","metadata":{{"name":"dupe"}},
        "spec":{{"unknown":"uk1","cronSpec":"* * * * */5","unknown":"uk2"}}}}"#,
        definition.group, definition.kind
    );
    let answer = api.post_text(&path, "application/json", &text);
    says(&answer, &[r#"duplicate field "spec.unknown""#]);
    let text = format!(
        "apiVersion: {}/v1\nkind: {}\nmetadata:\n  name: dupe\nspec:\n  unknown: uk1\n  unknown: uk2\n",
        definition.group, definition.kind
    );
    let answer = api.post_text(&path, "application/yaml", &text);
    says(&answer, &[r#"key "unknown" already set in map"#]);
}

pub(crate) fn fields_metadata_of_crs(api: &Api) {
    let definition = Definition::new(
        api,
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                "properties": {"metadata": {"type": "object",
                    "properties": {"name": {"type": "string"}}}}}}}}}),
    );
    let namespace = api.namespace();
    let path = format!("{}?{STRICT}", definition.path("v1", &namespace));
    let mut object = definition.resource(
        "v1",
        "meta",
        &json!({"spec": {"template": {
        "apiVersion": "foo/v1", "kind": "Sub",
        "metadata": {"name": "subobject", "unknownSubMeta": "unknown"}}}}),
    );
    object["metadata"]["unknownMeta"] = json!("unknown");
    let answer = api.post(&path, &object);
    let words = [
        r#"unknown field "metadata.unknownMeta""#,
        r#"unknown field "spec.template.metadata.unknownSubMeta""#,
    ];
    says(&answer, &words);
}
