//! Who may have made a revision.

use std::{
    collections::BTreeMap,
    hash::{BuildHasherDefault, DefaultHasher},
};

use indexmap::IndexMap;

use crate::{
    history::{
        Blob, Body, Delete, Event, History, LeaseId, Op, Outcome, Put, Range, Refusal, Request,
        Txn, TxnOp,
    },
    model::{lock_key, within},
    verdict::names,
    witness::place::is_stale,
};

/// Are those who may have made a revision.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) list: Vec<usize>,
    /// Whether there are more.
    pub(super) cut: bool,
}

/// An ordered map by hash: the order is that of insertion, the hash without a
/// random key, and so the same history gives the same verdict.
type Map<K, V> = IndexMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// How many candidates for one revision are tried. Only writes that look alike (an
/// unknown delete of one key, say) compete; values that are used once do not. Past it
/// a revision that nobody explains makes the verdict unknown.
const CANDIDATES_MAX: usize = 4096;

/// Knows who may have made which revision.
#[derive(Default)]
pub(super) struct Claims {
    /// For each revision from 0 on, who was acknowledged at it, plus one.
    owners: Vec<u32>,
    /// Who puts this value under this key, and is not known to have done so.
    puts: Map<(Blob, Blob), Vec<u32>>,
    /// Who deletes this key.
    deletes: Map<Blob, Vec<u32>>,
    /// Who deletes a range of keys.
    sweeps: Vec<u32>,
    /// Who ends a lease.
    revokes: BTreeMap<LeaseId, Vec<u32>>,
    /// Leases that were asked for without an answer.
    grants: BTreeMap<LeaseId, i64>,
}

impl Claims {
    /// Collects everybody whose write may have happened, and at an unknown revision;
    /// who asked first stands first.
    pub(super) fn of(history: &History) -> Self {
        let mut claims = Self::default();
        let mut order: Vec<_> = (0u32..).take(history.ops.len()).collect();
        order.sort_by_key(|at| history.ops[*at as usize].call);
        for at in order {
            let op = &history.ops[at as usize];
            if matches!(op.outcome, Outcome::Fail(_)) {
                continue;
            }
            match &op.request {
                Request::Revoke { id } => claims.revokes.entry(*id).or_default().push(at),
                Request::Grant { id, ttl } if op.unknown() => {
                    claims.grants.insert(*id, *ttl);
                }
                Request::Lock { name, lease } => {
                    claims.put(&lock_key(name, *lease), &Blob::EMPTY, at);
                }
                Request::Unlock { key } => claims.delete(key, &Blob::EMPTY, at),
                Request::Put(put) if op.unknown() => claims.put(&put.key, &put.value, at),
                Request::Delete(delete) if op.unknown() => {
                    claims.delete(&delete.key, &delete.end, at);
                }
                Request::Txn(txn) if op.unknown() => claims.txn(txn, at),
                _ => {}
            }
        }
        claims
    }

    fn put(&mut self, key: &Blob, value: &Blob, at: u32) {
        let list = self.puts.entry((key.clone(), value.clone())).or_default();
        if list.last() != Some(&at) {
            list.push(at);
        }
    }

    fn delete(&mut self, key: &Blob, end: &Blob, at: u32) {
        let list = if end.is_empty() {
            self.deletes.entry(key.clone()).or_default()
        } else {
            &mut self.sweeps
        };
        if list.last() != Some(&at) {
            list.push(at);
        }
    }

    fn txn(&mut self, txn: &Txn, at: u32) {
        for op in txn.success.iter().chain(&txn.failure) {
            match op {
                TxnOp::Put(put) => self.put(&put.key, &put.value, at),
                TxnOp::Delete(delete) => self.delete(&delete.key, &delete.end, at),
                TxnOp::Txn(nested) => self.txn(nested, at),
                TxnOp::Range(_) => {}
            }
        }
    }

    /// Takes the revisions that are owned.
    pub(super) fn own(&mut self, owners: Vec<(i64, usize)>, ops: &[Op]) {
        debug_assert!(u32::try_from(ops.len()).is_ok(), "operations fit in u32");
        for (revision, at) in owners {
            if !(0..=crate::log::REVISION_MAX).contains(&revision) {
                continue;
            }
            let place = usize::try_from(revision).unwrap_or_default();
            if self.owners.len() <= place {
                self.owners.resize(place + 1, 0);
            }
            self.owners[place] = u32::try_from(at + 1).unwrap_or_default();
        }
    }

    /// Returns who was acknowledged at a revision.
    pub(super) fn owner(&self, revision: i64) -> Option<usize> {
        let owner = *self.owners.get(usize::try_from(revision).ok()?)?;
        usize::try_from(owner).ok()?.checked_sub(1)
    }

    /// Lists who may have made these changes, of those who made none so far; who
    /// asked first stands first. `ended` is the lease all of whose keys went; who is
    /// not `in_time` asked after the revision was there.
    pub(super) fn candidates(
        &self,
        events: &[Event],
        ended: Option<LeaseId>,
        made: &[i64],
        in_time: impl Fn(usize) -> bool,
    ) -> Candidates {
        let mut found = Candidates::default();
        let mut add = |list: Option<&Vec<u32>>| {
            let free = list.into_iter().flatten().map(|at| *at as usize);
            for at in free.filter(|at| made[*at] == 0) {
                if found.list.len() == CANDIDATES_MAX {
                    found.cut = true;
                    return;
                }
                found.list.push(at);
                // Who asked later still was too late too; one is enough to say so.
                if !in_time(at) {
                    return;
                }
            }
        };
        match events.iter().find(|event| !event.delete) {
            Some(put) => {
                // A put that keeps the value there is asked for without one.
                let (key, value) = (&put.kv.key, &put.kv.value);
                add(self.puts.get(&(key.clone(), value.clone())));
                if !value.is_empty() {
                    add(self.puts.get(&(key.clone(), Blob::EMPTY)));
                }
            }
            None => {
                add(ended.and_then(|id| self.revokes.get(&id)));
                add(events.first().and_then(|e| self.deletes.get(&e.kv.key)));
                add(Some(&self.sweeps));
            }
        }
        found
    }

