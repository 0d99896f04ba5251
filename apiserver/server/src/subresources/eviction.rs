//! `eviction`: a deletion that disruption budgets may forbid. There are no
//! budgets yet, so it is a deletion.

use std::sync::Arc;

use http::Response;
use meta::{Status, value};
use registry::rest::DeleteOptions;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::BoxBody;
use crate::input;
use crate::pipeline::Context;
use crate::query::WriteOptions;
use crate::verbs::delete_one;

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
    delete_one(api, target, &target.name, target.ns(), &options).await?;
    super::success(cx)
}
