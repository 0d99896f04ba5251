//! What `fieldValidation` says of fields that are unknown or stand twice: in which
//! words, with which lines, in which order.

use http::Method;
use serde_json::json;

use crate::harness::{Answer, Api, DEPLOYMENTS, deployment};

const YAML: &str = "application/yaml";
const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";

/// A Deployment in which names stand twice, known ones and others.
const TWICE_YAML: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: other
  name: twice
  unknownMeta: metaVal
  labels:
    app: nginx
spec:
  unknown1: val1
  unknownDupe: valDupe
  unknownDupe: valDupe2
  paused: true
  paused: false
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
    spec:
      containers:
      - name: nginx
        image: host
        unknownNested: val1
        imagePullPolicy: Always
        imagePullPolicy: Never
";

const TWICE_JSON: &str = r#"{
	"apiVersion": "apps/v1",
	"kind": "Deployment",
	"metadata": {"name": "other", "name": "twice", "labels": {"app": "nginx"}, "unknownMeta": "x"},
	"spec": {
		"unknown1": "val1",
		"unknownDupe": "valDupe",
		"unknownDupe": {"within": 1, "within": 2},
		"paused": true,
		"paused": false,
		"selector": {"matchLabels": {"app": "nginx"}},
		"template": {
			"metadata": {"labels": {"app": "nginx"}},
			"spec": {"containers": [{
				"name": "nginx",
				"image": "host",
				"unknownNested": "val1",
				"imagePullPolicy": "Always",
				"imagePullPolicy": "Never"
			}]}
		}
	}
}"#;

fn warnings(answer: &Answer) -> Vec<String> {
    let all = answer.headers.get_all("warning").iter();
    all.map(|w| {
        let text = w.to_str().unwrap().strip_prefix("299 - ").unwrap();
        serde_json::from_str(text).unwrap()
    })
    .collect()
}

async fn post(api: &Api, kind: &str, body: &str, validation: &str) -> Answer {
    let path = format!("{DEPLOYMENTS}?dryRun=All&fieldValidation={validation}");
    api.call(Method::POST, &path, kind, body.to_owned()).await
}

#[tokio::test]
async fn yaml_is_told_with_the_lines_of_what_stands_twice() {
    let api = Api::start().await;
    let status = post(&api, YAML, TWICE_YAML, "Strict").await;
    let status = status.refused(400, "BadRequest", "strict decoding error");
    assert_eq!(
        status["message"],
        r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: yaml: unmarshal errors:
  line 5: key "name" already set in map
  line 12: key "unknownDupe" already set in map
  line 14: key "paused" already set in map
  line 28: key "imagePullPolicy" already set in map, unknown field "metadata.unknownMeta", unknown field "spec.template.spec.containers[0].unknownNested", unknown field "spec.unknown1", unknown field "spec.unknownDupe""#
    );
    let warned = post(&api, YAML, TWICE_YAML, "Warn").await;
    assert_eq!(
        warnings(&warned),
        [
            r#"line 5: key "name" already set in map"#,
            r#"line 12: key "unknownDupe" already set in map"#,
            r#"line 14: key "paused" already set in map"#,
            r#"line 28: key "imagePullPolicy" already set in map"#,
            r#"unknown field "metadata.unknownMeta""#,
            r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
            r#"unknown field "spec.unknown1""#,
            r#"unknown field "spec.unknownDupe""#,
        ]
    );
    let made = warned.ok();
    assert_eq!(made["metadata"]["name"], "twice", "the last one counts");
    let ignored = post(&api, YAML, TWICE_YAML, "Ignore").await;
    assert_eq!(warnings(&ignored), [""; 0]);
    ignored.ok();
}

#[tokio::test]
async fn json_is_told_in_the_order_of_the_body() {
    let api = Api::start().await;
    let want = [
        r#"duplicate field "metadata.name""#,
        r#"unknown field "metadata.unknownMeta""#,
        r#"unknown field "spec.unknown1""#,
        r#"unknown field "spec.unknownDupe""#,
        r#"duplicate field "spec.paused""#,
        r#"unknown field "spec.template.spec.containers[0].unknownNested""#,
        r#"duplicate field "spec.template.spec.containers[0].imagePullPolicy""#,
    ];
    let text = format!("strict decoding error: {}", want.join(", "));
    post(&api, JSON, TWICE_JSON, "Strict")
        .await
        .refused(400, "BadRequest", &text);
    let warned = post(&api, JSON, TWICE_JSON, "").await;
    assert_eq!(warnings(&warned), want);
    warned.ok();
}

#[tokio::test]
async fn an_applied_configuration_is_told_as_yaml_whatever_it_is() {
    let api = Api::start().await;
    let body = "{
	\"apiVersion\": \"v1\",
	\"kind\": \"ConfigMap\",
	\"metadata\": {\"name\": \"a\"},
	\"data\": {
		\"k\": \"1\",
		\"k\": \"2\"
	}
}";
    let path = "/api/v1/namespaces/default/configmaps/a?fieldManager=me&fieldValidation=";
    let apply = |validation: &str| {
        let (api, path) = (&api, format!("{path}{validation}"));
        async move { api.call(Method::PATCH, &path, APPLY, body).await }
    };
    let status = apply("Strict").await;
    let status = status.refused(400, "BadRequest", "error strict decoding");
    assert_eq!(
        status["message"],
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 7: key \"k\" already set in map"
    );
    let warned = apply("Warn").await;
    assert_eq!(warnings(&warned), ["line 7: key \"k\" already set in map"]);
    assert_eq!(warned.ok()["data"]["k"], "2");
}

#[tokio::test]
async fn patches_are_told_what_is_odd_about_themselves_first() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let merge = r#"{"spec":{"odd":1,"paused":true,"paused":false}}"#;
    let json = r#"[{"op":"replace","op":"add","path":"/spec/paused","value":true,"odd":1}]"#;
    let cases = [
        (
            "application/merge-patch+json",
            merge,
            &[
                r#"duplicate field "spec.paused""#,
                r#"unknown field "spec.odd""#,
            ],
        ),
        (
            "application/strategic-merge-patch+json",
            merge,
            &[
                r#"duplicate field "spec.paused""#,
                r#"unknown field "spec.odd""#,
            ],
        ),
        (
            "application/json-patch+json",
            json,
            &[
                r#"json patch duplicate field "[0].op""#,
                r#"json patch unknown field "[0].odd""#,
            ],
        ),
    ];
    for (kind, body, want) in cases {
        let patch = |validation: &str| {
            let (api, path) = (
                &api,
                format!("{DEPLOYMENTS}/a?dryRun=All&fieldValidation={validation}"),
            );
            async move { api.call(Method::PATCH, &path, kind, body).await }
        };
        let warned = patch("Warn").await;
        assert_eq!(warnings(&warned), want, "{kind}");
        warned.ok();
        let text = format!("strict decoding error: {}", want.join(", "));
        let status = patch("Strict").await.refused(422, "Invalid", &text);
        assert_eq!(status["details"]["causes"][0]["field"], "patch");
        let ignored = patch("Ignore").await;
        assert_eq!(warnings(&ignored), [""; 0]);
        assert_ne!(ignored.ok()["kind"], json!("Status"));
    }
}
