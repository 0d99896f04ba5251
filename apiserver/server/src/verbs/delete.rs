//! `delete` and `deletecollection`: at once, or in steps while finalizers or a
//! grace period hold the object.

use std::sync::Arc;

use http::{Response, StatusCode};
use meta::{Object, Reason, Status, value};
use registry::rest::{self, DeleteOptions, DeleteStep};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::list::list_request;
use crate::admission;
use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::Query;
use crate::storage::{ListRequest, Preconditions};
use crate::{deadline, listing, respond, services};

/// How many objects a deletion of a collection reads at a time.
const COLLECTION_PAGE: usize = 500;

pub(super) async fn delete(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Resource)?;
    let options = read_options(cx, body).await?;
    let kind = target.kind();
    cx.warnings
        .extend(kind.strategy().delete_warnings(&options));
    admission::may_delete(target, &target.name)?;
    let done = delete_one(api, target, &target.name, target.ns(), &options).await?;
    let code = match done {
        // Only who asked in the old way hears of it by the code.
        Deleted::Waiting(_) | Deleted::Would(_, false) if options.cascades => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let gone = |name: &str, uid: &str| {
        let status = Status::deleted(&kind.group_resource(), name, uid);
        let status = serde_json::to_value(status).map_err(Status::internal)?;
        respond::plain(cx, accepted, code, &status)
    };
    match done {
        Deleted::Gone(object) if !kind.returns_deleted => gone(&object.meta.name, &object.meta.uid),
        Deleted::Would(view, true) if !kind.returns_deleted => {
            gone(value::name(&view), value::uid(&view))
        }
        Deleted::Gone(object) | Deleted::Waiting(object) => {
            respond::object(cx, accepted, code, kind, &object)
        }
        Deleted::Would(view, _) => respond::value(cx, accepted, code, kind, view),
    }
}

/// Deletes everything selected, page by page; what others delete meanwhile is
/// no failure. Not atomic, as upstream.
pub(super) async fn delete_collection(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Resource)?;
    let asked = list_request(&cx.query, target)?;
    let options = read_options(cx, body).await?;
    let kind = target.kind();
    cx.warnings
        .extend(kind.strategy().delete_warnings(&options));
    // Who asks for a page gets that page deleted and the token of the next.
    let one_page = asked.limit > 0;
    let mut request = ListRequest {
        limit: if one_page {
            asked.limit
        } else {
            COLLECTION_PAGE
        },
        ..asked
    };
    let mut deleted = Vec::new();
    let result = loop {
        let mut page = target.store().list(request.clone()).await?;
        for object in page.items.drain(..) {
            let (ns, name) = (object.meta.namespace.as_str(), object.meta.name.as_str());
            let ns = Some(ns).filter(|_| target.kind().namespaced);
            admission::may_delete(target, name)?;
            match delete_one(api, target, name, ns, &options).await {
                Ok(_) => deleted.push(object.clone()),
                Err(s) if s.reason == Reason::NotFound => {}
                Err(s) => return Err(s),
            }
        }
        if one_page {
            break page;
        }
        match page.continue_token.take() {
            Some(token) => {
                request.continue_token = Some(token);
                request.version = crate::storage::ReadVersion::Unset;
                request.version_match = None;
            }
            None => break page,
        }
    };
    let list = crate::storage::ListResult {
        items: deleted,
        remaining: result.remaining.filter(|_| one_page),
        ..result
    };
    let deadline = Instant::now() + deadline::of(&cx.query, cx.info.verb)?;
    listing::answer(cx, accepted, &target.resource.kind, list.into(), deadline).await
}

/// What came of a deletion.
pub(crate) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Arc<Object>),
    /// The object waits, in this state.
    Waiting(Arc<Object>),
    /// A dry run: the view of what would be, and whether it would be gone.
    Would(Value, bool),
}

/// Deletes one object, or begins to.
pub(crate) async fn delete_one(
    api: &Api,
    target: &Target,
    name: &str,
    namespace: Option<&str>,
    options: &DeleteOptions,
) -> Result<Deleted, Status> {
    let kind = target.kind();
    let preconditions = Preconditions {
        uid: options.uid.clone(),
        resource_version: options.resource_version.clone(),
    };
    // Checked by the options in their own words.
    let any = Preconditions::default();
    let mut step = DeleteStep::Pending;
    let mut seen = (String::new(), Value::Null);
    let outcome = target
        .store()
        .guaranteed_update(namespace, name, &any, |object, mut old| {
            kind.from_storage(&mut old);
            let version = object.resource_version.to_string();
            options.check(kind, &old, &version)?;
            step = rest::begin_delete(kind, &mut old, options, jiff::Timestamp::now());
            seen = (version, Value::Null);
            if options.dry_run {
                seen.1 = old;
                return Ok(None);
            }
            if step != DeleteStep::Update {
                return Ok(None);
            }
            kind.to_storage(&mut old);
            Ok(Some(old))
        })
        .await?;
    if options.dry_run {
        let view = super::unstored(kind, seen.1, Some(&seen.0));
        return Ok(Deleted::Would(view, step == DeleteStep::Remove));
    }
    if step != DeleteStep::Remove {
        return Ok(Deleted::Waiting(outcome.object));
    }
    // The removal holds for the state that was judged: a finalizer that was
    // added since must not be overlooked. Judged again if it changed.
    let mut judge = |object: &Arc<Object>| {
        let mut old = object.to_value().map_err(Status::internal)?;
        kind.from_storage(&mut old);
        match rest::begin_delete(kind, &mut old, options, jiff::Timestamp::now()) {
            DeleteStep::Remove => Ok(()),
            _ => Err(Status::modified(&kind.group_resource(), name)),
        }
    };
    let gone = target
        .store()
        .delete(namespace, name, &preconditions, &mut judge)
        .await?;
    services::release(api, kind, &gone).await;
    Ok(Deleted::Gone(gone))
}

/// Removes an object without asking what holds it; the caller has.
pub(crate) async fn remove(
    api: &Api,
    target: &Target,
    name: &str,
    namespace: Option<&str>,
    preconditions: &Preconditions,
) -> Result<Arc<Object>, Status> {
    let gone = target
        .store()
        .delete(namespace, name, preconditions, |_| Ok(()))
        .await?;
    services::release(api, target.kind(), &gone).await;
    Ok(gone)
}

/// Reads the options from the body, or, without one, from the query.
async fn read_options(cx: &Context, body: BoxBody) -> Result<DeleteOptions, Status> {
    let from_body = input::read_small(cx, body, "DeleteOptions").await?;
    let value = match from_body {
        Some(value) => value,
        None => from_query(&cx.query)?,
    };
    DeleteOptions::from_value(&value)
}

fn from_query(query: &Query) -> Result<Value, Status> {
    let mut value = json!({});
    if let Some(n) = query.number("gracePeriodSeconds")? {
        value["gracePeriodSeconds"] = n.into();
    }
    if let Some(policy) = query.non_empty("propagationPolicy") {
        value["propagationPolicy"] = policy.into();
    }
    if query.get("orphanDependents").is_some() {
        value["orphanDependents"] = query.flag("orphanDependents").into();
    }
    if let Some(uid) = query.non_empty("uid") {
        value["preconditions"] = json!({"uid": uid});
    }
    let dry: Vec<&str> = query.all("dryRun").collect();
    if !dry.is_empty() {
        value["dryRun"] = dry.into();
    }
    Ok(value)
}
