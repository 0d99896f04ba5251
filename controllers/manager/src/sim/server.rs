//! An API server of the simulation: a map of objects, a version, a log of changes.
//!
//! It keeps the rules controllers rely on: compare-and-swap by resourceVersion,
//! uid preconditions, generations, finalizers, graceful pod deletion, namespaces
//! that refuse new contents while they go.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use client::{ApiResource, Discovery, Error, ResourceRef};
use jiff::{SignedDuration, Timestamp};
use meta::{GroupVersionResource, Status};
use plan::{Propagation, Target, Write};
use serde_json::{Value, json};

/// Lists what is served: group, version, resource, kind, namespaced.
pub(super) const RESOURCES: [(&str, &str, &str, &str, bool); 8] = [
    ("", "v1", "pods", "Pod", true),
    ("", "v1", "configmaps", "ConfigMap", true),
    ("", "v1", "serviceaccounts", "ServiceAccount", true),
    ("", "v1", "namespaces", "Namespace", false),
    ("", "v1", "nodes", "Node", false),
    ("apps", "v1", "replicasets", "ReplicaSet", true),
    ("apps", "v1", "deployments", "Deployment", true),
    ("coordination.k8s.io", "v1", "leases", "Lease", true),
];

/// Identifies an object: resource, namespace, name.
pub(super) type Key = (GroupVersionResource, String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Upsert,
    Delete,
}

#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) gvr: GroupVersionResource,
    pub(super) verb: Verb,
    pub(super) object: Value,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) log: Vec<Logged>,
    pub(super) now: Timestamp,
    next_id: u64,
}

#[derive(Debug)]
pub(super) struct Server(Mutex<Inner>);

