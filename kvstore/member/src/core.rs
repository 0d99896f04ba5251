//! The member itself: raft's `RawNode` and the order of obligations around it.

use std::{collections::VecDeque, mem, time::Duration};

use bytes::Bytes;
use raft::{
    Error as RaftError, RawNode, ReadOnlyOption, Ready, StateRole,
    eraftpb::{Entry, Message, MessageType},
};
use thiserror::Error;

use crate::{
    entry::{HardState, LogEntry},
    log::{LogView, Recovered},
    reads::{ReadId, Reads},
    rng::Rng,
};

/// A message between members; the caller carries it as bytes in its own frames.
pub type PeerMessage = Message;

/// Most bytes of proposals appended but not yet committed. Beyond it proposals
/// are refused with [`Refusal::TooMany`].
pub const PROPOSALS_UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of entries in one message to a peer.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// Most messages under way to one peer; then raft waits for an answer.
const MESSAGES_IN_FLIGHT_MAX: usize = 256;

/// Most bytes of committed entries handed out at once, so that one turn of
/// applying stays short. The rest follows in the same step.
const APPLY_BYTES_MAX: u64 = 16 << 20;

/// Says how a member behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member; not zero.
    pub id: u64,
    /// All voting members, this one included.
    pub voters: Vec<u64>,
    /// Differs between two starts of the same member; part of read contexts.
    pub boot_id: u64,
    /// Highest index the state machine holds on disk.
    pub applied: u64,
    /// Ticks without a leader until an election, at least.
    pub election_ticks: usize,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// Whether it asks before it stands for election, so that a member that was cut
    /// off does not disturb the others.
    pub pre_vote: bool,
    /// Seed of the election timeouts.
    pub seed: u64,
    /// After how long an unanswered read is asked again, with a fresh context.
    pub read_retry: Duration,
    /// Applied entries kept in memory for peers that lag. A lone voter keeps none.
    pub catch_up_entries: u64,
}

/// Something a client wants in the log. The caller makes the id unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Names it in [`Output::Refused`].
    pub id: u64,
    /// What will be in [`LogEntry::data`]; not empty.
    pub data: Bytes,
}

/// What can happen to a member.
#[derive(Debug)]
pub enum Input {
    /// One tick of time passed.
    Tick,
    /// A leader is wanted now, without waiting for an election timeout.
    Campaign,
    /// Clients want these in the log, in this order.
    Propose(Vec<Proposal>),
    /// A client wants to read everything acknowledged before now.
    Read(ReadId),
    /// A peer sent a message.
    Peer(Box<PeerMessage>),
    /// A message to this peer was lost.
    Unreachable(u64),
    /// The [`Persist`] of this number and all before it are on disk.
    Persisted(u64),
    /// The state machine's own storage holds everything up to this index.
    Covered(u64),
}

/// What the caller must do, in order.
#[derive(Debug)]
pub enum Output {
    /// Sends these messages, at once; losing one is allowed.
    Send(Vec<PeerMessage>),
    /// Writes this to the log and reports [`Input::Persisted`] when it is there.
    Persist(Persist),
    /// Applies these entries to the state machine.
    Apply(Vec<LogEntry>),
    /// Answers these reads from the state machine as it is now.
    ReadReady(Vec<ReadId>),
    /// Tells these readers to try again: leadership moved, or too many wait.
    ReadRefused(Vec<ReadId>),
    /// Tells these proposers that nothing was appended.
    Refused {
        /// The proposals.
        ids: Vec<u64>,
        /// Why.
        reason: Refusal,
    },
    /// Term, role or leader changed; whoever waits for a proposal of an earlier
    /// leadership must be told that its outcome is unknown.
    Standing(Standing),
}

/// One write to the log.
#[derive(Debug)]
pub struct Persist {
    /// Ascending; names the write in [`Input::Persisted`].
    pub number: u64,
    /// The new hard state, if it changed. To be written before the entries.
    pub hard_state: Option<HardState>,
    /// New entries; they replace all entries from the first one's index on.
    pub entries: Vec<LogEntry>,
    /// Whether the write must be synced. Otherwise only a commit index changed,
    /// which may be lost.
    pub must_sync: bool,
    /// Whether the member waits to be told.
    pub report: bool,
}

/// Why a proposal was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This member does not lead.
    NotLeader,
    /// Too much is appended but not committed.
    TooMany,
}

/// What a member is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    Follower,
    /// Stands for election.
    Candidate,
    /// Leads.
    Leader,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its term.
    pub term: u64,
    /// Its role.
    pub role: Role,
    /// The leader it knows; zero is none.
    pub leader: u64,
}

