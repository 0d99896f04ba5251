//! Reviews, and tokens of service accounts.

use apiserver::server::LocalService;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::credentials::ask;
use crate::harness::{Answer, Api, PODS, pod, send};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

async fn post(service: &LocalService, path: &str, body: &Value) -> Answer {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Full::new(body.to_string().into()))
        .unwrap();
    send(service, request).await
}

async fn account(api: &Api, name: &str) -> Value {
    let object = json!({"metadata": {"name": name}});
    api.post(ACCOUNTS, &object).await.ok()
}

async fn token(api: &Api, name: &str, spec: Value) -> String {
    let answer = api
        .post(&format!("{ACCOUNTS}/{name}/token"), &json!({"spec": spec}))
        .await;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
    answer.json()["status"]["token"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Asks over TLS with a token; returns the code and the body.
async fn with(api: &Api, token: &str, path: &str) -> (u16, String) {
    let header = format!("Authorization: Bearer {token}\r\n");
    let answer = ask(api, None, path, &header).await;
    let code = answer.split_whitespace().nth(1).unwrap().parse().unwrap();
    (code, answer)
}

async fn review(api: &Api, token: &str, audiences: Value) -> Value {
    let body = json!({"spec": {"token": token, "audiences": audiences}});
    let path = format!("{AUTHENTICATION}/tokenreviews");
    api.post(&path, &body).await.ok()["status"].take()
}

#[tokio::test]
async fn a_token_says_which_account_holds_it() {
    let api = Api::start().await;
    let made = account(&api, "robot").await;
    let answer = api
        .post(&format!("{ACCOUNTS}/robot/token"), &json!({}))
        .await
        .ok();
    assert_eq!(answer["kind"], "TokenRequest");
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert_eq!(answer["metadata"]["name"], "robot");
    let token = answer["status"]["token"].as_str().unwrap();
    let (code, text) = with(&api, token, PODS).await;
    assert_eq!(code, 403, "{text}");
    assert!(
        text.contains("User \\\"system:serviceaccount:default:robot\\\" cannot list"),
        "{text}"
    );
    assert_eq!(with(&api, token, "/apis").await.0, 200);

    let status = review(&api, token, json!([])).await;
    assert_eq!(status["authenticated"], true, "{status}");
    let user = &status["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(user["uid"], made["metadata"]["uid"]);
    assert_eq!(
        user["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str();
    assert!(id.unwrap().starts_with("JTI="), "{user}");

    // It ends with its account, and is not that of another of the same name.
    api.delete(&format!("{ACCOUNTS}/robot"), &json!({}))
        .await
        .ok();
    api.get(ACCOUNTS).await.ok();
    assert_eq!(with(&api, token, "/apis").await.0, 401);
    account(&api, "robot").await;
    assert_eq!(with(&api, token, "/apis").await.0, 401);
    let status = review(&api, token, json!([])).await;
    assert!(status.get("authenticated").is_none(), "{status}");
    assert!(
        status["error"].as_str().unwrap().contains("deleted"),
        "{status}"
    );
}

#[tokio::test]
async fn a_token_is_for_its_audience() {
    let api = Api::start().await;
    account(&api, "robot").await;
    let token = token(&api, "robot", json!({"audiences": ["vault"]})).await;
    assert_eq!(with(&api, &token, "/apis").await.0, 401);
    let status = review(&api, &token, json!([])).await;
    assert!(status.get("authenticated").is_none(), "{status}");
    let status = review(&api, &token, json!(["vault", "other"])).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    let status = review(&api, "nonsense", json!([])).await;
    assert_eq!(status["error"], "invalid bearer token");
}

#[tokio::test]
async fn a_token_ends_with_what_it_is_bound_to() {
    let api = Api::start().await;
    account(&api, "robot").await;
    let mut object = pod("a");
    object["spec"]["serviceAccountName"] = json!("robot");
    let made = api.post(PODS, &object).await.ok();
    let bound =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": made["metadata"]["uid"]});
    let token = token(&api, "robot", json!({"boundObjectRef": bound})).await;
    let status = review(&api, &token, json!([])).await;
    let extra = &status["user"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["a"]));
    let now = json!({"gracePeriodSeconds": 0});
    api.delete(&format!("{PODS}/a"), &now).await.ok();
    api.get(PODS).await.ok();
    let status = review(&api, &token, json!([])).await;
    assert_eq!(
        status["error"],
        "[invalid bearer token, service account token has been invalidated]"
    );
}

#[tokio::test]
async fn requests_for_tokens_are_checked() {
    let api = Api::start().await;
    account(&api, "robot").await;
    api.post(PODS, &pod("a")).await.ok();
    let path = format!("{ACCOUNTS}/robot/token");
    let bound = |kind: &str, name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}});
    for (body, code, reason, words) in [
        (
            json!({"spec": {"expirationSeconds": 10}}),
            422,
            "Invalid",
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes",
        ),
        (
            bound("Pod", "a", ""),
            400,
            "BadRequest",
            "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name.",
        ),
        (
            bound("Secret", "none", ""),
            404,
            "NotFound",
            "secrets \"none\" not found",
        ),
        (
            bound("ConfigMap", "a", ""),
            400,
            "BadRequest",
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"spec": 1}),
            400,
            "BadRequest",
            "TokenRequest in version \"v1\" cannot be handled",
        ),
    ] {
        api.post(&path, &body).await.refused(code, reason, words);
    }
    api.post(&format!("{ACCOUNTS}/none/token"), &json!({}))
        .await
        .refused(404, "NotFound", "serviceaccounts \"none\" not found");
    let secret = json!({"metadata": {"name": "s"}});
    api.post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .ok();
    api.post(&path, &bound("Secret", "s", "other"))
        .await
        .refused(
            409,
            "Conflict",
            "the UID in the bound object reference (other) does not match",
        );
}

