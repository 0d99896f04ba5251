//! RollingUpdate: never more pods than desired + surge, never fewer available
//! than desired − unavailable, and one direction per sync.

use super::{Strategy, Sync, cleanup, spec_replicas, status};

/// Makes the next step of a rolling update.
pub(super) fn plan(sync: &mut Sync<'_>) {
    let Some(new) = sync.new else {
        sync.create_new_set();
        return;
    };
    sync.adopt_new_set();
    if scale_new(sync, new) || scale_down_old(sync, new) {
        return;
    }
    if status::is_complete(sync, &sync.deployment.status.clone().unwrap_or_default()) {
        cleanup::plan(sync);
    }
}

/// Returns the size to which a new set of `current` pods may grow.
pub(super) fn new_set_size(sync: &Sync<'_>, current: i32) -> i32 {
    match sync.strategy {
        Strategy::Recreate => sync.replicas,
        Strategy::Rolling { max_surge, .. } => {
            let room = sync.replicas + max_surge - sync.total_spec();
            current + room.min(sync.replicas - current).max(0)
        }
    }
}

fn scale_new(sync: &mut Sync<'_>, new: usize) -> bool {
    let current = spec_replicas(&sync.sets[new]);
    if current == sync.replicas {
        return false;
    }
    let size = if current > sync.replicas {
        sync.replicas
    } else {
        new_set_size(sync, current)
    };
    size != current && sync.resize(new, size)
}

/// Takes away old pods, as far as the pods that are or will soon be available
/// allow: first those that do not serve anyway, then the oldest sets'.
///
/// New pods that are not available yet are subtracted from what may go, so a
/// new template that never becomes ready cannot use up the old one.
fn scale_down_old(sync: &mut Sync<'_>, new: usize) -> bool {
    let active: Vec<usize> = sync
        .old()
        .into_iter()
        .filter(|index| spec_replicas(&sync.sets[*index]) > 0)
        .collect();
    if active.is_empty() {
        return false;
    }
    let new_unavailable = spec_replicas(&sync.sets[new]) - sync.serving(new);
    let budget = sync.total_spec() - sync.min_available() - new_unavailable;
    if budget <= 0 {
        return false;
    }
    let mut sizes: Vec<i32> = active
        .iter()
        .map(|index| spec_replicas(&sync.sets[*index]))
        .collect();
    let unhealthy = take_unhealthy(sync, &active, &mut sizes, budget);
    let healthy = take_available(sync, &mut sizes);
    for (index, size) in active.iter().zip(&sizes) {
        if spec_replicas(&sync.sets[*index]) != *size {
            sync.resize(*index, *size);
        }
    }
    unhealthy + healthy > 0
}

/// Takes pods that are not available from the old sets; returns how many.
fn take_unhealthy(sync: &Sync<'_>, active: &[usize], sizes: &mut [i32], budget: i32) -> i32 {
    let mut taken = 0;
    for (index, size) in active.iter().zip(sizes.iter_mut()) {
        let unhealthy = *size - sync.serving(*index);
        let take = unhealthy.min(budget - taken).max(0);
        *size -= take;
        taken += take;
    }
    taken
}

/// Takes available pods above the minimum from the old sets; returns how many.
fn take_available(sync: &Sync<'_>, sizes: &mut [i32]) -> i32 {
    let serving: i32 = (0..sync.sets.len()).map(|index| sync.serving(index)).sum();
    let budget = serving - sync.min_available();
    let mut taken = 0;
    for size in sizes.iter_mut() {
        let take = (*size).min(budget - taken).max(0);
        *size -= take;
        taken += take;
    }
    taken
}
