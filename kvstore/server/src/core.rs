//! The member, the state machine and the watch hub under one lock, and who waits
//! for them.
//!
//! The lock is held for one turn at a time: a batch applied, a read answered. The
//! driver takes it once per wake-up; an RPC or an embedded caller takes it to
//! queue a proposal or to answer a read, on its own thread, without a hop.

mod apply;
mod background;
mod fanout;
mod log;
mod membership;
mod pending;
mod route;
mod transfer;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use member::{Change, Input, Member, Output, ReadId, Role, Standing};
use mvcc::{
    Applied, StateMachine, Written,
    watch::{StreamId, WatchHub},
};
use tokio::sync::{Notify, oneshot};

pub(crate) use self::{
    background::Background,
    membership::change_of,
    transfer::{Arrival, Sending},
};
use self::{fanout::Fanout, log::LogQueue, pending::Pending};
use crate::{
    auth::SimpleTokens,
    config::Config,
    fatal::fatal,
    identity::Ids,
    metrics::Metrics,
    peers::{Links, Note},
    rpc_error::RpcError,
    threads::{LogJob, RowsJob},
    world::World,
};

/// Most bytes that may wait to be written behind the log. Beyond it clients are
/// told "too many requests" until the rows thread has caught up.
const WRITEBACK_LAG_BYTES_MAX: usize = 256 << 20;

/// What others report to the driver: the disk threads, and the links to peers.
#[derive(Debug)]
pub(crate) enum Done {
    /// The log is synced up to this write.
    LogSynced(u64),
    /// A batch is in the tree of rows.
    RowsWritten {
        /// Which rows; see [`RowsJob::Replace`].
        generation: u64,
        /// What the state machine must be told.
        written: Written,
    },
    /// The rows are durable up to this index.
    RowsDurable {
        /// Which rows.
        generation: u64,
        /// The index.
        index: u64,
    },
    /// A peer sent notes.
    Notes(u64, Vec<Note>),
    /// Messages of raft to a peer were lost.
    Unreachable(u64),
    /// A link to a peer has come up.
    Linked(u64),
    /// A snapshot was taken in by a peer, or not.
    SnapshotSent {
        /// The peer.
        peer: u64,
        /// Whether it was.
        ok: bool,
    },
    /// A snapshot is ready to be installed.
    Arrived(Box<Arrival>),
}

/// Returns how long a request waits for its answer (etcd: server/config,
/// `ReqTimeout`).
pub(crate) fn request_timeout(config: &Config) -> Duration {
    Duration::from_secs(5) + 2 * config.election_timeout
}

/// What a member is to do next, as the one who drives it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Goes on.
    Lives,
    /// Was removed from its cluster, and stops.
    Removed,
}

/// One member's whole state.
pub(crate) struct Core {
    pub(crate) member: Member,
    pub(crate) machine: StateMachine,
    pub(crate) hub: WatchHub,
    pending: Pending,
    /// Whose proposals are being proposed; nobody's but those of this member's own
    /// clients outside of that.
    proposes_for: Option<u64>,
    /// Own proposals that were refused for the moment: to be sent again at the next
    /// tick, so that two members who take each other for the leader do not spin.
    refused: Vec<u64>,
    resend_due: Duration,
    ids: Ids,
    pub(crate) peers: Arc<dyn Links>,
    /// The snapshot that raft is asked about at the moment.
    arrival: Option<Box<Arrival>>,
    /// Counts the rows there have been: those of snapshots follow the first.
    generation: u64,
    /// Where the rows are.
    rows_path: PathBuf,
    /// Rows that were replaced, and when they may go.
    retired: Vec<(Duration, PathBuf)>,
    pub(crate) fate: Fate,
    /// Snapshots that should be sent; taken by whoever can start tasks.
    pub(crate) sendings: Vec<Sending>,
    /// Whom to wake when a stream has something to say.
    streams: HashMap<StreamId, Arc<Notify>>,
    next_stream: StreamId,
    /// Those that are to be told of changes.
    fanout: Fanout,
    log: LogQueue,
    rows_jobs: mpsc::Sender<RowsJob>,
    background: Background,
    /// The tokens given out.
    pub(crate) tokens: SimpleTokens,
    auth_on: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    election_timeout: Duration,
    request_timeout: Duration,
    warning_apply_duration: Duration,
    /// Sees what is applied, if anybody wants to.
    #[cfg(feature = "sim")]
    pub(crate) tap: Option<Box<dyn crate::sim::Tap>>,
}

