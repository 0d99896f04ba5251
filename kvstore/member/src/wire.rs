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

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::entry::EntryKind;

    fn conf() -> impl Strategy<Value = ConfState> {
        let list = || proptest::collection::btree_set(1u64.., 0..8);
        (list(), list(), list(), list(), any::<bool>()).prop_map(
            |(voters, learners, outgoing, next, auto_leave)| ConfState {
                voters: voters.into_iter().collect(),
                learners: learners.into_iter().collect(),
                voters_outgoing: outgoing.into_iter().collect(),
                learners_next: next.into_iter().collect(),
                auto_leave,
            },
        )
    }

    prop_compose! {
        fn message()(
            kind in 0..KINDS.len(),
            ids in (1u64.., 1u64..),
            numbers: [u64; 6],
            index in 0..u64::MAX / 2,
            term in 1u64..,
            reject: bool,
            context in vec(any::<u8>(), 0..64),
            data in vec((0u8..3, vec(any::<u8>(), 0..64)), 0..8),
            conf in conf(),
        ) -> PeerMessage {
            let mut message = Message::default();
            let kind = KINDS[kind];
            message.set_msg_type(kind);
            (message.to, message.from, message.term) = (ids.0, ids.1, term);
            message.log_term = numbers[0] % term;
            message.index = index;
            message.commit = numbers[1];
            message.commit_term = numbers[2];
            message.reject_hint = numbers[3];
            message.request_snapshot = numbers[4];
            message.reject = reject;
            message.context = context.into();
            if kind == MessageType::MsgAppend {
                let entries = (index + 1..).zip(data).map(|(index, (kind, data))| LogEntry {
                    term: message.log_term,
                    index,
                    kind: [EntryKind::Normal, EntryKind::ConfChange, EntryKind::ConfChangeV2]
                        [usize::from(kind)],
                    data: data.into(),
                });
                message.set_entries(entries.map(Entry::from).collect::<Vec<_>>().into());
            }
            if kind == MessageType::MsgSnapshot {
                let meta = SnapshotMeta { index, term: numbers[5] % term, conf_state: conf };
                message.mut_snapshot().set_metadata(meta.into());
            }
            message
        }
    }

    fn encoded(message: &PeerMessage) -> Bytes {
        let mut out = Vec::new();
        encode_message(message, &mut out);
        out.into()
    }

    proptest! {
        #[test]
        fn message_round_trip(message in message()) {
            prop_assert_eq!(decode_message(encoded(&message)), Ok(message));
        }

        #[test]
        fn conf_state_round_trip(state in conf()) {
            let mut out = Vec::new();
            encode_conf_state(&state, &mut out);
            prop_assert_eq!(decode_conf_state(out.into()), Ok(state));
        }

        /// What is not refused is a message of its own, not of a longer one's bytes.
        #[test]
        fn bytes_cut_or_added_are_refused(message in message(), cut in 1usize..40) {
            let bytes = encoded(&message);
            prop_assert!(decode_message(bytes.slice(..bytes.len().saturating_sub(cut))).is_err());
            let longer = [&bytes[..], b"x"].concat();
            prop_assert!(decode_message(longer.into()).is_err());
        }

        #[test]
        fn hostile_bytes_end_in_an_error_or_a_message(data: Vec<u8>, message in message(), at: usize, with: u8) {
            let _ = decode_message(data.clone().into());
            let _ = decode_conf_state(data.into());
            let mut bytes = encoded(&message).to_vec();
            let at = at % bytes.len();
            bytes[at] = with;
            let _ = decode_message(bytes.into());
        }
    }

    fn append(entries: Vec<(u64, u64)>) -> PeerMessage {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.to, message.from, message.term) = (1, 2, 5);
        (message.index, message.log_term) = (10, 3);
        let entries = entries.into_iter().map(|(index, term)| {
            let mut entry = Entry::default();
            (entry.index, entry.term) = (index, term);
            entry
        });
        message.set_entries(entries.collect::<Vec<_>>().into());
        message
    }

    #[test]
    fn entries_out_of_order_are_refused() {
        let refused = |entries| decode_message(encoded(&append(entries))).is_err();
        assert!(!refused(vec![(11, 3), (12, 5)]));
        assert!(refused(vec![(12, 3)]), "raft would compute below zero");
        assert!(refused(vec![(11, 3), (13, 3)]));
        assert!(refused(vec![(11, 2)]), "terms never go back in a log");
        assert!(refused(vec![(11, 6)]), "of a term the sender does not know");
    }

    #[test]
    fn a_count_without_entries_takes_no_memory() {
        let mut out = encoded(&append(Vec::new())).to_vec();
        assert_eq!(out.pop(), Some(0), "the count comes last");
        put_varint(u64::MAX, &mut out);
        assert!(decode_message(out.into()).is_err());
    }

    #[test]
    fn a_heartbeat_is_small_and_data_is_not_copied() {
        let mut heartbeat = Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.to, heartbeat.from) = (u64::MAX, u64::MAX - 1);
        (heartbeat.term, heartbeat.commit) = (9, 1_000_000);
        assert!(encoded(&heartbeat).len() <= 40);

        let mut message = append(vec![(11, 3)]);
        message.entries[0].data = Bytes::from(vec![7; 4_096]);
        let bytes = encoded(&message);
        let decoded = decode_message(bytes.clone()).unwrap();
        let data = decoded.entries[0].data.as_ptr() as usize;
        let whole = bytes.as_ptr() as usize;
        assert!((whole..whole + bytes.len()).contains(&data));
    }
}
