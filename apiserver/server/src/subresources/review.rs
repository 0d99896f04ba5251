//! Reviews: who is that, and may he. Posted and answered, never stored.

use std::sync::Arc;

use http::{Response, StatusCode};
use meta::value::{self, at, str_at};
use meta::{FieldError, GroupVersionKind, Status};
use serde_json::{Value, json};

use crate::api::Api;
use crate::authn::UserInfo;
use crate::authz;
use crate::body::BoxBody;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::request_info::{RequestInfo, ResourceRequest, Verb};
use crate::respond;
use crate::service_tokens;

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Reads a review, its types checked; an empty body is an empty review.
pub(super) async fn read(
    cx: &Context,
    body: BoxBody,
    group: &'static str,
    kind: &'static str,
) -> Result<Value, Status> {
    let gvk = GroupVersionKind::new(group, "v1", kind);
    let found = input::read_small(cx, body, kind).await?;
    let mut review = found.unwrap_or_else(|| json!({}));
    let package = group.split('.').next().unwrap_or_default();
    let definition = format!("io.k8s.api.{package}.v1.{kind}");
    if let Some(def) = registry::table::table().id(&definition) {
        registry::schema::conform(def, &mut review)
            .map_err(|e| Status::bad_request(e.message(&gvk)))?;
    }
    value::set_type_meta(&mut review, &gvk);
    Ok(review)
}

/// Answers a review.
pub(super) fn write(
    cx: &Context,
    code: StatusCode,
    review: &Value,
) -> Result<Response<BoxBody>, Status> {
    let mut review = review.clone();
    // Its type has metadata whether there is any or not.
    value::metadata_mut(&mut review);
    respond::plain(cx, cx.accept(Offer::Plain)?, code, &review)
}

fn refuse_if_any(review: &Value, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let (version, kind) = value::type_meta(review);
    let group = version.split('/').next().unwrap_or_default();
    let gvk = GroupVersionKind::new(group, "v1", kind);
    Err(Status::invalid(&gvk, "", errors))
}

fn user_info(user: &UserInfo) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// Answers `SelfSubjectReview` (`kubectl auth whoami`).
pub(super) async fn who_am_i(cx: &Context, body: BoxBody) -> Result<Response<BoxBody>, Status> {
    let mut review = read(cx, body, AUTHENTICATION, "SelfSubjectReview").await?;
    let now = meta::time::format(jiff::Timestamp::now());
    value::set_metadata(&mut review, "creationTimestamp", now);
    review["status"] = json!({"userInfo": user_info(&cx.user)});
    write(cx, StatusCode::CREATED, &review)
}

/// Answers `TokenReview`: whose token is that.
pub(super) async fn whose_token(
    api: &Arc<Api>,
    cx: &Context,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let mut review = read(cx, body, AUTHENTICATION, "TokenReview").await?;
    let token = str_at(&review, "spec.token").to_owned();
    if token.is_empty() {
        return Err(Status::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let ours = api.service_tokens.audiences();
    let asked: Vec<String> = registry::checks::texts(&review, "spec.audiences")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let wanted = if asked.is_empty() { ours } else { &asked };
    let found = match api.tokens.user(&token) {
        // A static token is for this API, whoever asks.
        Some(user) => {
            let shared = wanted.iter().filter(|w| ours.contains(w));
            Ok((user.clone(), shared.cloned().collect::<Vec<_>>()))
        }
        None => service_tokens::identify(api, &token, wanted).await,
    };
    review["status"] = match found {
        Ok((user, audiences)) if !audiences.is_empty() => json!({
            "authenticated": true, "user": user_info(&user), "audiences": audiences,
        }),
        Ok(_) => json!({"user": {}}),
        Err(why) => {
            let why = match why.as_str() {
                "invalid bearer token" => why,
                other => format!("[invalid bearer token, {other}]"),
            };
            json!({"user": {}, "error": why})
        }
    };
    write(cx, StatusCode::CREATED, &review)
}

/// Answers `SelfSubjectAccessReview` (`kubectl auth can-i`).
pub(super) async fn can_i(cx: &Context, body: BoxBody) -> Result<Response<BoxBody>, Status> {
    let review = read(cx, body, AUTHORIZATION, "SelfSubjectAccessReview").await?;
    let mut errors = Vec::new();
    one_question(&review, &mut errors);
    nameless(&review, &[], "must be empty", &mut errors);
    refuse_if_any(&review, &errors)?;
    answer(cx, review, &cx.user)
}

/// Answers `SubjectAccessReview`: may somebody else.
pub(super) async fn can_he(cx: &Context, body: BoxBody) -> Result<Response<BoxBody>, Status> {
    let review = read(cx, body, AUTHORIZATION, "SubjectAccessReview").await?;
    let mut errors = Vec::new();
    one_question(&review, &mut errors);
    somebody(&review, &mut errors);
    nameless(&review, &[], "must be empty", &mut errors);
    refuse_if_any(&review, &errors)?;
    let user = subject(&review);
    answer(cx, review, &user)
}

/// Answers `LocalSubjectAccessReview`: may somebody else, in this namespace.
pub(super) async fn can_he_here(
    cx: &Context,
    r: &ResourceRequest,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let mut review = read(cx, body, AUTHORIZATION, "LocalSubjectAccessReview").await?;
    let namespace = r.namespace.as_deref().unwrap_or_default();
    if value::namespace(&review).is_empty() {
        value::set_metadata(&mut review, "namespace", namespace);
    } else if value::namespace(&review) != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let mut errors = Vec::new();
    one_question(&review, &mut errors);
    somebody(&review, &mut errors);
    let words = "must be empty except for namespace";
    nameless(&review, &["namespace"], words, &mut errors);
    if let Some(attributes) = at(&review, "spec.resourceAttributes")
        && str_at(attributes, "namespace") != namespace
    {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes.namespace",
            str_at(attributes, "namespace"),
            "must match metadata.namespace",
        ));
    }
    if let Some(attributes) = at(&review, "spec.nonResourceAttributes") {
        errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            attributes.clone(),
            "disallowed on this kind of request",
        ));
    }
    refuse_if_any(&review, &errors)?;
    let user = subject(&review);
    answer(cx, review, &user)
}

