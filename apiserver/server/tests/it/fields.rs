//! What `fieldValidation` says of fields that are unknown or stand twice: in which
//! words, with which lines, in which order.

use http::Method;
use serde_json::json;

use crate::harness::{Answer, Api, CONFIG_MAPS, DEPLOYMENTS, config_map, deployment};

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

/// A config map and a deployment for patches that make no object of them. Upstream says
/// that of the patch, and quotes what came of it, or of a strategic merge the patch.
struct Patched {
    api: Api,
    config: String,
    deployment: String,
}

impl Patched {
    async fn start() -> Self {
        let api = Api::start().await;
        api.post(CONFIG_MAPS, &config_map("a")).await.ok();
        api.post(DEPLOYMENTS, &deployment("a")).await.ok();
        Self {
            api,
            config: format!("{CONFIG_MAPS}/a"),
            deployment: format!("{DEPLOYMENTS}/a"),
        }
    }

    /// Returns what is quoted where a patch is refused for a reason.
    async fn quoted(&self, path: &str, language: &str, patch: &'static str, why: &str) -> String {
        let media = format!("application/{language}");
        let path = format!("{path}?fieldValidation=Strict");
        let answer = self.api.call(Method::PATCH, &path, &media, patch).await;
        let status = answer.refused(422, "Invalid", why);
        let cause = &status["details"]["causes"][0];
        assert_eq!(cause["field"], "patch", "{patch}");
        let said = cause["message"].as_str().unwrap();
        // The value is a text, and quoted as one.
        said.strip_prefix("Invalid value: ")
            .and_then(|rest| rest.strip_suffix(&format!(": {why}")))
            .and_then(|value| serde_json::from_str(value).ok())
            .unwrap_or_else(|| panic!("{said}"))
    }
}

const TEXT: &str = r#"{"spec":{"replicas":"x"}}"#;
const NUMBER: &str = r#"{"data":{"k":1}}"#;
const ODD: &str = r#"{"spec":{"z":[1,null,{"b":"c d"}],"replicas":2}}"#;
const UNKNOWN: &str = r#"strict decoding error: unknown field "spec.z""#;

#[tokio::test]
async fn what_a_patch_makes_and_is_no_object_is_quoted() {
    let patched = Patched::start().await;
    let (config, deployment) = (&patched.config, &patched.deployment);
    let scale = format!("{deployment}/scale");
    let go = |owner: &str, found: &str, expected: &str| {
        format!("json: cannot unmarshal {found} into Go struct field {owner} of type {expected}")
    };
    let replicas = go("DeploymentSpec.spec.replicas", "string", "int32");
    let scaled = go("ScaleSpec.spec.replicas", "string", "int32");
    let data = go("ConfigMap.data.k", "number", "string");
    let (merge, operations) = ("merge-patch+json", "json-patch+json");
    let add = r#"[{"op":"add","path":"/spec/replicas","value":"x"}]"#;
    for (path, language, patch, part, why) in [
        (config, merge, NUMBER, r#""data":{"k":1}"#, data.as_str()),
        (deployment, merge, TEXT, r#""replicas":"x""#, &replicas),
        (deployment, operations, add, r#""replicas":"x""#, &replicas),
        (&scale, merge, TEXT, r#""replicas":"x""#, &scaled),
        (
            deployment,
            merge,
            ODD,
            r#""z":[1,null,{"b":"c d"}]"#,
            UNKNOWN,
        ),
    ] {
        let value = patched.quoted(path, language, patch, why).await;
        assert!(value.contains(part), "{value} lacks {part}");
    }
}

#[tokio::test]
async fn a_strategic_merge_that_makes_no_object_is_quoted() {
    let patched = Patched::start().await;
    let (config, deployment) = (&patched.config, &patched.deployment);
    for (path, patch, quoted, why) in [
        (
            config,
            NUMBER,
            "map[data:map[k:1]]",
            "cannot convert int64 to string",
        ),
        (
            deployment,
            TEXT,
            "map[spec:map[replicas:x]]",
            "unrecognized type: int32",
        ),
        (
            deployment,
            r#"{"spec":{"paused":0.5}}"#,
            "map[spec:map[paused:0.5]]",
            "unrecognized type: bool",
        ),
        (
            deployment,
            r#"{"spec":1.5}"#,
            "map[spec:1.5]",
            "cannot restore struct from: float64",
        ),
        (
            deployment,
            r#"{"spec":{"paused":[1]}}"#,
            "map[spec:map[paused:[1]]]",
            "unrecognized type: bool",
        ),
        (
            deployment,
            r#"{"spec":{"replicas":0.5}}"#,
            "map[spec:map[replicas:0.5]]",
            "cannot convert float64 to int32",
        ),
        (
            deployment,
            r#"{"spec":{"template":{"spec":"x"}}}"#,
            "map[spec:map[template:map[spec:x]]]",
            "cannot restore struct from: string",
        ),
        (
            deployment,
            r#"{"spec":{"template":{"metadata":{"labels":[]}}}}"#,
            "map[spec:map[template:map[metadata:map[labels:[]]]]]",
            "cannot restore map from slice",
        ),
        (
            deployment,
            ODD,
            "map[spec:map[replicas:2 z:[1 <nil> map[b:c d]]]]",
            UNKNOWN,
        ),
    ] {
        let said = patched
            .quoted(path, "strategic-merge-patch+json", patch, why)
            .await;
        assert_eq!(said, quoted);
    }
}
