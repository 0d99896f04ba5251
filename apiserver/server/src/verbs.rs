//! The verbs, generic over kinds. One file per verb; what only some resources
//! have lies under `subresources`.

mod apply;
mod create;
mod delete;
mod get;
mod list;
mod patch;
mod update;
mod watch;
mod watch_body;
mod watch_socket;

use std::sync::Arc;

use http::Response;
use meta::{Reason, Status, value};
use registry::kind::Endpoint;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::pipeline::Context;
use crate::request_info::{ResourceRequest, Verb};
use crate::{computed, subresources};

pub(crate) use apply::{Apply, config, merged, not_an_object, read_config};
pub(crate) use delete::{delete_one, remove};
pub(crate) use list::Asked;
pub(crate) use patch::{Language, Patch, parse as parse_patch, read_patch};
pub(crate) use update::{Change, Done, check_name, store_change};

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
    let kind = target.kind();
    let deprecation = kind.strategy().deprecation();
    cx.warnings.extend(deprecation.map(str::to_owned));
    cx.text_only = target.resource.text_only;
    if !r.subresource.is_empty() {
        return subresources::dispatch(api, cx, &target, &r, body).await;
    }
    if cx.info.verb == Verb::Create && kind.strategy().is_ending() {
        let text = "create not allowed while custom resource definition is terminating";
        return Err(
            Status::failure(Reason::MethodNotAllowed, text).about(&kind.group_resource(), "")
        );
    }
    let wants_name = match cx.info.verb {
        Verb::Update | Verb::Patch => true,
        Verb::Create => false,
        _ => !target.name.is_empty(),
    };
    let no_route = cx.method == http::Method::HEAD || wants_name == target.name.is_empty();
    if !kind.allows(cx.info.verb.as_str()) || no_route {
        return Err(Status::method_not_allowed());
    }
    if let Some(answer) = computed::answer(api, cx, &target).await {
        return answer;
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
        Verb::Other(_) => Err(Status::method_not_allowed()),
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
        _ => Err(Status::method_not_allowed()),
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
        // Named by the resource where the kind should stand: as upstream.
        let named = meta::GroupVersionKind::new(kind.group, kind.version, kind.plural);
        return Err(Status::invalid(&named, value::name(new), &[error]));
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

/// Refuses to create by a patch what was meant to be an object with a uid.
fn uid_of_nothing(target: &Target, new: &Value) -> Result<(), Status> {
    let uid = value::uid(new);
    if uid.is_empty() {
        return Ok(());
    }
    let why = format!(
        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    );
    let resource = target.kind().group_resource();
    Err(Status::conflict(&resource, &target.name, &why))
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
    taken
        .message
        .push_str(", the server was not able to generate a unique name for the object");
    taken.with_retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_that_stays_taken_may_be_tried_again() {
        let pods = meta::GroupResource::new("", "pods");
        let status = exhausted_names(Status::already_exists(&pods, "web-x2b4z"));
        assert_eq!(
            status.message,
            "pods \"web-x2b4z\" already exists, the server was not able to generate a unique name for the object"
        );
        assert_eq!((status.code, status.reason), (409, Reason::AlreadyExists));
        let details = status.details.unwrap();
        assert_eq!(
            (&*details.name, details.retry_after_seconds),
            ("web-x2b4z", 1)
        );
    }
}
