//! `scale`: the replica count of a workload as an `autoscaling/v1` Scale.

use std::sync::Arc;

use http::{Response, StatusCode};
use meta::Status;
use registry::kind::Endpoint;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::input;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::request_info::Verb;
use crate::respond;
use crate::storage::ReadVersion;
use crate::verbs::{Change, read_patch, store_change};

pub(super) async fn serve(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let kind = target.kind();
    let accepted = cx.accept(Offer::Plain)?;
    let answer = |cx: &Context, view: &Value| {
        respond::plain(cx, accepted, StatusCode::OK, &registry::scale::read(view))
    };
    if cx.info.verb == Verb::Get {
        let version = ReadVersion::parse(cx.query.get("resourceVersion").unwrap_or_default())?;
        let object = target
            .store()
            .get(target.ns(), &target.name, version)
            .await?;
        return answer(cx, &respond::view(kind, &object)?);
    }
    let options = WriteOptions::read(&cx.query, "UpdateOptions")?;
    let done = if cx.info.verb == Verb::Patch {
        let patch = read_patch(&cx.headers, body).await?;
        let new = |old: &Value| {
            let scale = patch.apply_plain(&registry::scale::read(old))?;
            registry::scale::write(kind, old, &check(scale)?)
        };
        let change = Change {
            endpoint: Endpoint::Other,
            dry_run: options.dry_run,
            new: &new,
        };
        store_change(api, cx, target, change).await?
    } else {
        let scale = input::read_small(cx, body, "Scale").await?;
        let scale = check(scale.ok_or_else(|| Status::bad_request("a Scale is needed"))?)?;
        let new = |old: &Value| {
            let mut new = registry::scale::write(kind, old, &scale)?;
            if meta::value::str_at(&scale, "metadata.resourceVersion").is_empty() {
                meta::value::set_metadata(&mut new, "resourceVersion", Value::Null);
            }
            Ok(new)
        };
        let change = Change {
            endpoint: Endpoint::Other,
            dry_run: options.dry_run,
            new: &new,
        };
        store_change(api, cx, target, change).await?
    };
    answer(cx, &done.view(kind)?)
}

/// Checks the types of a Scale.
fn check(mut scale: Value) -> Result<Value, Status> {
    let gvk = meta::GroupVersionKind::new("autoscaling", "v1", "Scale");
    if let Some(def) = registry::table::table().id("io.k8s.api.autoscaling.v1.Scale") {
        registry::schema::conform(def, &mut scale)
            .map_err(|e| Status::bad_request(e.message(&gvk)))?;
    }
    Ok(scale)
}
