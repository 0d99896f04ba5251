//! Lists in frames are the lists that one would write at once.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::HeaderMap;
use meta::object::Encoding;
use meta::{Object, ResourceVersion};
use registry::kinds;
use serde_json::{Value, json};

use super::*;
use crate::negotiation::{self, Offer};
use crate::protobuf;
use crate::query::Query;
use crate::respond::{meta_version, metadata_only};
use crate::storage::ListResult;
use crate::table::Table;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const BINARY_METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

fn accepted(media: &str, query: &str) -> Accepted {
    let mut headers = HeaderMap::new();
    headers.insert("accept", media.parse().unwrap());
    let query = Query::parse(query).unwrap();
    negotiation::accept(&headers, &query, Offer::Resource).unwrap()
}

fn stored(value: &Value, version: u64) -> Arc<Object> {
    let body = Bytes::from(value.to_string());
    Arc::new(Object::decode(body, ResourceVersion(version), Vec::new()).unwrap())
}

/// Returns a pod, large ones now and then, with what is hard to lay out.
fn pod(n: usize) -> Arc<Object> {
    let text = match n % 97 {
        5 => "long ".repeat(30_000),
        7 => "two\nlines\n\n  and: more\n\n".to_owned(),
        _ => "x".repeat(n % 1500),
    };
    let value = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": format!("pod-{n:05}"), "namespace": "default", "uid": n.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"note": text},
            "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
            "containerStatuses": [{"name": "c", "ready": true, "restartCount": 2,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}}]}
    });
    stored(&value, 100 + n as u64)
}

fn pods(count: usize) -> Vec<Arc<Object>> {
    (0..count).map(pod).collect()
}

fn pod_kind() -> KindRef {
    kinds::find("", "v1", "pods").unwrap().into()
}

fn listing(items: &[Arc<Object>]) -> Listing {
    Listing::from(ListResult {
        items: items.to_vec(),
        resource_version: 7000,
        continue_token: Some("token".to_owned()),
        remaining: Some(3),
    })
}

/// Makes the list of a kind as a tree.
fn whole(kind: &KindRef, accepted: Accepted, include: IncludeObject, list: &Listing) -> Value {
    let mut items = list.items.clone();
    let views = std::iter::from_fn(|| items.take()).map(|o| respond::view(kind, &o).unwrap());
    let metadata = metadata(list);
    match accepted.shape {
        Shape::Table(version) => {
            let mut table = Table::new(kind, version, include);
            views.for_each(|view| table.push(kind, view, jiff::Timestamp::now()));
            let mut table = table.finish();
            table["metadata"] = metadata;
            table
        }
        Shape::MetadataList(version) => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": meta_version(version),
            "metadata": metadata,
            "items": views.map(|view| metadata_only(view, version)).collect::<Vec<_>>(),
        }),
        _ => json!({
            "kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata,
            "items": views.collect::<Vec<_>>(),
        }),
    }
}

async fn take(mut frames: Frames) -> Result<Vec<Bytes>, Status> {
    let mut taken = Vec::new();
    while let Some(frame) = frames.next().await? {
        taken.push(frame);
    }
    Ok(taken)
}

fn read(media: Media, bytes: &[u8]) -> Value {
    match media {
        Media::Json => serde_json::from_slice(bytes).unwrap(),
        Media::Yaml => serde_saphyr::from_slice(bytes).unwrap(),
        Media::Protobuf => protobuf::decode(bytes, "").unwrap(),
    }
}

/// Lists objects and compares with the list made at once. Returns how many frames it
/// took.
async fn check(kind: &KindRef, media: &str, query: &str, items: &[Arc<Object>]) -> usize {
    let accepted = accepted(media, query);
    let include = IncludeObject::read(&Query::parse(query).unwrap()).unwrap();
    let list = listing(items);
    let mut want = whole(kind, accepted, include, &list);
    let frames = Frames::new(kind.clone(), accepted, include, list).unwrap();
    let frames = take(frames).await.unwrap();
    let largest = items.iter().map(|o| o.body().len()).max().unwrap_or(0);
    // Indented objects are longer than they are stored.
    let most = FRAME_BYTES + 3 * largest + 4096;
    for frame in &frames {
        assert!(frame.len() < most, "{media}: a frame of {}", frame.len());
    }
    let count = frames.len();
    let mut got = read(accepted.media, &join(frames));
    if accepted.media == Media::Protobuf {
        // Both as that tells them: zeros are not told apart from nothing.
        want = protobuf::decode(&protobuf::encode(&want).unwrap(), "").unwrap();
    }
    // Compared one by one, so that a failure can be read.
    for name in ["items", "rows"] {
        let [a, b] = [&mut got, &mut want].map(|list| list[name].take());
        let [a, b] = [&a, &b].map(|items| items.as_array().map_or(&[][..], Vec::as_slice));
        assert_eq!(a.len(), b.len(), "{media}?{query}");
        for (a, b) in a.iter().zip(b) {
            assert_eq!(a, b, "{media}?{query}");
        }
    }
    assert_eq!(got, want, "{media}?{query}");
    count
}

#[tokio::test]
async fn frames_add_up_to_the_list() {
    let all = pods(1200);
    let kind = pod_kind();
    for (media, query) in [
        (JSON, ""),
        (JSON, "pretty=1"),
        (PROTOBUF, ""),
        (TABLE, ""),
        (TABLE, "includeObject=None"),
        (TABLE, "includeObject=Object"),
        (TABLE, "pretty=1"),
        (METADATA, ""),
        (BINARY_METADATA, ""),
    ] {
        for count in [0, 1, 2, 40] {
            check(&kind, media, query, &all[..count]).await;
        }
        let frames = check(&kind, media, query, &all).await;
        let least = if query == "includeObject=None" { 5 } else { 10 };
        assert!(frames >= least, "{media}?{query}: {frames} frames");
        // Once more, now that objects know how long they are.
        assert_eq!(check(&kind, media, query, &all).await, frames);
    }
    for count in [0, 1, 120] {
        check(&kind, YAML, "", &all[..count]).await;
    }
}

