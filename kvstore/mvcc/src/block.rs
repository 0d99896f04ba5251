//! Blocks: consecutive revisions packed into one row.
//!
//! A row in the engine costs more than the whole rest of a put, and revisions
//! only ever grow, so they are packed some tens of KiB together and keyed by
//! the first (DESIGN.md section 3).
//!
//! ```text
//! key    'b' main(8, BE) sub(4, BE)             of the first revision inside
//! value  version(1) crc32(4, BE, over what follows)
//!        count(4, BE)
//!        count x [ main(8) sub(4) offset(4) ]   ascending; offset into the records
//!        records: flags create version lease key value     (see `wire`)
//! ```
//!
//! The table makes a point read two binary searches and no copy: key and value
//! are slices of the block.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::BackendError;
use crate::key_index::Rev;
use crate::response::{KeyValue, Pair};
use crate::wire::{Reader, WireError, put_bytes, put_i64};

const VERSION: u8 = 1;
const HEADER: usize = 9;
const SLOT: usize = 16;
const TOMBSTONE: u8 = 1;

/// Is one change with its value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Record {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) create: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
    pub(crate) tombstone: bool,
}

impl Record {
    /// Counts the bytes a record takes in memory and, roughly, in a block.
    pub(crate) fn cost(&self) -> usize {
        const OVERHEAD: usize = 64;
        self.key.len() + self.value.len() + OVERHEAD
    }

    pub(crate) fn peek(&self) -> Peek<'_> {
        Peek {
            key: &self.key,
            value: &self.value,
            create: self.create,
            version: self.version,
            lease: self.lease,
            tombstone: self.tombstone,
        }
    }

    /// Makes the pair of it; not for a tombstone.
    pub(crate) fn into_kv(self, rev: Rev) -> KeyValue {
        KeyValue {
            key: self.key,
            create_revision: self.create,
            mod_revision: rev.main,
            version: self.version,
            value: self.value,
            lease: self.lease,
        }
    }
}

/// Is a record where it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peek<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) create: i64,
    pub(crate) version: i64,
    pub(crate) lease: i64,
    pub(crate) tombstone: bool,
}

impl<'a> Peek<'a> {
    /// Makes the pair of it; not for a tombstone.
    pub(crate) fn pair(self, rev: Rev) -> Pair<'a> {
        Pair {
            key: self.key,
            create_revision: self.create,
            mod_revision: rev.main,
            version: self.version,
            value: self.value,
            lease: self.lease,
        }
    }
}

/// Builds the row key of a block.
pub(crate) fn row_key(first: Rev) -> Bytes {
    let mut key = BytesMut::with_capacity(13);
    key.put_u8(b'b');
    key.put_i64(first.main);
    key.put_u32(first.sub);
    key.freeze()
}

/// Reads the revision out of a row key.
pub(crate) fn parse_row_key(key: &[u8]) -> Option<Rev> {
    let (tag, rest) = key.split_first()?;
    let (main, sub) = rest.split_first_chunk::<8>()?;
    let sub: [u8; 4] = sub.try_into().ok()?;
    (*tag == b'b').then(|| Rev::new(i64::from_be_bytes(*main), u32::from_be_bytes(sub)))
}

/// Collects records into a block.
#[derive(Default)]
pub(crate) struct Builder {
    slots: BytesMut,
    records: BytesMut,
    first: Option<Rev>,
    last: Rev,
    count: u32,
}

/// Describes a finished block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockInfo {
    /// The last revision inside.
    pub(crate) last: Rev,
    pub(crate) count: u32,
    pub(crate) bytes: u32,
    /// How many of the records compaction has made unreachable since.
    pub(crate) dead: u32,
}

impl BlockInfo {
    /// Returns what one record takes, on average.
    pub(crate) fn record_bytes(&self) -> u64 {
        u64::from(self.bytes / self.count.max(1))
    }
}

