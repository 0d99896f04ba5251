//! The one place where committed entries reach the state machine.

use std::{
    mem,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use member::{EntryKind, LogEntry};
use mvcc::{Applied, AuthCommand, Command, Proposal};

use super::Core;
use crate::{fatal::fatal, metrics};

impl Core {
    /// Applies entries in log order; tells watchers, then the proposer.
    ///
    /// That order is etcd's (watchable_store_txn.go): whoever saw the answer to
    /// its put also finds the event on a watch.
    pub(super) fn apply(&mut self, entries: Vec<LogEntry>, now: Duration) {
        let (began, count) = (Instant::now(), entries.len());
        let mut entry_began = began;
        for entry in entries {
            #[cfg(feature = "sim")]
            self.show_entry(&entry);
            self.apply_entry(entry, now, &mut entry_began);
            #[cfg(feature = "sim")]
            self.show_machine();
        }
        let (took, limit) = (began.elapsed(), self.warning_apply_duration);
        if took > limit && !limit.is_zero() {
            tracing::warn!(entries = count, ?took, expected = ?limit, "applying took too long");
        }
        self.machine.start_granted(now);
        self.pending.forget_answered();
        self.count_pending();
    }

    fn apply_entry(&mut self, entry: LogEntry, now: Duration, began: &mut Instant) {
        let (index, term) = (entry.index, entry.term);
        match entry.kind {
            EntryKind::Normal if entry.data.is_empty() => self.machine.advance(index, term),
            EntryKind::Normal => match Proposal::decode(entry.data) {
                Ok(proposal) => self.apply_one(index, term, proposal, now, began),
                Err(error) => fatal("apply", &format!("log entry {index}: {error}")),
            },
            EntryKind::ConfChangeV2 => self.apply_membership(&entry),
            EntryKind::ConfChange => fatal(
                "apply",
                &format!("log entry {index} is of a kind that nothing proposes"),
            ),
        }
    }

    /// Applies an entry about the members, and tells whoever asked for it.
    fn apply_membership(&mut self, entry: &LogEntry) {
        let applied = self.apply_conf(entry);
        self.address_peers();
        if let Some(applied) = applied {
            self.answer(applied);
        }
    }

    /// Tells the proposer of an entry what came of it. The first copy of a proposal
    /// was answered; a second one changed nothing.
    fn answer(&mut self, applied: Applied) {
        if !matches!(applied.result, Err(mvcc::Error::DuplicateProposal)) {
            self.pending.answer(applied.id, Ok(applied));
        }
    }

    /// Lets tokens and the switch follow what was just applied.
    fn follow_auth(&mut self, command: &AuthCommand, index: u64, now: Duration) {
        self.tokens.follow(command, index, now);
        let on = self.machine.auth().enabled();
        self.auth_on.store(on, Ordering::Release);
    }

    /// Applies one entry, which took the time since `began`: of two entries in a row
    /// the clock is read once.
    fn apply_one(
        &mut self,
        index: u64,
        term: u64,
        proposal: Proposal,
        now: Duration,
        began: &mut Instant,
    ) {
        let op = metrics::apply::op(&proposal.command);
        let compacts = matches!(proposal.command, Command::Compact(_));
        let clears_alarm = matches!(proposal.command, Command::AlarmDeactivate(_));
        let about_members = matches!(proposal.command, Command::Member(_));
        let auth = match &proposal.command {
            Command::Auth(command) => Some(command.clone()),
            _ => None,
        };
        let applied = match self.machine.apply(index, term, proposal) {
            Ok(applied) => applied,
            Err(error) => fatal("apply", &format!("log entry {index}: {error}")),
        };
        #[cfg(feature = "sim")]
        self.show_applied(index, &applied);
        if applied.result.is_ok() {
            if clears_alarm {
                self.no_space_cleared();
            }
            if compacts {
                self.begin_compaction(now);
            }
            if let Some(command) = auth {
                self.follow_auth(&command, index, now);
            }
        }
        if !applied.events.is_empty() {
            let published = self
                .hub
                .publish(&applied.events, applied.revision, &self.machine);
            match published {
                Ok(streams) => self.fanout.add(&streams),
                Err(error) => fatal("watch", &error.to_string()),
            }
        }
        self.metrics.carried_out(&applied.result);
        let ended = Instant::now();
        let took = ended.duration_since(mem::replace(began, ended));
        let limit = self.warning_apply_duration;
        let slow = took > limit && !limit.is_zero();
        self.metrics
            .applies
            .applied(op, &applied.result, took, slow);
        if about_members {
            self.address_peers();
        }
        self.answer(applied);
    }
}
