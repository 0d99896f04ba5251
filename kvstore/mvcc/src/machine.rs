//! The state machine: the one `apply`, and the facts beside it.
//!
//! `range.rs`, `txn.rs`, `write.rs`, `compaction.rs` and `durable.rs` add to
//! [`StateMachine`] what their names say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::auth::{AuthCommand, AuthStore};
use crate::backend::BackendError;
use crate::command::{
    Alarm, AlarmKind, Command, LeaseCheckpointRequest, LeaseGrantRequest, LeaseId, Proposal,
};
use crate::compaction::Compaction;
use crate::dedupe::Dedupe;
use crate::durable::{Delta, Flight, alarm_key, meta_key};
use crate::error::Error;
use crate::key_index::KeyIndex;
use crate::lessor::{self, Lessor};
use crate::membership::Membership;
use crate::response::{
    AlarmReply, Applied, AuthReply, CompactReply, LeaseGrantReply, LeaseReply, Reply,
};
use crate::values::Values;
use crate::view::Pins;
use crate::write::Write;

/// Holds what a member decides at start. `lease_ttl_min` and `learners_max` must be
/// equal on all members, because they shape replicated state; the rest is each
/// member's own.
#[derive(Debug, Clone)]
pub struct Config {
    /// The shortest lease, in seconds; shorter grants are raised to it.
    pub lease_ttl_min: i64,
    /// The most learners at a time (etcd: `--max-learners`).
    pub learners_max: usize,
    /// Recent revisions kept in memory beyond those not yet written back.
    /// Beyond it the oldest written ones are dropped and read from blocks.
    pub window_bytes: usize,
    /// Blocks kept in memory after a read. Beyond it the least recently read go.
    pub block_cache_bytes: usize,
    /// The size at which a block of revisions is closed.
    pub block_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lease_ttl_min: 2,
            learners_max: 1,
            window_bytes: 8 << 20,
            block_cache_bytes: 32 << 20,
            block_bytes: 32 << 10,
        }
    }
}

/// Describes a lease to LeaseTimeToLive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The lease.
    pub id: LeaseId,
    /// Whole seconds left; the full time when no clock runs on this member.
    pub ttl: i64,
    /// The seconds granted.
    pub granted_ttl: i64,
}

/// Is the outcome of a keepalive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// The seconds the lease now has.
    pub ttl: i64,
    /// A checkpoint is on record and must be cleared: propose
    /// `LeaseCheckpoint { (id, 0) }` before answering.
    pub clear_checkpoint: bool,
}

/// Tells the compaction driver what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactStep {
    /// Nothing is left to delete.
    Done,
    /// Call again, after giving others a turn.
    More,
    /// A write-back is on its way, or has to come first (views may hold back what it
    /// should write): call again after `writeback_done`.
    Busy,
}

/// Is the replicated store of one member.
///
/// Invariants: every live revision in `index` is in `values`; `revision` is the
/// greatest main revision ever taken; `pending` is what changed beside values
/// since the last batch, in log order.
pub struct StateMachine {
    pub(crate) config: Config,
    pub(crate) index: KeyIndex,
    pub(crate) values: Values,
    pub(crate) lessor: Lessor,
    pub(crate) alarms: BTreeSet<Alarm>,
    pub(crate) auth: AuthStore,
    pub(crate) meta: BTreeMap<String, Bytes>,
    pub(crate) membership: Membership,
    pub(crate) dedupe: Dedupe,
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    pub(crate) compaction: Compaction,
    pub(crate) applied_index: u64,
    pub(crate) applied_term: u64,
    pub(crate) pending: VecDeque<(u64, Delta)>,
    /// The terms begun since the last batch, each with its first entry.
    pub(crate) terms: VecDeque<(u64, u64)>,
    pub(crate) flight: Option<Flight>,
    pub(crate) pins: Pins,
    pub(crate) durable: Durable,
}

/// Is what the tree holds once the last batch reported done is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Durable {
    pub(crate) token: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
}

impl StateMachine {
    /// Applies one committed entry. The error means that the backend could not
    /// be read: the state is then undefined and the process must stop.
    ///
    /// Entries at or below [`Self::applied_index`] must not be given again.
    pub fn apply(
        &mut self,
        index: u64,
        term: u64,
        proposal: Proposal,
    ) -> Result<Applied, BackendError> {
        self.advance(index, term);
        let id = proposal.id;
        let mut events = Vec::new();
        let result = self
            .admit(&proposal, index)
            .and_then(|()| self.run(index, &proposal, &mut events));
        if let Err(Error::Storage(e)) = result {
            return Err(e);
        }
        Ok(Applied {
            id,
            revision: self.revision,
            result,
            events,
        })
    }

    /// Refuses a copy of a proposal that was applied before, or may have been.
    pub(crate) fn admit(&mut self, proposal: &Proposal, index: u64) -> Result<(), Error> {
        self.dedupe.admit(proposal.id, proposal.since, index)
    }

