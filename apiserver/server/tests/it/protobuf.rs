//! Every verb on every built-in kind with bodies and answers in protobuf.
//!
//! The bodies are what the server itself writes, with only the metadata changed, by
//! code that is not the server's; that others read and write the same is shown in
//! `src/protobuf/test/` and by real clients.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::Full;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta_v1;
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use meta_v1::ObjectMeta;
use prost::Message;
use registry::Kind;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, PATIENCE, config_map, deployment, pod, service};
use crate::{groups, kinds};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";

/// Any kind's list.
#[derive(Clone, PartialEq, prost::Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<meta_v1::ListMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
}

/// Any kind's object, of which only the metadata is read.
#[derive(Clone, PartialEq, prost::Message)]
struct Object {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

/// A kind, where its objects are, and one of them.
struct Case {
    kind: &'static Kind,
    path: String,
    object: Value,
}

impl Case {
    fn new(path: &str, object: Value) -> Self {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (group, version) = match parts.as_slice() {
            ["api", version, ..] => ("", *version),
            ["apis", group, version, ..] => (*group, *version),
            _ => panic!("{path}"),
        };
        let kind = registry::kinds::find(group, version, parts[parts.len() - 1]);
        let mut case = Self {
            kind: kind.unwrap_or_else(|| panic!("{path}")),
            path: path.to_owned(),
            object,
        };
        if case.object["metadata"]["name"].is_null() {
            case.object["metadata"]["name"] = json!("x");
        }
        case
    }

    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap()
    }

    fn one(&self) -> String {
        format!("{}/{}", self.path, self.name())
    }

    /// Opens the envelope of an object of the kind.
    #[track_caller]
    fn open(&self, bytes: &[u8]) -> Vec<u8> {
        open(bytes, &self.kind.api_version(), self.kind.kind)
    }
}

/// One case for every kind that is stored.
fn cases() -> Vec<Case> {
    let definition = json!({"metadata": {"name": "things.a.io"}, "spec": {"group": "a.io", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-preserve-unknown-fields": true}}}}}]}});
    let template = json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    // Else its selector has the uid, which the next one will not have.
    let job = json!({"spec": {"manualSelector": true, "template": template,
        "selector": {"matchLabels": {"app": "x"}}}});
    let mut replicas = deployment("x");
    replicas["kind"] = json!("ReplicaSet");
    let event = json!({"involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "R", "message": "m", "count": 3});
    let new_event = json!({"metadata": {"name": "y"}, "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "R", "action": "a", "type": "Normal", "reportingController": "a.io/c",
        "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000007Z"});
    let core = "/api/v1/namespaces/default";
    let of = |group: &str, plural: &str| format!("/apis/{group}/namespaces/default/{plural}");
    let more = [
        ("/api/v1/namespaces".to_owned(), json!({})),
        (
            "/api/v1/nodes".to_owned(),
            json!({"spec": {"podCIDR": "10.0.0.0/24"}}),
        ),
        (format!("{core}/configmaps"), config_map("x")),
        (format!("{core}/events"), event),
        (format!("{core}/pods"), pod("x")),
        (format!("{core}/secrets"), json!({"data": {"k": "AP8="}})),
        (
            format!("{core}/serviceaccounts"),
            json!({"automountServiceAccountToken": false}),
        ),
        (format!("{core}/services"), service("x")),
        (of("apps/v1", "deployments"), deployment("x")),
        (of("apps/v1", "replicasets"), replicas),
        (
            of("coordination.k8s.io/v1", "leases"),
            json!({"spec": {"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.000007Z"}}),
        ),
        (of("events.k8s.io/v1", "events"), new_event),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
            definition,
        ),
    ];
    let grouped = groups::one_of_each()
        .into_iter()
        .map(|(group, plural, namespaced, object)| {
            let scope = if namespaced {
                "namespaces/default/"
            } else {
                ""
            };
            (format!("/apis/{group}/v1/{scope}{plural}"), object)
        });
    let others = kinds::cases().into_iter().map(|case| {
        let object = if case.path.ends_with("/jobs") {
            job.clone()
        } else {
            case.object
        };
        (case.path, object)
    });
    let all = more.into_iter().chain(grouped).chain(others);
    all.map(|(path, object)| Case::new(&path, object)).collect()
}

#[test]
fn there_is_a_case_for_every_kind() {
    let cases = cases();
    for kind in registry::kinds::all().iter().filter(|k| k.allows("create")) {
        let there = cases.iter().any(|c| std::ptr::eq(c.kind, *kind));
        assert!(there, "{} {}", kind.api_version(), kind.kind);
    }
}

#[track_caller]
fn open(bytes: &[u8], api_version: &str, kind: &str) -> Vec<u8> {
    let unknown = Unknown::decode(bytes.strip_prefix(MAGIC).expect("the magic")).unwrap();
    let type_meta = unknown.type_meta.unwrap();
    assert_eq!(
        (type_meta.api_version(), type_meta.kind()),
        (api_version, kind)
    );
    unknown.raw.unwrap()
}

/// Puts a message of a type into its envelope.
fn enveloped(api_version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let unknown = Unknown {
        type_meta: Some(k8s_pb::apimachinery::pkg::runtime::TypeMeta {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
        }),
        raw: Some(raw),
        ..Unknown::default()
    };
    [MAGIC, &unknown.encode_to_vec()].concat()
}

fn metadata(raw: &[u8]) -> ObjectMeta {
    Object::decode(raw).unwrap().metadata.unwrap()
}

/// Changes the metadata of an object, and nothing else of it.
fn edited(raw: &[u8], edit: impl FnOnce(&mut ObjectMeta)) -> Vec<u8> {
    let mut metadata = metadata(raw);
    edit(&mut metadata);
    let mut object = Object {
        metadata: Some(metadata),
    }
    .encode_to_vec();
    let mut rest = raw;
    while !rest.is_empty() {
        let before = rest;
        let (number, wire) = prost::encoding::decode_key(&mut rest).unwrap();
        let context = prost::encoding::DecodeContext::default();
        prost::encoding::skip_field(wire, number, &mut rest, context).unwrap();
        if number != 1 {
            object.extend_from_slice(&before[..before.len() - rest.len()]);
        }
    }
    object
}

/// Sends a body in protobuf and asks for an answer in a form.
async fn send(api: &Api, method: Method, path: &str, body: Vec<u8>, accept: &str) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", PROTOBUF)
        .body(Full::new(body.into()))
        .unwrap();
    api.send(request).await
}

/// Reads a Status, which must be of this code and reason.
#[track_caller]
fn refused(answer: &Answer, code: u16, reason: &str) -> meta_v1::Status {
    assert_eq!(answer.code.as_u16(), code, "{}", answer.text());
    assert_eq!(answer.header("content-type"), PROTOBUF);
    let status = open(&answer.bytes, "v1", "Status");
    let status = meta_v1::Status::decode(status.as_slice()).unwrap();
    assert_eq!((status.code(), status.reason()), (i32::from(code), reason));
    status
}

/// Returns what was meant: without what the server makes anew for every object.
fn meant(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for own in [
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "managedFields",
    ] {
        metadata.remove(own);
    }
    for own in ["clusterIP", "clusterIPs"] {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove(own);
        }
    }
    object.as_object_mut().unwrap().remove("status");
    without_empty(&mut object);
    object
}

/// Takes out lists that are empty: on the wire they are as if they were not there.
fn without_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, inner| inner.as_array().is_none_or(|list| !list.is_empty()));
            map.values_mut().for_each(without_empty);
        }
        Value::Array(list) => list.iter_mut().for_each(without_empty),
        _ => {}
    }
}

