//! The one binary form of a proposal, as it lies in the log and travels
//! between members.
//!
//! ```text
//! version(1) id(8, big endian) [since] [identity] command
//! since    = index                     in versions 3 and 4 only
//! identity = user revision             in versions 2 and 4 only
//! command  = tag fields...            numbers are varints, signed ones zigzag
//! bytes    = length bytes
//! list     = count items...
//! ```
//!
//! Logs outlive builds: a tag or a field is never renumbered, a new form gets a
//! new version byte. Decoding is total: any input gives a proposal or an error,
//! in memory bounded by the input, with nesting bounded by [`TXN_DEPTH_MAX`].

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error as ThisError;

use crate::auth::{Identity, auth_command, name, put_auth_command};
use crate::command::{
    Alarm, AlarmKind, Command, CompactRequest, Compare, CompareResult, CompareTarget,
    DeleteRangeRequest, LeaseCheckpointRequest, LeaseGrantRequest, LeaseRevokeRequest, Proposal,
    PutRequest, RangeRequest, RequestOp, SortOrder, SortTarget, TxnRequest,
};
use crate::membership::{member_command, put_member_command};
use crate::wire::{Reader, WireError, put_bytes, put_i64, put_u64};

/// The deepest nesting of transactions that is decoded. A valid one nests at
/// most `--max-txn-ops` (128) deep, since each level spends an operation.
pub const TXN_DEPTH_MAX: usize = 128;

/// The form without an identity: what a member proposes itself, and every proposal
/// of builds that knew no users.
const VERSION: u8 = 1;
/// The form of what a client asked for.
const VERSION_IDENTITY: u8 = 2;
/// What is added to either form where the proposer's applied index follows the id.
const VERSION_SINCE: u8 = 2;

/// Says why bytes are not a proposal.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum CodecError {
    /// The first byte names a form this build does not know.
    #[error("proposal has format version {0}, this build reads 1 to 4")]
    Version(u8),
    /// The bytes end inside a field, or a length points past the end.
    #[error("proposal ends early")]
    Truncated,
    /// Bytes are left over.
    #[error("proposal has {0} trailing bytes")]
    Trailing(usize),
    /// A number stands where it has no meaning.
    #[error("proposal has unknown {what} {value}")]
    Unknown {
        /// What was being read.
        what: &'static str,
        /// The number found.
        value: u64,
    },
    /// A number does not fit 64 bits.
    #[error("proposal has an overlong number")]
    Overlong,
    /// Transactions nest deeper than the limit.
    #[error("proposal nests transactions deeper than {0}")]
    TooDeep(usize),
    /// A name is not UTF-8.
    #[error("proposal names a {0} in no text")]
    NotText(&'static str),
}

impl From<WireError> for CodecError {
    fn from(e: WireError) -> Self {
        match e {
            WireError::Truncated => Self::Truncated,
            WireError::Overlong => Self::Overlong,
        }
    }
}

type Result<T> = std::result::Result<T, CodecError>;

impl Proposal {
    /// Encodes the proposal.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(size_hint(&self.command));
        let version = match &self.identity {
            None => VERSION,
            Some(_) => VERSION_IDENTITY,
        };
        let since = self.since.map_or(0, |_| VERSION_SINCE);
        out.put_u8(version + since);
        out.put_u64(self.id);
        if let Some(since) = self.since {
            put_u64(&mut out, since);
        }
        if let Some(identity) = &self.identity {
            put_bytes(&mut out, identity.user.as_bytes());
            put_u64(&mut out, identity.revision);
        }
        put_command(&mut out, &self.command);
        out.freeze()
    }

    /// Decodes a proposal. Keys and values are slices of `bytes`, not copies, and
    /// may stay in memory for long: give a buffer that holds this proposal
    /// alone, not a slice of a whole read.
    pub fn decode(bytes: Bytes) -> Result<Proposal> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        let (has_since, has_identity) = match version {
            1..=4 => (version > VERSION_SINCE, version.is_multiple_of(2)),
            _ => return Err(CodecError::Version(version)),
        };
        let id = r.be64()?;
        let since = has_since.then(|| r.u64()).transpose()?;
        let identity = has_identity.then(|| identity(&mut r)).transpose()?;
        let command = command(&mut r)?;
        match r.remaining() {
            0 => Ok(Proposal {
                id,
                since,
                identity,
                command,
            }),
            n => Err(CodecError::Trailing(n)),
        }
    }
}

