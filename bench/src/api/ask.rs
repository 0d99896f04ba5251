//! Clients that cost little: bodies are kept as bytes, and what changes in them is a
//! number in a known place.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use client::Transport;
use futures::future::try_join_all;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use crate::cluster::Cluster;

/// Pods there are from the start.
pub(super) const PODS: u64 = 1_000;

/// Nodes they are spread over.
pub(super) const NODES: u64 = 100;

/// Connections the clients share.
const CONNECTIONS: usize = 10;

pub(super) const JSON: &str = "application/json";
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Where pods are.
pub(super) const PODS_PATH: &str = "/api/v1/namespaces/default/pods";

/// Where node leases are.
pub(super) const LEASES_PATH: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Connections to the server, each its own.
pub(crate) struct Callers(Vec<Transport>);

impl Callers {
    /// Returns the connection of the nth client.
    pub(super) fn of(&self, nth: usize) -> Transport {
        self.0[nth % self.0.len()].clone()
    }
}

/// Connects, and makes what the cases read.
pub(crate) async fn prepare(cluster: &Cluster) -> anyhow::Result<Callers> {
    let connect = || Transport::https(&cluster.config()?).map_err(anyhow::Error::from);
    let callers = (0..CONNECTIONS).map(|_| connect());
    let callers = Callers(callers.collect::<anyhow::Result<_>>()?);
    let lanes = (0..CONNECTIONS).map(|lane| {
        let transport = callers.of(lane);
        async move {
            for nth in (lane as u64..PODS).step_by(CONNECTIONS) {
                let pod = pod(&format!("there-{nth:06}"), nth % NODES)?;
                create(&transport, PODS_PATH, &pod).await?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(lanes).await?;
    Ok(callers)
}

/// Makes a pod as a Deployment would, some 2 kB of it once stored.
pub(super) fn pod(name: &str, node: u64) -> anyhow::Result<Value> {
    // That of `bench/instructions api`, so that both speak of the same.
    let text = include_str!("../../../apiserver/server/benches/pod.json");
    let mut pod: Value = serde_json::from_str(text)?;
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["annotations"]["bench/n"] = NUMBER.into();
    pod["spec"]["nodeName"] = format!("node-{node:03}").into();
    Ok(pod)
}

/// A number in a body that counts up; every one is as long as this.
pub(super) const NUMBER: &str = "000000";

/// Writes the next number after a mark. Numbers begin anew after the last.
pub(super) fn count_up(body: &mut [u8], mark: &str) -> anyhow::Result<()> {
    let mut places = body.windows(mark.len());
    let at = places.position(|part| part == mark.as_bytes());
    let at = at.with_context(|| format!("no {mark} in an answer"))? + mark.len();
    let digits = body
        .get_mut(at..at + NUMBER.len())
        .context("a short answer")?;
    for digit in digits.iter_mut().rev() {
        if *digit == b'9' {
            *digit = b'0';
        } else {
            ensure!(digit.is_ascii_digit(), "no number after {mark}");
            *digit += 1;
            break;
        }
    }
    Ok(())
}

/// One request, made again and again.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: Arc<str>,
    pub(super) content_type: &'static str,
    pub(super) accept: &'static str,
}

impl Ask {
    pub(super) fn new(method: Method, path: impl Into<Arc<str>>) -> Self {
        Self {
            method,
            path: path.into(),
            content_type: JSON,
            accept: JSON,
        }
    }

    pub(super) fn sends(self, content_type: &'static str) -> Self {
        Self {
            content_type,
            ..self
        }
    }

    pub(super) fn accepts(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    /// Sends it; anything but success is an error.
    pub(super) async fn send(&self, transport: &Transport, body: Bytes) -> anyhow::Result<Bytes> {
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&*self.path)
            .header(ACCEPT, self.accept)
            .header(CONTENT_TYPE, self.content_type)
            .body(Full::new(body))?;
        let response = transport.send(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|e| anyhow::anyhow!("{e}"))?.to_bytes();
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            bail!("{} {}: {status}: {text}", self.method, self.path);
        }
        Ok(body)
    }
}

/// Creates an object; returns it as it was stored.
pub(super) async fn create(
    transport: &Transport,
    path: &str,
    object: &Value,
) -> anyhow::Result<Bytes> {
    let body = serde_json::to_vec(object)?.into();
    Ask::new(Method::POST, path).send(transport, body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_up_where_they_are() {
        let mut body = br#"{"n":"000099","m":"000000"}"#.to_vec();
        count_up(&mut body, r#""n":""#).unwrap();
        assert_eq!(body, br#"{"n":"000100","m":"000000"}"#);
        let mut last = b"n=999999".to_vec();
        count_up(&mut last, "n=").unwrap();
        assert_eq!(last, b"n=000000");
        assert!(count_up(&mut last, "m=").is_err());
    }
}
