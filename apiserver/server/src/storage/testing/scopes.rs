//! What watching through a resource must do, in tables: who sees what, and how
//! each kind of watch begins.

use std::sync::Arc;
use std::time::Duration;

use meta::{FieldSelector, LabelSelector};
use watchcache::Selector;

use super::watches::{expect, from, next, watch};
use super::{Fixture, from_version, resource, within};
use crate::storage::request::{ReadVersion, VersionMatch, WatchRequest};
use crate::storage::store::Store;

fn select(ns: Option<&str>, name: Option<&str>, labels: &str, fields: &str) -> Selector {
    Selector {
        name: name.map(str::to_owned),
        labels: LabelSelector::parse(labels).expect("labels"),
        fields: FieldSelector::parse(fields).expect("fields"),
        ..Selector::all(ns)
    }
}

/// Makes changes of all kinds; returns, for each, namespace, name and revision.
async fn change_things(fixture: &Fixture) -> Vec<(&'static str, &'static str, u64)> {
    let mut done = Vec::new();
    for (ns, name) in [("a", "x"), ("a", "y"), ("ab", "x"), ("b", "y")] {
        done.push((ns, name, fixture.create(ns, name).await.resource_version.0));
        let set = fixture.set(ns, name, "spec.v", "1").await;
        done.push((ns, name, set.resource_version.0));
    }
    for (ns, name) in [("a", "x"), ("ab", "x")] {
        done.push((ns, name, fixture.delete(ns, name).await.resource_version.0));
    }
    done
}

/// Checks that each scope sees its own, and nothing else.
pub async fn run_watch_scopes(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    type Wants = fn(&str, &str) -> bool;
    let scopes: [(Selector, Wants); 9] = [
        (select(None, None, "", ""), |_, _| true),
        (select(Some("a"), None, "", ""), |ns, _| ns == "a"),
        (select(Some("none"), None, "", ""), |_, _| false),
        (select(Some("a"), Some("x"), "", ""), |ns, name| {
            (ns, name) == ("a", "x")
        }),
        (select(None, None, "", "metadata.name=x"), |_, name| {
            name == "x"
        }),
        (select(None, None, "", "metadata.namespace=ab"), |ns, _| {
            ns == "ab"
        }),
        (
            select(Some("a"), None, "", "metadata.namespace=b"),
            |_, _| false,
        ),
        (select(None, None, "", "metadata.name!=x"), |_, name| {
            name != "x"
        }),
        (
            select(None, None, "!none", "metadata.namespace=b,metadata.name=y"),
            |ns, name| (ns, name) == ("b", "y"),
        ),
    ];
    let before = store.current_revision().await.expect("revision");
    let mut streams = Vec::new();
    for (selector, _) in &scopes {
        // One that is there before, and one that comes after and catches up.
        let request = WatchRequest {
            selector: selector.clone(),
            ..from(ReadVersion::Any)
        };
        streams.push(watch(&fixture, request).await);
    }
    let changes = change_things(&fixture).await;
    for ((selector, wants), mut live) in scopes.into_iter().zip(streams) {
        let request = WatchRequest {
            selector: selector.clone(),
            ..from_version(before)
        };
        let mut late = watch(&fixture, request).await;
        for stream in [&mut live, &mut late] {
            for (ns, name, revision) in changes.iter().filter(|(ns, name, _)| wants(ns, name)) {
                let item = next(stream).await;
                let want = format!("{ns}/{name}@{revision}");
                assert!(item.ends_with(&want), "{selector:?}: {item}, not {want}");
            }
            assert!(stream.try_next().is_none(), "{selector:?}");
        }
    }
}

/// Checks how watches begin: with which initial events, and with which mark.
pub async fn run_watch_semantics(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let x = fixture.create("a", "x").await.resource_version.0;
    let y = fixture.create("a", "y").await.resource_version.0;
    let all = [format!("ADDED a/x@{x}"), format!("ADDED a/y@{y}")];
    let (all, rest, nothing) = (&all[..], &all[1..], &all[..0]);
    let newer = Some(VersionMatch::NotOlderThan);
    // Asked for, version, what comes first, whether it is marked.
    let table = [
        (Some(true), ReadVersion::Unset, all, true),
        (Some(true), ReadVersion::Any, all, true),
        (Some(true), ReadVersion::At(x), all, true),
        (Some(true), ReadVersion::At(y), all, true),
        (Some(false), ReadVersion::Unset, nothing, false),
        (Some(false), ReadVersion::At(x), rest, false),
        (Some(false), ReadVersion::At(y), nothing, false),
        (None, ReadVersion::Unset, all, false),
        (None, ReadVersion::Any, all, false),
        (None, ReadVersion::At(x), rest, false),
        (None, ReadVersion::At(y), nothing, false),
    ];
    // So that "whatever is at hand" has all of it.
    let list = fixture.resource.list(Default::default()).await;
    assert_eq!(list.expect("list").items.len(), 2);
    let mut streams = Vec::new();
    for (initial, version, first, marked) in table {
        for bookmarks in [true, false] {
            let request = WatchRequest {
                send_initial_events: initial,
                version_match: newer.filter(|_| initial.is_some()),
                bookmarks,
                ..from(version)
            };
            let what = format!("{request:?}");
            let mut stream = watch(&fixture, request).await;
            for want in first {
                assert_eq!(&next(&mut stream).await, want, "{what}");
            }
            if marked && bookmarks {
                let mark = next(&mut stream).await;
                let revision = mark.strip_prefix("BOOKMARK@");
                let revision = revision.and_then(|m| m.strip_suffix(" end"));
                let revision: u64 = revision.expect(&what).parse().expect("a number");
                assert!(revision >= y, "{what}: {revision}");
            }
            assert!(stream.try_next().is_none(), "{what}");
            streams.push((what, stream));
        }
    }
    let z = fixture.create("a", "z").await.resource_version;
    for (what, stream) in &mut streams {
        assert_eq!(next(stream).await, format!("ADDED a/z@{z}"), "{what}");
    }
}

