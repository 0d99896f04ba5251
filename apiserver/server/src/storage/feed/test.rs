//! What the feed does when the store's stream breaks, lies or forgets.

use bytes::Bytes;
use futures::StreamExt as _;

use super::*;
use crate::storage::memory::MemoryStore;
use crate::storage::request::{ListRequest, ReadVersion, WatchRequest};
use crate::storage::store::{Cas, Store};
use crate::storage::testing::{Fixture, start, unique, within};
use crate::storage::watch::WatchItem;

async fn begin() -> (MemoryStore, String, Fixture) {
    let memory = MemoryStore::default();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let prefix = unique("fed");
    let fixture = start(&store, &prefix).await;
    (memory, prefix, fixture)
}

async fn next(stream: &mut crate::storage::WatchStream) -> Option<WatchItem> {
    within("an item", stream.next()).await
}

fn version(item: &Option<WatchItem>) -> u64 {
    match item {
        Some(WatchItem::Event { object, .. }) => object.resource_version.0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_broken_stream_is_resumed_unnoticed() {
    let (memory, _, fixture) = begin().await;
    let mut stream = fixture
        .resource
        .watch(WatchRequest::default())
        .await
        .unwrap();
    for i in 0..10 {
        let written = fixture.create("a", &format!("x{i}")).await;
        memory.break_watches();
        let more = fixture.set("a", &format!("x{i}"), "spec.v", "1").await;
        assert_eq!(
            version(&next(&mut stream).await),
            written.resource_version.0
        );
        assert_eq!(version(&next(&mut stream).await), more.resource_version.0);
    }
    assert_eq!(fixture.resource.metrics().initializations.get(), 1);
}

#[tokio::test]
async fn a_position_compacted_away_ends_watches_with_410() {
    let (memory, _, fixture) = begin().await;
    let seen = fixture.create("a", "x").await.resource_version.0;
    let mut stream = fixture
        .resource
        .watch(WatchRequest::default())
        .await
        .unwrap();
    assert_eq!(version(&next(&mut stream).await), seen);
    // Nothing here waits, so the feed cannot run in between.
    memory.break_watches();
    for i in 0..5 {
        fixture.create("a", &format!("y{i}")).await;
    }
    let newest = memory.current_revision().await.unwrap();
    memory.compact(newest).await.unwrap();
    match next(&mut stream).await {
        Some(WatchItem::Error(status)) => assert_eq!(status.code, 410),
        other => panic!("{other:?}"),
    }
    assert!(next(&mut stream).await.is_none());
    // Until the state was listed anew, the cache is not read.
    within("ready", fixture.resource.ready()).await;
    let listed = fixture.resource.list(ListRequest::default()).await.unwrap();
    assert_eq!(listed.items.len(), 6);
    assert_eq!(fixture.resource.metrics().initializations.get(), 2);
    let request = WatchRequest {
        version: ReadVersion::At(listed.resource_version),
        ..WatchRequest::default()
    };
    let mut stream = fixture.resource.watch(request).await.unwrap();
    let gone = fixture.delete("a", "x").await;
    assert_eq!(version(&next(&mut stream).await), gone.resource_version.0);
}

#[tokio::test]
async fn a_transaction_of_many_deletions_is_seen_whole() {
    let (memory, prefix, fixture) = begin().await;
    let mut stream = fixture
        .resource
        .watch(WatchRequest::default())
        .await
        .unwrap();
    for name in ["x", "y", "z"] {
        let body = crate::storage::testing::thing("a", name);
        fixture
            .resource
            .create(Some("a"), name, body, Some(5))
            .await
            .unwrap();
        next(&mut stream).await;
    }
    memory.advance(10);
    let revision = memory.current_revision().await.unwrap();
    for _ in 0..3 {
        assert_eq!(version(&next(&mut stream).await), revision);
    }
    let left = fixture.resource.list(ListRequest::default()).await.unwrap();
    assert!(left.items.is_empty());
    assert!(!prefix.is_empty());
}

#[tokio::test]
async fn a_broken_object_does_not_take_its_kind_away() {
    let (memory, prefix, fixture) = begin().await;
    fixture.create("a", "x").await;
    let key = format!("/registry/{prefix}/a/broken");
    let put = memory
        .put(&key, Bytes::from_static(b"k8s\0\x0a"), 0, None)
        .await;
    assert!(matches!(put, Ok(Cas::Done(_))));
    let listed = fixture.resource.list(ListRequest::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert!(fixture.resource.metrics().undecodable.get() > 0);
    let got = fixture
        .resource
        .get(Some("a"), "broken", ReadVersion::Unset)
        .await;
    assert_eq!(got.unwrap_err().code, 500);
    // It is still in the way of a new one, and says so.
    let body = crate::storage::testing::thing("a", "broken");
    let created = fixture
        .resource
        .create(Some("a"), "broken", body, None)
        .await;
    assert_eq!(created.unwrap_err().code, 409);
}

#[tokio::test]
async fn many_resources_start_together() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let prefix = unique("many");
    for i in 0..100 {
        let key = format!("/registry/{prefix}/a/x{i}");
        let body = crate::storage::testing::thing("a", &format!("x{i}"));
        let body = Bytes::from(serde_json::to_vec(&body).unwrap());
        store.put(&key, body, 0, None).await.unwrap();
    }
    let began = std::time::Instant::now();
    let starts = (0..12).map(|_| start(&store, &prefix));
    let fixtures = futures::future::join_all(starts).await;
    let took = began.elapsed();
    for fixture in &fixtures {
        let all = fixture.resource.list(ListRequest::default()).await.unwrap();
        assert_eq!(all.items.len(), 100);
    }
    // Generous: the machine that runs this is shared.
    assert!(took < Duration::from_millis(1000), "{took:?}");
}
