//! The scheduler's calls to the API.

use std::sync::Arc;

use client::{Client, DeleteParams, Error, EventRecorder, EventType, KubeObject, Patch};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use scheduler::{PodInfo, QueuedPod};
use serde_json::{Value, json};

/// Makes the calls. A clone shares the connection.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) scheduler: String,
}

/// Is a call that ended.
pub(super) enum Finished {
    Bound {
        queued: QueuedPod,
        node: String,
        result: Result<(), Error>,
    },
    Reported,
}

/// Is a pod that found no node, with what to tell and do about it.
pub(super) struct Failure {
    pub(super) pod: Arc<PodInfo>,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Is the node that is promised to the pod once the victims are gone; empty to
    /// take a promise back, none to leave it.
    pub(super) nominate: Option<String>,
    pub(super) victims: Vec<Arc<PodInfo>>,
}

impl Calls {
    /// Binds a pod to a node.
    pub(super) async fn bind(self, queued: QueuedPod, node: String) -> Finished {
        let pod = &queued.pod;
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let ns = Some(pod.namespace.as_str());
        let answer = self
            .client
            .create_subresource::<Pod>(ns, &pod.name, "binding", &binding)
            .await;
        Finished::Bound {
            result: answer.map(drop),
            node,
            queued,
        }
    }

    /// Writes down why a pod waits, and makes its victims go.
    pub(super) async fn report(self, failure: Failure) -> Finished {
        let status = status_patch(&failure, Timestamp::now());
        if let Some(status) = status {
            self.patch_status(&failure.pod, status).await;
        }
        for victim in &failure.victims {
            self.evict(&failure.pod, victim).await;
        }
        Finished::Reported
    }

    /// Deletes a pod to make room for a more important one.
    async fn evict(&self, preemptor: &PodInfo, victim: &PodInfo) {
        if victim.is_deleting() {
            return;
        }
        let condition = PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: Some("PreemptionByScheduler".into()),
            message: Some(format!(
                "{}: preempting to accommodate a higher priority pod",
                self.scheduler
            )),
            last_transition_time: Some(Time(Timestamp::now())),
            ..PodCondition::default()
        };
        self.patch_status(victim, json!({"conditions": [condition]}))
            .await;
        let params = DeleteParams::default().uid(&victim.uid);
        let ns = Some(victim.namespace.as_str());
        match self.client.delete::<Pod>(ns, &victim.name, &params).await {
            Ok(_) => {
                let message = format!(
                    "Preempted by pod {} on node {}",
                    preemptor.uid, victim.node_name
                );
                self.recorder
                    .record(&*victim.pod, EventType::Normal, "Preempted", message);
            }
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            // The pod stays nominated; its next attempt finds the victim again.
            Err(error) => tracing::warn!(pod = victim.key(), %error, "cannot preempt"),
        }
    }

    async fn patch_status(&self, pod: &PodInfo, status: Value) {
        // The UID keeps the patch from a new pod of the same name.
        let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
        let ns = Some(pod.namespace.as_str());
        let answer = self
            .client
            .patch_status::<Pod>(ns, &pod.name, &Patch::Strategic(patch))
            .await;
        match answer {
            Ok(_) => {}
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => tracing::warn!(pod = pod.key(), %error, "cannot report on a pod"),
        }
    }
}

/// Returns what must change in a pod's status; none if it already says so.
fn status_patch(failure: &Failure, now: Timestamp) -> Option<Value> {
    let status = failure.pod.pod.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_ref());
    let current = conditions
        .into_iter()
        .flatten()
        .find(|c| c.type_ == "PodScheduled");
    let same = current.is_some_and(|c| {
        c.status == "False"
            && c.reason.as_deref() == Some(failure.reason)
            && c.message.as_deref() == Some(&failure.message)
    });
    let nominated = failure
        .nominate
        .as_deref()
        .filter(|n| *n != failure.pod.nominated_node);
    if same && nominated.is_none() {
        return None;
    }
    let unmoved = current.filter(|c| c.status == "False");
    let since = unmoved
        .and_then(|c| c.last_transition_time.clone())
        .unwrap_or(Time(now));
    let condition = PodCondition {
        type_: "PodScheduled".into(),
        status: "False".into(),
        reason: Some(failure.reason.into()),
        message: Some(failure.message.clone()),
        last_transition_time: Some(since),
        observed_generation: failure.pod.pod.meta().generation,
        ..PodCondition::default()
    };
    let mut status = json!({"conditions": [condition]});
    if let Some(node) = nominated {
        // A patch removes what is null.
        status["nominatedNodeName"] = Some(node).filter(|n| !n.is_empty()).into();
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(status: Value) -> Failure {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "status": status});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        Failure {
            pod: Arc::new(PodInfo::new(Arc::new(pod))),
            reason: "Unschedulable",
            message: "m".into(),
            nominate: None,
            victims: Vec::new(),
        }
    }

    #[test]
    fn a_condition_is_written_once_and_keeps_its_time() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let first = status_patch(&failure(json!({})), now).unwrap();
        assert_eq!(first["conditions"][0]["reason"], "Unschedulable");
        assert_eq!(
            first["conditions"][0]["lastTransitionTime"],
            "2026-01-02T00:00:00Z"
        );
        assert_eq!(status_patch(&failure(first.clone()), now), None);

        let mut other = first;
        other["conditions"][0]["message"] = json!("before");
        other["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        let second = status_patch(&failure(other), now).unwrap();
        assert_eq!(second["conditions"][0]["message"], "m");
        assert_eq!(
            second["conditions"][0]["lastTransitionTime"],
            "2026-01-01T00:00:00Z"
        );
    }

    #[test]
    fn a_promise_is_written_and_taken_back() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let patch = |status: Value, node: &str| {
            let nominate = Some(node.to_owned());
            let failure = Failure {
                nominate,
                ..failure(status)
            };
            status_patch(&failure, now).unwrap()
        };
        assert_eq!(patch(json!({}), "a")["nominatedNodeName"], "a");
        let back = patch(json!({"nominatedNodeName": "a"}), "");
        assert_eq!(back.get("nominatedNodeName"), Some(&Value::Null));
        let never = patch(json!({}), "");
        assert_eq!(never.get("nominatedNodeName"), None);
    }
}
