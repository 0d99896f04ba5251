//! A client of API servers: it asks one thing at a time, never again by itself, and
//! writes down what it was told.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use checkers::history::{Answer, Ask, Call, Came, How, Read, Record, Refused, Scope, Seen};
use client::{Client, ClientConfig};
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::lie::Liar;
use super::object::{age, items, path, path_of, path_of_scope, seen, version};
use crate::run::world::World;

/// How long a client waits for an answer: a little longer than an API server waits for
/// its own view to be new enough.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it rests after an answer that says nothing.
const REST: Duration = Duration::from_millis(100);
/// The largest answer taken.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How many answers that no client should ever be given are kept.
const ODD_MAX: usize = 5;

/// What all clients share beside the world.
pub(super) struct Shared {
    pub(super) world: Rc<World>,
    /// How to reach each API server.
    pub(super) configs: Vec<ClientConfig>,
    /// The version up to which everybody has to be told everything, once it is known.
    pub(super) finish: Cell<Option<i64>>,
    /// Answers that make no sense for what was asked.
    pub(super) odd: RefCell<Vec<String>>,
    /// Who falsifies answers, if a run is to fail.
    pub(super) liar: Liar,
}

impl Shared {
    /// Notes an answer that no client should be given.
    pub(super) fn odd(&self, what: String) {
        let mut odd = self.odd.borrow_mut();
        if odd.len() < ODD_MAX {
            odd.push(what);
        }
    }
}

/// One client.
pub(super) struct Talker {
    pub(super) shared: Rc<Shared>,
    /// Its number in the history; another after each answer that did not come.
    pub(super) process: u32,
    /// Which API server it asks.
    pub(super) replica: usize,
    pub(super) rng: StdRng,
    links: Vec<Client>,
}

/// A request as HTTP has it.
pub(super) struct Http {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) kind: &'static str,
    pub(super) body: Option<Value>,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const OPERATIONS: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Who applies.
const MANAGER: &str = "jepsen";

