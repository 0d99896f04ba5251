//! The node's own object: registered, kept fresh, and its lease renewed.

use std::time::Duration;

use client::{Client, Patch};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kubelet_core::node::{self, MachineFacts};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::error::AgentError;
use crate::runtime::now;

/// How often the lease is renewed (upstream: a quarter of its duration).
const LEASE_PERIOD: Duration = Duration::from_secs(10);
/// How long a lease is good for (upstream `nodeLeaseDurationSeconds`, 40).
const LEASE_SECONDS: i32 = 40;
/// How often the status is compared with what the API server holds.
const STATUS_PERIOD: Duration = Duration::from_secs(10);
/// After how many comparisons an unchanged status is written all the same
/// (upstream `nodeStatusReportFrequency`, 5 min).
const STATUS_ROUNDS: u32 = 30;
/// First and longest wait between two tries to register; doubled in between.
const REGISTER_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// The namespace of node leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Registers the node, ready from the first moment on. An API server that does
/// not answer yet is waited for; one that refuses is an error.
pub(crate) async fn register(
    client: &Client,
    facts: &MachineFacts,
    token: &CancellationToken,
) -> Result<Option<Node>, AgentError> {
    let mut wait = REGISTER_WAIT.0;
    loop {
        let error = match try_register(client, facts).await {
            Ok(node) => return Ok(Some(node)),
            Err(error) => error,
        };
        if error.is_invalid() || error.is_forbidden() {
            return Err(AgentError::Register {
                node: facts.name.clone(),
                source: error,
            });
        }
        tracing::info!(node = facts.name, %error, "cannot register yet");
        tokio::select! {
            () = token.cancelled() => return Ok(None),
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(REGISTER_WAIT.1),
        }
    }
}

async fn try_register(client: &Client, facts: &MachineFacts) -> Result<Node, client::Error> {
    let wanted = node::node(facts, now());
    let held = match client.create(None, &wanted).await {
        Ok(node) => node,
        Err(error) if error.is_already_exists() => {
            let labels = json!({"metadata": {"labels": wanted.metadata.labels}});
            client
                .patch::<Node>(None, &facts.name, &Patch::Merge(labels))
                .await?
        }
        Err(error) => return Err(error),
    };
    if is_current(&held, facts) {
        Ok(held)
    } else {
        write_status(client, facts, &held).await
    }
}

fn known(node: &Node) -> &[NodeCondition] {
    node.status
        .as_ref()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default()
}

fn is_current(held: &Node, facts: &MachineFacts) -> bool {
    let wanted = node::status(facts, known(held), now());
    held.status
        .as_ref()
        .is_some_and(|held| !node::differs(held, &wanted))
}

async fn write_status(
    client: &Client,
    facts: &MachineFacts,
    held: &Node,
) -> Result<Node, client::Error> {
    let status = node::status(facts, known(held), now());
    let patch = json!({"metadata": {"uid": held.metadata.uid}, "status": status});
    client
        .patch_status(None, &facts.name, &Patch::Strategic(patch))
        .await
}

/// Keeps the node's status fresh until cancelled; a node that was deleted is
/// registered again.
pub(crate) async fn keep_status(client: Client, facts: MachineFacts, token: CancellationToken) {
    let mut unwritten_rounds = 0;
    while sleep(STATUS_PERIOD, &token).await {
        unwritten_rounds += 1;
        let round = async {
            let held = match client.get::<Node>(None, &facts.name).await {
                Ok(held) => held,
                Err(error) if error.is_not_found() => {
                    return try_register(&client, &facts).await.map(|_| true);
                }
                Err(error) => return Err(error),
            };
            if is_current(&held, &facts) && unwritten_rounds < STATUS_ROUNDS {
                return Ok(false);
            }
            write_status(&client, &facts, &held).await.map(|_| true)
        };
        match round.await {
            Ok(true) => unwritten_rounds = 0,
            Ok(false) => {}
            Err(error) => tracing::warn!(node = facts.name, %error, "cannot report node status"),
        }
    }
}

/// Renews the node's lease until cancelled: the heartbeat by which the node
/// lifecycle controller tells a living node from a dead one.
pub(crate) async fn keep_lease(client: Client, node: Node, token: CancellationToken) {
    let mut held: Option<Lease> = None;
    let mut wait = Duration::ZERO;
    while sleep(wait, &token).await {
        match renew(&client, &node, held.take()).await {
            Ok(lease) => {
                held = Some(lease);
                wait = LEASE_PERIOD;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot renew the node's lease");
                wait = Duration::from_secs(1);
            }
        }
    }
}

async fn renew(client: &Client, node: &Node, held: Option<Lease>) -> Result<Lease, client::Error> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let held = match held {
        Some(lease) => lease,
        None => match client.get::<Lease>(Some(LEASE_NAMESPACE), name).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => {
                return client
                    .create(Some(LEASE_NAMESPACE), &new_lease(node, name))
                    .await;
            }
            Err(error) => return Err(error),
        },
    };
    let mut lease = held;
    lease.spec = Some(lease_spec(name, now()));
    client.update(Some(LEASE_NAMESPACE), &lease).await
}

fn new_lease(node: &Node, name: &str) -> Lease {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(lease_spec(name, now())),
    }
}

fn lease_spec(name: &str, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    }
}

/// Sleeps; reports whether to go on.
async fn sleep(time: Duration, token: &CancellationToken) -> bool {
    tokio::select! {
        () = token.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
