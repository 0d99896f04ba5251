//! `list`: a collection, whole or by pages.

use http::Response;
use meta::{FieldSelector, Status};
use registry::Kind;

use crate::api::Target;
use crate::body::BoxBody;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::Query;
use crate::respond;
use crate::storage::{ListRequest, ReadVersion, Selector, VersionMatch};

pub(super) async fn list(cx: &Context, target: &Target) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Resource)?;
    let request = list_request(&cx.query, target)?;
    let result = target.store().list(request).await?;
    respond::list(cx, accepted, target.kind(), &result)
}

pub(super) fn list_request(query: &Query, target: &Target) -> Result<ListRequest, Status> {
    let limit = query.number("limit")?.unwrap_or(0);
    let limit = usize::try_from(limit)
        .map_err(|_ignored| Status::bad_request(format!("limit must not be negative: {limit}")))?;
    Ok(ListRequest {
        selector: selector(query, target)?,
        version: ReadVersion::parse(query.get("resourceVersion").unwrap_or_default())?,
        version_match: VersionMatch::parse(query.get("resourceVersionMatch").unwrap_or_default())?,
        limit,
        continue_token: query.non_empty("continue").map(str::to_owned),
    })
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
    match fields
        .requirements
        .iter()
        .find(|r| !kind.can_select(&r.field))
    {
        None => Ok(()),
        Some(r) => Err(Status::bad_request(format!(
            "field label not supported: {}",
            r.field
        ))),
    }
}
