//! Keeps one metadata informer per collected resource, as discovery finds them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{
    ApiResource, Client, Discovery, InformerOptions, PartialObject, ResourceRef, SharedInformer,
};
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{Collector, is_collected};
use crate::controller::Enqueue;

/// Is how often discovery is asked for new resources (upstream's period). It also
/// bounds the wait for the first lists: a resource that cannot be listed must not
/// stop the collection of the others.
const RESYNC_PERIOD: Duration = Duration::from_secs(30);
/// Is how soon discovery is asked again after it failed.
const RETRY_PERIOD: Duration = Duration::from_millis(500);

/// Is one running informer; bounded by the resources that are served.
struct Monitor {
    informer: SharedInformer<PartialObject>,
    token: CancellationToken,
}

/// Follows discovery until the token is cancelled.
pub(super) async fn run(
    collector: Arc<Collector>,
    client: Client,
    enqueue: Enqueue,
    token: CancellationToken,
) {
    let mut monitors: BTreeMap<ResourceRef, Monitor> = BTreeMap::new();
    loop {
        let wait = match client.discover().await {
            Ok(discovery) => {
                collector.learn(&discovery);
                follow(
                    &collector,
                    &client,
                    &enqueue,
                    &token,
                    &discovery,
                    &mut monitors,
                );
                let all = join_all(monitors.values().map(|monitor| monitor.informer.synced()));
                tokio::select! {
                    () = token.cancelled() => return,
                    _ = all => {}
                    () = tokio::time::sleep(RESYNC_PERIOD) => {
                        tracing::warn!("some resources cannot be listed; collecting without them");
                    }
                }
                collector.start(Arc::clone(&enqueue));
                RESYNC_PERIOD
            }
            Err(error) => {
                tracing::debug!(%error, "discovery failed");
                RETRY_PERIOD
            }
        };
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Starts informers for new resources and stops those of resources that are gone.
fn follow(
    collector: &Arc<Collector>,
    client: &Client,
    enqueue: &Enqueue,
    token: &CancellationToken,
    discovery: &Discovery,
    monitors: &mut BTreeMap<ResourceRef, Monitor>,
) {
    let served: Vec<&ApiResource> = discovery
        .preferred()
        .filter(|found| is_collected(found))
        .collect();
    monitors.retain(|resource, monitor| {
        let is_served = served.iter().any(|found| found.resource == *resource);
        // A group that could not be read now is not a group that is gone.
        let unread = discovery
            .failed
            .iter()
            .any(|(gv, _)| *gv == resource.gvr.group_version());
        if !is_served && !unread {
            monitor.token.cancel();
        }
        is_served || unread
    });
    for found in served {
        if monitors.contains_key(&found.resource) {
            continue;
        }
        let informer =
            SharedInformer::for_resource(client, found.resource.clone(), InformerOptions::all());
        let (collector, enqueue) = (Arc::clone(collector), Arc::clone(enqueue));
        let resource = found.clone();
        informer.add_handler(move |change| {
            collector
                .observe(&resource, change)
                .into_iter()
                .for_each(&*enqueue);
        });
        let token = token.child_token();
        informer.spawn(token.clone());
        monitors.insert(found.resource.clone(), Monitor { informer, token });
    }
}
