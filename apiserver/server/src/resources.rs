//! Which resources are served, and where each one's objects are.
//!
//! The built-in ones never change. The custom ones come and go with their
//! definitions: they are one table, read as a whole and replaced as a whole, so
//! that a request sees one state of it, and documents made of it belong to it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use registry::fieldmerge::Endpoints;
use registry::{Kind, KindRef};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::discovery::Discovery;
use crate::openapi::OpenApi;
use crate::protobuf;
use crate::storage::{ResourceConfig, ResourceStore, Store};

/// A served resource: its kind and where its objects are kept. Two versions of
/// one resource share a store.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// What it is.
    pub(crate) kind: KindRef,
    /// Where its objects are.
    pub(crate) store: Arc<ResourceStore>,
    /// What field merge knows of it.
    pub(crate) fields: Arc<Endpoints>,
    /// Whether its objects have no form in protobuf.
    pub(crate) text_only: bool,
}

impl Resource {
    /// Describes a resource.
    pub(crate) fn new(kind: KindRef, store: Arc<ResourceStore>) -> Self {
        Self {
            text_only: !protobuf::is_known(&kind.api_version(), kind.kind),
            kind,
            store,
            fields: Arc::default(),
        }
    }
}

/// Resources by plural, which nearly always leaves one to look at.
type ByPlural = BTreeMap<&'static str, Vec<Resource>>;

fn find<'a>(table: &'a ByPlural, group: &str, version: &str, plural: &str) -> Option<&'a Resource> {
    table
        .get(plural)?
        .iter()
        .find(|r| r.kind.group == group && r.kind.version == version)
}

/// The custom resources at one moment, and what is said of all resources while
/// it lasts.
#[derive(Debug, Default)]
pub(crate) struct Custom {
    resources: ByPlural,
    /// The discovery documents.
    pub(crate) discovery: Discovery,
    /// The OpenAPI documents.
    pub(crate) openapi: OpenApi,
}

impl Custom {
    /// Makes a table.
    pub(crate) fn new(resources: impl IntoIterator<Item = Resource>) -> Self {
        let mut table = Self::default();
        for resource in resources {
            let same = table.resources.entry(resource.kind.plural).or_default();
            same.push(resource);
        }
        table
    }

    /// Walks the kinds.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &KindRef> {
        self.resources.values().flatten().map(|r| &r.kind)
    }

    /// Returns every kind that is served, the built-in ones first.
    pub(crate) fn all_kinds(&self) -> Vec<KindRef> {
        let builtin = registry::kinds::all().iter().map(|k| KindRef::from(*k));
        builtin.chain(self.kinds().cloned()).collect()
    }
}

/// Every resource that is served.
#[derive(Debug)]
pub(crate) struct Resources {
    builtin: ByPlural,
    custom: RwLock<Arc<Custom>>,
}

impl Resources {
    /// Starts keeping the built-in resources.
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        event_ttl_seconds: u64,
        token: &CancellationToken,
    ) -> Self {
        let mut stores: BTreeMap<&'static str, Arc<ResourceStore>> = BTreeMap::new();
        let mut builtin = ByPlural::new();
        // Storage kinds first: a store is named after the kind it stores.
        for stored in [true, false] {
            for kind in registry::kinds::all().iter().copied() {
                if kind.conversion.is_none() != stored {
                    continue;
                }
                let kept = stores.entry(kind.storage_prefix).or_insert_with(|| {
                    let config = config(kind, event_ttl_seconds);
                    ResourceStore::start(store.clone(), config, token.clone())
                });
                let resource = Resource::new(kind.into(), kept.clone());
                builtin.entry(kind.plural).or_default().push(resource);
            }
        }
        Self {
            builtin,
            custom: RwLock::default(),
        }
    }

    /// Returns a served resource.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Resource> {
        self.builtin(group, version, plural)
            .cloned()
            .or_else(|| find(&self.custom().resources, group, version, plural).cloned())
    }

    /// Returns a built-in resource.
    pub(crate) fn builtin(&self, group: &str, version: &str, plural: &str) -> Option<&Resource> {
        find(&self.builtin, group, version, plural)
    }

    /// Returns the custom resources as they are now.
    pub(crate) fn custom(&self) -> Arc<Custom> {
        // A panic under the lock is impossible: it only guards a pointer.
        let table = self.custom.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&table)
    }

    /// Replaces the custom resources.
    pub(crate) fn replace_custom(&self, table: Custom) {
        *self.custom.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    /// Returns every resource's storage, once each.
    pub(crate) fn stores(&self) -> Vec<Arc<ResourceStore>> {
        let custom = self.custom();
        let by_prefix: BTreeMap<&str, &Arc<ResourceStore>> = self
            .builtin
            .values()
            .chain(custom.resources.values())
            .flatten()
            .map(|r| (r.kind.storage_prefix, &r.store))
            .collect();
        by_prefix.into_values().cloned().collect()
    }
}

fn config(kind: &'static Kind, event_ttl_seconds: u64) -> ResourceConfig {
    ResourceConfig {
        resource: kind.group_resource(),
        storage_prefix: kind.storage_prefix.to_owned(),
        namespaced: kind.namespaced,
        selectable,
        // Every kubelet watches the pods of its node: the one watch that must
        // not cost work for other nodes' pods.
        index_field: kind
            .selectable
            .iter()
            .copied()
            .find(|f| *f == "spec.nodeName"),
        ttl: (kind.ttl_seconds > 0).then_some(event_ttl_seconds),
        reader: None,
    }
}

/// Finds the selectable fields of a stored object of any built-in kind.
fn selectable(object: &Value) -> Vec<(&'static str, String)> {
    let (api_version, kind) = meta::value::type_meta(object);
    registry::kinds::find_kind(api_version, kind)
        .map(|k| k.selectable_fields(object))
        .unwrap_or_default()
}
