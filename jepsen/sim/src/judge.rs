//! Holds every answer against the one history: the revision witness (each answer
//! says by its revision where it stands in the log, and must be what the log makes
//! of it there) and real time (it may not stand before what was known when it was
//! asked for).

use std::collections::BTreeMap;

use bytes::Bytes;
use kvserver::RpcError;
use mvcc::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, EventKind, KeyValue, PutRequest,
    RangeReply, RangeRequest, RequestOp, ResponseOp, TxnReply, TxnRequest,
};

use crate::{
    ops::{Answer, Ask, Op},
    truth::{Truth, covers},
};

/// The newest revision an answer shows.
pub(crate) fn revision_of(answer: &Answer) -> i64 {
    match answer {
        Answer::Put(reply) => reply.revision,
        Answer::Delete(reply) => reply.revision,
        Answer::Range(reply) => reply.revision,
        Answer::Txn(reply) => reply.revision,
        Answer::Compact(reply) => reply.revision,
        Answer::Grant(reply) => reply.revision,
        Answer::Revoked(reply) => reply.revision,
        Answer::Renewed(_) | Answer::Members => 0,
    }
}

/// Judges an answer; says what is wrong with it.
pub(crate) fn judge(truth: &Truth, op: &Op, answer: &Answer) -> Result<(), String> {
    let revision = revision_of(answer);
    if revision > truth.revision() {
        return Err(format!(
            "it is of revision {revision}, and the newest is {}",
            truth.revision()
        ));
    }
    let fresh = op.ask.is_linearizable() && revision != 0;
    if fresh && revision < op.floor {
        return Err(format!(
            "stale: it is of revision {revision}, but revision {} was known before it was asked \
             for",
            op.floor
        ));
    }
    match (&op.ask, answer) {
        (Ask::Put(put), Answer::Put(reply)) => {
            let State { mut state, .. } = State::before(truth, revision);
            check_written(truth, revision, op.floor, &put.key, Some(&put.value))?;
            let before = state.get(&put.key).cloned();
            if put.prev_kv {
                equal("previous pair", &before, &reply.prev_kv)?;
            }
            state.put(put);
            Ok(())
        }
        (Ask::Delete(delete), Answer::Delete(reply)) => {
            if reply.deleted > 0 {
                check_written(truth, revision, op.floor, &delete.key, None)?;
            }
            let at = revision - i64::from(reply.deleted > 0);
            let gone = truth.range(&delete.key, &delete.range_end, at);
            equal(
                "number of deleted keys",
                &(gone.len() as i64),
                &reply.deleted,
            )?;
            if delete.prev_kv {
                let gone: Vec<_> = gone.into_iter().cloned().collect();
                equal("deleted pairs", &gone, &reply.prev_kvs)?;
            }
            Ok(())
        }
        (Ask::Range(range), Answer::Range(reply)) => {
            let at = match range.revision {
                0 => revision,
                asked => asked,
            };
            let expected = read(&State::at(truth, at), range, revision);
            equal("range", &expected, reply)
        }
        (Ask::Txn(txn), Answer::Txn(reply)) => judge_txn(truth, op, txn, reply),
        (Ask::Compact(compact), Answer::Compact(_)) => match compact.revision > truth.compacted() {
            true => Err("a compaction was acknowledged and is not in the log".to_owned()),
            false => Ok(()),
        },
        _ => Ok(()),
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, got: &T) -> Result<(), String> {
    match expected == got {
        true => Ok(()),
        false => Err(format!("{what}: {got:?}, the log says {expected:?}")),
    }
}

/// Checks that an acknowledged write is what its revision says.
fn check_written(
    truth: &Truth,
    revision: i64,
    floor: i64,
    key: &Bytes,
    value: Option<&Bytes>,
) -> Result<(), String> {
    if revision <= floor {
        return Err(format!(
            "it was written at revision {revision}, but revision {floor} was known before it was \
             asked for"
        ));
    }
    let events = truth.at(revision).map_or(&[][..], |known| &known.events);
    let is = events.iter().any(|event| match (value, event.kind) {
        (Some(value), EventKind::Put) => event.kv.key == key && event.kv.value == *value,
        (None, EventKind::Delete) => true,
        _ => false,
    });
    match is {
        true => Ok(()),
        false => Err(format!(
            "lost: it was acknowledged at revision {revision}, which is another change"
        )),
    }
}

/// Judges an error that says something about the state.
pub(crate) fn judge_error(truth: &Truth, op: &Op, error: &RpcError) -> Result<(), String> {
    let says = |is: mvcc::Error| error.message == is.to_string();
    if says(mvcc::Error::Corrupt) {
        return Err("it says that the store is corrupt".to_owned());
    }
    if says(mvcc::Error::Compacted)
        && let Ask::Range(range) = &op.ask
        && range.revision >= truth.compacted()
    {
        return Err(format!(
            "revision {} is said to be compacted, compacted is only {}",
            range.revision,
            truth.compacted()
        ));
    }
    if says(mvcc::Error::FutureRevision)
        && op.ask.is_linearizable()
        && let Ask::Range(range) = &op.ask
        && range.revision <= op.floor
    {
        return Err(format!(
            "stale: revision {} is said to be in the future, {} was known before",
            range.revision, op.floor
        ));
    }
    Ok(())
}

/// The state as of a revision, with what a transaction has done so far.
struct State<'a> {
    truth: &'a Truth,
    revision: i64,
    state: Overlay<'a>,
}

