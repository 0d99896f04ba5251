//! `patch`: part of an object changed, in one of three languages.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use meta::patch::{self, strategic};
use meta::{FieldError, GroupVersionKind, Status};
use registry::kind::Endpoint;
use registry::merge::TypeRules;
use registry::{Kind, schema};
use serde_json::Value;

use super::update::{Change, store_change};
use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::input;
use crate::negotiation::{Offer, media_type, unsupported};
use crate::pipeline::Context;
use crate::query::{FieldValidation, WriteOptions};

pub(super) async fn patch(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    endpoint: Endpoint,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    let options = WriteOptions::read(&cx.query, "PatchOptions")?;
    let accepted = cx.accept(Offer::Resource)?;
    let patch = read_patch(&cx.headers, body).await?;
    let complaints = std::sync::Mutex::new(Vec::new());
    let apply = |old: &Value| {
        let mut new = patch.apply(kind, old)?;
        let found = conform(kind, &mut new, options.field_validation)?;
        *complaints
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = found;
        kind.strategy.default(&mut new);
        Ok(new)
    };
    let change = Change {
        endpoint,
        dry_run: options.dry_run,
        new: &apply,
    };
    let done = store_change(api, cx, target, change).await?;
    cx.warnings
        .extend(complaints.into_inner().unwrap_or_default());
    done.respond(cx, accepted, kind)
}

/// Checks the types of a patched object and prunes what they do not know.
fn conform(
    kind: &Kind,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, Status> {
    let def = kind
        .def()
        .ok_or_else(|| Status::internal(format!("no schema for {}", kind.kind)))?;
    let unknown =
        schema::conform(def, object).map_err(|e| Status::bad_request(e.message(&kind.gvk())))?;
    let complaints = input::complaints(&unknown, &[]);
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(complaints),
        FieldValidation::Strict if complaints.is_empty() => Ok(Vec::new()),
        FieldValidation::Strict => {
            let why = format!("strict decoding error: {}", complaints.join(", "));
            let error = FieldError::invalid("patch", object.to_string(), why);
            Err(Status::invalid(&GroupVersionKind::default(), "", &[error]))
        }
    }
}

/// A patch that was read but not applied.
pub(crate) enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' strategic merge.
    Strategic(Value),
}

/// Reads a patch; 415 for a language that is not understood.
pub(crate) async fn read_patch(headers: &HeaderMap, body: BoxBody) -> Result<Patch, Status> {
    let make: fn(Value) -> Patch = match media_type(headers) {
        "application/json-patch+json" => Patch::Json,
        "application/merge-patch+json" => Patch::Merge,
        "application/strategic-merge-patch+json" => Patch::Strategic,
        _ => {
            return Err(unsupported(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
            ));
        }
    };
    let bytes = input::read_bytes(body).await?;
    parse(&bytes, make)
}

fn parse(bytes: &Bytes, make: fn(Value) -> Patch) -> Result<Patch, Status> {
    let bad = |e: &dyn std::fmt::Display| Status::bad_request(format!("error decoding patch: {e}"));
    let value: Value = serde_json::from_slice(bytes).map_err(|e| bad(&e))?;
    let patch = make(value);
    match &patch {
        Patch::Json(v) if !v.is_array() => Err(bad(&"a JSON patch is a list of operations")),
        Patch::Merge(v) | Patch::Strategic(v) if !v.is_object() => {
            Err(bad(&"a merge patch is an object"))
        }
        _ => Ok(patch),
    }
}

impl Patch {
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