/// Answers `SelfSubjectRulesReview` (`kubectl auth can-i --list`).
pub(super) async fn what_may_i(cx: &Context, body: BoxBody) -> Result<Response<BoxBody>, Status> {
    let mut review = read(cx, body, AUTHORIZATION, "SelfSubjectRulesReview").await?;
    if str_at(&review, "spec.namespace").is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (resources, paths) = authz::rules_of(&cx.user);
    review["status"] = json!({
        "resourceRules": resources, "nonResourceRules": paths, "incomplete": false,
    });
    write(cx, StatusCode::CREATED, &review)
}

fn one_question(review: &Value, errors: &mut Vec<FieldError>) {
    let of = |field: &str| at(review, &format!("spec.{field}"));
    match (of("resourceAttributes"), of("nonResourceAttributes")) {
        (Some(_), Some(others)) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            others.clone(),
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
}

fn somebody(review: &Value, errors: &mut Vec<FieldError>) {
    let groups = registry::checks::texts(review, "spec.groups");
    if str_at(review, "spec.user").is_empty() && groups.is_empty() {
        errors.push(FieldError::invalid(
            "spec.user",
            "",
            "at least one of user or group must be specified",
        ));
    }
}

/// Checks that a review has no metadata but what it may have.
fn nameless(review: &Value, but: &[&str], words: &str, errors: &mut Vec<FieldError>) {
    let metadata = review.get("metadata").and_then(Value::as_object);
    let odd = metadata.into_iter().flatten().any(|(name, value)| {
        !but.contains(&name.as_str()) && name != "managedFields" && *value != json!("")
    });
    if odd {
        let shown = review.get("metadata").cloned().unwrap_or_default();
        errors.push(FieldError::invalid("metadata", shown, words));
    }
}

fn subject(review: &Value) -> UserInfo {
    let groups = registry::checks::texts(review, "spec.groups");
    UserInfo {
        name: str_at(review, "spec.user").to_owned(),
        uid: str_at(review, "spec.uid").to_owned(),
        groups: groups.into_iter().map(str::to_owned).collect(),
        ..UserInfo::default()
    }
}

fn answer(cx: &Context, mut review: Value, user: &UserInfo) -> Result<Response<BoxBody>, Status> {
    let spec = &review["spec"];
    let allowed = match (
        spec.get("resourceAttributes"),
        spec.get("nonResourceAttributes"),
    ) {
        (Some(a), _) => authz::may(user, str_at(a, "verb"), &resource(a)),
        (None, Some(a)) => authz::authorize(user, &path(a)).is_ok(),
        (None, None) => false,
    };
    review["status"] = json!({"allowed": allowed});
    write(cx, StatusCode::CREATED, &review)
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