#[tokio::test]
async fn tokens_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let pki = dir.path().join("pki");
    let first = Api::start_with(|c| c.cert_dir = pki.clone()).await;
    account(&first, "robot").await;
    let token = token(&first, "robot", json!({})).await;
    let second = Api::over(apiserver::StoreSource::Other(first.store.clone()), pki).await;
    assert_eq!(with(&second, &token, "/apis").await.0, 200);
}

#[tokio::test]
async fn others_may_be_asked_about() {
    let api = Api::start().await;
    let ask = |user: &str, groups: Value, attributes: Value| json!({"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}});
    let path = format!("{AUTHORIZATION}/subjectaccessreviews");
    let pods = json!({"verb": "list", "resource": "pods", "namespace": "default"});
    for (body, allowed) in [
        (ask("u", json!([]), pods.clone()), false),
        (ask("u", json!(["system:masters"]), pods.clone()), true),
        (
            ask("system:node:n", json!(["system:nodes"]), pods.clone()),
            true,
        ),
    ] {
        let answer = api.post(&path, &body).await.ok();
        assert_eq!(answer["status"]["allowed"], allowed, "{body}");
        assert_eq!(answer["kind"], "SubjectAccessReview");
    }
    api.post(&path, &json!({"spec": {}})).await.refused(
        422,
        "Invalid",
        "SubjectAccessReview.authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]",
    );
    let local = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    let answer = api
        .post(&local, &ask("", json!(["system:masters"]), pods.clone()))
        .await
        .ok();
    assert_eq!(answer["status"]["allowed"], true);
    let mut elsewhere = ask("u", json!([]), pods);
    elsewhere["spec"]["resourceAttributes"]["namespace"] = json!("other");
    api.post(&local, &elsewhere)
        .await
        .refused(422, "Invalid", "must match metadata.namespace");
    // Nobody else may ask about others.
    let user = api.service_as("u", &[]);
    post(&user, &path, &elsewhere).await.refused(
        403,
        "Forbidden",
        "cannot create resource \"subjectaccessreviews\"",
    );
}

#[tokio::test]
async fn one_may_ask_what_one_may() {
    let api = Api::start().await;
    let path = format!("{AUTHORIZATION}/selfsubjectrulesreviews");
    let body = json!({"spec": {"namespace": "default"}});
    let mine = api.post(&path, &body).await.ok();
    assert_eq!(
        mine["status"]["resourceRules"],
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    );
    let node = api.service_as("system:node:n", &["system:nodes"]);
    let status = post(&node, &path, &body).await.ok()["status"].take();
    let rules = status["resourceRules"].as_array().unwrap();
    let own = rules
        .iter()
        .find(|r| r["resources"] == json!(["nodes/status"]))
        .unwrap();
    assert_eq!(own["resourceNames"], json!(["n"]));
    assert_eq!(status["incomplete"], false);
    api.post(&path, &json!({}))
        .await
        .refused(400, "BadRequest", "no namespace on request");
    let verb = api.get(&path).await;
    verb.refused(405, "MethodNotAllowed", "");
}

#[tokio::test]
async fn others_can_check_tokens() {
    let api = Api::start().await;
    let answer = api.get("/.well-known/openid-configuration").await;
    assert_eq!(answer.header("cache-control"), "public, max-age=3600");
    let configuration = answer.ok();
    let issuer = "https://kubernetes.default.svc.cluster.local";
    assert_eq!(configuration["issuer"], issuer);
    assert_eq!(
        configuration["jwks_uri"],
        format!("{issuer}/openid/v1/jwks")
    );
    let answer = api.get("/openid/v1/jwks").await;
    assert_eq!(answer.header("content-type"), "application/jwk-set+json");
    let key = answer.ok()["keys"][0].take();
    assert_eq!((&key["kty"], &key["alg"]), (&json!("EC"), &json!("ES256")));
    account(&api, "robot").await;
    let token = token(&api, "robot", json!({})).await;
    let header = jsonwebtoken::decode_header(&token).unwrap();
    assert_eq!(header.kid.as_deref(), key["kid"].as_str());
    assert_eq!(with(&api, &token, "/openid/v1/jwks").await.0, 200);
    let jwk = serde_json::from_value(key).unwrap();
    let decoding = jsonwebtoken::DecodingKey::from_jwk(&jwk).unwrap();
    let mut validation = jsonwebtoken::Validation::new(header.alg);
    validation.set_audience(&[issuer]);
    let read = jsonwebtoken::decode::<Value>(&token, &decoding, &validation).unwrap();
    assert_eq!(read.claims["sub"], "system:serviceaccount:default:robot");
    assert_eq!(read.claims["kubernetes.io"]["namespace"], "default");
    let stranger = api.service_as("u", &[]);
    let request = Request::get("/openid/v1/jwks")
        .body(Full::default())
        .unwrap();
    let refused = send(&stranger, request).await;
    assert_eq!(refused.code.as_u16(), 403);
}
