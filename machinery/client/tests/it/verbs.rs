//! The REST verbs.

use client::{
    DeleteParams, KubeObject, ListParams, PartialObject, Patch, ResourceRef, StaticResource,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use meta::{GroupVersionResource, Reason};
use serde_json::json;

use client::testing::{Fake, status};

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.into());
    object.metadata.namespace = Some("default".into());
    object
}

#[tokio::test]
async fn an_object_lives_through_all_verbs() {
    let fake = Fake::default();
    let client = fake.client();
    let created = client.create(None, &config_map("a")).await.unwrap();
    assert_eq!(created.resource_version(), "1");
    assert!(
        client
            .create(None, &config_map("a"))
            .await
            .unwrap_err()
            .is_already_exists()
    );

    let mut changed = created.clone();
    changed.data = Some([("k".to_owned(), "v".to_owned())].into());
    let changed = client.update(None, &changed).await.unwrap();
    assert!(
        client
            .update(None, &created)
            .await
            .unwrap_err()
            .is_conflict()
    );

    let patch = Patch::Merge(json!({"immutable": true}));
    let patched: ConfigMap = client.patch(Some("default"), "a", &patch).await.unwrap();
    assert_eq!(
        (patched.immutable, &patched.data),
        (Some(true), &changed.data)
    );

    let gone = client
        .delete::<ConfigMap>(Some("default"), "a", &DeleteParams::default())
        .await;
    assert_eq!(gone.unwrap(), None);
    let error = client
        .get::<ConfigMap>(Some("default"), "a")
        .await
        .unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), r#"configmaps "a" not found"#);
}

#[tokio::test]
async fn pages_are_followed() {
    let fake = Fake::default();
    let client = fake.client();
    for i in 0..7 {
        client
            .create(None, &config_map(&format!("m{i}")))
            .await
            .unwrap();
    }
    let all: Vec<ConfigMap> = client
        .list_all(Some("default"), &ListParams::default().limit(3))
        .await
        .unwrap();
    assert_eq!(all.len(), 7);
    assert_eq!(
        fake.requests("GET /api/v1/namespaces/default/configmaps?")
            .len(),
        3
    );
}

#[tokio::test]
async fn names_cannot_address_something_else() {
    let client = Fake::default().client();
    for name in ["a/status", "..", "", "a?x", "a%2fb"] {
        let error = client.get::<Pod>(Some("default"), name).await.unwrap_err();
        assert!(
            matches!(error, client::Error::Request(_)),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn values_and_metadata_of_any_kind() {
    let fake = Fake::default();
    let client = fake.client();
    let widgets =
        ResourceRef::namespaced(GroupVersionResource::new("example.com", "v1", "widgets"));
    let widget = json!({"kind": "Widget", "apiVersion": "example.com/v1",
        "metadata": {"name": "w"}, "spec": {"size": 3}});
    client
        .dynamic(widgets.clone())
        .create(Some("a"), &widget)
        .await
        .unwrap();
    let read = client
        .dynamic(widgets.clone())
        .get(Some("a"), "w")
        .await
        .unwrap();
    assert_eq!(read["spec"]["size"], 3);
    let partial: PartialObject = client.metadata(widgets).get(Some("a"), "w").await.unwrap();
    assert_eq!(partial.name(), "w");
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let fake = Fake::default();
    let client = fake.client();
    for (reason, check) in [
        (
            Reason::Expired,
            client::Error::is_expired as fn(&client::Error) -> bool,
        ),
        (Reason::TooManyRequests, client::Error::is_too_many_requests),
        (Reason::Forbidden, client::Error::is_forbidden),
        (Reason::InternalError, client::Error::is_internal),
    ] {
        fake.fault("GET", status(reason));
        let error = client.get::<Pod>(Some("a"), "p").await.unwrap_err();
        assert!(check(&error), "{reason:?}");
    }
    fake.fault("GET", client::testing::Fault::Refuse);
    assert!(
        client
            .get::<Pod>(Some("a"), "p")
            .await
            .unwrap_err()
            .is_connection_refused()
    );
    assert_eq!(Pod::resource_ref().gvr.resource, "pods");
}
