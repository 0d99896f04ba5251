//! A small API server for tests: objects in memory, resource versions, lists,
//! watches, faults. Only compiled with feature `testing`.
//!
//! It knows no kinds: no defaulting, no validation, no selectors. A patch merges the
//! top level only (of `status`, if that is what is patched), and a pod's binding sets
//! its node.

// What a test gives it is well formed; a test that does not may fail here.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use meta::gvk::GroupResource;
use meta::{Reason, Status};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{Client, Transport};

/// Is the body of the server's answers.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Is the server. A clone is the same one.
#[derive(Clone, Default)]
pub struct Fake {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// By collection (`/api/v1/pods`) and `namespace/name`.
    objects: BTreeMap<(String, String), Value>,
    events: Vec<(u64, String, Value)>,
    compacted: u64,
    watchers: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    requests: Vec<String>,
    faults: VecDeque<(String, Fault)>,
}

/// Is what may go wrong once.
pub enum Fault {
    /// Answers with this status.
    Answer(Box<Status>),
    /// Refuses the connection.
    Refuse,
}

#[derive(Debug)]
struct Target {
    collection: String,
    namespace: String,
    name: Option<String>,
    sub: Option<String>,
}

impl Fake {
    /// Returns a client of the server, without sockets.
    pub fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request| {
            let fake = fake.clone();
            async move { fake.answer(request).await }
        });
        Client::new(Transport::service(service))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Makes the next request whose line starts with `prefix` go wrong.
    pub fn fault(&self, prefix: &str, fault: Fault) {
        self.lock().faults.push_back((prefix.into(), fault));
    }

    /// Lets nothing more go wrong.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Breaks all watches off.
    pub fn break_watches(&self) {
        self.lock().watchers.clear();
    }

    /// Forgets the history, so that old resource versions are gone.
    pub fn compact(&self) {
        let mut state = self.lock();
        state.compacted = state.version;
        state.events.clear();
    }

    /// Returns how many watches are open.
    pub fn watchers(&self) -> usize {
        self.lock().watchers.len()
    }

    /// Returns the request lines so far that start with `prefix`.
    pub fn requests(&self, prefix: &str) -> Vec<String> {
        self.lock()
            .requests
            .iter()
            .filter(|r| r.starts_with(prefix))
            .cloned()
            .collect()
    }

    /// Returns the objects of a collection, such as `/api/v1/pods`.
    pub fn objects(&self, collection: &str) -> Vec<Value> {
        let state = self.lock();
        state
            .objects
            .iter()
            .filter(|((c, _), _)| c == collection)
            .map(|(_, v)| v.clone())
            .collect()
    }

    /// Sends raw bytes to the watchers of a collection.
    pub fn send_raw(&self, collection: &str, bytes: &str) {
        for (_, tx) in self.lock().watchers.iter().filter(|(c, _)| c == collection) {
            tx.send(Bytes::copy_from_slice(bytes.as_bytes())).unwrap();
        }
    }

    /// Answers a request.
    pub async fn answer(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = head.uri.path_and_query().map(|p| p.as_str()).unwrap_or("/");
        let line = format!("{} {path}", head.method);
        let mut state = self.lock();
        state.requests.push(line.clone());
        let hit = state
            .faults
            .iter()
            .position(|(prefix, _)| line.starts_with(prefix.as_str()));
        if let Some(at) = hit {
            match state.faults.remove(at).unwrap().1 {
                Fault::Answer(status) => return Ok(failure(&status)),
                Fault::Refuse => return Err(std::io::ErrorKind::ConnectionRefused.into()),
            }
        }
        let query = head.uri.query().unwrap_or_default();
        let target = target_of(head.uri.path());
        let answer = match head.method {
            Method::GET if target.name.is_some() => state.get(&target),
            Method::GET if query.contains("watch=true") => return Ok(state.watch(&target, query)),
            Method::GET => state.list(&target, query),
            Method::POST => state.create(&target, &body),
            Method::PUT => state.update(&target, &body),
            Method::PATCH => state.patch(&target, &body),
            Method::DELETE => state.delete(&target),
            _ => Err(Box::new(Status::bad_request("method"))),
        };
        Ok(match answer {
            Ok(value) => respond(StatusCode::OK, &value),
            Err(status) => failure(&status),
        })
    }
}

fn target_of(path: &str) -> Target {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (base, rest) = parts.split_at(if parts[0] == "api" { 2 } else { 3 });
    let (namespace, rest) = match rest {
        ["namespaces", ns, rest @ ..] if !rest.is_empty() => (*ns, rest),
        rest => ("", rest),
    };
    Target {
        collection: format!("/{}/{}", base.join("/"), rest[0]),
        namespace: namespace.into(),
        name: rest.get(1).map(|s| (*s).into()),
        sub: rest.get(2).map(|s| (*s).into()),
    }
}

