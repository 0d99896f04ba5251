//! `patch`: part of an object changed, in one of four languages. The fourth,
//! apply, has a file of its own.

use std::sync::Arc;

use http::{HeaderMap, Response};
use meta::patch::{self, strategic};
use meta::{FieldError, GroupVersionKind, Reason, Status};
use registry::Kind;
use registry::json::{self, DecodeError};
use registry::kind::Endpoint;
use registry::merge::TypeRules;
use registry::schema::{self, TypeError};
use serde_json::Value;

use super::apply;
use super::update::{Change, store_change};
use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::fields::Manager;
use crate::input;
use crate::negotiation::{Offer, media_type, unsupported};
use crate::pipeline::{BODY_BYTES_MAX, Context};
use crate::query::{FieldValidation, WriteOptions};

pub(super) async fn patch(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    endpoint: Endpoint,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    let language = Language::of(&cx.headers)?;
    if language == Language::Apply {
        return apply::apply(api, cx, target, endpoint, body).await;
    }
    let accepted = cx.accept(Offer::Resource)?;
    input::check_patch(&cx.headers, kind)?;
    let options = WriteOptions::read_patch(&cx.query)?;
    let (patch, odd) = parse(language, &input::read_bytes(body).await?)?;
    let manager = Manager::of(cx, &options);
    let complaints = std::sync::Mutex::new(Vec::new());
    let apply = |old: &Value| {
        let (new, found) = patch.change(kind, old, &odd, options.field_validation)?;
        *complaints
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = found;
        Ok(new)
    };
    let change = Change {
        endpoint,
        dry_run: options.dry_run,
        by: Some(manager.writer(target, endpoint)?),
        new: &apply,
        body: None,
    };
    let done = store_change(api, cx, target, change).await?;
    cx.warnings
        .extend(complaints.into_inner().unwrap_or_default());
    done.respond(cx, accepted, kind)
}

/// In which language a patch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge.
    Strategic,
    /// What the sender wants to own, merged by who owns what.
    Apply,
}

impl Language {
    const ALL: [(&'static str, Self); 4] = [
        ("application/json-patch+json", Self::Json),
        ("application/merge-patch+json", Self::Merge),
        ("application/strategic-merge-patch+json", Self::Strategic),
        ("application/apply-patch+yaml", Self::Apply),
    ];

    /// Reads the `Content-Type`; 415 for a language that is not understood.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Status> {
        let given = media_type(headers);
        let found = Self::ALL.iter().find(|(media, _)| *media == given);
        found.map(|(_, language)| *language).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|(media, _)| *media).collect();
            unsupported(&format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                known.join(", ")
            ))
        })
    }
}

/// A patch that was read but not applied.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' strategic merge.
    Strategic(Value),
}

/// Reads a patch that is no apply.
pub(crate) async fn read_patch(language: Language, body: BoxBody) -> Result<Patch, Status> {
    let bytes = input::read_bytes(body).await?;
    Ok(parse(language, &bytes)?.0)
}

/// Reads the bytes of a patch that is no apply, and what `fieldValidation` has to say
/// of it.
pub(crate) fn parse(language: Language, bytes: &[u8]) -> Result<(Patch, Vec<String>), Status> {
    let make: fn(Value) -> Patch = match language {
        Language::Json => Patch::Json,
        Language::Merge => Patch::Merge,
        Language::Strategic => Patch::Strategic,
        Language::Apply => return Err(Status::internal("an apply is no patch of a value")),
    };
    let bad = |e: &dyn std::fmt::Display| Status::bad_request(format!("error decoding patch: {e}"));
    let decoded = json::decode(bytes, BODY_BYTES_MAX).map_err(|error| match error {
        DecodeError::Json(text) | DecodeError::Yaml(text) => bad(&text),
        DecodeError::TooLarge(_) => {
            Status::failure(Reason::RequestEntityTooLarge, error.to_string())
        }
    })?;
    let patch = make(decoded.value);
    let told = match &patch {
        Patch::Json(Value::Array(operations)) => {
            let odd = json::complaints(bytes, &odd_members(operations), &decoded.duplicates);
            odd.iter()
                .map(|words| format!("json patch {words}"))
                .collect()
        }
        Patch::Json(_) => return Err(bad(&"a JSON patch is a list of operations")),
        Patch::Merge(v) | Patch::Strategic(v) if !v.is_object() => {
            return Err(bad(&"a merge patch is an object"));
        }
        Patch::Merge(_) | Patch::Strategic(_) => {
            let twice = decoded.duplicates.iter();
            twice.map(|path| json::duplicate(path)).collect()
        }
    };
    Ok((patch, told))
}

