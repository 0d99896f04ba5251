//! What clients ask, and how it is asked of a member.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
};

use bytes::Bytes;
use kvserver::{Handle, RpcError, sim};
use mvcc::{
    CompactReply, CompactRequest, Compare, CompareResult, CompareTarget, DeleteRangeRequest,
    DeleteReply, LeaseGrantReply, LeaseGrantRequest, LeaseId, LeaseReply, LeaseRevokeRequest,
    MemberCommand, PutReply, PutRequest, RangeReply, RangeRequest, RequestOp, TxnReply, TxnRequest,
};

use crate::{history::TTL_MAX, plan::Time, rng::Rng};

/// A request.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Writes a key; every value is written once.
    Put(PutRequest),
    /// Deletes.
    Delete(DeleteRangeRequest),
    /// Reads.
    Range(RangeRequest),
    /// Runs a transaction.
    Txn(TxnRequest),
    /// Forgets history.
    Compact(CompactRequest),
    /// Grants a lease.
    Grant(LeaseGrantRequest),
    /// Renews a lease.
    Renew(LeaseId),
    /// Revokes a lease.
    Revoke(LeaseRevokeRequest),
    /// Changes the members.
    Members(MemberCommand),
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// To [`Ask::Put`].
    Put(PutReply),
    /// To [`Ask::Delete`].
    Delete(DeleteReply),
    /// To [`Ask::Range`].
    Range(RangeReply),
    /// To [`Ask::Txn`].
    Txn(TxnReply),
    /// To [`Ask::Compact`].
    Compact(CompactReply),
    /// To [`Ask::Grant`].
    Grant(LeaseGrantReply),
    /// To [`Ask::Renew`]: seconds, zero if there is no such lease.
    Renewed(i64),
    /// To [`Ask::Revoke`].
    Revoked(LeaseReply),
    /// To [`Ask::Members`].
    Members,
}

/// How a request ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// With an answer.
    Ok(Answer),
    /// It did not happen.
    Fail(RpcError),
    /// Nobody knows.
    Info,
}

/// Sorts an error: after some nobody knows whether it happened (Jepsen calls them
/// indefinite). Those are what gRPC says of time, links and the server's own state.
pub(crate) fn sort(ask: &Ask, error: RpcError) -> End {
    const CANCELLED: u32 = 1;
    const UNKNOWN: u32 = 2;
    const DEADLINE_EXCEEDED: u32 = 4;
    const INTERNAL: u32 = 13;
    const UNAVAILABLE: u32 = 14;
    let open = [CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE];
    // What only reads did nothing, whatever became of it.
    match open.contains(&error.code) && !ask.only_reads() {
        true => End::Info,
        false => End::Fail(error),
    }
}

impl Ask {
    /// Says whether it changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Self::Range(_) | Self::Renew(_) => true,
            Self::Txn(txn) => txn.is_readonly(),
            _ => false,
        }
    }

    /// Says whether its answer is of the present, whoever is asked.
    pub(crate) fn is_linearizable(&self) -> bool {
        match self {
            Self::Range(range) => !range.serializable,
            Self::Txn(txn) => !txn.is_readonly() || !txn.is_serializable(),
            _ => true,
        }
    }
}

/// Asks a member.
pub(crate) async fn ask(handle: Handle, ask: Ask) -> Result<Answer, RpcError> {
    Ok(match ask {
        Ask::Put(put) => Answer::Put(handle.put(put).await?),
        Ask::Delete(delete) => Answer::Delete(handle.delete_range(delete).await?),
        Ask::Range(range) => Answer::Range(handle.range(range).await?),
        Ask::Txn(txn) => Answer::Txn(handle.txn(txn).await?),
        Ask::Compact(compact) => Answer::Compact(handle.compact(compact).await?),
        Ask::Grant(grant) => Answer::Grant(handle.lease_grant(grant).await?),
        Ask::Renew(id) => Answer::Renewed(sim::renew(handle, id).await?),
        Ask::Revoke(revoke) => Answer::Revoked(handle.lease_revoke(revoke).await?),
        Ask::Members(command) => {
            sim::change_members(handle, command).await?;
            Answer::Members
        }
    })
}

