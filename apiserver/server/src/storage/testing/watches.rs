//! What watching through a resource must do.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use meta::{FieldSelector, LabelSelector};
use serde_json::Value;
use watchcache::Selector;

use super::{Fixture, resource, start, unique, within};
use crate::storage::request::{ReadVersion, VersionMatch, WatchRequest};
use crate::storage::store::Store;
use crate::storage::watch::{WatchItem, WatchStream};

pub(super) async fn watch(fixture: &Fixture, request: WatchRequest) -> WatchStream {
    within("a watch", fixture.resource.watch(request))
        .await
        .expect("watch")
}

pub(super) fn from(version: ReadVersion) -> WatchRequest {
    WatchRequest {
        version,
        ..WatchRequest::default()
    }
}

/// Takes the next item, written as `ADDED a/x@7`, `BOOKMARK@7`, `ERROR 410`.
pub(super) async fn next(stream: &mut WatchStream) -> String {
    match within("an item", stream.next()).await {
        None => "END".to_owned(),
        Some(WatchItem::Error(status)) => format!("ERROR {}", status.code),
        Some(WatchItem::Bookmark {
            revision,
            initial_events_end,
        }) => {
            let end = if initial_events_end { " end" } else { "" };
            format!("BOOKMARK@{revision}{end}")
        }
        Some(WatchItem::Event {
            event_type,
            object,
            shared,
        }) => {
            // The shared frame says the same as the item.
            let frame = shared.json_frame(event_type);
            let frame: Value = serde_json::from_slice(frame).expect("a frame");
            assert_eq!(frame["type"], event_type.as_str());
            assert_eq!(frame["object"], object.to_value().expect("json"));
            let (meta, version) = (&object.meta, object.resource_version);
            format!(
                "{} {}/{}@{version}",
                event_type.as_str(),
                meta.namespace,
                meta.name
            )
        }
    }
}

pub(super) async fn expect<const N: usize>(stream: &mut WatchStream, want: [String; N]) {
    for want in want {
        assert_eq!(next(stream).await, want);
    }
}

/// Checks where watches begin, and that nothing is missed or told twice.
pub async fn run_watch_starts(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let x = fixture.create("a", "x").await.resource_version;
    let y = fixture.create("b", "y").await.resource_version;
    let state = [format!("ADDED a/x@{x}"), format!("ADDED b/y@{y}")];
    fixture
        .resource
        .get(None, "none", ReadVersion::At(y.0))
        .await
        .expect_err("absent");

    let mut unset = watch(&fixture, from(ReadVersion::Unset)).await;
    let mut any = watch(&fixture, from(ReadVersion::Any)).await;
    let mut after = watch(&fixture, from(ReadVersion::At(x.0))).await;
    let silent = WatchRequest {
        send_initial_events: Some(false),
        version_match: Some(VersionMatch::NotOlderThan),
        ..from(ReadVersion::Unset)
    };
    let mut silent = watch(&fixture, silent).await;
    expect(&mut unset, state.clone()).await;
    expect(&mut any, state).await;
    expect(&mut after, [format!("ADDED b/y@{y}")]).await;

    let changed = fixture.set("a", "x", "spec.v", "1").await.resource_version;
    let gone = fixture.delete("b", "y").await.resource_version;
    for stream in [&mut unset, &mut any, &mut after, &mut silent] {
        expect(
            stream,
            [
                format!("MODIFIED a/x@{changed}"),
                format!("DELETED b/y@{gone}"),
            ],
        )
        .await;
        assert!(stream.try_next().is_none());
    }
    // What has not come yet is waited for, and what comes before is not shown.
    let mut later = watch(&fixture, from(ReadVersion::At(gone.0 + 1))).await;
    fixture.set("a", "x", "spec.v", "2").await;
    let shown = fixture.set("a", "x", "spec.v", "3").await.resource_version;
    expect(&mut later, [format!("MODIFIED a/x@{shown}")]).await;
}

