//! Reading request bodies: bytes to a value of the right type, with what
//! `fieldValidation` has to say about it.

use bytes::Bytes;
use meta::{Reason, Status, value};
use registry::json::{DecodeError, Decoded};
use registry::{Kind, schema};
use serde_json::Value;

use crate::body::{self, BoxBody};
use crate::negotiation::{BodyMedia, body_media};
use crate::pipeline::{BODY_BYTES_MAX, Context};
use crate::protobuf;
use crate::query::FieldValidation;

/// Reads a body's bytes.
pub(crate) async fn read_bytes(body: BoxBody) -> Result<Bytes, Status> {
    body::read_limited(body, BODY_BYTES_MAX).await
}

/// Reads an object of a kind: decoded, its type checked, unknown fields
/// pruned and reported.
pub(crate) async fn read_object(
    cx: &mut Context,
    body: BoxBody,
    kind: &Kind,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let media = body_media(&cx.headers)?;
    let bytes = read_bytes(body).await?;
    let decoded = decode(&bytes, media, kind.kind)?;
    let mut object = decoded.value;
    check_type(kind, &mut object)?;
    let def = kind
        .def()
        .ok_or_else(|| Status::internal(format!("no schema for {}", kind.kind)))?;
    let unknown = schema::conform(def, &mut object)
        .map_err(|e| Status::bad_request(e.message(&kind.gvk())))?;
    let complaints = complaints(&unknown, &decoded.duplicates);
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => cx.warnings.extend(complaints),
        FieldValidation::Strict if complaints.is_empty() => {}
        FieldValidation::Strict => {
            return Err(Status::bad_request(format!(
                "{name} in version {version:?} cannot be handled as a {name}: strict decoding error: {}",
                complaints.join(", "),
                name = kind.kind,
                version = kind.version,
            )));
        }
    }
    Ok(object)
}

/// Words unknown and duplicate fields as upstream does.
pub(crate) fn complaints(unknown: &[String], duplicates: &[String]) -> Vec<String> {
    let unknown = unknown.iter().map(|p| format!("unknown field {p:?}"));
    unknown
        .chain(duplicates.iter().map(|p| format!("duplicate field {p:?}")))
        .collect()
}

/// Reads a body of a small type that no resource stores (options, bindings);
/// an empty one is `None`.
pub(crate) async fn read_small(
    cx: &Context,
    body: BoxBody,
    kind: &str,
) -> Result<Option<Value>, Status> {
    let bytes = read_bytes(body).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let media = body_media(&cx.headers)?;
    let value = decode(&bytes, media, kind)?.value;
    let given = value::type_meta(&value).1;
    if !given.is_empty() && given != kind {
        return Err(wrong_kind(kind, given));
    }
    Ok(Some(value))
}

/// Decodes bytes into a JSON object.
pub(crate) fn decode(bytes: &[u8], media: BodyMedia, kind: &str) -> Result<Decoded, Status> {
    let decoded = match media {
        BodyMedia::Json => registry::json::decode(bytes, BODY_BYTES_MAX),
        BodyMedia::Yaml => registry::json::decode_yaml(bytes, BODY_BYTES_MAX),
        BodyMedia::Protobuf => {
            let value = protobuf::decode(bytes, kind)
                .map_err(|e| Status::bad_request(format!("unable to decode a {kind}: {e}")))?;
            return Ok(Decoded {
                value,
                duplicates: Vec::new(),
            });
        }
    };
    let decoded = decoded.map_err(|e| match e {
        DecodeError::TooLarge(_) => Status::failure(Reason::RequestEntityTooLarge, e.to_string()),
        DecodeError::Json(_) | DecodeError::Yaml(_) => Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {e}"
        )),
    })?;
    if !decoded.value.is_object() {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): not an object"
        )));
    }
    Ok(decoded)
}

/// Refuses a body of another type than the URL's; one that says nothing is
/// taken for it.
fn check_type(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    let (version, name) = value::type_meta(object);
    let expected = kind.api_version();
    if !name.is_empty() && name != kind.kind {
        return Err(wrong_kind(kind.kind, name));
    }
    if !version.is_empty() && version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    value::set_type_meta(object, &kind.gvk());
    Ok(())
}

fn wrong_kind(expected: &str, given: &str) -> Status {
    Status::bad_request(format!(
        "the kind in the data ({given}) does not match the expected kind ({expected})"
    ))
}
