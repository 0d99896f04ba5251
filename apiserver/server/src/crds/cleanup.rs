//! The end of a definition: its objects are deleted, waited for, and then it is
//! let go.

use std::sync::Arc;
use std::time::Duration;

use meta::{Reason, Status, value};
use registry::crd::CustomResource;
use registry::crd::conditions::{self, Condition};
use registry::rest::DeleteOptions;
use serde_json::Value;

use crate::api::{Api, Target};
use crate::resources::Resource;
use crate::storage::{ListRequest, Preconditions, ReadVersion, ResourceStore};
use crate::verbs;

/// How long objects that finalizers hold are waited for before the definition
/// says so (upstream: a minute).
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The pause after a failure, doubled up to the greatest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// A definition that is being deleted, and what was served of it.
pub(super) struct Cleanup {
    pub(super) api: Arc<Api>,
    pub(super) definitions: Arc<ResourceStore>,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) served: Option<(CustomResource, Arc<ResourceStore>)>,
}

/// Why it is not done yet: the condition's reason and message.
type Unfinished = (&'static str, String);

impl Cleanup {
    /// Goes on until the definition is gone.
    pub(super) async fn run(self) {
        let mut pause = PAUSE.0;
        while let Some(error) = self.attempt().await.err() {
            tracing::info!(name = self.name, %error, "a definition is not cleaned up yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn attempt(&self) -> Result<(), Status> {
        let begun = Condition::terminating(
            true,
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        let Some(definition) = self.say(&begun).await? else {
            return Ok(());
        };
        let ended = match &self.served {
            Some((resource, store))
                if conditions::is_true(&definition, conditions::ESTABLISHED) =>
            {
                match self.delete_all(resource, store).await {
                    Ok(()) => Condition::terminating(
                        false,
                        "InstanceDeletionCompleted",
                        "removed all instances",
                    ),
                    Err((reason, message)) => {
                        let held = Condition::terminating(true, reason, message.clone());
                        self.say(&held).await?;
                        return Err(Status::internal(message));
                    }
                }
            }
            None if conditions::is_true(&definition, conditions::ESTABLISHED) => {
                // It is served, by this server too, in a moment.
                return Err(Status::internal("the resource is not served yet"));
            }
            _ => {
                Condition::terminating(false, "NeverEstablished", "resource was never established")
            }
        };
        self.let_go(&ended).await
    }

    /// Returns the definition if it is still there and still to be cleaned up.
    async fn current(&self) -> Result<Option<Value>, Status> {
        match self
            .definitions
            .get(None, &self.name, ReadVersion::Unset)
            .await
        {
            Ok(object) => {
                let definition = object.to_value().map_err(Status::internal)?;
                let same = value::uid(&definition) == self.uid;
                Ok(Some(definition).filter(|d| same && conditions::needs_cleanup(d)))
            }
            Err(s) if s.reason == Reason::NotFound => Ok(None),
            Err(s) => Err(s),
        }
    }

    /// Writes a condition; returns the definition, or `None` when it is done.
    async fn say(&self, condition: &Condition) -> Result<Option<Value>, Status> {
        let Some(mut definition) = self.current().await? else {
            return Ok(None);
        };
        let now = jiff::Timestamp::now();
        super::put(&self.definitions, &definition, |d| {
            conditions::set(d, condition, now);
        })
        .await?;
        conditions::set(&mut definition, condition, now);
        Ok(Some(definition))
    }

    async fn delete_all(
        &self,
        resource: &CustomResource,
        store: &Arc<ResourceStore>,
    ) -> Result<(), Unfinished> {
        let failed = |error: Status| {
            let message = format!("could not list instances: {error}");
            ("InstanceDeletionFailed", message)
        };
        let options = DeleteOptions::default();
        let mut changes = store.changes();
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        loop {
            changes.mark_unchanged();
            let list = store.list(ListRequest::default()).await.map_err(failed)?;
            if list.items.is_empty() {
                return Ok(());
            }
            for object in &list.items {
                let namespace = Some(object.meta.namespace.clone()).filter(|n| !n.is_empty());
                let target = Target {
                    resource: Resource::new(resource.stored.clone().into(), store.clone()),
                    namespace: namespace.clone(),
                    name: object.meta.name.clone(),
                };
                if object.meta.deletion_timestamp.is_some() {
                    continue;
                }
                let ns = namespace.as_deref();
                let deleted =
                    verbs::delete_one(&self.api, &target, &target.name, ns, &options).await;
                if let Err(error) = deleted.map(|_| ())
                    && error.reason != Reason::NotFound
                {
                    let message = format!("could not issue all deletes: {error}");
                    return Err(("InstanceDeletionFailed", message));
                }
            }
            if tokio::time::timeout_at(deadline, changes.changed())
                .await
                .is_err()
            {
                let message = "could not confirm zero CustomResources remaining: timed out waiting for the condition";
                return Err(("InstanceDeletionCheck", message.to_owned()));
            }
        }
    }

    /// Says how it ended and takes the finalizer away; removes the definition if
    /// nothing else holds it.
    async fn let_go(&self, ended: &Condition) -> Result<(), Status> {
        let Some(definition) = self.current().await? else {
            return Ok(());
        };
        let now = jiff::Timestamp::now();
        let mut after = definition.clone();
        conditions::set(&mut after, ended, now);
        conditions::cleaned_up(&mut after);
        let held = value::at(&after, "metadata.finalizers").is_some();
        if held {
            return super::put(&self.definitions, &definition, |d| {
                conditions::set(d, ended, now);
                conditions::cleaned_up(d);
            })
            .await;
        }
        let exactly = Preconditions {
            uid: Some(self.uid.clone()),
            resource_version: Some(
                value::str_at(&definition, "metadata.resourceVersion").to_owned(),
            ),
        };
        let gone = self
            .definitions
            .delete(None, &self.name, &exactly, |_| Ok(()))
            .await;
        match gone {
            Err(s) if s.reason != Reason::NotFound => Err(s),
            _ => Ok(()),
        }
    }
}