fn param<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn respond(code: StatusCode, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(serde_json::to_vec(value).unwrap())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn failure(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap();
    respond(code, &serde_json::to_value(status).unwrap())
}

type Answer = Result<Value, Box<Status>>;

impl State {
    fn resource(target: &Target) -> GroupResource {
        GroupResource::new("", target.collection.rsplit('/').next().unwrap())
    }

    fn key(target: &Target) -> (String, String) {
        let name = target.name.clone().unwrap_or_default();
        (
            target.collection.clone(),
            format!("{}/{name}", target.namespace),
        )
    }

    fn find(&self, target: &Target) -> Answer {
        let missing = || {
            let name = target.name.as_deref().unwrap_or_default();
            Box::new(Status::not_found(&Self::resource(target), name))
        };
        self.objects
            .get(&Self::key(target))
            .cloned()
            .ok_or_else(missing)
    }

    fn get(&self, target: &Target) -> Answer {
        self.find(target)
    }

    fn list(&self, target: &Target, query: &str) -> Answer {
        let asked: u64 = param(query, "resourceVersion")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0);
        if asked > 0 && asked < self.compacted {
            return Err(Box::new(Status::expired("too old resource version")));
        }
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|((c, k), _)| {
                *c == target.collection
                    && (target.namespace.is_empty()
                        || k.starts_with(&format!("{}/", target.namespace)))
            })
            .map(|(_, v)| v)
            .collect();
        let from: usize = param(query, "continue")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0);
        let limit: usize = param(query, "limit")
            .and_then(|v| v.parse().ok())
            .unwrap_or(usize::MAX);
        let page: Vec<_> = items.iter().skip(from).take(limit).collect();
        let next = from + page.len();
        let token = if next < items.len() {
            next.to_string()
        } else {
            String::new()
        };
        Ok(json!({
            "kind": "List", "apiVersion": "v1", "items": page,
            "metadata": {"resourceVersion": self.version.to_string(), "continue": token},
        }))
    }

    fn watch(&mut self, target: &Target, query: &str) -> Response<Body> {
        let from: u64 = param(query, "resourceVersion")
            .and_then(|v| v.parse().ok())
            .unwrap_or(0);
        let (tx, rx) = mpsc::unbounded_channel();
        if from < self.compacted {
            let status = Status::expired("too old resource version");
            let event = json!({"type": "ERROR", "object": status});
            tx.send(Bytes::from(format!("{event}\n"))).unwrap();
        } else {
            for (_, c, event) in self.events.iter().filter(|(v, _, _)| *v > from) {
                if *c == target.collection {
                    tx.send(Bytes::from(format!("{event}\n"))).unwrap();
                }
            }
            self.watchers.push((target.collection.clone(), tx));
        }
        let stream = futures::stream::unfold(rx, |mut rx| async move {
            rx.recv().await.map(|bytes| (bytes, rx))
        });
        let body = StreamBody::new(stream.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync();
        Response::new(body)
    }

    fn store(&mut self, target: &Target, mut object: Value, kind: &str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if !target.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(target.namespace);
        }
        if kind == "DELETED" {
            self.objects.remove(&Self::key(target));
        } else {
            self.objects.insert(Self::key(target), object.clone());
        }
        let event = json!({"type": kind, "object": object});
        let line = Bytes::from(format!("{event}\n"));
        self.watchers
            .retain(|(c, tx)| *c != target.collection || tx.send(line.clone()).is_ok());
        self.events
            .push((self.version, target.collection.clone(), event));
        object
    }

    fn create(&mut self, target: &Target, body: &[u8]) -> Answer {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        if target.sub.as_deref() == Some("binding") {
            let mut pod = self.find(target)?;
            if !pod["spec"]["nodeName"].is_null() {
                let name = target.name.as_deref().unwrap();
                let why = "the pod is already assigned to a node";
                return Err(Box::new(Status::conflict(
                    &Self::resource(target),
                    name,
                    why,
                )));
            }
            pod["spec"]["nodeName"] = object["target"]["name"].clone();
            self.store(target, pod, "MODIFIED");
            return Ok(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
        }
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let target = Target {
            collection: target.collection.clone(),
            namespace: target.namespace.clone(),
            name: Some(name.clone()),
            sub: None,
        };
        if self.find(&target).is_ok() {
            return Err(Box::new(Status::already_exists(
                &Self::resource(&target),
                &name,
            )));
        }
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version + 1));
        Ok(self.store(&target, object, "ADDED"))
    }

    fn update(&mut self, target: &Target, body: &[u8]) -> Answer {
        let object: Value = serde_json::from_slice(body).unwrap();
        let current = self.find(target)?;
        let sent = &object["metadata"]["resourceVersion"];
        if !sent.is_null() && *sent != current["metadata"]["resourceVersion"] {
            let name = target.name.as_deref().unwrap();
            return Err(Box::new(Status::modified(&Self::resource(target), name)));
        }
        Ok(self.store(target, object, "MODIFIED"))
    }

    fn patch(&mut self, target: &Target, body: &[u8]) -> Answer {
        let mut patch: Value = serde_json::from_slice(body).unwrap();
        let mut object = self.find(target)?;
        let mut into = &mut object;
        if target.sub.as_deref() == Some("status") {
            patch = patch["status"].take();
            into = &mut into["status"];
        }
        for (key, value) in patch.as_object().unwrap() {
            into[key] = value.clone();
        }
        Ok(self.store(target, object, "MODIFIED"))
    }

    fn delete(&mut self, target: &Target) -> Answer {
        let object = self.find(target)?;
        self.store(target, object, "DELETED");
        Ok(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
    }
}

/// Makes a failure of any reason.
pub fn status(reason: Reason) -> Fault {
    Fault::Answer(Box::new(Status::failure(reason, "injected")))
}
