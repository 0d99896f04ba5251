//! Answers in every form: protobuf read by code that is not the server's, YAML,
//! tables, metadata alone; on watches too, and over a websocket.

use futures::StreamExt;
use http::{Method, Request};
use http_body_util::Full;
use k8s_pb::api::apidiscovery::v2 as discovery;
use k8s_pb::api::apps::v1 as apps;
use k8s_pb::api::autoscaling::v1 as autoscaling;
use k8s_pb::api::core::v1 as core;
use k8s_pb::api::events::v1 as events;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta_v1;
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use prost::Message;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::credentials::connect;
use crate::harness::{Answer, Api, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// What client-go asks for.
const PREFERRED: &str = "application/vnd.kubernetes.protobuf,application/json";

/// Opens an envelope, which must name this type.
#[track_caller]
fn open<T: Message + Default>(bytes: &[u8], api_version: &str, kind: &str) -> T {
    let body = bytes.strip_prefix(b"k8s\0").expect("the magic");
    let unknown = Unknown::decode(body).unwrap();
    let type_meta = unknown.type_meta.unwrap();
    assert_eq!(type_meta.api_version(), api_version);
    assert_eq!(type_meta.kind(), kind);
    T::decode(unknown.raw.unwrap().as_slice()).unwrap()
}

#[track_caller]
fn read<T: Message + Default>(answer: &Answer, api_version: &str, kind: &str) -> T {
    assert_eq!(answer.header("content-type"), PROTOBUF);
    open(&answer.bytes, api_version, kind)
}

async fn send(api: &Api, method: Method, path: &str, body: &Value) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", PREFERRED)
        .header("content-type", "application/json")
        .body(Full::new(body.to_string().into()))
        .unwrap();
    api.send(request).await
}

#[tokio::test]
async fn every_verb_answers_protobuf() {
    let api = Api::start().await;
    let answer = send(&api, Method::POST, DEPLOYMENTS, &deployment("web")).await;
    assert_eq!(answer.code.as_u16(), 201);
    let made: apps::Deployment = read(&answer, "apps/v1", "Deployment");
    let metadata = made.metadata.unwrap();
    assert_eq!((metadata.name(), metadata.generation()), ("web", 1));
    assert!(metadata.creation_timestamp.unwrap().seconds() > 1_700_000_000);
    let spec = made.spec.unwrap();
    assert_eq!(spec.replicas, Some(2));
    let rolling = spec.strategy.unwrap().rolling_update.unwrap();
    assert_eq!(rolling.max_surge.unwrap().str_val(), "25%");

    let path = format!("{DEPLOYMENTS}/web");
    let read_back: apps::Deployment =
        read(&api.get_as(&path, PREFERRED).await, "apps/v1", "Deployment");
    let same = read_back.metadata.unwrap();
    assert_eq!(same.resource_version, metadata.resource_version);
    assert!(!same.resource_version().is_empty());

    let scale = api.get_as(&format!("{path}/scale"), PREFERRED).await;
    let scale: autoscaling::Scale = read(&scale, "autoscaling/v1", "Scale");
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    assert_eq!(scale.status.unwrap().selector(), "app=web");

    let zero = json!({"spec": {"replicas": 0}});
    let request = Request::patch(&path)
        .header("accept", PREFERRED)
        .header("content-type", "application/merge-patch+json")
        .body(Full::new(zero.to_string().into()))
        .unwrap();
    let patched: apps::Deployment = read(&api.send(request).await, "apps/v1", "Deployment");
    assert_eq!(patched.spec.unwrap().replicas, Some(0));

    let list: apps::DeploymentList = read(
        &api.get_as(DEPLOYMENTS, PREFERRED).await,
        "apps/v1",
        "DeploymentList",
    );
    assert_eq!(list.items.len(), 1);
    assert!(!list.metadata.unwrap().resource_version().is_empty());
    assert_eq!(list.items[0].spec.as_ref().unwrap().replicas, Some(0));

    let gone = send(&api, Method::DELETE, &path, &json!({})).await;
    let gone: meta_v1::Status = read(&gone, "v1", "Status");
    let details = gone.details.unwrap();
    assert_eq!(
        (gone.status.as_deref(), details.name(), details.kind()),
        (Some("Success"), "web", "deployments")
    );

    let missing = api.get_as(&path, PREFERRED).await;
    assert_eq!(missing.code.as_u16(), 404);
    let status: meta_v1::Status = read(&missing, "v1", "Status");
    assert_eq!((status.reason(), status.code()), ("NotFound", 404));
    assert_eq!(status.message(), "deployments.apps \"web\" not found");

    let bad = send(&api, Method::POST, PODS, &pod("Web_1")).await;
    let status: meta_v1::Status = read(&bad, "v1", "Status");
    assert_eq!((status.reason(), status.code()), ("Invalid", 422));
    assert_eq!(status.details.unwrap().causes[0].field(), "metadata.name");

    let me = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let me = send(&api, Method::POST, path, &me).await;
    let me: k8s_pb::api::authentication::v1::SelfSubjectReview =
        read(&me, "authentication.k8s.io/v1", "SelfSubjectReview");
    assert!(!me.status.unwrap().user_info.unwrap().username().is_empty());
}

