//! Linearizable reads waiting for their index.
//!
//! A read is safe at index `i` once a quorum confirmed, after the read arrived,
//! that the leader still leads, and the state machine has applied `i` (Raft thesis,
//! 6.4). A follower asks its leader, which runs an attempt of its own for the
//! question. Every attempt gets a number no other attempt of this member ever had:
//! raft 0.7 answers too much when a context is reused (etcd #20418 has the same
//! root), and a note may come late.
//!
//! One attempt is under way at a time; what arrives meanwhile shares the next, so
//! that a busy leader broadcasts one heartbeat per round trip and not one per read
//! (etcd: server/v3_server.go, `linearizableReadLoop`).

use std::{collections::BTreeMap, mem, time::Duration};

use crate::{
    core::Member,
    output::{Output, Role},
};

/// Most reads that may wait at one time, peers' questions included. Beyond it a read
/// is refused with [`ReadRefusal::TooMany`].
pub const READS_WAITING_MAX: usize = 10_000;

/// Names a read the caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Why a read gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRefusal {
    /// Too many wait.
    TooMany,
    /// Nobody who leads confirmed it in time, or applying lags behind.
    Timeout,
}

/// Who waits for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiter {
    /// A client of this member, since when.
    Own(ReadId, Duration),
    /// The clients of a peer, under its number.
    Peer(u64, u64),
}

/// One round trip, with all reads that share it.
#[derive(Debug)]
struct Attempt {
    waiters: Vec<Waiter>,
    asked_at: Duration,
    /// The index to wait for, once it is known.
    index: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Reads {
    /// Not yet asked.
    arrived: Vec<Waiter>,
    attempts: BTreeMap<u64, Attempt>,
    counter: u64,
    waiting: usize,
}

impl Reads {
    pub(crate) fn new(first: u64) -> Self {
        Self {
            arrived: Vec::new(),
            attempts: BTreeMap::new(),
            counter: first,
            waiting: 0,
        }
    }

    /// Takes in a waiter; returns whether there was room for it.
    fn arrive(&mut self, waiter: Waiter) -> bool {
        if self.waiting >= READS_WAITING_MAX {
            return false;
        }
        self.waiting += 1;
        self.arrived.push(waiter);
        true
    }

    fn may_open(&self) -> bool {
        let under_way = || {
            self.attempts
                .values()
                .any(|attempt| attempt.index.is_none())
        };
        !self.arrived.is_empty() && !under_way()
    }

    /// Opens one attempt for everything that has arrived; returns its number.
    fn open(&mut self, now: Duration) -> u64 {
        if !mutants::planted(mutants::Bug::ReadContextReused) {
            self.counter = self.counter.wrapping_add(1);
        }
        let attempt = Attempt {
            waiters: mem::take(&mut self.arrived),
            asked_at: now,
            index: None,
        };
        self.attempts.insert(self.counter, attempt);
        self.counter
    }

    /// Records the answer to an attempt; an unknown one is a late answer. Returns
    /// the peers' questions that are answered by it.
    fn confirm(&mut self, attempt: u64, index: u64) -> Vec<(u64, u64)> {
        let Some(found) = self.attempts.get_mut(&attempt) else {
            return Vec::new();
        };
        found.index = Some(index);
        let mut peers = Vec::new();
        found.waiters.retain(|waiter| match waiter {
            Waiter::Own(..) => true,
            Waiter::Peer(peer, number) => {
                peers.push((*peer, *number));
                false
            }
        });
        self.waiting -= peers.len();
        peers
    }

    /// Takes the reads whose index has been applied.
    pub(crate) fn take_ready(&mut self, applied: u64) -> Vec<ReadId> {
        let mut ready = Vec::new();
        self.attempts.retain(|_, attempt| match attempt.index {
            Some(index) if index <= applied => {
                ready.extend(attempt.waiters.drain(..).filter_map(own));
                false
            }
            _ => true,
        });
        self.waiting -= ready.len();
        ready
    }

    /// Sends unanswered attempts back to the start, to be asked again afresh.
    /// `older_than` limits this to those asked before that time.
    pub(crate) fn reopen(&mut self, older_than: Option<Duration>) {
        let arrived = &mut self.arrived;
        self.attempts.retain(|_, attempt| {
            let stale = older_than.is_none_or(|limit| attempt.asked_at < limit);
            if attempt.index.is_some() || !stale {
                return true;
            }
            arrived.append(&mut attempt.waiters);
            false
        });
    }

