//! The member, the state machine and the watch hub under one lock, and who waits
//! for them.
//!
//! The lock is held for one turn at a time: a batch applied, a read answered. The
//! driver takes it once per wake-up; an RPC or an embedded caller takes it to
//! queue a proposal or to answer a read, on its own thread, without a hop.

mod apply;
mod background;

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use member::{Input, Member, Output, ReadId, Role, Standing};
use mvcc::{
    Applied, StateMachine,
    watch::{StreamId, WatchHub},
};
use tokio::sync::{Notify, oneshot};

pub(crate) use self::background::Background;
use crate::{
    auth::SimpleTokens,
    config::Config,
    fatal::fatal,
    metrics::Metrics,
    rpc_error::RpcError,
    threads::{LogJob, RowsJob},
};

/// Most proposals that may wait to be applied. Beyond it a client is told
/// "too many requests", as etcd does when apply lags its commits by this much.
pub(crate) const PROPOSALS_WAITING_MAX: usize = 5_000;

/// Proposals of clients stop this far below the limit, so that the store's own
/// revocations and compactions still get in.
const PROPOSALS_RESERVED: usize = 500;

/// Most bytes that may wait to be written behind the log. Beyond it clients are
/// told "too many requests" until the rows thread has caught up.
const WRITEBACK_LAG_BYTES_MAX: usize = 256 << 20;

type Answer<T> = oneshot::Sender<Result<T, RpcError>>;

/// What other threads report to the driver.
#[derive(Debug)]
pub(crate) enum Done {
    /// The log is synced up to this write.
    LogSynced(u64),
    /// A batch is in the tree of rows.
    RowsWritten {
        /// The state machine's name for it.
        token: u64,
    },
    /// The rows are durable up to this index.
    RowsDurable(u64),
}

/// Returns how long a request waits for its answer (etcd: server/config,
/// `ReqTimeout`).
pub(crate) fn request_timeout(config: &Config) -> Duration {
    Duration::from_secs(5) + 2 * config.election_timeout
}

/// One member's whole state.
pub(crate) struct Core {
    pub(crate) member: Member,
    pub(crate) machine: StateMachine,
    pub(crate) hub: WatchHub,
    /// Proposals that came since the last turn.
    queue: Vec<member::Proposal>,
    waiters: HashMap<u64, Answer<Applied>>,
    /// When each waiter gives up, soonest first: all wait equally long.
    deadlines: VecDeque<(Duration, u64)>,
    readers: HashMap<ReadId, Answer<()>>,
    next_read: u64,
    /// Whom to wake when a stream has something to say.
    streams: HashMap<StreamId, Arc<Notify>>,
    next_stream: StreamId,
    log: mpsc::Sender<LogJob>,
    rows_jobs: mpsc::Sender<RowsJob>,
    background: Background,
    /// The tokens given out.
    pub(crate) tokens: SimpleTokens,
    auth_on: Arc<AtomicBool>,
    /// The index applied last, for proposals made without the lock.
    applied: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
    election_timeout: Duration,
    request_timeout: Duration,
    warning_apply_duration: Duration,
}

/// What a core is made of.
pub(crate) struct Parts {
    pub(crate) member: Member,
    pub(crate) machine: StateMachine,
    pub(crate) log: mpsc::Sender<LogJob>,
    pub(crate) rows_jobs: mpsc::Sender<RowsJob>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) proposal_ids: Arc<AtomicU64>,
    pub(crate) applied: Arc<AtomicU64>,
    pub(crate) auth_on: Arc<AtomicBool>,
}

