//! The member itself: raft's `RawNode` and what it is asked.

use std::{collections::VecDeque, time::Duration};

use raft::{
    RawNode, ReadOnlyOption, StateRole,
    eraftpb::{Entry, Message, MessageType},
};

use crate::{
    change::WaitingChange,
    conf::ConfState,
    entry::LogEntry,
    input::{Config, Input, MemberError, Proposal},
    log::{LogView, Recovered},
    output::{Output, Refusal, Role, Standing},
    reads::Reads,
    ready::{APPLY_BYTES_MAX, Unreported},
    rng::Rng,
};

/// Most bytes of proposals appended but not yet committed. Beyond it proposals
/// are refused with [`Refusal::TooMany`].
pub const PROPOSALS_UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of entries in one message to a peer.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// Most messages under way to one peer; then raft waits for an answer.
const MESSAGES_IN_FLIGHT_MAX: usize = 256;

/// How many ticks one is for a member that stands for election. Nobody leads then, so
/// a vote that was split is held again after a third of an election timeout.
const CANDIDATE_HASTE: usize = 3;

/// Most bytes of entries in memory for the sake of peers that lag. Beyond it the
/// oldest applied ones go, and a peer that needs them is sent a snapshot.
const CATCH_UP_BYTES_MAX: u64 = 128 << 20;

/// Whether the member has found itself removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It has not.
    None,
    /// It has, and the caller does not know yet.
    ToSay,
    /// It has, and the caller knows.
    Said,
}

/// One member of the replicated store.
///
/// Invariants:
/// - `applied` is the index of the last entry handed out by [`Output::Apply`], or of
///   the snapshot installed since;
/// - `committed` holds what raft gave out of the entries after it, without a gap;
/// - `unreported` is ascending and holds the numbers of writes not yet reported.
pub struct Member {
    pub(crate) raw: RawNode<LogView>,
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    pub(crate) reads: Reads,
    pub(crate) standing: Standing,
    pub(crate) applied: u64,
    /// Committed, and to be applied in this step or one of the next. Bounded by the
    /// log in memory, which shares their bytes.
    pub(crate) committed: VecDeque<LogEntry>,
    /// The election timeout last drawn from `rng`.
    pub(crate) timeout: Option<usize>,
    /// Writes under way, and the messages that wait for them.
    pub(crate) unreported: VecDeque<Unreported>,
    /// The latest term known to be on disk.
    pub(crate) durable_term: u64,
    /// The write of a snapshot that is under way.
    pub(crate) installing: Option<u64>,
    /// Membership changes that wait for the one before.
    pub(crate) changes: VecDeque<WaitingChange>,
    /// Whether [`Member::apply_change`] was called since the last step.
    pub(crate) conf_changed: bool,
    pub(crate) removal: Removal,
}

