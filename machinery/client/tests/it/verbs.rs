//! The REST verbs.

use bytes::Bytes;
use client::{
    Client, DeleteParams, KubeObject, ListParams, LogParams, PartialObject, Patch, ResourceRef,
    StaticResource, Transport,
};
use futures::TryStreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
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

/// Builds a client of a server that answers paths from a table.
fn answering(table: &'static [(&'static str, &'static str)]) -> Client {
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| async move {
        let path = request.uri().path_and_query().unwrap().as_str().to_owned();
        let body = table
            .iter()
            .find(|(p, _)| *p == path)
            .map(|(_, body)| *body);
        let mut response = Response::new(Full::new(Bytes::from(body.unwrap_or("no such path"))));
        if body.is_none() {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        Ok::<_, std::io::Error>(response)
    });
    Client::new(Transport::service(service))
}

#[tokio::test]
async fn aggregated_discovery() {
    let client = answering(&[
        (
            "/api",
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{},"versions":[{"version":"v1","resources":[
                {"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["get","list","watch","delete"],
                 "subresources":[{"subresource":"log","verbs":["get"]}]},
                {"resource":"nodes","responseKind":{"kind":"Node"},"scope":"Cluster","verbs":["list"]}]}]}]}"#,
        ),
        (
            "/apis",
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"apps"},"versions":[
                {"version":"v2","freshness":"Stale","resources":[{"resource":"deployments","scope":"Namespaced","verbs":[]}]},
                {"version":"v1","resources":[{"resource":"deployments","scope":"Namespaced","verbs":["list"]}]}]}]}"#,
        ),
    ]);
    let found = client.discover().await.unwrap();
    let preferred: Vec<String> = found.preferred().map(|r| r.resource.to_string()).collect();
    let expected = [
        "/v1, Resource=pods",
        "/v1, Resource=nodes",
        "apps/v2, Resource=deployments",
    ];
    assert_eq!(preferred, expected);
    assert_eq!(found.resources.len(), 4);
    let pods = &found.resources[0];
    assert!(pods.resource.namespaced && pods.supports(&["list", "watch"]));
    assert!(!pods.supports(&["list", "create"]) && !found.resources[1].resource.namespaced);
    assert_eq!(found.failed.len(), 1, "the stale version is named");
}

#[tokio::test]
async fn discovery_of_older_servers_survives_a_broken_group() {
    let client = answering(&[
        ("/api", r#"{"kind":"APIVersions","versions":["v1"]}"#),
        (
            "/api/v1",
            r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
                {"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list"]},
                {"name":"pods/log","singularName":"","namespaced":true,"kind":"Pod","verbs":["get"]}]}"#,
        ),
        (
            "/apis",
            r#"{"kind":"APIGroupList","groups":[{"name":"metrics.k8s.io","versions":[
                {"groupVersion":"metrics.k8s.io/v1beta1","version":"v1beta1"}]}]}"#,
        ),
    ]);
    let found = client.discover().await.unwrap();
    assert_eq!(found.resources.len(), 1, "subresources are left out");
    assert_eq!(found.resources[0].kind, "Pod");
    assert_eq!(found.failed[0].0.to_string(), "metrics.k8s.io/v1beta1");
}

#[tokio::test]
async fn logs_are_streamed_as_they_come() {
    let client = answering(&[(
        "/api/v1/namespaces/a/pods/p/log?container=c&tailLines=2&follow=true",
        "one\ntwo\n",
    )]);
    let params = LogParams {
        container: Some("c".into()),
        tail_lines: Some(2),
        follow: true,
        ..LogParams::default()
    };
    let chunks: Vec<Bytes> = client
        .logs(Some("a"), "p", &params)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(chunks.concat(), b"one\ntwo\n");
    let Err(error) = client.logs(Some("a"), "q", &params).await else {
        panic!("no such pod")
    };
    assert!(
        error.is_not_found() && error.to_string().ends_with("no such path"),
        "{error}"
    );
}

#[tokio::test]
async fn answers_that_are_not_json_are_decode_errors() {
    let client = answering(&[("/api/v1/namespaces/a/pods/p", "<html>")]);
    let error = client.get::<Pod>(Some("a"), "p").await.unwrap_err();
    assert!(matches!(error, client::Error::Decode(_)), "{error}");
    let raw = client.get_raw("/api/v1/namespaces/a/pods/p").await.unwrap();
    assert_eq!(raw, "<html>");
}
