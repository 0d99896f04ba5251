//! The bytes of an entry and of a hard state, as the write-ahead log keeps them.
//!
//! Little-endian, fixed width, one version: the log's own format version (in its
//! segment head) says which. A checksum around them is the log's business.
//!
//! ```text
//! entry       term u64 | index u64 | kind u8 | data
//! hard state  term u64 | vote u64  | commit u64
//! ```

use bytes::{Buf, BufMut, Bytes};
use thiserror::Error;

use crate::entry::{EntryKind, HardState, LogEntry};

const ENTRY_HEAD: usize = 17;
const HARD_STATE_LEN: usize = 24;

/// Says why bytes are not what they should be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    /// The bytes end too early or go on too long.
    #[error("{what} of {len} bytes, which cannot be")]
    Length {
        /// What was decoded.
        what: &'static str,
        /// How many bytes there were.
        len: usize,
    },
    /// The entry is of a kind this version does not know.
    #[error("unknown entry kind {0}")]
    Kind(u8),
    /// A part has a value that cannot be.
    #[error("{0} out of range")]
    Value(&'static str),
}

impl LogEntry {
    /// Bytes of an entry before its data.
    pub(crate) const HEAD_BYTES: u64 = ENTRY_HEAD as u64;
}

/// Appends the bytes of `entry` to `out`.
pub fn encode_entry(entry: &LogEntry, out: &mut Vec<u8>) {
    out.reserve(ENTRY_HEAD + entry.data.len());
    out.put_u64_le(entry.term);
    out.put_u64_le(entry.index);
    out.put_u8(match entry.kind {
        EntryKind::Normal => 0,
        EntryKind::ConfChange => 1,
        EntryKind::ConfChangeV2 => 2,
    });
    out.put_slice(&entry.data);
}

/// Reads an entry; its data is a slice of `bytes`, not a copy.
pub fn decode_entry(mut bytes: Bytes) -> Result<LogEntry, CodecError> {
    if bytes.len() < ENTRY_HEAD {
        return Err(CodecError::Length {
            what: "entry",
            len: bytes.len(),
        });
    }
    let term = bytes.get_u64_le();
    let index = bytes.get_u64_le();
    let kind = match bytes.get_u8() {
        0 => EntryKind::Normal,
        1 => EntryKind::ConfChange,
        2 => EntryKind::ConfChangeV2,
        other => return Err(CodecError::Kind(other)),
    };
    Ok(LogEntry {
        term,
        index,
        kind,
        data: bytes,
    })
}

/// Appends the bytes of `state` to `out`.
pub fn encode_hard_state(state: &HardState, out: &mut Vec<u8>) {
    out.put_u64_le(state.term);
    out.put_u64_le(state.vote);
    out.put_u64_le(state.commit);
}

/// Reads a hard state.
pub fn decode_hard_state(mut bytes: &[u8]) -> Result<HardState, CodecError> {
    if bytes.len() != HARD_STATE_LEN {
        return Err(CodecError::Length {
            what: "hard state",
            len: bytes.len(),
        });
    }
    Ok(HardState {
        term: bytes.get_u64_le(),
        vote: bytes.get_u64_le(),
        commit: bytes.get_u64_le(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entry_round_trip(term: u64, index: u64, kind in 0u8..3, data: Vec<u8>) {
            let kind = [EntryKind::Normal, EntryKind::ConfChange, EntryKind::ConfChangeV2][usize::from(kind)];
            let entry = LogEntry { term, index, kind, data: data.into() };
            let mut out = Vec::new();
            encode_entry(&entry, &mut out);
            prop_assert_eq!(decode_entry(out.into()), Ok(entry));
        }

        #[test]
        fn hard_state_round_trip(term: u64, vote: u64, commit: u64) {
            let state = HardState { term, vote, commit };
            let mut out = Vec::new();
            encode_hard_state(&state, &mut out);
            prop_assert_eq!(decode_hard_state(&out), Ok(state));
        }

        #[test]
        fn hostile_bytes_are_refused_or_read(data: Vec<u8>) {
            let _ = decode_entry(data.clone().into());
            prop_assert_eq!(decode_hard_state(&data).is_ok(), data.len() == HARD_STATE_LEN);
        }
    }
}
