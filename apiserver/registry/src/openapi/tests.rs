//! Tests that the documents hold together and hold what clients look for.

use serde_json::json;

use super::*;
use crate::kinds::held;

fn paths_of_all() -> Vec<String> {
    v3_paths(&held())
}

fn document_of(path: &str) -> Option<Document> {
    v3_document(&held(), path)
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                match inner {
                    Value::String(text) if name == "$ref" => found.push(text.clone()),
                    other => references(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|i| references(i, found)),
        _ => {}
    }
}

fn parsed(document: &Document) -> Value {
    serde_json::from_slice(&document.body).unwrap()
}

#[test]
fn every_reference_resolves() {
    let mut documents: Vec<Value> = paths_of_all()
        .iter()
        .map(|p| parsed(&document_of(p).unwrap()))
        .collect();
    documents.push(parsed(&v2_json(&held())));
    for document in documents {
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20, "{}", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}

#[test]
fn every_patch_has_what_kubectl_looks_for() {
    let mut patches = 0;
    for path in paths_of_all() {
        let document = parsed(&document_of(&path).unwrap());
        for (name, item) in document["paths"].as_object().unwrap() {
            let Some(patch) = item.get("patch") else {
                continue;
            };
            patches += 1;
            assert!(
                patch["x-kubernetes-group-version-kind"]["kind"].is_string(),
                "{name}"
            );
            let content = &patch["requestBody"]["content"];
            for language in ["strategic-merge-patch+json", "apply-patch+yaml"] {
                let media = format!("application/{language}");
                assert!(content.get(&media).is_some(), "{name} {media}");
            }
            let parameters = patch["parameters"].as_array().unwrap();
            let validation = parameters
                .iter()
                .any(|p| p["name"] == "fieldValidation" && p["in"] == "query");
            assert!(validation, "{name}");
        }
    }
    let served: usize = crate::kinds::all()
        .iter()
        .map(|k| {
            let through = k.subresources.iter();
            let through = through.filter(|s| s.verbs.contains(&"patch"));
            usize::from(k.allows("patch")) + through.count()
        })
        .sum();
    assert_eq!(patches, served);
}

#[test]
fn explain_finds_the_schema_of_a_resource() {
    for kind in crate::kinds::all() {
        let document = parsed(&document_of(&group_path(kind.group, kind.version)).unwrap());
        let scope = if kind.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let path = format!("{}{scope}/{}", kind.gv().api_path(), kind.plural);
        let wanted = &document["paths"][&path]["get"]["x-kubernetes-group-version-kind"];
        assert_eq!(
            *wanted,
            json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
            "{path}"
        );
        let schema = &document["components"]["schemas"][kind.definition];
        let kinds = schema["x-kubernetes-group-version-kind"]
            .as_array()
            .unwrap();
        assert!(kinds.contains(wanted) && schema["description"].is_string());
        // One type says nothing of its metadata.
        let silent = kind.kind == "CertificateSigningRequest";
        let said = schema["properties"]["metadata"]["description"].is_string();
        assert_ne!(said, silent, "{kind:?}");
    }
}

#[test]
fn schemas_say_how_lists_merge() {
    let document = parsed(&document_of("api/v1").unwrap());
    let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
    let containers = &spec["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(spec["required"], json!(["containers"]));
    let v2 = parsed(&v2_json(&held()));
    let port = &v2["definitions"]["io.k8s.api.core.v1.ServicePort"]["properties"];
    assert_eq!(port["protocol"]["default"], "TCP");
    assert_eq!(
        v2["definitions"]["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"],
        "int-or-string"
    );
}

#[test]
fn operation_ids_are_upstreams_and_unique() {
    let document = parsed(&v2_json(&held()));
    let mut ids = Vec::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            ids.extend(
                operation
                    .get("operationId")
                    .map(|id| id.as_str().unwrap().to_owned()),
            );
        }
    }
    for id in [
        "listCoreV1NamespacedPod",
        "listCoreV1PodForAllNamespaces",
        "deleteCoreV1CollectionNamespacedPod",
        "replaceAppsV1NamespacedDeploymentScale",
        "patchCoreV1NodeStatus",
        "readCoordinationV1NamespacedLease",
        "replaceCoreV1NamespaceFinalize",
        "createCoreV1NamespacedPodBinding",
        "createCoreV1NamespacedPodEviction",
        "createCoreV1NamespacedServiceAccountToken",
        "createCoreV1NamespacedBinding",
        "createAuthenticationV1SelfSubjectReview",
        "createAuthenticationV1TokenReview",
        "createAuthorizationV1NamespacedLocalSubjectAccessReview",
        "createAuthorizationV1SubjectAccessReview",
    ] {
        assert!(ids.iter().any(|i| i == id), "{id}");
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn groups_of_what_is_only_posted_have_documents() {
    let document = parsed(&document_of("apis/authorization.k8s.io/v1").unwrap());
    let path = "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews";
    let post = &document["paths"][path]["post"];
    let kind = "LocalSubjectAccessReview";
    assert_eq!(
        post["x-kubernetes-group-version-kind"],
        json!({"group": "authorization.k8s.io", "version": "v1", "kind": kind})
    );
    let schema = &document["components"]["schemas"][format!("io.k8s.api.authorization.v1.{kind}")];
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], kind);
    assert!(paths_of_all().contains(&"apis/authentication.k8s.io/v1".to_owned()));
    // Where there are only custom resources nothing of it is looked for.
    assert!(v3_paths(&[]).is_empty());
}

