//! What every raw store must do.

use std::time::Duration;

use bytes::Bytes;

use super::{unique, within};
use crate::storage::store::{
    Cas, PageRequest, Store, StoreError, StoreEvent, StoreWatch, WatchBatch,
};

fn prefix() -> String {
    format!("/registry/{}/", unique("raw"))
}

async fn put(store: &dyn Store, key: &str, value: &str, expected: u64) -> Cas {
    let value = Bytes::copy_from_slice(value.as_bytes());
    store.put(key, value, expected, None).await.expect("put")
}

async fn done(store: &dyn Store, key: &str, value: &str, expected: u64) -> u64 {
    match put(store, key, value, expected).await {
        Cas::Done(revision) => revision,
        Cas::Conflict(kv) => panic!("{key} is {kv:?}"),
    }
}

/// Checks that writes happen only from the expected revision, and that a
/// refusal carries what is there.
pub async fn run_compare_and_swap(store: &dyn Store) {
    let key = &format!("{}a", prefix());
    let before = store.get(key).await.expect("get");
    assert_eq!(before.kv, None);
    assert_eq!(store.delete(key, 0).await, Ok(Cas::Conflict(None)));
    assert_eq!(store.delete(key, 7).await, Ok(Cas::Conflict(None)));
    assert_eq!(put(store, key, "x", 7).await, Cas::Conflict(None));

    let first = done(store, key, "1", 0).await;
    assert!(first > before.revision);
    assert!(store.current_revision().await.expect("revision") >= first);
    match put(store, key, "2", 0).await {
        Cas::Conflict(Some(kv)) => assert_eq!((&*kv.value, kv.mod_revision), (&b"1"[..], first)),
        other => panic!("a second creation: {other:?}"),
    }
    let second = done(store, key, "2", first).await;
    assert!(second > first);
    match store.delete(key, first).await {
        Ok(Cas::Conflict(Some(kv))) => assert_eq!(kv.mod_revision, second),
        other => panic!("a deletion of an old state: {other:?}"),
    }
    let got = store.get(key).await.expect("get").kv.expect("is there");
    assert_eq!((&*got.value, got.mod_revision), (&b"2"[..], second));
    match store.delete(key, second).await {
        Ok(Cas::Done(third)) => assert!(third > second),
        other => panic!("a deletion: {other:?}"),
    }
    assert_eq!(store.get(key).await.expect("get").kv, None);
    // A key that comes back is new.
    assert_eq!(put(store, key, "x", second).await, Cas::Conflict(None));
    done(store, key, "again", 0).await;
}

/// Checks order, limits, starts and past revisions of lists.
pub async fn run_pages(store: &dyn Store) {
    let prefix = prefix();
    let mut revisions = Vec::new();
    for name in ["b", "a", "d", "c"] {
        revisions.push(done(store, &format!("{prefix}{name}"), name, 0).await);
    }
    // Outside: as a prefix is not, and as a directory is not.
    done(store, &format!("{}0", prefix.trim_end_matches('/')), "", 0).await;
    let list = |start: &str, limit, revision, keys_only| {
        store.list(PageRequest {
            prefix: prefix.clone(),
            start: start.to_owned(),
            limit,
            revision,
            keys_only,
        })
    };
    let names = |kvs: &[crate::storage::store::Kv]| -> String {
        kvs.iter().map(|kv| &kv.key[prefix.len()..]).collect()
    };
    let all = list("", 0, 0, false).await.expect("list");
    assert_eq!(
        (names(&all.kvs).as_str(), all.more, all.count),
        ("abcd", false, 4)
    );
    assert!(all.revision > revisions[3]);
    assert!(all.kvs.iter().all(|kv| {
        kv.key
            .ends_with(std::str::from_utf8(&kv.value).expect("text"))
    }));

    let page = list("", 3, 0, true).await.expect("list");
    assert_eq!(
        (names(&page.kvs).as_str(), page.more, page.count),
        ("abc", true, 4)
    );
    assert!(page.kvs.iter().all(|kv| kv.value.is_empty()));
    let start = format!("{}\0", page.kvs[2].key);
    let rest = list(&start, 3, page.revision, false).await.expect("list");
    assert_eq!(
        (names(&rest.kvs).as_str(), rest.more, rest.count),
        ("d", false, 1)
    );
    assert_eq!(rest.revision, page.revision);

    let past = list("", 0, revisions[1], false).await.expect("list");
    assert_eq!(
        (names(&past.kvs).as_str(), past.revision),
        ("ab", revisions[1])
    );
    let future = list("", 0, all.revision + 1_000_000, false).await;
    assert_eq!(future, Err(StoreError::Future));
}

/// Collects changes until there are `n`.
async fn collect(watch: &mut dyn StoreWatch, n: usize) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    while events.len() < n {
        let batch = within("an event", watch.next()).await.expect("watch");
        if let WatchBatch::Events(more) = batch {
            events.extend(more);
        }
    }
    events
}

