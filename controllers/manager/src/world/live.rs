//! The world over a real API server.

use std::sync::Arc;

use async_trait::async_trait;
use client::indexer::{BY_NODE_NAME, node_name};
use client::{
    Client, DeleteParams, Discovery, Error, EventRecorder, InformerFactory, InformerOptions,
    KubeObject, ListParams, PartialObject, Patch, ResourceRef, StaticResource,
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use meta::GroupVersionResource;
use plan::serviceaccount::ROOT_CA;
use plan::{EventType, Propagation, Target, Write};
use serde_json::Value;

use super::{Api, BY_CONTROLLER, Caches, World, controller_uid};

/// Is where kubelets keep their Leases.
pub const NODE_LEASES: &str = "kube-node-lease";

/// Names the component an event comes from, by the kind of object it is about:
/// `kubectl describe` shows it in the column `From`.
const COMPONENTS: [(&str, &str); 5] = [
    ("ReplicaSet", "replicaset-controller"),
    ("Deployment", "deployment-controller"),
    ("Node", "node-controller"),
    ("Pod", "taint-eviction-controller"),
    ("", "garbage-collector-controller"),
];

/// Builds the world over the factory's client. The factory is started by the
/// caller, once every controller has subscribed.
pub fn world(factory: &InformerFactory) -> World {
    let client = factory.client().clone();
    let recorder = |component| EventRecorder::new(client.clone(), component, None);
    let recorders = COMPONENTS.map(|(kind, component)| (kind, recorder(component)));
    World {
        api: Arc::new(LiveApi { client, recorders }),
        caches: caches(factory),
    }
}

fn caches(factory: &InformerFactory) -> Caches {
    let pods = factory.informer::<Pod>(InformerOptions::all());
    pods.add_index(BY_CONTROLLER, |pod| controller_uid(pod.meta()));
    pods.add_index(BY_NODE_NAME, node_name);
    let replica_sets = factory.informer::<ReplicaSet>(InformerOptions::all());
    replica_sets.add_index(BY_CONTROLLER, |set| controller_uid(set.meta()));
    Caches {
        pods: Arc::new(pods),
        replica_sets: Arc::new(replica_sets),
        deployments: all(factory),
        namespaces: all(factory),
        nodes: all(factory),
        node_leases: Arc::new(factory.informer(InformerOptions::all().namespace(NODE_LEASES))),
        service_accounts: all(factory),
        root_cas: Arc::new(
            factory.informer(InformerOptions::all().fields(format!("metadata.name={ROOT_CA}"))),
        ),
    }
}

fn all<T: StaticResource>(factory: &InformerFactory) -> super::Cache<T> {
    Arc::new(factory.informer::<T>(InformerOptions::all()))
}

struct LiveApi {
    client: Client,
    /// Holds one recorder per entry of [`COMPONENTS`].
    recorders: [(&'static str, EventRecorder); 5],
}

impl LiveApi {
    async fn delete(&self, write: &Write) -> Result<Value, Error> {
        let Write::Delete {
            target,
            uid,
            propagation,
            grace_seconds,
        } = write
        else {
            return Ok(Value::Null);
        };
        let params = DeleteParams {
            grace: *grace_seconds,
            propagation: propagation.map(policy),
            uid: uid.clone(),
            resource_version: None,
        };
        let resource = self.client.dynamic(resource_of(target));
        let left = resource
            .delete(target.namespace.as_deref(), &target.name, &params)
            .await?;
        Ok(left.unwrap_or_default())
    }

    fn tell(&self, write: &Write) {
        if let Write::Event {
            regarding,
            type_,
            reason,
            message,
        } = write
        {
            let type_ = match type_ {
                EventType::Normal => client::EventType::Normal,
                EventType::Warning => client::EventType::Warning,
            };
            let kind = regarding.kind.as_deref().unwrap_or_default();
            let recorder = self
                .recorders
                .iter()
                .find(|(known, _)| *known == kind || known.is_empty());
            if let Some((_, recorder)) = recorder {
                recorder.event(regarding, type_, *reason, message.clone());
            }
        }
    }
}

fn resource_of(target: &Target) -> ResourceRef {
    ResourceRef {
        gvr: target.gvr.clone(),
        namespaced: target.namespace.is_some(),
    }
}

fn policy(propagation: Propagation) -> client::Propagation {
    match propagation {
        Propagation::Background => client::Propagation::Background,
        Propagation::Foreground => client::Propagation::Foreground,
        Propagation::Orphan => client::Propagation::Orphan,
    }
}

/// Turns "there is none" into an answer.
fn found<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[async_trait]
impl Api for LiveApi {
    async fn execute(&self, write: &Write) -> Result<Value, Error> {
        match write {
            Write::Create {
                gvr,
                namespace,
                body,
            } => {
                let resource = ResourceRef {
                    gvr: gvr.clone(),
                    namespaced: namespace.is_some(),
                };
                self.client
                    .dynamic(resource)
                    .create(namespace.as_deref(), body)
                    .await
            }
            Write::Replace {
                target,
                subresource,
                body,
            } => {
                let resource = self.client.dynamic(resource_of(target));
                let (ns, name) = (target.namespace.as_deref(), target.name.as_str());
                match subresource {
                    None => resource.update(ns, name, body).await,
                    Some(sub) => resource.update_subresource(ns, name, sub, body).await,
                }
            }
            Write::Patch {
                target,
                subresource,
                patch,
            } => {
                let resource = self.client.dynamic(resource_of(target));
                let (ns, name) = (target.namespace.as_deref(), target.name.as_str());
                let patch = Patch::Merge(patch.clone());
                match subresource {
                    Some(_) => resource.patch_status(ns, name, &patch).await,
                    None => resource.patch(ns, name, &patch).await,
                }
            }
            Write::Delete { .. } => self.delete(write).await,
            Write::DeleteCollection { gvr, namespace } => {
                let resource = self.client.dynamic(ResourceRef::namespaced(gvr.clone()));
                let params = DeleteParams::background();
                resource
                    .delete_collection(Some(namespace), &params, &ListParams::default())
                    .await?;
                Ok(Value::Null)
            }
            Write::Event { .. } => {
                self.tell(write);
                Ok(Value::Null)
            }
        }
    }

    async fn read(&self, target: &Target) -> Result<Option<PartialObject>, Error> {
        let resource = self.client.metadata(resource_of(target));
        found(
            resource
                .get(target.namespace.as_deref(), &target.name)
                .await,
        )
    }

    async fn read_whole(&self, target: &Target) -> Result<Option<Value>, Error> {
        let resource = self.client.dynamic(resource_of(target));
        found(
            resource
                .get(target.namespace.as_deref(), &target.name)
                .await,
        )
    }

    async fn list(
        &self,
        gvr: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<PartialObject>, Error> {
        let resource = self.client.metadata(ResourceRef::namespaced(gvr.clone()));
        resource
            .list_all(Some(namespace), &ListParams::default())
            .await
    }

    async fn discover(&self) -> Result<Discovery, Error> {
        self.client.discover().await
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
