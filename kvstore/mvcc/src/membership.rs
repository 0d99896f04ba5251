//! Who the members are, as replicated state, and which changes make sense.
//!
//! ```text
//! MemberCommand ──validate──> Membership ──rows──> the same batch as the index
//!      └── Add, Promote, Remove also go to raft, whose new ConfState is kept here
//! ```
//!
//! An entry that changes who votes is applied in one step: the command is checked
//! against the members as they are at that entry, alike on every member; only if
//! it holds is raft told, and what raft then believes ([`ConfState`]) becomes
//! durable with the entry's index. A member restarted at any moment hands raft the
//! configuration that belongs to its applied index, and replays the rest.
//!
//! The rules and their order are etcd's (`api/membership/cluster.go`,
//! ValidateConfigurationChange). A removed id never comes back.

mod codec;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

pub(crate) use self::codec::{member_command, put_member_command};
use self::rows::Row;
pub(crate) use self::rows::{conf_state, put_conf_state};
use crate::backend::WriteBack;
use crate::command::{Command, Proposal};
use crate::durable::{Delta, STATE_KEY, encode_state};
use crate::error::Error;
use crate::machine::{Durable, StateMachine};
use crate::response::{Applied, Reply};

/// The index that a new cluster's first rows are the state after. The log begins
/// behind it, so that a member that joins later is sent the state and never that
/// entry, which says nothing of the first members.
pub const BOOTSTRAP_INDEX: u64 = 1;

/// The term of that entry.
pub const BOOTSTRAP_TERM: u64 = 1;

/// Is one member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberInfo {
    /// Its id; not zero.
    pub id: u64,
    /// Its name; empty until it has started (etcd: IsStarted).
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it, as it says itself.
    pub client_urls: Vec<String>,
    /// Whether it is sent the log but does not vote.
    pub learner: bool,
}

/// Is raft's configuration after some entry: who votes, who learns, and both
/// sides of a change under way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfState {
    /// Who votes, or will once a joint change is over.
    pub voters: Vec<u64>,
    /// Who learns.
    pub learners: Vec<u64>,
    /// Who voted before a joint change that is not over; empty otherwise.
    pub voters_outgoing: Vec<u64>,
    /// Who becomes a learner when that change is over.
    pub learners_next: Vec<u64>,
    /// Whether raft ends the joint change by itself.
    pub auto_leave: bool,
}

/// Changes who the members are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberCommand {
    /// Takes a member in, as a learner or a voter.
    Add(MemberInfo),
    /// Lets a learner vote.
    Promote(u64),
    /// Sends a member away for good.
    Remove(u64),
    /// Moves a member to other peer URLs.
    Update {
        /// The member.
        id: u64,
        /// The URLs.
        peer_urls: Vec<String>,
    },
    /// Tells what a member says of itself when it starts.
    Publish {
        /// The member.
        id: u64,
        /// Its name.
        name: String,
        /// Its client URLs.
        client_urls: Vec<String>,
    },
}

impl MemberCommand {
    /// Returns the member it is about.
    pub fn id(&self) -> u64 {
        match self {
            Self::Add(member) => member.id,
            Self::Promote(id) | Self::Remove(id) => *id,
            Self::Update { id, .. } | Self::Publish { id, .. } => *id,
        }
    }

    /// Reports whether raft must hear of it: such a command travels as a membership
    /// entry ([`StateMachine::apply_change`]), and all others as usual.
    pub fn changes_raft(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Promote(_) | Self::Remove(_))
    }
}

/// Is everything about the members.
///
/// Invariant: no id is both a member and removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    cluster_id: u64,
    members: BTreeMap<u64, MemberInfo>,
    removed: BTreeSet<u64>,
    conf_state: ConfState,
}

impl Membership {
    /// Makes the membership of a cluster that begins with these members.
    pub fn new(cluster_id: u64, members: impl IntoIterator<Item = MemberInfo>) -> Self {
        let members: BTreeMap<_, _> = members.into_iter().map(|m| (m.id, m)).collect();
        let ids = |learner: bool| {
            let some = members.values().filter(move |m| m.learner == learner);
            some.map(|m| m.id).collect::<Vec<_>>()
        };
        let conf_state = ConfState {
            voters: ids(false),
            learners: ids(true),
            ..ConfState::default()
        };
        Self {
            cluster_id,
            members,
            removed: BTreeSet::new(),
            conf_state,
        }
    }

