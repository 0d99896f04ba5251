//! What hangs below an object, and what is posted without being stored. One
//! file each; an entry here and in the kind's list, or in [`UNSTORED`], makes it served.

mod binding;
mod connect;
mod eviction;
pub(crate) mod kubelet;
mod log;
mod part;
mod review;
mod scale;
mod token;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Response, StatusCode};
use meta::{Reason, Status};
use registry::kind::Endpoint;
use registry::unstored::{UNSTORED, Unstored};
use serde_json::{Value, json};

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::request_info::{ResourceRequest, Verb};
use crate::{respond, verbs};
use connect::Connect;

/// Subresources that Kubernetes has and this server has not: resource,
/// subresource. Asking for one is answered with what is missing, instead of a
/// 404 that kubectl takes for a missing pod or a broken connection.
const NOT_YET: [(&str, &str); 3] = [("pods", "proxy"), ("services", "proxy"), ("nodes", "proxy")];

/// Returns the refusal of a subresource that is not there yet: 501, which no
/// client retries.
fn not_yet(r: &ResourceRequest) -> Option<Status> {
    let asked = (r.resource.as_str(), r.subresource.as_str());
    if !r.group.is_empty() || !NOT_YET.contains(&asked) {
        return None;
    }
    let text = format!("{} is not supported by this server yet", r.full_resource());
    let name = r.name.as_deref().unwrap_or_default();
    Some(
        Status::failure(Reason::MethodNotAllowed, text)
            .with_code(StatusCode::NOT_IMPLEMENTED.as_u16())
            .about(&r.group_resource(), name),
    )
}

/// Answers a request on a resource that is only posted; `None` for others.
pub(crate) async fn answer_unstored(
    api: &Arc<Api>,
    cx: &mut Context,
    r: &ResourceRequest,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    if cx.info.verb != Verb::Create || !r.subresource.is_empty() || r.name.is_some() {
        return Err(Status::method_not_allowed());
    }
    match r.resource.as_str() {
        "bindings" => binding::create_by_body(api, cx, r, body).await,
        "selfsubjectreviews" => review::who_am_i(cx, body).await,
        "tokenreviews" => review::whose_token(api, cx, body).await,
        "localsubjectaccessreviews" => review::can_he_here(cx, r, body).await,
        "selfsubjectrulesreviews" => review::what_may_i(cx, body).await,
        "subjectaccessreviews" => review::can_he(cx, body).await,
        _ => review::can_i(cx, body).await,
    }
}

/// Finds a resource that is only posted.
pub(crate) fn find_unstored(r: &ResourceRequest) -> Option<&'static Unstored> {
    UNSTORED.iter().find(|u| {
        (u.group, u.version, u.plural)
            == (r.group.as_str(), r.version.as_str(), r.resource.as_str())
            && u.namespaced == r.namespace.is_some()
    })
}

/// Carries out a request on a subresource.
pub(crate) fn dispatch<'a>(
    api: &'a Arc<Api>,
    cx: &'a mut Context,
    target: &'a Target,
    r: &'a ResourceRequest,
    body: BoxBody,
) -> BoxFuture<'a, Result<Response<BoxBody>, Status>> {
    Box::pin(async move {
        let kind = target.kind();
        let subresource = kind
            .subresource(&r.subresource)
            .ok_or_else(|| not_yet(r).unwrap_or_else(Status::no_such_path))?;
        let verb = cx.info.verb.as_str();
        if !subresource.verbs.contains(&verb) {
            return Err(Status::method_not_allowed());
        }
        if target.name.is_empty() {
            return Err(Status::no_such_path());
        }
        match subresource.name {
            "status" => verbs::through(api, cx, target, Endpoint::Status, body).await,
            "finalize" => verbs::through(api, cx, target, Endpoint::Finalize, body).await,
            "scale" => scale::serve(api, cx, target, body).await,
            "binding" => binding::create(api, cx, target, body).await,
            "eviction" => eviction::create(api, cx, target, body).await,
            "log" => log::get(api, cx, target).await,
            "token" => token::create(api, cx, target, body).await,
            "approval" => verbs::through(api, cx, target, Endpoint::Other, body).await,
            "exec" => connect::serve(api, cx, target, Connect::Exec).await,
            "attach" => connect::serve(api, cx, target, Connect::Attach).await,
            "portforward" => connect::serve(api, cx, target, Connect::PortForward).await,
            "ephemeralcontainers" => {
                let part = registry::podparts::ephemeral_containers;
                part::serve(api, cx, target, part, body).await
            }
            "resize" => part::serve(api, cx, target, registry::podparts::resize, body).await,
            _ => Err(Status::no_such_path()),
        }
    })
}

/// The answer of a post that worked and has nothing to show.
fn success(cx: &Context) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Plain)?;
    let status: Value = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    respond::plain(cx, accepted, StatusCode::CREATED, &status)
}
