//! Proposals and reads on their way: from the moment a client asks until the answer
//! is known here.
//!
//! A proposal keeps its bytes until its entry is applied on this member, because it
//! may have to be handed over again: to the next leader, or to the same one when the
//! way there lost it. Its id makes that safe: the second copy of an entry changes
//! nothing (`mvcc`, de-duplication).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
    time::Duration,
};

use bytes::Bytes;
use member::{Proposal, ReadId};
use mvcc::Applied;
use tokio::sync::oneshot;

use crate::rpc_error::RpcError;

/// Most proposals that may wait to be applied. Beyond it a client is told
/// "too many requests", as etcd does when apply lags its commits by this much.
const PROPOSALS_WAITING_MAX: usize = 5_000;

/// Proposals of clients stop this far below the limit, so that the store's own
/// revocations and compactions still get in.
const PROPOSALS_RESERVED: usize = 500;

/// Most bytes of proposals that may wait to be applied. Beyond it clients are told
/// "too many requests": without a leader nothing else would stop them.
const PROPOSALS_WAITING_BYTES_MAX: usize = 128 << 20;

pub(crate) type Answer<T> = oneshot::Sender<Result<T, RpcError>>;

struct Waiter {
    answer: Answer<Applied>,
    /// None if somebody else hands it over.
    data: Option<Bytes>,
}

/// Everybody who waits for an entry to be applied, or for a read's index.
#[derive(Default)]
pub(crate) struct Pending {
    waiters: HashMap<u64, Waiter>,
    /// Bytes the waiters keep.
    bytes: usize,
    /// When each waiter gives up, soonest first: all wait equally long.
    deadlines: VecDeque<(Duration, u64)>,
    /// Not yet handed over.
    queue: Vec<Proposal>,
    /// Likewise, but of use only while this member leads; nobody waits for them.
    own: Vec<Proposal>,
    readers: HashMap<ReadId, Answer<()>>,
    last_read: u64,
}

