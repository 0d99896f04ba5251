//! What OpenAPI says of custom resources, and what kubectl makes of it.

use serde_json::{Value, json};

use crate::api::Api;
use crate::crds::{Definition, anything, version};
use crate::harness::until;

/// Waits until both OpenAPI documents have the schemas of these versions, and no
/// longer those.
fn published(api: &Api, definition: &Definition<'_>, there: &[&str], gone: &[&str]) {
    until("OpenAPI to have what is served", || {
        let second = api.get("/openapi/v2").ok();
        let has = |version: &str| {
            let name = definition.schema_name(version);
            second["definitions"].get(&name).is_some()
        };
        let wrong = |what: &str, version: &&str| Err(format!("v2 {what} {version}"));
        if let Some(version) = there.iter().find(|v| !has(v)) {
            return wrong("lacks", version);
        }
        if let Some(version) = gone.iter().find(|v| has(v)) {
            return wrong("still has", version);
        }
        let index = api.get("/openapi/v3").ok();
        for version in there {
            let path = format!("apis/{}/{version}", definition.group);
            let Some(url) = index["paths"][&path]["serverRelativeURL"].as_str() else {
                return Err(format!("v3 lacks {path}"));
            };
            let document = api.get(url).ok();
            let name = definition.schema_name(version);
            if document["components"]["schemas"].get(&name).is_none() {
                return Err(format!("v3's {path} lacks {name}"));
            }
        }
        for version in gone {
            let path = format!("apis/{}/{version}", definition.group);
            let Some(url) = index["paths"][&path]["serverRelativeURL"].as_str() else {
                continue;
            };
            // The other kinds of the group may keep the document alive.
            let answer = api.get(url);
            if answer.text().contains(&definition.schema_name(version)) {
                return Err(format!("v3 still has {version}"));
            }
        }
        Ok(())
    });
}

/// A schema of objects, lists and plain values.
fn validating() -> Value {
    json!({
        "type": "object",
        "description": "A thing for testing",
        "properties": {
            "spec": {
                "type": "object",
                "description": "What is wanted of the thing",
                "properties": {"bars": {
                    "type": "array",
                    "description": "The bars of the thing",
                    "items": {"type": "object", "required": ["name"], "properties": {
                        "name": {"type": "string", "description": "The bar's name"},
                        "age": {"type": "string", "description": "How old it is"},
                        "bazs": {"type": "array", "items": {"type": "string"},
                            "description": "Its bazs"},
                    }},
                }},
            },
            "status": {"type": "object", "properties": {
                "bars": {"type": "array", "items": {"type": "object", "properties": {
                    "available": {"type": "boolean"}}}}}},
        },
    })
}

/// Creates and applies a custom resource with kubectl, which validates before it asks.
fn kubectl_takes(api: &Api, definition: &Definition<'_>, name: &str, fields: &Value) {
    let k = api.kubectl();
    let file = api.file(&definition.resource("v1", name, fields).to_string());
    k.run(&format!("create -f {file}"));
    k.run(&format!("delete {} {name}", definition.name()));
    k.run(&format!("apply -f {file}"));
    k.run(&format!("delete {} {name}", definition.name()));
}

pub(crate) fn openapi_validation_schema(api: &Api) {
    let definition = Definition::new(api, &validating());
    published(api, &definition, &["v1"], &[]);
    let k = api.kubectl();
    let good = json!({"spec": {"bars": [{"name": "test-bar", "age": "10"}]}});
    kubectl_takes(api, &definition, "good", &good);
    let unknown = json!({"spec": {"foo": true, "bars": [{"name": "test-bar"}]}});
    let unnamed = json!({"spec": {"bars": [{"age": "10"}]}});
    for (fields, words) in [(unknown, "unknown field"), (unnamed, "name")] {
        let file = api.file(&definition.resource("v1", "bad", &fields).to_string());
        for verb in ["create", "apply"] {
            let said = k.fail(&format!("{verb} -f {file}"));
            assert!(said.contains(words), "{verb}: {said}");
        }
    }
    let name = definition.name();
    until("explain to know it", || {
        let out = k.output(&format!("explain {name}"));
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let knows = said.contains("A thing for testing") && said.contains("What is wanted");
        if knows { Ok(()) } else { Err(said) }
    });
    assert!(
        k.run(&format!("explain {name}.metadata"))
            .contains("metadata")
    );
    assert!(
        k.run(&format!("explain {name}.spec"))
            .contains("The bars of the thing")
    );
    let bars = k.run(&format!("explain {name}.spec.bars"));
    for word in ["name", "age", "bazs", "-required-", "The bar's name"] {
        assert!(bars.contains(word), "{word}: {bars}");
    }
    let said = k.fail(&format!("explain {name}.spec.bars2"));
    assert!(said.contains("does not exist"), "{said}");
}