impl Builder {
    pub(crate) fn push(&mut self, rev: Rev, r: &Record) {
        debug_assert!(self.first.is_none() || self.last < rev);
        self.first.get_or_insert(rev);
        self.last = rev;
        self.count += 1;
        self.slots.put_i64(rev.main);
        self.slots.put_u32(rev.sub);
        self.slots.put_u32(self.records.len() as u32);
        self.records.put_u8(if r.tombstone { TOMBSTONE } else { 0 });
        put_i64(&mut self.records, r.create);
        put_i64(&mut self.records, r.version);
        put_i64(&mut self.records, r.lease);
        put_bytes(&mut self.records, &r.key);
        put_bytes(&mut self.records, &r.value);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the size the finished block would have.
    pub(crate) fn bytes(&self) -> usize {
        HEADER + self.slots.len() + self.records.len()
    }

    /// Finishes the block, leaving the builder empty; `None` if it was.
    pub(crate) fn finish(&mut self) -> Option<(Rev, BlockInfo, Bytes)> {
        let done = std::mem::take(self);
        let first = done.first?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&done.count.to_be_bytes());
        crc.update(&done.slots);
        crc.update(&done.records);
        let mut out = BytesMut::with_capacity(done.bytes());
        out.put_u8(VERSION);
        out.put_u32(crc.finalize());
        out.put_u32(done.count);
        out.put_slice(&done.slots);
        out.put_slice(&done.records);
        let info = BlockInfo {
            last: done.last,
            count: done.count,
            bytes: out.len() as u32,
            dead: 0,
        };
        Some((first, info, out.freeze()))
    }
}

/// Is a block as read back, its checksum verified.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    first: Rev,
    data: Bytes,
    count: usize,
}

impl Block {
    /// Verifies a row and wraps it.
    pub(crate) fn open(first: Rev, data: Bytes) -> Result<Self, BackendError> {
        let bad = |reason: &str| Err(BackendError::corrupt(&row_key(first), reason));
        if data.len() < HEADER {
            return bad("shorter than its header");
        }
        if data[0] != VERSION {
            return bad(&format!(
                "block version {}, this build reads {VERSION}",
                data[0]
            ));
        }
        if be32(&data, 1) != crc32fast::hash(&data[5..]) {
            return bad("checksum mismatch");
        }
        let count = be32(&data, 5) as usize;
        if count == 0 || count > (data.len() - HEADER) / SLOT {
            return bad("impossible count");
        }
        let block = Self { first, data, count };
        if block.rev(0) != first {
            return bad("first revision differs from the row's key");
        }
        Ok(block)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn info(&self) -> BlockInfo {
        BlockInfo {
            last: self.rev(self.count - 1),
            count: self.count as u32,
            bytes: self.data.len() as u32,
            dead: 0,
        }
    }

    /// Returns the revision of the record at a place.
    pub(crate) fn rev(&self, at: usize) -> Rev {
        let slot = HEADER + at * SLOT;
        let main =
            (u64::from(be32(&self.data, slot)) << 32) | u64::from(be32(&self.data, slot + 4));
        Rev::new(main as i64, be32(&self.data, slot + 8))
    }

    /// Returns the place of the first record at or after a revision.
    pub(crate) fn lower_bound(&self, rev: Rev) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.rev(mid) < rev {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low
    }

    /// Finds the place of a revision.
    pub(crate) fn place(&self, rev: Rev) -> Option<usize> {
        let is_at = |at: usize| at < self.count && self.rev(at) == rev;
        // Where it is unless transactions wrote several keys or compaction took some.
        let likely = usize::try_from(rev.main - self.first.main).ok()?;
        if is_at(likely) {
            return Some(likely);
        }
        let at = self.lower_bound(rev);
        is_at(at).then_some(at)
    }

    /// Says whether it is the block that is described.
    pub(crate) fn is(&self, info: &BlockInfo) -> bool {
        self.count == info.count as usize && self.rev(self.count - 1) == info.last
    }

    /// Finds a revision.
    pub(crate) fn find(&self, rev: Rev) -> Result<Option<Record>, BackendError> {
        self.place(rev).map(|at| self.record(at)).transpose()
    }

    /// Reads the record at a place.
    pub(crate) fn record(&self, at: usize) -> Result<Record, BackendError> {
        let peek = self.peek(at)?;
        Ok(Record {
            key: self.data.slice_ref(peek.key),
            value: self.data.slice_ref(peek.value),
            create: peek.create,
            version: peek.version,
            lease: peek.lease,
            tombstone: peek.tombstone,
        })
    }

    /// Looks at the record at a place.
    pub(crate) fn peek(&self, at: usize) -> Result<Peek<'_>, BackendError> {
        parse_record(self.bytes_of(at)).map_err(|_short| self.corrupt())
    }

