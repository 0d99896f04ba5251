//! `get`: one object.

use http::{Response, StatusCode};
use meta::Status;

use crate::api::Target;
use crate::body::BoxBody;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::respond;
use crate::storage::ReadVersion;

pub(super) async fn get(cx: &Context, target: &Target) -> Result<Response<BoxBody>, Status> {
    let accepted = cx.accept(Offer::Resource)?;
    let version = ReadVersion::parse(cx.query.get("resourceVersion").unwrap_or_default())?;
    let object = target
        .store()
        .get(target.ns(), &target.name, version)
        .await?;
    respond::object(cx, accepted, StatusCode::OK, target.kind(), &object)
}
