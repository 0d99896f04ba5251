//! The bytes of pages, elements and meta (bbolt `page.go`, `db.go`); all numbers
//! little-endian.
//!
//! ```text
//! page     id u64 | flags u16 | count u16 | overflow u32 | elements | keys, values
//! branch   pos u32 | key length u32 | child u64
//! leaf     flags u32 | pos u32 | key length u32 | value length u32
//! meta     magic u32 | version u32 | page size u32 | flags u32 | root u64 sequence u64
//!          | freelist u64 | pages in use u64 | transaction u64 | FNV-64a of the above
//! bucket   root u64 | sequence u64 | its leaf, if root is 0
//! ```
//!
//! `pos` counts from the element itself.

use crate::error::MetaProblem;

/// Bytes of a page in files written here.
pub const PAGE_SIZE: usize = 4096;

pub(crate) const PAGE_HEADER: usize = 16;
/// Bytes of an element, in a branch and in a leaf alike.
pub(crate) const ELEMENT: usize = 16;
pub(crate) const META: usize = 64;
pub(crate) const BUCKET_HEADER: usize = 16;

pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const META_PAGE: u16 = 0x04;
pub(crate) const FREELIST: u16 = 0x10;

/// Marks a leaf element whose value describes a bucket.
pub(crate) const IS_BUCKET: u32 = 0x01;

/// Stands for a freelist that was not written (bbolt `NoFreelistSync`).
pub(crate) const NO_FREELIST: u64 = u64::MAX;

/// Says that a freelist's count does not fit its header and is its first number.
pub(crate) const COUNT_FOLLOWS: u16 = 0xffff;

const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;

/// Page sizes a file may have: bbolt takes the system's, 4 KiB to 64 KiB in life.
pub(crate) const PAGE_SIZES: std::ops::RangeInclusive<u32> = 1024..=65536;

/// Is the head of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u64,
    pub(crate) flags: u16,
    pub(crate) count: u16,
    pub(crate) overflow: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; PAGE_HEADER] {
        let mut out = [0; PAGE_HEADER];
        out[..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..10].copy_from_slice(&self.flags.to_le_bytes());
        out[10..12].copy_from_slice(&self.count.to_le_bytes());
        out[12..].copy_from_slice(&self.overflow.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; PAGE_HEADER]) -> Self {
        Self {
            id: le64(bytes, 0),
            flags: u16::from_le_bytes([bytes[8], bytes[9]]),
            count: u16::from_le_bytes([bytes[10], bytes[11]]),
            overflow: le32(bytes, 12),
        }
    }
}

/// Is what a meta page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) page_size: u32,
    pub(crate) root: u64,
    pub(crate) freelist: u64,
    /// Pages in use, free ones included: one more than the highest.
    pub(crate) used: u64,
    pub(crate) transaction: u64,
}

impl Meta {
    pub(crate) fn encode(&self) -> [u8; META] {
        let mut out = [0; META];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.page_size.to_le_bytes());
        out[16..24].copy_from_slice(&self.root.to_le_bytes());
        out[32..40].copy_from_slice(&self.freelist.to_le_bytes());
        out[40..48].copy_from_slice(&self.used.to_le_bytes());
        out[48..56].copy_from_slice(&self.transaction.to_le_bytes());
        let sum = fnv64a(&out[..56]);
        out[56..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; META]) -> Result<Self, MetaProblem> {
        let magic = le32(bytes, 0);
        if magic != MAGIC {
            return Err(MetaProblem::Magic(magic));
        }
        let version = le32(bytes, 4);
        if version != VERSION {
            return Err(MetaProblem::Version(version));
        }
        if fnv64a(&bytes[..56]) != le64(bytes, 56) {
            return Err(MetaProblem::Checksum);
        }
        let page_size = le32(bytes, 8);
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(MetaProblem::PageSize(page_size));
        }
        Ok(Self {
            page_size,
            root: le64(bytes, 16),
            freelist: le64(bytes, 32),
            used: le64(bytes, 40),
            transaction: le64(bytes, 48),
        })
    }
}

/// Describes one element of a branch or a leaf, its numbers as found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element {
    pub(crate) flags: u32,
    pub(crate) pos: u32,
    pub(crate) key_len: u32,
    pub(crate) value_len: u32,
}

impl Element {
    pub(crate) fn leaf(&self) -> [u8; ELEMENT] {
        let mut out = [0; ELEMENT];
        out[..4].copy_from_slice(&self.flags.to_le_bytes());
        out[4..8].copy_from_slice(&self.pos.to_le_bytes());
        out[8..12].copy_from_slice(&self.key_len.to_le_bytes());
        out[12..].copy_from_slice(&self.value_len.to_le_bytes());
        out
    }

    pub(crate) fn decode_leaf(bytes: &[u8], at: usize) -> Self {
        Self {
            flags: le32(bytes, at),
            pos: le32(bytes, at + 4),
            key_len: le32(bytes, at + 8),
            value_len: le32(bytes, at + 12),
        }
    }
}

/// Encodes an element of a branch.
pub(crate) fn branch_element(pos: u32, key_len: u32, child: u64) -> [u8; ELEMENT] {
    let mut out = [0; ELEMENT];
    out[..4].copy_from_slice(&pos.to_le_bytes());
    out[4..8].copy_from_slice(&key_len.to_le_bytes());
    out[8..].copy_from_slice(&child.to_le_bytes());
    out
}

/// Reads four bytes whose presence the caller has established.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut b = [0; 4];
    b.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(b)
}

/// Reads eight bytes whose presence the caller has established.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(b)
}

/// Computes FNV-64a.
fn fnv64a(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(BASIS, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_values_of_fnv() {
        assert_eq!(fnv64a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv64a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv64a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let header = Header {
            id: 7,
            flags: LEAF,
            count: 300,
            overflow: 2,
        };
        assert_eq!(Header::decode(&header.encode()), header);
        let meta = Meta {
            page_size: 4096,
            root: 5,
            freelist: 2,
            used: 9,
            transaction: 3,
        };
        assert_eq!(Meta::decode(&meta.encode()), Ok(meta));
        for at in 0..META {
            let mut bytes = meta.encode();
            bytes[at] ^= 4;
            assert!(Meta::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
