//! What exists before anybody made it, and comes back when it is deleted: the system
//! namespaces, the priority classes of the system, the service through which the
//! cluster finds its own API and the addresses behind it, the range of cluster IPs,
//! the levels and flows of requests, the APIServices.
//!
//! What they are and when they are due is said in [`registry::standing`]. What others
//! cannot do without is made before the server is ready, the rest right after.
//! Level-triggered: one task looks at all of it whenever something of it changes, and
//! now and then without a reason, and acts on the difference; so it does not matter
//! how many servers do so over one store.
//!
//! Made through the server's own pipeline, as a component would, so that these
//! objects are defaulted and validated like any other.

mod endpoints;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, select_all};
use futures::{FutureExt as _, StreamExt as _};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use meta::value;
use registry::Kind;
use registry::standing::{self, Due, Standing, apiservices, flowcontrol};
use registry::unstored::UNSTORED;
use serde_json::Value;

use self::endpoints::Addresses;
use crate::api::Api;
use crate::authn::{Peer, UserInfo};
use crate::body::{self, JSON};
use crate::serve::Handler;
use crate::services;
use crate::storage::{ListRequest, ReadVersion, Selector, VersionMatch, WatchRequest, WatchStream};

/// Who owns what is made here.
const MANAGER: &str = "kube-apiserver";
/// Who owns the levels and flows of requests.
const FLOW_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
/// Who says that the range of cluster IPs is ready.
const CIDR_MANAGER: &str = "kubernetes-service-cidr-controller";
/// How long to wait before trying again when the store does not answer; doubled
/// each time up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// How often everything is looked at without a reason (upstream: every 10 s what is
/// behind the service, the rest every minute).
const EVERY: Duration = Duration::from_secs(10);
/// How long a change is left to be followed by others before it is looked at.
const SETTLE: Duration = Duration::from_millis(20);
/// How many objects are written at once: few enough to leave room for clients,
/// enough that the store writes several together.
const WRITES: usize = 4;

/// Says where the server serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The address others are told to use, if there is one.
    pub(crate) address: Option<IpAddr>,
    /// The port.
    pub(crate) port: u16,
}

/// Creates what is missing, and keeps it there until the server stops.
pub(crate) async fn run(api: Arc<Api>, place: Place) {
    let first = first(&api, place.port);
    let mut pause = RETRY.0;
    tokio::select! {
        () = api.shutdown.cancelled() => return,
        () = api.caches_ready() => {}
    }
    while let Err(error) = all_of(&api, &first).await {
        tracing::warn!(error, "cannot create the system objects, trying again");
        tokio::select! {
            () = api.shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY.1),
        }
    }
    api.bootstrapped.send_replace(true);
    let mut keeper = Keeper {
        addresses: Addresses::new(&api, place),
        first,
        api: api.clone(),
    };
    tokio::join!(keeper.keep(), services::keep(&api));
}

/// Returns what is there before the server is ready.
fn first(api: &Api, port: u16) -> Vec<Standing> {
    let address = api.service_ips.range().first().to_string();
    let mut first = standing::first();
    first.extend(standing::service(&address, port));
    first
}

/// Creates what is missing of these, one after the other: what is in a namespace
/// needs the namespace.
async fn all_of(api: &Arc<Api>, all: &[Standing]) -> Result<(), String> {
    for standing in all {
        let object = &standing.object;
        let path = format!("{}/{}", path(standing.kind, object), value::name(object));
        let (found, text) = call(api, Method::GET, &path, MANAGER, None).await?;
        match found {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => write(api, standing.kind, MANAGER, standing.due(None)).await?,
            code => return Err(format!("GET {path}: {code} {text}")),
        }
    }
    Ok(())
}

/// A write that is due: of an object of a kind, by whom, and which.
type Write = (&'static Kind, &'static str, Due);

/// Looks after everything while the server serves.
struct Keeper {
    api: Arc<Api>,
    first: Vec<Standing>,
    addresses: Addresses,
}

