//! Discovery, OpenAPI, health, version, metrics, reviews of oneself.

use http::Request;
use http_body_util::Full;
use serde_json::json;

use crate::harness::{Api, CONFIG_MAPS, config_map, send};

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn aggregated_discovery_names_itself_and_is_not_sent_twice() {
    let api = Api::start().await;
    for (path, group, plural) in [
        ("/api", None, "pods"),
        ("/apis", Some("apps"), "deployments"),
    ] {
        let accept = format!("{V2},application/json");
        let answer = api.get_as(path, &accept).await;
        assert_eq!(answer.header("content-type"), V2);
        let etag = answer.header("etag").to_owned();
        let list = answer.ok();
        assert_eq!(list["kind"], "APIGroupDiscoveryList");
        let items = list["items"].as_array().unwrap();
        let item = items
            .iter()
            .find(|i| i["metadata"].get("name").and_then(|n| n.as_str()) == group)
            .unwrap();
        let resources = item["versions"][0]["resources"].as_array().unwrap();
        let r = resources.iter().find(|r| r["resource"] == plural).unwrap();
        assert_eq!(r["scope"], "Namespaced");
        let verbs = r["verbs"].as_array().unwrap();
        assert!(verbs.contains(&json!("watch")) && verbs.contains(&json!("deletecollection")));
        assert!(
            r["subresources"]
                .as_array()
                .unwrap()
                .iter()
                .any(|s| s["subresource"] == "status")
        );
        let request = Request::get(path)
            .header("accept", &accept)
            .header("if-none-match", &etag)
            .body(Full::default())
            .unwrap();
        let again = api.send(request).await;
        assert_eq!(again.code.as_u16(), 304);
        assert!(again.bytes.is_empty());
    }
}

#[tokio::test]
async fn plain_discovery() {
    let api = Api::start().await;
    assert_eq!(api.get("/api").await.ok()["versions"], json!(["v1"]));
    let groups = api.get("/apis").await.ok();
    let names: Vec<&str> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["name"].as_str().unwrap())
        .collect();
    for group in [
        "apps",
        "coordination.k8s.io",
        "events.k8s.io",
        "authorization.k8s.io",
    ] {
        assert!(names.contains(&group), "{group} in {names:?}");
    }
    let core = api.get("/api/v1").await.ok();
    let resources = core["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|r| r["name"] == name).unwrap();
    assert_eq!(find("pods")["shortNames"], json!(["po"]));
    assert_eq!(find("pods/log")["verbs"], json!(["get"]));
    for (name, kind) in [
        ("pods/exec", "PodExecOptions"),
        ("pods/attach", "PodAttachOptions"),
        ("pods/portforward", "PodPortForwardOptions"),
    ] {
        assert_eq!(find(name)["kind"], kind);
        assert_eq!(find(name)["verbs"], json!(["create", "get"]));
    }
    assert_eq!(find("bindings")["verbs"], json!(["create"]));
    let apps = api.get("/apis/apps/v1").await.ok();
    let scale = apps["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["name"] == "deployments/scale")
        .unwrap();
    assert_eq!(
        (&scale["group"], &scale["kind"]),
        (&json!("autoscaling"), &json!("Scale"))
    );
    assert_eq!(
        api.get("/apis/apps").await.ok()["preferredVersion"]["version"],
        "v1"
    );
    api.get("/apis/none").await.refused(404, "NotFound", "");
    api.get("/apis/apps/v9").await.refused(404, "NotFound", "");
}

#[tokio::test]
async fn openapi_documents() {
    let api = Api::start().await;
    let index = api.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let answer = api.get(&url).await;
    assert_eq!(answer.header("cache-control"), "public, immutable");
    let document = answer.ok();
    assert_eq!(
        document["openapi"].as_str().unwrap().split('.').next(),
        Some("3")
    );
    let patch =
        &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"]["kind"],
        "Deployment"
    );
    let moved = api.get("/openapi/v3/apis/apps/v1?hash=OLD").await;
    assert_eq!(moved.code.as_u16(), 301);
    assert_eq!(moved.header("location"), url);
    api.get("/openapi/v3/apis/none/v1")
        .await
        .refused(404, "NotFound", "");

    let v2 = api.get("/openapi/v2").await.ok();
    assert_eq!(v2["swagger"], "2.0");
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let protobuf = api.get_as("/openapi/v2", accept).await;
    assert!(protobuf.code.is_success() && protobuf.bytes.len() > 100_000);
}

