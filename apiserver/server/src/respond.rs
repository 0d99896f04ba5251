//! Writing objects in the form the client asked for; lists are written in
//! [`listing`](crate::listing).
//!
//! The common cases never make a tree of an object as it is stored: as JSON its
//! bytes are copied with the resource version spliced in, to protobuf they are
//! translated as they are read. Everything else (YAML, Table, another version,
//! indented) goes through a `Value`.

use bytes::Bytes;
use http::{Response, StatusCode};
use meta::{Object, Reason, Status};
use registry::Kind;
use serde_json::{Value, json};

use crate::body::{self, BoxBody};
use crate::negotiation::{Accepted, Media, Offer, Shape};
use crate::pipeline::Context;
use crate::protobuf::{self, EncodeError};
use crate::table::{IncludeObject, Table};

/// Returns an object in a kind's version, as a client sees it.
pub(crate) fn view(kind: &Kind, object: &Object) -> Result<Value, Status> {
    let mut value = object
        .to_value()
        .map_err(|e| Status::internal(format!("stored object cannot be decoded: {e}")))?;
    kind.from_storage(&mut value);
    Ok(value)
}

/// Returns the metadata-only form of an object's view, in a version of
/// `meta.k8s.io`.
pub(crate) fn metadata_only(mut view: Value, version: &str) -> Value {
    json!({
        "kind": METADATA,
        "apiVersion": meta_version(version),
        "metadata": view.get_mut("metadata").map(Value::take).unwrap_or_default(),
    })
}

/// The kind of an object's metadata alone.
pub(crate) const METADATA: &str = "PartialObjectMetadata";
/// The kind of a list of those.
pub(crate) const METADATA_LIST: &str = "PartialObjectMetadataList";

/// Returns a version of `meta.k8s.io` as `apiVersion` writes it.
pub(crate) fn meta_version(version: &str) -> String {
    format!("meta.k8s.io/{version}")
}

/// Answers an object that is stored.
pub(crate) fn object(
    cx: &Context,
    accepted: Accepted,
    code: StatusCode,
    kind: &Kind,
    object: &Object,
) -> Result<Response<BoxBody>, Status> {
    let bytes = match (is_verbatim(kind, accepted), accepted.media, accepted.shape) {
        (true, Media::Protobuf, _) => {
            protobuf::Type::find(&kind.api_version(), kind.kind).and_then(|t| t.object(object))
        }
        (true, _, _) => Ok(object.to_json()),
        (false, Media::Protobuf, Shape::Metadata(version)) if kind.is_stored_form() => {
            protobuf::Type::find(&meta_version(version), METADATA).and_then(|t| t.object(object))
        }
        _ => return self::value(cx, accepted, code, kind, view(kind, object)?),
    };
    let bytes = bytes.map_err(EncodeError::into_status)?;
    Ok(cx.respond(code, accepted.media.content_type(), bytes))
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
        Shape::Metadata(version) => metadata_only(view, version),
        Shape::MetadataList(_) => {
            let text = format!(
                "you requested {METADATA_LIST}, but the requested object is not a list ({})",
                go_type(kind, kind.kind)
            );
            return Err(Status::failure(Reason::NotAcceptable, text));
        }
        Shape::Table(version) => {
            let mut table = Table::new(kind, version, IncludeObject::read(&cx.query)?);
            table.version = meta::value::str_at(&view, "metadata.resourceVersion").to_owned();
            table.push(kind, view, jiff::Timestamp::now());
            table.finish()
        }
    };
    plain(cx, accepted, code, &shaped)
}

/// Names a type as upstream's messages do.
pub(crate) fn go_type(kind: &Kind, name: &str) -> String {
    let package = match kind.group {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("*{package}.{name}")
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

/// Answers what is no API object, and so is JSON whatever was asked for.
pub(crate) fn raw_json(value: &Value) -> Result<Response<BoxBody>, Status> {
    let bytes = serde_json::to_vec_pretty(value).map_err(Status::internal)?;
    Ok(body::respond(StatusCode::OK, body::JSON, bytes))
}

/// Answers a failure in the form the client asked for; in JSON if that cannot
/// be had, since a failure must not hide behind another one.
pub(crate) fn failure(cx: &Context, status: &Status) -> Response<BoxBody> {
    let mut response = body::failure(status);
    let Ok(accepted) = cx.accept(Offer::Plain) else {
        return response;
    };
    let bytes = match (accepted.media, accepted.pretty) {
        (Media::Json, false) => return response,
        (Media::Json, true) => serde_json::to_vec_pretty(status).map(Bytes::from).ok(),
        _ => serde_json::to_value(status)
            .ok()
            .and_then(|value| encode(accepted, &value).ok()),
    };
    if let Some(bytes) = bytes {
        let content_type = http::HeaderValue::from_static(accepted.media.content_type());
        *response.body_mut() = body::full(bytes);
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, content_type);
    }
    response
}

/// Encodes a value.
pub(crate) fn encode(accepted: Accepted, value: &Value) -> Result<Bytes, Status> {
    let internal = |e: &dyn std::fmt::Display| Status::internal(format!("cannot encode: {e}"));
    match (accepted.media, accepted.pretty) {
        (Media::Json, false) => serde_json::to_vec(value)
            .map(Bytes::from)
            .map_err(|e| internal(&e)),
        (Media::Json, true) => serde_json::to_vec_pretty(value)
            .map(Bytes::from)
            .map_err(|e| internal(&e)),
        (Media::Yaml, _) => serde_saphyr::to_string(value)
            .map(Bytes::from)
            .map_err(|e| internal(&e)),
        (Media::Protobuf, _) => protobuf::encode(value).map_err(EncodeError::into_status),
    }
}

/// Tells whether stored bytes are the answer, but for the resource version and
/// the translation to protobuf.
fn is_verbatim(kind: &Kind, accepted: Accepted) -> bool {
    kind.is_stored_form()
        && accepted.shape == Shape::Object
        && match accepted.media {
            Media::Json => !accepted.pretty,
            Media::Yaml => false,
            Media::Protobuf => true,
        }
}

/// Answers a list of views of which there are few.
pub(crate) fn values(
    cx: &Context,
    accepted: Accepted,
    kind: &Kind,
    metadata: Value,
    views: Vec<Value>,
) -> Result<Response<BoxBody>, Status> {
    let value = match accepted.shape {
        Shape::Object | Shape::Discovery(_) => json!({
            "kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata,
            "items": views,
        }),
        Shape::Metadata(_) => {
            let text = format!(
                "you requested {METADATA}, but the requested object is a list ({})",
                go_type(kind, kind.list_kind)
            );
            return Err(Status::failure(Reason::NotAcceptable, text));
        }
        Shape::MetadataList(version) => {
            let items = views.into_iter();
            let items: Vec<Value> = items.map(|v| metadata_only(v, version)).collect();
            json!({
                "kind": METADATA_LIST, "apiVersion": meta_version(version), "metadata": metadata,
                "items": items,
            })
        }
        Shape::Table(version) => {
            let mut table = Table::new(kind, version, IncludeObject::read(&cx.query)?);
            let now = jiff::Timestamp::now();
            for view in views {
                table.push(kind, view, now);
            }
            let mut table = table.finish();
            table["metadata"] = metadata;
            table
        }
    };
    plain(cx, accepted, StatusCode::OK, &value)
}
