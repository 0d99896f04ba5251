//! What a watch costs that sees nothing: memory alone, and little of it. In a process of
//! its own, whose memory is nobody else's.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::Arc;

use apiserver::storage::memory::MemoryStore;
use apiserver::storage::{ResourceConfig, ResourceStore, Selector, WatchRequest};
use meta::{FieldSelector, GroupResource};
use serde_json::json;
use tokio_util::sync::CancellationToken;

const WATCHES: usize = 10_000;
/// The most bytes one may take in the cache: its selector, its place in the index and
/// among the timers, and its line. The response has a share of its own.
const BYTES_MAX: u64 = 2_500;

/// Returns how many bytes of memory are in use.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line
        .unwrap()
        .trim_matches([' ', '\t', 'k', 'B'])
        .parse()
        .unwrap();
    kilobytes << 10
}

#[tokio::test]
async fn an_idle_watch_takes_little_memory() {
    let token = CancellationToken::new();
    let config = ResourceConfig {
        resource: GroupResource::new("", "things"),
        storage_prefix: "things".to_owned(),
        namespaced: true,
        selectable: |value| {
            let node = meta::value::str_at(value, "spec.nodeName").to_owned();
            vec![("spec.nodeName", node)]
        },
        index_field: Some("spec.nodeName"),
        ttl: None,
        reader: None,
    };
    let store = Arc::new(MemoryStore::default());
    let things = ResourceStore::start(store, config, token.clone());
    things.ready().await;
    let before = resident();
    let mut streams = Vec::with_capacity(WATCHES);
    for n in 0..WATCHES {
        let request = WatchRequest {
            selector: Selector {
                fields: FieldSelector::one("spec.nodeName", &format!("node-{n}")),
                ..Selector::default()
            },
            bookmarks: true,
            ..WatchRequest::default()
        };
        let mut stream = things.watch(request).await.unwrap();
        // What it begins with, which is nothing.
        assert!(stream.try_next().is_none());
        streams.push(stream);
    }
    let each = resident().saturating_sub(before) / WATCHES as u64;
    assert!(each < BYTES_MAX, "{each} bytes each");
    // Each is there, and sees what is its own alone.
    let body = json!({"apiVersion": "v1", "kind": "Thing",
        "metadata": {"name": "x", "namespace": "a"}, "spec": {"nodeName": "node-7"}});
    things.create(Some("a"), "x", body, None).await.unwrap();
    let mut changes = things.changes();
    changes.wait_for(|revision| *revision > 1).await.unwrap();
    let shown = streams.iter_mut().map(|stream| stream.try_next().is_some());
    let shown: Vec<_> = shown.enumerate().filter(|(_, some)| *some).collect();
    assert_eq!(shown, [(7, true)]);
    token.cancel();
}
