//! The namespace controller's shell: empties what is being deleted.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Error, InformerEvent, KubeObject, ObjectKey};
use k8s_openapi::api::core::v1::Namespace;
use plan::namespace::{self as planner, Content, Pass, Remaining, Step};
use plan::{Target, Write};

use crate::controller::{Controller, Reconcile, Requeue};
use crate::world::World;

/// Is how many namespaces are emptied at a time (upstream's default).
const WORKERS: usize = 10;

struct Namespaces {
    world: World,
}

/// Describes the controller.
pub fn controller(world: &World) -> Controller {
    let caches = &world.caches;
    let namespaces = Arc::clone(&caches.namespaces);
    Controller::new(
        "namespace",
        WORKERS,
        Arc::new(Namespaces {
            world: world.clone(),
        }),
    )
    .watch(&caches.namespaces, |change| {
        [ObjectKey::new("", change.object().name())]
    })
    .watch(&caches.pods, move |change| {
        // A namespace waits for its pods; the last one to go need not be
        // waited for by the clock.
        let InformerEvent::Deleted(pod) = change else {
            return None;
        };
        let namespace = namespaces
            .store()
            .get_by("", pod.namespace().unwrap_or_default())?;
        namespace.is_deleting().then(|| namespace.key())
    })
}

#[async_trait]
impl Reconcile for Namespaces {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let Some(namespace) = self.world.caches.namespaces.store().get(key) else {
            return Ok(Requeue::Done);
        };
        match planner::step(&namespace) {
            Step::Nothing => Ok(Requeue::Done),
            Step::Announce(write) => {
                // The change comes back and is acted on then: other controllers
                // and the API must know before the contents go.
                self.world.api.execute(&write).await?;
                Ok(Requeue::Done)
            }
            Step::Empty => self.empty(&namespace).await,
        }
    }
}

impl Namespaces {
    async fn empty(&self, namespace: &Namespace) -> Result<Requeue, Error> {
        let name = planner::name(namespace);
        let mut pass = Pass::default();
        let contents = self.contents(&mut pass).await?;
        for stage in Pass::resources(&contents) {
            for content in stage {
                match self.clear(content, name).await {
                    Ok(remaining) => pass.found(&content.gvr, remaining),
                    Err(error) => pass.deletion_failed(&content.gvr, &error.to_string()),
                }
            }
            if !pass.is_empty() {
                break;
            }
        }
        let outcome = pass.finish(namespace, self.world.api.now());
        self.world.execute_all(&outcome.writes).await?;
        Ok(outcome.requeue_after.into())
    }

    async fn contents(&self, pass: &mut Pass) -> Result<Vec<Content>, Error> {
        let discovery = self.world.api.discover().await?;
        for (group, error) in &discovery.failed {
            pass.discovery_failed(format!("{group}: {error}"));
        }
        Ok(discovery
            .preferred()
            .filter(|found| found.resource.namespaced && found.supports(&["list", "delete"]))
            .map(|found| Content {
                gvr: found.resource.gvr.clone(),
                collection: found.supports(&["deletecollection"]),
            })
            .collect())
    }

    /// Asks for the deletion of a resource's objects and says what is left.
    async fn clear(&self, content: &Content, namespace: &str) -> Result<Remaining, Error> {
        let api = &self.world.api;
        let before = api.list(&content.gvr, namespace).await?;
        if before.is_empty() {
            return Ok(Remaining::default());
        }
        if content.collection {
            let gvr = content.gvr.clone();
            let namespace = namespace.to_owned();
            api.execute(&Write::DeleteCollection { gvr, namespace })
                .await?;
        } else {
            let deletions: Vec<Write> = before
                .iter()
                .map(|found| Write::Delete {
                    target: Target {
                        gvr: content.gvr.clone(),
                        namespace: Some(namespace.to_owned()),
                        name: found.name().to_owned(),
                    },
                    uid: Some(found.uid().to_owned()),
                    propagation: Some(plan::Propagation::Background),
                    grace_seconds: None,
                })
                .collect();
            self.world.execute_all(&deletions).await?;
        }
        let is_pod = content.gvr.group.is_empty() && content.gvr.resource == "pods";
        let mut remaining = Remaining::default();
        for found in api.list(&content.gvr, namespace).await? {
            planner::tally(&mut remaining, found.meta(), is_pod);
        }
        Ok(remaining)
    }
}
