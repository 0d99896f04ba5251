//! Reading request bodies: bytes to a value of the right type, with what
//! `fieldValidation` has to say about it.

use bytes::Bytes;
use meta::json::Known;
use meta::marks::{Marked, Marks, Same};
use meta::{Reason, Status, value};
use registry::Kind;
use registry::json::{self, DecodeError, Decoded};
use serde_json::Value;

use crate::body::{self, BoxBody};
use crate::negotiation::{BodyMedia, body_media, media_type, unsupported};
use crate::pipeline::{BODY_BYTES_MAX, Context};
use crate::protobuf;
use crate::query::FieldValidation;
use crate::storage::Draft;

/// Reads a body's bytes.
pub(crate) async fn read_bytes(body: BoxBody) -> Result<Bytes, Status> {
    body::read_limited(body, BODY_BYTES_MAX).await
}

/// A body that was read, and was found to be an object.
pub(crate) struct ObjectBody {
    bytes: Bytes,
    media: BodyMedia,
    /// Where what stands in it, if that is known.
    marks: Option<Marks>,
    settled: bool,
}

impl ObjectBody {
    /// Returns the text, if it is known where what stands in it.
    pub(crate) fn marked(&self) -> Option<Marked<'_>> {
        let marks = self.marks.as_ref()?;
        Some(Marked {
            text: &self.bytes,
            marks,
        })
    }

    /// Tells whether the specification need not be looked at, not for defaults either:
    /// it is one that was checked and stored already.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// Reads the object once more; everything was said of it the first time.
    pub(crate) fn again(&self, kind: &Kind) -> Result<Value, Status> {
        let taken = take(&self.bytes, self.media, kind, FieldValidation::Ignore)?;
        Ok(taken.object)
    }
}

/// Reads an object of a kind: decoded, its type checked, unknown fields
/// pruned and reported. `draft` may find an earlier state of it.
pub(crate) async fn read_object(
    cx: &mut Context,
    body: BoxBody,
    kind: &Kind,
    validation: FieldValidation,
    draft: impl FnOnce() -> Option<Draft>,
) -> Result<(Value, ObjectBody), Status> {
    let media = match body_media(&cx.headers)? {
        BodyMedia::Protobuf if kind.is_custom() => return Err(only_text()),
        media => media,
    };
    let bytes = read_bytes(body).await?;
    let draft = match media {
        BodyMedia::Json => draft(),
        BodyMedia::Yaml | BodyMedia::Protobuf => None,
    };
    let Taken {
        object,
        complaints,
        marks,
        settled,
    } = match draft {
        Some(draft) => take_over(&bytes, kind, validation, draft)?,
        None => take(&bytes, media, kind, validation)?,
    };
    if validation == FieldValidation::Warn {
        cx.warnings.extend(complaints.warnings());
    } else if let Some(text) = complaints.error() {
        return Err(Status::bad_request(format!(
            "{name} in version {version:?} cannot be handled as a {name}: strict decoding error: {text}",
            name = kind.kind,
            version = kind.version,
        )));
    }
    let read = ObjectBody {
        bytes,
        media,
        marks,
        settled,
    };
    Ok((object, read))
}

/// What `fieldValidation` has to say about a body.
#[derive(Default)]
pub(crate) struct Complaints {
    /// The lines of the reader of YAML.
    lines: Vec<String>,
    /// What else there is.
    others: Vec<String>,
}

impl Complaints {
    /// Finds what is to be said of a body with these unknown and these repeated
    /// fields, in upstream's order and words.
    fn of(
        kind: &Kind,
        media: BodyMedia,
        bytes: &[u8],
        unknown: &[String],
        duplicates: &[String],
    ) -> Self {
        let words = unknown.iter().map(|path| json::unknown(path));
        match media {
            BodyMedia::Yaml if !kind.is_custom() => Self {
                lines: lines(bytes, duplicates),
                others: json::complaints(&as_json(bytes), unknown, &[]),
            },
            BodyMedia::Yaml => Self {
                lines: lines(bytes, duplicates),
                others: words.collect(),
            },
            BodyMedia::Json if !kind.is_custom() => Self {
                lines: Vec::new(),
                others: json::complaints(bytes, unknown, duplicates),
            },
            BodyMedia::Json | BodyMedia::Protobuf => {
                let twice = duplicates.iter().map(|path| json::duplicate(path));
                Self {
                    lines: Vec::new(),
                    others: twice.chain(words).collect(),
                }
            }
        }
    }

    /// Returns the warnings, one for each.
    pub(crate) fn warnings(self) -> impl Iterator<Item = String> {
        self.lines.into_iter().chain(self.others)
    }

    /// Returns all of it in one error; none if there is nothing.
    fn error(&self) -> Option<String> {
        let lines = unmarshal_errors(&self.lines);
        let all: Vec<&str> = lines
            .as_deref()
            .into_iter()
            .chain(self.others.iter().map(String::as_str))
            .collect();
        Some(all.join(", ")).filter(|text| !text.is_empty())
    }
}