    /// Reports whether nothing is known yet: a member that waits for its first
    /// snapshot, or a store of a build that knew no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the cluster's id.
    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// Lists the members by id.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &MemberInfo> {
        self.members.values()
    }

    /// Returns a member.
    pub fn get(&self, id: u64) -> Option<&MemberInfo> {
        self.members.get(&id)
    }

    /// Reports whether a member was sent away.
    pub fn is_removed(&self, id: u64) -> bool {
        self.removed.contains(&id)
    }

    /// Lists the ids that were sent away.
    pub fn removed(&self) -> impl ExactSizeIterator<Item = u64> {
        self.removed.iter().copied()
    }

    /// Returns raft's configuration.
    pub fn conf_state(&self) -> &ConfState {
        &self.conf_state
    }

    /// Checks a change; the answer is the same when it is applied to this value.
    /// `learners_max` is what `--max-learners` says, alike on all members.
    pub fn validate(&self, command: &MemberCommand, learners_max: usize) -> Result<(), Error> {
        let id = command.id();
        if self.removed.contains(&id) {
            // etcd's ErrIDRemoved, which its edge turns into this one (v3rpc/util.go).
            return Err(Error::MemberNotFound);
        }
        let known = self.members.get(&id);
        match command {
            MemberCommand::Add(new) => {
                if known.is_some() || id == 0 {
                    return Err(Error::MemberExists);
                }
                self.check_urls(id, &new.peer_urls)?;
                if new.learner && self.learner_count() >= learners_max {
                    return Err(Error::TooManyLearners);
                }
                Ok(())
            }
            MemberCommand::Promote(_) => match known.ok_or(Error::MemberNotFound)?.learner {
                true => Ok(()),
                false => Err(Error::MemberNotLearner),
            },
            MemberCommand::Remove(_) | MemberCommand::Publish { .. } => {
                known.map(drop).ok_or(Error::MemberNotFound)
            }
            MemberCommand::Update { peer_urls, .. } => {
                known.ok_or(Error::MemberNotFound)?;
                self.check_urls(id, peer_urls)
            }
        }
    }

    /// Refuses peer URLs that another member has.
    fn check_urls(&self, id: u64, urls: &[String]) -> Result<(), Error> {
        let mut others = self.members.values().filter(|m| m.id != id);
        match others.any(|m| m.peer_urls.iter().any(|url| urls.contains(url))) {
            true => Err(Error::PeerUrlExists),
            false => Ok(()),
        }
    }

    fn learner_count(&self) -> usize {
        self.members.values().filter(|m| m.learner).count()
    }

    /// Makes a checked change; returns the rows it touched.
    fn change(&mut self, command: MemberCommand) -> Vec<Row> {
        let id = command.id();
        match command {
            MemberCommand::Add(member) => {
                self.members.insert(id, member);
            }
            MemberCommand::Remove(_) => {
                self.members.remove(&id);
                self.removed.insert(id);
                return vec![Row::Member(id), Row::Removed(id)];
            }
            MemberCommand::Promote(_) => self.edit(id, |m| m.learner = false),
            MemberCommand::Update { peer_urls, .. } => self.edit(id, |m| m.peer_urls = peer_urls),
            MemberCommand::Publish {
                name, client_urls, ..
            } => self.edit(id, |m| {
                m.name = name;
                m.client_urls = client_urls;
            }),
        }
        vec![Row::Member(id)]
    }

    fn edit(&mut self, id: u64, edit: impl FnOnce(&mut MemberInfo)) {
        if let Some(member) = self.members.get_mut(&id) {
            edit(member);
        }
    }

    // --- strict reconfiguration (etcd: cluster.go, IsReadyTo…) ---

    /// Reports whether, with one voter more that has not started, those started are
    /// still a quorum; or the cluster is one member that is being restored.
    pub fn ready_to_add_voter(&self) -> bool {
        let (voters, started) = self.voters_started(0);
        (started == 1 && voters == 1) || started > voters.div_ceil(2)
    }

    /// Reports whether those started are still a quorum without a voter.
    pub fn ready_to_remove_voter(&self, id: u64) -> bool {
        let (voters, started) = self.voters_started(id);
        started > voters / 2
    }

    /// Reports whether those started are still a quorum with one learner as a voter.
    pub fn ready_to_promote(&self) -> bool {
        let (voters, started) = self.voters_started(0);
        started + 1 > voters.div_ceil(2)
    }

    /// Counts the voters but one, and those of them that have started.
    fn voters_started(&self, but: u64) -> (usize, usize) {
        let voters = self.members.values().filter(|m| !m.learner && m.id != but);
        let started = voters.clone().filter(|m| !m.name.is_empty()).count();
        (voters.count(), started)
    }
}

impl StateMachine {
    /// Returns who the members are.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Makes a store that was never used the state after [`BOOTSTRAP_INDEX`], with
    /// its first members; every one of them does the same. Its log begins there. What
    /// an earlier attempt wrote is written over.
    ///
    /// Returns what must be written and flushed before the log is made.
    pub fn bootstrap(&mut self, membership: Membership) -> WriteBack {
        assert!(
            self.applied_index <= BOOTSTRAP_INDEX,
            "members are made before anything is applied"
        );
        self.durable = Durable {
            index: BOOTSTRAP_INDEX,
            term: BOOTSTRAP_TERM,
            ..self.durable
        };
        self.applied_index = BOOTSTRAP_INDEX;
        self.applied_term = BOOTSTRAP_TERM;
        let before = std::mem::take(&mut self.membership).rows();
        let before = before.into_iter().map(|(key, _)| (key, None));
        let mut rows: BTreeMap<_, _> = before.collect();
        let state = encode_state(&self.durable, 0);
        rows.insert(Bytes::from_static(STATE_KEY), Some(state));
        self.with_members(membership, rows)
    }

