//! When a member may serve clients, and how it leaves.
//!
//! It serves once it has caught up with everything that was acknowledged when it
//! came, and has told the others its name and where clients reach it (etcd:
//! etcdserver/server.go, `publishV3` and ReadyNotify). It leaves by handing over what
//! it leads, so that nobody waits for an election.

use std::time::Duration;

use mvcc::{Command, MemberCommand};

use crate::{corruption, fatal::fatal, handle::Handle, rpc_error::RpcError};

/// How long a member waits for those who wait for it, once it no longer leads.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);

/// How often it looks whether it may go.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the member may serve; says no if it stops instead.
pub(crate) async fn wait(handle: &Handle) -> bool {
    tokio::select! {
        () = handle.shared.stop.cancelled() => false,
        () = come_in(handle) => true,
    }
}

async fn come_in(handle: &Handle) {
    loop {
        match publish(handle).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "not ready to serve yet: the cluster has not agreed");
                // A refusal that comes at once must not be asked for at once again.
                tokio::time::sleep(handle.shared.config.heartbeat_interval).await;
            }
        }
    }
}

/// Catches up, and publishes what is not known of this member.
async fn publish(handle: &Handle) -> Result<(), RpcError> {
    handle.catch_up().await?;
    let shared = &handle.shared;
    let id = shared.ids.member;
    if shared.config.corruption_checks.initial
        && let Some(peer) = corruption::differing_peer(handle).await?
    {
        let reason = format!("found data inconsistency with peers: member {peer:x} differs");
        fatal("initial corruption check", &reason);
    }
    let name = shared.config.name.clone();
    let client_urls = shared.client_urls.get().cloned().unwrap_or_default();
    let known = shared.with(|core| {
        let member = core.machine.membership().get(id);
        member.is_some_and(|member| member.name == name && member.client_urls == client_urls)
    })?;
    if known {
        return Ok(());
    }
    let command = Command::Member(MemberCommand::Publish {
        id,
        name,
        client_urls,
    });
    handle.propose_as(None, command).await.map(drop)
}

impl Handle {
    /// Hands leadership to a member and waits until it leads (etcd: `moveLeader`).
    pub(crate) async fn move_leader_to(&self, to: u64) -> Result<(), RpcError> {
        let shared = &self.shared;
        let now = shared.now();
        shared.with(|core| {
            if !core.leads() {
                return Err(mvcc::Error::NotLeader);
            }
            match core.move_leader(to, now) {
                true => Ok(()),
                false => Err(mvcc::Error::BadLeaderTransferee),
            }
        })??;
        shared.wake.notify_one();
        let patience = 2 * shared.config.election_timeout;
        let mut leader = shared.leadership.watch();
        let there = leader.wait_for(|leader| *leader == to);
        match tokio::time::timeout(patience, there).await {
            Ok(_there) => Ok(()),
            // etcd's error for it has no code of its own (errors.ErrTimeoutLeaderTransfer).
            Err(_late) => Err(RpcError {
                code: tonic::Code::Unknown as u32,
                message: "etcdserver: request timed out, leader transfer took too long".to_owned(),
            }),
        }
    }
}

/// Hands leadership to whoever can take it over soonest, and waits for the answers
/// that clients of this member still wait for.
pub(crate) async fn leave(handle: &Handle) {
    let shared = &handle.shared;
    let asked = shared.with(|core| core.hand_leadership_over(shared.now()));
    let Ok(Some(to)) = asked else { return };
    shared.wake.notify_one();
    tracing::info!(to = %format!("{to:x}"), "handing leadership over");
    let mut leader = shared.leadership.watch();
    let over = leader.wait_for(|leader| *leader != shared.ids.member);
    let patience = shared.config.election_timeout;
    // If it is not, the others elect somebody.
    let _over = tokio::time::timeout(patience, over).await.is_ok();
    let begun = shared.now();
    let owes = || shared.with(|core| core.owes_answers()).unwrap_or(false);
    while owes() && shared.now().saturating_sub(begun) < ANSWERS_TIMEOUT {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
