//! The simulated server behind HTTP, so that the whole shell runs on it: client,
//! informers, queues, discovery, leader election.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, Error, Transport};
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use meta::GroupVersionResource;
use plan::{Propagation, Target, Write};
use serde_json::{Value, json};

use super::server::{Logged, RESOURCES, Server, Verb};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Is how often a watch looks for news.
const WATCH_POLL: Duration = Duration::from_millis(2);

/// Returns a client whose requests the server answers.
pub(super) fn client(server: &Arc<Server>) -> Client {
    let server = Arc::clone(server);
    Client::new(Transport::service(tower::service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(answer(server, request).await) }
    })))
}

/// Is what a path names.
struct Path {
    gvr: GroupVersionResource,
    namespace: Option<String>,
    name: Option<String>,
    sub: Option<&'static str>,
}

impl Path {
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", ns, rest @ ..]
                if !rest.is_empty() && !matches!(rest[0], "finalize" | "status") =>
            {
                (Some((*ns).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let sub = match rest.get(2) {
            Some(&"status") => Some("status"),
            Some(&"finalize") => Some("finalize"),
            _ => None,
        };
        Some(Self {
            gvr: GroupVersionResource::new(group, version, *rest.first()?),
            namespace,
            name: rest.get(1).map(|name| (*name).to_owned()),
            sub,
        })
    }

    fn target(&self) -> Target {
        Target {
            gvr: self.gvr.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone().unwrap_or_default(),
        }
    }

    fn holds(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_none() || self.namespace.as_deref() == namespace
    }
}

async fn answer(server: Arc<Server>, request: Request<Full<Bytes>>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let query: BTreeMap<&str, &str> = head
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let Some(path) = Path::parse(head.uri.path()) else {
        return respond(StatusCode::OK, &discovery(head.uri.path()));
    };
    if path.gvr.resource == "events" {
        return respond(StatusCode::CREATED, &body);
    }
    if head.method == Method::GET && query.get("watch") == Some(&"true") {
        let since = query
            .get("resourceVersion")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        return watch(server, path, since);
    }
    match perform(&server, &head.method, &path, body) {
        Ok(value) => respond(StatusCode::OK, &value),
        Err(Error::Api(status)) => {
            let code = StatusCode::from_u16(status.code).unwrap();
            respond(code, &serde_json::to_value(&*status).unwrap())
        }
        Err(other) => panic!("the simulated server answers with a status: {other}"),
    }
}

fn perform(server: &Server, method: &Method, path: &Path, body: Value) -> Result<Value, Error> {
    let mut inner = server.lock();
    let write = match (method.as_str(), &path.name) {
        ("GET", Some(_)) => {
            let target = path.target();
            let key = (
                target.gvr,
                target.namespace.unwrap_or_default(),
                target.name,
            );
            return inner.get(&key).cloned();
        }
        ("GET", None) => {
            let items: Vec<&Value> = inner
                .objects
                .iter()
                .filter(|((gvr, namespace, _), _)| *gvr == path.gvr && path.holds(Some(namespace)))
                .map(|(_, object)| object)
                .collect();
            let version = inner.log.len().to_string();
            return Ok(
                json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items}),
            );
        }
        ("POST", _) => Write::Create {
            gvr: path.gvr.clone(),
            namespace: path.namespace.clone(),
            body,
        },
        ("PUT", _) => Write::Replace {
            target: path.target(),
            subresource: path.sub,
            body,
        },
        ("PATCH", _) => Write::Patch {
            target: path.target(),
            subresource: path.sub,
            patch: body,
        },
        ("DELETE", None) => Write::DeleteCollection {
            gvr: path.gvr.clone(),
            namespace: path.namespace.clone().unwrap_or_default(),
        },
        _ => Write::Delete {
            target: path.target(),
            uid: body["preconditions"]["uid"].as_str().map(str::to_owned),
            propagation: match body["propagationPolicy"].as_str() {
                Some("Foreground") => Some(Propagation::Foreground),
                Some("Orphan") => Some(Propagation::Orphan),
                _ => Some(Propagation::Background),
            },
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
        },
    };
    let left = inner.perform(&write)?;
    Ok(if left.is_null() {
        json!({"kind": "Status"})
    } else {
        left
    })
}

