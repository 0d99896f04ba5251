//! What every caller shares: the core behind its lock, and the way to wake the
//! driver.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::Jwt,
    config::Config,
    core::{Core, Done, Fate},
    fatal::fatal,
    grpc::large::LargeReplies,
    identity::Ids,
    leadership::Leadership,
    metrics::Metrics,
    peers::{Note, Peers},
    rpc_error::RpcError,
    snapshot::SNAPSHOTS_MAX,
    views::LONG_READS_MAX,
    world::World,
};

/// Most reports that may wait for the driver before notes of peers are dropped. A
/// peer's frame is one, of a megabyte at most.
const INBOX_FRAMES_MAX: usize = 256;

/// One member as all its callers see it.
pub(crate) struct Shared {
    /// None before the start is complete, and after the end.
    core: Mutex<Option<Core>>,
    /// What other threads have reported since the driver's last turn. It holds a
    /// few entries at most: one sync and one write-back are under way at a time, and
    /// frames of peers are limited.
    inbox: Mutex<Vec<Done>>,
    /// Wakes the driver.
    pub(crate) wake: Notify,
    pub(crate) world: World,
    pub(crate) ids: Ids,
    pub(crate) config: Config,
    /// Whether callers are checked, as this member has applied it.
    pub(crate) auth_on: Arc<AtomicBool>,
    /// Signs and checks tokens; without it they are simple.
    pub(crate) jwt: Option<Arc<Jwt>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) proposal_ids: Arc<AtomicU64>,
    /// The term, for reply headers.
    pub(crate) term: AtomicU64,
    /// The index of the last entry applied, as of the driver's last turn: behind it
    /// lies every entry of a proposal that is made now.
    pub(crate) applied: watch::Sender<u64>,
    /// Whether this member only learns.
    learner: AtomicBool,
    /// Whether the disk is nearly full.
    low_on_disk: AtomicBool,
    /// Who leads, and since when nobody has.
    pub(crate) leadership: Leadership,
    pub(crate) stop: CancellationToken,
    /// Whether the member stops because it was removed from its cluster.
    pub(crate) removed: AtomicBool,
    /// Whether the end is orderly: rows are written back first.
    pub(crate) write_back_at_end: AtomicBool,
    /// What clients are told to use, known once the listener is bound.
    pub(crate) client_urls: OnceLock<Vec<String>>,
    /// The links to other members, once there are any.
    pub(crate) peers: OnceLock<Peers>,
    /// The places of snapshots under way.
    pub(crate) snapshots: Arc<Semaphore>,
    /// The turns of long reads.
    pub(crate) long_reads: Semaphore,
    /// The budget of large replies.
    pub(crate) large_replies: LargeReplies,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        ids: Ids,
        metrics: Arc<Metrics>,
        jwt: Option<Arc<Jwt>>,
        world: World,
    ) -> Self {
        Self {
            core: Mutex::new(None),
            inbox: Mutex::new(Vec::new()),
            wake: Notify::new(),
            proposal_ids: Arc::new(AtomicU64::new(first_proposal_id(ids.member, world.wall()))),
            world,
            ids,
            leadership: Leadership::new(config.election_timeout),
            config,
            auth_on: Arc::default(),
            jwt,
            metrics,
            term: AtomicU64::new(0),
            applied: watch::Sender::new(0),
            learner: AtomicBool::new(false),
            low_on_disk: AtomicBool::new(false),
            stop: CancellationToken::new(),
            removed: AtomicBool::new(false),
            write_back_at_end: AtomicBool::new(false),
            client_urls: OnceLock::new(),
            peers: OnceLock::new(),
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS_MAX)),
            long_reads: Semaphore::new(LONG_READS_MAX),
            large_replies: LargeReplies::default(),
        }
    }

    /// Returns the time since the member was started.
    pub(crate) fn now(&self) -> Duration {
        self.world.now()
    }

    /// Runs `f` on the core; an error says that the member has stopped.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Core) -> T) -> Result<T, RpcError> {
        match &mut *self.lock() {
            Some(core) => Ok(f(core)),
            None => Err(mvcc::Error::Stopped.into()),
        }
    }

    pub(crate) fn install(&self, core: Core) {
        self.note(&core, self.now());
        *self.lock() = Some(core);
    }

    /// Takes the core away; everybody who waits for it is told, and every watch
    /// stream ends.
    pub(crate) fn remove(&self) -> Option<Core> {
        let core = self.lock().take();
        if let Some(core) = &core {
            core.wake_all_streams();
        }
        core
    }

    /// Says whether this member only learns, and does not vote.
    pub(crate) fn is_learner(&self) -> bool {
        self.learner.load(Ordering::Relaxed)
    }

    /// Says whether the disk is nearly full.
    pub(crate) fn is_low_on_disk(&self) -> bool {
        self.low_on_disk.load(Ordering::Relaxed)
    }

    /// Notes whether the disk is nearly full; returns what was known before.
    pub(crate) fn note_room(&self, low: bool) -> bool {
        self.low_on_disk.swap(low, Ordering::Relaxed)
    }

    /// Notes what everybody may look at without the lock, after a turn.
    pub(crate) fn note(&self, core: &Core, now: Duration) {
        let standing = core.member.standing();
        self.term.store(standing.term, Ordering::Relaxed);
        self.leadership.note(standing.leader, now);
        let own = core.machine.membership().get(self.ids.member);
        let learner = own.is_some_and(|member| member.learner);
        self.learner.store(learner, Ordering::Relaxed);
        self.metrics.learner(learner);
        if core.fate == Fate::Removed {
            self.removed.store(true, Ordering::Release);
            self.stop.cancel();
        }
        let applied = core.machine.applied_index();
        // Waiters are woken; without any this is a store.
        self.applied
            .send_if_modified(|seen| mem::replace(seen, applied) != applied);
    }

    /// Hands a report to the driver.
    pub(crate) fn report(&self, done: Done) {
        self.inbox().push(done);
        self.wake.notify_one();
    }

    /// Hands notes from a peer to the driver. Those that come while it is far behind
    /// are lost: raft and clients say again what matters.
    pub(crate) fn report_notes(&self, from: u64, notes: Vec<Note>) {
        let mut inbox = self.inbox();
        let behind = inbox.len() >= INBOX_FRAMES_MAX;
        if !behind {
            inbox.push(Done::Notes(from, notes));
        }
        drop(inbox);
        self.wake.notify_one();
    }

    /// Takes what was reported.
    pub(crate) fn reported(&self) -> Vec<Done> {
        mem::take(&mut *self.inbox())
    }

    pub(crate) fn next_proposal_id(&self) -> u64 {
        self.proposal_ids.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Core>> {
        match self.core.lock() {
            Ok(core) => core,
            // A panic half-way through a batch leaves a state nobody can trust.
            Err(_poisoned) => fatal("core", "a panic happened inside it"),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Done>> {
        match self.inbox.lock() {
            Ok(inbox) => inbox,
            Err(_poisoned) => fatal("inbox", "a panic happened inside it"),
        }
    }
}

/// Starts proposal ids where no earlier start of any member has been: member,
/// then time, then a count (etcd: pkg/idutil).
fn first_proposal_id(member: u64, since: Duration) -> u64 {
    const TIME_BITS: u32 = 40;
    const COUNT_BITS: u32 = 8;
    let millis = u64::try_from(since.as_millis()).unwrap_or(0) & ((1 << TIME_BITS) - 1);
    ((member & 0xffff) << (TIME_BITS + COUNT_BITS)) | (millis << COUNT_BITS) | 1
}