/// Guesses the encoded size well enough that a put is one allocation.
fn size_hint(c: &Command) -> usize {
    const FIXED: usize = 48;
    match c {
        Command::Put(p) => FIXED + p.key.len() + p.value.len(),
        Command::Txn(_) => 512,
        _ => 2 * FIXED,
    }
}

/// Reads an identity; nobody's, the usual one, takes no memory.
fn identity(r: &mut Reader) -> Result<Identity> {
    let user = name(r, "user")?;
    Ok(match (user.as_str(), r.u64()?) {
        ("", 0) => Identity::nobody(),
        (_, revision) => Identity::new(user, revision),
    })
}

// --- commands ---

fn put_command(out: &mut BytesMut, c: &Command) {
    match c {
        Command::Put(r) => {
            out.put_u8(1);
            put_put(out, r);
        }
        Command::DeleteRange(r) => {
            out.put_u8(2);
            put_delete(out, r);
        }
        Command::Txn(r) => {
            out.put_u8(3);
            put_txn(out, r);
        }
        Command::Compact(r) => {
            out.put_u8(4);
            put_i64(out, r.revision);
            out.put_u8(u8::from(r.physical));
        }
        Command::LeaseGrant(r) => {
            out.put_u8(5);
            put_i64(out, r.id);
            put_i64(out, r.ttl);
        }
        Command::LeaseRevoke(r) => {
            out.put_u8(6);
            put_i64(out, r.id);
        }
        Command::LeaseCheckpoint(r) => {
            out.put_u8(7);
            put_u64(out, r.checkpoints.len() as u64);
            for (id, left) in &r.checkpoints {
                put_i64(out, *id);
                put_i64(out, *left);
            }
        }
        Command::AlarmActivate(a) => put_alarm(out, 8, a),
        Command::AlarmDeactivate(a) => put_alarm(out, 9, a),
        Command::Auth(a) => {
            out.put_u8(10);
            put_auth_command(out, a);
        }
        Command::Downgrade(target) => {
            out.put_u8(11);
            out.put_u8(u8::from(target.is_some()));
            put_bytes(out, target.as_deref().unwrap_or_default().as_bytes());
        }
        Command::Member(c) => {
            out.put_u8(12);
            put_member_command(out, c);
        }
    }
}

fn command(r: &mut Reader) -> Result<Command> {
    Ok(match r.u8()? {
        1 => Command::Put(put(r)?),
        2 => Command::DeleteRange(delete(r)?),
        3 => Command::Txn(txn(r, 0)?),
        4 => Command::Compact(CompactRequest {
            revision: r.i64()?,
            physical: flag(r)?,
        }),
        5 => Command::LeaseGrant(LeaseGrantRequest {
            id: r.i64()?,
            ttl: r.i64()?,
        }),
        6 => Command::LeaseRevoke(LeaseRevokeRequest { id: r.i64()? }),
        7 => Command::LeaseCheckpoint(LeaseCheckpointRequest {
            checkpoints: list(r, |r| Ok((r.i64()?, r.i64()?)))?,
        }),
        8 => Command::AlarmActivate(alarm(r)?),
        9 => Command::AlarmDeactivate(alarm(r)?),
        10 => Command::Auth(auth_command(r)?),
        11 => {
            let on = flag(r)?;
            let target = name(r, "version")?;
            Command::Downgrade(on.then_some(target))
        }
        12 => Command::Member(member_command(r)?),
        tag => return Err(unknown("command", u64::from(tag))),
    })
}

