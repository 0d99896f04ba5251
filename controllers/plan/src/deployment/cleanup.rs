//! The history limit: old sets beyond it go, the lowest revisions first.

use k8s_openapi::api::apps::v1::ReplicaSet;

use super::{Sync, actual_replicas, revision, spec_replicas};
use crate::Write;

/// Means that no limit is set (`math.MaxInt32` upstream).
const NO_LIMIT: i32 = i32::MAX;

/// Deletes old sets beyond `revisionHistoryLimit` that hold no pods.
pub(super) fn plan(sync: &mut Sync<'_>) {
    let limit = sync
        .deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.revision_history_limit);
    let Some(limit) = limit.filter(|limit| *limit != NO_LIMIT) else {
        return;
    };
    let mut old: Vec<&ReplicaSet> = sync
        .old()
        .into_iter()
        .map(|index| &sync.sets[index])
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .collect();
    let surplus = old
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(0));
    old.sort_by_key(|set| revision::of(set));
    let deletions: Vec<Write> = old
        .into_iter()
        .take(surplus)
        .filter(|set| is_settled_empty(set))
        .map(|set| Write::delete::<ReplicaSet>(&set.metadata))
        .collect();
    sync.writes.extend(deletions);
}

/// A set whose controller has not seen its last change may still hold pods.
fn is_settled_empty(set: &ReplicaSet) -> bool {
    let observed = set
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    spec_replicas(set) == 0
        && actual_replicas(set) == 0
        && set.metadata.generation.unwrap_or(0) <= observed.unwrap_or(0)
}