#[tokio::test]
async fn small_lists_are_one_frame() {
    let few = pods(4);
    for media in [JSON, PROTOBUF, TABLE, METADATA, BINARY_METADATA, YAML] {
        assert_eq!(check(&pod_kind(), media, "", &few).await, 1, "{media}");
    }
}

#[tokio::test]
async fn converted_kinds_are_listed_as_they_are_served() {
    let kind = kinds::find("events.k8s.io", "v1", "events").unwrap();
    let other = kinds::find("", "v1", "events").unwrap();
    let kind = if kind.is_stored_form() { other } else { kind };
    assert!(!kind.is_stored_form());
    let events: Vec<_> = (0..800_usize)
        .map(|n| {
            let mut value = json!({
                "kind": "Event", "apiVersion": kind.api_version(),
                "metadata": {"name": format!("e{n}"), "namespace": "default"},
                "reason": "Because", "type": "Normal", "message": "m".repeat(n),
            });
            kind.to_storage(&mut value);
            stored(&value, n as u64 + 1)
        })
        .collect();
    for media in [JSON, PROTOBUF, TABLE, METADATA, BINARY_METADATA] {
        check(&KindRef::from(kind), media, "", &events).await;
    }
}

#[tokio::test]
async fn lists_of_every_kind_have_the_cells_of_their_objects() {
    // What cells are made of is not all of an object: no kind may show the rest.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/tests/objects");
    let mut seen = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        // Some are there to be refused.
        let Ok(mut value) = serde_saphyr::from_str::<Value>(&text) else {
            continue;
        };
        let (api_version, kind) = meta::value::type_meta(&value);
        let Some(kind) = kinds::find_kind(api_version, kind) else {
            continue;
        };
        if kind.conform(&mut value).is_err() {
            continue;
        }
        let by = json!([{"manager": "m", "operation": "Update"}]);
        meta::value::set_metadata(&mut value, "managedFields", by);
        kind.to_storage(&mut value);
        check(&KindRef::from(kind), TABLE, "", &[stored(&value, 1)]).await;
        seen.insert(kind.plural);
    }
    assert!(seen.len() > 20, "{seen:?}");
}

fn frames_of(media: &str, items: &[Arc<Object>]) -> Frames {
    let accepted = accepted(media, "");
    Frames::new(
        pod_kind(),
        accepted,
        IncludeObject::Metadata,
        listing(items),
    )
    .unwrap()
}

#[tokio::test]
async fn what_cannot_be_written_fails_before_the_first_frame() {
    let mut all = pods(900);
    let broken = json!({"metadata": {"name": "a"}, "spec": {"containers": {}}});
    all.push(stored(&broken, 1));
    let refused = frames_of(PROTOBUF, &all).next().await.unwrap_err();
    assert_eq!(refused.code, 500);
}

#[tokio::test]
async fn a_list_that_is_not_as_long_as_it_said_breaks_off() {
    let all = pods(900);
    take(frames_of(PROTOBUF, &all)).await.unwrap();
    let known = all[800].size_in(Encoding::Protobuf).unwrap();
    for wrong in [known - 1, known + 1] {
        all[800].keep_size(Encoding::Protobuf, wrong);
        let later = Instant::now() + Duration::from_secs(60);
        let body = stream::body(Parts::Plain(frames_of(PROTOBUF, &all)), later);
        let parts: Vec<_> = body.collect().await;
        let (last, others) = parts.split_last().unwrap();
        assert!(last.is_err());
        assert!(others.len() > 3 && others.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn what_nobody_takes_is_let_go() {
    let all = pods(900);
    let last = all[899].clone();
    for media in [JSON, PROTOBUF] {
        // Made beforehand, as an answer does it.
        let mut frames = frames_of(media, &all);
        let first = frames.next().await.unwrap().unwrap();
        frames.made = vec![first].into_iter();
        let deadline = Instant::now() + Duration::from_secs(3);
        let mut body = Box::pin(stream::body(Parts::Plain(frames), deadline));
        assert!(body.next().await.unwrap().is_ok());
        assert_eq!(Arc::strong_count(&last), 3);
        let gone = async {
            while Arc::strong_count(&last) > 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let gone = tokio::time::timeout(Duration::from_secs(20), gone);
        gone.await.expect("nobody asked for it");
        assert!(body.next().await.unwrap().is_err());
        assert!(body.next().await.is_none());
    }
}

#[tokio::test]
async fn compressed_frames_add_up_too() {
    let all = pods(900);
    let plain = join(take(frames_of(JSON, &all)).await.unwrap());
    let mut parts = Parts::Gzip(Box::new(Gzip::new(frames_of(JSON, &all))));
    let mut packed = Vec::new();
    while let Some(frame) = parts.next().await.unwrap() {
        assert!(!frame.is_empty() && frame.len() < 2 * FRAME_BYTES);
        packed.push(frame);
    }
    let mut unpacked = Vec::new();
    let packed = join(packed);
    let mut decoder = flate2::read::GzDecoder::new(&packed[..]);
    decoder.read_to_end(&mut unpacked).unwrap();
    assert!(plain == unpacked);
}
