//! Heartbeats: what counts as a sign of life, and what silence leads to.
//!
//! Silence is measured by when this controller saw the last change, never by the
//! times written in the objects: a node's clock may be wrong, and a controller
//! that was itself away for an hour must not condemn every node on its return.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};

use crate::{EventType, Write, pod};

/// Is how long a node may be silent (kubelets renew their Lease every 10 s).
pub const GRACE: SignedDuration = SignedDuration::from_secs(40);
/// Is how long a node that has never reported may take to start.
pub const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// Are the conditions a silent kubelet no longer vouches for.
const VOUCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Remembers a node's last sign of life and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Is when the last change was seen here.
    pub seen_at: Timestamp,
    lease_renewed: Option<Timestamp>,
    status_reported: Option<Timestamp>,
}

impl Heartbeat {
    /// Takes in what is seen now; a renewed Lease or a reported status is a sign
    /// of life, and so is the first sight of the node.
    pub fn observe(
        previous: Option<&Heartbeat>,
        node: &Node,
        lease: Option<&Lease>,
        now: Timestamp,
    ) -> Self {
        let lease_renewed = lease
            .and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref())
            .map(|time| time.0);
        let status_reported = super::condition(node, "Ready")
            .and_then(|ready| ready.last_heartbeat_time.as_ref())
            .map(|time| time.0);
        let quiet = previous.filter(|previous| {
            previous.lease_renewed == lease_renewed && previous.status_reported == status_reported
        });
        Self {
            seen_at: quiet.map_or(now, |previous| previous.seen_at),
            lease_renewed,
            status_reported,
        }
    }

    /// Returns how long the node may still be silent; zero or less means it has
    /// been silent too long.
    pub fn left(&self, node: &Node, now: Timestamp) -> SignedDuration {
        let grace = if super::condition(node, "Ready").is_none() && self.lease_renewed.is_none() {
            STARTUP_GRACE
        } else {
            GRACE
        };
        grace - now.duration_since(self.seen_at)
    }
}

/// Turns the conditions of a silent node to unknown, if they are not yet.
pub fn mark_unknown(node: &Node, now: Timestamp) -> Option<Write> {
    let mut next = node.clone();
    let conditions = next
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    let mut changed = false;
    for type_ in VOUCHED {
        let position = conditions
            .iter()
            .position(|condition| condition.type_ == type_);
        match position.map(|position| &mut conditions[position]) {
            Some(current) if current.status == "Unknown" => {}
            Some(current) => {
                current.status = "Unknown".to_owned();
                current.reason = Some("NodeStatusUnknown".to_owned());
                current.message = Some("Kubelet stopped posting node status.".to_owned());
                current.last_transition_time = Some(now.into());
                changed = true;
            }
            None => {
                conditions.push(never_posted(node, type_, now));
                changed = true;
            }
        }
    }
    changed.then(|| Write::replace(&node.metadata, Some("status"), &next))
}

fn never_posted(node: &Node, type_: &str, now: Timestamp) -> NodeCondition {
    NodeCondition {
        type_: type_.to_owned(),
        status: "Unknown".to_owned(),
        reason: Some("NodeStatusNeverUpdated".to_owned()),
        message: Some("Kubelet never posted node status.".to_owned()),
        last_heartbeat_time: node.metadata.creation_timestamp.clone(),
        last_transition_time: Some(now.into()),
    }
}

/// Returns the event that tells people a node went silent.
pub fn not_ready_event(node: &Node) -> Write {
    let name = crate::object::text(&node.metadata.name);
    let message = format!("Node {name} status is now: NodeNotReady");
    Write::event::<Node>(&node.metadata, EventType::Normal, "NodeNotReady", message)
}

/// Marks a ready pod of a silent node as not ready, so that nothing is sent to
/// it while nobody knows whether it runs.
pub fn mark_pod_not_ready(candidate: &Pod, now: Timestamp) -> Option<Write> {
    if !pod::is_ready(candidate) {
        return None;
    }
    let mut next = candidate.clone();
    let conditions = next.status.as_mut()?.conditions.as_mut()?;
    for condition in conditions
        .iter_mut()
        .filter(|condition| condition.type_ == "Ready")
    {
        condition.status = "False".to_owned();
        condition.last_transition_time = Some(now.into());
    }
    Some(Write::replace(&candidate.metadata, Some("status"), &next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn node(heartbeat: i64) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at(heartbeat).to_string()}]},
        }))
        .unwrap()
    }

    fn lease(renewed: i64) -> Lease {
        serde_json::from_value(
            json!({"metadata": {}, "spec": {"renewTime": at(renewed).to_string()}}),
        )
        .unwrap()
    }

    #[test]
    fn either_heartbeat_is_a_sign_of_life_and_silence_is_measured_here() {
        // The node's own clock is an hour behind; that does not matter.
        let first = Heartbeat::observe(None, &node(-3600), Some(&lease(-3600)), at(0));
        assert_eq!(
            first.left(&node(-3600), at(10)),
            SignedDuration::from_secs(30)
        );
        let quiet = Heartbeat::observe(Some(&first), &node(-3600), Some(&lease(-3600)), at(30));
        assert_eq!(quiet.seen_at, at(0));
        let by_lease = Heartbeat::observe(Some(&quiet), &node(-3600), Some(&lease(-3590)), at(35));
        assert_eq!(by_lease.seen_at, at(35));
        let by_status =
            Heartbeat::observe(Some(&by_lease), &node(-3570), Some(&lease(-3590)), at(50));
        assert_eq!(by_status.seen_at, at(50));
        assert!(by_status.left(&node(-3570), at(90)) <= SignedDuration::ZERO);
    }

    #[test]
    fn a_node_that_never_reported_has_longer() {
        let blank = Node::default();
        let first = Heartbeat::observe(None, &blank, None, at(0));
        assert_eq!(first.left(&blank, at(0)), STARTUP_GRACE);
    }

    #[test]
    fn silence_makes_every_condition_unknown_once() {
        let Some(Write::Replace { body, .. }) = mark_unknown(&node(0), at(40)) else {
            panic!("a status")
        };
        let next: Node = serde_json::from_value(body).unwrap();
        let ready = super::super::condition(&next, "Ready").unwrap();
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_deref()),
            ("Unknown", Some("NodeStatusUnknown"))
        );
        let memory = super::super::condition(&next, "MemoryPressure").unwrap();
        assert_eq!(memory.reason.as_deref(), Some("NodeStatusNeverUpdated"));
        assert_eq!(mark_unknown(&next, at(50)), None);
    }

    #[test]
    fn ready_pods_of_a_silent_node_are_marked_once() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let Some(Write::Replace { body, .. }) = mark_pod_not_ready(&pod, at(0)) else {
            panic!("a status")
        };
        let next: Pod = serde_json::from_value(body).unwrap();
        assert!(!pod::is_ready(&next));
        assert_eq!(mark_pod_not_ready(&next, at(1)), None);
    }
}
