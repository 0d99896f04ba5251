//! `binding`: the scheduler's decision, written into the pod once.

use std::sync::Arc;

use http::Response;
use meta::{Status, value};
use registry::kind::Endpoint;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::input;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::request_info::ResourceRequest;
use crate::verbs::{Change, store_change};

/// Binds the pod of the URL.
pub(super) async fn create(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let binding = read(cx, body).await?;
    let named = value::name(&binding);
    if !named.is_empty() && named != target.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    bind(api, cx, target, &binding).await
}

/// Binds the pod that the body names (`POST …/bindings`).
pub(super) async fn create_by_body(
    api: &Arc<Api>,
    cx: &mut Context,
    r: &ResourceRequest,
    body: BoxBody,
) -> Result<Response<BoxBody>, Status> {
    let binding = read(cx, body).await?;
    let target = Target {
        resource: api.core("pods")?.clone(),
        namespace: r.namespace.clone(),
        name: value::name(&binding).to_owned(),
    };
    bind(api, cx, &target, &binding).await
}

async fn read(cx: &Context, body: BoxBody) -> Result<Value, Status> {
    let binding = input::read_small(cx, body, "Binding").await?;
    binding.ok_or_else(|| Status::bad_request("a Binding is needed"))
}

async fn bind(
    api: &Arc<Api>,
    cx: &mut Context,
    target: &Target,
    binding: &Value,
) -> Result<Response<BoxBody>, Status> {
    let options = WriteOptions::read(&cx.query, "CreateOptions")?;
    let (kind, now) = (target.kind(), jiff::Timestamp::now());
    let new = |old: &Value| registry::binding::bind(kind, old, binding, now);
    let change = Change {
        endpoint: Endpoint::Other,
        dry_run: options.dry_run,
        // As upstream: where a pod runs is nobody's field.
        by: None,
        new: &new,
        body: None,
    };
    store_change(api, cx, target, change).await?;
    super::success(cx)
}
