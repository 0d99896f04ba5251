//! Reflector, store and handlers together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{
    BY_OWNER_UID, DeleteParams, InformerEvent, InformerFactory, InformerOptions, KubeObject,
    PartialObject, SharedInformer, StaticResource, owner_uids,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use meta::Reason;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::eventually;
use client::testing::{Fake, Fault, status};

const MAPS: &str = "/api/v1/configmaps";

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.into());
    object.metadata.namespace = Some("default".into());
    object
}

type Seen = Arc<Mutex<Vec<String>>>;

fn log(seen: &Seen) -> impl Fn(&InformerEvent<ConfigMap>) + Send + Sync + 'static {
    let seen = Arc::clone(seen);
    move |event| {
        let kind = match event {
            InformerEvent::Added(_) => "+",
            InformerEvent::Updated(..) => "~",
            InformerEvent::Deleted(_) => "-",
        };
        seen.lock()
            .unwrap()
            .push(format!("{kind}{}", event.object().name()));
    }
}

struct Running {
    fake: Fake,
    client: client::Client,
    informer: SharedInformer<ConfigMap>,
    seen: Seen,
    _stop: tokio_util::sync::DropGuard,
}

/// Starts an informer over a server that holds `names`, and waits for its watch.
async fn running(names: &[&str]) -> Running {
    let fake = Fake::default();
    let client = fake.client();
    for name in names {
        client.create(None, &config_map(name)).await.unwrap();
    }
    let informer = SharedInformer::new(&client, InformerOptions::all());
    let seen = Seen::default();
    informer.add_handler(log(&seen));
    let token = CancellationToken::new();
    informer.spawn(token.clone());
    informer.synced().await;
    eventually("the watch", || fake.watchers() == 1).await;
    Running {
        fake,
        client,
        informer,
        seen,
        _stop: token.drop_guard(),
    }
}

#[tokio::test]
async fn mirrors_and_tells_in_order() {
    let r = running(&["a", "b"]).await;
    assert_eq!(*r.seen.lock().unwrap(), ["+a", "+b"]);
    let created = r.client.create(None, &config_map("c")).await.unwrap();
    r.client.update(None, &created).await.unwrap();
    let none = DeleteParams::default();
    r.client
        .delete::<ConfigMap>(Some("default"), "a", &none)
        .await
        .unwrap();
    eventually("all events", || r.seen.lock().unwrap().len() == 5).await;
    assert_eq!(r.seen.lock().unwrap()[2..], ["+c", "~c", "-a"]);
    assert_eq!(r.informer.store().len(), 2);
    eventually("version", || r.informer.store().resource_version() == "5").await;
}

#[tokio::test]
async fn a_late_handler_is_told_what_is_there() {
    let r = running(&["a", "b"]).await;
    let late = Seen::default();
    let id = r.informer.add_handler(log(&late));
    assert_eq!(*late.lock().unwrap(), ["+a", "+b"]);
    r.informer.remove_handler(id);
    r.client.create(None, &config_map("c")).await.unwrap();
    eventually("the other handler", || r.seen.lock().unwrap().len() == 3).await;
    assert_eq!(
        late.lock().unwrap().len(),
        2,
        "a removed handler is told nothing"
    );
}

#[tokio::test]
async fn a_broken_watch_goes_on_without_a_list() {
    let r = running(&["a"]).await;
    r.client.create(None, &config_map("b")).await.unwrap();
    eventually("b", || r.informer.store().len() == 2).await;
    r.fake.break_watches();
    r.client.create(None, &config_map("c")).await.unwrap();
    eventually("c", || r.informer.store().len() == 3).await;
    let lists = r.fake.requests(&format!("GET {MAPS}?limit"));
    assert_eq!(lists.len(), 1, "{lists:?}");
}

#[tokio::test]
async fn an_expired_version_lists_again_and_finds_what_is_gone() {
    let r = running(&["a", "b"]).await;
    r.client.create(None, &config_map("c")).await.unwrap();
    eventually("c", || r.informer.store().len() == 3).await;
    r.fake.break_watches();
    r.client.create(None, &config_map("d")).await.unwrap();
    let none = DeleteParams::default();
    r.client
        .delete::<ConfigMap>(Some("default"), "a", &none)
        .await
        .unwrap();
    r.fake.compact();
    eventually("relisted", || {
        let keys: Vec<_> = r
            .informer
            .store()
            .keys()
            .into_iter()
            .map(|k| k.name)
            .collect();
        keys == ["b", "c", "d"]
    })
    .await;
    let seen = r.seen.lock().unwrap();
    assert!(
        seen[3..].contains(&"-a".into()) && seen[3..].contains(&"+d".into()),
        "{seen:?}"
    );
    assert!(
        !seen[3..].contains(&"~b".into()),
        "what did not change wakes nobody: {seen:?}"
    );
}

