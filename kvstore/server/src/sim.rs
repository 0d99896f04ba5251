//! What the simulator (`jepsen sim`) drives: a member as it runs in the server, with
//! everything that waits, draws or tells the time taken away from it.
//!
//! The core, the handle that clients use, the workers of the log and of the rows, the
//! start from a data directory: all of it is the server's own. What the server does
//! with threads, sockets and a clock the simulator does step by step, in the order it
//! draws: jobs of the disk, notes between members, snapshots, ticks. A member that
//! ends its process unwinds with [`Ended`].
//!
//! Not part of what the crate offers.

mod clock;
mod links;
mod wire;

use std::{
    collections::BTreeSet,
    future::Future,
    path::Path,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use disk::{RowsHome, SimDisk, SpareJob};
use member::LogEntry;
use mvcc::{
    Applied, LeaseId, MemberCommand, MemberInfo, Membership, StateMachine,
    watch::{WatchHub, WatchLimits},
};
use tokio::sync::oneshot;

pub use self::{clock::Clock, links::SimLinks, wire::Wire};
use crate::{
    auth::Caller,
    config::{Config, StartError},
    core::{Arrival, Core, Done, Sending},
    driver::{self, Turned},
    fatal::SIMULATED,
    handle::{Handle, LeaseTtl},
    identity::Ids,
    metrics::Metrics,
    open::{Built, build},
    peers::{Address, Links as _, Note},
    rpc_error::RpcError,
    shared::Shared,
    store::{Beginning, Place},
    threads::{LogJob, LogWorker, RowsJob, RowsWorker},
    world::World,
};

pub use crate::fatal::Ended;

/// Sees everything that a member applies.
pub trait Tap: Send {
    /// An entry is about to be applied.
    fn entry(&mut self, entry: &LogEntry);
    /// A command was carried out.
    fn applied(&mut self, index: u64, applied: &Applied);
    /// The state is that after some entry, or that of a snapshot.
    fn machine(&mut self, machine: &StateMachine);
}

impl Core {
    pub(crate) fn show_entry(&mut self, entry: &LogEntry) {
        if let Some(tap) = &mut self.tap {
            tap.entry(entry);
        }
    }

    pub(crate) fn show_applied(&mut self, index: u64, applied: &Applied) {
        if let Some(tap) = &mut self.tap {
            tap.applied(index, applied);
        }
    }

    pub(crate) fn show_machine(&mut self) {
        if let Some(tap) = &mut self.tap {
            tap.machine(&self.machine);
        }
    }
}

/// What a member is started with.
pub struct Setup {
    /// As flags would say it.
    pub config: Config,
    /// Who it is.
    pub member: u64,
    /// Whose it is.
    pub cluster: u64,
    /// What it keeps its data on.
    pub disk: SimDisk,
    /// The members of a new cluster; none for one that joins or starts again.
    pub first: Vec<MemberInfo>,
    /// Whom one that joins was told of.
    pub others: Vec<u64>,
    /// Its time and chance.
    pub clock: Clock,
    /// The numbers it counts, kept over its starts because making them takes long.
    pub numbers: Numbers,
    /// Sees what it applies.
    pub tap: Box<dyn Tap>,
}

/// The metrics of a member.
#[derive(Clone)]
pub struct Numbers(Arc<Metrics>);

impl std::fmt::Debug for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

impl Numbers {
    /// Makes those of a member.
    pub fn new(config: &Config, member: u64) -> Self {
        Self(Metrics::new(config, member))
    }
}

/// A member that runs.
pub struct Node {
    shared: Arc<Shared>,
    links: Arc<SimLinks>,
    home: RowsHome,
    log: std::sync::mpsc::Sender<LogJob>,
    log_worker: LogWorker,
    log_job: Option<LogJob>,
    spare: Option<SpareJob>,
    rows_worker: RowsWorker,
    rows_job: Option<RowsJob>,
    sendings: Vec<Sending>,
}

/// A snapshot on its way.
#[derive(Clone, Debug)]
pub struct Shipment {
    /// To whom.
    pub to: u64,
    /// What raft says with it.
    pub head: Bytes,
    /// The state.
    pub frames: Vec<Bytes>,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its term.
    pub term: u64,
    /// Whether it leads.
    pub leads: bool,
    /// Who leads, as far as it knows.
    pub leader: u64,
    /// The last entry applied.
    pub applied: u64,
    /// The last entry known to be committed.
    pub committed: u64,
    /// The last entry in the log.
    pub last: u64,
    /// The store's revision.
    pub revision: i64,
    /// The compacted revision.
    pub compacted: i64,
}

impl Node {
    /// Starts a member from what is on its disk.
    pub fn open(setup: Setup, limits: WatchLimits) -> Result<Self, StartError> {
        SIMULATED.set(true);
        let ids = Ids {
            member: setup.member,
            cluster: setup.cluster,
        };
        let world = World::Other(Arc::new(setup.clock));
        let disk: Arc<dyn disk::Disk> = Arc::new(setup.disk);
        let dir = setup.config.data_dir.clone();
        let home = RowsHome::new(Arc::clone(&disk), &dir);
        let rows = home.path(&home.enter()?);
        let place = Place {
            disk,
            wal: dir.join("wal"),
            rows,
            home: home.clone(),
        };
        let beginning = match setup.first.is_empty() {
            true => Beginning::Joining,
            false => Beginning::New(Membership::new(setup.cluster, setup.first)),
        };
        let links = Arc::new(SimLinks::new(setup.member));
        let others: Vec<_> = setup.others.into_iter().map(address).collect();
        links.update(&others, &BTreeSet::new());
        let shared = Shared::new(setup.config, ids, setup.numbers.0, None, world);
        let shared = Arc::new(shared);
        let links_of_core = Arc::clone(&links);
        let built = build(&shared, &place, links_of_core, beginning)?;
        let Built {
            mut core,
            log,
            log_worker,
            rows: _,
            rows_worker,
        } = built;
        core.hub = WatchHub::with_limits(core.machine.revision(), limits);
        core.tap = Some(setup.tap);
        core.show_machine();
        shared.install(core);
        shared.wake.notify_one();
        Ok(Self {
            shared,
            links,
            home,
            log,
            log_worker,
            log_job: None,
            spare: None,
            rows_worker,
            rows_job: None,
            sendings: Vec::new(),
        })
    }

    /// Lets a tick pass.
    pub fn tick(&mut self) {
        let turned = driver::pass_tick(&self.shared, self.shared.now());
        self.note(turned);
    }

    /// Takes a turn.
    pub fn turn(&mut self) {
        let turned = driver::take_turn(&self.shared, self.shared.now());
        self.note(turned);
    }

    fn note(&mut self, turned: Turned) {
        self.sendings.extend(turned.sendings);
        if turned.again {
            self.shared.wake.notify_one();
        }
    }

    /// Says whether the member was woken since this was last asked.
    pub fn woken(&self) -> bool {
        let notified = pin!(self.shared.wake.notified());
        let mut context = Context::from_waker(Waker::noop());
        notified.poll(&mut context).is_ready()
    }

    /// Says whether the log has something to do.
    pub fn log_waits(&mut self) -> bool {
        if self.log_job.is_none() {
            self.log_job = self.log_worker.jobs.try_recv().ok();
        }
        self.log_job.is_some()
    }

    /// Does what waits for the log.
    pub fn work_log(&mut self) {
        if self.log_waits()
            && let Some(job) = self.log_job.take()
        {
            self.log_worker.turn(job);
            if let Some(job) = self.log_worker.wal.spare_wanted() {
                self.spare = Some(job);
            }
        }
    }

    /// Says whether a segment of the log is to be made ahead.
    pub fn spare_waits(&self) -> bool {
        self.spare.is_some()
    }

    /// Makes it.
    pub fn work_spare(&mut self) {
        if let Some(mut job) = self.spare.take() {
            job.run();
            let _ended = self.log.send(LogJob::Spare(job));
        }
    }

    /// Says whether the rows have something to do.
    pub fn rows_wait(&mut self) -> bool {
        if self.rows_job.is_none() {
            self.rows_job = self.rows_worker.jobs.try_recv().ok();
        }
        self.rows_job.is_some()
    }

    /// Does the next job of the rows.
    pub fn work_rows(&mut self) {
        if self.rows_wait()
            && let Some(job) = self.rows_job.take()
        {
            self.rows_worker.turn(job);
        }
    }

    /// Takes the notes that leave, each in a frame of its own.
    pub fn outgoing(&self) -> Vec<(u64, Bytes)> {
        let encode = |(to, note): (u64, Note)| {
            let mut frame = Vec::new();
            note.encode(&mut frame);
            (to, frame.into())
        };
        self.links.take().into_iter().map(encode).collect()
    }

    /// Takes a frame in; says whether it could be read.
    pub fn deliver(&self, from: u64, frame: Bytes) -> bool {
        let Ok(notes) = Note::decode_all(frame) else {
            return false;
        };
        self.links.welcome(from);
        self.shared.report_notes(from, notes);
        true
    }

    /// Returns the links, whose state the simulator decides.
    pub fn links(&self) -> &SimLinks {
        &self.links
    }

    /// Reports that notes to a peer were lost.
    pub fn unreachable(&self, peer: u64) {
        self.shared.report(Done::Unreachable(peer));
    }

    /// Reports that the link to a peer has come up.
    pub fn linked(&self, peer: u64) {
        self.shared.report(Done::Linked(peer));
    }

    /// Takes the snapshots that leave.
    pub fn shipments(&mut self) -> Vec<Shipment> {
        let sendings = std::mem::take(&mut self.sendings);
        let ship = |sending: Sending| {
            let mut head = Vec::new();
            member::encode_message(&sending.message, &mut head);
            let frames: Result<_, _> = sending.replica.frames().collect();
            match frames {
                Ok(frames) => Some(Shipment {
                    to: sending.peer,
                    head: head.into(),
                    frames,
                }),
                Err(_unreadable) => {
                    let peer = sending.peer;
                    self.shared.report(Done::SnapshotSent { peer, ok: false });
                    None
                }
            }
        };
        sendings.into_iter().filter_map(ship).collect()
    }

    /// Reports how the sending of a snapshot ended.
    pub fn shipped(&self, peer: u64, ok: bool) {
        self.shared.report(Done::SnapshotSent { peer, ok });
    }

    /// Writes a snapshot beside the rows and offers it to raft. Of a part of one
    /// nothing is used. What is returned fires once raft has decided.
    pub fn take_in(&self, shipment: &Shipment, frames: usize) -> Result<Decision, String> {
        let message = member::decode_message(shipment.head.clone());
        let message = message.map_err(|error| error.to_string())?;
        let mut sent = shipment.frames.iter().take(frames).cloned();
        let whole = frames >= shipment.frames.len();
        let mut next = || match sent.next() {
            Some(frame) => Ok(Some(frame)),
            None if whole => Ok(None),
            None => Err("cut off".to_owned()),
        };
        let config = &self.shared.config;
        let (arrival, decision) = Arrival::take_in(config, &self.home, message, &mut next)?;
        self.shared.report(Done::Arrived(Box::new(arrival)));
        Ok(Decision(decision))
    }

    /// Returns the way in for clients.
    pub fn handle(&self) -> Handle {
        Handle {
            shared: Arc::clone(&self.shared),
            caller: Caller::Internal,
        }
    }

    /// Returns the way in for clients that come with bytes.
    pub fn wire(&self) -> Wire {
        Wire::new(self.handle())
    }

    /// Says whether the member has stopped because it was removed.
    pub fn removed(&self) -> bool {
        self.shared.stop.is_cancelled()
    }

    /// Begins to hand leadership to a member.
    pub fn move_leader(&self, to: u64) -> bool {
        let now = self.shared.now();
        let moved = self
            .shared
            .with(|core| core.leads() && core.move_leader(to, now));
        self.shared.wake.notify_one();
        moved.unwrap_or(false)
    }

    /// Tells where the member stands.
    pub fn standing(&self) -> Standing {
        let standing = self.shared.with(|core| {
            let standing = core.member.standing();
            Standing {
                term: standing.term,
                leads: core.leads(),
                leader: standing.leader,
                applied: core.machine.applied_index(),
                committed: core.member.commit_index(),
                last: core.member.last_index(),
                revision: core.machine.revision(),
                compacted: core.machine.compact_revision(),
            }
        });
        standing.unwrap_or_default()
    }

    /// Looks at the state machine.
    pub fn with_machine<T>(&self, look: impl FnOnce(&StateMachine) -> T) -> Option<T> {
        self.shared.with(|core| look(&core.machine)).ok()
    }

    /// Ends it, as the end of its process does: whoever waits for it is told nothing
    /// by it.
    pub fn end(self) {
        drop(self.shared.remove());
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// Fires once raft has decided about a snapshot.
#[derive(Debug)]
pub struct Decision(oneshot::Receiver<()>);

impl Decision {
    /// Says how it was decided, if it was: whether the member lived on to do so.
    pub fn decided(&mut self) -> Option<bool> {
        match self.0.try_recv() {
            Ok(()) => Some(true),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(false),
        }
    }
}

/// Renews a lease at a member, if that leads.
pub async fn renew(handle: Handle, id: LeaseId) -> Result<i64, RpcError> {
    handle.renew_here(id).await
}

/// Asks a member what is left of a lease, if that leads.
pub async fn time_to_live(handle: Handle, id: LeaseId) -> Result<LeaseTtl, RpcError> {
    handle.ttl_here(id, true).await
}

/// Changes the membership at a member, if that leads.
pub async fn change_members(handle: Handle, command: MemberCommand) -> Result<u64, RpcError> {
    if handle.shared.config.strict_reconfig_check {
        handle.shared.with(|core| core.may_change(&command))??;
    }
    handle.change_members_here(command).await
}

/// Polls a future by hand.
pub fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    let mut context = Context::from_waker(waker);
    std::pin::Pin::new(future).poll(&mut context)
}

/// Returns where the log of a member is.
pub fn wal_dir(data_dir: &Path) -> std::path::PathBuf {
    data_dir.join("wal")
}

/// Makes the address of a member; nothing is dialled by it.
fn address(id: u64) -> Address {
    Address {
        id,
        urls: vec![format!("http://m{id}:2380")],
    }
}

/// Names a member as the first ones of a cluster are.
pub fn member_info(id: u64, learner: bool) -> MemberInfo {
    MemberInfo {
        id,
        name: format!("m{id}"),
        peer_urls: address(id).urls,
        client_urls: Vec::new(),
        learner,
    }
}
