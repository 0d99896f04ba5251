//! The machinery around CustomResourceDefinitions: it serves what they define,
//! writes their status, and lets them go when their objects are gone.
//!
//! One task looks at all definitions whenever one changes, here or on another
//! server over the same store. Level-triggered: it compares what they say with
//! what it serves and with what their status says, and acts on the difference,
//! so that it does not matter which change woke it. What is to be written is
//! decided in [`registry::crd::conditions`]; a resource is served before its
//! definition is called Established.

mod cleanup;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use meta::{Object, Reason, Status, value};
use registry::crd::{self, CustomResource, Renewer, conditions};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::resources::{Custom, Resource};
use crate::storage::{
    ListRequest, Preconditions, Read, ReadVersion, Reader, ResourceConfig, ResourceStore,
};

/// How long a resource that is served no more goes on for those who were
/// reading it: they see its last events, and their requests end.
const LINGER: Duration = Duration::from_secs(1);
/// After how long a pass that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A definition's resource as it is served.
struct Served {
    /// What it was made of: it is made anew when that changes.
    made_of: MadeOf,
    resource: CustomResource,
    store: Arc<ResourceStore>,
    token: CancellationToken,
}

/// The parts of a definition by which its resource is served.
#[derive(PartialEq)]
struct MadeOf {
    uid: String,
    spec: Value,
    names: Value,
    ending: bool,
}

impl MadeOf {
    fn of(definition: &Value) -> Self {
        let part = |path: &str| value::at(definition, path).cloned().unwrap_or_default();
        Self {
            uid: value::uid(definition).to_owned(),
            spec: part("spec"),
            names: part("status.acceptedNames"),
            ending: conditions::is_true(definition, conditions::TERMINATING),
        }
    }

    /// Tells whether the same objects, read alike, can be served on.
    fn reads_alike(&self, other: &Self) -> bool {
        (&self.uid, &self.spec, &self.names) == (&other.uid, &other.spec, &other.names)
    }
}

impl Read for Renewer {
    fn renew(&self, object: &mut Value) -> bool {
        Renewer::renew(self, object)
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        Renewer::selectable(self, object)
    }
}

