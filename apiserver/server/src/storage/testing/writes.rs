//! What writing through a resource must do.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Fixture, resource, start, thing, unique};
use crate::storage::Next;
use crate::storage::request::{Preconditions, ReadVersion};
use crate::storage::store::Store;

/// Checks create, read, update and delete, and their errors.
pub async fn run_write_cycle(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let things = &fixture.resource;
    let missing = things.get(Some("a"), "x", ReadVersion::Unset).await;
    let missing = missing.expect_err("nothing there");
    assert_eq!(
        (missing.code, missing.message.as_str()),
        (404, "things \"x\" not found")
    );

    let mut body = thing("a", "x");
    meta::value::set_metadata(&mut body, "resourceVersion", "12");
    let created = fixture.create_value(body).await;
    let stored: Value = serde_json::from_slice(created.body()).expect("json");
    assert_eq!(stored["metadata"]["resourceVersion"], Value::Null);
    let again = things.create(Some("a"), "x", thing("a", "x"), None).await;
    assert_eq!(again.expect_err("exists").code, 409);

    // Read own writes, whatever the cache has seen.
    for _ in 0..20 {
        let version = unique("v");
        let updated = fixture.set("a", "x", "spec.v", &version).await;
        let got = things
            .get(Some("a"), "x", ReadVersion::Unset)
            .await
            .expect("get");
        assert_eq!(got.resource_version, updated.resource_version);
        assert_eq!(got.body(), updated.body());
    }
    // The same again is no write.
    let before = things
        .get(Some("a"), "x", ReadVersion::Unset)
        .await
        .expect("get");
    let none = Preconditions::default();
    for same in [true, false] {
        let outcome = things
            .guaranteed_update(Some("a"), "x", &none, |_, v| Ok(same.then_some(v)))
            .await
            .expect("update");
        assert!(!outcome.changed);
        assert_eq!(outcome.object.resource_version, before.resource_version);
    }
    let gone = fixture.delete("a", "x").await;
    assert!(gone.resource_version > before.resource_version);
    assert_eq!(gone.body(), before.body());
    let twice = things.delete(Some("a"), "x", &none, |_| Ok(())).await;
    assert_eq!(twice.expect_err("gone").code, 404);
    let late = things
        .guaranteed_update(Some("a"), "x", &none, |_, v| Ok(Some(v)))
        .await;
    assert_eq!(late.expect_err("gone").code, 404);
}

/// Checks that preconditions hold against the store's state, not the cache's.
pub async fn run_preconditions(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let things = &fixture.resource;
    let created = fixture.create("a", "x").await;
    let wrong = Preconditions {
        uid: Some("other".to_owned()),
        ..Preconditions::default()
    };
    let refused = things.delete(Some("a"), "x", &wrong, |_| Ok(())).await;
    assert_eq!(refused.expect_err("uid").code, 409);
    let touch = |_: &Arc<meta::Object>, mut v: Value| {
        v["spec"] = json!({"touched": true});
        Ok(Some(v))
    };
    let refused = things
        .guaranteed_update(Some("a"), "x", &wrong, touch)
        .await;
    assert_eq!(refused.expect_err("uid").code, 409);

    let newer = fixture.set("a", "x", "spec.v", "2").await;
    let of = |object: &meta::Object| Preconditions {
        uid: Some(object.meta.uid.clone()),
        resource_version: Some(object.resource_version.to_string()),
    };
    // Whatever the cache shows at this moment, the old version is refused and
    // the new one accepted.
    let refused = things
        .guaranteed_update(Some("a"), "x", &of(&created), touch)
        .await;
    assert_eq!(refused.expect_err("version").code, 409);
    let accepted = things
        .guaranteed_update(Some("a"), "x", &of(&newer), touch)
        .await;
    let accepted = accepted.expect("update");
    assert!(accepted.changed);
    let refused = things.delete(Some("a"), "x", &of(&newer), |_| Ok(())).await;
    assert_eq!(refused.expect_err("version").code, 409);
    let veto = things
        .delete(Some("a"), "x", &of(&accepted.object), |o| {
            Err(meta::Status::bad_request(format!("no: {}", o.meta.name)))
        })
        .await;
    assert_eq!(veto.expect_err("veto").message, "no: x");
    let gone = things
        .delete(Some("a"), "x", &of(&accepted.object), |_| Ok(()))
        .await;
    gone.expect("delete");
}

