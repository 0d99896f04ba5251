//! Discovery: which groups, versions, resources and verbs there are.
//!
//! Two forms of the same facts. The aggregated one is a single document per
//! root; clients tell it from the old one by the response's `Content-Type`,
//! which therefore carries the parameters g, v and as, in that order. The old
//! one is a tree of small documents. All are made once: kinds do not change
//! while the server runs.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{Response, StatusCode};
use meta::Status;
use registry::Kind;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::api::Api;
use crate::body::{self, BoxBody};
use crate::negotiation::{Media, Offer, Shape};
use crate::pipeline::Context;
use crate::respond;
use crate::subresources::{UNSTORED, Unstored};

/// The aggregated documents, made when first asked for.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    documents: [OnceLock<Document>; 4],
}

#[derive(Debug)]
struct Document {
    bytes: Bytes,
    etag: HeaderValue,
}

/// A resource as discovery sees it, stored or not.
enum Entry {
    Stored(&'static Kind),
    Unstored(&'static Unstored),
}

impl Entry {
    fn coordinates(&self) -> (&'static str, &'static str) {
        match self {
            Self::Stored(k) => (k.group, k.version),
            Self::Unstored(u) => (u.group, u.version),
        }
    }
}

/// Lists every resource by group and version, the core group first.
fn entries() -> BTreeMap<(&'static str, &'static str), Vec<Entry>> {
    let mut all: BTreeMap<_, Vec<Entry>> = BTreeMap::new();
    let stored = registry::kinds::all().iter().map(|k| Entry::Stored(k));
    for entry in stored.chain(UNSTORED.iter().map(Entry::Unstored)) {
        all.entry(entry.coordinates()).or_default().push(entry);
    }
    all
}

/// Answers `/api` or `/apis`.
pub(crate) fn root(api: &Api, cx: &Context, root: &str) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Discovery)?;
    let core = root == "api";
    let Shape::Discovery(version) = accepted.shape else {
        let plain = if core { api_versions() } else { group_list() };
        let mut response = respond::plain(cx, accepted, StatusCode::OK, &plain)?;
        response
            .headers_mut()
            .insert(VARY, HeaderValue::from_static("Accept"));
        return Ok(response);
    };
    let beta = version == "v2beta1";
    let slot = usize::from(core) * 2 + usize::from(beta);
    let document = api.discovery.documents[slot].get_or_init(|| aggregated(core, version));
    let content_type = match beta {
        true => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        false => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    };
    let mut response = match matches_etag(cx, &document.etag) {
        true => {
            let mut response = Response::new(body::full(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => cx.respond(StatusCode::OK, content_type, document.bytes.clone()),
    };
    response.headers_mut().insert(ETAG, document.etag.clone());
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Tells whether the client has this version already.
pub(crate) fn matches_etag(cx: &Context, etag: &HeaderValue) -> bool {
    let given = cx
        .headers
        .get(IF_NONE_MATCH)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let is = etag.to_str().unwrap_or_default();
    given == "*"
        || given
            .split(',')
            .any(|e| e.trim().trim_start_matches("W/") == is)
}

fn aggregated(core: bool, version: &str) -> Document {
    let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for ((group, v), entries) in entries() {
        if group.is_empty() == core {
            let resources: Vec<Value> = entries.iter().map(aggregated_resource).collect();
            groups.entry(group).or_default().push(json!({
                "version": v, "resources": resources, "freshness": "Current",
            }));
        }
    }
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(group, versions)| {
            let mut metadata = json!({"creationTimestamp": null});
            if !group.is_empty() {
                metadata["name"] = group.into();
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    });
    let bytes = Bytes::from(list.to_string());
    let etag = etag(&bytes);
    Document { bytes, etag }
}

/// Returns the strong tag of a document.
pub(crate) fn etag(bytes: &[u8]) -> HeaderValue {
    let hash = Sha512::digest(bytes);
    let hex: String = hash.iter().map(|b| format!("{b:02X}")).collect();
    HeaderValue::from_str(&format!("\"{hex}\"")).expect("hex digits are a header value")
}

fn scope(namespaced: bool) -> &'static str {
    if namespaced { "Namespaced" } else { "Cluster" }
}

fn aggregated_resource(entry: &Entry) -> Value {
    match entry {
        Entry::Unstored(u) => json!({
            "resource": u.plural,
            "responseKind": {"group": u.group, "version": u.version, "kind": u.kind},
            "scope": scope(u.namespaced), "singularResource": u.singular, "verbs": ["create"],
        }),
        Entry::Stored(k) => {
            let mut r = json!({
                "resource": k.plural,
                "responseKind": {"group": k.group, "version": k.version, "kind": k.kind},
                "scope": scope(k.namespaced), "singularResource": k.singular, "verbs": k.verbs,
            });
            words(&mut r, k);
            if !k.subresources.is_empty() {
                let list: Vec<Value> = k.subresources.iter().map(|s| json!({
                    "subresource": s.name,
                    "responseKind": {"group": s.group, "version": s.version, "kind": s.kind},
                    "verbs": s.verbs,
                })).collect();
                r["subresources"] = list.into();
            }
            r
        }
    }
}

fn words(resource: &mut Value, kind: &Kind) {
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
}

fn api_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    })
}