    /// Returns the time of a lease that was asked for without an answer; it was
    /// granted once at most.
    pub(super) fn unheard_grant(&mut self, id: LeaseId) -> Option<i64> {
        self.grants.remove(&id)
    }
}

/// Finds who wrote the like: if it is in the log already, or was refused, that
/// is the anomaly's name.
pub(super) fn suspect(
    events: &[Event],
    history: &History,
    made: &[i64],
) -> Option<(&'static str, usize)> {
    let event = events.first()?;
    let like = |op: &Op| writes(&op.request, event);
    let mut refused = None;
    for (at, op) in history.ops.iter().enumerate() {
        if made[at] != 0 && !event.delete && like(op) {
            return Some((names::DOUBLE_APPLY, at));
        }
        if matches!(op.outcome, Outcome::Fail(_)) && like(op) {
            refused = Some((names::ABORTED_WRITE, at));
        }
    }
    refused
}

fn writes(request: &Request, event: &Event) -> bool {
    let put = |put: &Put| !event.delete && put.key == event.kv.key && put.value == event.kv.value;
    let delete = |delete: &Delete| event.delete && within(&event.kv.key, &delete.key, &delete.end);
    match request {
        Request::Put(asked) => put(asked),
        Request::Delete(asked) => delete(asked),
        Request::Txn(txn) => txn.success.iter().chain(&txn.failure).any(|op| match op {
            TxnOp::Put(asked) => put(asked),
            TxnOp::Delete(asked) => delete(asked),
            TxnOp::Txn(nested) => writes(&Request::Txn(nested.clone()), event),
            TxnOp::Range(_) => false,
        }),
        _ => false,
    }
}

/// Knows what was compacted when.
pub(super) struct Compactions {
    /// Revision, and when it was asked for; in the order of revisions.
    asked: Vec<(i64, u64)>,
    /// Until when it was acknowledged, and the greatest revision so far.
    acknowledged: Vec<(u64, i64)>,
    /// Until when which revision was acknowledged, for anything.
    reached: Vec<(u64, i64)>,
}

impl Compactions {
    /// Collects what was compacted.
    pub(super) fn of(history: &History) -> Self {
        let mut asked = Vec::new();
        let mut acknowledged = Vec::new();
        let mut reached = Vec::new();
        for op in &history.ops {
            if let Request::Compact { revision } = op.request
                && !matches!(op.outcome, Outcome::Fail(_))
            {
                asked.push((revision, op.call));
                if op.reply().is_some() {
                    acknowledged.push((op.ret, revision));
                }
            }
            if let Some(reply) = op.reply() {
                reached.push((op.ret, reply.revision));
            }
        }
        asked.sort_unstable();
        Self {
            asked,
            acknowledged: rising(acknowledged),
            reached: rising(reached),
        }
    }

    /// Says why a refusal was wrong, if it was.
    pub(super) fn refuses(&self, op: &Op, refusal: &Refusal) -> Option<String> {
        let revision = match &op.request {
            Request::Range(range) => range.revision,
            Request::Compact { revision } => *revision,
            // Which of several revisions a transaction was refused for is not told.
            _ => return None,
        };
        match refusal {
            Refusal::Compacted => {
                let compact = matches!(op.request, Request::Compact { .. });
                // A compaction is refused at the compacted revision too.
                let from = if compact { revision } else { revision + 1 };
                let first = self.asked.partition_point(|(asked, _)| *asked < from);
                let any = self.asked[first..].iter().any(|(_, call)| *call <= op.ret);
                // etcd's own start: revision 0 counts as compacted.
                (!any && revision > 0).then(|| "nothing compacted it".to_owned())
            }
            Refusal::FutureRevision if !is_stale(&op.request) => {
                let reached = before(&self.reached, op.call);
                (revision <= reached).then(|| format!("revision {reached} was acknowledged before"))
            }
            Refusal::FutureRevision => None,
            _ => None,
        }
    }

    /// Says why an answer was forbidden, if it was.
    pub(super) fn forbids(&self, op: &Op) -> Option<String> {
        let reply = op.reply()?;
        match &op.request {
            Request::Range(Range { revision, .. }) if *revision > 0 => {
                if *revision > reply.revision {
                    let at = reply.revision;
                    return Some(format!("the store was at revision {at}"));
                }
                let compacted = before(&self.acknowledged, op.call);
                // A member that lags may not have heard.
                let heard = !is_stale(&op.request);
                (heard && *revision < compacted)
                    .then(|| format!("revision {compacted} was compacted before"))
            }
            Request::Compact { revision } if matches!(reply.body, Body::Done) => {
                (*revision > reply.revision).then(|| {
                    let at = reply.revision;
                    format!("the store was at revision {at}")
                })
            }
            _ => None,
        }
    }
}

/// Makes a list of moments one of the greatest so far.
fn rising(mut list: Vec<(u64, i64)>) -> Vec<(u64, i64)> {
    list.sort_unstable();
    let mut greatest = 0;
    for (_, revision) in &mut list {
        greatest = greatest.max(*revision);
        *revision = greatest;
    }
    list
}

/// Returns the greatest that was reached before a moment.
fn before(list: &[(u64, i64)], moment: u64) -> i64 {
    let until = list.partition_point(|(at, _)| *at < moment);
    until.checked_sub(1).map_or(0, |last| list[last].1)
}
