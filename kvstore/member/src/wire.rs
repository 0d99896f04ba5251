//! The bytes of messages between members.
//!
//! Our own encoding, so that no third party's is on the wire: integers are LEB128
//! varints, which keeps a heartbeat at some forty bytes; entries are as in the log.
//! The connection they travel on says which version of it is spoken.
//!
//! ```text
//! message   kind u8 | flags u8 | to | from | term | log term | index | commit
//!           | commit term | reject hint | request snapshot | len context
//!           | count (len entry)* | [snapshot]
//! snapshot  index | term | conf state
//! conf      flags u8 | 4 * (count id*)
//! ```
//!
//! What comes in is checked as far as raft relies on it: a field out of range must
//! not end the process of whoever reads it.

use bytes::{Buf, BufMut, Bytes};
use raft::eraftpb::{Entry, Message, MessageType};

use crate::{
    codec::{CodecError, decode_entry, encode_entry},
    conf::ConfState,
    entry::LogEntry,
    input::PeerMessage,
    snapshot::{SnapshotMeta, snapshot_meta},
};

/// Most bytes of a message's context. raft's longest is that of a read.
const CONTEXT_BYTES_MAX: usize = 256;

/// Most members one list of a configuration may name.
const CONF_IDS_MAX: usize = 1_024;

/// Longest varint of 64 bits.
const VARINT_BYTES_MAX: u32 = 10;

const REJECT: u8 = 1;
const AUTO_LEAVE: u8 = 1;

/// The message types by their number on the wire; zero is none.
const KINDS: [MessageType; 10] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgTimeoutNow,
];

/// Appends the bytes of `message` to `out`.
pub fn encode_message(message: &PeerMessage, out: &mut Vec<u8>) {
    let kind = message.get_msg_type();
    let place = KINDS.iter().position(|known| *known == kind);
    debug_assert!(place.is_some(), "members do not send each other {kind:?}");
    // Whatever it is, no member takes a message of kind zero.
    out.put_u8(place.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0));
    out.put_u8(if message.reject { REJECT } else { 0 });
    for field in [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
        message.request_snapshot,
    ] {
        put_varint(field, out);
    }
    put_bytes(&message.context, out);
    put_varint(message.entries.len() as u64, out);
    for entry in &message.entries {
        let entry = LogEntry::from(entry);
        put_varint(LogEntry::HEAD_BYTES + entry.data.len() as u64, out);
        encode_entry(&entry, out);
    }
    if let Some(meta) = snapshot_meta(message) {
        put_varint(meta.index, out);
        put_varint(meta.term, out);
        encode_conf_state(&meta.conf_state, out);
    }
}

/// Says whether a message extends the log. Those keep their order on the way: one
/// that overtakes another looks like a gap, and raft then sends everything again.
pub fn is_append(message: &PeerMessage) -> bool {
    message.get_msg_type() == MessageType::MsgAppend
}

/// Reads a message; the data of its entries are slices of `bytes`, not copies.
pub fn decode_message(mut bytes: Bytes) -> Result<PeerMessage, CodecError> {
    let mut message = Message::default();
    let kind = usize::from(take_u8(&mut bytes)?).checked_sub(1);
    let kind = kind.and_then(|at| KINDS.get(at));
    message.set_msg_type(*kind.ok_or(CodecError::Value("message kind"))?);
    message.reject = take_u8(&mut bytes)? & REJECT != 0;
    message.to = take_varint(&mut bytes)?;
    message.from = take_varint(&mut bytes)?;
    message.term = take_varint(&mut bytes)?;
    message.log_term = take_varint(&mut bytes)?;
    message.index = take_varint(&mut bytes)?;
    message.commit = take_varint(&mut bytes)?;
    message.commit_term = take_varint(&mut bytes)?;
    message.reject_hint = take_varint(&mut bytes)?;
    message.request_snapshot = take_varint(&mut bytes)?;
    message.context = take_bytes(&mut bytes, CONTEXT_BYTES_MAX)?;
    let entries = take_entries(&mut bytes, &message)?;
    message.set_entries(entries.into());
    if message.get_msg_type() == MessageType::MsgSnapshot {
        let meta = SnapshotMeta {
            index: take_varint(&mut bytes)?,
            term: take_varint(&mut bytes)?,
            conf_state: take_conf_state(&mut bytes)?,
        };
        if meta.term > message.term {
            return Err(CodecError::Value("term of a snapshot"));
        }
        message.mut_snapshot().set_metadata(meta.into());
    }
    finished(&bytes)?;
    if message.to == 0 || message.from == 0 {
        return Err(CodecError::Value("sender or receiver of a message"));
    }
    Ok(message)
}

