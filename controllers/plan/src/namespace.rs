//! Namespace deletion: empty it, say what is left, then let it go.
//!
//! A namespace that is being deleted keeps the finalizer `kubernetes` in its spec
//! until this controller has found nothing in it. Pods go first, and nothing else
//! goes while a pod is left: what pods depend on outlives them (KEP-5080).
//!
//! One pass works on what discovery lists: [`Pass::resources`] says what to
//! delete next, the caller tells what was left of each, and [`Pass::finish`]
//! answers the last writes. Rules follow Kubernetes v1.32
//! `pkg/controller/namespace/deletion`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use meta::GroupVersionResource;

use crate::{Write, object};

/// Is the finalizer this controller holds on every namespace.
pub const FINALIZER: &str = "kubernetes";

/// Is how soon a namespace with contents is looked at again when none of them
/// says how long it takes. Deletions of its pods wake the controller earlier.
pub const RECHECK: SignedDuration = SignedDuration::from_secs(1);

/// Is a resource that discovery lists and that lives in namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Is the resource.
    pub gvr: GroupVersionResource,
    /// Tells whether it has the verb `deletecollection`; else its objects are
    /// deleted one by one.
    pub collection: bool,
}

/// Is what was found of one resource after its deletion was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Is how many objects are left.
    pub count: usize,
    /// Counts the objects each finalizer holds back.
    pub finalizers: BTreeMap<String, usize>,
    /// Is the longest time a pod among them may still take.
    pub grace: Option<SignedDuration>,
}

/// Is the next step for a namespace.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// It is not being deleted, or it is done with.
    Nothing,
    /// It must say that it is terminating first.
    Announce(Box<Write>),
    /// Its contents must go.
    Empty,
}

/// Decides what a namespace needs.
pub fn step(namespace: &Namespace) -> Step {
    if namespace.metadata.deletion_timestamp.is_none() || !is_held(namespace) {
        return Step::Nothing;
    }
    let phase = namespace
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if phase == Some("Terminating") {
        return Step::Empty;
    }
    let mut next = namespace.clone();
    next.status.get_or_insert_default().phase = Some("Terminating".to_owned());
    Step::Announce(Box::new(Write::replace(
        &next.metadata,
        Some("status"),
        &next,
    )))
}

fn is_held(namespace: &Namespace) -> bool {
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_some_and(|names| names.iter().any(|name| name == FINALIZER))
}

/// Is one pass over a namespace's contents.
#[derive(Debug, Default)]
pub struct Pass {
    remaining: BTreeMap<String, Remaining>,
    discovery_failures: Vec<String>,
    deletion_failures: Vec<String>,
}

/// Is how a pass ended.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// Holds the status to report, and the finalization if nothing is left.
    pub writes: Vec<Write>,
    /// Says when to look again if something is left.
    pub requeue_after: Option<SignedDuration>,
}

impl Pass {
    /// Returns the resources to delete, in stages: a later stage waits until
    /// nothing is left of the earlier.
    pub fn resources(contents: &[Content]) -> [Vec<&Content>; 2] {
        let is_pods =
            |content: &&Content| content.gvr.group.is_empty() && content.gvr.resource == "pods";
        contents.iter().partition::<Vec<_>, _>(is_pods).into()
    }

    /// Notes what is left of a resource.
    pub fn found(&mut self, gvr: &GroupVersionResource, remaining: Remaining) {
        if remaining.count > 0 {
            // The dot stands even in the core group, where upstream prints it too.
            self.remaining
                .insert(format!("{}.{}", gvr.resource, gvr.group), remaining);
        }
    }

    /// Notes that a part of the API could not be listed.
    pub fn discovery_failed(&mut self, error: impl Into<String>) {
        self.discovery_failures.push(error.into());
    }

    /// Notes that a resource could not be emptied.
    pub fn deletion_failed(&mut self, gvr: &GroupVersionResource, error: &str) {
        self.deletion_failures
            .push(format!("{}: {error}", gvr.group_resource()));
    }

    /// Tells whether nothing was found and everything could be looked at.
    pub fn is_empty(&self) -> bool {
        self.remaining.is_empty()
            && self.discovery_failures.is_empty()
            && self.deletion_failures.is_empty()
    }

