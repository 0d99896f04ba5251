//! What the store does without being asked: writing rows behind the log, deleting
//! compacted history, revoking leases, telling quiet watchers that time went on.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use member::Role;
use mvcc::{
    Alarm, Command, CompactRequest, CompactStep, LeaseCheckpointRequest, LeaseRevokeRequest,
    Proposal, watch::StreamId,
};
use tokio::sync::oneshot;

use super::Core;
use crate::{
    config::{AutoCompaction, Compaction, Config, WriteBehind},
    fatal::fatal,
    threads::RowsJob,
    views::VIEW_AGE_MAX,
    world::World,
};

/// Bytes of one write-back; what is left follows in the next.
const WRITEBACK_BYTES_MAX: usize = 8 << 20;

/// Revisions looked at in one step of compaction: a third of a millisecond, which is what
/// a write may have to wait at each of its turns.
const COMPACT_REVISIONS: usize = 200;

/// How often expired leases are looked for (etcd: lessor, 500 ms).
const LEASE_INTERVAL: Duration = Duration::from_millis(500);

/// Leases revoked in one round: etcd's 1000 per second.
const LEASES_REVOKED_MAX: usize = 500;

/// How often what is left of long leases is recorded (etcd: 5 minutes).
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(300);

/// Leases recorded in one proposal (etcd: 1000).
const CHECKPOINTS_MAX: usize = 1_000;

/// The shortest interval of progress notifications (etcd: minWatchProgressInterval).
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Steps of how late the clock of a stream may run.
const PROGRESS_LATE_STEPS: u64 = 1_000;

/// How often revision-based auto-compaction looks (etcd: 5 minutes).
const AUTO_COMPACT_INTERVAL: Duration = Duration::from_secs(300);

/// Samples that periodic auto-compaction takes within its retention (etcd: 10).
const AUTO_COMPACT_SAMPLES: u32 = 10;

/// How long a proposed alarm may take to be applied before it is proposed again.
const ALARM_INTERVAL: Duration = Duration::from_secs(1);

/// When what was last done.
#[derive(Debug)]
pub(crate) struct Background {
    writeback_under_way: bool,
    writeback_due: Duration,
    write_behind: WriteBehind,
    compacting: bool,
    compaction: Compaction,
    /// When the next step of compaction may be taken.
    compact_due: Duration,
    /// Whether the last step of compaction left more that can be done at once.
    compact_more: bool,
    compaction_waiters: Vec<oneshot::Sender<()>>,
    leases_due: Duration,
    /// When quiet watchers of which stream hear that time went on, and how often.
    progress_due: BTreeMap<(Duration, StreamId), Duration>,
    progress_interval: Duration,
    auto_compaction: AutoCompaction,
    auto_compact_due: Duration,
    /// Revisions as of earlier times, for periodic auto-compaction.
    samples: VecDeque<(Duration, i64)>,
    /// When an alarm for want of space may be proposed again.
    alarm_due: Duration,
    proposal_ids: Arc<AtomicU64>,
    world: World,
}

impl Background {
    pub(super) fn new(config: &Config, proposal_ids: Arc<AtomicU64>, world: World) -> Self {
        Self {
            writeback_under_way: false,
            writeback_due: Duration::ZERO,
            write_behind: config.write_behind,
            compacting: true,
            compaction: config.compaction,
            compact_due: Duration::ZERO,
            compact_more: false,
            compaction_waiters: Vec::new(),
            leases_due: Duration::ZERO,
            progress_due: BTreeMap::new(),
            progress_interval: config.watch_progress_interval.max(PROGRESS_INTERVAL_MIN),
            auto_compaction: config.auto_compaction,
            auto_compact_due: Duration::ZERO,
            samples: VecDeque::new(),
            alarm_due: Duration::ZERO,
            proposal_ids,
            world,
        }
    }
}

impl Core {
    /// Does what each turn may leave to do.
    pub(super) fn work_in_background(&mut self, now: Duration) {
        self.compact_some(now);
        let dirty = self.machine.dirty_bytes();
        let rewrites = self.machine.rewrites_ready();
        let some = dirty > 0 || rewrites;
        // Who waits for the end of a compaction waits for its rows to be gone.
        let awaited = rewrites
            && !self.background.compact_more
            && !self.background.compaction_waiters.is_empty();
        let due = now >= self.background.writeback_due;
        if dirty >= self.background.write_behind.bytes || awaited || (some && due) {
            self.write_back(now);
        }
        self.tell_compacted();
    }