impl Pending {
    /// Says whether another proposal of a client may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.waiters.len() < PROPOSALS_WAITING_MAX - PROPOSALS_RESERVED
            && self.bytes < PROPOSALS_WAITING_BYTES_MAX
    }

    /// Counts the proposals that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Takes a proposal in; what it returns fires once its entry is applied.
    pub(crate) fn add(
        &mut self,
        id: u64,
        data: Bytes,
        deadline: Duration,
    ) -> oneshot::Receiver<Result<Applied, RpcError>> {
        let receiver = self.keep(id, Some(data.clone()), deadline);
        self.queue.push(Proposal { id, data });
        receiver
    }

    /// Waits for an entry that the caller hands over.
    pub(crate) fn wait_for(
        &mut self,
        id: u64,
        deadline: Duration,
    ) -> oneshot::Receiver<Result<Applied, RpcError>> {
        self.keep(id, None, deadline)
    }

    fn keep(
        &mut self,
        id: u64,
        data: Option<Bytes>,
        deadline: Duration,
    ) -> oneshot::Receiver<Result<Applied, RpcError>> {
        let (answer, receiver) = oneshot::channel();
        self.bytes += data.as_ref().map_or(0, Bytes::len);
        self.waiters.insert(id, Waiter { answer, data });
        self.deadlines.push_back((deadline, id));
        receiver
    }

    /// Queues what nobody waits for, to be forwarded if need be.
    pub(crate) fn add_unasked(&mut self, proposal: Proposal) {
        self.queue.push(proposal);
    }

    /// Queues what nobody waits for and only a leader may want.
    pub(crate) fn add_own(&mut self, proposal: Proposal) {
        self.own.push(proposal);
    }

    /// Forgets what only a leader may want.
    pub(crate) fn drop_own(&mut self) {
        self.own.clear();
    }

    /// Takes what is to be handed over.
    pub(crate) fn take_queue(&mut self) -> Vec<Proposal> {
        let mut queue = mem::take(&mut self.queue);
        queue.append(&mut self.own);
        queue
    }

    /// Says whether anybody here waits for a proposal.
    pub(crate) fn waits_for(&self, id: u64) -> bool {
        self.waiters.contains_key(&id)
    }

    /// Says whether a proposal can be handed over once more.
    pub(crate) fn can_be_sent_again(&self, id: u64) -> bool {
        self.data_of(id).is_some()
    }

    fn data_of(&self, id: u64) -> Option<Bytes> {
        self.waiters.get(&id)?.data.clone()
    }

    /// Puts back what could not be handed over, if anybody still waits for it.
    pub(crate) fn put_back(&mut self, ids: &[u64]) {
        for id in ids {
            if let Some(data) = self.data_of(*id) {
                self.queue.push(Proposal { id: *id, data });
            }
        }
    }

    /// Queues again everything that still waits and was asked for before a time, in
    /// the order it was asked for, in front of what is queued already. Deadlines stand
    /// for the time of asking.
    pub(crate) fn queue_again(&mut self, deadline_before: Duration) {
        let mut queued = mem::take(&mut self.queue);
        let old = |(deadline, _): &&(Duration, u64)| *deadline < deadline_before;
        let ids = self.deadlines.iter().take_while(old).map(|(_, id)| *id);
        let ids: Vec<u64> = ids.collect();
        self.put_back(&ids);
        let again: HashSet<u64> = self.queue.iter().map(|proposal| proposal.id).collect();
        queued.retain(|proposal| !again.contains(&proposal.id));
        self.queue.append(&mut queued);
    }

    /// Answers whoever waits for a proposal.
    pub(crate) fn answer(&mut self, id: u64, result: Result<Applied, RpcError>) {
        if let Some(waiter) = self.waiters.remove(&id) {
            self.bytes -= waiter.data.as_ref().map_or(0, Bytes::len);
            // The caller may be gone; then nobody needs the answer.
            let _gone = waiter.answer.send(result);
        }
    }

    /// Forgets the deadlines of those who have their answer; answers come in order.
    pub(crate) fn forget_answered(&mut self) {
        while let Some((_, id)) = self.deadlines.front()
            && !self.waiters.contains_key(id)
        {
            self.deadlines.pop_front();
        }
    }

    /// Takes a read in: its number, and what fires once it may be answered.
    pub(crate) fn add_read(&mut self) -> (ReadId, oneshot::Receiver<Result<(), RpcError>>) {
        let (answer, receiver) = oneshot::channel();
        self.last_read += 1;
        let id = ReadId(self.last_read);
        self.readers.insert(id, answer);
        (id, receiver)
    }

    /// Answers whoever waits for a read. The member tells when one waited too long.
    pub(crate) fn answer_read(&mut self, id: ReadId, result: Result<(), RpcError>) {
        if let Some(reader) = self.readers.remove(&id) {
            let _gone = reader.send(result);
        }
    }

    /// Tells whoever has waited long enough that the time is up.
    pub(crate) fn expire(&mut self, now: Duration) {
        let mut expired = Vec::new();
        while let Some((deadline, id)) = self.deadlines.front()
            && *deadline <= now
        {
            let id = *id;
            self.deadlines.pop_front();
            if self.waits_for(id) {
                expired.push(id);
                self.answer(id, Err(mvcc::Error::Timeout.into()));
            }
        }
        if !expired.is_empty() && !self.queue.is_empty() {
            // Nobody waits for it, so nobody should find it done later on.
            expired.sort_unstable();
            self.queue
                .retain(|queued| expired.binary_search(&queued.id).is_err());
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for (_, waiter) in self.waiters.drain() {
            let _gone = waiter.answer.send(Err(mvcc::Error::Stopped.into()));
        }
        for (_, reader) in self.readers.drain() {
            let _gone = reader.send(Err(mvcc::Error::Stopped.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(pending: &mut Pending) -> Vec<u64> {
        let queue = pending.take_queue();
        queue.into_iter().map(|proposal| proposal.id).collect()
    }

    #[test]
    fn what_is_old_is_queued_again_and_what_is_new_stays_queued() {
        let at = Duration::from_secs;
        let mut pending = Pending::default();
        let _first = pending.add(1, Bytes::from_static(b"1"), at(1));
        let _second = pending.add(2, Bytes::from_static(b"2"), at(2));
        assert_eq!(ids(&mut pending), [1, 2]);
        let _third = pending.add(3, Bytes::from_static(b"3"), at(3));
        pending.add_unasked(Proposal {
            id: 9,
            data: Bytes::from_static(b"9"),
        });
        pending.queue_again(at(2));
        assert_eq!(ids(&mut pending), [1, 3, 9], "each once, none lost");
        pending.answer(1, Err(mvcc::Error::Timeout.into()));
        pending.queue_again(Duration::MAX);
        pending.queue_again(Duration::MAX);
        assert_eq!(ids(&mut pending), [2, 3]);
    }
}
