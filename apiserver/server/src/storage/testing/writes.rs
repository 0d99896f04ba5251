//! What writing through a resource must do.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{resource, thing, unique};
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