struct Overlay<'a> {
    truth: &'a Truth,
    at: i64,
    /// The revision that is being written.
    writes: i64,
    changed: BTreeMap<Bytes, Option<KeyValue>>,
}

impl<'a> State<'a> {
    fn at(truth: &'a Truth, revision: i64) -> Self {
        let state = Overlay {
            truth,
            at: revision,
            writes: revision,
            changed: BTreeMap::new(),
        };
        Self {
            truth,
            revision,
            state,
        }
    }

    /// The state before a revision, to be written at it.
    fn before(truth: &'a Truth, revision: i64) -> Self {
        let mut before = Self::at(truth, revision - 1);
        before.state.writes = revision;
        before
    }

    fn range(&self, key: &[u8], end: &[u8]) -> Vec<KeyValue> {
        let mut found: BTreeMap<Bytes, KeyValue> = BTreeMap::new();
        for pair in self.truth.range(key, end, self.revision) {
            found.insert(pair.key.clone(), pair.clone());
        }
        for (changed, pair) in &self.state.changed {
            if covers(key, end, changed) {
                match pair {
                    Some(pair) => found.insert(changed.clone(), pair.clone()),
                    None => found.remove(changed),
                };
            }
        }
        found.into_values().collect()
    }
}

impl Overlay<'_> {
    fn get(&self, key: &Bytes) -> Option<&KeyValue> {
        match self.changed.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.truth.get(key, self.at),
        }
    }

    fn put(&mut self, put: &PutRequest) {
        let before = self.get(&put.key);
        let pair = KeyValue {
            key: put.key.clone(),
            create_revision: before.map_or(self.writes, |before| before.create_revision),
            mod_revision: self.writes,
            version: before.map_or(0, |before| before.version) + 1,
            value: put.value.clone(),
            lease: put.lease,
        };
        self.changed.insert(put.key.clone(), Some(pair));
    }
}

/// Answers a range as the state would.
fn read(state: &State<'_>, range: &RangeRequest, revision: i64) -> RangeReply {
    let mut kvs = state.range(&range.key, &range.range_end);
    let count = kvs.len() as i64;
    let limit = usize::try_from(range.limit).unwrap_or(0);
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    RangeReply {
        revision,
        kvs,
        count,
        more,
    }
}

fn holds(state: &State<'_>, compare: &Compare) -> bool {
    let pair = state.state.get(&compare.key);
    let (stored, given) = match &compare.target {
        CompareTarget::Version(given) => (pair.map_or(0, |pair| pair.version), *given),
        CompareTarget::CreateRevision(given) => {
            (pair.map_or(0, |pair| pair.create_revision), *given)
        }
        CompareTarget::ModRevision(given) => (pair.map_or(0, |pair| pair.mod_revision), *given),
        CompareTarget::Lease(given) => (pair.map_or(0, |pair| pair.lease), *given),
        CompareTarget::Value(_) => return true,
    };
    match compare.result {
        CompareResult::Equal => stored == given,
        CompareResult::Greater => stored > given,
        CompareResult::Less => stored < given,
        CompareResult::NotEqual => stored != given,
    }
}

fn judge_txn(truth: &Truth, op: &Op, txn: &TxnRequest, reply: &TxnReply) -> Result<(), String> {
    let revision = reply.revision;
    let branch = match reply.succeeded {
        true => &txn.success,
        false => &txn.failure,
    };
    // What writes always puts something, by which it is known.
    let put = branch.iter().find_map(|op| match op {
        RequestOp::Put(put) => Some(put),
        _ => None,
    });
    let mut state = match put {
        Some(put) => {
            check_written(truth, revision, op.floor, &put.key, Some(&put.value))?;
            State::before(truth, revision)
        }
        None => State::at(truth, revision),
    };
    let succeeds = txn.compare.iter().all(|compare| holds(&state, compare));
    equal("branch taken", &succeeds, &reply.succeeded)?;
    equal("number of answers", &branch.len(), &reply.responses.len())?;
    for (asked, answer) in branch.iter().zip(&reply.responses) {
        match (asked, answer) {
            (RequestOp::Range(range), ResponseOp::Range(reply)) => {
                let expected = read(&state, range, reply.revision);
                equal("range in a transaction", &expected, reply)?;
            }
            (RequestOp::Put(put), ResponseOp::Put(reply)) => {
                if put.prev_kv {
                    let before = state.state.get(&put.key).cloned();
                    equal("previous pair in a transaction", &before, &reply.prev_kv)?;
                }
                state.state.put(put);
            }
            (RequestOp::DeleteRange(delete), ResponseOp::DeleteRange(reply)) => {
                let gone = delete_in(&mut state, delete);
                equal("number deleted in a transaction", &gone, &reply.deleted)?;
            }
            _ => return Err(format!("{answer:?} answers {asked:?}")),
        }
    }
    Ok(())
}

fn delete_in(state: &mut State<'_>, delete: &DeleteRangeRequest) -> i64 {
    let gone = state.range(&delete.key, &delete.range_end);
    for pair in &gone {
        state.state.changed.insert(pair.key.clone(), None);
    }
    gone.len() as i64
}
