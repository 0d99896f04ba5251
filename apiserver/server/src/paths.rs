//! What is served at paths that name no resource.

use std::sync::Arc;

use http::{Method, Response, StatusCode};
use meta::{Reason, Status};
use serde_json::json;

use crate::api::Api;
use crate::body::BoxBody;
use crate::negotiation::Offer;
use crate::pipeline::Context;
use crate::{discovery, health, openapi, respond};

/// The version this server calls itself, of the API it speaks.
pub(crate) const GIT_VERSION: &str = concat!("v1.36.0+keelson.", env!("CARGO_PKG_VERSION"));
const MAJOR: &str = "1";
const MINOR: &str = "36";

/// Answers a request on a path that names no resource.
pub(crate) async fn serve(api: &Arc<Api>, cx: &Context) -> Result<Response<BoxBody>, Status> {
    if !matches!(cx.method, Method::GET | Method::HEAD) {
        return Err(Status::failure(
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        ));
    }
    let segments: Vec<&str> = cx.info.path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        [] => index(cx),
        ["api"] | ["apis"] => discovery::root(api, cx, segments[0]),
        ["api", version] => discovery::resources(api, cx, "", version),
        ["apis", group] => discovery::group(api, cx, group),
        ["apis", group, version] => discovery::resources(api, cx, group, version),
        ["version"] => version(cx),
        [probe @ ("healthz" | "livez" | "readyz"), check @ ..] => {
            health::probe(api, cx, probe, check).await
        }
        ["metrics"] => Ok(api.metrics.print(api, cx)),
        ["openapi", "v2"] => openapi::v2(api, cx).await,
        ["openapi", "v3", rest @ ..] => openapi::v3(api, cx, rest).await,
        _ => Err(Status::no_such_path()),
    }
}

fn index(cx: &Context) -> Result<Response<BoxBody>, Status> {
    let paths = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ];
    respond::plain(
        cx,
        cx.accept(Offer::Plain)?,
        StatusCode::OK,
        &json!({"paths": paths}),
    )
}

fn version(cx: &Context) -> Result<Response<BoxBody>, Status> {
    let info = json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    });
    respond::plain(cx, cx.accept(Offer::Plain)?, StatusCode::OK, &info)
}

/// Names the architecture as Go does, which clients compare with.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
