//! `log`: a container's output, passed through from the kubelet of its node.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use meta::value::{self, str_at};
use meta::{FieldError, GroupVersionKind, Reason, Status};
use serde_json::Value;

use crate::api::{Api, Target};
use crate::body::{BoxBody, BoxError, read_limited};
use crate::pipeline::Context;
use crate::query::Query;
use crate::respond;
use crate::storage::ReadVersion;

/// Where a kubelet listens when its node does not say.
const KUBELET_PORT: i64 = 10250;
/// How much of a kubelet's error text is passed on.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// How long connecting to a kubelet may take.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// The options a kubelet understands, passed on as they came.
const OPTIONS: [&str; 7] = [
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
];

/// Calls kubelets over HTTPS, as the API server.
#[derive(Clone, Debug)]
pub(crate) struct KubeletClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl KubeletClient {
    /// Creates the client from the TLS configuration with the server's client
    /// certificate.
    pub(crate) fn new(tls: rustls::ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http1();
        Self {
            client: Client::builder(TokioExecutor::new()).build(https.wrap_connector(tcp)),
        }
    }

    async fn get(&self, uri: Uri) -> Result<Response<Incoming>, Status> {
        let failed = |e: &dyn std::fmt::Display| Status::internal(format!("Get {uri:?}: {e}"));
        let request = Request::get(uri.clone())
            .body(Full::new(Bytes::new()))
            .map_err(|e| failed(&e))?;
        self.client.request(request).await.map_err(|e| {
            let cause = std::error::Error::source(&e).map(ToString::to_string);
            failed(&cause.unwrap_or_else(|| e.to_string()))
        })
    }
}

/// Answers a container's log.
pub(super) async fn get(
    api: &Arc<Api>,
    cx: &Context,
    target: &Target,
) -> Result<Response<BoxBody>, Status> {
    check_options(&cx.query)?;
    let pod = target
        .store()
        .get(target.ns(), &target.name, ReadVersion::Unset)
        .await?;
    let pod = respond::view(target.kind(), &pod)?;
    let container = container(&pod, cx.query.non_empty("container"))?;
    let node = str_at(&pod, "spec.nodeName");
    if node.is_empty() {
        let text = format!("pod {} does not have a host assigned", target.name);
        return Err(Status::bad_request(text));
    }
    let node = api
        .core("nodes")?
        .store
        .get(None, node, ReadVersion::Unset)
        .await?;
    let node = node.to_value().map_err(Status::internal)?;
    let uri = uri(&node, &pod, &container, &cx.query)?;
    let answer = api.kubelets.get(uri).await?;
    if !answer.status().is_success() {
        return Err(kubelet_error(answer).await);
    }
    let (parts, body) = answer.into_parts();
    let body = body.map_err(|e| Box::new(e) as BoxError).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    let plain = HeaderValue::from_static("text/plain");
    let content_type = parts.headers.get(CONTENT_TYPE).cloned().unwrap_or(plain);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    Ok(response)
}