/// Creates the object from a body in protobuf, and returns the object's bytes.
async fn created(api: &Api, case: &Case) -> Vec<u8> {
    let dry = format!("{}?dryRun=All", case.path);
    let wanted = api.post(&dry, &case.object).await.ok();
    let request = Request::post(&dry)
        .header("accept", PROTOBUF)
        .header("content-type", "application/json")
        .body(Full::new(case.object.to_string().into()))
        .unwrap();
    let tried = api.send(request).await;
    assert_eq!(tried.header("content-type"), PROTOBUF, "{}", case.path);
    let raw = edited(&case.open(&tried.bytes), |metadata| {
        metadata.uid = None;
        metadata.creation_timestamp = None;
        metadata.managed_fields.clear();
    });
    let body = enveloped(&case.kind.api_version(), case.kind.kind, raw);
    let made = send(
        api,
        Method::POST,
        &case.path,
        body.clone(),
        "application/json",
    )
    .await;
    assert_eq!(made.code.as_u16(), 201, "{} {}", case.path, made.text());
    assert_eq!(meant(made.ok()), meant(wanted), "{}", case.path);

    let again = send(api, Method::POST, &case.path, body, PROTOBUF).await;
    let status = match case.kind.kind {
        // Its address is looked at first, and is taken.
        "Service" => refused(&again, 422, "Invalid"),
        _ => refused(&again, 409, "AlreadyExists"),
    };
    assert_eq!(status.details.unwrap().name(), case.name());
    if case.kind.kind == "CustomResourceDefinition" {
        established(api, case).await;
    }
    let shown = api.get_as(&case.one(), PROTOBUF).await;
    assert_eq!(shown.header("content-type"), PROTOBUF);
    case.open(&shown.bytes)
}

