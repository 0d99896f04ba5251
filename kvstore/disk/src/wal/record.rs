//! The bytes of one record, and what a bad one proves.
//!
//! ```text
//!  0 head_crc u32   crc32 of bytes 4..32
//!  4 body_crc u32   crc32 of prev, kind, len and payload
//!  8 prev     u32   body_crc of the record before: the chain
//! 12 synced   u32   bytes of this segment known to be durable when this was written
//! 16 len      u32   of the payload
//! 20 segment  u32   number of the segment, so that a misplaced sector shows
//! 24 kind     u8 (0xA1..0xA4), then seven zeros
//! 32 payload, one byte 0xC3, zeros up to a multiple of eight
//! ```
//!
//! All little-endian. A segment starts as zeros, so a head of zeros is its end.
//! Every byte of a record is covered: by a checksum, or by having to be 0xC3 or 0.
//!
//! `synced` is what tells a torn write from decay. Writes are made and synced one
//! after the other, so a record found *behind* a bad one and saying that the bad
//! one's place was already synced proves that the disk had it and lost it.

use std::ops::Range;

/// Bytes before the payload.
pub(crate) const HEAD: usize = 32;
const ALIGN: usize = 8;
/// Ends the payload; not zero, so that a missing tail shows.
const TRAILER: u8 = 0xC3;
/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What a record says. No code is one flipped bit away from zero, which would
/// look like a sector that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first of a segment: whose log, and its state so far.
    Segment = 0xA1,
    /// A hard state.
    HardState = 0xA2,
    /// An entry; it replaces all from its index on.
    Entry = 0xA3,
    /// Everything up to an index lives in a snapshot.
    Snapshot = 0xA4,
    /// The log begins anew: an index, its term, and the hard state.
    Base = 0xA5,
}

impl Kind {
    fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            0xA1 => Self::Segment,
            0xA2 => Self::HardState,
            0xA3 => Self::Entry,
            0xA4 => Self::Snapshot,
            0xA5 => Self::Base,
            _ => return None,
        })
    }
}

/// Returns the bytes a record with this payload takes.
pub(crate) fn size(payload: usize) -> usize {
    (HEAD + payload + 1).next_multiple_of(ALIGN)
}

/// Appends records for one segment, each chained to the one before.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Number of the segment, its low half.
    pub(crate) segment: u32,
    /// `body_crc` of the last record.
    pub(crate) chain: u32,
    /// Bytes of the segment that are durable.
    pub(crate) synced: u32,
}

impl Writer {
    /// Appends one record; `fill` appends the payload.
    pub(crate) fn record(
        &mut self,
        out: &mut Vec<u8>,
        kind: Kind,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        out.resize(start + HEAD, 0);
        fill(out);
        let payload = start + HEAD..out.len();
        let len = u32::try_from(payload.len()).expect("a request is far below 4 GiB");
        out.push(TRAILER);
        out.resize(start + size(payload.len()), 0);

        let body_crc = body_crc(self.chain, kind as u8, len, &out[payload]);
        let mut head = [0; HEAD];
        head[4..8].copy_from_slice(&body_crc.to_le_bytes());
        head[8..12].copy_from_slice(&self.chain.to_le_bytes());
        head[12..16].copy_from_slice(&self.synced.to_le_bytes());
        head[16..20].copy_from_slice(&len.to_le_bytes());
        head[20..24].copy_from_slice(&self.segment.to_le_bytes());
        head[24] = kind as u8;
        let head_crc = crc32fast::hash(&head[4..]);
        head[..4].copy_from_slice(&head_crc.to_le_bytes());
        out[start..start + HEAD].copy_from_slice(&head);
        self.chain = body_crc;
    }
}

fn body_crc(prev: u32, kind: u8, len: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&prev.to_le_bytes());
    hasher.update(&[kind]);
    hasher.update(&len.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// A head whose checksum holds.
#[derive(Clone, Copy, Debug)]
struct Head {
    body_crc: u32,
    prev: u32,
    synced: u32,
    len: usize,
    kind: Kind,
}

impl Head {
    fn read(bytes: &[u8], at: usize, segment: u32) -> Option<Self> {
        let head: &[u8; HEAD] = bytes.get(at..at + HEAD)?.try_into().ok()?;
        let word = |from: usize| {
            u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
        };
        if word(0) != crc32fast::hash(&head[4..]) || word(20) != segment {
            return None;
        }
        let kind = Kind::from_u8(head[24])?;
        let len = usize::try_from(word(16)).ok()?;
        Some(Self {
            body_crc: word(4),
            prev: word(8),
            synced: word(12),
            len,
            kind,
        })
    }
}

/// A good record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) payload: Range<usize>,
    pub(crate) chain: u32,
    pub(crate) end: usize,
}