/// Returns the APIGroup documents of all named groups.
fn groups() -> Vec<Value> {
    let mut versions: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (group, version) in entries().into_keys().filter(|(g, _)| !g.is_empty()) {
        versions.entry(group).or_default().push(json!({
            "groupVersion": format!("{group}/{version}"), "version": version,
        }));
    }
    versions
        .into_iter()
        .map(|(name, versions)| {
            json!({"name": name, "preferredVersion": versions[0], "versions": versions})
        })
        .collect()
}

fn group_list() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups()})
}

/// Answers `/apis/{group}`.
pub(crate) fn group(_: &Arc<Api>, cx: &Context, name: &str) -> Result<Response<BoxBody>, Status> {
    let mut found = groups()
        .into_iter()
        .find(|g| g["name"] == name)
        .ok_or_else(Status::no_such_path)?;
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    respond::plain(cx, cx.accept(Offer::Plain)?, StatusCode::OK, &found)
}

/// Answers `/api/{version}` or `/apis/{group}/{version}`.
pub(crate) fn resources(
    _: &Arc<Api>,
    cx: &Context,
    group: &str,
    version: &str,
) -> Result<Response<BoxBody>, Status> {
    let all = entries();
    let found = all
        .get(&(group, version))
        .ok_or_else(Status::no_such_path)?;
    let resources: Vec<Value> = found.iter().flat_map(plain_resources).collect();
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": meta::GroupVersion::new(group, version).to_string(),
        "resources": resources,
    });
    let accepted = cx.accept(Offer::Plain)?;
    debug_assert!(matches!(accepted.media, Media::Json | Media::Yaml));
    respond::plain(cx, accepted, StatusCode::OK, &list)
}

fn plain_resources(entry: &Entry) -> Vec<Value> {
    match entry {
        Entry::Unstored(u) => vec![json!({
            "name": u.plural, "singularName": u.singular, "namespaced": u.namespaced,
            "kind": u.kind, "verbs": ["create"],
        })],
        Entry::Stored(k) => {
            let mut main = json!({
                "name": k.plural, "singularName": k.singular, "namespaced": k.namespaced,
                "kind": k.kind, "verbs": k.verbs,
            });
            words(&mut main, k);
            let mut all = vec![main];
            all.extend(k.subresources.iter().map(|s| {
                let mut r = Map::new();
                r.insert("name".into(), format!("{}/{}", k.plural, s.name).into());
                r.insert("singularName".into(), "".into());
                r.insert("namespaced".into(), k.namespaced.into());
                r.insert("kind".into(), s.kind.into());
                r.insert("verbs".into(), json!(s.verbs));
                if (s.group, s.version) != (k.group, k.version) {
                    r.insert("group".into(), s.group.into());
                    r.insert("version".into(), s.version.into());
                }
                Value::Object(r)
            }));
            all
        }
    }
}
