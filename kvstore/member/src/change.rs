//! Membership changes: what is proposed, how the log keeps it, how it takes effect.
//!
//! A change takes effect when its entry is applied, not when it is appended. Adding a
//! voter goes through a joint configuration (Raft thesis, 4.3), which the leader
//! leaves by itself with an entry of its own, so one request makes two entries; a
//! change among learners takes one. So does the removal of a voter (thesis, 4.1):
//! whoever hears that a member is removed may switch it off at once, while a joint
//! configuration would still need it to end.
//!
//! ```text
//! kind u8: 1 add voter, 2 add learner, 3 promote, 4 remove | member u64 | context
//! ```
//!
//! Nothing at all is the end of a joint configuration.

use bytes::{Buf, BufMut, Bytes};
use raft::{
    StateRole,
    eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2},
};
use thiserror::Error;

use crate::{
    codec::CodecError,
    conf::ConfState,
    core::{Member, Removal},
    entry::{EntryKind, LogEntry},
    output::{Output, Refusal},
};

/// Most membership changes that may wait for the one under way; beyond it they are
/// refused with [`Refusal::TooMany`].
pub const CHANGES_WAITING_MAX: usize = 16;

/// Bytes before the context.
const HEAD: usize = 9;

/// One change of the membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new member that votes.
    AddVoter(u64),
    /// A new member that only receives the log.
    AddLearner(u64),
    /// A learner becomes a voter.
    Promote(u64),
    /// A member, voter or learner, leaves.
    Remove(u64),
}

impl Change {
    /// Returns whom it is about.
    pub fn member(self) -> u64 {
        let (Self::AddVoter(id) | Self::AddLearner(id) | Self::Promote(id) | Self::Remove(id)) =
            self;
        id
    }

    /// Writes it the way raft wants it, given the membership it meets.
    fn to_raft(self, conf: &ConfState) -> ConfChangeV2 {
        let id = self.member();
        let (kind, jointly) = match self {
            Self::AddVoter(_) | Self::Promote(_) => (ConfChangeType::AddNode, true),
            Self::AddLearner(_) => (ConfChangeType::AddLearnerNode, conf.is_voter(id)),
            Self::Remove(_) => (ConfChangeType::RemoveNode, false),
        };
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = id;
        let mut change = ConfChangeV2::default();
        change.set_changes(vec![single].into());
        if jointly {
            change.set_transition(ConfChangeTransition::Implicit);
        }
        change
    }
}

/// What a log entry of kind [`EntryKind::ConfChangeV2`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfEntry {
    /// The change; none ends a joint configuration.
    pub change: Option<Change>,
    /// What the proposer gave with it.
    pub context: Bytes,
}

