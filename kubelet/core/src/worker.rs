//! The life of a pod on a node: syncing, terminating, terminated, one way.
//!
//! Upstream `pod_workers.go`. A pod that has begun to terminate never syncs
//! again, and one whose containers have all stopped never runs another; a new
//! pod of the same name is another UID and another worker. The grace period
//! may be shortened while terminating, never lengthened.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::{after, pod};

/// Shortest grace a container is stopped with, in seconds (upstream's minimum).
pub const GRACE_SECONDS_MIN: i64 = 1;

/// Longest grace of a pod the API server no longer has, in seconds: it was
/// deleted by force, or while no agent ran. Kubernetes promises such a pod "a
/// small grace period" on its node.
pub const GRACE_SECONDS_REMOVED: i64 = 2;

/// Where a pod is in its life on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Containers may be started and restarted.
    Syncing,
    /// Containers are being stopped; none may be started.
    Terminating,
    /// No container runs, none ever will.
    Terminated,
}

/// Why a pod is made to fail by the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Becomes `status.reason`.
    pub reason: String,
    /// Becomes `status.message`.
    pub message: String,
}

/// One pod's worker.
///
/// Invariants: `stage` never decreases; `grace_seconds` is set from
/// `Terminating` on and never increases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWorker {
    stage: Stage,
    terminating_at: Option<Timestamp>,
    grace_seconds: Option<i64>,
    delete_requested: bool,
    gone: bool,
    eviction: Option<Eviction>,
}

impl PodWorker {
    /// Makes the worker of a pod seen for the first time. A pod that already
    /// ended (seen again after a restart) starts by terminating.
    pub fn new(pod: &Pod, now: Timestamp) -> Self {
        let mut worker = PodWorker {
            stage: Stage::Syncing,
            terminating_at: None,
            grace_seconds: None,
            delete_requested: false,
            gone: false,
            eviction: None,
        };
        if pod::is_terminal(pod::phase(pod)) {
            worker.terminate(pod::grace_seconds(pod), now);
        }
        worker.observe(pod, now);
        worker
    }

    /// Takes in the pod's newest form.
    pub fn observe(&mut self, pod: &Pod, now: Timestamp) {
        if pod.metadata.deletion_timestamp.is_none() {
            return;
        }
        self.delete_requested = true;
        let grace = pod.metadata.deletion_grace_period_seconds;
        self.terminate(grace.unwrap_or_else(|| pod::grace_seconds(pod)), now);
    }

    /// Takes in that the API server no longer has the pod.
    pub fn removed(&mut self, pod: &Pod, now: Timestamp) {
        self.gone = true;
        let asked = pod.metadata.deletion_grace_period_seconds;
        let grace = asked.unwrap_or_else(|| pod::grace_seconds(pod));
        self.terminate(grace.min(GRACE_SECONDS_REMOVED), now);
    }

    /// Takes in that every container ended and none will be started again.
    pub fn finished(&mut self, pod: &Pod, now: Timestamp) {
        self.terminate(pod::grace_seconds(pod), now);
    }

    /// Makes the pod fail: a deadline passed or the node cannot bear it.
    pub fn evict(&mut self, pod: &Pod, eviction: Eviction, now: Timestamp) {
        if self.stage == Stage::Syncing {
            self.eviction = Some(eviction);
        }
        self.terminate(pod::grace_seconds(pod), now);
    }

    fn terminate(&mut self, grace_seconds: i64, now: Timestamp) {
        let grace = grace_seconds.max(GRACE_SECONDS_MIN);
        self.grace_seconds = Some(self.grace_seconds.map_or(grace, |g| g.min(grace)));
        if self.stage == Stage::Syncing {
            self.stage = Stage::Terminating;
            self.terminating_at = Some(now);
        }
    }

    /// Takes in that no container is alive; reports whether the pod is now terminated.
    pub fn stopped(&mut self) -> bool {
        if self.stage == Stage::Terminating {
            self.stage = Stage::Terminated;
        }
        self.stage == Stage::Terminated
    }

    /// Returns where the pod is in its life.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the grace containers are stopped with, once terminating.
    pub fn grace_seconds(&self) -> i64 {
        self.grace_seconds.unwrap_or(GRACE_SECONDS_MIN)
    }

    /// Returns when the grace is over, once terminating.
    pub fn grace_ends_at(&self) -> Option<Timestamp> {
        self.terminating_at
            .map(|at| after(at, self.grace_seconds()))
    }

    /// Reports whether the API server waits for this node to confirm the deletion.
    pub fn delete_requested(&self) -> bool {
        self.delete_requested && !self.gone
    }

    /// Reports whether the API server no longer has the pod.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns why the node made the pod fail, if it did.
    pub fn eviction(&self) -> Option<&Eviction> {
        self.eviction.as_ref()
    }
}

#[cfg(test)]
mod test {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn pod(phase: &str, deleting: Option<i64>) -> Pod {
        let mut value = json!({
            "metadata": {"name": "web", "uid": "u"},
            "spec": {"containers": [], "terminationGracePeriodSeconds": 20},
            "status": {"phase": phase},
        });
        if let Some(grace) = deleting {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn deletion_terminates_and_grace_only_shrinks() {
        let mut worker = PodWorker::new(&pod("Running", None), at(0));
        assert_eq!(worker.stage(), Stage::Syncing);
        worker.observe(&pod("Running", Some(30)), at(5));
        assert_eq!(
            (worker.stage(), worker.grace_seconds()),
            (Stage::Terminating, 30)
        );
        worker.observe(&pod("Running", Some(60)), at(6));
        assert_eq!(worker.grace_seconds(), 30);
        worker.observe(&pod("Running", Some(0)), at(7));
        assert_eq!(worker.grace_seconds(), 1);
        assert_eq!(worker.grace_ends_at(), Some(at(6)));
        assert!(worker.delete_requested());
    }

    #[test]
    fn the_stages_go_one_way() {
        let mut worker = PodWorker::new(&pod("Running", None), at(0));
        assert!(
            !worker.stopped(),
            "a syncing pod is not terminated by having no container"
        );
        worker.observe(&pod("Running", Some(1)), at(1));
        assert!(worker.stopped());
        worker.observe(&pod("Running", None), at(2));
        assert_eq!(worker.stage(), Stage::Terminated);
    }

    #[test]
    fn a_pod_that_already_ended_never_syncs_again() {
        for phase in ["Succeeded", "Failed"] {
            let worker = PodWorker::new(&pod(phase, None), at(0));
            assert_eq!(worker.stage(), Stage::Terminating);
            assert!(!worker.delete_requested());
        }
    }

    #[test]
    fn a_removed_pod_is_stopped_soon_and_needs_no_delete() {
        let mut worker = PodWorker::new(&pod("Running", None), at(0));
        worker.removed(&pod("Running", None), at(1));
        assert_eq!(
            (worker.stage(), worker.grace_seconds()),
            (Stage::Terminating, GRACE_SECONDS_REMOVED)
        );
        assert!(worker.is_gone() && !worker.delete_requested());
    }

    #[test]
    fn an_eviction_is_remembered_only_if_it_was_the_cause() {
        let eviction = Eviction {
            reason: "DeadlineExceeded".into(),
            message: "m".into(),
        };
        let mut worker = PodWorker::new(&pod("Running", None), at(0));
        worker.evict(&pod("Running", None), eviction.clone(), at(1));
        assert_eq!(worker.eviction(), Some(&eviction));
        let mut deleted = PodWorker::new(&pod("Running", Some(5)), at(0));
        deleted.evict(&pod("Running", None), eviction, at(1));
        assert_eq!(deleted.eviction(), None);
    }
}
