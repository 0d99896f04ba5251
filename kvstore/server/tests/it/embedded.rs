//! The handle: the same store without a socket, from any runtime.

use futures::StreamExt as _;
use mvcc::watch::WatchCreate;

use crate::store::{DEADLINE, Store};

fn put(key: &str, value: &str) -> mvcc::PutRequest {
    mvcc::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..Default::default()
    }
}

fn range(key: &str) -> mvcc::RangeRequest {
    mvcc::RangeRequest {
        key: key.to_owned().into(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_a_listener_works_through_its_handle() {
    let store = Store::start_with(|config| config.listen_client_urls.clear()).await;
    assert_eq!(store.running().client_addr, None);
    let handle = store.running().handle.clone();
    let mut watch = handle.watch(WatchCreate {
        key: "a".into(),
        ..Default::default()
    });
    assert!(watch.next().await.unwrap().created);
    assert_eq!(handle.put(put("a", "1")).await.unwrap().revision, 2);
    let reply = handle.range(range("a")).await.unwrap();
    assert_eq!(
        (reply.revision, reply.kvs[0].value.as_ref()),
        (2, &b"1"[..])
    );
    let events = watch.next().await.unwrap().events;
    assert_eq!(events[0].kv.value, "1");
    watch.request_progress();
    let progress = watch.next().await.unwrap();
    assert_eq!((progress.watch_id, progress.revision), (-1, 2));
    let error = handle.put(put("", "1")).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (3, "etcdserver: key is not provided")
    );
}

#[tokio::test]
async fn a_compacted_watch_is_cancelled_and_ends() {
    let store = Store::start().await;
    let handle = store.running().handle.clone();
    for value in ["1", "2", "3"] {
        handle.put(put("a", value)).await.unwrap();
    }
    handle
        .compact(mvcc::CompactRequest {
            revision: 3,
            physical: false,
        })
        .await
        .unwrap();
    let create = WatchCreate {
        key: "a".into(),
        start_revision: 2,
        ..Default::default()
    };
    let replies: Vec<_> = handle.watch(create).collect().await;
    assert_eq!(replies.len(), 2);
    assert!(replies[0].created && replies[1].canceled);
    assert_eq!(replies[1].compact_revision, 3);
}

#[tokio::test]
async fn a_stopped_member_says_so_and_ends_its_watches() {
    let mut store = Store::start().await;
    let handle = store.running().handle.clone();
    let mut watch = handle.watch(WatchCreate {
        key: "a".into(),
        ..Default::default()
    });
    assert!(watch.next().await.unwrap().created);
    // A client that stays connected does not hold the member up for long.
    let mut kv = store.kv().await;
    let mut client = crate::watch::Client::open(&store).await;
    assert!(client.create(crate::watch::on("a", "")).await.created);
    kv.put("a", "1").await;
    assert_eq!(client.next().await.events.len(), 1);
    let began = tokio::time::Instant::now();
    store.running.take().unwrap().shutdown().await;
    assert!(began.elapsed() < DEADLINE);
    // Its stream was not cut: it ended, though the client would have asked for more.
    assert_eq!(client.replies.message().await.unwrap(), None);
    let rest = tokio::time::timeout(DEADLINE, watch.collect::<Vec<_>>())
        .await
        .unwrap();
    assert!(rest.len() <= 1, "{rest:?}");
    let error = handle.range(range("a")).await.unwrap_err();
    assert_eq!(
        (error.code, error.message.as_str()),
        (14, "etcdserver: server stopped")
    );
    assert_eq!(handle.revision(), 0);
}