fn put_alarm(out: &mut BytesMut, tag: u8, a: &Alarm) {
    out.put_u8(tag);
    put_u64(out, a.member);
    out.put_u8(a.kind as u8);
}

fn alarm(r: &mut Reader) -> Result<Alarm> {
    let member = r.u64()?;
    let kind = r.u8()?;
    let kind = AlarmKind::from_i32(i32::from(kind)).ok_or(unknown("alarm", u64::from(kind)))?;
    Ok(Alarm { member, kind })
}

// --- requests ---

fn put_put(out: &mut BytesMut, p: &PutRequest) {
    let flags = u8::from(p.prev_kv) | u8::from(p.ignore_value) << 1 | u8::from(p.ignore_lease) << 2;
    out.put_u8(flags);
    put_bytes(out, &p.key);
    put_bytes(out, &p.value);
    put_i64(out, p.lease);
}

fn put(r: &mut Reader) -> Result<PutRequest> {
    let f = flags(r, 0b111)?;
    Ok(PutRequest {
        prev_kv: f & 1 != 0,
        ignore_value: f & 2 != 0,
        ignore_lease: f & 4 != 0,
        key: r.bytes()?,
        value: r.bytes()?,
        lease: r.i64()?,
    })
}

fn put_delete(out: &mut BytesMut, d: &DeleteRangeRequest) {
    out.put_u8(u8::from(d.prev_kv));
    put_bytes(out, &d.key);
    put_bytes(out, &d.range_end);
}

fn delete(r: &mut Reader) -> Result<DeleteRangeRequest> {
    Ok(DeleteRangeRequest {
        prev_kv: flag(r)?,
        key: r.bytes()?,
        range_end: r.bytes()?,
    })
}

fn put_range(out: &mut BytesMut, q: &RangeRequest) {
    let bounds = [
        q.min_mod_revision,
        q.max_mod_revision,
        q.min_create_revision,
        q.max_create_revision,
    ];
    let bounded = bounds.iter().any(|b| *b != 0);
    let flags = u8::from(q.serializable)
        | u8::from(q.keys_only) << 1
        | u8::from(q.count_only) << 2
        | u8::from(bounded) << 3;
    out.put_u8(flags);
    out.put_u8(q.sort_order as u8);
    out.put_u8(q.sort_target as u8);
    put_bytes(out, &q.key);
    put_bytes(out, &q.range_end);
    put_i64(out, q.limit);
    put_i64(out, q.revision);
    if bounded {
        for b in bounds {
            put_i64(out, b);
        }
    }
}

fn range(r: &mut Reader) -> Result<RangeRequest> {
    let f = flags(r, 0b1111)?;
    let order = r.u8()?;
    let target = r.u8()?;
    let mut q = RangeRequest {
        serializable: f & 1 != 0,
        keys_only: f & 2 != 0,
        count_only: f & 4 != 0,
        sort_order: SortOrder::from_i32(i32::from(order))
            .ok_or(unknown("sort order", u64::from(order)))?,
        sort_target: SortTarget::from_i32(i32::from(target))
            .ok_or(unknown("sort target", u64::from(target)))?,
        key: r.bytes()?,
        range_end: r.bytes()?,
        limit: r.i64()?,
        revision: r.i64()?,
        ..RangeRequest::default()
    };
    if f & 8 != 0 {
        q.min_mod_revision = r.i64()?;
        q.max_mod_revision = r.i64()?;
        q.min_create_revision = r.i64()?;
        q.max_create_revision = r.i64()?;
    }
    Ok(q)
}

// --- transactions ---

fn put_txn(out: &mut BytesMut, t: &TxnRequest) {
    put_u64(out, t.compare.len() as u64);
    for c in &t.compare {
        put_compare(out, c);
    }
    for ops in [&t.success, &t.failure] {
        put_u64(out, ops.len() as u64);
        for op in ops {
            put_op(out, op);
        }
    }
}