/// Says that raft cannot make a change; it is then as if it had not been proposed,
/// on every member alike.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// The entry holds no change that this version knows.
    #[error("membership change: {0}")]
    Codec(#[from] CodecError),
    /// The change does not fit the membership.
    #[error("membership change: {0}")]
    Raft(#[from] raft::Error),
}

/// A change that waits for its turn.
#[derive(Debug)]
pub(crate) struct WaitingChange {
    id: u64,
    data: Bytes,
}

/// Appends the bytes of a change to `out`.
pub fn encode_change(change: Change, context: &[u8], out: &mut Vec<u8>) {
    out.reserve(HEAD + context.len());
    out.put_u8(match change {
        Change::AddVoter(_) => 1,
        Change::AddLearner(_) => 2,
        Change::Promote(_) => 3,
        Change::Remove(_) => 4,
    });
    out.put_u64_le(change.member());
    out.put_slice(context);
}

/// Reads what an entry of kind [`EntryKind::ConfChangeV2`] says.
pub fn decode_change(entry: &LogEntry) -> Result<ConfEntry, CodecError> {
    if entry.kind != EntryKind::ConfChangeV2 {
        return Err(CodecError::Value("entry kind of a membership change"));
    }
    let mut context = entry.data.clone();
    if context.is_empty() {
        return Ok(ConfEntry {
            change: None,
            context,
        });
    }
    if context.len() < HEAD {
        return Err(CodecError::Length {
            what: "membership change",
            len: context.len(),
        });
    }
    let kind = context.get_u8();
    let id = context.get_u64_le();
    let change = match kind {
        _ if id == 0 => return Err(CodecError::Value("member of a membership change")),
        1 => Change::AddVoter(id),
        2 => Change::AddLearner(id),
        3 => Change::Promote(id),
        4 => Change::Remove(id),
        _ => return Err(CodecError::Value("kind of a membership change")),
    };
    Ok(ConfEntry {
        change: Some(change),
        context,
    })
}

impl Member {
    /// Returns whether raft could carry out a change now. The state machine asks
    /// before it accepts one; the answer is the same on every member.
    pub fn check_change(&self, change: Change) -> Result<(), ChangeError> {
        let change = change.to_raft(self.conf_state());
        let mut changer = raft::Changer::new(self.raw.raft.prs());
        match change.enter_joint() {
            Some(auto_leave) => changer.enter_joint(auto_leave, &change.changes)?,
            None => changer.simple(&change.changes)?,
        };
        Ok(())
    }

    /// Lets the membership change of an entry take effect; returns what the state
    /// machine stores along with the entry's index.
    ///
    /// The caller calls it while it carries out [`Output::Apply`], when it has come
    /// to this entry and has accepted the change, and for each entry that ends a
    /// joint configuration. For a change it refuses it does nothing.
    pub fn apply_change(&mut self, entry: &LogEntry) -> Result<ConfState, ChangeError> {
        let conf = match decode_change(entry)?.change {
            Some(change) => {
                let change = change.to_raft(self.conf_state());
                self.raw.apply_conf_change(&change)?
            }
            // Earlier versions removed jointly, so their logs may have more ends.
            None if !self.conf_state().is_joint() => return Ok(self.conf_state().clone()),
            None => self.raw.apply_conf_change(&ConfChangeV2::default())?,
        };
        self.conf_changed = true;
        let state = ConfState::from(&conf);
        self.raw.mut_store().set_conf_state(state.clone());
        if !state.contains(self.config.id) {
            if self.raw.raft.state == StateRole::Leader {
                // raft would go on leading, and panic at the next commit because
                // it has no progress of its own (raft.rs, `maybe_commit`).
                let term = self.raw.raft.term;
                self.raw.raft.become_follower(term, 0);
            }
            if self.removal == Removal::None {
                self.removal = Removal::ToSay;
            }
        }
        Ok(state)
    }

    /// Queues a change; it is proposed as soon as none is under way. raft itself
    /// would put an empty entry in its place, and nobody would be told.
    pub(crate) fn queue_change(
        &mut self,
        id: u64,
        change: Change,
        context: &[u8],
        outputs: &mut Vec<Output>,
    ) {
        let reason = if self.raw.raft.state != StateRole::Leader {
            Refusal::NotLeader
        } else if self.changes.len() >= CHANGES_WAITING_MAX {
            Refusal::TooMany
        } else if self.hands_over_before(change) {
            Refusal::Transferring
        } else {
            let mut data = Vec::new();
            encode_change(change, context, &mut data);
            let data = data.into();
            self.changes.push_back(WaitingChange { id, data });
            return;
        };
        outputs.push(Output::Refused {
            ids: vec![id],
            reason,
        });
    }

    /// Proposes the next change if none is under way.
    pub(crate) fn propose_changes(&mut self, outputs: &mut Vec<Output>) {
        if self.changes.is_empty() || self.change_under_way() {
            return;
        }
        let Some(next) = self.changes.pop_front() else {
            return;
        };
        let entry = LogEntry {
            term: 0,
            index: 0,
            kind: EntryKind::ConfChangeV2,
            data: next.data,
        };
        if let Some(reason) = self.append(vec![entry.into()]) {
            outputs.push(Output::Refused {
                ids: vec![next.id],
                reason,
            });
        }
    }

    fn change_under_way(&self) -> bool {
        let raft = &self.raw.raft;
        raft.has_pending_conf() || raft.lead_transferee.is_some() || self.conf_state().is_joint()
    }

    pub(crate) fn refuse_changes(&mut self, outputs: &mut Vec<Output>) {
        let ids: Vec<u64> = self.changes.drain(..).map(|change| change.id).collect();
        if !ids.is_empty() {
            outputs.push(Output::Refused {
                ids,
                reason: Refusal::NotLeader,
            });
        }
    }

    /// Hands leadership to a member that stays if the change would remove this one, so
    /// that nobody has to wait for an election timeout; says whether it does.
    fn hands_over_before(&mut self, change: Change) -> bool {
        if change != Change::Remove(self.config.id) {
            return false;
        }
        let to = self.raw.raft.lead_transferee.or(self.best_transferee());
        if let Some(to) = to {
            self.raw.transfer_leader(to);
        }
        to.is_some()
    }
}