pub(crate) fn openapi_no_schema(api: &Api) {
    let definition = Definition::new(api, &anything());
    published(api, &definition, &["v1"], &[]);
    let fields = json!({"a": {"b": [{"c": "d"}]}});
    kubectl_takes(api, &definition, "free", &fields);
    let said = api.kubectl().run(&format!("explain {}", definition.name()));
    assert!(said.contains("DESCRIPTION"), "{said}");
}

pub(crate) fn openapi_unknown_at_root(api: &Api) {
    let mut schema = validating();
    schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    let definition = Definition::new(api, &schema);
    published(api, &definition, &["v1"], &[]);
    kubectl_takes(api, &definition, "root", &json!({"a": {"b": [{"c": "d"}]}}));
    let said = api.kubectl().run(&format!("explain {}", definition.name()));
    assert!(said.contains(&definition.kind), "{said}");
}

pub(crate) fn openapi_unknown_embedded(api: &Api) {
    let mut schema = validating();
    let spec = &mut schema["properties"]["spec"];
    *spec = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true, "description": "An object in here"});
    let definition = Definition::new(api, &schema);
    published(api, &definition, &["v1"], &[]);
    let fields = json!({"spec": {"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "inside"}, "anything": {"at": ["all"]}}});
    kubectl_takes(api, &definition, "embedded", &fields);
    let said = api.kubectl().run(&format!("explain {}", definition.name()));
    assert!(said.contains("An object in here"), "{said}");
}

pub(crate) fn openapi_groups(api: &Api) {
    let one = Definition::new(api, &validating());
    let other = Definition::new(api, &validating());
    assert_ne!(one.group, other.group);
    published(api, &one, &["v1"], &[]);
    published(api, &other, &["v1"], &[]);
}

pub(crate) fn openapi_kinds(api: &Api) {
    let one = Definition::new(api, &validating());
    let versions = json!([version("v1", &validating(), true)]);
    let other = Definition::in_group(api, &one.group, &versions);
    assert_ne!(one.kind, other.kind);
    published(api, &one, &["v1"], &[]);
    published(api, &other, &["v1"], &[]);
}

/// Two versions of one schema; the first is stored.
fn two_versions(first: &str, second: &str) -> Value {
    json!([
        version(first, &validating(), true),
        version(second, &validating(), false)
    ])
}

pub(crate) fn openapi_versions(api: &Api) {
    let several = Definition::with_versions(api, &two_versions("v2", "v3"));
    published(api, &several, &["v2", "v3"], &[]);
    let group = &several.group;
    let ones = [("v4", true), ("v5", true)].map(|(name, storage)| {
        let versions = json!([version(name, &validating(), storage)]);
        (name, Definition::in_group(api, group, &versions))
    });
    for (name, definition) in &ones {
        published(api, definition, &[*name], &[]);
    }
}

pub(crate) fn openapi_version_renamed(api: &Api) {
    let definition = Definition::with_versions(api, &two_versions("v2", "v3"));
    published(api, &definition, &["v2", "v3"], &[]);
    let before = api.get("/openapi/v2").ok();
    let kept = before["definitions"][definition.schema_name("v2")].clone();
    definition.change(|object| object["spec"]["versions"][1]["name"] = json!("v4"));
    published(api, &definition, &["v2", "v4"], &["v3"]);
    let after = api.get("/openapi/v2").ok();
    assert_eq!(after["definitions"][definition.schema_name("v2")], kept);
}

pub(crate) fn openapi_version_not_served(api: &Api) {
    let definition = Definition::with_versions(api, &two_versions("v5", "v6alpha1"));
    published(api, &definition, &["v5", "v6alpha1"], &[]);
    let before = api.get("/openapi/v2").ok();
    let kept = before["definitions"][definition.schema_name("v5")].clone();
    definition.change(|object| object["spec"]["versions"][1]["served"] = json!(false));
    published(api, &definition, &["v5"], &["v6alpha1"]);
    let after = api.get("/openapi/v2").ok();
    assert_eq!(after["definitions"][definition.schema_name("v5")], kept);
}
