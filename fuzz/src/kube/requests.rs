//! Whole requests, one after the other, to a server that keeps what they leave.
//!
//! Promised (`apiserver`): every request is answered in time; a refusal is a Status
//! that says so itself, and never a fault of the server; what was written can be read
//! in every form.

use std::sync::{Mutex, PoisonError};

use apiserver::fuzzing::{Answer, Door, Media, write};
use bytes::Bytes;
use http::{Method, Request};
use registry::Kind;
use serde_json::{Value, json};

use super::super::draw::Draw;
use super::{grow, seeds};

/// How many inputs one server takes: what is in it grows, and its store forgets
/// nothing.
const INPUTS_MAX: usize = 3_000;
/// The most requests one input makes.
const REQUESTS_MAX: usize = 6;

/// A server and how many inputs it took.
struct Stage {
    door: Door,
    inputs: usize,
    _certificates: tempfile::TempDir,
}

impl Stage {
    fn open() -> Self {
        let certificates = tempfile::tempdir().expect("a directory for temporary files");
        let stage = Self {
            door: Door::open(certificates.path()).expect("it starts"),
            inputs: 0,
            _certificates: certificates,
        };
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let made = stage.ask(Method::POST, path, "", "application/json", definition());
        assert_eq!(made.code, 201, "{}", made.body.escape_ascii());
        stage
    }

    fn ask(&self, method: Method, path: &str, accept: &str, media: &str, body: Bytes) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !accept.is_empty() {
            request = request.header("accept", accept);
        }
        let request = request.header("content-type", media).body(body);
        let request = request.expect("its parts are right");
        let answer = self.door.ask(request);
        answer.unwrap_or_else(|hangs| panic!("{hangs}: {path}"))
    }
}

/// A kind of a client's own.
fn definition() -> Bytes {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1, "maximum": 9},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "size": {"x-kubernetes-int-or-string": true}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas"}}}]}});
    definition.to_string().into()
}

/// Makes requests.
pub fn requests(input: &[u8]) {
    static STAGE: Mutex<Option<Stage>> = Mutex::new(None);
    let mut place = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let stage = place.get_or_insert_with(Stage::open);
    let mut draw = Draw::new(input);
    for _ in 0..REQUESTS_MAX {
        if draw.is_empty() {
            break;
        }
        one(stage, &mut draw);
    }
    stage.inputs += 1;
    if stage.inputs >= INPUTS_MAX {
        *place = None;
    }
}

/// What a request is about.
struct About {
    kind: Option<&'static Kind>,
    object: Value,
    /// Up to the resource.
    path: String,
    name: &'static str,
}

fn about(draw: &mut Draw<'_>) -> About {
    let name = ["a", "b", "c", "A_b"][draw.below(4)];
    let (kind, mut object, path) = match draw.byte() % 5 {
        0 => {
            let object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {
                "replicas": 2, "tags": ["x"], "parts": [{"name": "a", "size": 1}], "free": {"z": 1}}});
            let path = "/apis/example.com/v1/namespaces/default/things".to_owned();
            (None, object, path)
        }
        how => {
            let (kind, object) = match how {
                1 => seeds::any(draw),
                _ => seeds::written(draw),
            };
            (Some(kind), object, collection(draw, kind))
        }
    };
    meta::value::set_metadata(&mut object, "name", name);
    meta::value::set_metadata(&mut object, "namespace", Value::Null);
    About {
        kind,
        object,
        path,
        name,
    }
}