    /// Ends the pass: reports, and finalizes if the namespace is empty.
    pub fn finish(self, namespace: &Namespace, now: Timestamp) -> Outcome {
        let mut next = namespace.clone();
        let status = next.status.get_or_insert_default();
        let before = status.clone();
        let conditions = status.conditions.get_or_insert_default();
        for condition in self.conditions() {
            set(conditions, condition, now);
        }
        let mut writes = Vec::new();
        if self.is_empty() {
            // The object is about to go: a status nobody can read is not written.
            writes.push(finalize(namespace));
            return Outcome {
                writes,
                requeue_after: None,
            };
        }
        if *status != before {
            writes.push(Write::replace(&namespace.metadata, Some("status"), &next));
        }
        let grace = self
            .remaining
            .values()
            .filter_map(|remaining| remaining.grace)
            .max();
        // Half the time the slowest pod may take, as upstream.
        let wait = grace.map_or(RECHECK, |grace| (grace / 2).max(RECHECK));
        Outcome {
            writes,
            requeue_after: Some(wait),
        }
    }

    fn conditions(&self) -> Vec<NamespaceCondition> {
        let remain: Vec<String> = self
            .remaining
            .iter()
            .map(|(resource, remaining)| {
                format!("{resource} has {} resource instances", remaining.count)
            })
            .collect();
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, count) in self
            .remaining
            .values()
            .flat_map(|remaining| &remaining.finalizers)
        {
            *held.entry(name).or_default() += count;
        }
        let held: Vec<String> = held
            .iter()
            .map(|(name, count)| format!("{name} in {count} resource instances"))
            .collect();
        vec![
            condition(
                "NamespaceDeletionDiscoveryFailure",
                &self.discovery_failures,
                ("DiscoveryFailed", "Discovery failed for some groups, "),
                (
                    "ResourcesDiscovered",
                    "All resources successfully discovered",
                ),
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                &[],
                ("GroupVersionParsingFailed", ""),
                (
                    "ParsedGroupVersions",
                    "All legacy kube types successfully parsed",
                ),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                &self.deletion_failures,
                (
                    "ContentDeletionFailed",
                    "Failed to delete all resource types, ",
                ),
                (
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            condition(
                "NamespaceContentRemaining",
                &remain,
                ("SomeResourcesRemain", "Some resources are remaining: "),
                ("ContentRemoved", "All content successfully removed"),
            ),
            condition(
                "NamespaceFinalizersRemaining",
                &held,
                (
                    "SomeFinalizersRemain",
                    "Some content in the namespace has finalizers remaining: ",
                ),
                (
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished",
                ),
            ),
        ]
    }
}

/// Builds the write after which the API server lets the namespace go.
fn finalize(namespace: &Namespace) -> Write {
    let mut next = namespace.clone();
    if let Some(finalizers) = next.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|name| name != FINALIZER);
    }
    Write::replace(&namespace.metadata, Some("finalize"), &next)
}

fn condition(
    type_: &str,
    problems: &[String],
    bad: (&str, &str),
    good: (&str, &str),
) -> NamespaceCondition {
    let (status, reason, message) = if problems.is_empty() {
        ("False", good.0, good.1.to_owned())
    } else {
        ("True", bad.0, format!("{}{}", bad.1, problems.join(", ")))
    };
    NamespaceCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: None,
    }
}

fn set(conditions: &mut Vec<NamespaceCondition>, mut next: NamespaceCondition, now: Timestamp) {
    let current = conditions
        .iter_mut()
        .find(|current| current.type_ == next.type_);
    let transition = match &current {
        Some(current) if current.status == next.status => current.last_transition_time.clone(),
        _ => Some(now.into()),
    };
    next.last_transition_time = transition;
    match current {
        Some(current) => *current = next,
        None => conditions.push(next),
    }
}