/// Appends the bytes of a configuration to `out`.
pub fn encode_conf_state(state: &ConfState, out: &mut Vec<u8>) {
    out.put_u8(if state.auto_leave { AUTO_LEAVE } else { 0 });
    for list in [
        &state.voters,
        &state.learners,
        &state.voters_outgoing,
        &state.learners_next,
    ] {
        put_varint(list.len() as u64, out);
        for id in list {
            put_varint(*id, out);
        }
    }
}

/// Reads a configuration.
pub fn decode_conf_state(mut bytes: Bytes) -> Result<ConfState, CodecError> {
    let state = take_conf_state(&mut bytes)?;
    finished(&bytes)?;
    Ok(state)
}

/// Reads entries that go on from the message's index, in ascending terms.
fn take_entries(bytes: &mut Bytes, message: &Message) -> Result<Vec<Entry>, CodecError> {
    let count = take_varint(bytes)?;
    if count > 0 && message.get_msg_type() != MessageType::MsgAppend {
        return Err(CodecError::Value("entries of a message"));
    }
    let mut entries = Vec::new();
    let (mut index, mut term) = (message.index, message.log_term);
    for _ in 0..count {
        let entry = decode_entry(take_bytes(bytes, usize::MAX)?)?;
        let next = index.checked_add(1);
        if next != Some(entry.index) || entry.term < term || entry.term > message.term {
            return Err(CodecError::Value("index or term of an entry"));
        }
        (index, term) = (entry.index, entry.term);
        entries.push(entry.into());
    }
    Ok(entries)
}

fn take_conf_state(bytes: &mut Bytes) -> Result<ConfState, CodecError> {
    let auto_leave = take_u8(bytes)? & AUTO_LEAVE != 0;
    let mut list = || {
        let count = take_varint(bytes)?;
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= CONF_IDS_MAX);
        let count = count.ok_or(CodecError::Value("members of a configuration"))?;
        let ids: Vec<u64> = (0..count)
            .map(|_| take_varint(bytes))
            .collect::<Result<_, _>>()?;
        let ascending = ids.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || ids.first() == Some(&0) {
            return Err(CodecError::Value("members of a configuration"));
        }
        Ok(ids)
    };
    Ok(ConfState {
        voters: list()?,
        learners: list()?,
        voters_outgoing: list()?,
        learners_next: list()?,
        auto_leave,
    })
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

fn take_varint(bytes: &mut Bytes) -> Result<u64, CodecError> {
    let mut value = 0u64;
    for place in 0..VARINT_BYTES_MAX {
        let byte = take_u8(bytes)?;
        let low = u64::from(byte & 0x7f);
        let shifted = low << (7 * place);
        if shifted >> (7 * place) != low {
            break;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(CodecError::Value("varint"))
}

fn take_bytes(bytes: &mut Bytes, max: usize) -> Result<Bytes, CodecError> {
    let len = take_varint(bytes)?;
    let left = bytes.len();
    match usize::try_from(len) {
        Ok(len) if len <= left && len <= max => Ok(bytes.split_to(len)),
        _ => Err(too_short(left)),
    }
}

fn take_u8(bytes: &mut Bytes) -> Result<u8, CodecError> {
    if bytes.is_empty() {
        return Err(too_short(0));
    }
    Ok(bytes.get_u8())
}

fn finished(bytes: &Bytes) -> Result<(), CodecError> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(too_short(bytes.len()))
    }
}

fn too_short(len: usize) -> CodecError {
    let what = "rest of a message";
    CodecError::Length { what, len }
}