impl Core {
    pub(crate) fn new(parts: Parts, config: &Config) -> Self {
        parts
            .auth_on
            .store(parts.machine.auth().enabled(), Ordering::Release);
        let applied = parts.machine.applied_index();
        parts.applied.store(applied, Ordering::Relaxed);
        Self {
            hub: WatchHub::new(parts.machine.revision()),
            member: parts.member,
            machine: parts.machine,
            queue: Vec::new(),
            waiters: HashMap::new(),
            deadlines: VecDeque::new(),
            readers: HashMap::new(),
            next_read: 0,
            streams: HashMap::new(),
            next_stream: 0,
            log: parts.log,
            rows_jobs: parts.rows_jobs,
            background: Background::new(config, parts.proposal_ids),
            tokens: SimpleTokens::new(config.auth_token_ttl),
            auth_on: parts.auth_on,
            applied: parts.applied,
            metrics: parts.metrics,
            election_timeout: config.election_timeout,
            request_timeout: request_timeout(config),
            warning_apply_duration: config.warning_apply_duration,
        }
    }

    /// Carries out what came since the last turn.
    pub(crate) fn turn(&mut self, done: Vec<Done>, now: Duration) {
        let mut synced = None;
        for event in done {
            match event {
                // Reported in order, so the last one says it all.
                Done::LogSynced(number) => synced = Some(number),
                Done::RowsWritten { token } => self.machine.writeback_done(token),
                Done::RowsDurable(index) => self.written_back(index, now),
            }
        }
        if let Some(number) = synced {
            self.step(Input::Persisted(number), now);
        }
        if self.member.wants_turn() {
            self.step(Input::Turn, now);
        }
        self.work_in_background(now);
        self.propose_queued(now);
    }

    /// Hands everything that queued up to the member, as one batch.
    fn propose_queued(&mut self, now: Duration) {
        if !self.queue.is_empty() {
            let batch = mem::take(&mut self.queue);
            self.step(Input::Propose(batch), now);
        }
    }

    /// Takes in what the disk threads reported at their end.
    pub(crate) fn settle_reports(&mut self, done: Vec<Done>) {
        for event in done {
            if let Done::RowsWritten { token } = event {
                self.machine.writeback_done(token);
            }
        }
    }

