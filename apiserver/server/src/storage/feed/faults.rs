//! What the cache does when the store fails it, and when clients do.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use watchcache::{Limits, Selector};

use super::*;
use crate::storage::request::{
    ListRequest, Preconditions, ReadVersion, VersionMatch, WatchRequest,
};
use crate::storage::store::Store;
use crate::storage::testing::faulty::FaultyStore;
use crate::storage::testing::{Fixture, start, start_unready, thing, unique, within};
use crate::storage::watch::WatchItem;

async fn begin() -> (FaultyStore, Fixture) {
    let faulty = FaultyStore::new();
    let store: Arc<dyn Store> = Arc::new(faulty.clone());
    let fixture = start(&store, &unique("faulty")).await;
    (faulty, fixture)
}

#[tokio::test]
async fn a_cache_that_is_not_ready_refuses_what_the_store_should_not_be_asked() {
    let faulty = FaultyStore::new();
    faulty.faults.hold_loads.send_replace(true);
    let store: Arc<dyn Store> = Arc::new(faulty.clone());
    let prefix = unique("unready");
    let fixture = start_unready(&store, &prefix, Limits::default());
    let things = &fixture.resource;
    let mut last = 0;
    for name in ["x", "y", "z"] {
        last = fixture.create("a", name).await.resource_version.0;
    }
    assert!(!things.is_ready());
    let watch = things.watch(WatchRequest::default()).await;
    let refused = watch.expect_err("not ready");
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (429, "storage is (re)initializing")
    );
    assert_eq!(refused.details.expect("details").retry_after_seconds, 1);
    let labels = meta::LabelSelector::parse("a=b").unwrap();
    let list = |limit, version, labels: &meta::LabelSelector| ListRequest {
        limit,
        version,
        selector: Selector {
            labels: labels.clone(),
            ..Selector::default()
        },
        ..ListRequest::default()
    };
    let all = meta::LabelSelector::default();
    for request in [
        list(0, ReadVersion::Unset, &all),
        list(0, ReadVersion::Any, &all),
        list(2, ReadVersion::Unset, &labels),
    ] {
        let refused = things.list(request).await.expect_err("not ready");
        assert_eq!(refused.code, 429);
    }
    // Objects and pages come from the store, as fresh as was asked.
    for version in [ReadVersion::Unset, ReadVersion::Any, ReadVersion::At(last)] {
        assert!(things.get(Some("a"), "x", version).await.is_ok());
        let page = things.list(list(2, version, &all)).await.unwrap();
        assert_eq!((page.items.len(), page.remaining), (2, Some(1)));
        assert_eq!(page.resource_version, last);
    }
    let late = things.get(Some("a"), "x", ReadVersion::At(last + 9)).await;
    assert!(
        late.expect_err("future")
            .has_cause("ResourceVersionTooLarge")
    );
    let newer = ListRequest {
        version_match: Some(VersionMatch::NotOlderThan),
        ..list(2, ReadVersion::At(last + 9), &all)
    };
    for request in [newer, list(2, ReadVersion::At(last + 9), &all)] {
        let late = things.list(request).await.expect_err("future");
        assert!(late.has_cause("ResourceVersionTooLarge"), "{late}");
    }
    let first = things
        .list(list(2, ReadVersion::Unset, &all))
        .await
        .unwrap();
    let mut rest = list(2, ReadVersion::Unset, &all);
    rest.continue_token = first.continue_token;
    assert_eq!(things.list(rest).await.unwrap().items.len(), 1);

    faulty.faults.hold_loads.send_replace(false);
    within("ready", things.ready()).await;
    assert!(things.watch(WatchRequest::default()).await.is_ok());
    assert_eq!(things.lock().cacher.generation(), 1);
}