#[tokio::test]
async fn lists_with_pages_and_another_version() {
    let api = Api::start().await;
    for name in ["a", "b", "c"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    let page = api
        .get_as(&format!("{CONFIG_MAPS}?limit=2"), PROTOBUF)
        .await;
    let page: core::ConfigMapList = read(&page, "v1", "ConfigMapList");
    assert_eq!(page.items.len(), 2);
    assert_eq!(page.items[0].data["k"], "v");
    let metadata = page.metadata.unwrap();
    assert_eq!(metadata.remaining_item_count, Some(1));
    assert!(!metadata.r#continue().is_empty());
    let none = api
        .get_as("/api/v1/namespaces/none/configmaps", PROTOBUF)
        .await;
    let none: core::ConfigMapList = read(&none, "v1", "ConfigMapList");
    assert!(none.items.is_empty());

    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        "reason": "R", "message": "m", "count": 3});
    api.post("/api/v1/namespaces/default/events", &event)
        .await
        .ok();
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let list = api.get_as(path, PREFERRED).await;
    let list: events::EventList = read(&list, "events.k8s.io/v1", "EventList");
    assert_eq!(list.items[0].note(), "m");
    assert_eq!(list.items[0].regarding.as_ref().unwrap().name(), "p");
    let mut watch = api.watch_as(&format!("{path}?watch=1"), PROTOBUF).await;
    let (_, event) = next::<events::Event>(&mut watch, "events.k8s.io/v1", "Event").await;
    assert_eq!(event.deprecated_count(), 3);
}

