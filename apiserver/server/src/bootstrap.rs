//! What exists before anybody made it: the system namespaces, the priority
//! classes of the system, and the service through which the cluster finds its
//! own API.
//!
//! Made through the server's own pipeline, as a component would, so that these
//! objects are defaulted and validated like any other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::api::Api;
use crate::authn::{Peer, UserInfo};
use crate::body::{self, JSON};
use crate::serve::Handler;
use crate::services;

/// The namespaces that always exist.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
/// Who owns what is made here.
const MANAGER: &str = "kube-apiserver";
/// How long to wait before trying again when the store does not answer; doubled
/// each time up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Creates what is missing; tries again until it exists or the server stops.
pub(crate) async fn run(api: Arc<Api>, port: u16) {
    let mut pause = RETRY.0;
    tokio::select! {
        () = api.shutdown.cancelled() => return,
        () = api.caches_ready() => {}
    }
    loop {
        match create_all(&api, port).await {
            Ok(()) => break,
            Err(error) => tracing::warn!(error, "cannot create the system objects, trying again"),
        }
        tokio::select! {
            () = api.shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY.1),
        }
    }
    api.bootstrapped.send_replace(true);
    if let Err(error) = services::repair(&api).await {
        tracing::warn!(%error, "cannot check the claims of cluster IPs; the next start will");
    }
}

async fn create_all(api: &Arc<Api>, port: u16) -> Result<(), String> {
    for name in NAMESPACES {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        ensure(api, "/api/v1/namespaces", name, namespace).await?;
    }
    for class in registry::kinds::priorityclass::system_classes() {
        let name = meta::value::name(&class).to_owned();
        ensure(api, PRIORITY_CLASSES, &name, class).await?;
    }
    let address = api.service_ips.range().first().to_string();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    ensure(
        api,
        "/api/v1/namespaces/default/services",
        "kubernetes",
        service,
    )
    .await
}

async fn ensure(api: &Arc<Api>, path: &str, name: &str, object: Value) -> Result<(), String> {
    let (found, text) = call(api, Method::GET, &format!("{path}/{name}"), None).await?;
    match found {
        StatusCode::OK => return Ok(()),
        StatusCode::NOT_FOUND => {}
        code => return Err(format!("GET {path}/{name}: {code} {text}")),
    }
    match call(api, Method::POST, path, Some(object)).await? {
        // Another server over the same store was faster.
        (StatusCode::CREATED | StatusCode::CONFLICT, _) => Ok(()),
        (code, text) => Err(format!("POST {path} {name}: {code} {text}")),
    }
}

async fn call(
    api: &Arc<Api>,
    method: Method,
    path: &str,
    object: Option<Value>,
) -> Result<(StatusCode, String), String> {
    let bytes = object.map(|o| o.to_string()).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, JSON)
        .header(http::header::USER_AGENT, MANAGER)
        .body(body::full(Bytes::from(bytes)))
        .map_err(|e| e.to_string())?;
    let user = UserInfo::component("system:apiserver");
    let response = api.clone().handle(Peer::InProcess(user), request).await;
    let code = response.status();
    let bytes = response
        .into_body()
        .collect()
        .await
        .map_err(|e| e.to_string())?
        .to_bytes();
    Ok((code, String::from_utf8_lossy(&bytes).into_owned()))
}
