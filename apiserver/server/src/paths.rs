//! What is served at paths that name no resource.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, HeaderValue};
use http::{Method, Response, StatusCode};
use meta::Status;
use serde_json::{Value, json};

use crate::api::Api;
use crate::body::BoxBody;
use crate::pipeline::Context;
use crate::{discovery, health, openapi, respond, version};

/// Answers a request on a path that names no resource.
pub(crate) async fn serve(api: &Arc<Api>, cx: &Context) -> Result<Response<BoxBody>, Status> {
    if !matches!(cx.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    let segments: Vec<&str> = cx.info.path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        [] => index(),
        ["api"] | ["apis"] => discovery::root(api, cx, segments[0]),
        ["api", version] => discovery::resources(api, cx, "", version),
        ["apis", group] => discovery::group(api, cx, group),
        ["apis", group, version] => discovery::resources(api, cx, group, version),
        ["version"] => respond::raw_json(&version::info()),
        [probe @ ("healthz" | "livez" | "readyz"), check @ ..] => {
            health::probe(api, cx, probe, check).await
        }
        ["metrics"] => Ok(api.metrics.print(api, cx)),
        [".well-known", "openid-configuration"] => {
            open_id(cx, "application/json", &api.service_tokens.configuration())
        }
        ["openid", "v1", "jwks"] => {
            let keys = api.service_tokens.key_set();
            open_id(cx, "application/jwk-set+json", &keys)
        }
        ["openapi", "v2"] => openapi::v2(api, cx).await,
        ["openapi", "v3", rest @ ..] => openapi::v3(api, cx, rest).await,
        _ => Err(Status::no_such_path()),
    }
}

fn index() -> Result<Response<BoxBody>, Status> {
    let paths = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ];
    respond::raw_json(&json!({"paths": paths}))
}

/// Answers what others need to check tokens of service accounts.
fn open_id(
    cx: &Context,
    content_type: &'static str,
    document: &Value,
) -> Result<Response<BoxBody>, Status> {
    let mut response = cx.respond(StatusCode::OK, content_type, document.to_string());
    let hour = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(CACHE_CONTROL, hour);
    Ok(response)
}