/// Says why a member cannot be.
#[derive(Debug, Error)]
pub enum MemberError {
    /// The log ends before what the state machine already holds: synced data
    /// was lost, and voting with it would break the cluster.
    #[error("log ends at index {last} but index {applied} was already applied: its tail is lost")]
    TailLost {
        /// Last index of the log.
        last: u64,
        /// Highest index the state machine holds.
        applied: u64,
    },
    /// The log begins after the first entry the state machine needs.
    #[error("log begins at index {first} but the state machine needs {needed}")]
    HeadLost {
        /// First index of the log.
        first: u64,
        /// First index needed.
        needed: u64,
    },
    /// raft refuses the configuration.
    #[error("raft: {0}")]
    Raft(#[from] RaftError),
}

/// One member of the replicated store.
///
/// Invariants:
/// - `applied` is the index of the last entry handed out by [`Output::Apply`].
/// - `unreported` is ascending and holds the numbers of writes not yet reported.
pub struct Member {
    raw: RawNode<LogView>,
    config: Config,
    rng: Rng,
    reads: Reads,
    standing: Standing,
    applied: u64,
    /// The election timeout last drawn from `rng`.
    timeout: Option<usize>,
    /// Writes under way, and the messages that wait for them.
    unreported: VecDeque<(u64, Vec<PeerMessage>)>,
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
        let log = LogView::new(recovered, config.voters.clone());
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&raft_config(&config), log, &logger)?;
        let mut member = Self {
            rng: Rng::new(config.seed),
            raw,
            reads: Reads::default(),
            standing: Standing {
                term: 0,
                role: Role::Follower,
                leader: 0,
            },
            applied,
            timeout: None,
            unreported: VecDeque::new(),
            config,
        };
        member.standing = member.look();
        member.reseed();
        Ok(member)
    }

    /// Takes one input; `now` is the time since some fixed moment.
    ///
    /// All outputs of the step before must have been carried out.
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Output> {
        let mut outputs = Vec::new();
        // Told only now, because only now it is sure to be true.
        if self.applied > self.raw.raft.raft_log.applied {
            self.raw.advance_apply_to(self.applied);
        }
        match input {
            Input::Tick => self.tick(now),
            Input::Campaign => self.tolerate(|raw| raw.campaign()),
            Input::Propose(proposals) => self.propose(proposals, &mut outputs),
            Input::Read(id) => {
                if !self.reads.arrive(id) {
                    outputs.push(Output::ReadRefused(vec![id]));
                }
            }
            Input::Peer(message) => self.tolerate(|raw| raw.step(*message)),
            Input::Unreachable(peer) => self.raw.report_unreachable(peer),
            Input::Persisted(number) => self.persisted(number, &mut outputs),
            Input::Covered(index) => self.covered(index),
        }
        self.settle(now, &mut outputs);
        outputs
    }

    /// Returns where this member stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Returns the highest committed index known.
    pub fn commit_index(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// Returns the index of the last entry appended.
    pub fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// Returns whether a read would be answered in the same step.
    pub fn leads_alone(&self) -> bool {
        self.standing.role == Role::Leader
            && self.config.voters.len() == 1
            && self.raw.raft.commit_to_current_term()
            && self.applied == self.commit_index()
    }

    /// Returns the number of entries held in memory.
    pub fn entries_in_memory(&self) -> usize {
        self.raw.store().len()
    }

    fn tick(&mut self, now: Duration) {
        self.raw.tick();
        if let Some(limit) = now.checked_sub(self.config.read_retry) {
            self.reads.reopen(Some(limit));
        }
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
        // On a follower raft would forward the proposal without any answer.
        if self.raw.raft.state != StateRole::Leader {
            outputs.push(Output::Refused {
                ids,
                reason: Refusal::NotLeader,
            });
            return;
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id;
        message.set_entries(entries.into());
        if self.raw.step(message).is_err() {
            outputs.push(Output::Refused {
                ids,
                reason: Refusal::TooMany,
            });
        }
    }

    fn persisted(&mut self, number: u64, outputs: &mut Vec<Output>) {
        self.raw.on_persist_ready(number);
        let mut messages = Vec::new();
        while let Some((first, _)) = self.unreported.front()
            && *first <= number
        {
            let (_, mut waiting) = self.unreported.pop_front().expect("front was just seen");
            messages.append(&mut waiting);
        }
        if !messages.is_empty() {
            outputs.push(Output::Send(messages));
        }
    }

    fn covered(&mut self, index: u64) {
        let keep = if self.config.voters.len() == 1 {
            0
        } else {
            self.config.catch_up_entries
        };
        let index = index.min(self.applied).saturating_sub(keep);
        self.raw.mut_store().release(index);
    }

    /// Carries raft's answers out until it has none left.
    fn settle(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        self.reseed();
        self.change_standing(outputs);
        self.ask_reads(now);
        loop {
            self.take_read_states();
            if !self.raw.has_ready() {
                break;
            }
            let ready = self.raw.ready();
            self.carry_out(ready, outputs);
            self.change_standing(outputs);
            self.ask_reads(now);
        }
        let ready = self.reads.take_ready(self.applied);
        if !ready.is_empty() {
            outputs.push(Output::ReadReady(ready));
        }
    }

    fn carry_out(&mut self, mut ready: Ready, outputs: &mut Vec<Output>) {
        let messages = ready.take_messages();
        if !messages.is_empty() {
            outputs.push(Output::Send(messages));
        }
        assert!(ready.snapshot().is_empty(), "no member sends snapshots yet");
        let number = ready.number();
        let hard_state = ready.hs().map(HardState::from);
        let entries: Vec<LogEntry> = ready.entries().iter().map(LogEntry::from).collect();
        let after = ready.take_persisted_messages();
        let committed: Vec<LogEntry> = ready
            .take_committed_entries()
            .iter()
            .map(LogEntry::from)
            .collect();
        let must_sync = ready.must_sync();
        self.raw.mut_store().append(ready.entries());
        self.raw.advance_append_async(ready);

        if hard_state.is_some() || !entries.is_empty() {
            let report = must_sync || !after.is_empty();
            if report {
                self.unreported.push_back((number, after));
            }
            outputs.push(Output::Persist(Persist {
                number,
                hard_state,
                entries,
                must_sync,
                report,
            }));
        } else if let Some((_, waiting)) = self.unreported.back_mut() {
            waiting.extend(after);
        } else if !after.is_empty() {
            outputs.push(Output::Send(after));
        }
        if let Some(last) = committed.last() {
            self.applied = last.index;
            outputs.push(Output::Apply(committed));
        }
    }

    /// Announces a change of term, role or leader, and drops the reads whose
    /// answer could now come from a leadership that is over.
    fn change_standing(&mut self, outputs: &mut Vec<Output>) {
        let standing = self.look();
        if standing == self.standing {
            return;
        }
        self.standing = standing;
        outputs.push(Output::Standing(standing));
        if standing.role == Role::Leader {
            self.reads.reopen(None);
            return;
        }
        let refused = self.reads.take_unanswered();
        if !refused.is_empty() {
            outputs.push(Output::ReadRefused(refused));
        }
    }

    fn look(&self) -> Standing {
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

    /// Asks raft for one index on behalf of every read that arrived. A leader
    /// that has committed nothing in its term yet would drop the question.
    fn ask_reads(&mut self, now: Duration) {
        let leads = self.standing.role == Role::Leader;
        if !self.reads.has_unasked() || !leads || !self.raw.raft.commit_to_current_term() {
            return;
        }
        if let Some(attempt) = self.reads.open(now) {
            self.raw.read_index(self.context(attempt));
        }
    }

    /// Makes a context no other attempt of any member ever had.
    fn context(&self, attempt: u64) -> Vec<u8> {
        let parts = [
            self.config.id,
            self.config.boot_id,
            self.standing.term,
            attempt,
        ];
        parts.iter().flat_map(|part| part.to_le_bytes()).collect()
    }

    fn take_read_states(&mut self) {
        for state in mem::take(&mut self.raw.raft.read_states) {
            let Some((head, attempt)) = state.request_ctx.split_last_chunk::<8>() else {
                continue;
            };
            let attempt = u64::from_le_bytes(*attempt);
            if self.context(attempt).starts_with(head) {
                self.reads.confirm(attempt, state.index);
            }
        }
    }

    /// Replaces the election timeout raft drew from the thread's random source.
    fn reseed(&mut self) {
        let standing = self.look();
        let changed = (standing.term, standing.role) != (self.standing.term, self.standing.role);
        let drawn = self.raw.raft.randomized_election_timeout();
        if changed || self.timeout != Some(drawn) {
            let low = self.config.election_ticks;
            let timeout = self.rng.draw(low, 2 * low);
            self.raw.raft.set_randomized_election_timeout(timeout);
            self.timeout = Some(timeout);
        }
    }

    /// Calls into raft where an error means only that the input was of no use.
    fn tolerate(&mut self, call: impl FnOnce(&mut RawNode<LogView>) -> raft::Result<()>) {
        // StepPeerNotFound, a vote too late, a campaign of a removed member: raft
        // leaves its state as it was.
        let _ignored = call(&mut self.raw);
    }
}

fn raft_config(config: &Config) -> raft::Config {
    raft::Config {
        id: config.id,
        applied: config.applied,
        election_tick: config.election_ticks,
        heartbeat_tick: config.heartbeat_ticks,
        min_election_tick: config.election_ticks,
        max_election_tick: 2 * config.election_ticks,
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