impl Keeper {
    async fn keep(&mut self) {
        let api = self.api.clone();
        loop {
            // From before it is looked, so that nothing is missed.
            let mut changes = select_all(watches(&api).await);
            let passed = tokio::select! {
                () = api.shutdown.cancelled() => break,
                passed = self.pass() => passed,
            };
            let pause = match passed {
                Ok(()) => EVERY,
                Err(error) => {
                    tracing::warn!(%error, "cannot look after the system objects, trying again");
                    RETRY.1
                }
            };
            tokio::select! {
                () = api.shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                _ = changes.next(), if !changes.is_empty() => tokio::time::sleep(SETTLE).await,
            }
        }
        self.addresses.leave(&api).await;
    }

    /// Looks at everything once, and writes what is due.
    async fn pass(&mut self) -> Result<(), String> {
        let api = &self.api;
        let mut due: Vec<Write> = Vec::new();
        for standing in &self.first {
            let there = cached(api, standing).await?;
            let what = standing.due(there.as_ref());
            due.extend(what.map(|d| (standing.kind, MANAGER, d)));
        }
        self.flows(&mut due).await?;
        self.services(&mut due).await?;
        let writes = due.into_iter().map(|(kind, manager, due)| {
            let api = api.clone();
            async move { write(&api, kind, manager, Some(due)).await }.boxed()
        });
        let writes: Vec<BoxFuture<'static, Result<(), String>>> = writes.collect();
        let mut writes = stream::iter(writes).buffer_unordered(WRITES);
        let mut failed = None;
        while let Some(done) = writes.next().await {
            failed = failed.or(done.err());
        }
        if let Some(error) = failed {
            return Err(error);
        }
        self.range().await?;
        self.addresses.reconcile(&self.api).await
    }

    /// Finds what is due of the levels and flows of requests.
    async fn flows(&self, due: &mut Vec<Write>) -> Result<(), String> {
        let wanted = flowcontrol::all();
        let there = cached_of(&self.api, &wanted).await?;
        for standing in &wanted {
            let found = there.iter().find(|o| is(standing, o));
            let what = standing.due(found);
            due.extend(what.map(|d| (standing.kind, FLOW_MANAGER, d)));
        }
        for object in &there {
            if flowcontrol::is_left_behind(object, &wanted) {
                remove(&self.api, object, FLOW_MANAGER).await?;
            }
        }
        Ok(())
    }

    /// Finds what is due of the APIServices.
    async fn services(&self, due: &mut Vec<Write>) -> Result<(), String> {
        let builtin = registry::kinds::group_versions();
        let reviews = UNSTORED.iter().map(|u| (u.group, u.version));
        let definitions = all_cached(&self.api, registry::crd::GROUP, registry::crd::PLURAL);
        let definitions = definitions.await?;
        let wanted = apiservices::all(
            builtin.into_iter().chain(reviews),
            definitions.iter().flat_map(apiservices::of_definition),
        );
        let there = cached_of(&self.api, &wanted).await?;
        for standing in &wanted {
            let found = there.iter().find(|o| is(standing, o));
            let what = standing.due(found);
            due.extend(what.map(|d| (standing.kind, MANAGER, d)));
        }
        for object in &there {
            if apiservices::is_left_behind(object, &wanted) {
                remove(&self.api, object, MANAGER).await?;
            }
        }
        Ok(())
    }

    /// Makes the range of cluster IPs an object, and says that it is ready.
    async fn range(&self) -> Result<(), String> {
        let range = self.api.service_ips.range().to_string();
        let Some(standing) = standing::service_cidr(&range) else {
            return Ok(());
        };
        let found = cached(&self.api, &standing).await?;
        write(
            &self.api,
            standing.kind,
            MANAGER,
            standing.due(found.as_ref()),
        )
        .await?;
        let now = meta::time::format(jiff::Timestamp::now());
        let current = found.as_ref().unwrap_or(&standing.object);
        let Some(status) = standing::service_cidr_status(current, &range, &now) else {
            return Ok(());
        };
        let path = format!(
            "{}/{}/status?fieldManager={CIDR_MANAGER}&force=true",
            path(standing.kind, current),
            standing::SERVICE_CIDR
        );
        let (code, text) = call(&self.api, Method::PATCH, &path, MANAGER, Some(status)).await?;
        match code.is_success() {
            true => Ok(()),
            false => Err(format!("PATCH {path}: {code} {text}")),
        }
    }
}