    fn run(
        &mut self,
        index: u64,
        proposal: &Proposal,
        events: &mut Events,
    ) -> Result<Reply, Error> {
        let command = &proposal.command;
        self.check_alarms(command)?;
        if let Some(who) = &proposal.identity {
            self.check_command(who, command)?;
        }
        match command {
            Command::Put(r) => {
                Write::check_put(self, r)?;
                let reply = self.write(index, events, |w| Ok(w.put(r)?))?;
                Ok(Reply::Put(reply))
            }
            Command::DeleteRange(r) => {
                let reply = self.write(index, events, |w| Ok(w.delete_range(r)?))?;
                Ok(Reply::DeleteRange(reply))
            }
            Command::Txn(r) => Ok(Reply::Txn(self.write(index, events, |w| w.txn(r))?)),
            Command::Compact(r) => {
                self.compact(r.revision, index)?;
                self.pending
                    .push_back((index, Delta::Compacted(r.revision)));
                let revision = self.revision;
                Ok(Reply::Compact(CompactReply { revision }))
            }
            Command::LeaseGrant(r) => self.grant(index, r).map(Reply::LeaseGrant),
            Command::LeaseRevoke(r) => {
                self.write(index, events, |w| w.revoke(r.id))?;
                self.save_lease(index, r.id);
                Ok(Reply::LeaseRevoke(self.lease_reply()))
            }
            Command::LeaseCheckpoint(r) => Ok(Reply::LeaseCheckpoint(self.checkpoint(index, r))),
            Command::AlarmActivate(a) => Ok(Reply::Alarm(self.activate(index, *a))),
            Command::AlarmDeactivate(a) => Ok(Reply::Alarm(self.deactivate(index, *a))),
            Command::Auth(c) => self.change_auth(index, c).map(Reply::Auth),
            Command::Member(c) => self.run_member(index, c),
            Command::Downgrade(target) => Ok(self.set_downgrade(index, target.as_deref())),
        }
    }

    fn write<T>(
        &mut self,
        index: u64,
        events: &mut Events,
        run: impl FnOnce(&mut Write<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut write = Write::begin(self, index);
        let result = run(&mut write);
        *events = write.end();
        result
    }

    /// Refuses what an alarm forbids: everything that may grow the store under
    /// NOSPACE, everything about keys under CORRUPT (etcd `apply/uber_apply.go`).
    fn check_alarms(&self, command: &Command) -> Result<(), Error> {
        if self.alarms.is_empty() {
            return Ok(());
        }
        let about_keys = !matches!(
            command,
            Command::AlarmActivate(_)
                | Command::AlarmDeactivate(_)
                | Command::Auth(_)
                | Command::Member(_)
        );
        if self.has_alarm(AlarmKind::Corrupt) && about_keys {
            return Err(Error::Corrupt);
        }
        if self.has_alarm(AlarmKind::NoSpace) && command.quota_cost() > 0 {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn grant(&mut self, index: u64, r: &LeaseGrantRequest) -> Result<LeaseGrantReply, Error> {
        let ttl = self.lessor.grant(r.id, r.ttl, self.config.lease_ttl_min)?;
        self.save_lease(index, r.id);
        Ok(LeaseGrantReply {
            revision: self.revision,
            id: r.id,
            ttl,
        })
    }

    /// Records remaining times; a lease revoked meanwhile is passed over.
    fn checkpoint(&mut self, index: u64, r: &LeaseCheckpointRequest) -> LeaseReply {
        for (id, left) in &r.checkpoints {
            if self.lessor.checkpoint(*id, *left) {
                self.save_lease(index, *id);
            }
        }
        self.lease_reply()
    }

    fn lease_reply(&self) -> LeaseReply {
        LeaseReply {
            revision: self.revision,
        }
    }

    fn save_lease(&mut self, index: u64, id: LeaseId) {
        let row = (lessor::row_key(id), self.lessor.row(id));
        self.pending.push_back((index, Delta::Row(row.0, row.1)));
    }

    fn change_auth(&mut self, index: u64, c: &AuthCommand) -> Result<AuthReply, Error> {
        for row in self.auth.apply(c)? {
            let (key, row) = self.auth.keyed_row(&row);
            self.pending.push_back((index, Delta::Row(key, row)));
        }
        Ok(AuthReply {
            revision: self.revision,
            auth_revision: self.auth.revision(),
            index,
        })
    }

    fn set_downgrade(&mut self, index: u64, target: Option<&str>) -> Reply {
        let row = target.map(|target| Bytes::copy_from_slice(target.as_bytes()));
        match &row {
            Some(row) => self.meta.insert(DOWNGRADE.to_owned(), row.clone()),
            None => self.meta.remove(DOWNGRADE),
        };
        let delta = Delta::Row(meta_key(DOWNGRADE), row);
        self.pending.push_back((index, delta));
        Reply::Downgrade
    }

    fn activate(&mut self, index: u64, alarm: Alarm) -> AlarmReply {
        if self.alarms.insert(alarm) {
            let row = Delta::Row(alarm_key(alarm), Some(Bytes::new()));
            self.pending.push_back((index, row));
        }
        AlarmReply {
            revision: self.revision,
            alarms: vec![alarm],
        }
    }

    fn deactivate(&mut self, index: u64, alarm: Alarm) -> AlarmReply {
        let mut alarms = Vec::new();
        if self.alarms.remove(&alarm) {
            self.pending
                .push_back((index, Delta::Row(alarm_key(alarm), None)));
            alarms.push(alarm);
        }
        AlarmReply {
            revision: self.revision,
            alarms,
        }
    }

    /// Moves the applied index over an entry that carries no command (an empty
    /// entry of a new leader, a membership change).
    pub fn advance(&mut self, index: u64, term: u64) {
        assert!(
            index > self.applied_index,
            "entry {index} applied after {}",
            self.applied_index
        );
        self.applied_index = index;
        if term != self.applied_term {
            self.applied_term = term;
            self.terms.push_back((index, term));
        }
    }

    // --- facts ---

    /// Returns the store's revision; 1 when fresh.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the compacted revision; -1 before the first compaction.
    pub fn compact_revision(&self) -> i64 {
        self.compacted
    }

    /// Returns the index of the last entry applied.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Returns the term of the last entry applied.
    pub fn applied_term(&self) -> u64 {
        self.applied_term
    }

    /// Counts the live keys.
    pub fn key_count(&self) -> u64 {
        self.index.live_len()
    }

    /// Estimates the bytes stored: blocks plus what is not yet in one. For the
    /// quota.
    pub fn size_bytes(&self) -> u64 {
        self.values.stored_bytes() + self.values.unwritten_bytes() as u64
    }

    /// Estimates the bytes that are not garbage.
    pub fn size_in_use_bytes(&self) -> u64 {
        self.size_bytes().saturating_sub(self.values.dead_bytes())
    }

    /// Counts the bytes of changes that are in the log but not yet in rows.
    pub fn unwritten_bytes(&self) -> u64 {
        self.values.unwritten_bytes() as u64
    }

    /// Returns the version the cluster is to go back to, if it is.
    pub fn downgrade(&self) -> Option<String> {
        let target = self.meta.get(DOWNGRADE)?;
        Some(String::from_utf8_lossy(target).into_owned())
    }

    /// Lists the raised alarms, by member and kind.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.alarms.iter().copied().collect()
    }

    /// Reports whether any member raised an alarm of a kind. Reads must be
    /// refused with [`Error::Corrupt`] while one of that kind is up.
    pub fn has_alarm(&self, kind: AlarmKind) -> bool {
        self.alarms.iter().any(|a| a.kind == kind)
    }

    // --- leases; `now` is time since any fixed moment of this process ---

    /// Lists the leases, ascending.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.lessor.ids()
    }

    /// Reports whether a lease exists.
    pub fn has_lease(&self, id: LeaseId) -> bool {
        self.lessor.exists(id)
    }

    /// Counts the leases.
    pub fn lease_count(&self) -> usize {
        self.lessor.len()
    }

    /// Describes a lease; `None` (TTL -1 on the wire) when unknown.
    pub fn lease_ttl(&self, id: LeaseId, now: Duration) -> Option<LeaseStatus> {
        self.lessor.status(id, now)
    }

    /// Lists the keys attached to a lease, sorted.
    pub fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        self.lessor.keys(id)
    }

