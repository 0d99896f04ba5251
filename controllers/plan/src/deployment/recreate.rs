//! Recreate: no pod of the new template before the last of the old has ended.

use super::{Sync, actual_replicas, cleanup, spec_replicas, status};
use crate::object;

/// Makes the next step: old sets to zero, wait, then the new set at full size.
pub(super) fn plan(sync: &mut Sync<'_>) {
    sync.adopt_new_set();
    let mut scaled = false;
    for index in sync.old() {
        if spec_replicas(&sync.sets[index]) > 0 {
            scaled |= sync.resize(index, 0);
        }
    }
    if scaled || old_pods_live(sync) {
        return;
    }
    let Some(new) = sync.new else {
        sync.create_new_set();
        return;
    };
    let replicas = sync.replicas;
    if sync.resize(new, replicas) {
        return;
    }
    if status::is_complete(sync, &sync.deployment.status.clone().unwrap_or_default()) {
        cleanup::plan(sync);
    }
}

/// Pods being deleted still run, so the sets' counts alone do not say.
fn old_pods_live(sync: &Sync<'_>) -> bool {
    sync.old().into_iter().any(|index| {
        let set = &sync.sets[index];
        let live = sync
            .live_pods
            .get(object::text(&set.metadata.uid))
            .copied()
            .unwrap_or(0);
        actual_replicas(set) > 0 || live > 0
    })
}