async fn next<T: Message + Default>(
    watch: &mut crate::harness::Watch,
    api_version: &str,
    kind: &str,
) -> (String, T) {
    let event = watch.message().await.expect("an event");
    let event = meta_v1::WatchEvent::decode(event.as_slice()).unwrap();
    let raw = event.object.unwrap().raw.unwrap();
    (event.r#type.unwrap(), open(&raw, api_version, kind))
}

#[tokio::test]
async fn watches_in_protobuf() {
    let api = Api::start().await;
    api.post(PODS, &pod("a")).await.ok();
    let path = format!("{PODS}?watch=1&allowWatchBookmarks=true");
    let mut watches = [
        api.watch_as(&path, PREFERRED).await,
        api.watch_as(&path, PREFERRED).await,
    ];
    for watch in &mut watches {
        let stream = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(watch.headers["content-type"], stream);
        let (event, a) = next::<core::Pod>(watch, "v1", "Pod").await;
        assert_eq!((event.as_str(), a.metadata.unwrap().name()), ("ADDED", "a"));
        let (event, end) = next::<core::Pod>(watch, "v1", "Pod").await;
        let metadata = end.metadata.unwrap();
        assert_eq!(event, "BOOKMARK");
        assert_eq!(metadata.annotations["k8s.io/initial-events-end"], "true");
        assert!(!metadata.resource_version().is_empty());
    }
    api.post(PODS, &pod("b")).await.ok();
    api.delete(&format!("{PODS}/b"), &json!({"gracePeriodSeconds": 0}))
        .await
        .ok();
    for watch in &mut watches {
        let (event, b) = next::<core::Pod>(watch, "v1", "Pod").await;
        let spec = b.spec.unwrap();
        assert_eq!((event.as_str(), spec.containers[0].name()), ("ADDED", "c"));
        let added = b.metadata.unwrap().resource_version().to_owned();
        let (event, b) = next::<core::Pod>(watch, "v1", "Pod").await;
        assert_eq!(event, "DELETED");
        assert_ne!(b.metadata.unwrap().resource_version(), added);
    }
    let mut old = api
        .watch_as(&format!("{PODS}?watch=1&timeoutSeconds=1"), PROTOBUF)
        .await;
    next::<core::Pod>(&mut old, "v1", "Pod").await;
    assert_eq!(old.message().await, None, "it ends as it said");
}

#[tokio::test]
async fn a_lost_position_is_told_in_protobuf() {
    use apiserver::storage::Store;
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let now = api.store.current_revision().await.unwrap();
    api.store.compact(now).await.unwrap();
    let store = apiserver::StoreSource::Other(api.store.clone());
    let api = Api::over(store, api.dir.path().join("pki")).await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=1");
    let mut watch = api.watch_as(&path, PROTOBUF).await;
    let (event, status) = next::<meta_v1::Status>(&mut watch, "v1", "Status").await;
    assert_eq!(
        (event.as_str(), status.code(), status.reason()),
        ("ERROR", 410, "Expired")
    );
    assert_eq!(watch.message().await, None);
}

#[tokio::test]
async fn metadata_alone_in_every_form() {
    let api = Api::start().await;
    api.post(PODS, &pod("a")).await.ok();
    let clause =
        |media: &str, kind: &str, v: &str| format!("{media};as={kind};g=meta.k8s.io;v={v}");
    let one = |media: &str, v: &str| clause(media, "PartialObjectMetadata", v);
    let many = |media: &str, v: &str| clause(media, "PartialObjectMetadataList", v);
    for v in ["v1", "v1beta1"] {
        let version = format!("meta.k8s.io/{v}");
        let answer = api.get_as(&format!("{PODS}/a"), &one(PROTOBUF, v)).await;
        let alone: meta_v1::PartialObjectMetadata =
            read(&answer, &version, "PartialObjectMetadata");
        assert_eq!(alone.metadata.unwrap().labels["app"], "a");
        let answer = api.get_as(PODS, &many(PROTOBUF, v)).await;
        let list: meta_v1::PartialObjectMetadataList =
            read(&answer, &version, "PartialObjectMetadataList");
        assert_eq!(list.items[0].metadata.as_ref().unwrap().name(), "a");
        assert!(!list.metadata.unwrap().resource_version().is_empty());
        let json = api.get_as(PODS, &many("application/json", v)).await.ok();
        assert_eq!(json["apiVersion"], version);
        assert_eq!(json["items"][0]["apiVersion"], version);
        let path = format!("{PODS}?watch=1");
        let mut watch = api.watch_as(&path, &one(PROTOBUF, v)).await;
        let (event, alone) =
            next::<meta_v1::PartialObjectMetadata>(&mut watch, &version, "PartialObjectMetadata")
                .await;
        assert_eq!(
            (event.as_str(), alone.metadata.unwrap().name()),
            ("ADDED", "a")
        );
        let mut watch = api.watch_as(&path, &one("application/json", v)).await;
        assert_eq!(watch.next().await.unwrap()["object"]["apiVersion"], version);
    }
    let yaml = api.get_as(PODS, &many("application/yaml", "v1")).await;
    assert!(
        yaml.text().contains("kind: PartialObjectMetadataList"),
        "{}",
        yaml.text()
    );
    // Asked for the other of the two.
    api.get_as(PODS, &one("application/json", "v1")).await.refused(
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadata, but the requested object is a list (*core.PodList)",
    );
    api.get_as(&format!("{PODS}/a"), &many("application/json", "v1"))
        .await
        .refused(
            406,
            "NotAcceptable",
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.Pod)",
        );
}

