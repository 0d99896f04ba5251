//! The shells that furnish namespaces: default account and CA certificate.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Error, InformerEvent, KubeObject, ObjectKey};
use plan::Write;
use plan::serviceaccount::{self as planner, DEFAULT_ACCOUNT, ROOT_CA};

use crate::controller::{Controller, Reconcile, Requeue};
use crate::world::World;

/// Is how many namespaces are furnished at a time.
const WORKERS: usize = 1;

struct Accounts {
    world: World,
}

/// Describes the controller of default ServiceAccounts.
pub fn accounts(world: &World) -> Controller {
    let caches = &world.caches;
    Controller::new(
        "serviceaccount",
        WORKERS,
        Arc::new(Accounts {
            world: world.clone(),
        }),
    )
    .watch(&caches.namespaces, |change| {
        [ObjectKey::new("", change.object().name())]
    })
    .watch(&caches.service_accounts, |change| {
        namespace_if_changed(change, DEFAULT_ACCOUNT)
    })
}

struct RootCas {
    world: World,
    ca: String,
}

/// Describes the publisher of the cluster's CA certificate.
pub fn root_cas(world: &World, ca: &str) -> Controller {
    let caches = &world.caches;
    let reconciler = RootCas {
        world: world.clone(),
        ca: ca.to_owned(),
    };
    Controller::new(
        "root-ca-certificate-publisher",
        WORKERS,
        Arc::new(reconciler),
    )
    .watch(&caches.namespaces, |change| {
        [ObjectKey::new("", change.object().name())]
    })
    .watch(&caches.root_cas, |change| {
        namespace_if_changed(change, ROOT_CA)
    })
}

/// Names the namespace whose furnishing somebody changed or removed. One that
/// came into view was made by us, or is looked at with its namespace.
fn namespace_if_changed<T: KubeObject>(change: &InformerEvent<T>, name: &str) -> Option<ObjectKey> {
    let object = change.object();
    let relevant = object.name() == name && !matches!(change, InformerEvent::Added(_));
    relevant.then(|| ObjectKey::new("", object.namespace().unwrap_or_default()))
}

#[async_trait]
impl Reconcile for Accounts {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let caches = &self.world.caches;
        let Some(namespace) = caches.namespaces.store().get(key) else {
            return Ok(Requeue::Done);
        };
        let account = caches
            .service_accounts
            .store()
            .get_by(&key.name, DEFAULT_ACCOUNT);
        furnish(
            &self.world,
            planner::default_account(&namespace, account.as_deref()),
        )
        .await
    }
}

#[async_trait]
impl Reconcile for RootCas {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let caches = &self.world.caches;
        let Some(namespace) = caches.namespaces.store().get(key) else {
            return Ok(Requeue::Done);
        };
        let map = caches.root_cas.store().get_by(&key.name, ROOT_CA);
        furnish(
            &self.world,
            planner::root_ca(&namespace, map.as_deref(), &self.ca),
        )
        .await
    }
}

/// Performs the write; that it exists already, or that its namespace goes away,
/// is as good.
async fn furnish(world: &World, write: Option<Write>) -> Result<Requeue, Error> {
    let Some(write) = write else {
        return Ok(Requeue::Done);
    };
    match world.api.execute(&write).await {
        Ok(_) => Ok(Requeue::Done),
        Err(error) if error.is_already_exists() || error.is_namespace_terminating() => {
            Ok(Requeue::Done)
        }
        Err(error) => Err(error),
    }
}
