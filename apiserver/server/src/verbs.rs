//! The verbs, generic over kinds. One file per verb; what only some resources
//! have lies under `subresources`.

mod create;
mod delete;
mod get;
mod list;
mod patch;
mod update;
mod watch;
mod watch_body;

use std::sync::Arc;

use http::Response;
use meta::{Reason, Status, value};
use registry::kind::Endpoint;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::pipeline::Context;
use crate::request_info::{ResourceRequest, Verb};
use crate::subresources;

pub(crate) use delete::{delete_one, remove};
pub(crate) use patch::read_patch;
pub(crate) use update::{Change, store_change};

/// Carries out a request on a resource.
pub(crate) async fn dispatch(
    api: &Arc<Api>,
    cx: &mut Context,
    r: ResourceRequest,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    if subresources::find_unstored(&r).is_some() {
        return subresources::answer_unstored(api, cx, &r, body).await;
    }
    let target = Target::find(api, &r)?;
    if !r.subresource.is_empty() {
        return subresources::dispatch(api, cx, &target, &r, body).await;
    }
    let kind = target.kind();
    let wants_name = match cx.info.verb {
        Verb::Update | Verb::Patch => true,
        Verb::Create => false,
        _ => !target.name.is_empty(),
    };
    if !kind.allows(cx.info.verb.as_str()) || wants_name == target.name.is_empty() {
        return Err(Status::method_not_supported(
            &kind.group_resource(),
            cx.info.verb.as_str(),
        ));
    }
    match cx.info.verb {
        Verb::Get => get::get(cx, &target).await,
        Verb::List => list::list(cx, &target).await,
        Verb::Watch => watch::watch(api, cx, &target, &r).await,
        Verb::Create => create::create(api, cx, &target, body).await,
        Verb::Update => update::update(api, cx, &target, Endpoint::Main, body).await,
        Verb::Patch => patch::patch(api, cx, &target, Endpoint::Main, body).await,
        Verb::Delete => delete::delete(api, cx, &target, body).await,
        Verb::DeleteCollection => delete::delete_collection(api, cx, &target, body).await,
        Verb::Other(verb) => Err(Status::method_not_supported(&kind.group_resource(), verb)),
    }
}

/// Carries out a request on a subresource that is the object itself through
/// another door: `status`, `finalize`.
pub(crate) async fn through(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    endpoint: Endpoint,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    match cx.info.verb {
        Verb::Get => get::get(cx, target).await,
        Verb::Update => update::update(api, cx, target, endpoint, body).await,
        Verb::Patch => patch::patch(api, cx, target, endpoint, body).await,
        verb => Err(Status::method_not_supported(
            &target.kind().group_resource(),
            verb.as_str(),
        )),
    }
}

/// Refuses a write that comes back without the version of what it was read
/// from, where the kind insists, or with the version of an older state.
fn check_version(target: &Target, new: &Value, current: &str) -> Result<(), Status> {
    let kind = target.kind();
    let given = value::str_at(new, "metadata.resourceVersion");
    if given.is_empty() || given == "0" {
        if kind.unconditional_update {
            return Ok(());
        }
        let error = meta::FieldError::invalid(
            "metadata.resourceVersion",
            0,
            "must be specified for an update",
        );
        return Err(Status::invalid(&kind.gvk(), value::name(new), &[error]));
    }
    if given.parse::<u64>().is_err() {
        return Err(Status::bad_request(format!(
            "invalid resource version {given:?}: strconv.ParseUint: parsing {given:?}: invalid syntax"
        )));
    }
    if given != current {
        return Err(Status::modified(&kind.group_resource(), value::name(new)));
    }
    Ok(())
}

/// Returns an object as it would be stored, as an answer to a dry run.
fn unstored(kind: &registry::Kind, mut view: Value, version: Option<&str>) -> Value {
    value::set_type_meta(&mut view, &kind.gvk());
    let version = version.map_or(Value::Null, |v| Value::String(v.to_owned()));
    value::set_metadata(&mut view, "resourceVersion", version);
    view
}

/// The 409 of a generated name that stayed taken.
fn exhausted_names(mut taken: Status) -> Status {
    taken.reason = Reason::AlreadyExists;
    taken.with_retry_after(1)
}