    /// Returns the bytes of the record at a place; none if its place is damaged.
    pub(crate) fn bytes_of(&self, at: usize) -> &[u8] {
        let offset = |at: usize| match at < self.count {
            true => {
                let offset = be32(&self.data, HEADER + at * SLOT + 12) as usize;
                HEADER + self.count * SLOT + offset
            }
            false => self.data.len(),
        };
        let record = self.data.get(offset(at)..offset(at + 1));
        record.unwrap_or_default()
    }

    fn corrupt(&self) -> BackendError {
        BackendError::corrupt(&row_key(self.first), "a record runs past the end")
    }
}

fn parse_record(data: &[u8]) -> Result<Peek<'_>, WireError> {
    let mut r = Reader::new(data);
    Ok(Peek {
        tombstone: r.u8()? & TOMBSTONE != 0,
        create: r.i64()?,
        version: r.i64()?,
        lease: r.i64()?,
        key: r.slice()?,
        value: r.slice()?,
    })
}

/// Reads four bytes whose presence the caller has established.
fn be32(data: &[u8], at: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&data[at..at + 4]);
    u32::from_be_bytes(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(n: i64) -> Record {
        Record {
            key: Bytes::from(format!("key{n}")),
            value: Bytes::from(vec![n as u8; n as usize]),
            create: n,
            version: 1,
            lease: -n,
            tombstone: n % 3 == 0,
        }
    }

    fn build() -> (Rev, BlockInfo, Bytes) {
        let mut b = Builder::default();
        for n in 1..50 {
            b.push(Rev::new(n * 2, n as u32), &record(n));
        }
        let size = b.bytes();
        let done = b.finish().unwrap();
        assert!(b.is_empty());
        assert_eq!(done.2.len(), size);
        done
    }

    #[test]
    fn what_goes_in_comes_out() {
        let (first, info, data) = build();
        assert_eq!(parse_row_key(&row_key(first)), Some(first));
        let block = Block::open(first, data).unwrap();
        assert_eq!(block.info(), info);
        for n in 1..50 {
            assert_eq!(
                block.find(Rev::new(n * 2, n as u32)).unwrap(),
                Some(record(n))
            );
            assert_eq!(block.find(Rev::new(n * 2 + 1, 0)).unwrap(), None);
        }
        assert_eq!(block.lower_bound(Rev::new(0, 0)), 0);
        assert_eq!(block.lower_bound(Rev::new(i64::MAX, 0)), block.len());
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let (first, _, data) = build();
        for at in 0..data.len() {
            let mut bad = data.to_vec();
            bad[at] ^= 0x10;
            assert!(Block::open(first, Bytes::from(bad)).is_err(), "byte {at}");
        }
        for cut in 0..data.len() {
            assert!(Block::open(first, data.slice(..cut)).is_err(), "cut {cut}");
        }
        assert!(
            Block::open(Rev::new(1, 0), data).is_err(),
            "under another key"
        );
    }
}