    /// Lets one tick of time pass.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.step(Input::Tick, now);
        while let Some((deadline, id)) = self.deadlines.front()
            && *deadline <= now
        {
            if let Some(waiter) = self.waiters.remove(id) {
                // The caller may be gone; then nobody needs the answer.
                let _gone = waiter.send(Err(mvcc::Error::Timeout.into()));
            }
            self.deadlines.pop_front();
        }
        self.tick_background(now);
        self.propose_queued(now);
    }

    pub(crate) fn step(&mut self, input: Input, now: Duration) {
        let outputs = self.member.step(input, now);
        self.carry_out(outputs, now);
    }

    fn carry_out(&mut self, outputs: Vec<Output>, now: Duration) {
        for output in outputs {
            match output {
                // There are no peers yet; a lone voter has nothing to say to anybody,
                // and nobody asks it or tells it anything.
                Output::Send(_)
                | Output::SendSnapshot { .. }
                | Output::AskLeader { .. }
                | Output::AnswerRead { .. } => {}
                Output::Install(_) | Output::Removed | Output::LogLost { .. } => {
                    fatal(
                        "member",
                        &format!("unexpected of a lone member: {output:?}"),
                    );
                }
                Output::Persist(persist) => self.send_log(LogJob::Write(persist)),
                Output::Apply(entries) => self.apply(entries, now),
                Output::ReadReady(ids) => self.answer_reads(ids, &Ok(())),
                Output::ReadRefused { ids, reason } => {
                    let error = match reason {
                        member::ReadRefusal::TooMany => mvcc::Error::TooManyRequests,
                        member::ReadRefusal::Timeout => mvcc::Error::Timeout,
                    };
                    self.answer_reads(ids, &Err(error.into()));
                }
                Output::Refused { ids, reason } => {
                    let error = match reason {
                        member::Refusal::NotLeader => mvcc::Error::NoLeader,
                        member::Refusal::TooMany => mvcc::Error::TooManyRequests,
                        member::Refusal::Transferring => mvcc::Error::LeaderChanged,
                    };
                    for id in ids {
                        self.answer(id, Err(error.clone().into()));
                    }
                }
                Output::Standing(standing) => self.change_standing(standing, now),
            }
        }
    }

    /// Queues a proposal; its answer comes once it is applied.
    pub(crate) fn propose(
        &mut self,
        id: u64,
        data: Bytes,
        now: Duration,
    ) -> Result<oneshot::Receiver<Result<Applied, RpcError>>, RpcError> {
        let full = self.waiters.len() >= PROPOSALS_WAITING_MAX - PROPOSALS_RESERVED;
        if full || self.machine.dirty_bytes() >= WRITEBACK_LAG_BYTES_MAX {
            return Err(mvcc::Error::TooManyRequests.into());
        }
        let (answer, receiver) = oneshot::channel();
        self.waiters.insert(id, answer);
        self.deadlines.push_back((now + self.request_timeout, id));
        self.queue.push(member::Proposal { id, data });
        self.metrics
            .proposals_pending
            .set(i64::try_from(self.waiters.len()).unwrap_or(i64::MAX));
        Ok(receiver)
    }

    /// Asks for everything acknowledged so far to be readable; the answer comes
    /// when it is.
    pub(crate) fn begin_read(&mut self, now: Duration) -> oneshot::Receiver<Result<(), RpcError>> {
        let (answer, receiver) = oneshot::channel();
        self.next_read += 1;
        let id = ReadId(self.next_read);
        self.readers.insert(id, answer);
        self.step(Input::Read(id), now);
        receiver
    }

    fn answer_reads(&mut self, ids: Vec<ReadId>, result: &Result<(), RpcError>) {
        for id in ids {
            if result.is_err() {
                self.metrics.read_indexes_failed.inc();
            }
            if let Some(reader) = self.readers.remove(&id) {
                let _gone = reader.send(result.clone());
            }
        }
    }

    fn answer(&mut self, id: u64, result: Result<Applied, RpcError>) {
        if let Some(waiter) = self.waiters.remove(&id) {
            let _gone = waiter.send(result);
        }
    }

    /// Forgets the deadlines of those who have their answer; answers come in order.
    fn forget_answered(&mut self) {
        while let Some((_, id)) = self.deadlines.front()
            && !self.waiters.contains_key(id)
        {
            self.deadlines.pop_front();
        }
    }

    fn change_standing(&mut self, standing: Standing, now: Duration) {
        self.metrics.standing(&standing);
        tracing::info!(term = standing.term, role = ?standing.role, leader = %format!("{:x}", standing.leader), "standing changed");
        if standing.role == Role::Leader {
            self.machine.promote(now, self.election_timeout);
            return;
        }
        self.machine.demote();
        // Whether their proposals will be applied is not known any more.
        for (_, waiter) in self.waiters.drain() {
            let _gone = waiter.send(Err(mvcc::Error::LeaderChanged.into()));
        }
        self.deadlines.clear();
    }

    /// Opens a watch stream and names whom to wake for it.
    pub(crate) fn open_stream(&mut self, now: Duration) -> (StreamId, Arc<Notify>) {
        self.next_stream += 1;
        let signal = Arc::new(Notify::new());
        self.hub.open_stream(self.next_stream);
        self.streams.insert(self.next_stream, Arc::clone(&signal));
        self.watch_for_quiet(self.next_stream, now);
        (self.next_stream, signal)
    }

    pub(crate) fn drop_stream(&mut self, stream: StreamId) {
        self.hub.drop_stream(stream);
        self.streams.remove(&stream);
    }

    fn wake_streams(&self, ids: &[StreamId]) {
        for id in ids {
            if let Some(signal) = self.streams.get(id) {
                signal.notify_one();
            }
        }
    }

    fn send_log(&self, job: LogJob) {
        // The thread ends only with the process or after the core.
        let _ended = self.log.send(job);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        for (_, waiter) in self.waiters.drain() {
            let _gone = waiter.send(Err(mvcc::Error::Stopped.into()));
        }
        for (_, reader) in self.readers.drain() {
            let _gone = reader.send(Err(mvcc::Error::Stopped.into()));
        }
        for signal in self.streams.values() {
            signal.notify_one();
        }
    }
}