#[tokio::test]
async fn health_version_and_metrics() {
    const OPEN: &str = "application/openmetrics-text";
    let api = Api::start().await;
    for path in [
        "/healthz",
        "/livez",
        "/readyz",
        "/readyz/etcd",
        "/livez/ping",
    ] {
        assert_eq!(api.get(path).await.text(), "ok", "{path}");
    }
    let verbose = api.get("/readyz?verbose&exclude=etcd").await.text();
    assert!(
        verbose.contains("[+]ping ok\n[+]etcd excluded: ok\n"),
        "{verbose}"
    );
    assert!(verbose.ends_with("readyz check passed\n"));
    api.get("/readyz/none").await.refused(404, "NotFound", "");
    let version = api.get("/version").await.ok();
    assert_eq!(
        (&version["major"], &version["minor"]),
        (&json!("1"), &json!("36"))
    );
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    // A consistent read, so that the cache has seen the write.
    api.get(CONFIG_MAPS).await.ok();
    let answer = api.get_as("/metrics", OPEN).await;
    assert!(answer.header("content-type").starts_with(OPEN));
    let metrics = answer.text();
    assert!(metrics.contains("# TYPE apiserver_request counter\n"));
    for line in [
        "apiserver_request_total{verb=\"POST\",group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\",scope=\"namespace\",code=\"201\"} 1",
        "apiserver_watch_cache_events_received_total{group=\"\",resource=\"configmaps\"} 1",
        "# TYPE apiserver_request_duration_seconds histogram",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
    // Without being asked, the format in which a counter has its samples' name.
    let answer = api.get("/metrics").await;
    assert_eq!(
        answer.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let metrics = answer.text();
    for line in [
        "# TYPE apiserver_request_total counter\n",
        "# TYPE apiserver_watch_cache_events_received_total counter\n",
        "# TYPE apiserver_request_duration_seconds histogram\n",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    assert!(metrics.contains("# HELP apiserver_request_total Requests served"));
    assert!(!metrics.contains("# EOF") && !metrics.contains("# TYPE apiserver_request counter"));
}

/// The names of metrics in an expression of a dashboard.
fn metrics_of(expression: &str) -> Vec<&str> {
    expression
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| {
            ["apiserver_", "watch_cache_", "keelson_"]
                .iter()
                .any(|start| word.starts_with(start))
        })
        .collect()
}

#[tokio::test]
async fn every_metric_of_the_dashboard_is_served() {
    const DASHBOARD: &str = include_str!("../../../../examples/grafana/watch-cache.json");
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let api = Api::start().await;
    // A watch with an event of each kind.
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    assert_eq!(watch.line().await, "ADDED a");
    api.get(CONFIG_MAPS).await.ok();
    let served = api.get("/metrics").await.text();
    let mut checked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            for name in metrics_of(expression) {
                let is_there = served.lines().any(|l| l.starts_with(&format!("{name}{{")));
                assert!(is_there, "{name} of {}: {expression}", panel["title"]);
                checked += 1;
            }
            // What it is told apart by, is.
            for label in ["stage", "success", "fallback", "status"] {
                if expression.contains(&format!("({label}")) {
                    assert!(served.contains(&format!("{label}=\"")), "{expression}");
                }
            }
        }
    }
    assert!(checked > 20, "{checked}");
    // An event's way, by stage, in upstream's buckets.
    let total = "apiserver_watch_events_dispatch_duration_seconds_count\
        {group=\"\",resource=\"configmaps\",stage=\"total\"} ";
    let line = served.lines().find_map(|l| l.strip_prefix(total));
    assert!(line.unwrap().parse::<u64>().unwrap() >= 1);
    let bucket = "stage=\"cache_to_watcher\",le=\"0.0001\"}";
    assert!(served.contains(bucket));
}

#[tokio::test]
async fn who_am_i_and_may_i() {
    let api = Api::start().await;
    let service = api.service_as("u", &["dev"]);
    let post = |path: &'static str, body: serde_json::Value| {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Full::new(body.to_string().into()))
            .unwrap();
        send(&service, request)
    };
    let review = post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        json!({}),
    )
    .await
    .ok();
    assert_eq!(review["status"]["userInfo"]["username"], "u");
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    assert_eq!(post(path, ask).await.ok()["status"]["allowed"], false);
    let ask = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}});
    assert_eq!(post(path, ask).await.ok()["status"]["allowed"], true);
    let list = Request::get("/api/v1/namespaces/ns/pods")
        .body(Full::default())
        .unwrap();
    send(&service, list).await.refused(
        403,
        "Forbidden",
        "pods is forbidden: User \"u\" cannot list resource \"pods\" in API group \"\" in the namespace \"ns\"",
    );
}
