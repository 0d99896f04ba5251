//! What members say to each other one way, and how it looks in a frame.
//!
//! A frame is notes in a row, each a kind, a length and a body:
//!
//! ```text
//! kind u8 | length u32 | body            all numbers little-endian
//!   1 raft         a message, as crate `member` writes it
//!   2 forward      id u64 | the proposal
//!   3 refused      reason u8 | id u64 ...
//!   4 read ask     attempt u64
//!   5 read answer  attempt u64 | index u64, or nothing: refused
//! ```
//!
//! A kind that is not known is passed over: any note may be lost, so a newer member
//! may say things that an older one does not understand.

use bytes::{Buf as _, Bytes};
use member::{PeerMessage, Refusal};
use thiserror::Error;

use super::message;

const RAFT: u8 = 1;
const FORWARD: u8 = 2;
const REFUSED: u8 = 3;
const READ_ASK: u8 = 4;
const READ_ANSWER: u8 = 5;

/// Bytes before a body.
const HEAD: usize = 5;

/// What a note costs in a queue beyond its payload, about.
const NOTE_BYTES: usize = 64;

/// Something one member tells another. Any of it may be lost, doubled or overtaken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    /// A message of raft.
    Raft(Box<PeerMessage>),
    /// A client's proposal, for the leader.
    Forward {
        /// Names it, also in [`Note::Refused`].
        id: u64,
        /// What would be in the log.
        data: Bytes,
    },
    /// These proposals were not appended.
    Refused {
        /// Their ids.
        ids: Vec<u64>,
        /// Why.
        reason: Refusal,
    },
    /// Asks the leader for an index to read at.
    ReadAsk {
        /// Names the question.
        attempt: u64,
    },
    /// Whoever waits for the attempt may read once this index is applied.
    ReadAnswer {
        /// The question.
        attempt: u64,
        /// None if the member does not lead, or cannot say.
        index: Option<u64>,
    },
}

/// Why a frame cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum NoteError {
    /// It ends within a note.
    #[error("the frame is cut off")]
    Short,
    /// A note of a known kind makes no sense.
    #[error("a note of kind {0} cannot be read")]
    Body(u8),
    /// A message of raft makes no sense.
    #[error("a raft message cannot be read: {0}")]
    Message(#[from] member::CodecError),
}

impl Note {
    /// Says whether it may wait behind others: what carries data may; what keeps
    /// leaders in office, and readers waiting, may not.
    pub(super) fn is_bulk(&self) -> bool {
        match self {
            Self::Raft(message) => message::is_append(message),
            Self::Forward { .. } => true,
            Self::Refused { .. } | Self::ReadAsk { .. } | Self::ReadAnswer { .. } => false,
        }
    }