/// A request that a member works on.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<Answer, RpcError>>>>;

/// Remembers that a future wants to be polled.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    /// Says whether it does, and forgets it.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request of a client.
#[derive(Debug)]
pub(crate) struct Op {
    /// The client.
    pub(crate) client: usize,
    /// What is asked.
    pub(crate) ask: Ask,
    /// The machine that is asked.
    pub(crate) host: usize,
    /// When.
    pub(crate) invoked: Time,
    /// The newest revision anybody had seen by then.
    pub(crate) floor: i64,
    /// When and how it ended.
    pub(crate) ended: Option<(Time, End)>,
}

/// What the keys of registers begin with; no range of the other keys covers them.
const REGISTER: &str = "r";

/// Registers in use at a time, and after how many transactions one of them is replaced
/// by a new one.
const REGISTERS: u64 = 3;
const TXNS_PER_REGISTER: u64 = 40;

/// Returns the number of a register.
pub(crate) fn register_of(key: &[u8]) -> Option<u64> {
    let key = std::str::from_utf8(key).ok()?;
    key.strip_prefix(REGISTER)?.parse().ok()
}

/// Returns the number of a value that a client wrote.
pub(crate) fn value_number(value: &[u8]) -> Option<u64> {
    let value = std::str::from_utf8(value).ok()?;
    value.strip_prefix('v')?.trim_end_matches('.').parse().ok()
}

/// Draws requests.
#[derive(Debug)]
pub(crate) struct Generator {
    rng: Rng,
    keys: u64,
    values: u64,
    leases: i64,
    /// Transactions on registers so far.
    registers: u64,
    /// Leases that were granted and may be used.
    pub(crate) live_leases: Vec<LeaseId>,
    /// Whether the plan compacts.
    pub(crate) compacts: bool,
}

impl Generator {
    /// Makes one.
    pub(crate) fn new(seed: u64, keys: u64, compacts: bool) -> Self {
        Self {
            rng: Rng::new(seed, 3),
            keys,
            values: 0,
            leases: 0,
            registers: 0,
            live_leases: Vec::new(),
            compacts,
        }
    }

    fn key(&mut self) -> Bytes {
        let key = self.rng.below(self.keys);
        format!("k{key:02}").into()
    }

    fn value(&mut self) -> Bytes {
        self.values += 1;
        // Some are long, so that segments and blocks fill at odd places.
        let pad = match self.rng.chance(50_000) {
            true => self.rng.below(3_000) as usize,
            false => 0,
        };
        format!("v{}{}", self.values, ".".repeat(pad)).into()
    }

    /// Draws a range: one key, some, or all.
    pub(crate) fn range_of_keys(&mut self) -> (Bytes, Bytes) {
        match self.rng.below(4) {
            0 => (Bytes::from_static(b"k"), Bytes::from_static(b"l")),
            1 => {
                let (from, to) = (self.rng.below(self.keys), self.rng.between(1, 4));
                let end = format!("k{:02}", from + to);
                (format!("k{from:02}").into(), end.into())
            }
            _ => (self.key(), Bytes::new()),
        }
    }

    /// Draws a lease for a key, or none: every other key has none ever, so that the
    /// search without revisions has something to look at.
    fn lease(&mut self, key: &[u8]) -> LeaseId {
        let leased = key.last().is_some_and(|last| last.is_multiple_of(2));
        match leased && self.rng.chance(400_000) {
            true => self.rng.pick(&self.live_leases).copied().unwrap_or(0),
            false => 0,
        }
    }

    fn put(&mut self) -> PutRequest {
        let key = self.key();
        PutRequest {
            lease: self.lease(&key),
            key,
            value: self.value(),
            prev_kv: self.rng.coin(),
            ..PutRequest::default()
        }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let (key, range_end) = match self.rng.chance(200_000) {
            true => self.range_of_keys(),
            false => (self.key(), Bytes::new()),
        };
        DeleteRangeRequest {
            key,
            range_end,
            prev_kv: self.rng.coin(),
        }
    }

