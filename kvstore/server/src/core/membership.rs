//! Who the members are, as it changes: applied, told to raft, told to the links.

use std::collections::BTreeSet;

use member::{Change, LogEntry};
use mvcc::{Applied, MemberCommand, Proposal};

use super::{Core, Fate};
use crate::{fatal::fatal, peers::Address, store::to_keep};

/// Says what raft makes of a command; nothing if it need not know.
pub(crate) fn change_of(command: &MemberCommand) -> Option<Change> {
    match command {
        MemberCommand::Add(member) if member.learner => Some(Change::AddLearner(member.id)),
        MemberCommand::Add(member) => Some(Change::AddVoter(member.id)),
        MemberCommand::Promote(id) => Some(Change::Promote(*id)),
        MemberCommand::Remove(id) => Some(Change::Remove(*id)),
        MemberCommand::Update { .. } | MemberCommand::Publish { .. } => None,
    }
}

impl Core {
    /// Applies an entry that changes who votes, or ends such a change.
    pub(super) fn apply_conf(&mut self, entry: &LogEntry) -> Option<Applied> {
        let (index, term) = (entry.index, entry.term);
        let conf = match member::decode_change(entry) {
            Ok(conf) => conf,
            Err(error) => fatal("apply", &format!("log entry {index}: {error}")),
        };
        if conf.change.is_none() {
            let state = self.tell_raft(entry);
            self.machine.apply_conf_state(index, term, state);
            return None;
        }
        let proposal = match Proposal::decode(conf.context) {
            Ok(proposal) => proposal,
            Err(error) => fatal("apply", &format!("log entry {index}: {error}")),
        };
        let member = &mut self.member;
        let tell_raft = |_: &MemberCommand| match member.apply_change(entry) {
            Ok(state) => Some(to_keep(state)),
            Err(error) => {
                tracing::warn!(index, %error, "a membership change that cannot be made");
                None
            }
        };
        Some(self.machine.apply_change(index, term, proposal, tell_raft))
    }

    fn tell_raft(&mut self, entry: &LogEntry) -> mvcc::ConfState {
        match self.member.apply_change(entry) {
            Ok(state) => to_keep(state),
            Err(error) => fatal("apply", &format!("log entry {}: {error}", entry.index)),
        }
    }

    /// Tells the links who there is now. A member that has not been told yet who the
    /// others are keeps to those it was started with.
    pub(super) fn address_peers(&self) {
        let membership = self.machine.membership();
        if membership.is_empty() {
            return;
        }
        let members: Vec<_> = membership
            .members()
            .map(|member| Address {
                id: member.id,
                urls: member.peer_urls.clone(),
            })
            .collect();
        let removed: BTreeSet<u64> = membership.removed().collect();
        self.peers.update(&members, &removed);
    }

    /// Notes that this member is one no more (etcd: the server stops itself).
    pub(super) fn removed(&mut self) {
        tracing::warn!(
            member = %format!("{:x}", self.ids.member),
            "this member has been removed from the cluster; it stops"
        );
        self.fate = Fate::Removed;
    }
}