    /// Returns about how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        NOTE_BYTES
            + match self {
                Self::Raft(message) => message::size(message),
                Self::Forward { data, .. } => data.len(),
                Self::Refused { ids, .. } => ids.len() * 8,
                Self::ReadAsk { .. } | Self::ReadAnswer { .. } => 0,
            }
    }

    /// Says whether it is a message of raft.
    pub(super) fn is_raft(&self) -> bool {
        matches!(self, Self::Raft(_))
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Raft(_) => RAFT,
            Self::Forward { .. } => FORWARD,
            Self::Refused { .. } => REFUSED,
            Self::ReadAsk { .. } => READ_ASK,
            Self::ReadAnswer { .. } => READ_ANSWER,
        }
    }

    /// Appends it to a frame.
    pub(crate) fn encode(&self, frame: &mut Vec<u8>) {
        frame.push(self.kind());
        let length_at = frame.len();
        frame.extend([0; 4]);
        let body_at = frame.len();
        match self {
            Self::Raft(message) => message::encode(message, frame),
            Self::Forward { id, data } => {
                frame.extend(id.to_le_bytes());
                frame.extend_from_slice(data);
            }
            Self::Refused { ids, reason } => {
                frame.push(reason_number(*reason));
                for id in ids {
                    frame.extend(id.to_le_bytes());
                }
            }
            Self::ReadAsk { attempt } => frame.extend(attempt.to_le_bytes()),
            Self::ReadAnswer { attempt, index } => {
                frame.extend(attempt.to_le_bytes());
                if let Some(index) = index {
                    frame.extend(index.to_le_bytes());
                }
            }
        }
        let length = u32::try_from(frame.len() - body_at)
            .expect("a queue holds far less than 4 GiB, so one note does too");
        frame[length_at..body_at].copy_from_slice(&length.to_le_bytes());
    }

    /// Reads the notes of a frame; payloads share its bytes.
    pub(crate) fn decode_all(mut frame: Bytes) -> Result<Vec<Self>, NoteError> {
        let mut notes = Vec::new();
        while !frame.is_empty() {
            if frame.len() < HEAD {
                return Err(NoteError::Short);
            }
            let kind = frame.get_u8();
            let length = frame.get_u32_le() as usize;
            if frame.len() < length {
                return Err(NoteError::Short);
            }
            notes.extend(Self::decode(kind, frame.split_to(length))?);
        }
        Ok(notes)
    }

    fn decode(kind: u8, mut body: Bytes) -> Result<Option<Self>, NoteError> {
        let odd = |_| NoteError::Body(kind);
        let note = match kind {
            RAFT => Self::Raft(Box::new(message::decode(body)?)),
            FORWARD => Self::Forward {
                id: body.try_get_u64_le().map_err(odd)?,
                data: body,
            },
            REFUSED => {
                let reason = body.try_get_u8().map_err(odd)?;
                let reason = reason_of(reason).ok_or(NoteError::Body(kind))?;
                let mut ids = Vec::with_capacity(body.len() / 8);
                while !body.is_empty() {
                    ids.push(body.try_get_u64_le().map_err(odd)?);
                }
                Self::Refused { ids, reason }
            }
            READ_ASK => Self::ReadAsk {
                attempt: body.try_get_u64_le().map_err(odd)?,
            },
            READ_ANSWER => {
                let attempt = body.try_get_u64_le().map_err(odd)?;
                let index = match body.is_empty() {
                    true => None,
                    false => Some(body.try_get_u64_le().map_err(odd)?),
                };
                Self::ReadAnswer { attempt, index }
            }
            _ => return Ok(None),
        };
        Ok(Some(note))
    }
}

fn reason_number(reason: Refusal) -> u8 {
    match reason {
        Refusal::NotLeader => 1,
        Refusal::TooMany => 2,
        Refusal::Transferring => 3,
    }
}

fn reason_of(number: u8) -> Option<Refusal> {
    match number {
        1 => Some(Refusal::NotLeader),
        2 => Some(Refusal::TooMany),
        3 => Some(Refusal::Transferring),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_notes() -> Vec<Note> {
        vec![
            Note::ReadAsk { attempt: 7 },
            Note::Forward {
                id: u64::MAX,
                data: Bytes::from_static(b"put"),
            },
            Note::Forward {
                id: 1,
                data: Bytes::new(),
            },
            Note::Refused {
                ids: vec![1, 2, 3],
                reason: Refusal::TooMany,
            },
            Note::Refused {
                ids: Vec::new(),
                reason: Refusal::NotLeader,
            },
            Note::ReadAnswer {
                attempt: 7,
                index: Some(0),
            },
            Note::ReadAnswer {
                attempt: 8,
                index: None,
            },
            Note::Raft(Box::new(message::heartbeat(1, 2))),
        ]
    }

    fn frame(notes: &[Note]) -> Vec<u8> {
        let mut frame = Vec::new();
        for note in notes {
            note.encode(&mut frame);
        }
        frame
    }

    #[test]
    fn notes_come_back_as_they_were() {
        let notes = some_notes();
        assert_eq!(Note::decode_all(frame(&notes).into()), Ok(notes));
        assert_eq!(Note::decode_all(Bytes::new()), Ok(Vec::new()));
    }

    #[test]
    fn what_a_newer_member_adds_is_passed_over() {
        let mut bytes = vec![200, 3, 0, 0, 0, 1, 2, 3];
        bytes.extend(frame(&[Note::ReadAsk { attempt: 1 }]));
        let notes = Note::decode_all(bytes.into());
        assert_eq!(notes, Ok(vec![Note::ReadAsk { attempt: 1 }]));
    }

    #[test]
    fn no_cut_and_no_flipped_bit_does_worse_than_an_error() {
        let whole = frame(&some_notes());
        let mut lost = 0;
        for cut in 0..whole.len() {
            lost += usize::from(Note::decode_all(whole[..cut].to_vec().into()).is_err());
        }
        // All cuts but those between two notes are noticed.
        assert_eq!(lost, whole.len() - some_notes().len());
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Either is fine; it must not panic, nor make up what is not there.
            let _readable = Note::decode_all(bytes.into());
        }
    }
}
