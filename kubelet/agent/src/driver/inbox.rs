//! Pods on their way from the informer to the loop: the latest of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::InformerEvent;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::pod;
use tokio::sync::Notify;

use super::Event;

/// A pod as last seen in the API.
#[derive(Clone, Debug)]
pub(crate) enum PodChange {
    /// It is there.
    Latest(Arc<Pod>),
    /// It is not there any more; this was its last form.
    Gone(Arc<Pod>),
}

impl PodChange {
    pub(crate) fn pod(&self) -> &Arc<Pod> {
        match self {
            PodChange::Latest(pod) | PodChange::Gone(pod) => pod,
        }
    }
}

/// Holds at most one change per pod: a newer one replaces it, so it cannot grow
/// beyond the pods of this node.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    pending: BTreeMap<String, PodChange>,
    synced: bool,
    synced_told: bool,
}

impl Inbox {
    /// Takes an informer's event.
    pub(crate) fn put(&self, event: &InformerEvent<Pod>) {
        let change = match event {
            InformerEvent::Added(pod) | InformerEvent::Updated(_, pod) => {
                PodChange::Latest(Arc::clone(pod))
            }
            InformerEvent::Deleted(pod) => PodChange::Gone(Arc::clone(pod)),
        };
        let uid = pod::uid(change.pod()).to_owned();
        self.lock().pending.insert(uid, change);
        self.changed.notify_one();
    }

    /// Takes in that the informer has delivered all there was at the start.
    pub(crate) fn synced(&self) {
        self.lock().synced = true;
        self.changed.notify_one();
    }

    /// Waits for the next change; the news of being synced comes after all
    /// changes before it.
    pub(crate) async fn next(&self) -> Event {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if let Some((_, change)) = state.pending.pop_first() {
                    return Event::Pod(change);
                }
                if state.synced && !state.synced_told {
                    state.synced_told = true;
                    return Event::PodsSynced;
                }
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
