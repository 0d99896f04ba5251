//! raft's answers, carried out in an order that keeps every promise.

use std::time::Duration;

use raft::{Ready, eraftpb::MessageType};

use crate::{
    core::{Member, Removal},
    entry::{HardState, LogEntry},
    input::PeerMessage,
    output::{Output, Persist, Role},
};

/// Most entries handed out to be applied in one step, so that a long replay never
/// delays a heartbeat. The rest follows in the next steps
/// ([`Member::wants_turn`]).
pub const APPLY_ENTRIES_MAX: usize = 2_048;

/// Most bytes of them; one larger entry is handed out alone.
pub(crate) const APPLY_BYTES_MAX: u64 = 1 << 20;

/// A write that is not known to be on disk.
#[derive(Debug)]
pub(crate) struct Unreported {
    number: u64,
    /// The term it makes durable.
    term: Option<u64>,
    /// The messages that may leave after it.
    messages: Vec<PeerMessage>,
}

impl Member {
    /// Tells raft what the caller has applied since the last step.
    pub(crate) fn tell_applied(&mut self) {
        self.conf_changed = false;
        let log = &self.raw.raft.raft_log;
        // The index of a snapshot counts only once the snapshot is in the log.
        let applied = self.applied.min(log.persisted);
        if applied > log.applied {
            let last = self.last_index();
            self.raw.advance_apply_to(applied);
            if self.last_index() > last {
                // raft appended the end of a joint configuration but would let it
                // wait for a heartbeat.
                self.raw.raft.bcast_append();
            }
        }
    }

    pub(crate) fn persisted(&mut self, number: u64, outputs: &mut Vec<Output>) {
        self.raw.on_persist_ready(number);
        let mut messages = Vec::new();
        while let Some(first) = self.unreported.front()
            && first.number <= number
        {
            let mut first = self.unreported.pop_front().expect("front was just seen");
            if let Some(term) = first.term {
                self.durable_term = term;
            }
            messages.append(&mut first.messages);
        }
        if self.installing.is_some_and(|write| write <= number) {
            self.installing = None;
            self.tell_applied();
        }
        self.send(messages, outputs);
    }

    /// Carries raft's answers out until it has none left, or enough to apply.
    pub(crate) fn settle(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        if self.removal == Removal::ToSay {
            self.removal = Removal::Said;
            outputs.push(Output::Removed);
        }
        self.reseed();
        self.change_standing(outputs);
        self.propose_changes(outputs);
        self.ask_reads(now, outputs);
        let mut first = true;
        loop {
            self.take_read_states(outputs);
            // One round at least, so that what the input caused leaves at once.
            if !self.raw.has_ready() || (!first && self.enough_to_apply()) {
                break;
            }
            first = false;
            let room = if self.enough_to_apply() {
                0
            } else {
                APPLY_BYTES_MAX
            };
            self.raw.raft.set_max_committed_size_per_ready(room);
            let ready = self.raw.ready();
            self.carry_out(ready, outputs);
            self.change_standing(outputs);
            self.ask_reads(now, outputs);
        }
        self.hand_out(outputs);
        let ready = self.reads.take_ready(self.applied);
        if !ready.is_empty() {
            outputs.push(Output::ReadReady(ready));
        }
    }

    fn carry_out(&mut self, mut ready: Ready, outputs: &mut Vec<Output>) {
        let mut messages = ready.take_messages();
        let mut after = ready.take_persisted_messages();
        if self.durable_term < self.raw.raft.term {
            // A lone voter leads before its vote is on disk. Were its entries sent to
            // a learner now, and it crashed, it could lead in the same term again
            // with others at the same places.
            after.append(&mut messages);
        }
        if mutants::planted(mutants::Bug::SendBeforeSync) {
            messages.append(&mut after);
        }
        self.send(messages, outputs);
        let number = ready.number();
        let hard_state = ready.hs().map(HardState::from);
        let entries: Vec<LogEntry> = ready.entries().iter().map(LogEntry::from).collect();
        let committed = ready.take_committed_entries();
        let must_sync = ready.must_sync();
        let snapshot = self.install(&ready, outputs);
        self.committed.extend(committed.iter().map(LogEntry::from));
        self.raw.mut_store().append(ready.entries());
        self.raw.advance_append_async(ready);

        if snapshot.is_some() || hard_state.is_some() || !entries.is_empty() {
            let report = must_sync || !after.is_empty();
            if report {
                self.unreported.push_back(Unreported {
                    number,
                    term: hard_state.map(|state| state.term),
                    messages: after,
                });
            }
            outputs.push(Output::Persist(Persist {
                number,
                snapshot,
                hard_state,
                entries,
                must_sync,
                report,
            }));
        } else if let Some(last) = self.unreported.back_mut() {
            last.messages.extend(after);
        } else {
            self.send(after, outputs);
        }
    }

    /// Hands messages to the caller; a snapshot goes its own way.
    fn send(&mut self, messages: Vec<PeerMessage>, outputs: &mut Vec<Output>) {
        let (snapshots, messages): (Vec<_>, Vec<_>) = messages
            .into_iter()
            .partition(|message| message.get_msg_type() == MessageType::MsgSnapshot);
        if !messages.is_empty() {
            outputs.push(Output::Send(messages));
        }
        for message in snapshots {
            self.snapshot_requested(message.to);
            outputs.push(Output::SendSnapshot {
                peer: message.to,
                message: Box::new(message),
            });
        }
    }

    fn enough_to_apply(&self) -> bool {
        self.committed.len() >= APPLY_ENTRIES_MAX
            || self.committed.iter().map(LogEntry::size).sum::<u64>() >= APPLY_BYTES_MAX
    }

    /// Hands out what is committed, up to the limits of one step.
    fn hand_out(&mut self, outputs: &mut Vec<Output>) {
        let mut bytes = 0;
        let fits = |entry: &&LogEntry| {
            bytes += entry.size();
            bytes <= APPLY_BYTES_MAX
        };
        let fitting = self.committed.iter().take_while(fits).count();
        let count = fitting
            .clamp(1, APPLY_ENTRIES_MAX)
            .min(self.committed.len());
        let entries: Vec<LogEntry> = self.committed.drain(..count).collect();
        if let Some(last) = entries.last() {
            self.applied = last.index;
            self.raw.mut_store().set_applied(last.index);
            outputs.push(Output::Apply(entries));
        }
    }

    /// Announces a change of term, role or leader. Questions asked of an earlier
    /// leadership are asked again.
    fn change_standing(&mut self, outputs: &mut Vec<Output>) {
        let standing = self.look();
        if standing == self.standing {
            return;
        }
        self.standing = standing;
        outputs.push(Output::Standing(standing));
        self.reads.reopen(None);
        if standing.role != Role::Leader {
            self.refuse_changes(outputs);
            self.refuse_peers(outputs);
        }
    }
}