fn collection(draw: &mut Draw<'_>, kind: &Kind) -> String {
    let root = match kind.group {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    match (kind.namespaced, draw.byte()) {
        (true, 0..248) => format!("{root}/namespaces/default/{}", kind.plural),
        (true, 248..252) => format!("{root}/namespaces/none/{}", kind.plural),
        _ => format!("{root}/{}", kind.plural),
    }
}

const SUBRESOURCES: [&str; 9] = [
    "status",
    "scale",
    "binding",
    "eviction",
    "finalize",
    "approval",
    "ephemeralcontainers",
    "resize",
    "nothing",
];

const QUERIES: [&str; 22] = [
    "",
    "",
    "",
    "dryRun=All",
    "fieldValidation=Strict",
    "fieldValidation=Ignore&fieldManager=m",
    "fieldManager=m&force=true",
    "fieldManager=m",
    "fieldManager=n",
    "limit=1",
    "labelSelector=app%3Dweb",
    "fieldSelector=metadata.name%3Da",
    "watch=1&timeoutSeconds=1",
    "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "watch=1&resourceVersion=3",
    "resourceVersion=0",
    "resourceVersion=2&resourceVersionMatch=Exact",
    "propagationPolicy=Orphan",
    "propagationPolicy=Foreground&gracePeriodSeconds=0",
    "pretty=true",
    "includeObject=Object",
    "limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NCwic3RhcnQiOiJhIn0",
];

const ACCEPTS: [&str; 8] = [
    "",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,*/*",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,*/*",
    "text/html",
];

/// Makes one request, and looks at what it left.
fn one(stage: &Stage, draw: &mut Draw<'_>) {
    let about = about(draw);
    let how = draw.byte() % 12;
    let (method, named) = match how {
        0..4 => (Method::POST, false),
        4 => (Method::PUT, true),
        5..9 => (Method::PATCH, true),
        9 => (Method::DELETE, true),
        10 => (Method::GET, true),
        _ => (Method::GET, false),
    };
    let mut path = about.path.clone();
    if named && draw.byte() < 250 {
        path = format!("{path}/{}", about.name);
        if draw.byte() < 40 {
            path = format!("{path}/{}", SUBRESOURCES[draw.below(SUBRESOURCES.len())]);
        }
    }
    let whole = format!("{path}?{}", QUERIES[draw.below(QUERIES.len())]);
    let accept = ACCEPTS[draw.below(ACCEPTS.len())];
    let (media, body) = match method {
        Method::POST | Method::PUT => body(draw, &about),
        Method::PATCH => patch(draw, &about),
        Method::DELETE => ("application/json", delete(draw)),
        _ => ("", Vec::new()),
    };
    let told = body.escape_ascii().to_string();
    let answer = stage.ask(method.clone(), &whole, accept, media, body.into());
    check(&answer, || {
        format!("{method} {whole} ({accept}) {media} {told}")
    });
    if answer.code.is_success() && how < 9 {
        let object = format!("{}/{}", about.path, about.name);
        let accept = ACCEPTS[draw.below(ACCEPTS.len())];
        let answer = stage.ask(Method::GET, &object, accept, "", Bytes::new());
        check(&answer, || {
            format!("GET {object} ({accept}) after {method} {whole} {told}")
        });
    }
}

/// Checks what every answer promises.
fn check(answer: &Answer, request: impl Fn() -> String) {
    let code = answer.code.as_u16();
    let text = || format!("{code} {} to {}", answer.body.escape_ascii(), request());
    if code < 400 {
        return;
    }
    if answer.content_type == "application/json" {
        let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        assert_eq!(status["kind"], "Status", "{}", text());
        assert_eq!(status["code"], code, "{}", text());
        assert!(status["message"].is_string(), "{}", text());
    }
    let said = String::from_utf8_lossy(&answer.body);
    let known = match code {
        // Upstream answers so too: to an applied object that does not fit its type, for
        // which it gives no reason, and to who scales what has no replicas.
        500 => !said.contains("InternalError") || said.contains("replicas field"),
        // What is not served yet, and what was asked too early.
        501 | 504 => true,
        _ => code < 500,
    };
    assert!(known, "{}", text());
}

fn written(media: Media, object: &Value) -> Option<Vec<u8>> {
    write(media, object).ok().map(|bytes| bytes.to_vec())
}

fn body(draw: &mut Draw<'_>, about: &About) -> (&'static str, Vec<u8>) {
    let mut object = about.object.clone();
    grow::changes(draw, &mut object);
    let media = match draw.byte() % 6 {
        0 => Media::Yaml,
        1 | 2 => Media::Protobuf,
        _ => Media::Json,
    };
    let bytes = match (media, about.kind) {
        (Media::Protobuf, Some(kind)) => match kind.conform(&mut object) {
            Ok(_) => {
                meta::value::set_type_meta(&mut object, &kind.gvk());
                written(media, &object)
            }
            Err(_) => None,
        },
        (Media::Protobuf, None) => None,
        _ => written(media, &object),
    };
    let mut bytes = bytes.unwrap_or_default();
    if draw.byte() < 6 {
        draw.damage(&mut bytes);
    }
    (media.content_type(), bytes)
}

fn patch(draw: &mut Draw<'_>, about: &About) -> (&'static str, Vec<u8>) {
    let mut object = about.object.clone();
    grow::changes(draw, &mut object);
    let operations = |draw: &mut Draw<'_>| {
        let paths = [
            "/metadata/labels",
            "/metadata/labels/x",
            "/spec",
            "/data/k",
            "/status",
            "",
        ];
        let word = ["add", "replace", "remove", "test"][draw.below(4)];
        json!([{"op": word, "path": paths[draw.below(paths.len())], "value": grow::value(draw, 1)}])
    };
    match draw.byte() % 5 {
        0 => (
            "application/merge-patch+json",
            object.to_string().into_bytes(),
        ),
        1 => (
            "application/strategic-merge-patch+json",
            object.to_string().into_bytes(),
        ),
        2 => (
            "application/json-patch+json",
            operations(draw).to_string().into_bytes(),
        ),
        3 => (
            "application/apply-patch+yaml",
            written(Media::Yaml, &object).unwrap_or_default(),
        ),
        _ => (
            "application/apply-patch+yaml",
            object.to_string().into_bytes(),
        ),
    }
}

fn delete(draw: &mut Draw<'_>) -> Vec<u8> {
    match draw.byte() % 4 {
        0 => {
            let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
                "gracePeriodSeconds": 0, "propagationPolicy": "Background",
                "preconditions": {"uid": "u"}});
            grow::changes(draw, &mut options);
            options.to_string().into_bytes()
        }
        _ => Vec::new(),
    }
}