impl Member {
    /// Makes a member from what the disk remembered.
    pub fn new(config: Config, mut recovered: Recovered) -> Result<Self, MemberError> {
        let last = recovered.last_index();
        if last < config.applied {
            return Err(MemberError::TailLost {
                last,
                applied: config.applied,
            });
        }
        if recovered.base_index > config.applied {
            let needed = config.applied + 1;
            return Err(MemberError::HeadLost {
                first: recovered.base_index + 1,
                needed,
            });
        }
        // What was applied was committed, whether or not that was written down.
        let commit = recovered.hard_state.commit.clamp(config.applied, last);
        recovered.hard_state.commit = commit;
        let applied = config.applied;
        let durable_term = recovered.hard_state.term;
        let log = LogView::new(recovered, config.conf_state.clone(), applied);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&raft_config(&config), log, &logger)?;
        let mut member = Self {
            rng: Rng::new(config.seed),
            raw,
            reads: Reads::new(config.boot_id),
            standing: Standing {
                term: 0,
                role: Role::Follower,
                leader: 0,
            },
            applied,
            committed: VecDeque::new(),
            timeout: None,
            unreported: VecDeque::new(),
            durable_term,
            installing: None,
            changes: VecDeque::new(),
            conf_changed: false,
            removal: Removal::None,
            config,
        };
        member.standing = member.look();
        member.reseed();
        Ok(member)
    }

    /// Takes one input; `now` is the time since some fixed moment.
    ///
    /// All outputs of the step before must have been carried out, and
    /// [`Member::apply_change`] called for the changes among its entries.
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        // Told only now, because only now it is sure to be true.
        self.tell_applied();
        match input {
            Input::Tick => self.tick(now, &mut outputs),
            Input::Turn => {}
            Input::Campaign => self.campaign(),
            Input::Propose(proposals) => self.propose(proposals, &mut outputs),
            Input::ProposeChange {
                id,
                change,
                context,
            } => self.queue_change(id, change, &context, &mut outputs),
            Input::Read(id) => self.read(id, now, &mut outputs),
            Input::ReadFor { peer, attempt } => self.read_for(peer, attempt, &mut outputs),
            Input::ReadAnswer { attempt, index } => self.read_answered(attempt, index),
            Input::Peer(message) => self.receive(*message, &mut outputs),
            Input::Unreachable(peer) => self.raw.report_unreachable(peer),
            Input::SnapshotSent { peer, ok } => self.snapshot_sent(peer, ok),
            Input::Transfer(to) => self.transfer(to),
            Input::Persisted(number) => self.persisted(number, &mut outputs),
            Input::Covered(index) => self.covered(index),
        }
        self.settle(now, &mut outputs);
        outputs
    }

    /// Returns whether there is more to do at once, for which nobody will call:
    /// the caller takes another step soon, with [`Input::Turn`] if it has no other.
    pub fn wants_turn(&self) -> bool {
        self.conf_changed || !self.committed.is_empty() || self.raw.has_ready()
    }

    /// Returns where this member stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Returns the highest committed index known.
    pub fn commit_index(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Returns the index of the last entry handed out to be applied.
    pub fn applied_index(&self) -> u64 {
        self.applied
    }

    /// Returns the index of the last entry appended.
    pub fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// Returns the membership as of the entries applied.
    pub fn conf_state(&self) -> &ConfState {
        self.raw.store().conf_state()
    }

    /// Returns whether this member leads as the only voter, so that a read would be
    /// answered in the same step.
    pub fn leads_alone(&self) -> bool {
        self.standing.role == Role::Leader
            && self.raw.raft.prs().is_singleton()
            && self.raw.raft.commit_to_current_term()
            && self.applied == self.commit_index()
    }

    /// Returns the number of entries held in memory.
    pub fn entries_in_memory(&self) -> usize {
        self.raw.store().len()
    }

    fn tick(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        let times = match self.standing.role {
            // Who does not ask before it stands raises everybody's term and sets their
            // clocks back: one whose log is too short to win would keep those who
            // could from standing, for ever.
            Role::Candidate if self.config.pre_vote => CANDIDATE_HASTE,
            Role::Candidate | Role::Follower | Role::Leader => 1,
        };
        for _ in 0..times {
            if self.standing.role == Role::Leader || self.may_campaign() {
                self.raw.tick();
            }
        }
        self.tick_reads(now, outputs);
    }

    fn campaign(&mut self) {
        if self.may_campaign() {
            self.tolerate(|raw| raw.campaign());
        }
    }

    /// Returns whether raft can be let into an election without a panic: it looks
    /// at the entries after those applied, which a snapshot being installed
    /// replaced, and a lone voter wins at once, which it may only with its whole log
    /// on disk (raft.rs, `hup` and `become_leader`).
    pub(crate) fn may_campaign(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        let on_disk = log.persisted == log.last_index();
        self.installing.is_none() && (on_disk || !self.raw.raft.prs().is_singleton())
    }

    fn propose(&mut self, proposals: Vec<Proposal>, outputs: &mut Vec<Output>) {
        if proposals.is_empty() {
            return;
        }
        let mut ids = Vec::with_capacity(proposals.len());
        let mut entries = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            debug_assert!(
                !proposal.data.is_empty(),
                "an empty entry is a new leader's mark"
            );
            ids.push(proposal.id);
            entries.push(Entry {
                data: proposal.data,
                ..Entry::default()
            });
        }
        if let Some(reason) = self.append(entries) {
            outputs.push(Output::Refused { ids, reason });
        }
    }

    /// Appends to the log as its leader, or says why not.
    pub(crate) fn append(&mut self, entries: Vec<Entry>) -> Option<Refusal> {
        // On a follower raft would forward the proposal without any answer.
        if self.raw.raft.state != StateRole::Leader {
            return Some(Refusal::NotLeader);
        }
        if self.raw.raft.lead_transferee.is_some() {
            return Some(Refusal::Transferring);
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id;
        message.set_entries(entries.into());
        self.raw.step(message).err().map(|_| Refusal::TooMany)
    }

    /// Lets go of entries in memory that the state machine holds on disk and no
    /// peer is likely to need.
    fn covered(&mut self, index: u64) {
        let covered = index.min(self.applied);
        if self.conf_state().is_lone(self.config.id) {
            self.raw.mut_store().release(covered);
            return;
        }
        let keep_from = covered.saturating_sub(self.config.catch_up_entries);
        // Whoever is being sent a snapshot goes on from its index.
        let keep_from = self
            .snapshot_floor()
            .map_or(keep_from, |floor| floor.min(keep_from));
        let log = self.raw.mut_store();
        log.release(keep_from);
        log.release_bytes(covered, CATCH_UP_BYTES_MAX);
    }

    pub(crate) fn look(&self) -> Standing {
        let role = match self.raw.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower => Role::Follower,
        };
        Standing {
            term: self.raw.raft.term,
            role,
            leader: self.raw.raft.leader_id,
        }
    }

    /// Replaces the election timeout raft drew from the thread's random source.
    pub(crate) fn reseed(&mut self) {
        let standing = self.look();
        let changed = (standing.term, standing.role) != (self.standing.term, self.standing.role);
        let drawn = self.raw.raft.randomized_election_timeout();
        if changed || self.timeout != Some(drawn) {
            let low = self.config.election_ticks;
            let timeout = self.rng.draw(low, latest(low));
            self.raw.raft.set_randomized_election_timeout(timeout);
            self.timeout = Some(timeout);
        }
    }

    /// Calls into raft where an error means only that the input was of no use.
    pub(crate) fn tolerate(
        &mut self,
        call: impl FnOnce(&mut RawNode<LogView>) -> raft::Result<()>,
    ) {
        // StepPeerNotFound, a vote too late, a campaign of a removed member: raft
        // leaves its state as it was.
        let _ignored = call(&mut self.raw);
    }
}

/// Returns what election timeouts are drawn below. raft draws up to twice the shortest
/// (Raft paper, 9.3, does too); the last of that is time without a leader, while two
/// thirds of it keep members apart as well, for a vote takes a few milliseconds.
fn latest(election_ticks: usize) -> usize {
    election_ticks + (election_ticks * 6).div_ceil(10)
}

fn raft_config(config: &Config) -> raft::Config {
    raft::Config {
        id: config.id,
        applied: config.applied,
        election_tick: config.election_ticks,
        heartbeat_tick: config.heartbeat_ticks,
        min_election_tick: config.election_ticks,
        max_election_tick: latest(config.election_ticks),
        max_size_per_msg: MESSAGE_BYTES_MAX,
        max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
        max_committed_size_per_ready: APPLY_BYTES_MAX,
        max_uncommitted_size: PROPOSALS_UNCOMMITTED_BYTES_MAX,
        check_quorum: true,
        pre_vote: config.pre_vote,
        read_only_option: ReadOnlyOption::Safe,
        ..raft::Config::default()
    }
}
