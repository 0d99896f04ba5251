//! Writing objects and lists in the form the client asked for.
//!
//! The common case, JSON of an object as it is stored, never parses it: bytes
//! are copied with the resource version spliced in. Everything else (YAML,
//! Table, metadata only, another version, indented) goes through a `Value`.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use meta::{Object, Status};
use registry::Kind;
use serde_json::{Value, json};

use crate::body::BoxBody;
use crate::negotiation::{Accepted, Media, Shape};
use crate::pipeline::Context;
use crate::storage::ListResult;
use crate::table::{IncludeObject, Table};

/// Returns an object in a kind's version, as a client sees it.
pub(crate) fn view(kind: &Kind, object: &Object) -> Result<Value, Status> {
    let mut value = object
        .to_value()
        .map_err(|e| Status::internal(format!("stored object cannot be decoded: {e}")))?;
    kind.from_storage(&mut value);
    Ok(value)
}

/// Returns the metadata-only form of an object's view.
pub(crate) fn metadata_only(mut view: Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": view.get_mut("metadata").map(Value::take).unwrap_or_default(),
    })
}

/// Answers an object that is stored.
pub(crate) fn object(
    cx: &Context,
    accepted: Accepted,
    code: StatusCode,
    kind: &Kind,
    object: &Object,
) -> Result<Response<BoxBody>, Status> {
    if is_verbatim(kind, accepted) {
        return Ok(cx.respond(code, Media::Json.content_type(), object.to_json()));
    }
    self::value(cx, accepted, code, kind, view(kind, object)?)
}

/// Answers an object's view.
pub(crate) fn value(
    cx: &Context,
    accepted: Accepted,
    code: StatusCode,
    kind: &Kind,
    view: Value,
) -> Result<Response<BoxBody>, Status> {
    let shaped = match accepted.shape {
        Shape::Object | Shape::Discovery(_) => view,
        Shape::Metadata => metadata_only(view),
        Shape::Table(version) => {
            let mut table = Table::new(kind, version, IncludeObject::read(&cx.query)?);
            table.version = meta::value::str_at(&view, "metadata.resourceVersion").to_owned();
            table.push(kind, view, jiff::Timestamp::now());
            table.finish()
        }
    };
    plain(cx, accepted, code, &shaped)
}

/// Answers a value as it is.
pub(crate) fn plain(
    cx: &Context,
    accepted: Accepted,
    code: StatusCode,
    value: &Value,
) -> Result<Response<BoxBody>, Status> {
    Ok(cx.respond(
        code,
        accepted.media.content_type(),
        encode(accepted, value)?,
    ))
}

/// Encodes a value.
pub(crate) fn encode(accepted: Accepted, value: &Value) -> Result<Vec<u8>, Status> {
    let internal = |e: &dyn std::fmt::Display| Status::internal(format!("cannot encode: {e}"));
    match (accepted.media, accepted.pretty) {
        (Media::Json, false) => serde_json::to_vec(value).map_err(|e| internal(&e)),
        (Media::Json, true) => serde_json::to_vec_pretty(value).map_err(|e| internal(&e)),
        (Media::Yaml, _) => serde_saphyr::to_string(value)
            .map(String::into_bytes)
            .map_err(|e| internal(&e)),
    }
}

/// Tells whether stored bytes are the answer, but for the resource version.
pub(crate) fn is_verbatim(kind: &Kind, accepted: Accepted) -> bool {
    kind.conversion.is_none()
        && accepted
            == Accepted {
                media: Media::Json,
                shape: Shape::Object,
                pretty: false,
            }
}

/// Answers a list.
pub(crate) fn list(
    cx: &Context,
    accepted: Accepted,
    kind: &Kind,
    list: &ListResult,
) -> Result<Response<BoxBody>, Status> {
    let metadata = list_metadata(list);
    if is_verbatim(kind, accepted) {
        let bytes = verbatim_list(kind, &metadata, &list.items);
        return Ok(cx.respond(StatusCode::OK, Media::Json.content_type(), bytes));
    }
    let value = match accepted.shape {
        Shape::Object | Shape::Discovery(_) => json!({
            "kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata,
            "items": views(kind, &list.items)?,
        }),
        Shape::Metadata => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": views(kind, &list.items)?.into_iter().map(metadata_only).collect::<Vec<_>>(),
        }),
        Shape::Table(version) => {
            let mut table = Table::new(kind, version, IncludeObject::read(&cx.query)?);
            let now = jiff::Timestamp::now();
            for view in views(kind, &list.items)? {
                table.push(kind, view, now);
            }
            let mut table = table.finish();
            table["metadata"] = metadata;
            table
        }
    };
    plain(cx, accepted, StatusCode::OK, &value)
}

fn views(kind: &Kind, items: &[Arc<Object>]) -> Result<Vec<Value>, Status> {
    items.iter().map(|o| view(kind, o)).collect()
}

fn list_metadata(list: &ListResult) -> Value {
    let mut metadata = json!({"resourceVersion": list.resource_version.to_string()});
    if let Some(token) = &list.continue_token {
        metadata["continue"] = token.as_str().into();
    }
    if let Some(n) = list.remaining {
        metadata["remainingItemCount"] = n.into();
    }
    metadata
}

fn verbatim_list(kind: &Kind, metadata: &Value, items: &[Arc<Object>]) -> Bytes {
    let size: usize = items.iter().map(|o| o.body().len() + 48).sum();
    let mut out = BytesMut::with_capacity(size + 256);
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        kind.list_kind,
        kind.api_version(),
    );
    out.put_slice(head.as_bytes());
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.put_u8(b',');
        }
        item.encode_json(&mut out);
    }
    out.put_slice(b"]}");
    out.freeze()
}
