//! The options of verbs, line by line: what is refused and in which words, what
//! each one does.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod};

/// Asks with a query and expects a 422 about list options whose message ends so.
async fn invalid(api: &Api, query: &str, causes: &[(&str, &str)]) {
    let status = api.get(&format!("{CONFIG_MAPS}?{query}")).await.refused(
        422,
        "Invalid",
        "ListOptions.meta.k8s.io \"\" is invalid: ",
    );
    assert_eq!(
        (&status["details"]["group"], &status["details"]["kind"]),
        (&json!("meta.k8s.io"), &json!("ListOptions"))
    );
    let got: Vec<(&str, &str)> = status["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["field"].as_str().unwrap(), c["message"].as_str().unwrap()))
        .collect();
    assert_eq!(got, causes, "{query}");
}

#[tokio::test]
async fn versions_of_lists_that_do_not_go_together() {
    const MATCH: &str = "resourceVersionMatch";
    let api = Api::start().await;
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    let page = api.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let version = page["metadata"]["resourceVersion"].as_str().unwrap();
    let unless = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    let unknown = r#"Unsupported value: "Some": supported values: "Exact", "NotOlderThan", """#;
    invalid(&api, "resourceVersionMatch=Exact", &[(MATCH, unless)]).await;
    invalid(
        &api,
        "resourceVersionMatch=Some",
        &[(MATCH, unless), (MATCH, unknown)],
    )
    .await;
    invalid(
        &api,
        "resourceVersionMatch=Exact&resourceVersion=0",
        &[(
            MATCH,
            "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )],
    )
    .await;
    invalid(
        &api,
        &format!("limit=1&continue={token}&resourceVersionMatch=Exact&resourceVersion={version}"),
        &[(
            MATCH,
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        )],
    )
    .await;
    invalid(
        &api,
        "sendInitialEvents=true",
        &[(
            "sendInitialEvents",
            "Forbidden: sendInitialEvents is forbidden for list",
        )],
    )
    .await;
    api.get(&format!(
        "{CONFIG_MAPS}?limit=1&continue={token}&resourceVersion={version}"
    ))
    .await
    .refused(
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    );
    api.get(&format!("{CONFIG_MAPS}?continue=e30"))
        .await
        .refused(
            400,
            "BadRequest",
            "invalid continue token: continue key is not valid",
        );
}

#[tokio::test]
async fn versions_of_lists_that_go_together() {
    let api = Api::start().await;
    for name in ["a", "b"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    let page = api.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let version = page["metadata"]["resourceVersion"].as_str().unwrap();
    for (query, count) in [
        ("resourceVersion=0&limit=1".to_owned(), 2),
        (
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1".to_owned(),
            2,
        ),
        (format!("resourceVersion={version}&limit=1"), 1),
        (
            format!("resourceVersion={version}&resourceVersionMatch=Exact"),
            2,
        ),
        ("limit=-1".to_owned(), 2),
        (format!("limit=1&continue={token}&resourceVersion=0"), 1),
    ] {
        let list = api.get(&format!("{CONFIG_MAPS}?{query}")).await.ok();
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn versions_of_watches_that_do_not_go_together() {
    const MATCH: &str = "resourceVersionMatch";
    let api = Api::start().await;
    let requires =
        "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let unless = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    let unknown = r#"Unsupported value: "Exact": supported values: "NotOlderThan""#;
    invalid(&api, "watch=1&sendInitialEvents=true", &[(MATCH, requires)]).await;
    invalid(
        &api,
        "watch=1&sendInitialEvents=false",
        &[(MATCH, requires)],
    )
    .await;
    invalid(
        &api,
        "watch=1&resourceVersionMatch=NotOlderThan",
        &[(MATCH, unless)],
    )
    .await;
    invalid(
        &api,
        "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact",
        &[(MATCH, requires), (MATCH, unknown)],
    )
    .await;
    invalid(
        &api,
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x",
        &[(
            MATCH,
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        )],
    )
    .await;
    api.get(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=x"))
        .await
        .refused(
            400,
            "BadRequest",
            r#"strconv.ParseInt: parsing "x": invalid syntax"#,
        );
    let text = "fieldSelector metadata.name doesn't match requested name";
    for selector in ["metadata.name%3Db", "metadata.name!%3Db"] {
        api.get(&format!(
            "/api/v1/watch/namespaces/default/configmaps/a?fieldSelector={selector}"
        ))
        .await
        .refused(400, "BadRequest", text);
    }
}

#[tokio::test]
async fn a_watch_from_nothing_says_where_its_beginning_ends() {
    let api = Api::start().await;
    api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    for version in ["", "&resourceVersion=0"] {
        let path = format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true{version}");
        let mut watch = api.watch(&path).await;
        assert_eq!(watch.line().await, "ADDED a");
        let end = watch.next().await.unwrap();
        assert_eq!(end["type"], "BOOKMARK");
        let annotations = &end["object"]["metadata"]["annotations"];
        assert_eq!(annotations["k8s.io/initial-events-end"], "true");
        let mut quiet = api.watch(&format!("{CONFIG_MAPS}?watch=1{version}")).await;
        assert_eq!(quiet.line().await, "ADDED a");
    }
}

#[tokio::test]
async fn a_page_that_came_too_late() {
    use apiserver::storage::Store;
    let api = Api::start().await;
    for name in ["a", "b", "c"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    let page = api.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    api.post(CONFIG_MAPS, &config_map("b2")).await.ok();
    let now = api.store.current_revision().await.unwrap();
    api.store.compact(now).await.unwrap();
    let store = apiserver::StoreSource::Other(api.store.clone());
    let api = Api::over(store, api.dir.path().join("pki")).await;
    let status = api
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await
        .refused(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        );
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = api
        .get(&format!("{CONFIG_MAPS}?limit=5&continue={token}"))
        .await
        .ok();
    let names: Vec<&str> = rest["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["b", "b2", "c"], "at the newest version");
    let old = page["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    api.get(&exact).await.refused(
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    );
}

#[tokio::test]
async fn selectors_that_are_none_and_what_is_left_of_a_page() {
    let api = Api::start().await;
    for name in ["a", "b"] {
        api.post(PODS, &pod(name)).await.ok();
    }
    for (path, words) in [
        (
            format!("{PODS}?fieldSelector=spec.foo%3D1"),
            "field label not supported: spec.foo",
        ),
        (
            format!("{CONFIG_MAPS}?fieldSelector=spec.foo%3D1"),
            r#""spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        (
            format!("{PODS}?fieldSelector=nonsense"),
            "invalid selector: 'nonsense'; can't understand 'nonsense'",
        ),
        (
            format!("{PODS}?labelSelector=a+in+(b"),
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
    ] {
        api.get(&path).await.refused(400, "BadRequest", words);
        api.delete(&path, &Value::Null)
            .await
            .refused(400, "BadRequest", words);
    }
    for (query, names) in [
        ("fieldSelector=metadata.name%3D%3Da", vec!["a"]),
        ("fieldSelector=metadata.name!%3Da", vec!["b"]),
        ("labelSelector=app+notin+(a)", vec!["b"]),
        ("labelSelector=!app", vec![]),
        ("labelSelector=app,app!%3Da", vec!["b"]),
    ] {
        let list = api.get(&format!("{PODS}?{query}")).await.ok();
        let got: Vec<&str> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(got, names, "{query}");
    }
    let whole = api.get(&format!("{PODS}?limit=1")).await.ok();
    assert_eq!(whole["metadata"]["remainingItemCount"], 1);
    let some = api
        .get(&format!("{PODS}?limit=1&labelSelector=app"))
        .await
        .ok();
    assert!(some["metadata"]["continue"].is_string());
    assert_eq!(some["metadata"].get("remainingItemCount"), None);
}

#[tokio::test]
async fn deletions_that_wait_say_so_to_who_asked_in_the_old_way() {
    let api = Api::start().await;
    let mut held = deployment("web");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    api.post(DEPLOYMENTS, &held).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let waiting = api.delete(&path, &json!({"orphanDependents": false})).await;
    assert_eq!(waiting.code.as_u16(), 202);
    let waiting = waiting.ok();
    assert_eq!(waiting["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(waiting["metadata"]["generation"], 2);
    let again = api.delete(&path, &Value::Null).await;
    assert_eq!(again.code.as_u16(), 200);
    assert_eq!(again.ok(), waiting, "nothing changed");
    // Finalizers of the collector come and go while others hold the object.
    let orphan = api
        .delete(&format!("{path}?propagationPolicy=Orphan"), &Value::Null)
        .await
        .ok();
    assert_eq!(
        orphan["metadata"]["finalizers"],
        json!(["example.com/held", "orphan"])
    );
    let foreground = api
        .delete(&path, &json!({"propagationPolicy": "Foreground"}))
        .await
        .ok();
    assert_eq!(
        foreground["metadata"]["finalizers"],
        json!(["example.com/held", "foregroundDeletion"])
    );
    api.merge(&path, &json!({"metadata": {"finalizers": null}}))
        .await
        .ok();
    api.get(&path).await.refused(404, "NotFound", "");
}

#[tokio::test]
async fn deletions_with_options_from_everywhere() {
    let api = Api::start().await;
    let made = api.post(CONFIG_MAPS, &config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    let uid = made["metadata"]["uid"].as_str().unwrap();
    api.delete(&format!("{path}?uid=other"), &Value::Null)
        .await
        .refused(
            409,
            "Conflict",
            &format!("Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"),
        );
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    api.delete(&path, &stale).await.refused(
        409,
        "Conflict",
        "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (",
    );
    let status = api
        .delete(&format!("{path}?dryRun=Some"), &Value::Null)
        .await
        .refused(
            422,
            "Invalid",
            r#"dryRun: Unsupported value: ["Some"]: supported values: "All""#,
        );
    assert_eq!(status["details"]["causes"][0]["field"], "dryRun");
    // A dry run answers as the deletion would.
    let would = api
        .delete(&format!("{path}?dryRun=All"), &Value::Null)
        .await
        .ok();
    assert_eq!(
        (&would["kind"], &would["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(would["details"]["uid"], uid);
    // The query counts only without a body.
    let both = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
    api.delete(&format!("{path}?dryRun=Some"), &both).await.ok();
    api.get(&path).await.ok();
    // The same in protobuf: dryRun is the fifth field.
    let body = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x05\x2a\x03All";
    api.call(
        Method::DELETE,
        &path,
        "application/vnd.kubernetes.protobuf",
        &body[..],
    )
    .await
    .ok();
    api.get(&path).await.ok();
    api.call(Method::DELETE, &path, "text/plain", "x")
        .await
        .refused(415, "UnsupportedMediaType", "accepted media types include");
    api.delete(&path, &Value::Null).await.ok();
    api.get(&path).await.refused(404, "NotFound", "");
}

#[tokio::test]
async fn collections_are_deleted_by_page_or_whole() {
    let api = Api::start().await;
    for name in ["a", "b", "c", "d"] {
        api.post(CONFIG_MAPS, &config_map(name)).await.ok();
    }
    let labelled = json!({"metadata": {"labels": {"keep": "yes"}}});
    api.merge(&format!("{CONFIG_MAPS}/d"), &labelled).await.ok();
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let dry = json!({"dryRun": ["All"]});
    let would = api.delete(CONFIG_MAPS, &dry).await.ok();
    assert_eq!(names(&would), ["a", "b", "c", "d"]);
    let page = api
        .delete(&format!("{CONFIG_MAPS}?limit=1"), &Value::Null)
        .await
        .ok();
    assert_eq!(
        (&page["kind"], names(&page)),
        (&json!("ConfigMapList"), vec!["a".to_owned()])
    );
    assert!(page["metadata"]["continue"].is_string());
    assert_eq!(page["metadata"]["remainingItemCount"], 3);
    let rest = api
        .delete(&format!("{CONFIG_MAPS}?labelSelector=!keep"), &Value::Null)
        .await
        .ok();
    assert_eq!(names(&rest), ["b", "c"]);
    assert_eq!(names(&api.get(CONFIG_MAPS).await.ok()), ["d"]);
    api.delete(
        &format!("{CONFIG_MAPS}?resourceVersionMatch=Exact"),
        &Value::Null,
    )
    .await
    .refused(422, "Invalid", "resourceVersionMatch is forbidden unless");
}

#[tokio::test]
async fn a_timeout_of_the_clients_own() {
    let api = Api::start().await;
    api.get(&format!("{CONFIG_MAPS}?timeout=5s")).await.ok();
    api.get(&format!("{CONFIG_MAPS}?timeout=soon"))
        .await
        .refused(
            400,
            "BadRequest",
            r#"invalid timeout specified in the request URL - time: invalid duration "soon""#,
        );
    // A version that is not there is waited for three seconds, unless the client
    // has less.
    let status = api
        .get(&format!("{CONFIG_MAPS}?resourceVersion=99999&timeout=50ms"))
        .await
        .refused(
            504,
            "Timeout",
            "Timeout: request did not complete within requested timeout - context deadline exceeded",
        );
    assert_eq!(status["details"], json!({}));
}

#[tokio::test]
async fn names_from_a_base() {
    let api = Api::start().await;
    let mut bad = config_map("");
    bad["metadata"] = json!({"generateName": "Upper-"});
    let status = api
        .post(CONFIG_MAPS, &bad)
        .await
        .refused(422, "Invalid", "metadata.generateName");
    assert_eq!(status["details"]["kind"], "ConfigMap");
    let mut long = config_map("");
    long["metadata"] = json!({"generateName": "x".repeat(70)});
    let made = api.post(CONFIG_MAPS, &long).await.ok();
    let name = made["metadata"]["name"].as_str().unwrap();
    let (base, suffix) = name.split_at(58);
    assert_eq!((base, suffix.len()), ("x".repeat(58).as_str(), 5));
    assert!(
        suffix
            .chars()
            .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
        "{suffix}"
    );
}