    /// Tells who waits that everything compacted is gone, from disk too.
    fn tell_compacted(&mut self) {
        let done = !self.background.compacting
            && !self.background.writeback_under_way
            && !self.machine.has_rewrites();
        if done {
            for waiter in self.background.compaction_waiters.drain(..) {
                let _gone = waiter.send(());
            }
        }
    }

    /// Says whether the driver should take another turn soon, unasked.
    pub(crate) fn wants_turn(&self) -> bool {
        let at_once = self.background.compaction.pause.is_zero();
        at_once && self.next_compact_step().is_some() || self.member.wants_turn()
    }

    /// Says when the next step of compaction may be taken, if there is one to take.
    pub(crate) fn next_compact_step(&self) -> Option<Duration> {
        let waits = self.background.compact_more && !self.background.writeback_under_way;
        waits.then_some(self.background.compact_due)
    }

    pub(super) fn tick_background(&mut self, now: Duration) {
        self.work_in_background(now);
        self.tell_quiet_watchers(now);
        if let Some(before) = now.checked_sub(VIEW_AGE_MAX) {
            let expired = self.machine.expire_views(before);
            if expired > 0 {
                tracing::warn!(expired, "let go of reads that took too long");
            }
        }
        if self.member.standing().role != Role::Leader {
            return;
        }
        if now >= self.background.leases_due {
            self.background.leases_due = now + LEASE_INTERVAL;
            self.tend_leases(now);
        }
        if now >= self.background.auto_compact_due {
            self.auto_compact(now);
        }
    }

    fn write_back(&mut self, now: Duration) {
        if self.background.writeback_under_way {
            return;
        }
        let Some(job) = self.machine.take_writeback(WRITEBACK_BYTES_MAX) else {
            return;
        };
        self.background.writeback_under_way = true;
        self.background.writeback_due = now + self.background.write_behind.interval;
        // The thread ends only with the process or after the core.
        let _ended = self.rows_jobs.send(RowsJob::Write(job));
    }

    /// Notes that a batch is in the tree, and durable.
    pub(super) fn written_back(&mut self, index: u64, now: Duration) {
        self.background.writeback_under_way = false;
        self.step(member::Input::Covered(index), now);
        self.release_log(index);
    }

    pub(super) fn begin_compaction(&mut self, _now: Duration) {
        self.background.compacting = true;
        let streams = self.hub.ready();
        self.wake_streams(&streams);
    }

    /// Returns what fires once everything compacted so far is deleted, on disk too.
    pub(crate) fn compaction_end(&mut self) -> oneshot::Receiver<()> {
        let (end, receiver) = oneshot::channel();
        self.background.compacting = true;
        self.background.compaction_waiters.push(end);
        receiver
    }

    /// Returns what fires once nearly all that was compacted is gone from the rows.
    pub(crate) fn begin_defragment(&mut self) -> oneshot::Receiver<()> {
        self.machine.waste_nothing();
        self.compaction_end()
    }

    /// Returns what fires once the rows take no more space on disk than they need.
    pub(crate) fn end_defragment(&mut self) -> oneshot::Receiver<()> {
        let (end, receiver) = oneshot::channel();
        // The thread ends only with the process or after the core.
        let _ended = self.rows_jobs.send(RowsJob::Defragment(end));
        receiver
    }

    fn compact_some(&mut self, now: Duration) {
        let early = now < self.background.compact_due;
        if !self.background.compacting || self.background.writeback_under_way || early {
            return;
        }
        let Compaction { batch, pause } = self.background.compaction;
        self.background.compact_due = now + pause;
        self.background.compact_more = false;
        match self
            .machine
            .compact_step(batch.unwrap_or(COMPACT_REVISIONS))
        {
            Ok(CompactStep::More) => self.background.compact_more = true,
            // The next tick looks again.
            Ok(CompactStep::Busy) => {}
            Ok(CompactStep::Done) => self.background.compacting = false,
            Err(error) => fatal("compaction", &error.to_string()),
        }
    }