/// Checks what a version does that the store has not reached: a watch that begins
/// with a state ends in 504, any other waits for what comes after it, and is shown
/// nothing before, not even a bookmark.
pub async fn run_watch_future(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let now = fixture.create("a", "x").await.resource_version.0;
    let newest = store.current_revision().await.expect("revision").max(now);
    let state = WatchRequest {
        send_initial_events: Some(true),
        version_match: Some(VersionMatch::NotOlderThan),
        ..from(ReadVersion::At(newest + 1_000_000))
    };
    let mut late = watch(&fixture, state).await;
    match within("an item", late.next()).await {
        Some(WatchItem::Error(status)) => {
            assert_eq!((status.code, status.reason), (504, meta::Reason::Timeout));
            assert!(status.has_cause("ResourceVersionTooLarge"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(next(&mut late).await, "END");

    let bookmarks = |version| WatchRequest {
        bookmarks: true,
        timeout: Some(Duration::from_millis(2050)),
        ..from(version)
    };
    let mut ahead = watch(&fixture, bookmarks(ReadVersion::At(newest + 5))).await;
    let mut present = watch(&fixture, bookmarks(ReadVersion::At(now))).await;
    // By then the one ahead would have been given its bookmark too.
    assert!(next(&mut present).await.starts_with("BOOKMARK@"));
    let mut version = 0;
    for i in 0.. {
        version = fixture
            .set("a", "x", "spec.v", &i.to_string())
            .await
            .resource_version
            .0;
        if version > newest + 5 {
            break;
        }
    }
    let mut item = next(&mut ahead).await;
    // The store may be others' too, and have come so far by itself.
    if let Some(bookmark) = item.strip_prefix("BOOKMARK@") {
        assert!(bookmark.parse::<u64>().expect("a number") >= newest + 5);
        item = next(&mut ahead).await;
    }
    assert_eq!(item, format!("MODIFIED a/x@{version}"));
}

/// Checks that coming into view and leaving it become ADDED and DELETED.
pub async fn run_watch_selectors(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let by_node = Selector {
        fields: FieldSelector::one("spec.nodeName", "n1"),
        ..Selector::default()
    };
    let by_label = Selector {
        labels: LabelSelector::parse("app=web").expect("selector"),
        ..Selector::all(Some("a"))
    };
    let by_name = Selector {
        name: Some("x".to_owned()),
        ..Selector::all(Some("a"))
    };
    let mut streams = Vec::new();
    for selector in [by_node, by_label, by_name] {
        let request = WatchRequest {
            selector,
            ..WatchRequest::default()
        };
        streams.push(watch(&fixture, request).await);
    }
    let created = fixture.create("a", "x").await.resource_version;
    fixture.create("a", "other").await;
    let bound = fixture
        .set("a", "x", "spec.nodeName", "n1")
        .await
        .resource_version;
    let labelled = fixture
        .set("a", "x", "metadata.labels.app", "web")
        .await
        .resource_version;
    let moved = fixture.set("a", "x", "spec.nodeName", "n2").await;
    let moved = moved.resource_version;
    let unlabelled = fixture
        .set("a", "x", "metadata.labels.app", "db")
        .await
        .resource_version;
    let gone = fixture.delete("a", "x").await.resource_version;
    let [node, label, name] = &mut streams[..] else {
        unreachable!("three were made")
    };
    let added = |version| format!("ADDED a/x@{version}");
    let modified = |version| format!("MODIFIED a/x@{version}");
    let deleted = |version| format!("DELETED a/x@{version}");
    expect(node, [added(bound), modified(labelled), deleted(moved)]).await;
    expect(
        label,
        [added(labelled), modified(moved), deleted(unlabelled)],
    )
    .await;
    expect(name, [added(created), modified(bound), modified(labelled)]).await;
    expect(name, [modified(moved), modified(unlabelled), deleted(gone)]).await;
    for stream in &mut streams {
        assert!(stream.try_next().is_none());
    }
}

/// Checks the mark at the end of initial events, and the bookmark before the
/// announced end of a watch.
pub async fn run_watch_bookmarks(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let x = fixture.create("a", "x").await.resource_version;
    let request = WatchRequest {
        bookmarks: true,
        send_initial_events: Some(true),
        version_match: Some(VersionMatch::NotOlderThan),
        timeout: Some(Duration::from_millis(2100)),
        ..WatchRequest::default()
    };
    let mut stream = watch(&fixture, request.clone()).await;
    assert_eq!(next(&mut stream).await, format!("ADDED a/x@{x}"));
    let mark = next(&mut stream).await;
    let revision = mark
        .strip_prefix("BOOKMARK@")
        .and_then(|m| m.strip_suffix(" end"));
    let revision: u64 = revision.expect("a mark").parse().expect("a number");
    assert!(revision >= x.0);
    let bookmark = next(&mut stream).await;
    let later: u64 = bookmark
        .strip_prefix("BOOKMARK@")
        .expect("a bookmark")
        .parse()
        .expect("a number");
    assert!(later >= revision);

    let bad = WatchRequest {
        version_match: None,
        ..request
    };
    let refused = fixture.resource.watch(bad).await.expect_err("refused");
    assert_eq!(refused.code, 422);
}

/// Checks that a start before what is remembered ends in 410, and only then.
pub async fn run_watch_too_old(store: &Arc<dyn Store>) {
    let prefix = unique("old");
    let fixture = start(store, &prefix).await;
    let first = fixture.create("a", "x").await.resource_version.0;
    let second = fixture
        .set("a", "x", "spec.v", "1")
        .await
        .resource_version
        .0;
    let fresh = start(store, &prefix).await;
    let mut stream = watch(&fresh, from(ReadVersion::At(first - 1))).await;
    assert_eq!(next(&mut stream).await, "ERROR 410");
    assert_eq!(next(&mut stream).await, "END");
    let newest = store
        .current_revision()
        .await
        .expect("revision")
        .max(second);
    let mut stream = watch(&fixture, from(ReadVersion::At(first))).await;
    expect(&mut stream, [format!("MODIFIED a/x@{second}")]).await;
    // A fresh list's version is a good start.
    let listed = fresh.resource.list(Default::default()).await.expect("list");
    assert!(listed.resource_version >= second && listed.resource_version <= newest);
    let mut stream = watch(&fresh, from(ReadVersion::At(listed.resource_version))).await;
    let third = fixture.set("a", "x", "spec.v", "2").await.resource_version;
    expect(&mut stream, [format!("MODIFIED a/x@{third}")]).await;
}

/// Checks that a client that does not read is cut off without a gap, and that
/// one that reads is not held up.
pub async fn run_slow_watcher(store: &Arc<dyn Store>) {
    const CHANGES: u64 = 1500;
    let fixture = resource(store).await;
    fixture.create("a", "x").await;
    let mut slow = watch(&fixture, from(ReadVersion::Any)).await;
    let version = |item: &str| {
        item.rsplit_once('@')
            .and_then(|(_, v)| v.parse::<u64>().ok())
    };
    // Reads something, and then no more.
    let mut versions = vec![version(&next(&mut slow).await).expect("a change")];
    let mut quick = watch(&fixture, from(ReadVersion::Any)).await;
    let reader = tokio::spawn(async move {
        let mut seen = 0;
        while seen <= CHANGES {
            assert!(next(&mut quick).await.contains("a/x"));
            seen += 1;
        }
    });
    let mut last = 0;
    for i in 0..CHANGES {
        last = fixture
            .set("a", "x", "spec.v", &i.to_string())
            .await
            .resource_version
            .0;
    }
    within("the quick reader", reader).await.expect("no panic");
    // Until then it could still catch up.
    let closed = async {
        while fixture.resource.metrics().terminated_watchers.get() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the slow one is closed", closed).await;
    loop {
        let item = next(&mut slow).await;
        match version(&item) {
            Some(version) => versions.push(version),
            None => {
                assert_eq!(item, "END");
                break;
            }
        }
    }
    assert!(versions.windows(2).all(|w| w[0] < w[1]));
    let seen = *versions.last().expect("something came");
    assert!(seen < last, "the slow one was not cut off");
    // And can go on where it was, with nothing missing.
    let mut resumed = watch(&fixture, from(ReadVersion::At(seen))).await;
    let mut count = versions.len() as u64;
    loop {
        let item = next(&mut resumed).await;
        count += 1;
        if item.ends_with(&format!("@{last}")) {
            break;
        }
    }
    assert_eq!(count, CHANGES + 1);
}
