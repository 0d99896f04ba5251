//! Discovery: which groups, versions, resources and verbs there are.
//!
//! Two forms of the same facts. The aggregated one is a single document per
//! root; clients tell it from the old one by the response's `Content-Type`,
//! which therefore carries the parameters g, v and as, in that order. The old
//! one is a tree of small documents. The aggregated ones are made once for each
//! state of the custom resources.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{Response, StatusCode};
use meta::Status;
use registry::crd::Priority;
use registry::unstored::{UNSTORED, Unstored};
use registry::{Kind, KindRef};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};

use crate::api::Api;
use crate::body::{self, BoxBody};
use crate::negotiation::{Media, Offer, Shape};
use crate::pipeline::Context;
use crate::protobuf;
use crate::resources::Custom;
use crate::respond;

/// The aggregated documents, made when first asked for.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    documents: [OnceLock<Document>; 4],
}

/// One document in every form. The tag is that of the JSON whatever the form,
/// as upstream's is: it stands for what is said.
#[derive(Debug)]
struct Document {
    json: Bytes,
    protobuf: Bytes,
    list: Value,
    etag: HeaderValue,
}

/// A resource as discovery sees it, stored or not.
enum Entry {
    Stored(KindRef),
    Unstored(&'static Unstored),
}

/// A group and a version of it, in the order of groups by name, of versions
/// by maturity and number.
type GroupedBy = (&'static str, Priority<'static>);

impl Entry {
    fn coordinates(&self) -> GroupedBy {
        match self {
            Self::Stored(k) => (k.group, Priority(k.version)),
            Self::Unstored(u) => (u.group, Priority(u.version)),
        }
    }
}

/// The resources of a group version.
type Listed = (GroupedBy, Vec<Entry>);

/// Lists every resource by group and version, in the order in which clients
/// prefer them.
fn entries(custom: &Custom) -> Vec<Listed> {
    let mut all: BTreeMap<_, Vec<Entry>> = BTreeMap::new();
    let stored = custom.all_kinds().into_iter().map(Entry::Stored);
    for entry in stored.chain(UNSTORED.iter().map(Entry::Unstored)) {
        all.entry(entry.coordinates()).or_default().push(entry);
    }
    let mut all: Vec<Listed> = all.into_iter().collect();
    // Stable: within a group the versions stay in their order.
    all.sort_by_key(|((group, _), _)| (registry::kinds::group_rank(group), *group));
    all
}

/// Answers `/api` or `/apis`.
pub(crate) fn root(api: &Api, cx: &Context, root: &str) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Discovery)?;
    let core = root == "api";
    let Shape::Discovery(version) = accepted.shape else {
        let plain = match core {
            true => api_versions(),
            false => group_list(&api.resources.custom()),
        };
        let mut response = respond::plain(cx, accepted, StatusCode::OK, &plain)?;
        response
            .headers_mut()
            .insert(VARY, HeaderValue::from_static("Accept"));
        return Ok(response);
    };
    let beta = version == "v2beta1";
    let slot = usize::from(core) * 2 + usize::from(beta);
    let custom = api.resources.custom();
    let document =
        custom.discovery.documents[slot].get_or_init(|| aggregated(&custom, core, version));
    let mut response = match matches_etag(cx, &document.etag) {
        true => {
            let mut response = Response::new(body::full(Bytes::new()));
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => {
            let bytes = match accepted.media {
                Media::Json if !accepted.pretty => document.json.clone(),
                Media::Protobuf => document.protobuf.clone(),
                _ => respond::encode(accepted, &document.list)?,
            };
            cx.respond(StatusCode::OK, typed(accepted.media, beta), bytes)
        }
    };
    let public = HeaderValue::from_static("public");
    response.headers_mut().insert(CACHE_CONTROL, public);
    response.headers_mut().insert(ETAG, document.etag.clone());
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// Returns the `Content-Type`, by which clients tell the aggregated document
/// from the old one.
fn typed(media: Media, beta: bool) -> &'static str {
    macro_rules! forms {
        ($media:literal) => {
            match beta {
                true => concat!(
                    $media,
                    ";g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
                ),
                false => concat!(
                    $media,
                    ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                ),
            }
        };
    }
    match media {
        Media::Json => forms!("application/json"),
        Media::Yaml => forms!("application/yaml"),
        Media::Protobuf => forms!("application/vnd.kubernetes.protobuf"),
    }
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

fn aggregated(custom: &Custom, core: bool, version: &str) -> Document {
    let mut groups = Vec::new();
    for ((group, Priority(v)), entries) in entries(custom) {
        if group.is_empty() == core {
            let resources: Vec<Value> = entries.iter().map(aggregated_resource).collect();
            push(
                &mut groups,
                group,
                json!({
                    "version": v, "resources": resources, "freshness": "Current",
                }),
            );
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
    let json = Bytes::from(list.to_string());
    let etag = etag(&json);
    let protobuf = protobuf::encode(&list).unwrap_or_else(|error| {
        tracing::error!(%error, "discovery cannot be shown in protobuf");
        Bytes::new()
    });
    Document {
        json,
        protobuf,
        list,
        etag,
    }
}

/// Adds a version to its group, which comes last or is the last.
fn push(groups: &mut Vec<(&'static str, Vec<Value>)>, group: &'static str, version: Value) {
    match groups.last_mut() {
        Some((last, versions)) if *last == group => versions.push(version),
        _ => groups.push((group, vec![version])),
    }
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
                "scope": scope(k.namespaced), "singularResource": k.singular, "verbs": verbs(k),
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

/// What is still offered of a kind that is going away: nothing that writes.
const VERBS_OF_ENDING: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

fn verbs(kind: &Kind) -> &'static [&'static str] {
    match kind.strategy().is_ending() {
        true => VERBS_OF_ENDING,
        false => kind.verbs,
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
fn groups(custom: &Custom) -> Vec<Value> {
    let mut groups = Vec::new();
    let all = entries(custom).into_iter();
    for ((group, Priority(version)), _) in all.filter(|((g, _), _)| !g.is_empty()) {
        let version = json!({
            "groupVersion": format!("{group}/{version}"), "version": version,
        });
        push(&mut groups, group, version);
    }
    groups
        .into_iter()
        .map(|(name, versions)| {
            json!({"name": name, "preferredVersion": versions[0], "versions": versions})
        })
        .collect()
}

fn group_list(custom: &Custom) -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups(custom)})
}

/// Answers `/apis/{group}`.
pub(crate) fn group(api: &Arc<Api>, cx: &Context, name: &str) -> Result<Response<BoxBody>, Status> {
    let mut found = groups(&api.resources.custom())
        .into_iter()
        .find(|g| g["name"] == name)
        .ok_or_else(Status::no_such_path)?;
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    respond::plain(cx, cx.accept(Offer::Plain)?, StatusCode::OK, &found)
}

/// Answers `/api/{version}` or `/apis/{group}/{version}`.
pub(crate) fn resources(
    api: &Arc<Api>,
    cx: &Context,
    group: &str,
    version: &str,
) -> Result<Response<BoxBody>, Status> {
    let found = entries(&api.resources.custom())
        .into_iter()
        .find_map(|((g, Priority(v)), found)| ((g, v) == (group, version)).then_some(found))
        .ok_or_else(Status::no_such_path)?;
    let resources: Vec<Value> = found.iter().flat_map(plain_resources).collect();
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": meta::GroupVersion::new(group, version).to_string(),
        "resources": resources,
    });
    let accepted = cx.accept(Offer::Plain)?;
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
                "kind": k.kind, "verbs": verbs(k),
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
