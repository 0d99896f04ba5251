//! The other members: what is taken from them, and how far they are.
//!
//! Three things raft 0.7 would do with a peer's message are prevented here:
//! - It takes messages that only make sense within one process, some of which end
//!   it. Only what members send each other is let through.
//! - A rejection that comes late makes it go back below what the peer has
//!   acknowledged (raft-rs #557): such a rejection is dropped or mended
//!   ([`Member::mend_rejection`]).
//! - A member whose log is empty would be sent the log from its first entry. What
//!   that entry meant depends on the members the cluster began with, which only a
//!   snapshot tells a new one: it is sent a snapshot.

use raft::{
    ProgressState, StateRole,
    eraftpb::{Message, MessageType},
};

use crate::{core::Member, output::Output};

/// What a leader does for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Looks for the place where the logs agree.
    Probe,
    /// Sends entries as they come.
    Replicate,
    /// Waits until the peer has taken a snapshot in.
    Snapshot,
}

/// How far a peer is, as its leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// The peer.
    pub id: u64,
    /// Up to where its log is known to be the leader's.
    pub matched: u64,
    /// Whether it was heard of since the leader last looked, which it does once in
    /// an election timeout.
    pub recent_active: bool,
    /// Whether it only receives the log.
    pub learner: bool,
    /// What is done for it.
    pub state: PeerState,
}

/// Returns whether members send each other messages of this type.
pub(crate) fn between_members(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgSnapshot
            | MessageType::MsgTimeoutNow
    )
}

impl Member {
    /// Returns how far the other members are, by ascending id. Only a leader knows.
    pub fn peers(&self) -> Vec<PeerProgress> {
        if self.raw.raft.state != StateRole::Leader {
            return Vec::new();
        }
        let others = self.raw.raft.prs().iter();
        let others = others.filter(|(id, _)| **id != self.config.id);
        let mut peers: Vec<_> = others
            .map(|(id, progress)| PeerProgress {
                id: *id,
                matched: progress.matched,
                recent_active: progress.recent_active,
                learner: self.conf_state().is_learner(*id),
                state: match progress.state {
                    ProgressState::Probe => PeerState::Probe,
                    ProgressState::Replicate => PeerState::Replicate,
                    ProgressState::Snapshot => PeerState::Snapshot,
                },
            })
            .collect();
        peers.sort_unstable_by_key(|peer| peer.id);
        peers
    }

    /// Returns who can take leadership over soonest: of the voters heard of lately
    /// the one that has most of the log.
    pub fn best_transferee(&self) -> Option<u64> {
        let peers = self.peers().into_iter();
        peers
            .filter(|peer| peer.recent_active && self.conf_state().is_voter(peer.id))
            .max_by_key(|peer| (peer.matched, std::cmp::Reverse(peer.id)))
            .map(|peer| peer.id)
    }

    /// Returns the voter that leadership is being handed to.
    pub fn transferring(&self) -> Option<u64> {
        self.raw.raft.lead_transferee
    }

    pub(crate) fn transfer(&mut self, to: u64) {
        // A follower would send a message that no member takes.
        if self.raw.raft.state == StateRole::Leader {
            self.raw.transfer_leader(to);
        }
    }

    /// Takes a peer's message in, unless it could only do harm.
    pub(crate) fn receive(&mut self, mut message: Message, outputs: &mut Vec<Output>) {
        let me = self.config.id;
        let kind = message.get_msg_type();
        let for_me = message.to == me && message.from != me && message.from != 0;
        if !for_me || message.term == 0 || !between_members(kind) {
            return;
        }
        let wanted = match kind {
            MessageType::MsgTimeoutNow => self.may_campaign(),
            // It knows not even the members yet, and waits for a snapshot.
            MessageType::MsgAppend => message.index > 0 || !self.conf_state().is_empty(),
            MessageType::MsgSnapshot => {
                message.get_snapshot().get_metadata().index > 0 && self.installing.is_none()
            }
            MessageType::MsgAppendResponse => self.mend_rejection(&mut message),
            MessageType::MsgHeartbeat => {
                let last = self.last_index();
                let lost = message.term >= self.raw.raft.term && message.commit > last;
                if lost {
                    // raft would panic: it never commits beyond what was acknowledged.
                    let commit = message.commit;
                    outputs.push(Output::LogLost { commit, last });
                }
                !lost
            }
            _ => true,
        };
        if wanted {
            self.tolerate(|raw| raw.step(message));
        }
    }

    /// Looks at a peer's rejection of entries; returns whether it still matters.
    fn mend_rejection(&self, message: &mut Message) -> bool {
        if !message.reject {
            return true;
        }
        let raft = &self.raw.raft;
        let leads = raft.state == StateRole::Leader && message.term == raft.term;
        let Some(progress) = raft.prs().get(message.from).filter(|_| leads) else {
            return true;
        };
        if progress.state == ProgressState::Snapshot {
            // Nothing is sent before the snapshot's end is known.
            return false;
        }
        if progress.matched == 0 && message.reject_hint == 0 && self.applied > 0 {
            // Its log is empty. Any index makes raft send a snapshot. Before anything
            // is applied there is none, but nobody new either.
            message.request_snapshot = 1;
        } else if message.index <= progress.matched {
            // Sent before the peer acknowledged what it rejects here.
            return false;
        } else if message.reject_hint < progress.matched {
            // The logs are known to agree up to there.
            message.reject_hint = progress.matched;
            message.log_term = 0;
        }
        true
    }
}
