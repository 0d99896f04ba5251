//! What is written and watched: in a store keys, in an API server config maps, or pods
//! where each lies on a node of its own.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::StreamExt as _;
use http::Method;
use proto::etcdserverpb as pb;
use proto::etcdserverpb::kv_client::KvClient;
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::frames::mark;
use super::http::{Ask, JSON, MERGE_PATCH, Manner, Site};
use super::order::{Door, Objects};

/// Where a store's keys are.
const PREFIX: &str = "/fanout/";

/// The first key that is not there any more.
const PREFIX_END: &str = "/fanout0";

/// What an object that is written carries the mark of its write in.
const MARKED_BY: &str = "fanout";

/// What all that was made here is labelled with.
const LABEL: (&str, &str) = ("made-by", "bench-fanout");

/// Connections and requests on each while objects are made.
const MAKING: (usize, usize) = (4, 16);

/// Connects to a store.
pub(super) async fn store(url: &str) -> anyhow::Result<Channel> {
    let endpoint = Channel::from_shared(url.to_owned())?.tcp_nodelay(true);
    Ok(endpoint.connect().await?)
}

/// Makes a value of a store.
pub(super) fn value(objects: &Objects, object: u32, sequence: u32) -> Bytes {
    let mut value = mark(object, sequence).into_bytes();
    // A byte ends the number.
    value.push(b' ');
    value.resize(value.len().max(objects.bytes), b'v');
    value.into()
}

/// Returns a store's key of an object.
pub(super) fn key(object: u32) -> Bytes {
    format!("{PREFIX}{object:08}").into()
}

/// Returns the keys of all objects, as a range.
pub(super) fn all_keys() -> (Bytes, Bytes) {
    (PREFIX.into(), PREFIX_END.into())
}

impl Objects {
    fn resource(&self) -> &'static str {
        match self.on_nodes {
            true => "pods",
            false => "configmaps",
        }
    }

    /// Returns the path of all objects of an API server.
    pub(super) fn collection(&self) -> String {
        format!("/api/v1/namespaces/default/{}", self.resource())
    }

    pub(super) fn path(&self, object: u32) -> String {
        format!("{}/{}", self.collection(), name(object))
    }

    /// Returns the path of a watch after a revision: of one node's pods, or of all.
    pub(super) fn watch(&self, watcher: usize, revision: u64) -> String {
        let resource = self.resource();
        let of_node = match self.on_nodes {
            true => format!("&fieldSelector=spec.nodeName%3D{}", node(watcher)),
            false => String::new(),
        };
        // A kubelet asks in all namespaces.
        format!("/api/v1/{resource}?watch=1&resourceVersion={revision}{of_node}")
    }

    fn made(&self, object: u32) -> Value {
        let padding = "v".repeat(self.bytes);
        let metadata = json!({
            "name": name(object),
            "namespace": "default",
            "labels": {LABEL.0: LABEL.1},
            "annotations": {MARKED_BY: mark(object, self.base)},
        });
        match self.on_nodes {
            true => pod(&metadata, &node(object as usize), &padding),
            false => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"padding": padding},
            }),
        }
    }

    /// Makes all objects.
    pub(super) async fn make(&self, door: &Door) -> anyhow::Result<()> {
        let count = u32::try_from(self.count)?;
        let Door::Store(url) = door else {
            let site = Arc::new(Site::of(door)?);
            let bodies = (0..count).map(|object| self.made(object));
            return make(&site, &self.collection(), bodies).await;
        };
        let client = KvClient::new(store(url).await?);
        let puts = futures::stream::iter(0..count).map(|object| {
            let (mut client, value) = (client.clone(), value(self, object, self.base));
            let request = pb::PutRequest {
                key: key(object),
                value,
                ..pb::PutRequest::default()
            };
            async move { client.put(request).await }
        });
        let mut puts = puts.buffer_unordered(MAKING.0 * MAKING.1);
        while let Some(put) = puts.next().await {
            put?;
        }
        Ok(())
    }

    /// Returns the revision that the server is at.
    pub(super) async fn revision(&self, door: &Door) -> anyhow::Result<u64> {
        let Door::Store(url) = door else {
            let site = Arc::new(Site::of(door)?);
            return revision(&site, &self.collection()).await;
        };
        let request = pb::RangeRequest {
            key: key(0),
            ..pb::RangeRequest::default()
        };
        let reply = KvClient::new(store(url).await?).range(request).await?;
        let header = reply.into_inner().header;
        Ok(u64::try_from(
            header.context("an answer without a header")?.revision,
        )?)
    }
}

