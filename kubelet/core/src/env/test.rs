//! The environment table: specs, their sources, and what a process would see.

use serde_json::{Value, json};

use super::*;

fn pod_with(container: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("app");
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
        "spec": {"containers": [container]},
    }))
    .unwrap()
}

fn sources() -> Sources {
    let mut sources = Sources::default();
    let settings = json!({"metadata": {"name": "settings"},
        "data": {"COLOR": "blue", "bad=name": "x", "size": "9"}});
    sources
        .config_maps
        .insert("settings".into(), serde_json::from_value(settings).unwrap());
    let login = json!({"metadata": {"name": "login"}, "data": {"user": "YWRtaW4=", "raw": "/w=="}});
    sources
        .secrets
        .insert("login".into(), serde_json::from_value(login).unwrap());
    sources
}

fn check(container: Value, expected: Result<&[(&str, &str)], &str>) {
    let pod = pod_with(container);
    let facts = NodeFacts {
        pod_ip: "10.0.0.2".into(),
        ..NodeFacts::default()
    };
    let got = resolve(&pod, &pod::containers(&pod)[0], &sources(), &facts);
    match (got, expected) {
        (Ok(env), Ok(expected)) => {
            let pairs: Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(pairs, expected);
        }
        (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
        (got, expected) => panic!("got {got:?}, expected {expected:?}"),
    }
}

#[test]
fn values_expand_what_stands_before_them() {
    check(
        json!({"env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)-$(C)-$$(A)"},
            {"name": "C", "value": "3"},
            {"name": "A", "value": "$(A)2"},
            {"name": "EMPTY"},
        ]}),
        Ok(&[("A", "12"), ("B", "1-$(C)-$(A)"), ("C", "3"), ("EMPTY", "")]),
    );
}

#[test]
fn env_from_comes_first_with_its_prefix_and_skips_impossible_names() {
    check(
        json!({
            "env": [{"name": "S_COLOR", "value": "red"}],
            "envFrom": [{"prefix": "S_", "configMapRef": {"name": "settings"}},
                {"configMapRef": {"name": "gone", "optional": true}}],
        }),
        Ok(&[("S_COLOR", "red"), ("S_size", "9")]),
    );
}

#[test]
fn references_to_fields_keys_and_secrets() {
    check(
        json!({"env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOR"}}},
            {"name": "USER", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "login", "key": "no", "optional": true}}},
        ]}),
        Ok(&[
            ("NAME", "web"),
            ("IP", "10.0.0.2"),
            ("COLOR", "blue"),
            ("USER", "admin"),
        ]),
    );
}

#[test]
fn what_is_missing_is_named_in_the_words_users_know() {
    let by_key = |kind: &str, name: &str, key: &str| json!({"env": [{"name": "X", "valueFrom": {kind: {"name": name, "key": key}}}]});
    check(
        by_key("configMapKeyRef", "gone", "k"),
        Err("configmap \"gone\" not found"),
    );
    check(
        by_key("secretKeyRef", "gone", "k"),
        Err("secret \"gone\" not found"),
    );
    check(
        by_key("configMapKeyRef", "settings", "k"),
        Err("couldn't find key k in ConfigMap shop/settings"),
    );
    check(
        by_key("secretKeyRef", "login", "k"),
        Err("couldn't find key k in Secret shop/login"),
    );
    check(
        by_key("secretKeyRef", "login", "raw"),
        Err("key raw in Secret shop/login is not valid UTF-8"),
    );
    check(
        json!({"envFrom": [{"secretRef": {"name": "gone"}}]}),
        Err("secret \"gone\" not found"),
    );
}

#[test]
fn references_lists_what_has_to_be_fetched() {
    let pod = pod_with(json!({
        "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
    }));
    let found = references(&pod::containers(&pod)[0]);
    assert_eq!(
        found.config_maps.into_iter().collect::<Vec<_>>(),
        ["a", "c"]
    );
    assert_eq!(found.secrets.into_iter().collect::<Vec<_>>(), ["b"]);
}