/// Serves what definitions define until the server stops.
pub(crate) async fn run(api: Arc<Api>, storage: CancellationToken) {
    let Some(definitions) = api.resources.builtin(crd::GROUP, "v1", crd::PLURAL) else {
        return;
    };
    let mut keeper = Keeper {
        definitions: definitions.store.clone(),
        served: BTreeMap::new(),
        cleanups: BTreeMap::new(),
        storage: storage.clone(),
        api: api.clone(),
        seen: None,
    };
    keeper.definitions.ready().await;
    let mut changes = keeper.definitions.changes();
    loop {
        changes.mark_unchanged();
        let failed = keeper.pass().await.inspect_err(|error| {
            tracing::warn!(%error, "cannot look after the custom resources, trying again");
        });
        if failed.is_ok() {
            api.custom_served.send_replace(true);
        }
        let again = async {
            match failed {
                Ok(()) => std::future::pending().await,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        tokio::select! {
            () = storage.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

struct Keeper {
    api: Arc<Api>,
    definitions: Arc<ResourceStore>,
    /// By the definition's name.
    served: BTreeMap<String, Served>,
    /// The definitions that are being cleaned up, by uid.
    cleanups: BTreeMap<String, tokio::task::JoinHandle<()>>,
    storage: CancellationToken,
    /// The versions of the definitions that the last pass saw, if nothing was
    /// left to do.
    seen: Option<Vec<u64>>,
}

impl Keeper {
    /// Brings what is served, and what is written, to what the definitions say.
    async fn pass(&mut self) -> Result<(), Status> {
        let request = ListRequest {
            version: ReadVersion::Any,
            ..ListRequest::default()
        };
        let list = self.definitions.list(request).await?;
        let versions: Vec<u64> = list.items.iter().map(|o| o.resource_version.0).collect();
        // A cache also says so when only the rest of the store has moved on.
        if self.seen.as_ref() == Some(&versions) {
            return Ok(());
        }
        let decode = |object: &Arc<Object>| object.to_value().map_err(Status::internal);
        let definitions: Vec<Value> = list.items.iter().map(decode).collect::<Result<_, _>>()?;
        self.serve(&definitions).await;
        let served: BTreeSet<String> = self
            .served
            .values()
            .map(|s| s.made_of.uid.clone())
            .collect();
        let now = jiff::Timestamp::now();
        for new in conditions::plan(&definitions, &served, now) {
            self.write(&new).await?;
        }
        self.clean_up(&definitions);
        self.seen = Some(versions);
        Ok(())
    }

    /// Serves what is to be served, as it is to be, and nothing else.
    async fn serve(&mut self, definitions: &[Value]) {
        let wanted: BTreeMap<&str, &Value> = definitions
            .iter()
            .filter(|d| conditions::is_served(d))
            .map(|d| (value::name(d), d))
            .collect();
        let mut gone: Vec<Served> = Vec::new();
        let mut made: Vec<(String, Served, bool)> = Vec::new();
        let mut changed = false;
        let names: Vec<String> = self.served.keys().cloned().collect();
        for name in names.iter().filter(|n| !wanted.contains_key(n.as_str())) {
            gone.extend(self.served.remove(name));
            changed = true;
        }
        for (name, definition) in wanted {
            let made_of = MadeOf::of(definition);
            let old = self.served.get(name);
            if old.is_some_and(|s| s.made_of == made_of) {
                continue;
            }
            let Some(resource) = CustomResource::of(definition) else {
                tracing::warn!(name, "a definition cannot be served");
                continue;
            };
            let kept = old.filter(|s| s.made_of.reads_alike(&made_of));
            let kept = kept.map(|s| (s.store.clone(), s.token.clone()));
            let fresh = kept.is_none();
            let (store, token) = kept.unwrap_or_else(|| self.start(&resource));
            let new = Served {
                made_of,
                resource,
                store,
                token,
            };
            made.push((name.to_owned(), new, fresh));
        }
        for (name, new, fresh) in made {
            new.store.ready().await;
            let old = self.served.insert(name, new);
            gone.extend(old.filter(|_| fresh));
            changed = true;
        }
        if changed {
            self.publish();
        }
        for old in gone {
            tokio::spawn(async move {
                tokio::time::sleep(LINGER).await;
                old.token.cancel();
            });
        }
    }

    fn start(&self, resource: &CustomResource) -> (Arc<ResourceStore>, CancellationToken) {
        let token = self.storage.child_token();
        let config = ResourceConfig {
            resource: resource.resource.clone(),
            storage_prefix: resource.storage_prefix.to_owned(),
            namespaced: resource.namespaced,
            selectable: |_| Vec::new(),
            index_field: None,
            ttl: None,
            reader: Some(Reader(Arc::new(resource.renewer.clone()))),
        };
        let store = ResourceStore::start(self.api.store.clone(), config, token.clone());
        (store, token)
    }

    /// Makes the new table visible to requests, as a whole.
    fn publish(&self) {
        let resources = self.served.values().flat_map(|served| {
            let kinds = served.resource.kinds.iter();
            kinds.map(|kind| Resource::new(kind.clone().into(), served.store.clone()))
        });
        self.api.resources.replace_custom(Custom::new(resources));
    }

    /// Writes a definition's status as it was decided. One that changed
    /// meanwhile is decided about again: its change wakes the task.
    async fn write(&self, new: &Value) -> Result<(), Status> {
        let status = new.get("status").cloned();
        put(&self.definitions, new, |definition| {
            registry::kind::put(definition, "status", status.clone());
        })
        .await
    }

    /// Begins what is left to do for definitions that are being deleted.
    fn clean_up(&mut self, definitions: &[Value]) {
        self.cleanups.retain(|_, task| !task.is_finished());
        for definition in definitions.iter().filter(|d| conditions::needs_cleanup(d)) {
            let uid = value::uid(definition).to_owned();
            if self.cleanups.contains_key(&uid) {
                continue;
            }
            let work = cleanup::Cleanup {
                api: self.api.clone(),
                definitions: self.definitions.clone(),
                name: value::name(definition).to_owned(),
                uid: uid.clone(),
                served: self
                    .served
                    .get(value::name(definition))
                    .map(|s| (s.resource.clone(), s.store.clone())),
            };
            let stop = self.storage.clone();
            let task = tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = work.run() => {}
                }
            });
            self.cleanups.insert(uid, task);
        }
    }
}

/// Changes a definition by compare-and-swap on the state that was judged; that
/// it changed or went meanwhile is no failure.
async fn put(
    store: &ResourceStore,
    judged: &Value,
    change: impl Fn(&mut Value) + Send,
) -> Result<(), Status> {
    let version = value::str_at(judged, "metadata.resourceVersion").to_owned();
    let exactly = Preconditions {
        uid: Some(value::uid(judged).to_owned()),
        resource_version: Some(version),
    };
    let outcome = store
        .guaranteed_update(None, value::name(judged), &exactly, |_, mut definition| {
            change(&mut definition);
            Ok(Some(definition))
        })
        .await;
    match outcome {
        Err(s) if !matches!(s.reason, Reason::Conflict | Reason::NotFound) => Err(s),
        _ => Ok(()),
    }
}