impl Talker {
    /// Makes one; all it draws comes from the seed.
    pub(super) fn new(shared: &Rc<Shared>, seed: u64) -> anyhow::Result<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let links: Result<_, _> = shared.configs.iter().map(Client::from_config).collect();
        Ok(Self {
            shared: shared.clone(),
            process: shared.world.process(),
            replica: rng.random_range(0..shared.configs.len()),
            rng,
            links: links?,
        })
    }

    pub(super) fn world(&self) -> &Rc<World> {
        &self.shared.world
    }

    /// Goes on with another API server.
    pub(super) fn move_on(&mut self) {
        self.replica = self.rng.random_range(0..self.links.len());
    }

    /// Returns the connection to the API server it asks.
    pub(super) fn link(&self) -> Client {
        self.links[self.replica].clone()
    }

    /// Returns a name for a write that nobody used before.
    pub(super) fn token(&self) -> Arc<str> {
        format!("t{}", self.world().count("token")).into()
    }

    /// Asks, and writes down what came of it.
    pub(super) async fn ask(&mut self, ask: Ask, http: Http) -> Came {
        self.world().pace().await;
        let call = self.world().now();
        let told = self.send(&http).await;
        let came = self.came(&ask, told, &http);
        self.note(ask, call, came).await
    }

    /// Writes down what came, and goes on accordingly.
    async fn note(&mut self, ask: Ask, call: u64, came: Came) -> Came {
        let world = self.world();
        world.record(Record::Call(Call {
            process: self.process,
            replica: u8::try_from(self.replica).unwrap_or(u8::MAX),
            call,
            ret: world.now(),
            ask,
            came: came.clone(),
        }));
        match &came {
            Came::Ok(answer) => world.told(answer.rv),
            Came::Refused(_) => {}
            Came::Unknown(_) => {
                self.process = world.process();
                self.move_on();
                tokio::time::sleep(REST).await;
            }
        }
        came
    }

    /// Sends one request, once.
    pub(super) async fn send(&self, http: &Http) -> Result<(u16, Value), String> {
        let link = self.link();
        let exchange = async {
            let body = http.body.as_ref().map(Value::to_string).unwrap_or_default();
            let request = Request::builder()
                .method(http.method.clone())
                .uri(&http.path)
                .header(header::ACCEPT, JSON)
                .header(header::CONTENT_TYPE, http.kind)
                .body(Full::new(Bytes::from(body)))
                .map_err(|e| e.to_string())?;
            let response = link.request_raw(request).await.map_err(|e| e.to_string())?;
            let code = response.status().as_u16();
            let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
            let bytes = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
            let value = serde_json::from_slice(&bytes).map_err(|e| format!("{code}: {e}"))?;
            Ok((code, value))
        };
        let told = tokio::time::timeout(PATIENCE, exchange).await;
        let told = told.unwrap_or_else(|elapsed| Err(elapsed.to_string()))?;
        Ok(self.shared.liar.answer(http, told))
    }

    fn came(&self, ask: &Ask, told: Result<(u16, Value), String>, http: &Http) -> Came {
        let (code, body) = match told {
            Ok(told) => told,
            Err(why) => return Came::Unknown(why.into()),
        };
        if let Some(why) = refused(code, &body) {
            return Came::Refused(why);
        }
        match code {
            200 | 201 => Came::Ok(answer(ask, &body)),
            429 | 500.. => Came::Unknown(format!("{code}: {}", body["message"]).into()),
            _ => {
                let (method, path) = (&http.method, &http.path);
                self.shared
                    .odd(format!("{method} {path}: {code} {}", body["message"]));
                Came::Unknown(format!("{code}: {}", body["message"]).into())
            }
        }
    }

    /// Reads one object.
    pub(super) async fn get(&mut self, resource: &str, key: &str, read: Read) -> Option<Seen> {
        let ask = Ask::Get {
            resource: resource.into(),
            key: key.into(),
            read,
        };
        let path = format!("{}?{}", path_of(resource, key), age(read, false));
        match self.ask(ask, Http::get(path)).await {
            Came::Ok(answer) => answer.objects.into_iter().next(),
            _ => None,
        }
    }

    /// Lists a scope.
    pub(super) async fn list(&mut self, scope: &Scope, read: Read) -> Came {
        let ask = Ask::List {
            scope: scope.clone(),
            read,
        };
        let path = format!("{}{}", path_of_scope(scope), age(read, true));
        self.ask(ask, Http::get(path)).await
    }

    /// Lists a scope in pages, each from wherever it is by then.
    pub(super) async fn list_in_pages(&mut self, scope: &Scope, limit: usize) -> Came {
        self.world().pace().await;
        let call = self.world().now();
        let ask = Ask::List {
            scope: scope.clone(),
            read: Read::Fresh,
        };
        let mut whole = Answer::default();
        let mut token = String::new();
        let came = loop {
            let path = format!("{}limit={limit}&continue={token}", path_of_scope(scope));
            let http = Http::get(path);
            let told = self.send(&http).await;
            let next = told.as_ref().ok();
            let next = next.and_then(|(_, body)| body["metadata"]["continue"].as_str());
            let next = next.unwrap_or_default().to_owned();
            match self.came(&ask, told, &http) {
                Came::Ok(page) => {
                    match token.is_empty() {
                        true => whole.rv = page.rv,
                        false => whole.pages.push(page.rv),
                    }
                    whole.objects.extend(page.objects);
                }
                other => break other,
            }
            if next.is_empty() {
                break Came::Ok(whole);
            }
            token = next;
            if self.rng.random_bool(0.3) {
                self.move_on();
            }
        };
        self.note(ask, call, came).await
    }

    /// Writes an object that must not be there.
    pub(super) async fn create(&mut self, resource: &str, key: &str, body: Value) -> Came {
        let (namespace, _) = key.split_once('/').unwrap_or((key, ""));
        let http = Http {
            method: Method::POST,
            path: path(resource, Some(namespace)),
            kind: JSON,
            body: Some(body),
        };
        self.write(How::Create, resource, key, None, http).await
    }

    /// Replaces an object if it is at a version.
    pub(super) async fn replace(
        &mut self,
        how: How,
        resource: &str,
        key: &str,
        rv: i64,
        mut body: Value,
    ) -> Came {
        body["metadata"]["resourceVersion"] = rv.to_string().into();
        let http = Http {
            method: Method::PUT,
            path: path_of(resource, key),
            kind: JSON,
            body: Some(body),
        };
        self.write(how, resource, key, Some(rv), http).await
    }

    /// Changes some of an object, if it is at a version where one is given.
    pub(super) async fn patch(
        &mut self,
        resource: &str,
        key: &str,
        rv: Option<i64>,
        mut body: Value,
    ) -> Came {
        if let Some(rv) = rv {
            body["metadata"]["resourceVersion"] = rv.to_string().into();
        }
        let http = Http {
            method: Method::PATCH,
            path: path_of(resource, key),
            kind: MERGE,
            body: Some(body),
        };
        self.write(How::Patch, resource, key, rv, http).await
    }

    /// Says anew who wrote an object last, by a list of operations.
    pub(super) async fn operate(
        &mut self,
        resource: &str,
        key: &str,
        rv: Option<i64>,
        token: &str,
    ) -> Came {
        let set = |path: &str, value: &str| json!({"op": "add", "path": path, "value": value});
        let mut body = vec![set("/data/by", token)];
        body.extend(rv.map(|rv| set("/metadata/resourceVersion", &rv.to_string())));
        let http = Http {
            method: Method::PATCH,
            path: path_of(resource, key),
            kind: OPERATIONS,
            body: Some(body.into()),
        };
        self.write(How::Patch, resource, key, rv, http).await
    }

    /// Applies an object, whoever owns what of it by now.
    pub(super) async fn apply(&mut self, resource: &str, key: &str, body: Value) -> Came {
        let path = path_of(resource, key);
        let http = Http {
            method: Method::PATCH,
            path: format!("{path}?fieldManager={MANAGER}&force=true"),
            kind: APPLY,
            body: Some(body),
        };
        self.write(How::Apply, resource, key, None, http).await
    }

    async fn write(
        &mut self,
        how: How,
        resource: &str,
        key: &str,
        version: Option<i64>,
        http: Http,
    ) -> Came {
        let token = http.body.as_ref().map(super::token_in);
        let ask = Ask::Write {
            how,
            resource: resource.into(),
            key: key.into(),
            token: token.unwrap_or_default().into(),
            version,
        };
        self.ask(ask, http).await
    }

    /// Deletes an object, if it is the one with this id, and at this version.
    pub(super) async fn delete(
        &mut self,
        resource: &str,
        key: &str,
        uid: Option<Arc<str>>,
        version: Option<i64>,
    ) -> Came {
        let mut wanted = json!({});
        if let Some(uid) = &uid {
            wanted["uid"] = (&**uid).into();
        }
        if let Some(version) = version {
            wanted["resourceVersion"] = version.to_string().into();
        }
        let http = Http {
            method: Method::DELETE,
            path: path_of(resource, key),
            kind: JSON,
            body: Some(json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": wanted,
                "propagationPolicy": "Background",
            })),
        };
        let ask = Ask::Delete {
            resource: resource.into(),
            key: key.into(),
            uid,
            version,
        };
        self.ask(ask, http).await
    }
}

