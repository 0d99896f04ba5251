//! Watches: where they begin, what they show, how they end.

use apiserver::storage::Store;
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, PODS, config_map, pod};

#[tokio::test]
async fn from_nothing_from_any_and_from_a_version() {
    let api = Api::start().await;
    let first = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut present = api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let mut any = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0"))
        .await;
    let mut after = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}"))
        .await;
    assert_eq!(present.line().await, "ADDED a");
    assert_eq!(any.line().await, "ADDED a");

    api.post(CONFIG_MAPS, &config_map("b")).await.ok();
    api.merge(&format!("{CONFIG_MAPS}/b"), &json!({"data": {"k": "w"}}))
        .await
        .ok();
    api.delete(&format!("{CONFIG_MAPS}/b"), &Value::Null)
        .await
        .ok();
    for watch in [&mut present, &mut any, &mut after] {
        for want in ["ADDED b", "MODIFIED b", "DELETED b"] {
            assert_eq!(watch.line().await, want);
        }
    }
}

#[tokio::test]
async fn versions_only_grow_and_a_deletion_has_its_own() {
    let api = Api::start().await;
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    api.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null)
        .await
        .ok();
    let version = |e: &Value| {
        e["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let (added, deleted) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert_eq!(added["object"], made);
    assert!(version(&deleted) > version(&added));
    assert_eq!(
        deleted["object"]["data"], made["data"],
        "the last content is shown"
    );
}

#[tokio::test]
async fn selectors_turn_changes_into_comings_and_goings() {
    let api = Api::start().await;
    let mut watch = api
        .watch(&format!("{PODS}?watch=1&labelSelector=app%3Da"))
        .await;
    let mut node = api
        .watch("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1")
        .await;
    let mut one = api
        .watch(&format!("{PODS}?watch=1&fieldSelector=metadata.name%3Db"))
        .await;
    api.post(PODS, &pod("a")).await.ok();
    api.post(PODS, &pod("b")).await.ok();
    assert_eq!(watch.line().await, "ADDED a");
    assert_eq!(one.line().await, "ADDED b");
    api.merge(
        &format!("{PODS}/a"),
        &json!({"metadata": {"labels": {"app": "z"}}}),
    )
    .await
    .ok();
    assert_eq!(watch.line().await, "DELETED a");
    api.merge(
        &format!("{PODS}/b"),
        &json!({"metadata": {"labels": {"app": "a"}}}),
    )
    .await
    .ok();
    assert_eq!(watch.line().await, "ADDED b");
    assert_eq!(one.line().await, "MODIFIED b");
    let bind = json!({"target": {"kind": "Node", "name": "n1"}});
    api.post(&format!("{PODS}/a/binding"), &bind).await.ok();
    assert_eq!(node.line().await, "ADDED a");
}

#[tokio::test]
async fn the_old_watch_paths_work() {
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    api.post(CONFIG_MAPS, &config_map("b")).await.ok();
    let mut all = api
        .watch("/api/v1/watch/namespaces/default/configmaps")
        .await;
    assert_eq!(
        (all.line().await.as_str(), all.line().await.as_str()),
        ("ADDED a", "ADDED b")
    );
    let mut one = api
        .watch("/api/v1/watch/namespaces/default/configmaps/b")
        .await;
    assert_eq!(one.line().await, "ADDED b");
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let api = Api::start().await;
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    let query =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = api.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(
        (watch.line().await.as_str(), watch.line().await.as_str()),
        ("ADDED a", "ADDED b")
    );
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["kind"], "ConfigMap");
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    api.post(CONFIG_MAPS, &config_map("c")).await.ok();
    assert_eq!(watch.line().await, "ADDED c");
    api.get(&format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=true"))
        .await
        .refused(422, "Invalid", "resourceVersionMatch");
}

#[tokio::test]
async fn the_distant_past_is_gone_and_a_list_helps() {
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    // The store forgets, and a server that starts now never knew.
    let now = api.store.current_revision().await.unwrap();
    api.store.compact(now).await.unwrap();
    let store = apiserver::StoreSource::Other(api.store.clone());
    let api = Api::over(store, api.dir.path().join("pki")).await;
    let mut watch = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=1"))
        .await;
    let error = watch.next().await.unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!(
        (&error["object"]["code"], &error["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    let message = error["object"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("too old resource version: 1 ("),
        "{message}"
    );
    assert!(watch.next().await.is_none(), "nothing follows");
    let list = api.get(CONFIG_MAPS).await.ok();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}"))
        .await;
    api.post(CONFIG_MAPS, &config_map("b")).await.ok();
    assert_eq!(watch.line().await, "ADDED b");
}

#[tokio::test]
async fn the_future_is_waited_for_or_too_large() {
    let api = Api::start().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let now: u64 = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let future = now + 1_000_000;
    // What begins with a state says after its wait that there is none.
    let state = format!(
        "{CONFIG_MAPS}?watch=1&resourceVersion={future}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut late = api.watch(&state).await;
    let (event, end) = (late.next().await.unwrap(), late.next().await);
    assert!(end.is_none(), "nothing follows");
    let mut bodies = vec![event["object"].clone()];
    assert_eq!(event["type"], "ERROR");
    for path in ["", "&limit=1", "&resourceVersionMatch=Exact"] {
        let list = format!("{CONFIG_MAPS}?resourceVersion={future}{path}");
        let words = format!("Timeout: Too large resource version: {future}, current: ");
        let answer = api.get(&list).await;
        assert_eq!(answer.header("retry-after"), "1");
        bodies.push(answer.refused(504, "Timeout", &words));
    }
    let one = format!("{CONFIG_MAPS}/a?resourceVersion={future}");
    bodies.push(api.get(&one).await.refused(504, "Timeout", "Too large"));
    for body in bodies {
        assert_eq!(
            (&body["code"], &body["reason"]),
            (&json!(504), &json!("Timeout"))
        );
        assert_eq!(
            body["details"],
            json!({"retryAfterSeconds": 1, "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]})
        );
    }
    // What begins after a version waits for it, and sees nothing before.
    let mut ahead = api
        .watch(&format!(
            "{CONFIG_MAPS}?watch=1&resourceVersion={}",
            now + 3
        ))
        .await;
    let mut version = now;
    while version <= now + 3 {
        let patch = json!({"data": {"v": version.to_string()}});
        let changed = api.merge(&format!("{CONFIG_MAPS}/a"), &patch).await.ok();
        version = changed["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
    }
    let event = ahead.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        version.to_string()
    );
}

#[tokio::test]
async fn a_watch_ends_when_it_said_and_when_the_server_stops() {
    let api = Api::start().await;
    let mut short = api
        .watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1"))
        .await;
    let mut long = api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert!(short.next().await.is_none());
    api.running.shutdown().await;
    assert!(long.next().await.is_none());
}

#[tokio::test]
async fn tables_are_watched_with_headings_once() {
    let api = Api::start().await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut watches = [
        api.watch_as(&format!("{PODS}?watch=1"), accept).await,
        api.watch_as(&format!("{PODS}?watch=1"), accept).await,
    ];
    for name in ["a", "b"] {
        api.post(PODS, &pod(name)).await.ok();
    }
    for watch in &mut watches {
        let (first, second) = (watch.next().await.unwrap(), watch.next().await.unwrap());
        assert_eq!(first["object"]["kind"], "Table");
        assert!(
            !first["object"]["columnDefinitions"]
                .as_array()
                .unwrap()
                .is_empty()
        );
        assert_eq!(second["object"]["columnDefinitions"], json!([]));
        assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
    }
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut watch = api.watch_as(&format!("{PODS}?watch=1"), accept).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    let mut other = api.watch("/apis/events.k8s.io/v1/events?watch=1").await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "R", "message": "m"});
    api.post("/api/v1/namespaces/default/events", &event)
        .await
        .ok();
    assert_eq!(other.next().await.unwrap()["object"]["note"], "m");
}