fn is(standing: &Standing, object: &Value) -> bool {
    (standing.kind.kind, standing.name()) == (value::type_meta(object).1, value::name(object))
}

/// Opens a watch on each sort of what is looked after.
async fn watches(api: &Api) -> Vec<WatchStream> {
    const WHOLE: [(&str, &str); 6] = [
        ("scheduling.k8s.io", "priorityclasses"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        (
            "flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations",
        ),
        ("apiregistration.k8s.io", "apiservices"),
        ("networking.k8s.io", "servicecidrs"),
        (registry::crd::GROUP, registry::crd::PLURAL),
    ];
    let kubernetes = [
        ("", "services"),
        ("", "endpoints"),
        ("discovery.k8s.io", "endpointslices"),
    ];
    let all = Selector::default();
    let one = Selector {
        name: Some("kubernetes".to_owned()),
        ..Selector::all(Some("default"))
    };
    let namespaces = standing::NAMESPACES.map(|name| {
        let selector = Selector {
            name: Some(name.to_owned()),
            ..Selector::default()
        };
        ("", "namespaces", selector)
    });
    let whole = WHOLE.iter().map(|(g, p)| (*g, *p, all.clone()));
    let named = kubernetes.iter().map(|(g, p)| (*g, *p, one.clone()));
    let mut opening: FuturesUnordered<_> = whole
        .chain(named)
        .chain(namespaces)
        .filter_map(|(group, plural, selector)| {
            let store = api.resources.builtin(group, "v1", plural)?.store.clone();
            Some(async move {
                let request = WatchRequest {
                    selector,
                    version: ReadVersion::Any,
                    version_match: Some(VersionMatch::NotOlderThan),
                    send_initial_events: Some(false),
                    ..WatchRequest::default()
                };
                store.watch(request).await.ok()
            })
        })
        .collect();
    let mut open = Vec::new();
    while let Some(watch) = opening.next().await {
        open.extend(watch);
    }
    open
}

/// Finds an object as the cache has it.
async fn cached(api: &Api, standing: &Standing) -> Result<Option<Value>, String> {
    let kind = standing.kind;
    let Some(resource) = api.resources.builtin(kind.group, kind.version, kind.plural) else {
        return Ok(None);
    };
    let namespace = Some(value::namespace(&standing.object)).filter(|n| !n.is_empty());
    let found = resource
        .store
        .get(namespace, standing.name(), ReadVersion::Any);
    match found.await {
        Ok(object) => object.to_value().map(Some).map_err(|e| e.to_string()),
        Err(status) if status.reason == meta::Reason::NotFound => Ok(None),
        Err(status) => Err(status.to_string()),
    }
}

/// Lists the objects of the kinds of these, as the caches have them.
async fn cached_of(api: &Api, of: &[Standing]) -> Result<Vec<Value>, String> {
    let mut kinds: Vec<&'static Kind> = of.iter().map(|s| s.kind).collect();
    kinds.dedup_by_key(|kind| kind.plural);
    let mut all = Vec::new();
    for kind in kinds {
        all.extend(all_cached(api, kind.group, kind.plural).await?);
    }
    Ok(all)
}

/// Lists the objects of a kind, as the cache has them.
async fn all_cached(api: &Api, group: &str, plural: &str) -> Result<Vec<Value>, String> {
    let Some(resource) = api.resources.builtin(group, "v1", plural) else {
        return Ok(Vec::new());
    };
    let request = ListRequest {
        version: ReadVersion::Any,
        ..ListRequest::default()
    };
    let list = resource.store.list(request).await;
    let items = list.map_err(|status| status.to_string())?.items;
    let values = items.iter().map(|object| object.to_value());
    values.collect::<Result<_, _>>().map_err(|e| e.to_string())
}

/// Returns the path of the collection that an object is in.
fn path(kind: &Kind, object: &Value) -> String {
    let root = match kind.group {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    match value::namespace(object) {
        "" => format!("{root}/{}", kind.plural),
        namespace => format!("{root}/namespaces/{namespace}/{}", kind.plural),
    }
}

/// Writes what is due. That another server was faster is as good: then a name is taken,
/// or what goes with it, as a service's address, which is looked at first. The cache may
/// not have seen yet what was made a moment ago, not even here.
async fn write(api: &Arc<Api>, kind: &Kind, manager: &str, due: Option<Due>) -> Result<(), String> {
    let (method, object, path) = match due {
        None => return Ok(()),
        Some(Due::Create(object)) => {
            let path = path(kind, &object);
            (Method::POST, object, path)
        }
        Some(Due::Replace(object)) => {
            let path = format!("{}/{}", path(kind, &object), value::name(&object));
            (Method::PUT, object, path)
        }
    };
    let uri = format!("{path}?fieldManager={manager}");
    let itself = format!("{path}/{}", value::name(&object));
    let (code, text) = call(api, method.clone(), &uri, manager, Some(object)).await?;
    match code {
        code if code.is_success() => return Ok(()),
        StatusCode::CONFLICT => return Ok(()),
        StatusCode::NOT_FOUND if method == Method::PUT => return Ok(()),
        StatusCode::UNPROCESSABLE_ENTITY if method == Method::POST => {
            let (there, _) = call(api, Method::GET, &itself, manager, None).await?;
            if there.is_success() {
                return Ok(());
            }
        }
        _ => {}
    }
    Err(format!("{method} {path}: {code} {text}"))
}

/// Deletes an object in the state that was judged.
async fn remove(api: &Arc<Api>, object: &Value, manager: &str) -> Result<(), String> {
    let (api_version, kind) = value::type_meta(object);
    let Some(kind) = registry::kinds::find_kind(api_version, kind) else {
        return Ok(());
    };
    let path = format!("{}/{}", path(kind, object), value::name(object));
    let only = serde_json::json!({"preconditions": {
        "uid": value::uid(object),
        "resourceVersion": value::str_at(object, "metadata.resourceVersion"),
    }});
    match call(api, Method::DELETE, &path, manager, Some(only)).await? {
        (code, _) if code.is_success() => Ok(()),
        (StatusCode::CONFLICT | StatusCode::NOT_FOUND, _) => Ok(()),
        (code, text) => Err(format!("DELETE {path}: {code} {text}")),
    }
}

async fn call(
    api: &Arc<Api>,
    method: Method,
    path: &str,
    agent: &str,
    object: Option<Value>,
) -> Result<(StatusCode, String), String> {
    let bytes = object.map(|o| o.to_string()).unwrap_or_default();
    let kind = match method {
        Method::PATCH => "application/apply-patch+yaml",
        _ => JSON,
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .header(http::header::USER_AGENT, agent)
        .body(body::full(Bytes::from(bytes)))
        .map_err(|e| e.to_string())?;
    let user = UserInfo::component("system:apiserver");
    let response = api.clone().handle(Peer::InProcess(user), request).await;
    let code = response.status();
    let bytes = response
        .into_body()
        .collect()
        .await
        .map_err(|e| e.to_string())?
        .to_bytes();
    Ok((code, String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Config, Server, StoreSource};
    use crate::storage::memory::MemoryStore;

    /// The cache may be behind: what it does not show may be there, and its address taken.
    #[tokio::test]
    async fn what_is_there_already_is_as_good_as_made() {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreSource::Other(Arc::new(MemoryStore::default()));
        let config = Config::new(store, dir.path().join("pki"), 0);
        let running = Server::start(config).await.unwrap();
        let api = running.api.clone();
        let address = api.service_ips.range().first().to_string();
        let made = standing::service(&address, 443).unwrap();
        let again = write(
            &api,
            made.kind,
            MANAGER,
            Some(Due::Create(made.object.clone())),
        );
        assert_eq!(again.await, Ok(()));

        let mut other = made.object.clone();
        value::set_metadata(&mut other, "name", "other");
        let taken = write(&api, made.kind, MANAGER, Some(Due::Create(other)));
        let said = taken.await.unwrap_err();
        assert!(said.contains("provided IP is already allocated"), "{said}");
        running.shutdown().await;
    }
}
