//! Raft's messages as the transport sees them: bytes, and how urgent they are.

use bytes::Bytes;
use member::{CodecError, PeerMessage};

/// What an entry takes beyond its data, about.
const ENTRY_BYTES: usize = 48;

/// Appends a message to a frame.
pub(super) fn encode(message: &PeerMessage, frame: &mut Vec<u8>) {
    member::encode_message(message, frame);
}

/// Reads a message; its entries share the frame's bytes.
pub(super) fn decode(bytes: Bytes) -> Result<PeerMessage, CodecError> {
    member::decode_message(bytes)
}

/// Says whether a message extends the log. Others must not wait behind those that do:
/// a heartbeat that comes late costs an election. Among themselves they keep their
/// order, even without entries: to raft one that comes too early is a gap in the log.
pub(super) fn is_append(message: &PeerMessage) -> bool {
    member::is_append(message)
}

/// Returns about how many bytes a message takes.
pub(super) fn size(message: &PeerMessage) -> usize {
    let entries = message.entries.iter();
    let entries = entries.map(|entry| entry.data.len() + ENTRY_BYTES);
    message.context.len() + entries.sum::<usize>()
}

/// Makes a message without entries, for tests.
#[cfg(test)]
pub(super) fn heartbeat(from: u8, to: u8) -> PeerMessage {
    let bytes = [7, 0, to, from, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    decode(Bytes::copy_from_slice(&bytes)).unwrap()
}