/// Returns the paths of what the operations of a JSON patch have besides what they may.
fn odd_members(operations: &[Value]) -> Vec<String> {
    let of = |(at, operation): (usize, &Value)| -> Vec<String> {
        let members = operation.as_object().into_iter().flat_map(|o| o.keys());
        let odd = members.filter(|m| !matches!(m.as_str(), "op" | "path" | "from" | "value"));
        odd.map(|m| format!("[{at}].{m}")).collect()
    };
    let odd = operations.iter().enumerate().flat_map(of);
    odd.take(registry::schema::MAX_UNKNOWN).collect()
}

impl Patch {
    /// Makes the new state of an object: patched, of its kind's types, with its
    /// defaults; and what the client should be told: what is `odd` of the patch itself,
    /// and unknown fields.
    pub(crate) fn change(
        &self,
        kind: &Kind,
        old: &Value,
        odd: &[String],
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), Status> {
        let mut new = self.apply(kind, old)?;
        let unknown = match kind.def() {
            Some(def) => match schema::conform(def, &mut new) {
                Ok(unknown) => unknown,
                // Quoted as it was before it was walked.
                Err(misfit) => return Err(self.misfit(&self.apply(kind, old)?, &misfit)),
            },
            None => kind.conform(&mut new)?,
        };
        let unknown = unknown.iter().map(|path| json::unknown(path));
        // What is odd of the patch itself is said before what is of the object.
        let mut complaints: Vec<String> = odd.iter().cloned().chain(unknown).collect();
        match validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                let why = format!("strict decoding error: {}", complaints.join(", "));
                return Err(self.refusal(&self.apply(kind, old)?, why));
            }
            FieldValidation::Ignore => complaints.clear(),
            FieldValidation::Strict | FieldValidation::Warn => {}
        }
        kind.strategy().default(&mut new);
        Ok((new, complaints))
    }

    /// Refuses what the patch made, which its kind's types cannot hold.
    pub(crate) fn misfit(&self, patched: &Value, error: &TypeError) -> Status {
        let why = match self {
            Self::Json(_) | Self::Merge(_) => error.to_string(),
            Self::Strategic(_) => as_converted(error),
        };
        self.refusal(patched, why)
    }

    /// Refuses what the patch made. Upstream quotes that, and of a strategic merge,
    /// which it does on maps, the patch as Go prints it.
    fn refusal(&self, patched: &Value, why: String) -> Status {
        let quoted = match self {
            Self::Json(_) | Self::Merge(_) => patched.to_string(),
            Self::Strategic(patch) => json::as_go_prints(patch),
        };
        let error = FieldError::invalid("patch", quoted, why);
        Status::invalid(&GroupVersionKind::default(), "", &[error])
    }

    /// Applies the patch to an object of a kind.
    pub(crate) fn apply(&self, kind: &Kind, object: &Value) -> Result<Value, Status> {
        match (self, kind.def()) {
            (Self::Strategic(p), Some(def)) => {
                strategic::apply(&TypeRules(def), object.clone(), p.clone()).map_err(|e| e.status())
            }
            _ => self.apply_plain(object),
        }
    }

    /// Applies the patch to an object whose lists have no rules.
    pub(crate) fn apply_plain(&self, object: &Value) -> Result<Value, Status> {
        match self {
            Self::Json(p) => patch::json::apply(object, p.clone()).map_err(|e| e.status()),
            Self::Merge(p) | Self::Strategic(p) => {
                let mut new = object.clone();
                patch::merge::apply(&mut new, p.clone());
                Ok(new)
            }
        }
    }
}

/// Words a mismatch as upstream's converter of maps to types does, which knows Go's
/// kinds and no path. What has a reader of its own there says the same as in JSON.
fn as_converted(error: &TypeError) -> String {
    let TypeError::Mismatch { kind, expected, .. } = error else {
        return error.to_string();
    };
    match (*kind, *expected) {
        (_, "object") => format!("cannot restore struct from: {kind}"),
        (_, "map[string]interface {}") => format!("cannot restore map from {kind}"),
        (_, "[]interface {}") => format!("cannot restore slice from {kind}"),
        ("int64", "string") | ("float64", "int32" | "int64") => {
            format!("cannot convert {kind} to {expected}")
        }
        (_, "string" | "int32" | "int64" | "float64" | "bool") => {
            format!("unrecognized type: {expected}")
        }
        _ => error.to_string(),
    }
}