#[tokio::test]
async fn tables_in_every_form() {
    let api = Api::start().await;
    api.post(PODS, &pod("a")).await.ok();
    let table = |media: &str, v: &str| format!("{media};as=Table;g=meta.k8s.io;v={v}");
    // There is none in protobuf: what else is accepted counts.
    api.get_as(PODS, &table(PROTOBUF, "v1")).await.refused(
        406,
        "NotAcceptable",
        "only the following media types",
    );
    let either = format!(
        "{},{}",
        table(PROTOBUF, "v1"),
        table("application/yaml", "v1beta1")
    );
    let yaml = api.get_as(PODS, &either).await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    let text = yaml.text();
    assert!(
        text.contains("kind: Table") && text.contains("meta.k8s.io/v1beta1"),
        "{text}"
    );

    let json = table("application/json", "v1");
    for (include, kind) in [
        ("None", Value::Null),
        ("Metadata", json!("PartialObjectMetadata")),
        ("Object", json!("Pod")),
    ] {
        let query = format!("includeObject={include}");
        let one = api.get_as(&format!("{PODS}/a?{query}"), &json).await.ok();
        assert_eq!(one["rows"][0]["object"]["kind"], kind);
        assert_ne!(one["metadata"]["resourceVersion"], "");
        let path = format!("{PODS}?watch=1&allowWatchBookmarks=1&{query}");
        let mut watch = api.watch_as(&path, &json).await;
        let added = watch.next().await.unwrap();
        assert_eq!(added["object"]["rows"][0]["object"]["kind"], kind);
        assert_ne!(added["object"]["columnDefinitions"], json!([]));
        let end = watch.next().await.unwrap();
        assert_eq!(end["type"], "BOOKMARK");
        assert_eq!(end["object"]["columnDefinitions"], json!([]));
        let marked = &end["object"]["rows"][0]["object"]["metadata"]["annotations"];
        assert_eq!(
            marked["k8s.io/initial-events-end"], "true",
            "whatever is included"
        );
    }
    api.get_as(&format!("{PODS}?includeObject=Some"), &json)
        .await
        .refused(
            400,
            "BadRequest",
            r#"Unable to convert to Table as requested: includeObject: Invalid value: "Some": must be 'Metadata', 'Object', 'None', or empty"#,
        );
}

