//! Version 3: an index, and a document per group version.

use serde_json::{Map, Value, json};

use super::definitions::{self, GVK, META, Version};
use super::paths::{self, LIST_TYPES, OBJECT_TYPES, Operation, Parameter};
use crate::kind::KindRef;

/// Makes the index.
pub(super) fn index(documents: &[(String, String)]) -> Value {
    let mut paths = Map::new();
    for (path, hash) in documents {
        let url = format!("/openapi/v3/{path}?hash={hash}");
        paths.insert(path.clone(), json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// Makes the document of a group version.
pub(super) fn document(group: &str, version: &str, kinds: &[KindRef]) -> Value {
    let mut roots: Vec<String> = [
        "APIResourceList",
        "DeleteOptions",
        "Patch",
        "Status",
        "WatchEvent",
    ]
    .map(|name| format!("{META}{name}"))
    .to_vec();
    let mut paths = Map::new();
    let base = super::group_path(group, version);
    paths.insert(format!("/{base}/"), resources(group, version));
    for path in paths::in_group(kinds, group, version) {
        let mut item = Map::new();
        for operation in &path.operations {
            roots.extend(Some(operation.answer.clone()).filter(|a| !a.is_empty()));
            roots.extend(operation.body.clone());
            item.insert(operation.method.to_owned(), render(operation));
        }
        let shared: Vec<Value> = path.parameters.iter().map(parameter).collect();
        item.insert("parameters".to_owned(), Value::Array(shared));
        paths.insert(path.path, Value::Object(item));
    }
    let texts = crate::table::descriptions();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": definitions::all(Version::V3, &texts, &roots, kinds)},
    })
}

fn resources(group: &str, version: &str) -> Value {
    let answer = Version::V3.reference(&format!("{META}APIResourceList"));
    json!({"get": {
        "description": "get available resources",
        "operationId": format!("get{}{version}APIResources", group.split('.').next().unwrap_or_default()),
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}},
    }})
}

fn render(operation: &Operation) -> Value {
    let (group, version, kind) = operation.gvk;
    let content = |definition: &str, types: &[&str]| {
        let schema = Version::V3.reference(definition);
        let media: Map<String, Value> = types
            .iter()
            .map(|t| ((*t).to_owned(), json!({"schema": schema})))
            .collect();
        Value::Object(media)
    };
    let types: &[&str] = match operation.action {
        "list" => &LIST_TYPES,
        "connect" => &["*/*"],
        _ => &OBJECT_TYPES,
    };
    let mut responses = Map::new();
    for code in operation.codes {
        responses.insert(
            code.to_string(),
            json!({"description": words(*code), "content": content(&operation.answer, types)}),
        );
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    let mut rendered = json!({
        "description": operation.description,
        "operationId": operation.id,
        "tags": [operation.tag],
        "parameters": operation.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": responses,
        "x-kubernetes-action": operation.action,
        GVK: {"group": group, "version": version, "kind": kind},
    });
    if let Some(body) = &operation.body {
        let types: &[&str] = if operation.action == "patch" {
            operation.patch_types
        } else {
            &["*/*"]
        };
        let required = !body.ends_with("DeleteOptions");
        crate::kind::put(
            &mut rendered,
            "requestBody",
            Some(json!({"content": content(body, types), "required": required})),
        );
    }
    rendered
}

/// Names a code as HTTP does.
pub(super) fn words(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        _ => "Accepted",
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let mut value = json!({
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "schema": {"type": parameter.ty, "uniqueItems": true},
    });
    if parameter.place == "path" {
        crate::kind::put(&mut value, "required", Some(Value::Bool(true)));
    }
    value
}
