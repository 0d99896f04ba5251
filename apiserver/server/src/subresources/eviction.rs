//! `eviction`: a deletion that disruption budgets may forbid. The rules are
//! `registry::eviction`'s.

use std::sync::Arc;

use http::Response;
use meta::{Reason, Status, value};
use registry::eviction::{self, Need};
use registry::kind::Endpoint;
use registry::rest::DeleteOptions;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::storage::{ListRequest, ReadVersion, Selector};
use crate::verbs::{Change, Done, delete_one, store_change};
use crate::{input, respond};

/// How often a pod that may go anyhow is looked at again because it changed
/// (upstream: `EvictionsRetry`).
const ATTEMPTS_MAX: usize = 20;

pub(super) async fn create(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let dry_run = WriteOptions::read(&cx.query, "CreateOptions")?.dry_run;
    let eviction = input::read_small(cx, body, "Eviction")
        .await?
        .unwrap_or_default();
    let named = value::name(&eviction);
    if !named.is_empty() && named != target.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let mut options = match eviction.get("deleteOptions") {
        Some(options @ Value::Object(_)) => DeleteOptions::from_value(options)?,
        _ => DeleteOptions::default(),
    };
    options.dry_run |= dry_run;
    evict(api, cx, target, &options).await?;
    super::success(cx)
}

async fn evict(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let own_version = options.resource_version.is_some();
    for attempt in 1.. {
        let pod = read(target).await?;
        if !eviction::is_free(&pod) {
            return ask_budgets(api, cx, target, &pod, options).await;
        }
        let mut options = options.clone();
        if eviction::must_stay_same(&pod) && !own_version {
            options.resource_version = Some(version(&pod));
        }
        match delete(api, cx, target, options).await {
            Err(s) if s.reason == Reason::Conflict && !own_version && attempt < ATTEMPTS_MAX => {}
            other => return other,
        }
    }
    Ok(())
}

async fn read(target: &Target) -> Result<Value, Status> {
    let store = target.store();
    let object = store
        .get(target.ns(), &target.name, ReadVersion::Unset)
        .await?;
    respond::view(target.kind(), &object)
}

fn version(object: &Value) -> String {
    value::str_at(object, "metadata.resourceVersion").to_owned()
}

/// Deletes a pod if the budget that guards it, if any does, gives a disruption
/// for it.
async fn ask_budgets(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    pod: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let Some(budget) = guarding(api, target, pod).await? else {
        return delete(api, cx, target, options.clone()).await;
    };
    let mut options = options.clone();
    let mut pinned = false;
    match eviction::need(&budget, pod) {
        Need::Unchanged => {
            pinned = options.resource_version.is_none();
            options.resource_version.get_or_insert_with(|| version(pod));
        }
        Need::Disruption => take(api, cx, target, &budget, options.dry_run).await?,
    }
    match delete(api, cx, target, options).await {
        // It may have become ready, so its budget has to be asked.
        Err(s) if pinned && s.reason == Reason::Conflict => {
            Err(eviction::try_again(value::name(&budget)))
        }
        other => other,
    }
}

/// Returns the budget that guards a pod; several are an error.
async fn guarding(api: &Api, target: &Target, pod: &Value) -> Result<Option<Value>, Status> {
    let Some(budgets) = api
        .resources
        .builtin("policy", "v1", "poddisruptionbudgets")
    else {
        return Ok(None);
    };
    let request = ListRequest {
        selector: Selector {
            namespace: target.namespace.clone(),
            ..Selector::default()
        },
        ..ListRequest::default()
    };
    let list = budgets.store.list(request).await?;
    let mut found = Vec::new();
    for object in &list.items {
        let budget = respond::view(&budgets.kind, object)?;
        if eviction::guards(&budget, pod) {
            found.push(budget);
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err(eviction::several_budgets()),
    }
}

/// Takes a disruption from a budget.
async fn take(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    budget: &Value,
    dry_run: bool,
) -> Result<(), Status> {
    let now = jiff::Timestamp::now();
    if dry_run {
        return eviction::take(budget, &target.name, now).map(drop);
    }
    let resource = api
        .resources
        .builtin("policy", "v1", "poddisruptionbudgets")
        .ok_or_else(Status::no_such_path)?;
    let budgets = Target {
        resource: resource.clone(),
        namespace: target.namespace.clone(),
        name: value::name(budget).to_owned(),
    };
    let new = |old: &Value| eviction::take(old, &target.name, now);
    let change = Change {
        endpoint: Endpoint::Status,
        dry_run: false,
        by: None,
        new: &new,
        body: None,
    };
    store_change(api, cx, &budgets, change).await.map(drop)
}

/// Says in the pod why it goes, and deletes it.
async fn delete(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    mut options: DeleteOptions,
) -> Result<(), Status> {
    if !options.dry_run {
        let now = jiff::Timestamp::now();
        let kind = target.kind();
        let pinned = options.clone();
        let new = |old: &Value| {
            let is = version(old);
            pinned.check(kind, old, &is)?;
            Ok(eviction::mark(old, now))
        };
        let change = Change {
            endpoint: Endpoint::Status,
            dry_run: false,
            by: None,
            new: &new,
            body: None,
        };
        let done = store_change(api, cx, target, change).await?;
        if let (true, Done::Stored(pod)) = (options.resource_version.is_some(), done) {
            options.resource_version = Some(pod.resource_version.to_string());
        }
    }
    delete_one(api, target, &target.name, target.ns(), &options)
        .await
        .map(drop)
}
