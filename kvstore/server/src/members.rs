//! Changing who the members are: what is looked at before a change is proposed.
//!
//! The checks protect the quorum and are etcd's (etcdserver/server.go, `mayAddMember`,
//! `mayRemoveMember`, `mayPromoteMember`); `--strict-reconfig-check=false` turns most
//! of them off. What a change must be whoever asks, the state machine checks when it
//! applies it.

use std::time::Duration;

use mvcc::{Command, Error, MemberCommand, Membership, Proposal};

use crate::{
    core::{Core, change_of, request_timeout},
    handle::Handle,
    peers::Links,
    rpc_error::RpcError,
};

/// How long a link must have been up to count as healthy (etcd: HealthInterval).
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);

/// How much of the leader's log a learner must have to be promoted, in percent
/// (etcd: readyPercentThreshold).
const READY_PERCENT: u64 = 90;

impl Handle {
    /// Changes the membership, wherever the leader is, and waits until this member
    /// knows of it.
    pub(crate) async fn change_members(&self, command: MemberCommand) -> Result<(), RpcError> {
        if change_of(&command).is_none() {
            self.propose_as(None, Command::Member(command)).await?;
            return Ok(());
        }
        // Looked at here and not where it is proposed: without a quorum there is nobody
        // to propose it, and that is just what the answer is about.
        if self.shared.config.strict_reconfig_check {
            self.shared.with(|core| core.may_change(&command))??;
        }
        // Its id and its index count only where it is proposed.
        let asked = Proposal {
            id: 0,
            since: None,
            identity: None,
            command: Command::Member(command.clone()),
        };
        let asked = asked.encode();
        let index = self
            .with_leader(
                || self.change_members_here(command.clone()),
                |peers, leader| {
                    let asked = asked.clone();
                    async move {
                        let index = peers.change_membership(leader, asked).await?;
                        Ok(u64::from_le_bytes(
                            index.as_ref().try_into().unwrap_or_default(),
                        ))
                    }
                },
            )
            .await?;
        // Not by asking a quorum, for the change may have made that larger.
        let mut applied = self.shared.applied.subscribe();
        let applied = applied.wait_for(|applied| *applied >= index);
        match tokio::time::timeout(request_timeout(&self.shared.config), applied).await {
            Ok(_applied) => Ok(()),
            Err(_late) => Err(Error::TimeoutWaitAppliedIndex.into()),
        }
    }

    /// Changes the membership, if this member leads; returns an index by which that is
    /// applied.
    pub(crate) async fn change_members_here(
        &self,
        command: MemberCommand,
    ) -> Result<u64, RpcError> {
        let Some(change) = change_of(&command) else {
            return Err(Error::NotCapable.into());
        };
        // What was decided before is known from here on.
        self.catch_up().await?;
        let strict = self.shared.config.strict_reconfig_check;
        let max = self.shared.config.max_learners;
        let id = self.shared.next_proposal_id();
        let now = self.shared.now();
        let answer = self.shared.with(|core| {
            if !core.leads() {
                return Err(RpcError::from(Error::NotLeader));
            }
            if let MemberCommand::Promote(id) = command {
                core.may_promote(id, strict)?;
            }
            // What nothing can come of does not enter the log. It is looked at again
            // when it is applied: another change may come first.
            let membership = core.machine.membership();
            membership.validate(&command, max)?;
            let proposal = Proposal {
                id,
                since: Some(core.machine.applied_index()),
                identity: None,
                command: Command::Member(command.clone()),
            };
            core.propose_change(id, change, proposal.encode(), now)
        })??;
        self.shared.wake.notify_one();
        let applied = answer
            .await
            .unwrap_or_else(|_dropped| Err(Error::Stopped.into()))?;
        applied.result?;
        self.shared.with(|core| core.machine.applied_index())
    }
}

impl Core {
    /// Refuses a change that could cost the cluster its quorum.
    pub(crate) fn may_change(&self, command: &MemberCommand) -> Result<(), Error> {
        let membership = self.machine.membership();
        match command {
            MemberCommand::Add(member) => self.may_add(membership, member.learner),
            MemberCommand::Remove(id) => self.may_remove(membership, *id),
            _ => Ok(()),
        }
    }

    fn may_add(&self, membership: &Membership, learner: bool) -> Result<(), Error> {
        if !learner && !membership.ready_to_add_voter() {
            return Err(Error::NotEnoughStartedMembers);
        }
        let voters = voters(membership);
        // A voter counts from the moment it is added, whether it is there or not. A
        // lone member can only become more so.
        let needed = match (learner, voters.len()) {
            (_, 1) => 1,
            (true, count) => count / 2 + 1,
            (false, count) => count.div_ceil(2) + 1,
        };
        match self.connected(&voters) >= needed {
            true => Ok(()),
            false => Err(Error::Unhealthy),
        }
    }

    fn may_remove(&self, membership: &Membership, id: u64) -> Result<(), Error> {
        let Some(member) = membership.get(id) else {
            // Applying it says so in the words for this.
            return Ok(());
        };
        if member.learner {
            return Ok(());
        }
        if !membership.ready_to_remove_voter(id) {
            return Err(Error::NotEnoughStartedMembers);
        }
        let down = id != self.member_id() && self.peers.active_for(id).is_none();
        if down {
            // It is no part of the quorum there is.
            return Ok(());
        }
        let voters = voters(membership);
        let left = self.connected(&voters).saturating_sub(1);
        match left > (voters.len() - 1) / 2 {
            true => Ok(()),
            false => Err(Error::Unhealthy),
        }
    }

    /// Refuses to promote who is not ready; only the leader can tell.
    fn may_promote(&self, id: u64, strict: bool) -> Result<(), Error> {
        let membership = self.machine.membership();
        let member = membership.get(id).ok_or(Error::MemberNotFound)?;
        if !member.learner {
            return Err(Error::MemberNotLearner);
        }
        let last = self.member.last_index();
        let peers = self.member.peers();
        let matched = peers
            .iter()
            .find(|peer| peer.id == id)
            .map_or(0, |peer| peer.matched);
        if matched.saturating_mul(100) < last.saturating_mul(READY_PERCENT) {
            return Err(Error::LearnerNotReady);
        }
        match strict && !membership.ready_to_promote() {
            true => Err(Error::NotEnoughStartedMembers),
            false => Ok(()),
        }
    }

    /// Counts the members whose link has been up for a while, this one included.
    fn connected(&self, members: &[u64]) -> usize {
        let healthy = |id: &&u64| is_healthy(&*self.peers, self.member_id(), **id);
        members.iter().filter(healthy).count()
    }
}

fn voters(membership: &Membership) -> Vec<u64> {
    let members = membership.members();
    members
        .filter(|member| !member.learner)
        .map(|member| member.id)
        .collect()
}

fn is_healthy(peers: &dyn Links, own: u64, id: u64) -> bool {
    id == own
        || peers
            .active_for(id)
            .is_some_and(|since| since >= HEALTH_INTERVAL)
}
