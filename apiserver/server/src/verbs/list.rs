//! `list`: a collection, whole or by pages; and what lists, watches and deletions
//! of collections are asked with.

use http::Response;
use meta::{FieldError, FieldSelector, GroupVersionKind, Status};
use registry::Kind;
use tokio::time::Instant;

use crate::api::Target;
use crate::body::BoxBody;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::Query;
use crate::storage::{ListRequest, ReadVersion, Selector, VersionMatch};
use crate::{deadline, listing};

pub(super) async fn list(cx: &Context, target: &Target) -> Result<Response<BoxBody>, Status> {
    let deadline = Instant::now() + deadline::of(&cx.query, cx.info.verb)?;
    let accepted = cx.accept(Offer::Resource)?;
    let request = list_request(&cx.query, target)?;
    let list = target.store().open_list(request).await?;
    listing::answer(cx, accepted, &target.resource.kind, list, deadline).await
}

/// Reads what a list is asked with.
pub(super) fn list_request(query: &Query, target: &Target) -> Result<ListRequest, Status> {
    let asked = Asked::read(query, false)?;
    Ok(ListRequest {
        selector: selector(query, target)?,
        version: ReadVersion::parse(asked.version)?,
        version_match: VersionMatch::parse(asked.version_match)?,
        // Less than none is none, as upstream has it.
        limit: usize::try_from(asked.limit).unwrap_or(0),
        continue_token: Some(asked.continue_token.to_owned()).filter(|t| !t.is_empty()),
    })
}

const MATCH: &str = "resourceVersionMatch";

/// The options of a list or a watch, valid together.
pub(crate) struct Asked<'q> {
    pub(super) version: &'q str,
    pub(super) version_match: &'q str,
    pub(super) continue_token: &'q str,
    pub(super) limit: i64,
    pub(super) timeout_seconds: Option<i64>,
    pub(super) send_initial_events: Option<bool>,
}

impl<'q> Asked<'q> {
    /// Reads the options: 400 for what cannot be read, 422 for what does not go
    /// together. A watch from no version or from any begins with what there is,
    /// which is the same as to ask for the initial events.
    pub(crate) fn read(query: &'q Query, watch: bool) -> Result<Self, Status> {
        let text = |name: &str| query.get(name).unwrap_or_default();
        // Read for their errors, which come before those of validation.
        query.label_selector()?;
        query.field_selector()?;
        let mut asked = Self {
            version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            continue_token: text("continue"),
            limit: query.number("limit")?.unwrap_or(0),
            timeout_seconds: query.number("timeoutSeconds")?,
            send_initial_events: query
                .get("sendInitialEvents")
                .map(|_| query.flag("sendInitialEvents")),
        };
        let plain = asked.send_initial_events.is_none() && asked.version_match.is_empty();
        if watch && plain && matches!(asked.version, "" | "0") {
            asked.send_initial_events = Some(true);
            asked.version_match = "NotOlderThan";
        }
        let errors = match watch {
            true => asked.watch_errors(),
            false => asked.list_errors(),
        };
        if errors.is_empty() {
            return Ok(asked);
        }
        let gvk = GroupVersionKind::new("meta.k8s.io", "v1", "ListOptions");
        Err(Status::invalid(&gvk, "", &errors))
    }

    fn list_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut forbid = |field: &str, why: &str| errors.push(FieldError::forbidden(field, why));
        if !self.version_match.is_empty() {
            if self.version.is_empty() {
                forbid(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                );
            }
            if !self.continue_token.is_empty() {
                forbid(
                    MATCH,
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
        }
        let exact = self.version_match == "Exact";
        if !matches!(self.version_match, "" | "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(
                MATCH,
                self.version_match,
                &["Exact", "NotOlderThan", ""],
            ));
        }
        let mut forbid = |field: &str, why: &str| errors.push(FieldError::forbidden(field, why));
        if exact && self.version == "0" {
            forbid(
                MATCH,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            );
        }
        if self.send_initial_events.is_some() {
            forbid(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            );
        }
        errors
    }

    fn watch_errors(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let newer = self.version_match == "NotOlderThan";
        if self.send_initial_events.is_some() && !newer {
            errors.push(FieldError::forbidden(
                MATCH,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if self.version_match.is_empty() {
            return errors;
        }
        if self.send_initial_events.is_none() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if !newer {
            errors.push(FieldError::not_supported(
                MATCH,
                self.version_match,
                &["NotOlderThan"],
            ));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        errors
    }
}

/// Reads the selectors; a field that the kind does not select by is a 400.
pub(super) fn selector(query: &Query, target: &Target) -> Result<Selector, Status> {
    let labels = query.label_selector()?;
    let mut fields = query.field_selector()?;
    check_fields(target.kind(), &fields)?;
    // Both are decoded apart from the fields, so they become the selector's own.
    let name = fields.exact("metadata.name").map(str::to_owned);
    fields
        .requirements
        .retain(|r| !(r.equals && r.field == "metadata.name" && name.as_ref() == Some(&r.value)));
    Ok(Selector {
        namespace: target.namespace.clone(),
        name,
        labels,
        fields,
    })
}

fn check_fields(kind: &Kind, fields: &FieldSelector) -> Result<(), Status> {
    let unknown = fields.requirements.iter();
    let mut unknown = unknown.filter(|r| !kind.can_select(&r.field));
    let Some(r) = unknown.next() else {
        return Ok(());
    };
    // A kind without fields of its own has upstream's rule for all.
    Err(Status::bad_request(match kind.selectable {
        [] => format!(
            "{:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            r.field
        ),
        _ => format!("field label not supported: {}", r.field),
    }))
}