fn discovery(root: &str) -> Value {
    let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let core = !root.starts_with("/apis");
    for (group, _, resource, kind, namespaced) in RESOURCES {
        if group.is_empty() == core {
            groups.entry(group).or_default().push(json!({
                "resource": resource,
                "responseKind": {"kind": kind},
                "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            }));
        }
    }
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(group, resources)| {
            let version = json!({"version": "v1", "resources": resources});
            json!({"metadata": {"name": group}, "versions": [version]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "items": items})
}

fn watch(server: Arc<Server>, path: Path, since: usize) -> Response<Body> {
    let events = stream::unfold(
        (server, path, since),
        |(server, path, mut cursor)| async move {
            loop {
                let next = server.lock().log.get(cursor).cloned();
                match next {
                    None => tokio::time::sleep(WATCH_POLL).await,
                    Some(event) => {
                        cursor += 1;
                        if let Some(line) = line(&path, &event) {
                            return Some((Ok(Frame::data(line)), (server, path, cursor)));
                        }
                    }
                }
            }
        },
    );
    Response::new(StreamBody::new(events).boxed_unsync())
}

fn line(path: &Path, event: &Logged) -> Option<Bytes> {
    let namespace = event.object["metadata"]["namespace"].as_str();
    if event.gvr != path.gvr || !path.holds(namespace) {
        return None;
    }
    let type_ = match event.verb {
        Verb::Upsert => "MODIFIED",
        Verb::Delete => "DELETED",
    };
    Some(format!("{}\n", json!({"type": type_, "object": event.object})).into())
}

fn respond(code: StatusCode, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

mod shell_test {
    use std::time::Instant;

    use tokio_util::sync::CancellationToken;

    use super::super::agents::{self, Deed, NODES};
    use super::super::rng::Rng;
    use super::super::server::Inner;
    use super::*;
    use crate::{ManagerError, ManagerOptions, Selection, run_controllers};

    /// Bounds how long a condition may take on a busy machine.
    const DEADLINE: Duration = Duration::from_secs(30);

    /// Plays everybody else until the condition holds.
    async fn until(server: &Server, what: &str, holds: impl Fn(&Inner) -> bool) {
        let started = Instant::now();
        let mut rng = Rng::new(1);
        while !holds(&server.lock()) {
            assert!(started.elapsed() < DEADLINE, "not in time: {what}");
            if !agents::step(&mut server.lock(), &NODES, &mut rng) {
                tokio::time::sleep(WATCH_POLL).await;
            }
        }
    }

    fn start(
        leader_elect: bool,
    ) -> (
        Arc<Server>,
        CancellationToken,
        tokio::task::JoinHandle<Result<(), ManagerError>>,
    ) {
        let server = Arc::new(Server::new());
        agents::bootstrap(&mut server.lock());
        agents::perform(&mut server.lock(), &Deed::Namespace("kube-system"));
        let options = ManagerOptions {
            leader_elect,
            cluster_ca: Some("PEM".to_owned()),
            ..ManagerOptions::default()
        };
        let token = CancellationToken::new();
        let running = tokio::spawn(run_controllers(client(&server), options, token.clone()));
        (server, token, running)
    }

    fn available(inner: &Inner, name: &str) -> Option<i64> {
        let mut all = inner.of("deployments");
        let (_, found) = all.find(|((_, _, found), _)| found == name)?;
        let rolled = found["status"]["updatedReplicas"] == found["status"]["replicas"];
        let seen = found["status"]["observedGeneration"] == found["metadata"]["generation"];
        (rolled && seen)
            .then(|| found["status"]["availableReplicas"].as_i64())
            .flatten()
    }

    #[tokio::test]
    async fn the_whole_shell_rolls_out_and_cleans_up() {
        let (server, token, running) = start(false);
        let deed = |deed: Deed| agents::perform(&mut server.lock(), &deed);
        let web = |namespace| Deed::Deployment {
            namespace,
            name: "web",
            replicas: 3,
            strategy: "RollingUpdate",
        };
        deed(Deed::Namespace("team"));
        deed(web("default"));
        until(&server, "3 available", |inner| {
            available(inner, "web") == Some(3)
        })
        .await;
        deed(Deed::Image("web", "v2"));
        deed(Deed::Scale("web", 2));
        until(&server, "2 of the new available", |inner| {
            available(inner, "web") == Some(2)
        })
        .await;
        deed(Deed::Delete {
            resource: "deployments",
            namespace: "default",
            name: "web",
            how: Propagation::Foreground,
        });
        until(&server, "everything collected", |inner| {
            ["deployments", "replicasets", "pods"]
                .iter()
                .all(|kind| inner.of(kind).count() == 0)
        })
        .await;
        deed(web("team"));
        until(&server, "pods in the namespace", |inner| {
            inner.of("pods").count() == 3
        })
        .await;
        deed(Deed::Delete {
            resource: "namespaces",
            namespace: "",
            name: "team",
            how: Propagation::Background,
        });
        until(&server, "the namespace gone", |inner| {
            inner.of("pods").count() == 0
                && inner
                    .of("namespaces")
                    .all(|((_, _, name), _)| name != "team")
        })
        .await;
        token.cancel();
        running.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn with_election_the_lease_is_taken_and_given_back() {
        let (server, token, running) = start(true);
        let holder = |inner: &Inner| {
            let lease = inner
                .of("leases")
                .find(|((_, _, name), _)| name == crate::LEASE_NAME);
            lease.map(|(_, lease)| {
                lease["spec"]["holderIdentity"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
        };
        until(&server, "accounts", |inner| {
            inner.of("serviceaccounts").count() == inner.of("namespaces").count()
        })
        .await;
        assert_ne!(holder(&server.lock()), Some(String::new()));
        token.cancel();
        running.await.unwrap().unwrap();
        assert_eq!(holder(&server.lock()), Some(String::new()), "released");
    }

    #[tokio::test]
    async fn an_unknown_controller_is_refused_by_name() {
        let options = ManagerOptions {
            controllers: "*,-nope".parse::<Selection>().unwrap(),
            ..ManagerOptions::default()
        };
        let server = Arc::new(Server::new());
        let error = run_controllers(client(&server), options, CancellationToken::new())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("\"nope\"") && error.to_string().contains("deployment"),
            "{error}"
        );
    }
}