/// Checks that no increment is lost when many count at once.
pub async fn run_counter(store: &Arc<dyn Store>) {
    const TASKS: u64 = 8;
    const EACH: u64 = 10;
    let fixture = resource(store).await;
    fixture.create("a", "counter").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let things = fixture.resource.clone();
        tasks.spawn(async move {
            for _ in 0..EACH {
                let none = Preconditions::default();
                let outcome = things
                    .guaranteed_update(Some("a"), "counter", &none, |_, mut v| {
                        let n = v["spec"]["n"].as_u64().unwrap_or(0);
                        v["spec"] = json!({"n": n + 1});
                        Ok(Some(v))
                    })
                    .await;
                assert!(outcome.expect("update").changed);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let got = fixture
        .resource
        .get(Some("a"), "counter", ReadVersion::Unset)
        .await;
    let value = got.expect("get").to_value().expect("json");
    assert_eq!(value["spec"]["n"], TASKS * EACH);
}

/// Checks that a tree that was kept is that of the very state that is changed.
pub async fn run_trees(store: &Arc<dyn Store>) {
    let prefix = unique("trees");
    let (here, there) = (start(store, &prefix).await, start(store, &prefix).await);
    let none = Preconditions::default();
    here.create("a", "x").await;
    for round in 0..20 {
        let version = unique("v");
        // What is changed is what is stored, whoever wrote it last.
        let last = match round % 3 {
            0 => there.set("a", "x", "spec.v", &version).await,
            _ => here.set("a", "x", "spec.v", &version).await,
        };
        let mut seen = Vec::new();
        let changed = here
            .resource
            .update(Some("a"), "x", &none, |object, stored| {
                assert_eq!(*stored.tree, object.to_value().expect("json"));
                seen.push(object.resource_version);
                let mut new = Value::clone(&stored.tree);
                new["spec"]["n"] = json!(round);
                Ok(Some(new.into()))
            })
            .await
            .expect("update");
        assert_eq!(seen.last(), Some(&last.resource_version));
        let object = changed.object;
        let kept = here.resource.trees().get("a/x", &object).expect("kept");
        let stored: Value = serde_json::from_slice(object.body()).expect("json");
        assert_eq!(stored["spec"], json!({"v": version, "n": round}));
        assert_eq!(*kept.tree, object.to_value().expect("json"));
        assert!(here.resource.trees().get("a/x", &last).is_none());
        // Who looks at a tree keeps it from becoming a draft.
        drop(kept);
        if round % 2 == 0 {
            // What stays is written as it stands.
            let named = here.resource.update(Some("a"), "x", &none, |_, stored| {
                let mut tree = Value::clone(&stored.tree);
                tree["metadata"]["labels"] = json!({"n": round.to_string()});
                let kept = Some("spec");
                let checked = false;
                Ok(Some(Next {
                    tree,
                    kept,
                    checked,
                }))
            });
            let named = named.await.expect("update").object;
            let kept = here.resource.trees().get("a/x", &named).expect("kept");
            assert_eq!(*kept.tree, named.to_value().expect("json"));
            assert_eq!(kept.tree["spec"], stored["spec"]);
        }
        // The draft is the state before, or an earlier one.
        if let Some(draft) = here.resource.draft(Some("a"), "x") {
            let (mut tree, text) = draft.into_parts();
            meta::value::metadata_mut(&mut tree).remove("resourceVersion");
            let stored: Value = serde_json::from_slice(text.marked().text).expect("json");
            assert_eq!(tree, stored);
            assert_eq!(stored["spec"]["n"] == json!(round), round % 2 == 0);
        } else {
            assert!(round % 3 < 2, "no draft of what was changed here twice");
        }
    }
    let last = here.delete("a", "x").await;
    let again = there.create("a", "x").await;
    for gone in [last, again] {
        assert!(here.resource.trees().get("a/x", &gone).is_none());
    }
}

/// Checks that what was written here is one object, for the writer and in the cache,
/// whichever heard of it first.
pub async fn run_shared(store: &Arc<dyn Store>) {
    const TASKS: usize = 8;
    let fixture = resource(store).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let things = fixture.resource.clone();
        tasks.spawn(async move {
            let (name, none) = (format!("x{task}"), Preconditions::default());
            let body = thing("a", &name);
            let created = things.create(Some("a"), &name, body, None).await;
            let mut written = created.expect("create");
            for n in 0..10 {
                let version = ReadVersion::At(written.resource_version.0);
                let cached = things.get(Some("a"), &name, version).await;
                assert!(
                    Arc::ptr_eq(&cached.expect("cached"), &written),
                    "{name} {n}"
                );
                // There and back again: the same bytes as before, and others.
                let change = |_: &Arc<meta::Object>, mut v: Value| {
                    v["spec"] = json!({"even": n % 2 == 0});
                    Ok(Some(v))
                };
                let updated = things.guaranteed_update(Some("a"), &name, &none, change);
                written = updated.await.expect("update").object;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
}

/// Checks that what a stale cache suggests is never the last word: a change, a
/// refusal, "nothing to change" and "nothing is there" hold against the store.
pub async fn run_stale_suggestions(store: &Arc<dyn Store>) {
    let prefix = unique("stale");
    let (here, there) = (start(store, &prefix).await, start(store, &prefix).await);
    let none = Preconditions::default();
    let set = |n: &'static str| {
        move |_: &Arc<meta::Object>, mut v: Value| {
            v["spec"][n] = json!(true);
            Ok(Some(v))
        }
    };
    for round in 0..10 {
        let name = format!("x{round}");
        let update = |change| {
            let name = name.clone();
            let (things, none) = (here.resource.clone(), none.clone());
            async move {
                things
                    .guaranteed_update(Some("a"), &name, &none, change)
                    .await
            }
        };
        here.create("a", &name).await;
        // A change is made to the newest, and loses nothing.
        there.set("a", &name, "spec.there", "1").await;
        let merged = update(set("here")).await.expect("update").object;
        let merged = merged.to_value().expect("json");
        assert_eq!(merged["spec"], json!({"there": "1", "here": true}));
        // What is the same as the stale state is not the same as the newest.
        there.set("a", &name, "spec.here", "no").await;
        assert!(update(set("here")).await.expect("update").changed);
        // A refusal counts only if the newest is refused.
        there.set("a", &name, "spec.ok", "yes").await;
        let checked = things_ok(&here, &name, "yes").await;
        assert!(checked.is_ok(), "{checked:?}");
        there.set("a", &name, "spec.ok", "no").await;
        let checked = things_ok(&here, &name, "yes").await;
        assert_eq!(checked.expect_err("refused").message, "not ok");
        // What was deleted is gone, and what came again is another.
        there.delete("a", &name).await;
        assert_eq!(update(set("here")).await.expect_err("gone").code, 404);
        let again = there.create("a", &name).await;
        let of_the_first = Preconditions {
            uid: Some("the first".to_owned()),
            ..Preconditions::default()
        };
        let gone = here
            .resource
            .delete(Some("a"), &name, &of_the_first, |_| Ok(()));
        assert_eq!(gone.await.expect_err("another").code, 409);
        let gone = here.delete("a", &name).await;
        assert_eq!(gone.meta.uid, again.meta.uid);
        let twice = there.resource.delete(Some("a"), &name, &none, |_| Ok(()));
        assert_eq!(twice.await.expect_err("gone").code, 404);
    }
}

/// Deletes an object if its `spec.ok` is as wanted; changes nothing in the end.
async fn things_ok(fixture: &Fixture, name: &str, want: &str) -> Result<(), meta::Status> {
    let none = Preconditions::default();
    let check = |object: &Arc<meta::Object>| {
        let value = object.to_value().map_err(meta::Status::internal)?;
        match value["spec"]["ok"] == want {
            true => Ok(()),
            false => Err(meta::Status::bad_request("not ok")),
        }
    };
    fixture
        .resource
        .delete(Some("a"), name, &none, check)
        .await?;
    fixture.create("a", name).await;
    Ok(())
}

/// Checks that many who patch one object at once all get through, each with one
/// change, and that nobody's is lost.
pub async fn run_hot_object(store: &Arc<dyn Store>) {
    const WRITERS: u64 = 32;
    const EACH: u64 = 5;
    let fixture = resource(store).await;
    let first = fixture.create("a", "hot").await;
    let mut watch = fixture
        .resource
        .watch(super::from_version(first.resource_version.0))
        .await
        .expect("watch");
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let things = fixture.resource.clone();
        tasks.spawn(async move {
            for n in 0..EACH {
                let none = Preconditions::default();
                let patch = |_: &Arc<meta::Object>, mut v: Value| {
                    v["spec"][format!("w{writer}")] = json!(n);
                    v["total"] = json!(v["total"].as_u64().unwrap_or(0) + 1);
                    Ok(Some(v))
                };
                let patched = things.guaranteed_update(Some("a"), "hot", &none, patch);
                assert!(patched.await.expect("a patch").changed);
            }
        });
    }
    let all = async {
        while let Some(task) = tasks.join_next().await {
            task.expect("no panic");
        }
    };
    super::within("all patches", all).await;
    // Everyone saw every state, one after the other.
    for total in 1..=WRITERS * EACH {
        let item = super::within("a change", futures::StreamExt::next(&mut watch)).await;
        let Some(crate::storage::WatchItem::Event { object, .. }) = item else {
            panic!("{item:?}");
        };
        let value = object.to_value().expect("json");
        assert_eq!(value["total"], total);
    }
    let got = fixture
        .resource
        .get(Some("a"), "hot", ReadVersion::Unset)
        .await;
    let value = got.expect("get").to_value().expect("json");
    let spec = value["spec"].as_object().expect("all of them");
    assert_eq!(spec.len() as u64, WRITERS);
    assert!(spec.values().all(|n| *n == EACH - 1));
}

/// Checks that an object with a time to live vanishes, from the cache and for
/// those who watch, and that a write gives it a new one. Not for stores whose
/// time does not pass by itself.
pub async fn run_time_to_live(store: &Arc<dyn Store>) {
    let fixture = resource(store).await;
    let things = &fixture.resource;
    let created = things.create(Some("a"), "brief", thing("a", "brief"), Some(1));
    let created = created.await.expect("create").resource_version.0;
    let mut watch = things
        .watch(super::from_version(created))
        .await
        .expect("watch");
    let item = super::within("the end", futures::StreamExt::next(&mut watch)).await;
    let Some(crate::storage::WatchItem::Event {
        event_type, object, ..
    }) = item
    else {
        panic!("{item:?}");
    };
    assert_eq!(event_type, watchcache::EventType::Deleted);
    assert!(object.resource_version.0 > created);
    for version in [ReadVersion::Any, ReadVersion::Unset] {
        let gone = things.get(Some("a"), "brief", version).await;
        assert_eq!(gone.expect_err("gone").code, 404);
    }
}
