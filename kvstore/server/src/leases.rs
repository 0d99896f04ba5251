//! Leases, as clients of any member use them: their clocks run with the leader.
//!
//! Granting and revoking go through the log like everything else. What is left of a
//! lease, and whether it was renewed in time, only the leader knows, so a follower
//! asks it (etcd: server/v3_server.go, `LeaseRenew`; lease/leasehttp).

use std::time::Duration;

use mvcc::{Command, Error, LeaseId};
use proto::peer as pb;
use tonic::{Code, Status};

use crate::{
    core::request_timeout,
    handle::{Handle, LeaseTtl},
    peers::Peers,
    rpc_error::RpcError,
};

/// How long it takes until a leader that could not be asked is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

impl Handle {
    /// Renews a lease; returns its seconds, zero if it does not exist.
    pub async fn lease_keepalive(&self, id: LeaseId) -> Result<i64, RpcError> {
        self.check(|machine, who| machine.check_lease_write(who, id))?;
        self.with_leader(
            || self.renew_here(id),
            |peers, leader| async move { peers.lease_renew(leader, id).await },
        )
        .await
    }

    /// Tells what is left of a lease.
    pub async fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Result<LeaseTtl, RpcError> {
        // Whoever may see it, this member knows as well as the leader once it has
        // caught up.
        self.catch_up().await?;
        self.check(|machine, who| match keys {
            true => machine.check_lease_read(who, id),
            false => machine.auth().check_user(who),
        })?;
        let request = pb::LeaseTimeToLiveRequest { id, keys };
        self.with_leader(
            || self.ttl_here(id, keys),
            |peers, leader| async move {
                let reply = peers.lease_time_to_live(leader, request).await?;
                Ok(LeaseTtl {
                    ttl: reply.ttl,
                    granted_ttl: reply.granted_ttl,
                    keys: reply.keys,
                })
            },
        )
        .await
    }

    /// Has the leader do something: here, or over its link. Looks for the next one as
    /// long as there is none or it cannot be reached.
    pub(crate) async fn with_leader<T, F, G>(
        &self,
        here: impl Fn() -> F,
        there: impl Fn(Peers, u64) -> G,
    ) -> Result<T, RpcError>
    where
        F: Future<Output = Result<T, RpcError>>,
        G: Future<Output = Result<T, Status>>,
    {
        let trying = async {
            loop {
                let leader = self.shared.leadership.leader().await;
                let answer = match self.shared.peers.get() {
                    Some(peers) if leader != self.shared.ids.member => {
                        there(peers.clone(), leader).await.map_err(RpcError::from)
                    }
                    _ => here().await,
                };
                match answer {
                    Err(error) if error.is_about_leadership() => {
                        tokio::time::sleep(ASK_AGAIN).await;
                    }
                    answer => return answer,
                }
            }
        };
        let patience = request_timeout(&self.shared.config);
        tokio::select! {
            () = self.shared.stop.cancelled() => Err(Error::Stopped.into()),
            tried = tokio::time::timeout(patience, trying) => {
                tried.unwrap_or_else(|_late| Err(Error::Timeout.into()))
            }
        }
    }

    /// Renews a lease by this member's clock, if it leads.
    pub(crate) async fn renew_here(&self, id: LeaseId) -> Result<i64, RpcError> {
        // A deposed leader must not promise time it cannot give.
        self.catch_up().await?;
        let mut applied = self.shared.applied.subscribe();
        let mut leader = self.shared.leadership.watch();
        let renewed = loop {
            let now = self.shared.now();
            let renewed = self.shared.with(|core| match core.leads() {
                true => match core.machine.renew(id, now) {
                    // Its time is up, but only its revocation ends it: if that fails
                    // because another member comes to lead, the lease lives on (etcd:
                    // lease/lessor.go, `Renew`).
                    Err(Error::LeaseNotFound) if core.machine.has_lease(id) => Ok(None),
                    renewed => renewed.map(Some),
                },
                false => Err(Error::NotLeader),
            })?;
            match renewed {
                Ok(Some(renewed)) => break renewed,
                Ok(None) => tokio::select! {
                    biased;
                    _ = applied.changed() => {}
                    _ = leader.changed() => {}
                },
                Err(Error::LeaseNotFound) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        };
        self.shared.metrics.lease_renewed.inc();
        if renewed.clear_checkpoint {
            let checkpoints = vec![(id, 0)];
            let command = Command::LeaseCheckpoint(mvcc::LeaseCheckpointRequest { checkpoints });
            self.propose_as(None, command).await?;
        }
        Ok(renewed.ttl)
    }

    /// Tells what is left of a lease by this member's clock, if it leads.
    pub(crate) async fn ttl_here(&self, id: LeaseId, keys: bool) -> Result<LeaseTtl, RpcError> {
        self.catch_up().await?;
        let now = self.shared.now();
        self.shared.with(|core| {
            if !core.leads() {
                return Err(Error::NotLeader.into());
            }
            Ok(match core.machine.lease_ttl(id, now) {
                None => LeaseTtl {
                    ttl: -1,
                    granted_ttl: 0,
                    keys: Vec::new(),
                },
                Some(status) => LeaseTtl {
                    ttl: status.ttl,
                    granted_ttl: status.granted_ttl,
                    keys: if keys {
                        core.machine.lease_keys(id)
                    } else {
                        Vec::new()
                    },
                },
            })
        })?
    }
}

impl RpcError {
    /// Says whether it is only that somebody else leads, or cannot be reached.
    fn is_about_leadership(&self) -> bool {
        let words = [Error::NotLeader, Error::NoLeader, Error::LeaderChanged];
        let unreachable = self.code == Code::Unavailable as u32;
        words.iter().any(|error| error.to_string() == self.message)
            || (unreachable && !self.message.starts_with("etcdserver: "))
    }
}
