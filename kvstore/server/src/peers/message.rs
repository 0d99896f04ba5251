//! Raft's messages as the transport sees them: bytes, and how urgent they are.
//!
//! ```text
//! type u8 | flags u8 | to | from | term | log term | index | commit | commit term
//!   | reject hint | request snapshot | priority | context length u32 | context
//!   | { kind u8 | term | index | length u32 | data } per entry
//! ```
//!
//! A snapshot is never in one: it goes by a stream of its own.

use bytes::{Buf, Bytes, TryGetError};
use member::PeerMessage;
use raft::eraftpb::{Entry, EntryType, MessageType};

const REJECT: u8 = 1;

/// Every type of message, at its number.
const TYPES: [MessageType; 19] = [
    MessageType::MsgHup,
    MessageType::MsgBeat,
    MessageType::MsgPropose,
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgUnreachable,
    MessageType::MsgSnapStatus,
    MessageType::MsgCheckQuorum,
    MessageType::MsgTransferLeader,
    MessageType::MsgTimeoutNow,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

const KINDS: [EntryType; 3] = [
    EntryType::EntryNormal,
    EntryType::EntryConfChange,
    EntryType::EntryConfChangeV2,
];

/// Appends a message to a frame.
pub(super) fn encode(message: &PeerMessage, frame: &mut Vec<u8>) {
    frame.push(message.msg_type as u8);
    frame.push(if message.reject { REJECT } else { 0 });
    for number in [
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
        frame.extend(number.to_le_bytes());
    }
    frame.extend(message.priority.to_le_bytes());
    bytes_of(&message.context, frame);
    for entry in message.entries.iter() {
        frame.push(entry.entry_type as u8);
        frame.extend(entry.term.to_le_bytes());
        frame.extend(entry.index.to_le_bytes());
        bytes_of(&entry.data, frame);
    }
}

fn bytes_of(bytes: &[u8], frame: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("a queue holds far less than 4 GiB");
    frame.extend(length.to_le_bytes());
    frame.extend_from_slice(bytes);
}

/// Reads a message; its entries share the frame's bytes.
pub(super) fn decode(mut bytes: Bytes) -> Result<PeerMessage, TryGetError> {
    let mut message = PeerMessage::default();
    let odd = TryGetError {
        requested: 1,
        available: 0,
    };
    let kind = usize::from(bytes.try_get_u8()?);
    message.msg_type = *TYPES.get(kind).ok_or(odd)?;
    message.reject = bytes.try_get_u8()? & REJECT != 0;
    for field in [
        &mut message.to,
        &mut message.from,
        &mut message.term,
        &mut message.log_term,
        &mut message.index,
        &mut message.commit,
        &mut message.commit_term,
        &mut message.reject_hint,
        &mut message.request_snapshot,
    ] {
        *field = bytes.try_get_u64_le()?;
    }
    message.priority = bytes.try_get_i64_le()?;
    message.context = take(&mut bytes)?;
    let mut entries = Vec::new();
    while bytes.has_remaining() {
        let mut entry = Entry::default();
        let odd = TryGetError {
            requested: 1,
            available: 0,
        };
        let kind = usize::from(bytes.try_get_u8()?);
        entry.entry_type = *KINDS.get(kind).ok_or(odd)?;
        entry.term = bytes.try_get_u64_le()?;
        entry.index = bytes.try_get_u64_le()?;
        entry.data = take(&mut bytes)?;
        entries.push(entry);
    }
    message.entries = entries.into();
    Ok(message)
}

fn take(bytes: &mut Bytes) -> Result<Bytes, TryGetError> {
    let length = bytes.try_get_u32_le()? as usize;
    match length <= bytes.len() {
        true => Ok(bytes.split_to(length)),
        false => Err(TryGetError {
            requested: length,
            available: bytes.len(),
        }),
    }
}

/// Says whether a message extends the log. Others must not wait behind those that do:
/// a heartbeat that comes late costs an election. Among themselves they keep their
/// order, even without entries: to raft one that comes too early is a gap in the log.
pub(super) fn is_append(message: &PeerMessage) -> bool {
    message.msg_type == MessageType::MsgAppend
}

/// Returns about how many bytes a message takes.
pub(super) fn size(message: &PeerMessage) -> usize {
    let entries = message.entries.iter();
    message.context.len() + entries.map(|entry| entry.data.len() + 48).sum::<usize>()
}