    /// Makes an attempt old, so that the next tick asks again.
    fn age(&mut self, attempt: u64) {
        if let Some(found) = self.attempts.get_mut(&attempt) {
            found.asked_at = Duration::ZERO;
        }
    }

    /// Takes the questions of peers that are not answered.
    fn take_peers(&mut self) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        self.retain(|waiter| match waiter {
            Waiter::Own(..) => true,
            Waiter::Peer(peer, number) => {
                taken.push((*peer, *number));
                false
            }
        });
        self.waiting -= taken.len();
        taken
    }

    /// Takes the reads that arrived before `limit`.
    fn take_older(&mut self, limit: Duration) -> Vec<ReadId> {
        let mut taken = Vec::new();
        self.retain(|waiter| match waiter {
            Waiter::Own(id, since) if *since < limit => {
                taken.push(*id);
                false
            }
            _ => true,
        });
        self.waiting -= taken.len();
        taken
    }

    fn retain(&mut self, mut keep: impl FnMut(&Waiter) -> bool) {
        self.arrived.retain(&mut keep);
        for attempt in self.attempts.values_mut() {
            attempt.waiters.retain(&mut keep);
        }
    }
}

fn own(waiter: Waiter) -> Option<ReadId> {
    match waiter {
        Waiter::Own(id, _) => Some(id),
        Waiter::Peer(..) => None,
    }
}

impl Member {
    pub(crate) fn read(&mut self, id: ReadId, now: Duration, outputs: &mut Vec<Output>) {
        if !self.reads.arrive(Waiter::Own(id, now)) {
            outputs.push(Output::ReadRefused {
                ids: vec![id],
                reason: ReadRefusal::TooMany,
            });
        }
    }

    pub(crate) fn read_for(&mut self, peer: u64, attempt: u64, outputs: &mut Vec<Output>) {
        let leads = self.raw.raft.leader_id == self.config.id;
        if !leads || !self.reads.arrive(Waiter::Peer(peer, attempt)) {
            outputs.push(Output::AnswerRead {
                peer,
                attempt,
                index: None,
            });
        }
    }

    pub(crate) fn read_answered(&mut self, attempt: u64, index: Option<u64>) {
        match index {
            Some(index) => {
                // Only a leader is asked by peers, and it asks nobody.
                let _none = self.reads.confirm(attempt, index);
            }
            None => self.reads.age(attempt),
        }
    }

    pub(crate) fn tick_reads(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        if let Some(limit) = now.checked_sub(self.config.read_retry) {
            self.reads.reopen(Some(limit));
        }
        if let Some(limit) = now.checked_sub(self.config.read_timeout) {
            let ids = self.reads.take_older(limit);
            if !ids.is_empty() {
                outputs.push(Output::ReadRefused {
                    ids,
                    reason: ReadRefusal::Timeout,
                });
            }
        }
    }

    /// Asks for one index on behalf of everybody who arrived: raft if this member
    /// leads, else the leader. A leader that has committed nothing in its term yet
    /// would drop the question.
    pub(crate) fn ask_reads(&mut self, now: Duration, outputs: &mut Vec<Output>) {
        if !self.reads.may_open() {
            return;
        }
        let leader = self.standing.leader;
        if self.standing.role == Role::Leader {
            if self.raw.raft.commit_to_current_term() {
                let attempt = self.reads.open(now);
                self.raw.read_index(self.context(attempt));
            }
        } else if leader != 0 && leader != self.config.id {
            let attempt = self.reads.open(now);
            outputs.push(Output::AskLeader { leader, attempt });
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

    pub(crate) fn take_read_states(&mut self, outputs: &mut Vec<Output>) {
        for state in mem::take(&mut self.raw.raft.read_states) {
            let Some((head, attempt)) = state.request_ctx.split_last_chunk::<8>() else {
                continue;
            };
            let number = u64::from_le_bytes(*attempt);
            if !self.context(number).starts_with(head) {
                continue;
            }
            for (peer, attempt) in self.reads.confirm(number, state.index) {
                outputs.push(Output::AnswerRead {
                    peer,
                    attempt,
                    index: Some(state.index),
                });
            }
        }
    }

    /// Tells peers that this member cannot answer them.
    pub(crate) fn refuse_peers(&mut self, outputs: &mut Vec<Output>) {
        for (peer, attempt) in self.reads.take_peers() {
            outputs.push(Output::AnswerRead {
                peer,
                attempt,
                index: None,
            });
        }
    }
}