impl Server {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Inner {
            objects: BTreeMap::new(),
            log: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            next_id: 0,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub(super) fn discovery() -> Discovery {
        let verbs = [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ];
        let resources = RESOURCES
            .iter()
            .map(|(group, version, resource, kind, namespaced)| ApiResource {
                resource: ResourceRef {
                    gvr: GroupVersionResource::new(*group, *version, *resource),
                    namespaced: *namespaced,
                },
                kind: (*kind).to_owned(),
                verbs: verbs.map(str::to_owned).into(),
                preferred: true,
            })
            .collect();
        Discovery {
            resources,
            failed: Vec::new(),
        }
    }
}

pub(super) fn gvr(resource: &str) -> GroupVersionResource {
    let found = RESOURCES
        .iter()
        .find(|(_, _, name, _, _)| *name == resource)
        .unwrap();
    GroupVersionResource::new(found.0, found.1, found.2)
}

fn refused(status: Status) -> Error {
    Error::Api(Box::new(status))
}

fn key_of(target: &Target) -> Key {
    (
        target.gvr.clone(),
        target.namespace.clone().unwrap_or_default(),
        target.name.clone(),
    )
}

fn finalizers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    list.iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

pub(super) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Applies a merge patch (RFC 7386).
pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let into = into.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            into.remove(key);
        } else {
            merge(into.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl Inner {
    pub(super) fn time(&self) -> String {
        // Whole seconds, as on the wire.
        Timestamp::from_second(self.now.as_second())
            .unwrap()
            .to_string()
    }

    pub(super) fn advance(&mut self, by: SignedDuration) {
        self.now = self.now.checked_add(by).unwrap();
    }

    pub(super) fn of<'a>(&'a self, resource: &str) -> impl Iterator<Item = (&'a Key, &'a Value)> {
        let wanted = gvr(resource);
        self.objects
            .iter()
            .filter(move |((gvr, _, _), _)| *gvr == wanted)
    }

    fn record(&mut self, key: Key, verb: Verb, mut object: Value) -> Value {
        let version = self.log.len() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.log.push(Logged {
            gvr: key.0.clone(),
            verb,
            object: object.clone(),
        });
        match verb {
            Verb::Upsert => self.objects.insert(key, object.clone()),
            Verb::Delete => self.objects.remove(&key),
        };
        object
    }

    pub(super) fn perform(&mut self, write: &Write) -> Result<Value, Error> {
        match write {
            Write::Create {
                gvr,
                namespace,
                body,
            } => self.create(gvr, namespace.as_deref().unwrap_or_default(), body.clone()),
            Write::Replace {
                target,
                subresource,
                body,
            } => self.replace(&key_of(target), *subresource, body.clone()),
            Write::Patch {
                target,
                subresource,
                patch,
            } => {
                let key = key_of(target);
                let mut next = self.get(&key)?.clone();
                self.check_preconditions(&key, &patch["metadata"])?;
                merge(&mut next, patch);
                self.replace(&key, *subresource, next)
            }
            Write::Delete {
                target,
                uid,
                propagation,
                grace_seconds,
            } => {
                let key = key_of(target);
                self.check_preconditions(&key, &json!({"uid": uid}))?;
                self.delete(&key, *propagation, *grace_seconds)
            }
            Write::DeleteCollection { gvr, namespace } => {
                let keys: Vec<Key> = self.objects.keys().cloned().collect();
                for key in keys
                    .iter()
                    .filter(|key| key.0 == *gvr && key.1 == *namespace)
                {
                    self.delete(key, Some(Propagation::Background), None)?;
                }
                Ok(Value::Null)
            }
            Write::Event { .. } => Ok(Value::Null),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Result<&Value, Error> {
        self.objects
            .get(key)
            .ok_or_else(|| refused(Status::not_found(&key.0.group_resource(), &key.2)))
    }

    fn check_preconditions(&self, key: &Key, metadata: &Value) -> Result<(), Error> {
        let current = &self.get(key)?["metadata"];
        let differs = |field: &str| {
            metadata[field]
                .as_str()
                .is_some_and(|wanted| !wanted.is_empty() && Some(wanted) != current[field].as_str())
        };
        if differs("uid") || differs("resourceVersion") {
            return Err(refused(Status::modified(&key.0.group_resource(), &key.2)));
        }
        Ok(())
    }

    fn create(
        &mut self,
        gvr: &GroupVersionResource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, Error> {
        if !namespace.is_empty() {
            let ns = self.get(&(self::gvr("namespaces"), String::new(), namespace.to_owned()))?;
            if is_deleting(ns) {
                let status = Status::forbidden(&gvr.group_resource(), "", "being terminated")
                    .with_cause(
                        "NamespaceTerminating",
                        "being terminated",
                        "metadata.namespace",
                    );
                return Err(refused(status));
            }
            object["metadata"]["namespace"] = json!(namespace);
        }
        self.next_id += 1;
        let id = self.next_id;
        let generated = object["metadata"]["generateName"]
            .as_str()
            .map(|base| format!("{base}{id:05}"));
        let name = object["metadata"]["name"]
            .as_str()
            .map(str::to_owned)
            .or(generated)
            .unwrap();
        let key = (gvr.clone(), namespace.to_owned(), name.clone());
        if self.objects.contains_key(&key) {
            return Err(refused(Status::already_exists(
                &gvr.group_resource(),
                &name,
            )));
        }
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        metadata["uid"] = json!(format!("uid-{id}"));
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!(self.time());
        match gvr.resource.as_str() {
            "namespaces" => {
                object["spec"]["finalizers"] = json!(["kubernetes"]);
                object["status"]["phase"] = json!("Active");
            }
            "pods" => {
                object["status"]["phase"] = json!("Pending");
                let tolerated = ["not-ready", "unreachable"].map(|key| {
                    json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
                        "effect": "NoExecute", "tolerationSeconds": 300})
                });
                object["spec"]["tolerations"] = json!(tolerated);
            }
            _ => {}
        }
        Ok(self.record(key, Verb::Upsert, object))
    }

    pub(super) fn replace(
        &mut self,
        key: &Key,
        subresource: Option<&str>,
        body: Value,
    ) -> Result<Value, Error> {
        self.check_preconditions(key, &body["metadata"])?;
        let current = self.get(key)?.clone();
        let mut next = match subresource {
            Some("status") => {
                let mut next = current.clone();
                next["status"] = body["status"].clone();
                next
            }
            Some("finalize") => {
                let mut next = current.clone();
                next["spec"]["finalizers"] = body["spec"]["finalizers"].clone();
                next
            }
            _ => {
                let mut next = body;
                next["status"] = current["status"].clone();
                for field in [
                    "uid",
                    "creationTimestamp",
                    "deletionTimestamp",
                    "generation",
                    "resourceVersion",
                ] {
                    next["metadata"][field] = current["metadata"][field].clone();
                }
                next
            }
        };
        if next == current {
            return Ok(current);
        }
        if next["spec"] != current["spec"] && subresource.is_none() {
            let generation = current["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            next["metadata"]["generation"] = json!(generation);
        }
        if is_deleting(&next) && self.may_go(key, &next) {
            return Ok(self.record(key.clone(), Verb::Delete, next));
        }
        Ok(self.record(key.clone(), Verb::Upsert, next))
    }

    /// Tells whether nothing holds an object that is being deleted.
    fn may_go(&self, key: &Key, object: &Value) -> bool {
        let held = match key.0.resource.as_str() {
            // Pods wait for their kubelet.
            "pods" => object["metadata"]["deletionGracePeriodSeconds"] != json!(0),
            "namespaces" => object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty()),
            _ => false,
        };
        !held && finalizers(object).is_empty()
    }

    pub(super) fn delete(
        &mut self,
        key: &Key,
        propagation: Option<Propagation>,
        grace: Option<i64>,
    ) -> Result<Value, Error> {
        let mut next = self.get(key)?.clone();
        let mut held = finalizers(&next);
        let asked = match propagation {
            Some(Propagation::Foreground) => Some(plan::gc::FOREGROUND),
            Some(Propagation::Orphan) => Some(plan::gc::ORPHAN),
            _ => None,
        };
        if let Some(name) = asked
            && !held.iter().any(|known| known == name)
        {
            held.push(name.to_owned());
            next["metadata"]["finalizers"] = json!(held);
        }
        if key.0.resource == "pods" {
            let unassigned = next["spec"]["nodeName"].is_null();
            let grace = if unassigned { 0 } else { grace.unwrap_or(30) };
            let known = next["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or(i64::MAX);
            next["metadata"]["deletionGracePeriodSeconds"] = json!(grace.min(known));
        }
        if key.0.resource == "namespaces" {
            next["status"]["phase"] = json!("Terminating");
        }
        if !is_deleting(&next) {
            next["metadata"]["deletionTimestamp"] = json!(self.time());
        }
        if next == *self.get(key)? {
            return Ok(next);
        }
        let verb = if self.may_go(key, &next) {
            Verb::Delete
        } else {
            Verb::Upsert
        };
        Ok(self.record(key.clone(), verb, next))
    }
}
