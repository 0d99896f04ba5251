//! Scaling a Deployment while templates are mixed: every set grows or shrinks in
//! proportion, so that a rescale does not hasten a rollout that may be failing.

use std::cmp::Reverse;

use super::{Strategy, Sync, age_key, available_replicas, revision, spec_replicas};

/// Tells whether the Deployment's size changed since its sets were last sized:
/// an active set remembers another desired number.
pub(super) fn was_rescaled(sync: &Sync<'_>) -> bool {
    sync.sets.iter().any(|set| {
        spec_replicas(set) > 0
            && revision::number(&set.metadata, revision::DESIRED_REPLICAS)
                .is_some_and(|desired| desired != sync.replicas)
    })
}

/// Sizes the sets for the Deployment's size, keeping their proportions.
pub(super) fn keep_proportions(sync: &mut Sync<'_>) {
    let active: Vec<usize> = (0..sync.sets.len())
        .filter(|index| spec_replicas(&sync.sets[*index]) > 0)
        .collect();
    let replicas = sync.replicas;
    match active.as_slice() {
        [] => {
            // Nothing runs: the newest set takes the size, the current template's first.
            if let Some(index) = sync.new.or(sync.sets.len().checked_sub(1)) {
                sync.resize(index, replicas);
            }
        }
        [only] => {
            sync.resize(*only, replicas);
        }
        several if new_is_saturated(sync) => {
            for index in several {
                if Some(*index) != sync.new {
                    sync.resize(*index, 0);
                }
            }
        }
        several => {
            if let Strategy::Rolling { .. } = sync.strategy {
                for (index, size) in proportional(sync, several) {
                    sync.resize(index, size);
                }
            }
        }
    }
}

/// Tells whether the new set alone already serves the desired number.
fn new_is_saturated(sync: &Sync<'_>) -> bool {
    sync.new.is_some_and(|index| {
        let set = &sync.sets[index];
        revision::number(&set.metadata, revision::DESIRED_REPLICAS) == Some(sync.replicas)
            && spec_replicas(set) == sync.replicas
            && available_replicas(set) == sync.replicas
    })
}

/// Distributes the difference by size, largest set first; what rounding leaves
/// goes to the largest.
fn proportional(sync: &Sync<'_>, active: &[usize]) -> Vec<(usize, i32)> {
    let allowed = if sync.replicas > 0 {
        sync.replicas + sync.max_surge()
    } else {
        0
    };
    let total: i32 = active
        .iter()
        .map(|index| spec_replicas(&sync.sets[*index]))
        .sum();
    let to_add = allowed - total;
    let mut order = active.to_vec();
    // Of equal sets the newer grows first and the older shrinks first.
    order.sort_by(|a, b| {
        let size =
            Reverse(spec_replicas(&sync.sets[*a])).cmp(&Reverse(spec_replicas(&sync.sets[*b])));
        let age = age_key(&sync.sets[*a]).cmp(&age_key(&sync.sets[*b]));
        size.then(if to_add > 0 { age.reverse() } else { age })
    });
    let mut added = 0;
    let mut sizes: Vec<(usize, i32)> = order
        .into_iter()
        .map(|index| {
            let share = share(sync, index, to_add, added);
            added += share;
            (index, spec_replicas(&sync.sets[index]) + share)
        })
        .collect();
    if let Some((_, size)) = sizes.first_mut() {
        *size = (*size + to_add - added).max(0);
    }
    sizes
}

/// Returns one set's part of the difference, within what is left of it.
fn share(sync: &Sync<'_>, index: usize, to_add: i32, added: i32) -> i32 {
    let current = spec_replicas(&sync.sets[index]);
    let left = to_add - added;
    if current == 0 || to_add == 0 || left == 0 {
        return 0;
    }
    let fraction = fraction(sync, index);
    if to_add > 0 {
        fraction.min(left)
    } else {
        fraction.max(left)
    }
}

/// Returns by how much a set would change if its part of the whole stayed what
/// it was when the whole had the size the set remembers.
fn fraction(sync: &Sync<'_>, index: usize) -> i32 {
    let set = &sync.sets[index];
    let current = spec_replicas(set);
    if sync.replicas == 0 {
        return -current;
    }
    let remembered = revision::number(&set.metadata, revision::MAX_REPLICAS)
        .filter(|max| *max > 0)
        .or(sync.status.replicas.filter(|replicas| *replicas > 0));
    let Some(remembered) = remembered else {
        return 0;
    };
    let whole = i64::from(sync.replicas + sync.max_surge());
    let part = i64::from(current) * whole;
    // Rounds half away from zero; both numbers are positive here.
    let size = (2 * part + i64::from(remembered)) / (2 * i64::from(remembered));
    i32::try_from(size).unwrap_or(i32::MAX) - current
}