    /// Starts the clock by which a new stream's quiet watchers hear of progress. It
    /// runs up to a tenth late, so that watchers opened together, by a client that
    /// came back, are not all told together (etcd: v3rpc/watch.go).
    pub(super) fn watch_for_quiet(&mut self, stream: StreamId, now: Duration) {
        let interval = self.background.progress_interval;
        let late = self.background.world.random() % PROGRESS_LATE_STEPS;
        let period = interval + interval / 10 * late as u32 / PROGRESS_LATE_STEPS as u32;
        let due = (now + period, stream);
        self.background.progress_due.insert(due, period);
    }

    fn tell_quiet_watchers(&mut self, now: Duration) {
        while let Some(next) = self.background.progress_due.first_entry()
            && next.key().0 <= now
        {
            let ((_, stream), period) = next.remove_entry();
            if !self.streams.contains_key(&stream) {
                continue;
            }
            let due = (now + period, stream);
            self.background.progress_due.insert(due, period);
            if self.hub.progress_tick(stream) {
                self.wake_streams(&[stream]);
            }
        }
    }

    fn tend_leases(&mut self, now: Duration) {
        for id in self.machine.expired(now, LEASES_REVOKED_MAX) {
            self.metrics.lease_expired.inc();
            self.propose_unasked(Command::LeaseRevoke(LeaseRevokeRequest { id }));
        }
        let checkpoints = self
            .machine
            .checkpoints_due(now, CHECKPOINT_INTERVAL, CHECKPOINTS_MAX);
        if !checkpoints.is_empty() {
            self.propose_unasked(Command::LeaseCheckpoint(LeaseCheckpointRequest {
                checkpoints,
            }));
        }
    }

    fn auto_compact(&mut self, now: Duration) {
        let current = self.machine.revision();
        let target = match self.background.auto_compaction {
            AutoCompaction::Off => {
                self.background.auto_compact_due = Duration::MAX;
                return;
            }
            AutoCompaction::Revision(keep) => {
                self.background.auto_compact_due = now + AUTO_COMPACT_INTERVAL;
                Some(current - keep)
            }
            AutoCompaction::Periodic(retention) => {
                self.background.auto_compact_due = now + retention / AUTO_COMPACT_SAMPLES;
                let samples = &mut self.background.samples;
                samples.push_back((now, current));
                let mut target = None;
                while let Some((taken, revision)) = samples.front()
                    && now.saturating_sub(*taken) >= retention
                {
                    target = Some(*revision);
                    samples.pop_front();
                }
                target
            }
        };
        if let Some(revision) =
            target.filter(|target| *target > self.machine.compact_revision().max(0))
        {
            tracing::info!(revision, "compacting history automatically");
            self.propose_unasked(Command::Compact(CompactRequest {
                revision,
                physical: false,
            }));
        }
    }

    /// Proposes that the store be closed for writes because it is full. Raising it
    /// twice does nothing, so a proposal that was lost is made again.
    pub(crate) fn raise_no_space(&mut self, now: Duration) {
        if now < self.background.alarm_due {
            return;
        }
        self.background.alarm_due = now + ALARM_INTERVAL;
        let alarm = Alarm {
            member: self.ids.member,
            kind: mvcc::AlarmKind::NoSpace,
        };
        let proposal = self.unasked(Command::AlarmActivate(alarm));
        self.pending.add_unasked(proposal);
    }

    /// Notes that an alarm was cleared, so that it may be raised again at once.
    pub(super) fn no_space_cleared(&mut self) {
        self.background.alarm_due = Duration::ZERO;
    }

    /// Proposes a command whose answer nobody waits for, as leader.
    pub(crate) fn propose_unasked(&mut self, command: Command) {
        let proposal = self.unasked(command);
        self.pending.add_own(proposal);
    }

    fn unasked(&self, command: Command) -> member::Proposal {
        let id = self.background.proposal_ids.fetch_add(1, Ordering::Relaxed);
        let data = Proposal {
            id,
            since: Some(self.machine.applied_index()),
            identity: None,
            command,
        }
        .encode();
        member::Proposal { id, data }
    }

    /// Forgets what was under way for a machine that another has replaced.
    pub(super) fn begin_anew(&mut self, now: Duration) {
        self.background.writeback_under_way = false;
        self.background.writeback_due = now;
        self.background.compacting = true;
        self.background.samples.clear();
    }
}