/// What is found at a place in a segment.
#[derive(Debug)]
pub(crate) enum Found {
    Record(Record),
    /// Zeros, or no room for a record.
    End,
    /// Neither.
    Bad(String),
}

/// Reads the record at `at`, which must follow one that ended with `chain`.
/// Without `chain` (the first record of the oldest segment) any is taken.
pub(crate) fn read(bytes: &[u8], at: usize, chain: Option<u32>, segment: u32) -> Found {
    let Some(raw) = bytes.get(at..at + HEAD) else {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let empty = rest.iter().all(|byte| *byte == 0);
        return if empty {
            Found::End
        } else {
            Found::Bad("a record's head is cut short".to_owned())
        };
    };
    if raw.iter().all(|byte| *byte == 0) {
        return Found::End;
    }
    let Some(head) = Head::read(bytes, at, segment) else {
        return Found::Bad("checksum mismatch in a record's head".to_owned());
    };
    if chain.is_some_and(|chain| chain != head.prev) {
        return Found::Bad("a record does not follow the one before it".to_owned());
    }
    let payload = at + HEAD..at + HEAD + head.len;
    let end = at + size(head.len);
    let (Some(body), Some(tail)) = (bytes.get(payload.clone()), bytes.get(payload.end..end)) else {
        return Found::Bad("a record is cut short".to_owned());
    };
    let accepts = mutants::planted(mutants::Bug::TornRecordAccepted);
    if body_crc(head.prev, head.kind as u8, raw_len(head.len), body) != head.body_crc && !accepts {
        return Found::Bad("checksum mismatch in a record's body".to_owned());
    }
    if accepts {
        // Nothing is looked at.
    } else if tail[0] != TRAILER || tail[1..].iter().any(|byte| *byte != 0) {
        return Found::Bad("a record's end is damaged".to_owned());
    }
    Found::Record(Record {
        kind: head.kind,
        payload,
        chain: head.body_crc,
        end,
    })
}

fn raw_len(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// What a bad record at the end of the log means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The last write was torn; nothing from here on was ever acknowledged.
    Torn,
    /// The disk lost what it had.
    Corrupt(&'static str),
}

/// Judges what is not a record at `at` in the last segment, up to `used`, the end
/// of its last byte that is not zero.
///
/// Torn means: some sector of the last write did not reach the disk (it is zero
/// where the write was not), or the file ends before the write does. A flipped
/// bit does not turn a sector to zeros.
pub(crate) fn judge(bytes: &[u8], at: usize, used: usize, segment: u32) -> Verdict {
    let mut place = at;
    while place + HEAD <= used {
        if let Some(head) = Head::read(bytes, place, segment)
            && usize::try_from(head.synced).is_ok_and(|synced| synced > at)
        {
            return Verdict::Corrupt("and later writes prove that it was synced");
        }
        place += ALIGN;
    }
    let Some(head) = Head::read(bytes, at, segment) else {
        let cut = used <= at + HEAD;
        if cut || lost_sector(bytes, at..at + HEAD) {
            return Verdict::Torn;
        }
        return Verdict::Corrupt("and no torn write leaves such a head");
    };
    let payload_end = at + HEAD + head.len;
    match bytes.get(payload_end) {
        None | Some(0) => Verdict::Torn,
        Some(&TRAILER) if !lost_sector(bytes, at..payload_end + 1) => {
            Verdict::Corrupt("and the whole record was written")
        }
        Some(&TRAILER) => Verdict::Torn,
        Some(_) => Verdict::Corrupt("and no torn write leaves such an end"),
    }
}

/// Says whether some sector's share of the range is all zeros.
fn lost_sector(bytes: &[u8], range: Range<usize>) -> bool {
    let mut from = range.start;
    while from < range.end {
        let to = ((from / SECTOR + 1) * SECTOR).min(range.end);
        match bytes.get(from..to) {
            Some(share) if share.iter().all(|byte| *byte == 0) => return true,
            Some(_) => {}
            None => return true,
        }
        from = to;
    }
    false
}
