//! Between this member and the others: proposals on their way to whoever leads,
//! questions about reads, and raft's own messages.
//!
//! A client's proposal is answered by the member that took it, once that has applied
//! it; the leader only puts it into the log (etcd does the same). What is sent may be
//! lost, so it is sent again: when leadership moves, when a link comes up, and after
//! an election timeout without an answer.

use std::time::Duration;

use member::{Input, PeerMessage, Proposal, Refusal, Role};

use super::{Core, WRITEBACK_LAG_BYTES_MAX};
use crate::{peers::Note, rpc_error::RpcError};

impl Core {
    pub(super) fn send(&self, messages: Vec<PeerMessage>) {
        for message in messages {
            // raft hears of what is lost from the link.
            let _lost = self.peers.send(message.to, Note::Raft(Box::new(message)));
        }
    }

    /// Takes in what a peer sent.
    pub(super) fn take_notes(&mut self, from: u64, notes: Vec<Note>, now: Duration) {
        let mut forwarded = Vec::new();
        for note in notes {
            match note {
                // A snapshot comes with its rows or not at all.
                Note::Raft(message) if member::snapshot_meta(&message).is_some() => {}
                Note::Raft(message) => self.step(Input::Peer(message), now),
                Note::Forward { id, data } => forwarded.push(Proposal { id, data }),
                Note::Refused { ids, reason } => self.refuse(ids, reason),
                Note::ReadAsk { attempt } => {
                    let peer = from;
                    self.step(Input::ReadFor { peer, attempt }, now);
                }
                Note::ReadAnswer { attempt, index } => {
                    self.step(Input::ReadAnswer { attempt, index }, now);
                }
            }
        }
        if !forwarded.is_empty() {
            self.propose_for(from, forwarded, now);
        }
    }

    /// Proposes what clients of a peer want.
    fn propose_for(&mut self, peer: u64, proposals: Vec<Proposal>, now: Duration) {
        if self.machine.dirty_bytes() >= WRITEBACK_LAG_BYTES_MAX {
            let ids = proposals.iter().map(|proposal| proposal.id).collect();
            let reason = Refusal::TooMany;
            let _lost = self.peers.send(peer, Note::Refused { ids, reason });
            return;
        }
        self.proposes_for = Some(peer);
        self.step(Input::Propose(proposals), now);
        self.proposes_for = None;
    }

    /// Tells proposers that nothing was appended, or tries again for them.
    pub(super) fn refuse(&mut self, ids: Vec<u64>, reason: Refusal) {
        let (own, others): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| self.pending.waits_for(*id));
        if let Some(peer) = self.proposes_for
            && !others.is_empty()
        {
            let ids = others;
            let _lost = self.peers.send(peer, Note::Refused { ids, reason });
        }
        match reason {
            Refusal::TooMany => {
                for id in own {
                    let error = RpcError::from(mvcc::Error::TooManyRequests);
                    self.pending.answer(id, Err(error));
                }
            }
            // A membership change is the leader's business from the start, so its
            // caller looks for the next leader; all else finds its own way.
            Refusal::NotLeader | Refusal::Transferring => {
                for id in own {
                    match self.pending.can_be_sent_again(id) {
                        true => self.refused.push(id),
                        false => {
                            let error = RpcError::from(mvcc::Error::LeaderChanged);
                            self.pending.answer(id, Err(error));
                        }
                    }
                }
            }
        }
    }

    /// Hands everything that queued up to whoever leads. Without a leader it stays.
    pub(super) fn hand_over(&mut self, now: Duration) {
        let standing = self.member.standing();
        if standing.role == Role::Leader {
            let batch = self.pending.take_queue();
            if !batch.is_empty() {
                self.step(Input::Propose(batch), now);
            }
            return;
        }
        // Only a leader revokes, compacts and checkpoints; the next one decides anew.
        self.pending.drop_own();
        if standing.leader == 0 {
            return;
        }
        for Proposal { id, data } in self.pending.take_queue() {
            // What is lost is sent again after a while.
            let _lost = self.peers.send(standing.leader, Note::Forward { id, data });
        }
    }

    /// Sends again what was refused for the moment and, on a follower, what has not
    /// been heard of for an election timeout.
    pub(super) fn send_again(&mut self, now: Duration) {
        let refused = std::mem::take(&mut self.refused);
        self.pending.put_back(&refused);
        if now < self.resend_due {
            return;
        }
        self.resend_due = now + self.election_timeout;
        if self.member.standing().role != Role::Leader {
            // Deadlines tell when it was asked for.
            let asked_before = now.saturating_sub(self.election_timeout);
            self.pending
                .queue_again(asked_before + self.request_timeout);
        }
    }

    /// Sends again what may have been lost with the last link to the leader.
    pub(super) fn linked(&mut self, peer: u64) {
        if self.member.standing().leader == peer {
            self.pending.queue_again(Duration::MAX);
        }
    }
}
