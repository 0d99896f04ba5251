//! Revisions: which set is the current template's, its name, and the annotations
//! `kubectl rollout history` and `undo` read.
//!
//! Rolling back needs no verb of its own: the client patches the template of an
//! old revision in, [`find_new`] finds the old set again, and its revision number
//! moves to the top while the old number goes to its history.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::hash::{POD_TEMPLATE_HASH, same_template, template_hash};
use crate::object;

/// Numbers the templates a Deployment has had.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// Lists the numbers a re-used set had before.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Remembers the Deployment's size when the set was last sized.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Remembers the Deployment's size with surge when the set was last sized.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const DEPRECATED_ROLLBACK: &str = "deprecated.deployment.rollback.to";

/// Belong to one object and are not copied from the Deployment to its sets.
const NOT_COPIED: [&str; 6] = [
    LAST_APPLIED,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    DEPRECATED_ROLLBACK,
];

/// Bounds the history annotation; beyond it the oldest numbers are forgotten.
const HISTORY_CHARS_MAX: usize = 2000;

/// Returns the oldest set with the Deployment's template, given sets by age.
pub(super) fn find_new(deployment: &Deployment, sets: &[ReplicaSet]) -> Option<usize> {
    let template = &deployment.spec.as_ref()?.template;
    sets.iter().position(|set| {
        let own = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        own.is_some_and(|own| same_template(own, template))
    })
}

/// Returns an annotation's text.
pub fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns an annotation's number; one that does not parse counts as absent.
pub(super) fn number(metadata: &ObjectMeta, key: &str) -> Option<i32> {
    annotation(metadata, key)?.parse().ok()
}

/// Returns a set's revision, or zero.
pub fn of(set: &ReplicaSet) -> i64 {
    annotation(&set.metadata, REVISION)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Returns the highest revision of the sets, or zero.
pub(super) fn max_of<'a>(sets: impl Iterator<Item = &'a ReplicaSet>) -> i64 {
    sets.map(of).max().unwrap_or(0)
}

/// Sets an annotation and tells whether that changed it.
fn set(metadata: &mut ObjectMeta, key: &str, value: String) -> bool {
    let annotations = metadata.annotations.get_or_insert_default();
    if annotations.get(key) == Some(&value) {
        return false;
    }
    annotations.insert(key.to_owned(), value);
    true
}

/// Records the Deployment's size on a set; tells whether that changed anything.
pub(super) fn set_size_annotations(replica_set: &mut ReplicaSet, desired: i32, max: i32) -> bool {
    let metadata = &mut replica_set.metadata;
    set(metadata, DESIRED_REPLICAS, desired.to_string())
        | set(metadata, MAX_REPLICAS, max.to_string())
}

/// Copies the Deployment's annotations to its new set and raises the set's
/// revision to `next`; tells whether that changed anything.
///
/// A revision is only ever raised: `next` falls behind when old sets were
/// deleted after the number was given.
pub(super) fn annotate(deployment: &Deployment, replica_set: &mut ReplicaSet, next: i64) -> bool {
    let mut changed = false;
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            changed |= set(&mut replica_set.metadata, key, value.clone());
        }
    }
    let old = annotation(&replica_set.metadata, REVISION).map(str::to_owned);
    let old_number = match &old {
        None => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            // Somebody wrote something else here; it is not ours to overwrite.
            Err(_) => return changed,
        },
    };
    if old_number >= next {
        return changed;
    }
    if let Some(old) = old {
        let history = annotation(&replica_set.metadata, REVISION_HISTORY).unwrap_or_default();
        let history = extended_history(history, &old);
        set(&mut replica_set.metadata, REVISION_HISTORY, history);
    }
    set(&mut replica_set.metadata, REVISION, next.to_string());
    true
}

fn extended_history(history: &str, revision: &str) -> String {
    let mut numbers: Vec<&str> = history.split(',').filter(|text| !text.is_empty()).collect();
    numbers.push(revision);
    let mut text = numbers.join(",");
    while text.len() > HISTORY_CHARS_MAX && numbers.len() > 1 {
        numbers.remove(0);
        text = numbers.join(",");
    }
    text
}

/// Returns the name the current template's set has, given the collisions so far.
pub fn new_set_name(deployment: &Deployment) -> String {
    format!(
        "{}-{}",
        object::text(&deployment.metadata.name),
        new_hash(deployment)
    )
}

fn new_hash(deployment: &Deployment) -> String {
    let template = deployment
        .spec
        .as_ref()
        .map(|spec| spec.template.clone())
        .unwrap_or_default();
    let collisions = deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count);
    template_hash(&template, collisions)
}

/// Builds the set for the current template.
pub(super) fn new_set(deployment: &Deployment, revision: i64, size: i32, max: i32) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let hash = new_hash(deployment);
    let mut template = spec.template;
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(POD_TEMPLATE_HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector
        .match_labels
        .get_or_insert_default()
        .insert(POD_TEMPLATE_HASH.to_owned(), hash);
    let mut replica_set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(new_set_name(deployment)),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![object::controller_ref::<Deployment>(
                &deployment.metadata,
            )]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(size),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    annotate(deployment, &mut replica_set, revision);
    set_size_annotations(&mut replica_set, spec.replicas.unwrap_or(1), max);
    replica_set
}