#[tokio::test]
async fn an_audit_finds_what_was_not_reported_and_heals_it() {
    let (faulty, fixture) = begin().await;
    let things = &fixture.resource;
    fixture.create("a", "x").await;
    let key = format!("{}a/broken", things.root);
    faulty
        .inner
        .put(&key, bytes::Bytes::from_static(b"{"), 0, None)
        .await
        .unwrap();
    let list = || things.list(ListRequest::default());
    assert_eq!(list().await.unwrap().items.len(), 1);
    // What cannot be decoded is not a difference.
    let verdict = things.audit().await.expect("an audit");
    assert_eq!((verdict.difference, verdict.cached), (None, verdict.stored));
    assert_eq!(things.metrics().audits_passed.get(), 1);

    let mut stream = things.watch(WatchRequest::default()).await.unwrap();
    assert!(matches!(
        within("x", stream.next()).await,
        Some(WatchItem::Event { .. })
    ));
    faulty.faults.swallow.store(true, Ordering::SeqCst);
    fixture.create("a", "y").await;
    let before = list().await.unwrap();
    assert_eq!(before.items.len(), 1, "the report was swallowed");
    let verdict = things.audit().await.expect("an audit");
    let difference = verdict.difference.expect("a difference");
    assert_eq!((difference.key.as_str(), difference.cached), ("a/y", None));
    assert_eq!(things.metrics().audits_differed.get(), 1);
    // Past states are not believed from then on.
    let past = before.resource_version - 1;
    assert!(things.lock().cacher.snapshot_at(past).is_err());
    let item = within("the end", stream.next()).await;
    assert!(matches!(item, Some(WatchItem::Error(status)) if status.code == 410));
    within("ready", things.ready()).await;
    assert_eq!(list().await.unwrap().items.len(), 2);
    assert_eq!(things.lock().cacher.generation(), 2);
    let verdict = things.audit().await.expect("an audit");
    assert_eq!(verdict.difference, None);
}

#[tokio::test]
async fn a_write_costs_one_round_trip() {
    let (faulty, fixture) = begin().await;
    let things = &fixture.resource;
    faulty.calls();
    fixture.create("a", "x").await;
    assert_eq!(faulty.calls(), 1);
    for round in 0..5 {
        fixture.set("a", "x", "spec.v", &round.to_string()).await;
        assert_eq!(faulty.calls(), 1);
    }
    let none = Preconditions::default();
    let patch = |_: &Arc<Object>, mut v: serde_json::Value| {
        v["spec"] = json!({"v": "other"});
        Ok(Some(v))
    };
    let patched = things.guaranteed_update(Some("a"), "x", &none, patch).await;
    assert!(patched.unwrap().changed);
    assert_eq!(faulty.calls(), 1);
    fixture.delete("a", "x").await;
    assert_eq!(faulty.calls(), 1);
}

/// However many do not read: what waits for them is bounded, they are closed,
/// and those who read miss nothing.
#[tokio::test]
async fn memory_is_bounded_whatever_clients_do() {
    const STUCK: usize = 50;
    const CHANGES: usize = 400;
    let limits = Limits {
        queue: 1024,
        held_bytes: 512 << 10,
    };
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new());
    let fixture = start_unready(&store, &unique("stuck"), limits);
    let things = &fixture.resource;
    within("ready", things.ready()).await;
    let mut stuck = Vec::new();
    for n in 0..STUCK {
        let request = WatchRequest {
            bookmarks: true,
            send_initial_events: Some(n % 2 == 0),
            version_match: Some(VersionMatch::NotOlderThan),
            ..WatchRequest::default()
        };
        stuck.push(things.watch(request).await.unwrap());
    }
    let mut reader = things.watch(WatchRequest::default()).await.unwrap();
    let mut body = thing("a", "x");
    body["spec"]["blob"] = "x".repeat(10_000).into();
    fixture.create_value(body).await;
    let mut most = 0;
    for n in 0..CHANGES {
        fixture.set("a", "x", "spec.v", &n.to_string()).await;
        let item = within("a change", reader.next()).await;
        assert!(matches!(item, Some(WatchItem::Event { .. })));
        most = most.max(things.lock().cacher.held().bytes());
    }
    // One batch more than the limit at most.
    assert!(most < (512 << 10) + (64 << 10), "{most}");
    assert!(things.metrics().terminated_watchers.get() as usize >= STUCK);
    assert_eq!(things.lock().cacher.watcher_count(), 1);
    for mut stream in stuck {
        let mut last = None;
        while let Some(item) = within("an end", stream.next()).await {
            last = Some(item);
        }
        assert!(!matches!(last, Some(WatchItem::Event { .. })), "{last:?}");
    }
}