#[tokio::test]
async fn yaml_and_indented_json() {
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let yaml = api.get_as(&path, "application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    // What it says can be sent back.
    let again = api
        .call(Method::PUT, &path, "application/yaml", yaml.text())
        .await
        .ok();
    assert_eq!(again["data"]["k"], "v");
    let list = api.get_as(CONFIG_MAPS, "application/yaml").await.text();
    assert!(list.contains("kind: ConfigMapList"), "{list}");
    let missing = api
        .get_as(&format!("{CONFIG_MAPS}/b"), "application/yaml")
        .await;
    assert_eq!(missing.code.as_u16(), 404);
    assert!(
        missing.text().contains("reason: NotFound"),
        "{}",
        missing.text()
    );

    for (query, agent, indented) in [
        ("", "test", false),
        ("?pretty=true", "test", true),
        ("", "curl/8.5", true),
        ("?pretty=false", "curl/8.5", false),
    ] {
        for path in [format!("{path}{query}"), format!("{CONFIG_MAPS}{query}")] {
            let request = Request::get(&path)
                .header("user-agent", agent)
                .body(Full::default())
                .unwrap();
            let text = api.send(request).await.text();
            assert_eq!(
                text.starts_with("{\n  \""),
                indented,
                "{path} {agent}: {text}"
            );
        }
    }
}

#[tokio::test]
async fn discovery_in_protobuf() {
    let api = Api::start().await;
    let aggregated = format!("{PROTOBUF};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let json = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let answer = api.get_as("/apis", &format!("{aggregated},{json}")).await;
    assert_eq!(answer.header("content-type"), aggregated);
    assert_eq!(answer.header("cache-control"), "public");
    assert_eq!(answer.header("vary"), "Accept");
    let list: discovery::APIGroupDiscoveryList = open(
        &answer.bytes,
        "apidiscovery.k8s.io/v2",
        "APIGroupDiscoveryList",
    );
    let apps = list
        .items
        .iter()
        .find(|i| i.metadata.as_ref().unwrap().name() == "apps");
    let version = &apps.unwrap().versions[0];
    assert_eq!((version.version(), version.freshness()), ("v1", "Current"));
    let web = version
        .resources
        .iter()
        .find(|r| r.resource() == "deployments")
        .unwrap();
    assert_eq!(web.response_kind.as_ref().unwrap().kind(), "Deployment");
    assert_eq!(
        (web.scope(), web.singular_resource()),
        ("Namespaced", "deployment")
    );
    assert!(web.short_names.contains(&"deploy".to_owned()));
    assert!(web.subresources.iter().any(|s| s.subresource() == "scale"));
    let tag = api.get_as("/apis", json).await;
    assert_eq!(answer.header("etag"), tag.header("etag"));

    let plain = api.get_as("/apis/apps/v1", PROTOBUF).await;
    let plain: meta_v1::APIResourceList = read(&plain, "v1", "APIResourceList");
    assert_eq!(plain.group_version(), "apps/v1");
    let resource = plain
        .resources
        .iter()
        .find(|r| r.name() == "deployments")
        .unwrap();
    assert!(
        resource
            .verbs
            .as_ref()
            .unwrap()
            .items
            .contains(&"watch".to_owned())
    );
    let groups = api.get_as("/apis", PROTOBUF).await;
    let groups: meta_v1::APIGroupList = read(&groups, "v1", "APIGroupList");
    assert!(groups.groups.iter().any(|g| g.name() == "apps"));
    // No API object, and so JSON whatever is asked for.
    let version = api.get_as("/version", PROTOBUF).await;
    assert_eq!(version.header("content-type"), "application/json");
    assert_eq!(version.ok()["major"], "1");
}

#[tokio::test]
async fn what_every_answer_carries() {
    let api = Api::start().await;
    let mut large = config_map("large");
    large["data"]["k"] = json!("x".repeat(300_000));
    api.post(CONFIG_MAPS, &large).await.ok();
    let request = Request::get(CONFIG_MAPS)
        .header("accept", PROTOBUF)
        .header("accept-encoding", "gzip")
        .header("audit-id", "an-id-of-mine")
        .body(Full::default())
        .unwrap();
    let answer = api.send(request).await;
    assert_eq!(answer.header("content-encoding"), "gzip");
    assert_eq!(answer.header("vary"), "Accept-Encoding");
    assert_eq!(answer.header("audit-id"), "an-id-of-mine");
    assert_eq!(answer.header("cache-control"), "no-cache, private");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(
        &mut flate2::read::GzDecoder::new(&answer.bytes[..]),
        &mut bytes,
    )
    .unwrap();
    let list: core::ConfigMapList = open(&bytes, "v1", "ConfigMapList");
    assert_eq!(list.items[0].data["k"].len(), 300_000);
    let missing = api.get(&format!("{CONFIG_MAPS}/none")).await;
    assert_eq!(missing.header("cache-control"), "no-cache, private");
    assert_eq!(missing.header("audit-id").len(), 36);
}

#[tokio::test]
async fn a_watch_over_a_websocket() {
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let admin = api.running.pki().admin().unwrap();
    let open_socket = async |accept: &str, protocol: &str| {
        let stream = connect(&api, Some(&admin), b"http/1.1").await;
        let url = format!("wss://localhost{CONFIG_MAPS}?watch=1");
        let mut request = url.into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("accept", accept.parse().unwrap());
        if !protocol.is_empty() {
            headers.insert("sec-websocket-protocol", protocol.parse().unwrap());
        }
        tokio_tungstenite::client_async(request, stream).await
    };
    let (mut text, answer) = open_socket("application/json", "v1.x").await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v1.x");
    let (mut binary, _) = open_socket(PROTOBUF, "").await.unwrap();
    for name in ["a", "b"] {
        let event = text.next().await.unwrap().unwrap().into_text().unwrap();
        let event: Value = serde_json::from_str(&event).unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!(name))
        );
        let event = binary.next().await.unwrap().unwrap();
        assert!(event.is_binary());
        let event = meta_v1::WatchEvent::decode(event.into_data()).unwrap();
        let raw = event.object.unwrap().raw.unwrap();
        let shown: core::ConfigMap = open(&raw, "v1", "ConfigMap");
        assert_eq!(shown.metadata.unwrap().name(), name);
        if name == "a" {
            api.post(CONFIG_MAPS, &config_map("b")).await.ok();
        }
    }
    let refused = open_socket("application/json", "a, b").await.unwrap_err();
    assert!(matches!(refused, tungstenite::Error::Http(r) if r.status() == 400));
    api.running.shutdown().await;
    let end = tokio::time::timeout(crate::harness::PATIENCE, async {
        while let Some(Ok(message)) = text.next().await {
            if message.is_close() {
                break;
            }
        }
    });
    end.await.expect("it ends with the server");
}
