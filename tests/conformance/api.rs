//! The API server as a black box: HTTPS with an administrator's certificate, watches,
//! and kubectl.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use client::{Client, ClientConfig};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::harness::{Kubectl, PATIENCE, until};

/// JSON merge patch.
pub(crate) const MERGE: &str = "application/merge-patch+json";
/// Strategic merge patch.
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// One API server, and what tests need to speak to it.
pub(crate) struct Api {
    client: Client,
    runtime: Runtime,
    kubeconfig: PathBuf,
    home: PathBuf,
    kubectl: PathBuf,
    names: AtomicUsize,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Expects success, and returns the object.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!(
            (200..300).contains(&self.code),
            "{}: {}",
            self.code,
            self.text()
        );
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Expects a refusal with this code, and returns its message.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16) -> String {
        assert_eq!(self.code, code, "{}", self.text());
        let status: Value =
            serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()));
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["status"], "Failure", "{status}");
        status["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Api {
    pub(crate) fn new(kubeconfig: &Path, home: &Path, kubectl: &Path) -> Self {
        let config = ClientConfig::from_file(kubeconfig).unwrap();
        let runtime = Runtime::new().unwrap();
        let client = {
            let _inside = runtime.enter();
            Client::from_config(&config).unwrap().named("conformance")
        };
        Self {
            client,
            runtime,
            kubeconfig: kubeconfig.to_owned(),
            home: home.to_owned(),
            kubectl: kubectl.to_owned(),
            names: AtomicUsize::new(0),
        }
    }

    pub(crate) fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubectl, &self.kubeconfig, &self.home)
    }

    /// The program and its kubeconfig, for what is started and not waited for.
    pub(crate) fn kubectl_program(&self) -> (&Path, &Path, &Path) {
        (&self.kubectl, &self.kubeconfig, &self.home)
    }

    /// Writes a file for kubectl to read.
    pub(crate) fn file(&self, text: &str) -> String {
        let path = self.home.join(self.name("file"));
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Returns a name that no other test has.
    pub(crate) fn name(&self, stem: &str) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{stem}-{number}")
    }

    /// Makes a namespace of the test's own.
    pub(crate) fn namespace(&self) -> String {
        let name = self.name("conformance");
        let labels = json!({"e2e": name});
        let object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels}});
        self.post("/api/v1/namespaces", &object).ok();
        name
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", Bytes::new())
    }

    /// Asks for a representation by its media type.
    pub(crate) fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.exchange(Method::GET, path, "", accept, Bytes::new())
    }

    pub(crate) fn post(&self, path: &str, object: &Value) -> Answer {
        self.send(
            Method::POST,
            path,
            "application/json",
            object.to_string().into(),
        )
    }

    /// Posts an object and asks for a representation of the answer.
    pub(crate) fn post_as(&self, path: &str, accept: &str, object: &Value) -> Answer {
        let body = object.to_string().into();
        self.exchange(Method::POST, path, "application/json", accept, body)
    }

    /// Posts text as it is, with its type.
    pub(crate) fn post_text(&self, path: &str, kind: &str, text: &str) -> Answer {
        self.send(Method::POST, path, kind, text.to_owned().into())
    }

    pub(crate) fn put(&self, path: &str, object: &Value) -> Answer {
        self.send(
            Method::PUT,
            path,
            "application/json",
            object.to_string().into(),
        )
    }

    pub(crate) fn patch(&self, path: &str, kind: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, path, kind, patch.to_string().into())
    }

    pub(crate) fn patch_text(&self, path: &str, kind: &str, text: &str) -> Answer {
        self.send(Method::PATCH, path, kind, text.to_owned().into())
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "", Bytes::new())
    }

    fn send(&self, method: Method, path: &str, kind: &str, body: Bytes) -> Answer {
        self.exchange(method, path, kind, "application/json", body)
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        accept: &str,
        body: Bytes,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, accept);
        if !kind.is_empty() {
            request = request.header(CONTENT_TYPE, kind);
        }
        let request = request.body(Full::new(body)).unwrap();
        self.runtime.block_on(async {
            let exchange = async {
                let response = self.client.request_raw(request).await.unwrap();
                let code = response.status().as_u16();
                let headers = response.headers().clone();
                let body = response.into_body().collect().await.unwrap().to_bytes();
                Answer {
                    code,
                    headers,
                    body,
                }
            };
            tokio::time::timeout(PATIENCE, exchange)
                .await
                .unwrap_or_else(|late| panic!("{path}: {late}"))
        })
    }

    /// Opens a watch; the query's other parameters are in the path.
    pub(crate) fn watch(&self, path: &str) -> Watch {
        let joint = if path.contains('?') { '&' } else { '?' };
        let uri = format!("{path}{joint}watch=true");
        let request = Request::builder()
            .uri(&uri)
            .header(ACCEPT, "application/json")
            .body(Full::new(Bytes::new()))
            .unwrap();
        let (tx, events) = mpsc::channel();
        let response = self
            .runtime
            .block_on(self.client.request_raw(request))
            .unwrap();
        assert_eq!(response.status().as_u16(), 200, "{uri}");
        let mut body = response.into_body();
        let reader = self.runtime.spawn(async move {
            let mut rest = BytesMut::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                rest.extend_from_slice(&data);
                while let Some(end) = rest.iter().position(|&b| b == b'\n') {
                    let line = rest.split_to(end + 1);
                    if tx
                        .send(serde_json::from_slice::<Value>(&line).unwrap())
                        .is_err()
                    {
                        return;
                    }
                }
            }
        });
        Watch { events, reader }
    }

    /// Waits until a GET answers with an object for which this holds.
    pub(crate) fn await_object(
        &self,
        path: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        until(what, || {
            let answer = self.get(path);
            if answer.code != 200 {
                return Err(answer.text());
            }
            let object = answer.ok();
            if holds(&object) {
                Ok(object)
            } else {
                Err(object.to_string())
            }
        })
    }

    /// Waits until a path is not found.
    pub(crate) fn await_gone(&self, path: &str) {
        until(&format!("{path} to be gone"), || {
            let answer = self.get(path);
            if answer.code == 404 {
                Ok(())
            } else {
                Err(answer.text())
            }
        });
    }
}

/// A watch; it ends when this is dropped.
pub(crate) struct Watch {
    events: Receiver<Value>,
    reader: tokio::task::JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Watch {
    /// Returns the next event's type and object.
    #[track_caller]
    pub(crate) fn next(&self) -> (String, Value) {
        let event = self
            .events
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|e| panic!("no event: {e}"));
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        (kind, event["object"].clone())
    }

    /// Expects the next event to be this of the object with this name.
    #[track_caller]
    pub(crate) fn expect(&self, kind: &str, name: &str) -> Value {
        let (got, object) = self.next();
        assert_eq!(
            (got.as_str(), object["metadata"]["name"].as_str()),
            (kind, Some(name)),
            "{object}"
        );
        object
    }

    /// Skips events until one that matches comes.
    #[track_caller]
    pub(crate) fn find(&self, kind: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self
                .events
                .recv_timeout(left)
                .unwrap_or_else(|e| panic!("no {kind} of {name}: {e}"));
            let object = &event["object"];
            if event["type"] == kind && object["metadata"]["name"] == name && holds(object) {
                return object.clone();
            }
        }
    }
}

/// Returns the names of a list, in its order.
pub(crate) fn names(list: &Value) -> Vec<String> {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .map(str::to_owned)
        .collect()
}

/// Returns the resource version of an object or a list.
pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_else(|| panic!("no resourceVersion: {object}"))
        .to_owned()
}