/// Adds one found object to what remains of its resource.
pub fn tally(
    remaining: &mut Remaining,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    is_pod: bool,
) {
    remaining.count += 1;
    for finalizer in metadata.finalizers.iter().flatten() {
        *remaining.finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    if is_pod && let Some(seconds) = metadata.deletion_grace_period_seconds {
        let grace = SignedDuration::from_secs(seconds);
        remaining.grace = Some(remaining.grace.map_or(grace, |known| known.max(grace)));
    }
}

/// Returns the name of the namespace, for messages and keys.
pub fn name(namespace: &Namespace) -> &str {
    object::text(&namespace.metadata.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn namespace(deleting: bool, phase: &str, finalizers: &[&str]) -> Namespace {
        serde_json::from_value(json!({
            "metadata": {"name": "team", "uid": "u", "resourceVersion": "7",
                "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
            "spec": {"finalizers": finalizers},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn gvr(resource: &str) -> GroupVersionResource {
        GroupVersionResource::new("", "v1", resource)
    }

    fn conditions(body: &Value) -> BTreeMap<String, (String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = body["status"]["conditions"].as_array().unwrap();
        list.iter()
            .map(|c| (text(&c["type"]), (text(&c["status"]), text(&c["message"]))))
            .collect()
    }

    #[test]
    fn steps_follow_the_phase() {
        assert_eq!(
            step(&namespace(false, "Active", &[FINALIZER])),
            Step::Nothing
        );
        assert_eq!(step(&namespace(true, "Terminating", &[])), Step::Nothing);
        assert_eq!(
            step(&namespace(true, "Terminating", &["other"])),
            Step::Nothing
        );
        assert_eq!(
            step(&namespace(true, "Terminating", &[FINALIZER])),
            Step::Empty
        );
        let Step::Announce(write) = step(&namespace(true, "Active", &[FINALIZER])) else {
            panic!("an announcement")
        };
        let Write::Replace {
            body, subresource, ..
        } = *write
        else {
            panic!("a replacement")
        };
        assert_eq!(
            (body["status"]["phase"].as_str(), subresource),
            (Some("Terminating"), Some("status"))
        );
    }

    #[test]
    fn pods_come_before_everything_else() {
        let contents: Vec<Content> = ["configmaps", "pods", "secrets"]
            .map(|name| Content {
                gvr: gvr(name),
                collection: true,
            })
            .into();
        let [first, second] = Pass::resources(&contents);
        assert_eq!(
            first
                .iter()
                .map(|c| c.gvr.resource.as_str())
                .collect::<Vec<_>>(),
            ["pods"]
        );
        assert_eq!(second.len(), 2);
    }

    #[test]
    fn what_is_left_is_said_and_waited_for() {
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let ns = namespace(true, "Terminating", &[FINALIZER]);
        let mut pass = Pass::default();
        let mut remaining = Remaining::default();
        for _ in 0..2 {
            let metadata = serde_json::from_value(json!({
                "finalizers": ["example.com/hold"], "deletionGracePeriodSeconds": 30
            }))
            .unwrap();
            tally(&mut remaining, &metadata, true);
        }
        pass.found(&gvr("pods"), remaining);
        pass.deletion_failed(&gvr("secrets"), "no");
        let outcome = pass.finish(&ns, now);
        assert_eq!(outcome.requeue_after, Some(SignedDuration::from_secs(15)));
        let [
            Write::Replace {
                body,
                subresource: Some("status"),
                ..
            },
        ] = outcome.writes.as_slice()
        else {
            panic!("a status: {outcome:?}")
        };
        let said = conditions(body);
        assert_eq!(
            said["NamespaceContentRemaining"],
            (
                "True".into(),
                "Some resources are remaining: pods. has 2 resource instances".into()
            )
        );
        assert_eq!(
            said["NamespaceFinalizersRemaining"].1,
            "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances"
        );
        assert_eq!(said["NamespaceDeletionContentFailure"].0, "True");
        assert_eq!(said["NamespaceDeletionDiscoveryFailure"].0, "False");
    }

    #[test]
    fn an_empty_namespace_is_finalized_and_keeps_foreign_finalizers() {
        let ns = namespace(true, "Terminating", &[FINALIZER, "other"]);
        let outcome = Pass::default().finish(&ns, Timestamp::UNIX_EPOCH);
        let [
            Write::Replace {
                body,
                subresource: Some("finalize"),
                ..
            },
        ] = outcome.writes.as_slice()
        else {
            panic!("a finalization: {outcome:?}")
        };
        assert_eq!(body["spec"]["finalizers"], json!(["other"]));
        assert_eq!(outcome.requeue_after, None);
    }

    #[test]
    fn an_unlistable_group_holds_the_namespace() {
        let mut pass = Pass::default();
        pass.discovery_failed("metrics.k8s.io/v1beta1: unavailable");
        let ns = namespace(true, "Terminating", &[FINALIZER]);
        let outcome = pass.finish(&ns, Timestamp::UNIX_EPOCH);
        assert_eq!(outcome.requeue_after, Some(RECHECK));
        assert_eq!(outcome.writes.len(), 1);
    }
}