    /// Gives a lease its full time again. Only the leader may; on a follower,
    /// and for an unknown or run-out lease, the answer is LeaseNotFound
    /// (a keepalive reply with TTL 0, once [`Self::has_lease`] denies it).
    pub fn renew(&mut self, id: LeaseId, now: Duration) -> Result<Renewed, Error> {
        self.lessor.renew(id, now)
    }

    /// Lists up to `limit` leases whose time is up, for the leader to propose
    /// `LeaseRevoke`. A lease is named again only after a few seconds.
    pub fn expired(&mut self, now: Duration, limit: usize) -> Vec<LeaseId> {
        self.lessor.expired(now, limit)
    }

    /// Returns when [`Self::expired`] next has something to say; zero when it
    /// wants to be told the time because a lease was just granted.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.lessor.next_expiry()
    }

    /// Lists up to `limit` leases whose remaining time should be recorded, for
    /// the leader to propose `LeaseCheckpoint`; each at most once per `interval`.
    pub fn checkpoints_due(
        &mut self,
        now: Duration,
        interval: Duration,
        limit: usize,
    ) -> Vec<(LeaseId, i64)> {
        self.lessor.checkpoints_due(now, interval, limit)
    }

    /// Starts the clocks of leases granted since the time was last known; call it
    /// after applying, so that a lease runs from its grant.
    pub fn start_granted(&mut self, now: Duration) {
        self.lessor.start_fresh(now);
    }

    /// Starts the lease clocks: this member became leader. Every lease gets its
    /// full (or checkpointed) time plus `extend`.
    pub fn promote(&mut self, now: Duration, extend: Duration) {
        self.lessor.promote(now, extend);
    }

    /// Stops the lease clocks: this member is no longer leader.
    pub fn demote(&mut self) {
        self.lessor.demote();
    }
}

/// Names the row of a downgrade that was announced.
const DOWNGRADE: &str = "downgrade";

type Events = Vec<std::sync::Arc<crate::response::Event>>;