/// Checks that a watch reports every change once, in order, from any revision.
pub async fn run_watch(store: &dyn Store) {
    let prefix = prefix();
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let first = done(store, &a, "1", 0).await;
    let second = done(store, &b, "1", 0).await;
    let mut watch = store.watch(&prefix, second).await.expect("watch");
    let third = done(store, &a, "2", first).await;
    done(store, &format!("{}0", prefix.trim_end_matches('/')), "", 0).await;
    let Ok(Cas::Done(fourth)) = store.delete(&b, second).await else {
        panic!("delete")
    };
    let event = |key: &String, value: Option<&'static str>, revision| StoreEvent {
        key: key.clone(),
        value: value.map(|v| Bytes::from_static(v.as_bytes())),
        revision,
    };
    let want = [
        event(&a, Some("1"), first),
        event(&b, Some("1"), second),
        event(&a, Some("2"), third),
        event(&b, None, fourth),
    ];
    assert_eq!(collect(&mut *watch, 3).await, want[1..]);
    let mut again = store.watch(&prefix, first).await.expect("watch");
    assert_eq!(collect(&mut *again, 4).await, want);
}

/// Checks that requested progress comes, reaches every revision that was there,
/// and never overtakes events.
pub async fn run_progress(store: &dyn Store) {
    if !store.reports_progress() {
        return;
    }
    let (prefix, elsewhere) = (prefix(), prefix());
    let from = store.current_revision().await.expect("revision") + 1;
    let mut watch = store.watch(&prefix, from).await.expect("watch");
    for i in 0..20 {
        let mine = (i % 2 == 0).then_some(format!("{prefix}{i}"));
        let key = mine.clone().unwrap_or(format!("{elsewhere}{i}"));
        let revision = done(store, &key, "x", 0).await;
        let mut seen = false;
        // Asked again and again, as the feed does: a request may be lost.
        let reached = async {
            loop {
                watch.request_progress();
                let next = tokio::time::timeout(Duration::from_millis(100), watch.next());
                match next.await {
                    Ok(Ok(WatchBatch::Events(events))) => {
                        seen |= events.iter().any(|e| Some(&e.key) == mine.as_ref());
                    }
                    Ok(Ok(WatchBatch::Progress(r))) if r >= revision => break,
                    Ok(Ok(WatchBatch::Progress(_))) | Err(_) => {}
                    Ok(Err(e)) => panic!("{e}"),
                }
            }
        };
        within("progress", reached).await;
        assert_eq!(
            seen,
            mine.is_some(),
            "progress overtook the event it covers"
        );
    }
}

/// Checks that what was compacted is refused, and by name.
pub async fn run_compaction(store: &dyn Store) {
    let prefix = prefix();
    let a = format!("{prefix}a");
    let first = done(store, &a, "1", 0).await;
    let second = done(store, &a, "2", first).await;
    let third = done(store, &a, "3", second).await;
    store.compact(third).await.expect("compact");
    let page = |revision| PageRequest {
        prefix: prefix.clone(),
        revision,
        ..PageRequest::default()
    };
    let past = store.list(page(first)).await;
    assert!(matches!(past, Err(StoreError::Compacted(_))), "{past:?}");
    let present = store.list(page(third)).await.expect("list");
    assert_eq!(present.kvs[0].value, "3");
    let known = store.compacted_revision().await;
    assert_eq!(known.expect("compacted"), third);
    let twice = store.compact(second).await;
    assert!(matches!(twice, Err(StoreError::Compacted(_))), "{twice:?}");
    let mut watch = store.watch(&prefix, third).await.expect("watch");
    assert_eq!(collect(&mut *watch, 1).await[0].revision, third);
    // Some stores refuse when the watch is made, some with its first message.
    let refused = match store.watch(&prefix, first).await {
        Ok(mut watch) => within("a refusal", watch.next()).await.map(drop),
        Err(e) => Err(e),
    };
    assert!(
        matches!(refused, Err(StoreError::Compacted(_))),
        "{refused:?}"
    );
}

/// Checks that a key with a time to live vanishes and is reported deleted. Not
/// for stores whose time does not pass by itself.
pub async fn run_expiry(store: &dyn Store) {
    let prefix = prefix();
    let from = store.current_revision().await.expect("revision") + 1;
    let mut watch = store.watch(&prefix, from).await.expect("watch");
    for name in ["a", "b"] {
        let key = format!("{prefix}{name}");
        let put = store.put(&key, Bytes::from_static(b"x"), 0, Some(1)).await;
        assert!(matches!(put, Ok(Cas::Done(_))), "{put:?}");
    }
    let events = collect(&mut *watch, 4).await;
    assert!(events[..2].iter().all(|e| e.value.is_some()));
    assert!(events[2..].iter().all(|e| e.value.is_none()));
    // Both were on one lease, and so went at once.
    assert_eq!(events[2].revision, events[3].revision);
}