/// Waits until nobody has anything more to write to a definition's status.
async fn established(api: &Api, case: &Case) {
    let served = async {
        loop {
            let definition = api.get(&case.one()).await.ok();
            let conditions = definition["status"]["conditions"].as_array();
            let is = |c: &Value| c["type"] == "Established" && c["status"] == "True";
            if conditions.is_some_and(|all| all.iter().any(is)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, served).await;
    waited.expect("the definition to be served");
}

async fn updated(api: &Api, case: &Case, raw: &[u8]) {
    let body = |raw| enveloped(&case.kind.api_version(), case.kind.kind, raw);
    let status = case.kind.subresource("status");
    let status = status.filter(|s| s.verbs.contains(&"update"));
    for door in [Some(""), status.map(|_| "/status")].into_iter().flatten() {
        let path = format!("{}{door}", case.one());
        let put = send(api, Method::PUT, &path, body(raw.to_vec()), PROTOBUF).await;
        assert_eq!(put.code.as_u16(), 200, "{path} {}", put.text());
        // It was understood to the last field, and so there was nothing to write.
        let version = metadata(&case.open(&put.bytes)).resource_version;
        assert_eq!(version, metadata(raw).resource_version, "{path}");
    }
    let labelled = edited(raw, |metadata| {
        metadata
            .labels
            .insert("by".to_owned(), "protobuf".to_owned());
    });
    let put = send(api, Method::PUT, &case.one(), body(labelled), PROTOBUF).await;
    let put = metadata(&case.open(&put.bytes));
    assert_eq!(put.labels["by"], "protobuf", "{}", case.path);
    assert_ne!(put.resource_version, metadata(raw).resource_version);
    let shown = api.get(&case.one()).await.ok();
    assert_eq!(shown["metadata"]["labels"]["by"], "protobuf");

    let stale = send(api, Method::PUT, &case.one(), body(raw.to_vec()), PROTOBUF).await;
    refused(&stale, 409, "Conflict");
    let patch = send(api, Method::PATCH, &case.one(), raw.to_vec(), PROTOBUF).await;
    let status = refused(&patch, 415, "UnsupportedMediaType");
    assert!(status.message().contains("application/apply-patch+yaml"));
}

async fn listed(api: &Api, case: &Case) {
    let one = case.open(&api.get_as(&case.one(), PROTOBUF).await.bytes);
    let all = api.get_as(&case.path, PROTOBUF).await;
    assert_eq!(all.header("content-type"), PROTOBUF);
    let all = open(&all.bytes, &case.kind.api_version(), case.kind.list_kind);
    let all = List::decode(all.as_slice()).unwrap();
    assert!(!all.metadata.unwrap().resource_version().is_empty());
    let mut items = all.items.iter();
    let item = items.find(|i| metadata(i).name() == case.name());
    assert_eq!(item.unwrap_or_else(|| panic!("{}", case.path)), &one);

    let table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io");
    for path in [&case.path, &case.one()] {
        let table = api.get_as(path, &table).await;
        assert_eq!(table.code.as_u16(), 406, "{path}");
    }
    let path = format!("{}?watch=1&resourceVersion=0", case.path);
    let mut watch = api.watch_as(&path, PROTOBUF).await;
    let stream = format!("{PROTOBUF};stream=watch");
    assert_eq!(watch.headers["content-type"], stream.as_str());
    loop {
        let event = watch.message().await.expect("an event");
        let event = meta_v1::WatchEvent::decode(event.as_slice()).unwrap();
        assert_eq!(event.r#type(), "ADDED");
        let shown = case.open(&event.object.unwrap().raw.unwrap());
        if metadata(&shown).name() == case.name() {
            assert_eq!(shown, one, "{}", case.path);
            return;
        }
    }
}

async fn deleted(api: &Api, case: &Case) {
    let with =
        |options: meta_v1::DeleteOptions| enveloped("v1", "DeleteOptions", options.encode_to_vec());
    let other = with(meta_v1::DeleteOptions {
        preconditions: Some(meta_v1::Preconditions {
            uid: Some("other".to_owned()),
            ..meta_v1::Preconditions::default()
        }),
        ..meta_v1::DeleteOptions::default()
    });
    let kept = send(api, Method::DELETE, &case.one(), other, PROTOBUF).await;
    refused(&kept, 409, "Conflict");
    let now = with(meta_v1::DeleteOptions {
        grace_period_seconds: Some(0),
        propagation_policy: Some("Background".to_owned()),
        ..meta_v1::DeleteOptions::default()
    });
    let gone = send(api, Method::DELETE, &case.one(), now, PROTOBUF).await;
    assert_eq!(gone.code.as_u16(), 200, "{} {}", case.path, gone.text());
    assert_eq!(gone.header("content-type"), PROTOBUF);
    // Who has a finalizer is still there.
    let left = api.get_as(&case.one(), PROTOBUF).await;
    if left.code.is_success() {
        let metadata = metadata(&case.open(&left.bytes));
        assert!(metadata.deletion_timestamp.is_some(), "{}", case.path);
    } else {
        let status = refused(&left, 404, "NotFound");
        assert!(status.message().contains(case.name()));
    }
}

#[tokio::test]
async fn every_kind_goes_through_every_verb_in_protobuf() {
    let api = Api::start().await;
    for case in cases() {
        let raw = created(&api, &case).await;
        updated(&api, &case, &raw).await;
        listed(&api, &case).await;
        deleted(&api, &case).await;
    }
    // These are found when they are asked for.
    let one = api
        .get_as("/api/v1/componentstatuses/etcd-0", PROTOBUF)
        .await;
    let one = open(&one.bytes, "v1", "ComponentStatus");
    assert_eq!(metadata(&one).name(), "etcd-0");
}