fn check_options(query: &Query) -> Result<(), Status> {
    let mut errors = Vec::new();
    for (name, least) in [("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)] {
        if let Some(n) = query.number(name)?
            && n < least
        {
            errors.push(FieldError::invalid(
                name,
                n,
                format!("must be greater than or equal to {least}"),
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(
        &GroupVersionKind::new("", "v1", "PodLogOptions"),
        "",
        &errors,
    ))
}

/// Decides which container is meant.
fn container(pod: &Value, asked: Option<&str>) -> Result<String, Status> {
    let name = value::name(pod);
    let names = |field: &str| -> Vec<&str> {
        let list = value::at(pod, &format!("spec.{field}")).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|c| str_at(c, "name"))
            .collect()
    };
    let (main, init) = (names("containers"), names("initContainers"));
    let ephemeral = names("ephemeralContainers");
    if let Some(asked) = asked {
        let known = [&main, &init, &ephemeral]
            .into_iter()
            .any(|l| l.contains(&asked));
        return match known {
            true => Ok(asked.to_owned()),
            false => Err(Status::bad_request(format!(
                "container {asked} is not valid for pod {name}"
            ))),
        };
    }
    if let [only] = main.as_slice() {
        return Ok((*only).to_owned());
    }
    let annotated = value::at(pod, "metadata.annotations").map(|a| {
        a["kubectl.kubernetes.io/default-container"]
            .as_str()
            .unwrap_or_default()
    });
    if let Some(default) = annotated.filter(|d| main.contains(d)) {
        return Ok(default.to_owned());
    }
    let mut text = format!(
        "a container name must be specified for pod {name}, choose one of: [{}]",
        main.join(" ")
    );
    if !init.is_empty() {
        text += &format!(" or one of the init containers: [{}]", init.join(" "));
    }
    Err(Status::bad_request(text))
}

/// Returns the kubelet's URL of a container's log.
fn uri(node: &Value, pod: &Value, container: &str, query: &Query) -> Result<Uri, Status> {
    let name = value::name(node);
    let host = address(node).ok_or_else(|| {
        Status::internal(format!("no preferred addresses found for node {name:?}"))
    })?;
    let port = value::int_at(node, "status.daemonEndpoints.kubeletEndpoint.Port")
        .filter(|p| *p > 0)
        .unwrap_or(KUBELET_PORT);
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    // Names are checked against RFC 1123 on their way in: no escapes needed.
    let (ns, pod) = (value::namespace(pod), value::name(pod));
    let mut text = format!("https://{host}:{port}/containerLogs/{ns}/{pod}/{container}");
    let mut separator = '?';
    for option in OPTIONS {
        if let Some(given) = query.non_empty(option) {
            text += &format!("{separator}{option}={}", escape(given));
            separator = '&';
        }
    }
    text.parse()
        .map_err(|e| Status::internal(format!("kubelet address {text:?}: {e}")))
}

/// Picks a node's address, those of the node's own network first.
fn address(node: &Value) -> Option<String> {
    let addresses = value::at(node, "status.addresses")?.as_array()?;
    [
        "InternalIP",
        "ExternalIP",
        "InternalDNS",
        "Hostname",
        "ExternalDNS",
    ]
    .iter()
    .find_map(|ty| {
        let found = addresses.iter().find(|a| str_at(a, "type") == *ty)?;
        Some(str_at(found, "address").to_owned())
    })
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            out += &format!("%{b:02X}");
        }
    }
    out
}

async fn kubelet_error(answer: Response<Incoming>) -> Status {
    let code = answer.status();
    let body = answer
        .into_body()
        .map_err(|e| Box::new(e) as BoxError)
        .boxed_unsync();
    let text = match read_limited(body, ERROR_BYTES_MAX).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(_) => String::new(),
    };
    let reason = match code.as_u16() {
        400 => Reason::BadRequest,
        404 => Reason::NotFound,
        401 | 403 => Reason::Forbidden,
        _ => Reason::InternalError,
    };
    let text = if text.is_empty() {
        format!("the kubelet answered {code}")
    } else {
        text
    };
    Status::failure(reason, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn picks_the_container() {
        let one = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
        assert_eq!(container(&one, None).unwrap(), "a");
        let two = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        assert_eq!(container(&two, Some("i")).unwrap(), "i");
        assert_eq!(
            container(&two, None).unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(
            container(&two, Some("x")).unwrap_err().message,
            "container x is not valid for pod p"
        );
    }

    #[test]
    fn addresses_kubelets() {
        let node = json!({"metadata": {"name": "n"}, "status": {
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "fd00::1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 4711}}}});
        let pod = json!({"metadata": {"namespace": "ns", "name": "p"}});
        let query = Query::parse("follow=true&sinceTime=2026-01-01T00:00:00Z&pretty=1").unwrap();
        assert_eq!(
            uri(&node, &pod, "c", &query).unwrap().to_string(),
            "https://[fd00::1]:4711/containerLogs/ns/p/c?follow=true&sinceTime=2026-01-01T00%3A00%3A00Z"
        );
        assert!(uri(&json!({}), &pod, "c", &query).is_err());
    }
}
