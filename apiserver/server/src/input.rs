//! Reading request bodies: bytes to a value of the right type, with what
//! `fieldValidation` has to say about it.

use bytes::Bytes;
use meta::{Reason, Status, value};
use registry::Kind;
use registry::json::{DecodeError, Decoded};
use serde_json::Value;

use crate::body::{self, BoxBody};
use crate::negotiation::{BodyMedia, body_media, media_type, unsupported};
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
    let media = match body_media(&cx.headers)? {
        BodyMedia::Protobuf if kind.is_custom() => return Err(only_text()),
        media => media,
    };
    let bytes = read_bytes(body).await?;
    let Taken { object, complaints } = take(&bytes, media, kind)?;
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

/// An object that was read, and what its text has too much.
pub(crate) struct Taken {
    /// The object, of its kind's types and without what the kind does not know.
    pub(crate) object: Value,
    /// The unknown fields, and those that stand twice, in upstream's words.
    pub(crate) complaints: Vec<String>,
}

/// Takes an object of a kind from the bytes of a body.
pub(crate) fn take(bytes: &[u8], media: BodyMedia, kind: &Kind) -> Result<Taken, Status> {
    let decoded = decode(bytes, media, kind.kind)?;
    let mut object = decoded.value;
    check_type(kind, &mut object)?;
    let unknown = kind.conform(&mut object)?;
    let mut complaints = complaints(&unknown);
    complaints.extend(decoded.duplicates.iter().map(|path| twice(path, media)));
    Ok(Taken { object, complaints })
}

/// Refuses a body in protobuf: only built-in kinds have field numbers.
fn only_text() -> Status {
    unsupported(
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
    )
}

/// Refuses a strategic merge patch: the lists of a custom resource have no keys
/// that it could merge by.
pub(crate) fn check_patch(headers: &http::HeaderMap, kind: &Kind) -> Result<(), Status> {
    if kind.is_custom() && media_type(headers) == "application/strategic-merge-patch+json" {
        return Err(unsupported(
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        ));
    }
    Ok(())
}

/// Words unknown fields as upstream does.
pub(crate) fn complaints(unknown: &[String]) -> Vec<String> {
    let words = unknown.iter().map(|p| format!("unknown field {p:?}"));
    words.collect()
}

/// Words a duplicate field as upstream's reader of that language does.
fn twice(path: &str, media: BodyMedia) -> String {
    match media {
        BodyMedia::Yaml => {
            let key = path.rsplit('.').next().unwrap_or(path);
            format!("key {key:?} already set in map")
        }
        BodyMedia::Json | BodyMedia::Protobuf => format!("duplicate field {path:?}"),
    }
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
                .map_err(|e| unrecognized(kind, &e.to_string(), bytes))?;
            return Ok(Decoded {
                value,
                duplicates: Vec::new(),
            });
        }
    };
    let decoded = decoded.map_err(|e| match e {
        DecodeError::TooLarge(_) => Status::failure(Reason::RequestEntityTooLarge, e.to_string()),
        DecodeError::Json(_) | DecodeError::Yaml(_) => unrecognized(kind, &e.to_string(), bytes),
    })?;
    let found = match &decoded.value {
        Value::Object(_) => return Ok(decoded),
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    let why = format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    );
    Err(unrecognized(kind, &why, bytes))
}

/// How much of a body that is not understood is shown to its sender.
const SUMMARY_BYTES: usize = 30;

fn unrecognized(kind: &str, why: &str, body: &[u8]) -> Status {
    let cut = &body[..body.len().min(SUMMARY_BYTES)];
    let mut summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(cut).into_owned(),
        Some(_) => cut.iter().map(|b| format!("{b:02x}")).collect(),
    };
    if body.len() > SUMMARY_BYTES {
        summary.push_str(" ...");
    }
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({summary})"
    ))
}

/// Refuses a body of another type than the URL's; one that says nothing is
/// taken for it.
fn check_type(kind: &Kind, object: &mut Value) -> Result<(), Status> {
    let (version, name) = value::type_meta(object);
    let expected = kind.api_version();
    let named = if name.is_empty() { kind.kind } else { name };
    let versioned = match version {
        "" => expected.as_str(),
        version => version,
    };
    if named == kind.kind && versioned == expected.as_str() {
        value::set_type_meta(object, &kind.gvk());
        return Ok(());
    }
    let short = |v: &str| v.rsplit('/').next().unwrap_or_default().to_owned();
    let same = named == kind.kind;
    let known = protobuf::is_known(versioned, named) || (same && kind.is_custom());
    let why = match (known, same) {
        (true, true) => {
            return Err(Status::bad_request(format!(
                "the API version in the data ({versioned}) does not match the expected API version ({expected})"
            )));
        }
        (true, false) => format!(
            "converting ({}.{named}) to ({}.{}): unknown conversion",
            short(versioned),
            match kind.group {
                "" => "core",
                group => group.split('.').next().unwrap_or_default(),
            },
            kind.kind
        ),
        (false, _) => format!("no kind {named:?} is registered for version {versioned:?}"),
    };
    Err(Status::bad_request(format!(
        "{named} in version {:?} cannot be handled as a {}: {why}",
        short(versioned),
        kind.kind
    )))
}

fn wrong_kind(expected: &str, given: &str) -> Status {
    Status::bad_request(format!(
        "the kind in the data ({given}) does not match the expected kind ({expected})"
    ))
}