#[test]
fn unions_say_what_chooses() {
    let document = parsed(&document_of("apis/flowcontrol.apiserver.k8s.io/v1").unwrap());
    let schemas = &document["components"]["schemas"];
    let unions = &schemas["io.k8s.api.flowcontrol.v1.LimitResponse"]["x-kubernetes-unions"];
    let fields = json!({"queuing": "Queuing"});
    assert_eq!(
        *unions,
        json!([{"discriminator": "type", "fields-to-discriminateBy": fields}])
    );
}

#[test]
fn the_index_names_every_document_by_its_hash() {
    let documents: Vec<(String, String)> = paths_of_all()
        .into_iter()
        .map(|p| (p.clone(), document_of(&p).unwrap().hash))
        .collect();
    let index = parsed(&v3_index(&documents));
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let hash = url.strip_prefix("/openapi/v3/apis/apps/v1?hash=").unwrap();
    assert_eq!(hash.len(), 128);
    // The same document is the same bytes, or ETags would be worthless.
    assert_eq!(document_of("apis/apps/v1").unwrap().hash, hash);
    assert!(document_of("apis/none/v1").is_none());
}

/// Reads one protobuf message into (field, payload) pairs.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let number = varint(&mut bytes);
        match tag & 7 {
            0 => found.push((tag >> 3, number.to_le_bytes().to_vec())),
            2 => {
                let (payload, rest) = bytes.split_at(number as usize);
                found.push((tag >> 3, payload.to_vec()));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn field(bytes: &[u8], number: u64) -> Vec<u8> {
    fields(bytes)
        .into_iter()
        .find(|(n, _)| *n == number)
        .unwrap()
        .1
}

#[test]
fn protobuf_holds_the_same_document() {
    let json = parsed(&v2_json(&held()));
    let document = v2_protobuf(&held()).body;
    assert_eq!(field(&document, 1), b"2.0");
    assert_eq!(field(&field(&document, 2), 1), b"Kubernetes");
    let paths = fields(&field(&document, 8));
    assert_eq!(paths.len(), json["paths"].as_object().unwrap().len());
    let definitions = fields(&field(&document, 9));
    assert_eq!(
        definitions.len(),
        json["definitions"].as_object().unwrap().len()
    );
    let pod = definitions
        .iter()
        .map(|(_, named)| named)
        .find(|named| field(named, 1) == b"io.k8s.api.core.v1.Pod")
        .map(|named| field(named, 2))
        .unwrap();
    assert_eq!(field(&field(&pod, 22), 1), b"object");
    let extension = field(&pod, 31);
    assert_eq!(field(&extension, 1), b"x-kubernetes-group-version-kind");
    let yaml = field(&field(&extension, 2), 2);
    let kinds: Value = serde_json::from_slice(&yaml).unwrap();
    assert_eq!(
        kinds,
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let spec = fields(&field(&pod, 25))
        .into_iter()
        .find(|(_, named)| field(named, 1) == b"spec")
        .map(|(_, named)| field(&named, 2))
        .unwrap();
    assert_eq!(field(&spec, 1), b"#/definitions/io.k8s.api.core.v1.PodSpec");
    assert!(!field(&spec, 4).is_empty());
}