/// What a core is made of.
pub(crate) struct Parts {
    pub(crate) ids: Ids,
    pub(crate) member: Member,
    pub(crate) machine: StateMachine,
    pub(crate) peers: Arc<dyn Links>,
    pub(crate) rows_path: PathBuf,
    pub(crate) log: mpsc::Sender<LogJob>,
    pub(crate) rows_jobs: mpsc::Sender<RowsJob>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) proposal_ids: Arc<AtomicU64>,
    pub(crate) auth_on: Arc<AtomicBool>,
    pub(crate) world: World,
}

impl Core {
    pub(crate) fn new(parts: Parts, config: &Config) -> Self {
        parts
            .auth_on
            .store(parts.machine.auth().enabled(), Ordering::Release);
        let core = Self {
            hub: WatchHub::new(parts.machine.revision()),
            member: parts.member,
            machine: parts.machine,
            pending: Pending::default(),
            proposes_for: None,
            refused: Vec::new(),
            resend_due: Duration::ZERO,
            ids: parts.ids,
            peers: parts.peers,
            arrival: None,
            generation: 0,
            rows_path: parts.rows_path,
            retired: Vec::new(),
            fate: Fate::Lives,
            sendings: Vec::new(),
            streams: HashMap::new(),
            next_stream: 0,
            fanout: Fanout::default(),
            log: LogQueue::new(parts.log),
            rows_jobs: parts.rows_jobs,
            background: Background::new(config, parts.proposal_ids, parts.world),
            tokens: SimpleTokens::new(config.auth_token_ttl),
            auth_on: parts.auth_on,
            metrics: parts.metrics,
            election_timeout: config.election_timeout,
            request_timeout: request_timeout(config),
            warning_apply_duration: config.warning_apply_duration,
            #[cfg(feature = "sim")]
            tap: None,
        };
        core.address_peers();
        core
    }

    /// Carries out what came since the last turn.
    pub(crate) fn turn(&mut self, done: Vec<Done>, now: Duration) {
        let mut synced = None;
        for event in done {
            match event {
                // Reported in order, so the last one says it all.
                Done::LogSynced(number) => synced = Some(number),
                Done::RowsWritten {
                    generation,
                    written,
                } if generation == self.generation => {
                    self.machine.writeback_done(written);
                }
                Done::RowsDurable { generation, index } if generation == self.generation => {
                    self.written_back(index, now);
                }
                // Of rows that a snapshot has replaced.
                Done::RowsWritten { .. } | Done::RowsDurable { .. } => {}
                Done::Notes(from, notes) => self.take_notes(from, notes, now),
                Done::Unreachable(peer) => self.step(Input::Unreachable(peer), now),
                Done::Linked(peer) => self.linked(peer),
                Done::SnapshotSent { peer, ok } => {
                    self.step(Input::SnapshotSent { peer, ok }, now);
                }
                Done::Arrived(arrival) => self.arrived(arrival, now),
            }
        }
        if let Some(number) = synced {
            self.step(Input::Persisted(number), now);
        }
        if self.member.wants_turn() {
            self.step(Input::Turn, now);
        }
        self.work_in_background(now);
        self.hand_over(now);
    }

    /// Takes in what the disk threads reported at their end.
    pub(crate) fn settle_reports(&mut self, done: Vec<Done>) {
        for event in done {
            if let Done::RowsWritten {
                generation,
                written,
            } = event
                && generation == self.generation
            {
                self.machine.writeback_done(written);
            }
        }
    }