fn txn(r: &mut Reader, depth: usize) -> Result<TxnRequest> {
    if depth >= TXN_DEPTH_MAX {
        return Err(CodecError::TooDeep(TXN_DEPTH_MAX));
    }
    Ok(TxnRequest {
        compare: list(r, compare)?,
        success: list(r, |r| op(r, depth))?,
        failure: list(r, |r| op(r, depth))?,
    })
}

fn put_op(out: &mut BytesMut, op: &RequestOp) {
    match op {
        RequestOp::Range(q) => {
            out.put_u8(1);
            put_range(out, q);
        }
        RequestOp::Put(q) => {
            out.put_u8(2);
            put_put(out, q);
        }
        RequestOp::DeleteRange(q) => {
            out.put_u8(3);
            put_delete(out, q);
        }
        RequestOp::Txn(q) => {
            out.put_u8(4);
            put_txn(out, q);
        }
        RequestOp::Empty => out.put_u8(0),
    }
}

fn op(r: &mut Reader, depth: usize) -> Result<RequestOp> {
    Ok(match r.u8()? {
        0 => RequestOp::Empty,
        1 => RequestOp::Range(range(r)?),
        2 => RequestOp::Put(put(r)?),
        3 => RequestOp::DeleteRange(delete(r)?),
        4 => RequestOp::Txn(txn(r, depth + 1)?),
        tag => return Err(unknown("operation", u64::from(tag))),
    })
}

fn put_compare(out: &mut BytesMut, c: &Compare) {
    let tag = match &c.target {
        CompareTarget::Version(_) => 0,
        CompareTarget::CreateRevision(_) => 1,
        CompareTarget::ModRevision(_) => 2,
        CompareTarget::Value(_) => 3,
        CompareTarget::Lease(_) => 4,
    };
    out.put_u8(tag);
    out.put_u8(c.result as u8);
    put_bytes(out, &c.key);
    put_bytes(out, &c.range_end);
    match &c.target {
        CompareTarget::Version(n)
        | CompareTarget::CreateRevision(n)
        | CompareTarget::ModRevision(n)
        | CompareTarget::Lease(n) => put_i64(out, *n),
        CompareTarget::Value(v) => put_bytes(out, v),
    }
}

fn compare(r: &mut Reader) -> Result<Compare> {
    let tag = r.u8()?;
    let result = r.u8()?;
    Ok(Compare {
        result: CompareResult::from_i32(i32::from(result))
            .ok_or(unknown("compare result", u64::from(result)))?,
        key: r.bytes()?,
        range_end: r.bytes()?,
        target: match tag {
            0 => CompareTarget::Version(r.i64()?),
            1 => CompareTarget::CreateRevision(r.i64()?),
            2 => CompareTarget::ModRevision(r.i64()?),
            3 => CompareTarget::Value(r.bytes()?),
            4 => CompareTarget::Lease(r.i64()?),
            _ => return Err(unknown("compare target", u64::from(tag))),
        },
    })
}

// --- small parts ---

/// Reads a list. Room is reserved for no more items than bytes are left, so a
/// count of four billion costs nothing.
pub(crate) fn list<T>(
    r: &mut Reader,
    mut item: impl FnMut(&mut Reader) -> Result<T>,
) -> Result<Vec<T>> {
    /// Items reserved at once; longer lists grow as they are read.
    const RESERVE_MAX: usize = 64;
    let count = r.u64()?;
    if count > r.remaining() as u64 {
        return Err(CodecError::Truncated);
    }
    let mut out = Vec::with_capacity(RESERVE_MAX.min(count as usize));
    for _ in 0..count {
        out.push(item(r)?);
    }
    Ok(out)
}

pub(crate) fn flag(r: &mut Reader) -> Result<bool> {
    Ok(flags(r, 1)? == 1)
}

fn flags(r: &mut Reader, known: u8) -> Result<u8> {
    let f = r.u8()?;
    if f & !known != 0 {
        return Err(unknown("flags", u64::from(f)));
    }
    Ok(f)
}

pub(crate) fn unknown(what: &'static str, value: u64) -> CodecError {
    CodecError::Unknown { what, value }
}

#[cfg(test)]
mod test;
