//! Lists: pages, selectors, versions; tables and metadata.

use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, PODS, config_map, pod};

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn pages_are_one_snapshot() {
    let api = Api::start().await;
    for i in 0..5 {
        api.post(CONFIG_MAPS, &config_map(&format!("c{i}")))
            .await
            .ok();
    }
    let first = api.get(&format!("{CONFIG_MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["c0", "c1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    api.post(CONFIG_MAPS, &config_map("c2a")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await
        .ok();
    assert_eq!(
        names(&second),
        ["c2", "c3"],
        "what came after the first page is not seen"
    );
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = api
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={token}"))
        .await
        .ok();
    assert_eq!(names(&last), ["c4"]);
    assert!(last["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn selectors_and_scopes() {
    let api = Api::start().await;
    api.post(PODS, &pod("a")).await.ok();
    api.post(PODS, &pod("b")).await.ok();
    api.post("/api/v1/namespaces/kube-system/pods", &pod("c"))
        .await
        .ok();
    for (path, want) in [
        ("/api/v1/pods", vec!["a", "b", "c"]),
        (PODS, vec!["a", "b"]),
        ("/api/v1/pods?labelSelector=app+in+(a,c)", vec!["a", "c"]),
        (
            "/api/v1/pods?fieldSelector=metadata.namespace%3Dkube-system",
            vec!["c"],
        ),
        (
            "/api/v1/pods?fieldSelector=status.phase%3DPending,spec.nodeName%3D",
            vec!["a", "b", "c"],
        ),
        ("/api/v1/pods?fieldSelector=metadata.name%3Db", vec!["b"]),
        (
            "/api/v1/pods?fieldSelector=metadata.name!%3Db",
            vec!["a", "c"],
        ),
        ("/api/v1/pods?resourceVersion=0", vec!["a", "b", "c"]),
        ("/api/v1/namespaces/none/pods", vec![]),
    ] {
        let list = api.get(path).await.ok();
        assert_eq!(list["kind"], "PodList");
        assert_eq!(names(&list), want, "{path}");
    }
}

#[tokio::test]
async fn a_write_is_seen_by_the_next_list() {
    let api = Api::start().await;
    for i in 0..50 {
        let name = format!("c{i}");
        api.post(CONFIG_MAPS, &config_map(&name)).await.ok();
        let list = api.get(CONFIG_MAPS).await.ok();
        assert_eq!(names(&list).len(), i + 1);
    }
}

#[tokio::test]
async fn tables_and_metadata() {
    let api = Api::start().await;
    api.post(PODS, &pod("a")).await.ok();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = api.get_as(PODS, accept).await.ok();
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    let row = &table["rows"][0];
    assert_eq!(row["cells"].as_array().unwrap().len(), columns.len());
    assert_eq!(
        (&row["cells"][0], &row["cells"][1], &row["cells"][2]),
        (&json!("a"), &json!("0/1"), &json!("Pending"))
    );
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert!(row["object"].get("spec").is_none());
    let full = api
        .get_as(&format!("{PODS}?includeObject=Object"), accept)
        .await
        .ok();
    assert_eq!(full["rows"][0]["object"]["kind"], "Pod");
    let one = api.get_as(&format!("{PODS}/a"), accept).await.ok();
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let none = api
        .get_as("/api/v1/namespaces/none/pods", accept)
        .await
        .ok();
    assert_eq!(none["rows"], json!([]));

    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = api.get_as(PODS, accept).await.ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["labels"]["app"], "a");
    assert!(list["items"][0].get("spec").is_none());
}

#[tokio::test]
async fn large_answers_are_compressed_for_who_accepts_it() {
    let api = Api::start().await;
    let mut large = config_map("large");
    large["data"]["k"] = json!("x".repeat(300_000));
    api.post(CONFIG_MAPS, &large).await.ok();
    let request = http::Request::get(format!("{CONFIG_MAPS}/large"))
        .header("accept-encoding", "gzip")
        .body(http_body_util::Full::default())
        .unwrap();
    let answer = api.send(request).await;
    assert_eq!(answer.header("content-encoding"), "gzip");
    assert!(answer.bytes.len() < 10_000);
    let plain = api.get(&format!("{CONFIG_MAPS}/large")).await;
    assert_eq!(plain.header("content-encoding"), "");
    assert_eq!(plain.ok()["data"]["k"].as_str().unwrap().len(), 300_000);
}