/// Returns what upstream makes of a body of YAML before it looks for unknown fields:
/// JSON, its keys in order.
fn as_json(bytes: &[u8]) -> Vec<u8> {
    let decoded = json::decode_yaml(bytes, BODY_BYTES_MAX);
    decoded.map_or_else(|_| Vec::new(), |d| d.value.to_string().into_bytes())
}

/// Returns the lines of the keys that stand twice in a body of YAML.
pub(crate) fn lines(bytes: &[u8], duplicates: &[String]) -> Vec<String> {
    if duplicates.is_empty() {
        return Vec::new();
    }
    json::yaml_duplicates(bytes, BODY_BYTES_MAX).unwrap_or_else(|error| {
        // What was read once is read again; should it not be, that there are some is said.
        tracing::warn!(%error, "a body in YAML was not read a second time");
        let key = |path: &String| path.rsplit('.').next().unwrap_or_default().to_owned();
        let word = |path| format!("key {:?} already set in map", key(path));
        duplicates.iter().map(word).collect()
    })
}

/// Puts the lines of the reader of YAML into its error.
pub(crate) fn unmarshal_errors(lines: &[String]) -> Option<String> {
    match lines {
        [] => None,
        lines => Some(format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))),
    }
}

/// An object that was read, and what its text has too much.
pub(crate) struct Taken {
    /// The object, of its kind's types and without what the kind does not know.
    pub(crate) object: Value,
    /// What `fieldValidation` has to say; nothing where it says nothing.
    pub(crate) complaints: Complaints,
    /// Where what stands in the body, if that is known.
    marks: Option<Marks>,
    /// Whether the specification is one that was checked and stored already.
    settled: bool,
}

/// Takes an object of a kind from the bytes of a body.
pub(crate) fn take(
    bytes: &[u8],
    media: BodyMedia,
    kind: &Kind,
    validation: FieldValidation,
) -> Result<Taken, Status> {
    let decoded = decode(bytes, media, kind.kind)?;
    check(decoded, (bytes, media), kind, validation, &Same::default())
}

/// Takes an object as [`take`] does from JSON, over an earlier state of it, and tells
/// where in the bytes what stands.
pub(crate) fn take_over(
    bytes: &[u8],
    kind: &Kind,
    validation: FieldValidation,
    draft: Draft,
) -> Result<Taken, Status> {
    let (tree, stored) = draft.into_parts();
    let marked = stored.marked();
    let decoded = json::decode_over(bytes, BODY_BYTES_MAX, Some(Known { tree, marked }));
    let (decoded, marks) = decoded.map_err(|e| undecoded(kind.kind, &e, bytes))?;
    let decoded = an_object(decoded, bytes, kind.kind)?;
    let marks = marks.filter(|_| kind.is_steady(&decoded.value));
    // What is written as it was stored was found right then, by rules that do not change.
    let text = marks.as_ref().filter(|_| stored.is_checked());
    let same = text.map(|marks| Marked { text: bytes, marks }.same_as(marked));
    let same = same.unwrap_or_default();
    let taken = check(decoded, (bytes, BodyMedia::Json), kind, validation, &same)?;
    Ok(Taken {
        settled: kind.is_settled(&same),
        marks,
        ..taken
    })
}

/// Checks the type of an object that was decoded. Some of it is the same as in one that
/// was stored.
fn check(
    decoded: Decoded,
    (bytes, media): (&[u8], BodyMedia),
    kind: &Kind,
    validation: FieldValidation,
    same: &Same<'_>,
) -> Result<Taken, Status> {
    let mut object = decoded.value;
    check_type(kind, &mut object)?;
    let unknown = kind.conform_but(&mut object, &|name| same.member(name))?;
    let complaints = match validation {
        FieldValidation::Ignore => Complaints::default(),
        _ if unknown.is_empty() && decoded.duplicates.is_empty() => Complaints::default(),
        _ => Complaints::of(kind, media, bytes, &unknown, &decoded.duplicates),
    };
    Ok(Taken {
        object,
        complaints,
        marks: None,
        settled: false,
    })
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
        BodyMedia::Json => json::decode(bytes, BODY_BYTES_MAX),
        BodyMedia::Yaml => json::decode_yaml(bytes, BODY_BYTES_MAX),
        BodyMedia::Protobuf => {
            let value = protobuf::decode(bytes, kind)
                .map_err(|e| unrecognized(kind, &e.to_string(), bytes))?;
            return Ok(Decoded {
                value,
                duplicates: Vec::new(),
            });
        }
    };
    let decoded = decoded.map_err(|e| undecoded(kind, &e, bytes))?;
    an_object(decoded, bytes, kind)
}

fn undecoded(kind: &str, error: &DecodeError, bytes: &[u8]) -> Status {
    let text = error.to_string();
    match error {
        DecodeError::TooLarge(_) => Status::failure(Reason::RequestEntityTooLarge, text),
        DecodeError::Json(_) | DecodeError::Yaml(_) => unrecognized(kind, &text, bytes),
    }
}

/// Refuses what is no object.
fn an_object(decoded: Decoded, bytes: &[u8], kind: &str) -> Result<Decoded, Status> {
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
