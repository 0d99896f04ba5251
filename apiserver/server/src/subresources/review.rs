//! Reviews of oneself: who am I, and may I.

use http::{Response, StatusCode};
use meta::Status;
use meta::value::str_at;
use serde_json::{Value, json};

use crate::authz;
use crate::body::BoxBody;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::respond;

/// Answers `SelfSubjectReview` (`kubectl auth whoami`).
pub(super) async fn who_am_i(cx: &Context, body: BoxBody) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Plain)?;
    input::read_small(cx, body, "SelfSubjectReview").await?;
    let mut user = json!({"username": cx.user.name, "groups": cx.user.groups});
    if !cx.user.uid.is_empty() {
        user["uid"] = cx.user.uid.as_str().into();
    }
    let review = json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": meta::time::format(jiff::Timestamp::now())},
        "status": {"userInfo": user},
    });
    respond::plain(cx, accepted, StatusCode::CREATED, &review)
}

/// Answers `SelfSubjectAccessReview` (`kubectl auth can-i`).
pub(super) async fn can_i(cx: &Context, body: BoxBody) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Plain)?;
    let review = input::read_small(cx, body, "SelfSubjectAccessReview").await?;
    let mut review = review.ok_or_else(|| Status::bad_request("a review is needed"))?;
    let allowed = match (
        review["spec"].get("resourceAttributes"),
        review["spec"].get("nonResourceAttributes"),
    ) {
        (Some(a), None) => authz::may(&cx.user, str_at(a, "verb"), &resource(a)),
        (None, Some(a)) => authz::authorize(&cx.user, &path(a)).is_ok(),
        _ => {
            return Err(Status::bad_request(
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ));
        }
    };
    review["kind"] = "SelfSubjectAccessReview".into();
    review["apiVersion"] = "authorization.k8s.io/v1".into();
    review["status"] = json!({"allowed": allowed});
    respond::plain(cx, accepted, StatusCode::CREATED, &review)
}

fn resource(attributes: &Value) -> ResourceRequest {
    let text = |name: &str| str_at(attributes, name).to_owned();
    let optional = |name: &str| Some(text(name)).filter(|t| !t.is_empty());
    ResourceRequest {
        group: text("group"),
        version: text("version"),
        namespace: optional("namespace"),
        resource: text("resource"),
        subresource: text("subresource"),
        name: optional("name"),
        ..ResourceRequest::default()
    }
}

fn path(attributes: &Value) -> RequestInfo {
    let verb = match str_at(attributes, "verb") {
        "get" => "get",
        "head" => "head",
        "post" => "post",
        "put" => "put",
        "patch" => "patch",
        "delete" => "delete",
        _ => "unknown",
    };
    RequestInfo {
        verb: Verb::Other(verb),
        path: str_at(attributes, "path").to_owned(),
        resource: None,
    }
}