    fn range(&mut self, known: i64) -> RangeRequest {
        let (key, range_end) = self.range_of_keys();
        let revision = match self.rng.chance(150_000) {
            true => (known - 30 + self.rng.below(32) as i64).max(1),
            false => 0,
        };
        RangeRequest {
            key,
            range_end,
            revision,
            limit: if self.rng.chance(100_000) { 2 } else { 0 },
            serializable: self.rng.chance(200_000),
            ..RangeRequest::default()
        }
    }

    fn txn(&mut self, known: i64) -> TxnRequest {
        let key = self.key();
        let target = match self.rng.below(3) {
            0 => CompareTarget::ModRevision((known - self.rng.below(20) as i64).max(0)),
            1 => CompareTarget::Version(self.rng.below(4) as i64),
            _ => CompareTarget::CreateRevision(0),
        };
        let result = self.rng.one(&[
            CompareResult::Equal,
            CompareResult::Greater,
            CompareResult::Less,
            CompareResult::NotEqual,
        ]);
        let compare = Compare {
            key: key.clone(),
            range_end: Bytes::new(),
            result,
            target,
        };
        let read = |key: &Bytes| {
            RequestOp::Range(RangeRequest {
                key: key.clone(),
                ..RangeRequest::default()
            })
        };
        let mut put = PutRequest {
            key: key.clone(),
            ..self.put()
        };
        put.lease = 0;
        let mut success = vec![read(&key), RequestOp::Put(put)];
        let other = self.key();
        if other != key {
            success.push(match self.rng.coin() {
                true => RequestOp::DeleteRange(DeleteRangeRequest {
                    key: other.clone(),
                    ..DeleteRangeRequest::default()
                }),
                false => RequestOp::Put(PutRequest {
                    key: other.clone(),
                    value: self.value(),
                    ..PutRequest::default()
                }),
            });
        }
        success.push(read(&other));
        TxnRequest {
            compare: vec![compare],
            success,
            failure: vec![read(&key), read(&other)],
        }
    }

    /// Draws a transaction on registers, without a condition. What it writes it reads
    /// before, so that Elle learns which value came after which.
    fn registers(&mut self) -> TxnRequest {
        let turn = self.registers / TXNS_PER_REGISTER;
        self.registers += 1;
        let mut success = Vec::new();
        for register in turn..turn + REGISTERS {
            let (reads, writes) = self.rng.one(&[(false, false), (true, false), (true, true)]);
            let key = Bytes::from(format!("{REGISTER}{register}"));
            if reads {
                success.push(RequestOp::Range(RangeRequest {
                    key: key.clone(),
                    ..RangeRequest::default()
                }));
            }
            if writes {
                success.push(RequestOp::Put(PutRequest {
                    key,
                    value: self.value(),
                    ..PutRequest::default()
                }));
            }
        }
        TxnRequest {
            success,
            ..TxnRequest::default()
        }
    }

    /// Draws a request; `known` is the newest revision anybody has seen.
    pub(crate) fn draw(&mut self, known: i64) -> Ask {
        match self.rng.below(100) {
            0..35 => Ask::Put(self.put()),
            35..45 => Ask::Delete(self.delete()),
            45..75 => Ask::Range(self.range(known)),
            75..83 => Ask::Txn(self.txn(known)),
            83..88 => Ask::Txn(self.registers()),
            88..91 => {
                self.leases += 1;
                let ttl = self.rng.between(1, TTL_MAX) as i64;
                let id = 1_000 + self.leases;
                Ask::Grant(LeaseGrantRequest { id, ttl })
            }
            91..96 => match self.rng.pick(&self.live_leases) {
                Some(id) => Ask::Renew(*id),
                None => Ask::Put(self.put()),
            },
            96..97 => match self.rng.pick(&self.live_leases) {
                Some(id) => Ask::Revoke(LeaseRevokeRequest { id: *id }),
                None => Ask::Delete(self.delete()),
            },
            _ if self.compacts => {
                let back = self.rng.one(&[-2, 0, 1, 3, 10, 30]);
                let revision = (known - back).max(1);
                let physical = self.rng.chance(200_000);
                Ask::Compact(CompactRequest { revision, physical })
            }
            _ => Ask::Put(self.put()),
        }
    }
}
