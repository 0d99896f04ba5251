//! The embedded client: what gRPC offers, without a socket. The gRPC edge itself
//! is a translator in front of it, so both answer alike.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mvcc::{
    Applied, Command, Error, Identity, LeaseId, Proposal, Reply, StateMachine, View, check,
    watch::WatchCreate,
};
use rand::Rng as _;

use crate::{
    auth::{Asker, Caller},
    core::Core,
    metrics,
    rpc_error::RpcError,
    shared::Shared,
    views::answer_or_view,
    watch::WatchStream,
};

/// From here on a linearizable read had to ask again whether this member leads
/// (etcd: readIndexRetryTime).
const READ_SLOW: Duration = Duration::from_millis(500);

/// Reaches a running member; clones are cheap and work on any runtime.
///
/// Reads are answered on the caller's own thread; long ones on a thread for blocking
/// work of the caller's runtime, which must be tokio's. Once the member has stopped
/// every call answers "etcdserver: server stopped".
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    /// Who calls; the process itself unless a request says otherwise.
    pub(crate) caller: Caller,
}

/// How a member does, as Maintenance.Status tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Bytes the store takes: the files of the rows as they are on disk, and the
    /// changes that are in the log only. The log's own files, which are made ahead
    /// and used in turn, are not counted (nor are they by etcd). The quota counts
    /// keys and values only, see `StateMachine::size_bytes`.
    pub db_size: u64,
    /// Bytes of it that are not garbage: without what compaction has made
    /// unreachable and defragmentation would delete.
    pub db_size_in_use: u64,
    /// The leader's id; zero is none.
    pub leader: u64,
    /// Index of the last entry committed.
    pub raft_index: u64,
    /// The term.
    pub raft_term: u64,
    /// Index of the last entry applied.
    pub raft_applied_index: u64,
    /// Revision of the store.
    pub revision: i64,
    /// The alarms raised.
    pub alarms: Vec<mvcc::Alarm>,
}

/// A lease, as LeaseTimeToLive tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTtl {
    /// Whole seconds left; -1 when there is no such lease.
    pub ttl: i64,
    /// Seconds granted.
    pub granted_ttl: i64,
    /// The keys attached, when asked for.
    pub keys: Vec<bytes::Bytes>,
}

impl Handle {
    /// Reads a range; linearizable unless it asks to be serializable.
    pub async fn range(&self, request: mvcc::RangeRequest) -> Result<mvcc::RangeReply, RpcError> {
        self.range_as(request, StateMachine::range_if_short, View::range)
            .await
    }

    /// Reads a range in some form: at once if that is short, or from a view.
    pub(crate) async fn range_as<T: Send + 'static>(
        &self,
        request: mvcc::RangeRequest,
        if_short: impl Fn(&StateMachine, &mvcc::RangeRequest) -> Result<Option<T>, Error>,
        from_view: impl FnOnce(&View, &mvcc::RangeRequest) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, RpcError> {
        check::check_range(&request)?;
        self.shared.metrics.applies.ranges.inc();
        let may = |machine: &StateMachine, who: &Identity| {
            machine
                .auth()
                .check_read(who, &request.key, &request.range_end)
        };
        self.check_learner(request.serializable)?;
        let began = self.shared.now();
        let read = |machine: &mut StateMachine| {
            answer_or_view(machine, began, |machine| if_short(machine, &request))
        };
        let answer = match request.serializable {
            true => self.read(may, read),
            false => self.read_linearizable(may, read).await,
        };
        let reply = self
            .finish(answer, move |view| from_view(view, &request))
            .await;
        self.took(metrics::apply::RANGE, reply.is_ok(), began);
        reply
    }

    /// Refuses what a learner cannot answer for: it may lag by any amount.
    fn check_learner(&self, serializable: bool) -> Result<(), RpcError> {
        match self.shared.is_learner() && !serializable {
            true => Err(Error::NotSupportedForLearner.into()),
            false => Ok(()),
        }
    }

    /// Reads a page of a range.
    pub(crate) async fn range_page(
        &self,
        request: &mvcc::PageRequest,
        linearizable: bool,
    ) -> Result<mvcc::Page, RpcError> {
        let may = |machine: &StateMachine, who: &Identity| {
            machine
                .auth()
                .check_read(who, &request.key, &request.range_end)
        };
        self.check_learner(!linearizable)?;
        let began = self.shared.now();
        let get = |machine: &mut StateMachine| {
            answer_or_view(machine, began, |machine| machine.page_if_short(request))
        };
        let answer = match linearizable {
            true => self.read_linearizable(may, get).await,
            false => self.read(may, get),
        };
        let request = request.clone();
        self.finish(answer, move |view| view.page(&request)).await
    }