impl Http {
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            kind: JSON,
            body: None,
        }
    }
}

/// Says for what a request was refused, if it was for what is there.
fn refused(code: u16, body: &Value) -> Option<Refused> {
    match (code, body["reason"].as_str().unwrap_or_default()) {
        (404, "NotFound") => Some(Refused::NotFound),
        (409, "AlreadyExists") => Some(Refused::Exists),
        (409, "Conflict") => Some(Refused::Conflict),
        (410, _) => Some(Refused::Expired),
        _ => None,
    }
}

fn answer(ask: &Ask, body: &Value) -> Answer {
    match ask {
        Ask::List { scope, .. } => Answer {
            rv: version(body),
            objects: items(&scope.resource, body),
            pages: Vec::new(),
        },
        Ask::Get { resource, .. } | Ask::Write { resource, .. } => {
            let seen = seen(resource, body);
            Answer {
                rv: seen.rv,
                objects: vec![seen],
                pages: Vec::new(),
            }
        }
        Ask::Delete { key, .. } => {
            let uid = match body["kind"].as_str() {
                Some("Status") => &body["details"]["uid"],
                _ => &body["metadata"]["uid"],
            };
            let mut gone = Seen {
                key: key.clone(),
                ..Seen::default()
            };
            gone.content.uid = uid.as_str().unwrap_or_default().into();
            Answer {
                rv: 0,
                objects: vec![gone],
                pages: Vec::new(),
            }
        }
        Ask::Compact(_) | Ask::Dump(_) => Answer::default(),
    }
}