    /// Gives a store of a build that knew no members the members it has, at the index
    /// it is at. Returns what must be written and flushed before anything is applied.
    pub fn name_members(&mut self, membership: Membership) -> WriteBack {
        assert!(self.membership.is_empty(), "the members are known");
        self.with_members(membership, BTreeMap::new())
    }

    fn with_members(
        &mut self,
        membership: Membership,
        mut rows: BTreeMap<Bytes, Option<Bytes>>,
    ) -> WriteBack {
        assert!(
            self.pending.is_empty() && self.applied_index == self.durable.index,
            "everything applied is written"
        );
        self.membership = membership;
        let members = self.membership.rows().into_iter();
        rows.extend(members.map(|(key, row)| (key, Some(row))));
        WriteBack {
            token: 0,
            applied_index: self.durable.index,
            applied_term: self.durable.term,
            revision: self.durable.revision,
            rows: rows.into_iter().collect(),
        }
    }

    /// Applies a committed membership entry: one whose command
    /// [changes raft](MemberCommand::changes_raft). If the members allow it, raft is
    /// told through `tell_raft`, and the configuration that it answers with is kept;
    /// it answers with none if it cannot, alike on all members, and then nothing
    /// changes. If the members do not allow it, raft is not told.
    pub fn apply_change(
        &mut self,
        index: u64,
        term: u64,
        proposal: Proposal,
        tell_raft: impl FnOnce(&MemberCommand) -> Option<ConfState>,
    ) -> Applied {
        self.advance(index, term);
        let id = proposal.id;
        let result = self
            .admit(&proposal, index)
            .and_then(|()| match proposal.command {
                Command::Member(command) if command.changes_raft() => {
                    self.check_member(&command)?;
                    // Raft refuses only to be left without voters.
                    let conf_state = tell_raft(&command).ok_or(Error::NotEnoughStartedMembers)?;
                    let reply = self.change_members(index, command);
                    self.set_conf_state(index, conf_state);
                    Ok(reply)
                }
                // Nothing honest sends it: any other command has its own way here.
                _ => Err(Error::NotCapable),
            });
        Applied {
            id,
            revision: self.revision,
            result,
            events: Vec::new(),
        }
    }

    /// Moves the applied index over the entry by which raft ends a joint change.
    pub fn apply_conf_state(&mut self, index: u64, term: u64, conf_state: ConfState) {
        self.advance(index, term);
        self.set_conf_state(index, conf_state);
    }

    /// Makes this store a lone member's: all others are removed, and it votes. The
    /// next batch carries it, under the index applied last.
    pub fn stand_alone(&mut self, id: u64) {
        let others: Vec<_> = self.membership.members.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != id) {
            self.change_members(self.applied_index, MemberCommand::Remove(other));
        }
        self.membership.removed.remove(&id);
        self.membership.members.entry(id).or_default().id = id;
        self.change_members(self.applied_index, MemberCommand::Promote(id));
        self.save(self.applied_index, &Row::Removed(id));
        let conf_state = ConfState {
            voters: vec![id],
            ..ConfState::default()
        };
        self.set_conf_state(self.applied_index, conf_state);
    }

    fn check_member(&self, command: &MemberCommand) -> Result<(), Error> {
        self.membership.validate(command, self.config.learners_max)
    }

    /// Runs a command of which raft need not know.
    pub(crate) fn run_member(
        &mut self,
        index: u64,
        command: &MemberCommand,
    ) -> Result<Reply, Error> {
        if command.changes_raft() {
            // Nothing honest sends it: raft would go on with other voters.
            return Err(Error::NotCapable);
        }
        self.check_member(command)?;
        Ok(self.change_members(index, command.clone()))
    }

    fn change_members(&mut self, index: u64, command: MemberCommand) -> Reply {
        for row in self.membership.change(command) {
            self.save(index, &row);
        }
        Reply::Members(self.membership.members().cloned().collect())
    }

    fn set_conf_state(&mut self, index: u64, conf_state: ConfState) {
        self.membership.conf_state = conf_state;
        self.save(index, &Row::Cluster);
    }

    fn save(&mut self, index: u64, row: &Row) {
        let (key, row) = self.membership.keyed_row(row);
        self.pending.push_back((index, Delta::Row(key, row)));
    }
}

#[cfg(test)]
mod test;