    /// Writes a key.
    pub async fn put(&self, request: mvcc::PutRequest) -> Result<mvcc::PutReply, RpcError> {
        check::check_put(&request)?;
        match self.propose(Command::Put(request)).await? {
            Reply::Put(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes a range.
    pub async fn delete_range(
        &self,
        request: mvcc::DeleteRangeRequest,
    ) -> Result<mvcc::DeleteReply, RpcError> {
        check::check_delete_range(&request)?;
        match self.propose(Command::DeleteRange(request)).await? {
            Reply::DeleteRange(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs a transaction; one that only reads does not enter the log.
    pub async fn txn(&self, request: mvcc::TxnRequest) -> Result<mvcc::TxnReply, RpcError> {
        check::check_txn(&request, self.shared.config.max_txn_ops)?;
        if request.is_readonly() {
            let may = |machine: &StateMachine, who: &Identity| machine.check_txn(who, &request);
            let began = self.shared.now();
            let read = |machine: &mut StateMachine| {
                answer_or_view(machine, began, |m| m.txn_readonly_if_short(&request))
            };
            let answer = match request.is_serializable() {
                true => self.read(may, read),
                false => self.read_linearizable(may, read).await,
            };
            let reply = self
                .finish(answer, move |view| view.txn_readonly(&request))
                .await;
            self.took(metrics::apply::READONLY_TXN, reply.is_ok(), began);
            if let Ok(reply) = &reply {
                self.shared.metrics.applies.txn(reply);
            }
            return reply;
        }
        if mutants::planted(mutants::Bug::TxnOutsideLog) {
            return self.txn_decided_here(request).await;
        }
        match self.propose(Command::Txn(request)).await? {
            Reply::Txn(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Is [`mutants::Bug::TxnOutsideLog`]: compares here, and proposes the branch alone.
    async fn txn_decided_here(
        &self,
        request: mvcc::TxnRequest,
    ) -> Result<mvcc::TxnReply, RpcError> {
        let asks = mvcc::TxnRequest {
            compare: request.compare.clone(),
            ..mvcc::TxnRequest::default()
        };
        let decided = self
            .shared
            .with(|core| core.machine.txn_readonly(&asks))??
            .succeeded;
        let branch = match decided {
            true => request.success,
            false => request.failure,
        };
        let alone = mvcc::TxnRequest {
            success: branch,
            ..mvcc::TxnRequest::default()
        };
        match self.propose(Command::Txn(alone)).await? {
            Reply::Txn(reply) => Ok(mvcc::TxnReply {
                succeeded: decided,
                ..reply
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Forgets history below a revision. A physical one returns when the rows
    /// are deleted.
    pub async fn compact(
        &self,
        request: mvcc::CompactRequest,
    ) -> Result<mvcc::CompactReply, RpcError> {
        let physical = request.physical;
        let reply = match self.propose(Command::Compact(request)).await? {
            Reply::Compact(reply) => reply,
            other => return Err(unexpected(&other)),
        };
        if physical {
            let end = self.shared.with(|core| core.compaction_end())?;
            self.shared.wake.notify_one();
            end.await
                .map_err(|_stopped| RpcError::from(Error::Stopped))?;
        }
        Ok(reply)
    }

    /// Grants a lease; id zero lets the store choose.
    pub async fn lease_grant(
        &self,
        mut request: mvcc::LeaseGrantRequest,
    ) -> Result<mvcc::LeaseGrantReply, RpcError> {
        while request.id == 0 {
            request.id = rand::rng().random_range(1..=i64::MAX);
        }
        match self.propose(Command::LeaseGrant(request)).await? {
            Reply::LeaseGrant(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Revokes a lease and deletes its keys.
    pub async fn lease_revoke(
        &self,
        request: mvcc::LeaseRevokeRequest,
    ) -> Result<mvcc::LeaseReply, RpcError> {
        match self.propose(Command::LeaseRevoke(request)).await? {
            Reply::LeaseRevoke(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Lists the leases.
    pub fn leases(&self) -> Result<Vec<LeaseId>, RpcError> {
        let asker = self.asker();
        self.shared.with(|core| {
            self.admit(core, &asker, |machine, who| {
                machine.auth().check_user(who)?;
                // All or none: a list with gaps would look complete.
                let mut leases = machine.leases().into_iter();
                leases.try_for_each(|id| machine.check_lease_read(who, id))
            })?;
            Ok(core.machine.leases())
        })?
    }

    /// Returns the version the cluster is to go back to, if it is.
    pub(crate) fn downgrade(&self) -> Result<Option<String>, RpcError> {
        self.shared.with(|core| core.machine.downgrade())
    }

    /// Announces that the cluster goes back to a version, or calls it off.
    pub(crate) async fn set_downgrade(&self, target: Option<String>) -> Result<(), RpcError> {
        match self.propose(Command::Downgrade(target)).await? {
            Reply::Downgrade => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Lists the alarms raised, of one kind or of all.
    pub fn alarms(&self, kind: Option<mvcc::AlarmKind>) -> Result<Vec<mvcc::Alarm>, RpcError> {
        let mut alarms = self.shared.with(|core| core.machine.alarms())?;
        alarms.retain(|alarm| kind.is_none_or(|kind| kind == alarm.kind));
        Ok(alarms)
    }

    /// Raises or clears an alarm; returns those it touched.
    pub async fn set_alarm(
        &self,
        alarm: mvcc::Alarm,
        raised: bool,
    ) -> Result<Vec<mvcc::Alarm>, RpcError> {
        let command = if raised {
            Command::AlarmActivate(alarm)
        } else {
            Command::AlarmDeactivate(alarm)
        };
        match self.propose(command).await? {
            Reply::Alarm(reply) => Ok(reply.alarms),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns the revision of the store as this member has applied it; zero once
    /// it has stopped.
    pub fn revision(&self) -> i64 {
        self.shared
            .with(|core| core.machine.revision())
            .unwrap_or(0)
    }

    /// Returns the bytes the store takes, as `Status.dbSize` does; zero once the
    /// member has stopped.
    pub fn size_bytes(&self) -> u64 {
        let on_disk = self.rows_on_disk();
        let sizes = self.shared.with(|core| sizes(&core.machine, on_disk));
        sizes.map_or(0, |sizes| sizes.0)
    }

    /// Measures the files of the rows.
    pub(crate) fn rows_on_disk(&self) -> u64 {
        disk::rows_on_disk(&self.shared.config.data_dir)
    }

    /// Tells how the member does.
    pub fn status(&self) -> Result<Status, RpcError> {
        let on_disk = self.rows_on_disk();
        self.shared.with(|core| {
            let standing = core.member.standing();
            let (db_size, db_size_in_use) = sizes(&core.machine, on_disk);
            Status {
                db_size,
                db_size_in_use,
                leader: standing.leader,
                raft_index: core.member.commit_index(),
                raft_term: standing.term,
                raft_applied_index: core.machine.applied_index(),
                revision: core.machine.revision(),
                alarms: core.machine.alarms(),
            }
        })
    }

    /// Returns the ids of this member and of its cluster.
    pub fn ids(&self) -> (u64, u64) {
        (self.shared.ids.member, self.shared.ids.cluster)
    }

    /// Opens a stream with one watch on it.
    ///
    /// Its first item has `created`; then come batches of events in revision
    /// order, progress replies, and, at its end, a reply with `canceled` (and
    /// `compact_revision`, if history it needed is gone).
    pub fn watch(&self, create: WatchCreate) -> WatchStream {
        WatchStream::open(self, create)
    }

    /// Returns the term, for reply headers.
    pub(crate) fn term(&self) -> u64 {
        self.shared.term.load(Ordering::Relaxed)
    }

    /// Notes that a request of a kind is answered.
    fn took(&self, op: usize, well: bool, began: Duration) {
        let took = self.shared.now().saturating_sub(began);
        self.shared.metrics.applies.requested(op, well, took);
    }

    /// Reads what this member has applied, if the caller may.
    pub(crate) fn read<T>(
        &self,
        may: impl FnOnce(&StateMachine, &Identity) -> Result<(), Error>,
        get: impl FnOnce(&mut StateMachine) -> Result<T, Error>,
    ) -> Result<T, RpcError> {
        let asker = self.asker();
        self.shared
            .with(|core| self.read_in(core, &asker, may, get))?
            .map_err(checked)
    }

    /// Asks and reads under one lock.
    fn read_in<T>(
        &self,
        core: &mut Core,
        asker: &Asker,
        may: impl FnOnce(&StateMachine, &Identity) -> Result<(), Error>,
        get: impl FnOnce(&mut StateMachine) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.admit(core, asker, may)?;
        get(&mut core.machine)
    }

    /// Reads with everything in it that was acknowledged before.
    pub(crate) async fn read_linearizable<T>(
        &self,
        may: impl Fn(&StateMachine, &Identity) -> Result<(), Error>,
        get: impl Fn(&mut StateMachine) -> Result<T, Error>,
    ) -> Result<T, RpcError> {
        // A leader alone needs nobody's word: one lock, no hop.
        let asker = self.asker();
        let at_once = self.shared.with(|core| {
            core.member
                .leads_alone()
                .then(|| self.read_in(core, &asker, &may, &get))
        })?;
        if let Some(answer) = at_once {
            return answer.map_err(checked);
        }
        self.catch_up().await?;
        self.read(may, get)
    }

    /// Waits until this member has applied everything that was acknowledged before:
    /// the leader makes sure that it still leads, and names the index.
    pub(crate) async fn catch_up(&self) -> Result<(), RpcError> {
        if mutants::planted(mutants::Bug::ReadWithoutIndex) {
            return Ok(());
        }
        let now = self.shared.now();
        let answer = self.shared.with(|core| {
            if core.member.leads_alone() {
                None
            } else {
                Some(core.begin_read(now))
            }
        })?;
        match answer {
            None => Ok(()),
            Some(answer) => {
                let answer = answer.await;
                if self.shared.now().saturating_sub(now) > READ_SLOW {
                    self.shared.metrics.slow_read_indexes.inc();
                }
                answer.unwrap_or_else(|_dropped| Err(Error::Stopped.into()))
            }
        }
    }

    /// Puts a command into the log in the caller's name and waits until it is applied.
    pub(crate) async fn propose(&self, command: Command) -> Result<Reply, RpcError> {
        let identity = self.identity()?;
        self.propose_as(identity, command).await
    }

    /// Puts a command into the log in somebody's name, or the store's own.
    pub(crate) async fn propose_as(
        &self,
        identity: Option<Identity>,
        command: Command,
    ) -> Result<Reply, RpcError> {
        let cost = command.quota_cost();
        let op = metrics::apply::op(&command);
        let id = self.shared.next_proposal_id();
        let data = Proposal {
            id,
            since: Some(*self.shared.applied.borrow()),
            identity,
            command,
        }
        .encode();
        if data.len() > self.shared.config.max_request_bytes {
            return Err(Error::RequestTooLarge.into());
        }
        let now = self.shared.now();
        let answer = self.shared.with(|core| {
            if cost > 0 {
                self.check_space(core, cost, now)?;
            }
            core.propose(id, data, now)
        })?;
        self.shared.wake.notify_one();
        let applied: Result<Applied, RpcError> = match answer {
            Ok(answer) => answer
                .await
                .unwrap_or_else(|_dropped| Err(Error::Stopped.into())),
            Err(error) => Err(error),
        };
        let well = matches!(&applied, Ok(applied) if applied.result.is_ok());
        self.took(op, well, now);
        match applied {
            Ok(applied) => applied.result.map_err(RpcError::from),
            Err(error) => {
                self.shared.metrics.proposals_failed.inc();
                Err(error)
            }
        }
    }

    /// Refuses what would not fit, and closes the store for writes (etcd:
    /// storage/quota.go, `Available`).
    fn check_space(
        &self,
        core: &mut crate::core::Core,
        cost: u64,
        now: Duration,
    ) -> Result<(), RpcError> {
        if core.machine.size_bytes() + cost < self.shared.config.quota_backend_bytes {
            return Ok(());
        }
        core.raise_no_space(now);
        self.shared.wake.notify_one();
        Err(Error::NoSpace.into())
    }
}

/// Returns dbSize and dbSizeInUse, given the size of the files of the rows.
pub(crate) fn sizes(machine: &StateMachine, on_disk: u64) -> (u64, u64) {
    let size = on_disk + machine.unwritten_bytes();
    let garbage = machine.size_bytes() - machine.size_in_use_bytes();
    let live = machine.size_in_use_bytes().min(size);
    (size, size.saturating_sub(garbage).max(live))
}

/// Passes a refusal on. A backend that cannot be read ends the process instead.
pub(crate) fn checked(error: Error) -> RpcError {
    if let Error::Storage(error) = &error {
        crate::fatal::fatal("read", &error.to_string());
    }
    error.into()
}

/// The state machine answers every command with its own kind of reply.
pub(crate) fn unexpected(reply: &Reply) -> RpcError {
    RpcError {
        code: 13,
        message: format!("the state machine answered with {reply:?}"),
    }
}