/// Makes objects of an API server; those that are there already are left as they are.
pub(super) async fn make(
    site: &Arc<Site>,
    collection: &str,
    bodies: impl Iterator<Item = Value>,
) -> anyhow::Result<()> {
    let mut connections = Vec::new();
    for _ in 0..MAKING.0 {
        connections.push(site.connect(Manner::default()).await?);
    }
    let mut turn = connections.iter().cycle();
    let posts = futures::stream::iter(bodies).map(|body| {
        let connection = turn.next().context("no connection").and_then(|c| c.share());
        async move {
            let ask = Ask::with(Method::POST, collection, JSON).body(body.to_string());
            let (status, answer) = connection?.ask(ask).await?;
            let said = String::from_utf8_lossy(&answer);
            let there = status.is_success() || status == http::StatusCode::CONFLICT;
            ensure!(there, "POST {collection}: {status} {said}");
            Ok(())
        }
    });
    let mut posts = posts.buffer_unordered(MAKING.0 * MAKING.1);
    while let Some(posted) = posts.next().await {
        posted?;
    }
    Ok(())
}

/// Returns the revision that a collection is at.
pub(super) async fn revision(site: &Arc<Site>, collection: &str) -> anyhow::Result<u64> {
    let mut connection = site.connect(Manner::default()).await?;
    let path = format!("{collection}?limit=1");
    let list: Value = serde_json::from_slice(&connection.must(Ask::get(&path)).await?)?;
    let version = list["metadata"]["resourceVersion"].as_str();
    Ok(version.context("a list without a version")?.parse()?)
}

/// Removes what was made, of a server that others will use after us.
pub(super) async fn remove(door: &Door, collections: &[&str]) -> anyhow::Result<()> {
    let site = Arc::new(Site::of(door)?);
    let mut connection = site.connect(Manner::default()).await?;
    for collection in collections {
        let selector = format!("labelSelector={}%3D{}", LABEL.0, LABEL.1);
        let path = format!("{collection}?{selector}&gracePeriodSeconds=0");
        connection
            .must(Ask::with(Method::DELETE, &path, JSON))
            .await?;
    }
    Ok(())
}

/// Labels an object as made here.
pub(super) fn labels() -> Value {
    json!({LABEL.0: LABEL.1})
}

/// Makes a pod that lies on a node and never runs.
pub(super) fn pod(metadata: &Value, node: &str, padding: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "none", "args": [padding]}],
        },
    })
}

/// Makes the patch that is a write.
pub(super) fn patch(object: u32, sequence: u32) -> Bytes {
    let mark = mark(object, sequence);
    format!("{{\"metadata\":{{\"annotations\":{{\"{MARKED_BY}\":\"{mark}\"}}}}}}").into()
}

/// Returns what a patch is sent as.
pub(super) fn patching(path: &str) -> Ask<'_> {
    Ask::with(Method::PATCH, path, MERGE_PATCH)
}

fn name(object: u32) -> String {
    format!("fanout-{object:06}")
}

/// Returns the name of a node.
pub(super) fn node(nth: usize) -> String {
    format!("fanout-node-{nth:06}")
}

#[cfg(test)]
mod test {
    use super::super::frames::marked;
    use super::*;

    #[test]
    fn every_object_carries_its_mark() {
        for on_nodes in [false, true] {
            let objects = Objects {
                count: 9,
                bytes: 300,
                on_nodes,
                base: 40,
            };
            let made = objects.made(7).to_string();
            assert_eq!(marked(made.as_bytes()), Some((7, 40)));
            assert!(made.len() > 300);
            assert_eq!(marked(&value(&objects, 7, 41)), Some((7, 41)));
            assert_eq!(value(&objects, 7, 41).len(), 300);
        }
        assert_eq!(marked(&patch(3, 5)), Some((3, 5)));
    }
}
