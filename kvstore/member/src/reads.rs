//! Linearizable reads waiting for their index.
//!
//! A read is safe at index `i` once a quorum confirmed, after the read arrived,
//! that this member still leads, and the state machine has applied `i` (Raft
//! thesis, 6.4). Every attempt gets a context no other attempt ever had: raft
//! 0.7 answers too much when one is reused (etcd #20418 has the same root).

use std::{collections::BTreeMap, mem, time::Duration};

/// Most reads that may wait for an index at one time. Beyond it a read is refused
/// and its client told to try again.
pub const READS_WAITING_MAX: usize = 10_000;

/// Names a read the caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// One round trip asked of raft, with all reads that share it.
#[derive(Debug)]
struct Attempt {
    reads: Vec<ReadId>,
    asked_at: Duration,
    /// The index to wait for, once raft has given it.
    index: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Not yet asked of raft.
    arrived: Vec<ReadId>,
    attempts: BTreeMap<u64, Attempt>,
    counter: u64,
    waiting: usize,
}

impl Reads {
    /// Takes in a read; returns whether there was room for it.
    pub(crate) fn arrive(&mut self, id: ReadId) -> bool {
        if self.waiting >= READS_WAITING_MAX {
            return false;
        }
        self.waiting += 1;
        self.arrived.push(id);
        true
    }

    /// Opens one attempt for everything that has arrived; returns its number.
    pub(crate) fn open(&mut self, now: Duration) -> Option<u64> {
        if self.arrived.is_empty() {
            return None;
        }
        self.counter += 1;
        let reads = mem::take(&mut self.arrived);
        self.attempts.insert(
            self.counter,
            Attempt {
                reads,
                asked_at: now,
                index: None,
            },
        );
        Some(self.counter)
    }

    /// Records raft's answer to an attempt; an unknown one is a late answer.
    pub(crate) fn confirm(&mut self, attempt: u64, index: u64) {
        if let Some(found) = self.attempts.get_mut(&attempt) {
            found.index = Some(index);
        }
    }

    /// Takes the reads whose index has been applied.
    pub(crate) fn take_ready(&mut self, applied: u64) -> Vec<ReadId> {
        let mut ready = Vec::new();
        self.attempts.retain(|_, attempt| match attempt.index {
            Some(index) if index <= applied => {
                ready.append(&mut attempt.reads);
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
            arrived.append(&mut attempt.reads);
            false
        });
    }

    /// Takes every read that has no index yet: leadership moved, and an answer
    /// from before must not be used.
    pub(crate) fn take_unanswered(&mut self) -> Vec<ReadId> {
        self.reopen(None);
        let taken = mem::take(&mut self.arrived);
        self.waiting -= taken.len();
        taken
    }

    pub(crate) fn has_unasked(&self) -> bool {
        !self.arrived.is_empty()
    }
}