/// Checks that what happened while nobody read is read in order later, and that
/// a deletion shows the last content under its own version.
pub async fn run_watch_late(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let first = fixture.create("a", "x").await.resource_version.0;
    let mut live = watch(&fixture, from_version(first)).await;
    let mut want = Vec::new();
    for round in 0..40 {
        let set = fixture.set("a", "x", "spec.v", &round.to_string()).await;
        want.push(format!("MODIFIED a/x@{}", set.resource_version));
        let gone = fixture.delete("a", "x").await;
        assert!(gone.resource_version > set.resource_version);
        assert_eq!(gone.body(), set.body());
        want.push(format!("DELETED a/x@{}", gone.resource_version));
        let again = fixture.create("a", "x").await;
        want.push(format!("ADDED a/x@{}", again.resource_version));
    }
    let mut late = watch(&fixture, from_version(first)).await;
    for stream in [&mut live, &mut late] {
        for want in &want {
            assert_eq!(&next(stream).await, want);
        }
    }
    // From a deletion on, what was deleted is not shown again.
    let after = want[1].rsplit_once('@').expect("a version").1;
    let after = from_version(after.parse().expect("a number"));
    let mut stream = watch(&fixture, after).await;
    assert_eq!(next(&mut stream).await, want[2]);
}

/// Checks that bookmarks come to those who understand them and to nobody else,
/// and that none leads backwards or over what was not shown.
pub async fn run_watch_bookmark_versions(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let elsewhere = resource(store).await;
    let start = fixture.create("a", "x").await.resource_version.0;
    let request = |bookmarks| WatchRequest {
        bookmarks,
        selector: Selector::all(Some("a")),
        // The last one comes two seconds before the end: soon.
        timeout: Some(Duration::from_millis(2200)),
        ..from_version(start)
    };
    let mut told = watch(&fixture, request(true)).await;
    let mut untold = watch(&fixture, request(false)).await;
    let mut last = start;
    let mut bookmarked = false;
    for round in 0.. {
        elsewhere.create("a", &format!("x{round}")).await;
        // In another namespace: only a bookmark can tell of it.
        fixture.create("b", &format!("x{round}")).await;
        let mine = fixture.set("a", "x", "spec.v", &round.to_string()).await;
        let mine = mine.resource_version.0;
        loop {
            let item = next(&mut told).await;
            let (what, revision) = item.rsplit_once('@').expect("a version");
            let revision: u64 = revision.parse().expect("a number");
            assert!(revision >= last, "{item} after {last}");
            last = revision;
            match what {
                "BOOKMARK" => bookmarked = true,
                "MODIFIED a/x" => {
                    assert_eq!(revision, mine, "a bookmark or an event was wrong");
                    break;
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(next(&mut untold).await, format!("MODIFIED a/x@{mine}"));
        if bookmarked {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Checks that a watch that its client drops is forgotten, and that the others
/// go on.
pub async fn run_watch_ends(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let count = || fixture.resource.lock().cacher.watcher_count();
    let start = fixture.create("a", "x").await.resource_version.0;
    let mut stays = watch(&fixture, from_version(start)).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(watch(&fixture, from_version(start)).await);
    }
    assert_eq!(count(), 21);
    let set = fixture.set("a", "x", "spec.v", "1").await.resource_version;
    // Some with items that nobody reads, some after they were read.
    for stream in streams.iter_mut().take(10) {
        expect(stream, [format!("MODIFIED a/x@{set}")]).await;
    }
    drop(streams);
    assert_eq!(count(), 1);
    expect(&mut stays, [format!("MODIFIED a/x@{set}")]).await;
    let gone = fixture.delete("a", "x").await.resource_version;
    expect(&mut stays, [format!("DELETED a/x@{gone}")]).await;
    // Nothing of what was queued is held any more.
    let let_go = async {
        while fixture.resource.lock().cacher.held().bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("all events let go", let_go).await;
}
