//! The way to kubelets: who they are, where they listen, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use meta::value::{self, str_at};
use meta::{Reason, Status};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::api::{Api, Target};
use crate::body::{BoxError, read_limited};
use crate::respond;
use crate::storage::ReadVersion;

/// Where a kubelet listens when its node does not say.
const KUBELET_PORT: i64 = 10250;
/// How much of a kubelet's error text is passed on.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// How long connecting to a kubelet may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many streams (exec, attach, port-forward) run at once; beyond it new ones
/// are answered with 429.
const STREAMS_MAX: usize = 2000;

type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Calls kubelets over HTTPS, as the API server.
#[derive(Clone, Debug)]
pub(crate) struct KubeletClient {
    verifying: Https,
    trusting: Https,
    /// The places of streams.
    pub(super) streams: Arc<Semaphore>,
}

impl KubeletClient {
    /// Creates the client from TLS configurations with the server's client
    /// certificate: one that verifies kubelets, and one that believes anybody,
    /// for logs that are asked for so.
    pub(crate) fn new(verifying: rustls::ClientConfig, trusting: rustls::ClientConfig) -> Self {
        Self {
            verifying: https(verifying),
            trusting: https(trusting),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }

    /// Asks for a URI.
    pub(super) async fn get(&self, uri: Uri, verify: bool) -> Result<Response<Incoming>, Status> {
        let request = Request::get(uri.clone())
            .body(Full::new(Bytes::new()))
            .map_err(|e| failed("Get", &uri, &e))?;
        let client = if verify {
            &self.verifying
        } else {
            &self.trusting
        };
        send(client, "Get", uri, request).await
    }

    /// Sends a request that wants its connection for something else.
    pub(super) async fn upgrade(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Status> {
        let uri = request.uri().clone();
        send(&self.verifying, "Dial", uri, request).await
    }
}

fn https(tls: rustls::ClientConfig) -> Https {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1();
    Client::builder(TokioExecutor::new()).build(https.wrap_connector(tcp))
}

async fn send(
    client: &Https,
    verb: &str,
    uri: Uri,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Status> {
    client.request(request).await.map_err(|e| {
        let cause = std::error::Error::source(&e).map(ToString::to_string);
        failed(verb, &uri, &cause.unwrap_or_else(|| e.to_string()))
    })
}

fn failed(verb: &str, uri: &Uri, error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("{verb} {uri:?}: {error}"))
}

/// Reads the pod a request is about.
pub(super) async fn pod(target: &Target) -> Result<Value, Status> {
    let pod = target
        .store()
        .get(target.ns(), &target.name, ReadVersion::Unset)
        .await?;
    respond::view(target.kind(), &pod)
}

/// Reads the node a pod runs on.
pub(super) async fn node_of(api: &Arc<Api>, pod: &Value) -> Result<Value, Status> {
    let node = str_at(pod, "spec.nodeName");
    if node.is_empty() {
        let text = format!("pod {} does not have a host assigned", value::name(pod));
        return Err(Status::bad_request(text));
    }
    let store = &api.core("nodes")?.store;
    let node = store.get(None, node, ReadVersion::Unset).await?;
    node.to_value().map_err(Status::internal)
}

/// Decides which container is meant.
pub(super) fn container(pod: &Value, asked: Option<&str>) -> Result<String, Status> {
    let name = value::name(pod);
    let names = |field: &str| -> Vec<&str> {
        let list = value::at(pod, &format!("spec.{field}")).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|c| str_at(c, "name"))
            .collect()
    };
    let main = names("containers");
    let all = [
        names("initContainers"),
        main.clone(),
        names("ephemeralContainers"),
    ]
    .concat();
    if let Some(asked) = asked {
        return match all.contains(&asked) {
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
    let mut text = format!("a container name must be specified for pod {name}");
    if !main.is_empty() {
        text += &format!(", choose one of: [{}]", all.join(" "));
    }
    Err(Status::bad_request(text))
}

/// Returns the URI of something a node's kubelet serves.
pub(super) fn uri(node: &Value, path: &str, query: &[(&str, &str)]) -> Result<Uri, Status> {
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
    let mut text = format!("https://{host}:{port}{path}");
    let mut separator = '?';
    for (option, given) in query {
        text += &format!("{separator}{option}={}", escape(given));
        separator = '&';
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

/// Turns a kubelet's refusal into a Status.
pub(super) async fn refusal(answer: Response<Incoming>) -> Status {
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
        let mut two = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        assert_eq!(container(&two, Some("i")).unwrap(), "i");
        assert_eq!(
            container(&two, None).unwrap_err().message,
            "a container name must be specified for pod p, choose one of: [i a b]"
        );
        assert_eq!(
            container(&two, Some("x")).unwrap_err().message,
            "container x is not valid for pod p"
        );
        two["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "b"});
        assert_eq!(container(&two, None).unwrap(), "b");
    }

    #[test]
    fn addresses_kubelets() {
        let node = json!({"metadata": {"name": "n"}, "status": {
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "fd00::1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 4711}}}});
        let query = [("follow", "true"), ("sinceTime", "2026-01-01T00:00:00Z")];
        assert_eq!(
            uri(&node, "/containerLogs/ns/p/c", &query)
                .unwrap()
                .to_string(),
            "https://[fd00::1]:4711/containerLogs/ns/p/c?follow=true&sinceTime=2026-01-01T00%3A00%3A00Z"
        );
        assert!(uri(&json!({}), "/", &query).is_err());
    }
}