/// Nobody waits for who is late: the others are served at once, one that catches
/// up stays, and one that does not is closed where it can go on.
#[tokio::test]
async fn who_is_late_holds_up_nobody() {
    const QUEUE: usize = 8;
    let limits = Limits {
        queue: QUEUE,
        ..Limits::default()
    };
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new());
    let fixture = start_unready(&store, &unique("late"), limits);
    let things = &fixture.resource;
    within("ready", things.ready()).await;
    let from = fixture.create("a", "x").await.resource_version.0;
    let after = |n| WatchRequest {
        version: ReadVersion::At(n),
        ..WatchRequest::default()
    };
    let watch = || async { things.watch(after(from)).await.unwrap() };
    let (mut stuck, mut tardy, mut reader) = (watch().await, watch().await, watch().await);
    let next =
        async |stream: &mut crate::storage::WatchStream| match within("a change", stream.next())
            .await
        {
            Some(WatchItem::Event { object, .. }) => object.resource_version.0,
            other => panic!("{other:?}"),
        };
    let closed = || things.metrics().terminated_watchers.get();
    let began = std::time::Instant::now();
    let (mut versions, mut seen) = (Vec::new(), 0);
    for n in 0..3 * QUEUE {
        let set = fixture.set("a", "x", "spec.v", &n.to_string()).await;
        versions.push(set.resource_version.0);
        assert_eq!(next(&mut reader).await, versions[n]);
        let in_time = began.elapsed() < watchcache::BUDGET_MAX;
        assert!(closed() == 0 || !in_time, "one is closed before its time");
        // Late for a moment, again and again.
        if n % (QUEUE + 2) == QUEUE + 1 || n == 3 * QUEUE - 1 {
            for version in &versions[seen..] {
                assert_eq!(next(&mut tardy).await, *version);
            }
            seen = versions.len();
        }
    }
    let one = async {
        while closed() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    within("the end of one", one).await;
    assert!(within("its end", stuck.next()).await.is_none());
    assert_eq!((closed(), things.lock().cacher.watcher_count()), (1, 2));
    versions.push(fixture.delete("a", "x").await.resource_version.0);
    let last = versions[3 * QUEUE];
    assert_eq!(
        (next(&mut reader).await, next(&mut tardy).await),
        (last, last)
    );
    let mut resumed = watch().await;
    for version in versions {
        assert_eq!(next(&mut resumed).await, version);
    }
}

/// A client that does not read its initial events holds a state that nobody
/// else needs any more; not for ever.
#[tokio::test]
async fn an_old_state_is_not_kept_for_who_does_not_read_it() {
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new());
    let fixture = start(&store, &unique("old")).await;
    let things = &fixture.resource;
    fixture.create("a", "x").await;
    // So that the cache has it.
    things.list(ListRequest::default()).await.unwrap();
    let mut stuck = things.watch(WatchRequest::default()).await.unwrap();
    let now = things.now();
    // As if a window had passed: more changes than it holds, and each too old.
    {
        let mut hub = things.lock();
        let revision = hub.cacher.revision();
        let x = hub.cacher.get("a/x").cloned().unwrap();
        for n in 0..300 {
            let at = now + Duration::from_secs(100 * n);
            let mut object = Object::clone(&x);
            object.resource_version.0 = revision + 1 + n;
            let change = Change {
                key: "a/x".into(),
                revision: revision + 1 + n,
                object: Some(Arc::new(object)),
                received: at,
            };
            hub.cacher.ingest(change, at, |_, _, _, _| ()).unwrap();
        }
        assert_eq!(hub.tidy(), 1);
    }
    assert!(within("the end", stuck.next()).await.is_none());
}
