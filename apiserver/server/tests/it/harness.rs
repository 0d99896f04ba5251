//! Starts servers and calls them.

use std::sync::Arc;
use std::time::Duration;

use apiserver::server::LocalService;
use apiserver::storage::memory::MemoryStore;
use apiserver::{Config, Running, Server, StoreSource, UserInfo};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

/// How long anything in a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running server over a store in memory.
pub(crate) struct Api {
    pub(crate) running: Running,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Arc<MemoryStore>,
    service: LocalService,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.bytes)))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Returns the header, empty if absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    /// Asserts success and returns the object.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.code.is_success(), "{} {}", self.code, self.text());
        self.json()
    }

    /// Asserts a failure with this code and reason, whose message contains the
    /// words; returns the Status.
    #[track_caller]
    pub(crate) fn refused(self, code: u16, reason: &str, words: &str) -> Value {
        let text = self.text();
        assert_eq!(self.code.as_u16(), code, "{text}");
        let status = self.json();
        assert_eq!(status["kind"], "Status", "{text}");
        assert_eq!(status["code"], code, "{text}");
        assert_eq!(status["reason"], reason, "{text}");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{message:?} lacks {words:?}");
        status
    }
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(adjust: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let mut config = Config::new(StoreSource::Other(store.clone()), dir.path().join("pki"), 0);
        adjust(&mut config);
        let running = Server::start(config).await.unwrap();
        let service = running.local_service(UserInfo::component("test"));
        Self {
            running,
            dir,
            store,
            service,
        }
    }

    /// Starts a server over any store; `self.store` is not it.
    pub(crate) async fn over(store: StoreSource, cert_dir: std::path::PathBuf) -> Self {
        Self::start_with(|config| {
            config.store = store;
            config.cert_dir = cert_dir;
        })
        .await
    }

    /// Returns the same server as another user sees it.
    pub(crate) fn service_as(&self, name: &str, groups: &[&str]) -> LocalService {
        self.running
            .local_service(UserInfo::new(name, groups.iter().copied()))
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        send(&self.service, request).await
    }

    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(Full::new(body.into()))
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "", "").await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let request = Request::get(path)
            .header("accept", accept)
            .body(Full::new(Bytes::new()))
            .unwrap();
        self.send(request).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Answer {
        self.call(Method::POST, path, "application/json", object.to_string())
            .await
    }

    pub(crate) async fn put(&self, path: &str, object: &Value) -> Answer {
        self.call(Method::PUT, path, "application/json", object.to_string())
            .await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.call(
            Method::PATCH,
            path,
            "application/merge-patch+json",
            patch.to_string(),
        )
        .await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        let body = if options.is_null() {
            String::new()
        } else {
            options.to_string()
        };
        self.call(Method::DELETE, path, "application/json", body)
            .await
    }

    /// Asks for something and leaves the body to the caller.
    pub(crate) async fn open(&self, path: &str, accept: &str) -> apiserver::body::BoxBody {
        self.answer(path, accept).await.into_body()
    }

    async fn answer(&self, path: &str, accept: &str) -> Response<apiserver::body::BoxBody> {
        let request = Request::get(path)
            .header("accept", accept)
            .body(Full::new(Bytes::new()))
            .unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let (parts, body) = self.answer(path, accept).await.into_parts();
        Watch {
            headers: parts.headers,
            body,
            rest: Vec::new(),
        }
    }
}

pub(crate) async fn send(service: &LocalService, request: Request<Full<Bytes>>) -> Answer {
    let answer = async {
        let response = service.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            code: parts.status,
            headers: parts.headers,
            bytes,
        }
    };
    tokio::time::timeout(PATIENCE, answer)
        .await
        .expect("an answer in time")
}

/// A watch being read.
pub(crate) struct Watch {
    pub(crate) headers: HeaderMap,
    body: apiserver::body::BoxBody,
    rest: Vec<u8>,
}

impl Watch {
    /// Returns the next event; `None` when the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame());
            let frame = frame.await.expect("an event in time")?;
            self.rest
                .extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// Returns the next event of a watch in protobuf, without its length.
    pub(crate) async fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((length, rest)) = self.rest.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if rest.len() >= length {
                    let end = 4 + length;
                    return Some(self.rest.drain(..end).skip(4).collect());
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame());
            let frame = frame.await.expect("an event in time")?;
            self.rest
                .extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// Returns the next frame as text, whatever it is.
    pub(crate) async fn raw(&mut self) -> String {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame());
        let frame = frame
            .await
            .expect("a frame in time")
            .expect("a frame")
            .unwrap();
        String::from_utf8_lossy(&frame.into_data().unwrap()).into_owned()
    }

    /// Returns the next event as `TYPE name`.
    pub(crate) async fn line(&mut self) -> String {
        match self.next().await {
            None => "end".to_owned(),
            Some(event) => {
                let name = event["object"]["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default();
                format!("{} {name}", event["type"].as_str().unwrap())
                    .trim_end()
                    .to_owned()
            }
        }
    }
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "host", "command": ["sleep", "1"]}]}})
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "host"}]}}}})
}

pub(crate) fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
