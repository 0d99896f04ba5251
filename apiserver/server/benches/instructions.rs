//! Carries out so many requests for a pod, one at a time, on one thread and over a
//! store in memory: from a request's head and body to the answer's, with everything
//! between but the socket. It prints nothing: `bench/instructions` has valgrind count
//! what it executes, and takes the difference of two counts.

#![allow(
    clippy::unwrap_used,
    reason = "a bench fails where it finds a surprise"
)]

use std::sync::Arc;

use apiserver::server::LocalService;
use apiserver::storage::memory::MemoryStore;
use apiserver::{Config, Server, StoreSource, UserInfo};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

const PODS: &str = "/api/v1/namespaces/default/pods";
/// How many pods a list has.
const LISTED: usize = 100;
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

struct Api {
    service: LocalService,
    /// The pod that is read and written, as it was answered last.
    pod: Value,
}

/// Makes the pod that `bench api` measures too.
fn pod(name: &str, number: usize) -> Value {
    let mut pod: Value = serde_json::from_str(include_str!("pod.json")).unwrap();
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["annotations"]["bench/n"] = number.to_string().into();
    pod
}

impl Api {
    async fn call(&self, method: Method, path: &str, media: &str, body: Vec<u8>) -> Bytes {
        // Of what is read it says what is wanted, of what is written what it is.
        let accept = if method == Method::GET { media } else { JSON };
        let request = Request::builder()
            .method(method)
            .header("accept", accept)
            .uri(path)
            .header("content-type", media)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status.is_success(), "{}", String::from_utf8_lossy(&body));
        body
    }

    async fn create(&self, pod: &Value) -> Value {
        let body = serde_json::to_vec(pod).unwrap();
        let made = self.call(Method::POST, PODS, JSON, body);
        serde_json::from_slice(&made.await).unwrap()
    }

    async fn once(&mut self, what: &str, n: usize) {
        let path = format!("{PODS}/web");
        match what {
            "api-get" => {
                self.call(Method::GET, &path, JSON, Vec::new()).await;
            }
            "api-list" | "api-list-table" | "api-list-protobuf" => {
                let media = match what {
                    "api-list" => JSON,
                    "api-list-table" => TABLE,
                    _ => PROTOBUF,
                };
                // The first call makes what the others list.
                if n == 0 {
                    for other in 1..LISTED {
                        self.create(&pod(&format!("web-{other}"), other)).await;
                    }
                }
                self.call(Method::GET, PODS, media, Vec::new()).await;
            }
            "api-create" => {
                self.create(&pod(&format!("web-{n}"), n)).await;
            }
            "api-update" => {
                self.pod["metadata"]["annotations"]["bench/n"] = n.to_string().into();
                let body = serde_json::to_vec(&self.pod).unwrap();
                let done = self.call(Method::PUT, &path, JSON, body);
                self.pod = serde_json::from_slice(&done.await).unwrap();
            }
            "api-patch" => {
                let patch = json!({"metadata": {"annotations": {"bench/n": n.to_string()}}});
                let media = "application/strategic-merge-patch+json";
                let body = serde_json::to_vec(&patch).unwrap();
                self.call(Method::PATCH, &path, media, body).await;
            }
            "api-apply" | "api-apply-same" => {
                let number = if what == "api-apply" { n } else { 0 };
                let path = format!("{PODS}/applied?fieldManager=bench");
                let body = serde_json::to_vec(&pod("applied", number)).unwrap();
                self.call(Method::PATCH, &path, "application/apply-patch+yaml", body)
                    .await;
            }
            other => panic!("nothing counts {other}"),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo bench` passes an argument of its own, and wants nothing counted.
    let mut args = std::env::args().skip(1);
    let (Some(what), Some(count)) = (args.next(), args.next()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let store = StoreSource::Other(Arc::new(MemoryStore::default()));
    let config = Config::new(store, dir.path().join("pki"), 0);
    let running = Server::start(config).await.unwrap();
    let mut api = Api {
        service: running.local_service(UserInfo::component("bench")),
        pod: Value::Null,
    };
    api.pod = api.create(&pod("web", 0)).await;
    // What is made once, the first write makes.
    api.once(&what, 0).await;
    for n in 1..=count.parse().unwrap() {
        api.once(&what, n).await;
    }
    running.shutdown().await;
}