    /// Lets one tick of time pass.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.step(Input::Tick, now);
        self.pending.expire(now);
        self.send_again(now);
        self.remove_retired(now);
        self.tick_log();
        self.tick_background(now);
        self.hand_over(now);
    }

    pub(crate) fn step(&mut self, input: Input, now: Duration) {
        let outputs = self.member.step(input, now);
        self.carry_out(outputs, now);
    }

    fn carry_out(&mut self, outputs: Vec<Output>, now: Duration) {
        for output in outputs {
            match output {
                Output::Send(messages) => self.send(messages),
                Output::SendSnapshot { peer, message } => self.send_snapshot(peer, *message, now),
                Output::AskLeader { leader, attempt } => {
                    // Lost or not, it is asked again.
                    let _lost = self.peers.send(leader, Note::ReadAsk { attempt });
                }
                Output::AnswerRead {
                    peer,
                    attempt,
                    index,
                } => {
                    let _lost = self.peers.send(peer, Note::ReadAnswer { attempt, index });
                }
                Output::Install(meta) => self.install(&meta, now),
                Output::Removed => self.removed(),
                Output::LogLost { commit, last } => fatal(
                    "log",
                    &format!(
                        "it ends at entry {last}, but this member once acknowledged entry \
                         {commit}: the end of the log is lost, and voting on would break the \
                         cluster. Remove the member, delete its data, and add it again"
                    ),
                ),
                Output::Persist(persist) => self.persist(persist),
                Output::Apply(entries) => self.apply(entries, now),
                Output::ReadReady(ids) => self.answer_reads(ids, &Ok(())),
                Output::ReadRefused { ids, reason } => {
                    let error = match reason {
                        member::ReadRefusal::TooMany => mvcc::Error::TooManyRequests,
                        member::ReadRefusal::Timeout => mvcc::Error::Timeout,
                    };
                    self.answer_reads(ids, &Err(error.into()));
                }
                Output::Refused { ids, reason } => self.refuse(ids, reason),
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
        self.check_room()?;
        let receiver = self.pending.add(id, data, now + self.request_timeout);
        self.count_pending();
        Ok(receiver)
    }

    /// Proposes a membership change; only a leader can.
    pub(crate) fn propose_change(
        &mut self,
        id: u64,
        change: Change,
        context: Bytes,
        now: Duration,
    ) -> Result<oneshot::Receiver<Result<Applied, RpcError>>, RpcError> {
        self.check_room()?;
        let receiver = self.pending.wait_for(id, now + self.request_timeout);
        self.count_pending();
        let input = Input::ProposeChange {
            id,
            change,
            context,
        };
        self.step(input, now);
        Ok(receiver)
    }

    fn check_room(&self) -> Result<(), RpcError> {
        let lags = self.machine.dirty_bytes() >= WRITEBACK_LAG_BYTES_MAX;
        match self.pending.has_room() && !lags {
            true => Ok(()),
            false => Err(mvcc::Error::TooManyRequests.into()),
        }
    }

    fn count_pending(&self) {
        let waiting = i64::try_from(self.pending.len()).unwrap_or(i64::MAX);
        self.metrics.proposals_pending.set(waiting);
    }

    /// Says whether this member leads, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.member.standing().role == Role::Leader
    }

    /// Returns who this member is.
    pub(crate) fn member_id(&self) -> u64 {
        self.ids.member
    }

    /// Says whether anybody waits for a proposal.
    pub(crate) fn owes_answers(&self) -> bool {
        self.pending.len() > 0
    }

    /// Begins to hand leadership to a member; says whether it can be.
    pub(crate) fn move_leader(&mut self, to: u64, now: Duration) -> bool {
        let votes = self.member.conf_state().is_voter(to);
        if votes && to != self.ids.member {
            self.step(Input::Transfer(to), now);
        }
        votes
    }

    /// Begins to hand leadership to whoever can take it over soonest, if this member
    /// leads and there is anybody.
    pub(crate) fn hand_leadership_over(&mut self, now: Duration) -> Option<u64> {
        let to = self.leads().then(|| self.member.best_transferee())??;
        self.step(Input::Transfer(to), now);
        Some(to)
    }

    /// Asks for everything acknowledged so far to be readable; the answer comes
    /// when it is.
    pub(crate) fn begin_read(&mut self, now: Duration) -> oneshot::Receiver<Result<(), RpcError>> {
        let (id, receiver) = self.pending.add_read();
        self.step(Input::Read(id), now);
        receiver
    }

    fn answer_reads(&mut self, ids: Vec<ReadId>, result: &Result<(), RpcError>) {
        for id in ids {
            if result.is_err() {
                self.metrics.read_indexes_failed.inc();
            }
            self.pending.answer_read(id, result.clone());
        }
    }

    /// Takes office, or leaves it. Whoever waits for a proposal goes on waiting: the
    /// next leader is handed it again.
    fn change_standing(&mut self, standing: Standing, now: Duration) {
        self.metrics.standing(&standing);
        tracing::info!(term = standing.term, role = ?standing.role, leader = %format!("{:x}", standing.leader), "standing changed");
        if standing.role == Role::Leader {
            self.machine.promote(now, self.election_timeout);
        } else {
            self.machine.demote();
        }
        if standing.leader != 0 {
            self.pending.queue_again(Duration::MAX);
        }
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

    /// Tells watchers what was applied; returns when those are to be told whose time
    /// has not come.
    pub(crate) fn tell_watchers(&mut self, now: Duration) -> Option<Duration> {
        let streams = self.fanout.take(now);
        self.wake_streams(&streams);
        self.fanout.due()
    }

    /// Wakes everybody who reads a stream, to see for themselves.
    pub(crate) fn wake_all_streams(&self) {
        for signal in self.streams.values() {
            signal.notify_one();
        }
    }

    fn wake_streams(&self, ids: &[StreamId]) {
        for id in ids {
            if let Some(signal) = self.streams.get(id) {
                signal.notify_one();
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.wake_all_streams();
    }
}