#[tokio::test]
async fn a_server_that_is_not_up_yet_is_awaited() {
    let fake = Fake::default();
    for _ in 0..3 {
        fake.fault("GET", Fault::Refuse);
    }
    let informer = SharedInformer::<ConfigMap>::new(&fake.client(), InformerOptions::all());
    let token = CancellationToken::new();
    let _stop = token.clone().drop_guard();
    informer.spawn(token);
    let synced = tokio::time::timeout(Duration::from_secs(10), informer.synced());
    synced.await.unwrap();
    assert_eq!(fake.requests(&format!("GET {MAPS}?limit")).len(), 4);
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_skipped() {
    let r = running(&[]).await;
    r.fake
        .send_raw(MAPS, "{\"type\":\"ADDED\",\"object\":{\"data\":7}}\n");
    r.client.create(None, &config_map("good")).await.unwrap();
    eventually("good", || r.informer.store().len() == 1).await;
    assert_eq!(r.fake.watchers(), 1, "the same watch");
}

#[tokio::test]
async fn bookmarks_move_the_version() {
    let r = running(&["a"]).await;
    let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}});
    r.fake.send_raw(MAPS, &format!("{bookmark}\n"));
    eventually("99", || r.informer.store().resource_version() == "99").await;
}

#[tokio::test]
async fn resync_reminds_only_who_asked() {
    let r = running(&["a"]).await;
    let reminded = Seen::default();
    r.informer
        .add_handler_with_resync(Duration::from_millis(1), log(&reminded));
    // The period is raised to a second.
    eventually("a reminder", || reminded.lock().unwrap().len() > 1).await;
    assert_eq!(reminded.lock().unwrap()[..2], ["+a", "~a"]);
    assert_eq!(*r.seen.lock().unwrap(), ["+a"]);
}

#[tokio::test]
async fn indexes_follow_changes() {
    let r = running(&[]).await;
    r.informer.add_index(BY_OWNER_UID, owner_uids);
    let mut owned = config_map("owned");
    owned.metadata.owner_references = Some(vec![OwnerReference {
        uid: "u1".into(),
        ..OwnerReference::default()
    }]);
    let mut created = r.client.create(None, &owned).await.unwrap();
    let store = r.informer.store();
    eventually("filed", || store.by_index(BY_OWNER_UID, "u1").len() == 1).await;
    created.metadata.owner_references = None;
    r.client.update(None, &created).await.unwrap();
    eventually("unfiled", || store.by_index(BY_OWNER_UID, "u1").is_empty()).await;
}

#[tokio::test]
async fn a_factory_shares_informers() {
    let fake = Fake::default();
    fake.client().create(None, &config_map("a")).await.unwrap();
    let factory = InformerFactory::new(fake.client());
    let one = factory.informer::<ConfigMap>(InformerOptions::all());
    let two = factory.informer::<ConfigMap>(InformerOptions::all());
    let metadata =
        factory.informer_for::<PartialObject>(ConfigMap::resource_ref(), InformerOptions::all());
    let token = CancellationToken::new();
    let _stop = token.clone().drop_guard();
    factory.start(&token);
    factory.start(&token);
    factory.synced().await;
    assert_eq!(
        (one.store().len(), two.store().len(), metadata.store().len()),
        (1, 1, 1)
    );
    let lists = fake.requests(&format!("GET {MAPS}?limit"));
    assert_eq!(
        lists.len(),
        2,
        "one for objects, one for metadata: {lists:?}"
    );
}

#[tokio::test]
async fn too_many_requests_does_not_relist() {
    let r = running(&["a"]).await;
    r.client.create(None, &config_map("b")).await.unwrap();
    eventually("b", || r.informer.store().len() == 2).await;
    r.fake.fault(
        &format!("GET {MAPS}?watch"),
        status(Reason::TooManyRequests),
    );
    r.fake.break_watches();
    r.client.create(None, &config_map("c")).await.unwrap();
    eventually("c", || r.informer.store().len() == 3).await;
    assert_eq!(r.fake.requests(&format!("GET {MAPS}?limit")).len(), 1);
    assert_eq!(r.fake.requests(&format!("GET {MAPS}?watch")).len(), 3);
}
