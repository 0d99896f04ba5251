//! Version 2: one document of everything.

use serde_json::{Map, Value, json};

use super::definitions::{self, GVK, META, Version};
use super::paths::{self, LIST_TYPES, OBJECT_TYPES, Operation, Parameter};
use super::v3::words;
use crate::kind::KindRef;

/// Makes the document.
pub(super) fn document(kinds: &[KindRef]) -> Value {
    let mut roots: Vec<String> = [
        "APIGroup",
        "APIGroupList",
        "APIResourceList",
        "APIVersions",
        "DeleteOptions",
        "Patch",
        "Status",
        "WatchEvent",
    ]
    .map(|name| format!("{META}{name}"))
    .to_vec();
    let mut paths = Map::new();
    for path in paths::all(kinds) {
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
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "definitions": definitions::all(Version::V2, &texts, &roots, kinds),
    })
}

fn render(operation: &Operation) -> Value {
    let (group, version, kind) = operation.gvk;
    let mut parameters: Vec<Value> = Vec::new();
    if let Some(body) = &operation.body {
        parameters.push(json!({
            "name": "body",
            "in": "body",
            "required": !body.ends_with("DeleteOptions"),
            "schema": Version::V2.reference(body),
        }));
    }
    parameters.extend(operation.parameters.iter().map(parameter));
    let mut responses = Map::new();
    for code in operation.codes {
        responses.insert(
            code.to_string(),
            json!({"description": words(*code), "schema": Version::V2.reference(&operation.answer)}),
        );
    }
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    let consumes: &[&str] = if operation.action == "patch" {
        operation.patch_types
    } else {
        &["*/*"]
    };
    let produces: &[&str] = match operation.action {
        "list" => &LIST_TYPES,
        "connect" => &["*/*"],
        _ => &OBJECT_TYPES,
    };
    json!({
        "description": operation.description,
        "operationId": operation.id,
        "tags": [operation.tag],
        "schemes": ["https"],
        "consumes": consumes,
        "produces": produces,
        "parameters": parameters,
        "responses": responses,
        "x-kubernetes-action": operation.action,
        GVK: {"group": group, "version": version, "kind": kind},
    })
}

fn parameter(parameter: &Parameter) -> Value {
    let mut value = json!({
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "type": parameter.ty,
        "uniqueItems": true,
    });
    if parameter.place == "path" {
        crate::kind::put(&mut value, "required", Some(Value::Bool(true)));
    }
    value
}
