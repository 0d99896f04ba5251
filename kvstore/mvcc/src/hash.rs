//! The hash of the history, byte for byte etcd's HashKV, so that members can be
//! compared with each other and with a real etcd.
//!
//! CRC-32C over the name of etcd's bucket and then, for each revision up to the
//! one asked for, what etcd has on disk: the 17-byte revision (18 for a
//! tombstone) and the protobuf of the pair (`server/storage/mvcc/hash.go`).
//! At or below the compacted revision only what is visible at the asked one
//! counts, since members may be at different stages of deleting the rest.

use std::ops::ControlFlow;

use bytes::{BufMut, BytesMut};

use crate::block::Record;
use crate::crc32c::Crc32c;
use crate::error::Error;
use crate::key_index::{Rev, Span};
use crate::machine::StateMachine;
use crate::view::Reading;
use crate::wire::put_u64;

/// Is the answer to HashKV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvHash {
    /// The hash.
    pub hash: u32,
    /// The compacted revision it was taken under; only equal ones compare.
    pub compact_revision: i64,
    /// The revision up to which it was taken.
    pub hash_revision: i64,
}

impl StateMachine {
    /// Hashes the history up to a revision, 0 for the present one; below zero
    /// there is none, which etcd hashes all the same. Reads every value;
    /// [`crate::View::hash_kv`] does it apart from the machine.
    pub fn hash_kv(&self, revision: i64) -> Result<KvHash, Error> {
        self.reading().hash_kv(revision)
    }
}

impl Reading<'_> {
    pub(crate) fn hash_kv(self, revision: i64) -> Result<KvHash, Error> {
        if revision > 0 && revision < self.compacted {
            return Err(Error::Compacted);
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        let revision = if revision == 0 {
            self.revision
        } else {
            revision
        };
        // With nothing visible then, etcd leaves out nothing it still has: what
        // was visible at the compacted revision.
        let mut entries = self.index.walk(Span::Many(b"", None));
        let none_visible = entries.all(|(_, e)| e.at(revision).is_none());
        let kept_at = if none_visible {
            self.compacted
        } else {
            revision
        };
        let mut crc = Crc32c::new();
        crc.update(b"key");
        let mut buffer = BytesMut::new();
        self.records
            .scan(Rev::default(), revision, &mut |rev, record| {
                let entry = self.index.get(&record.key).filter(|e| e.has(rev));
                let kept =
                    entry.is_some_and(|e| rev.main > self.compacted || e.at(kept_at) == Some(rev));
                // Older etcd deletes a tombstone at the compacted revision, newer
                // keeps it and leaves it out here, so that both hash alike.
                let doubtful = record.tombstone && rev.main == self.compacted;
                if kept && !doubtful {
                    buffer.clear();
                    encode(rev, record, &mut buffer);
                    crc.update(&buffer);
                }
                ControlFlow::Continue(())
            })?;
        Ok(KvHash {
            hash: crc.finish(),
            compact_revision: self.compacted,
            hash_revision: revision,
        })
    }
}

/// Writes what etcd has on disk for a change: the revision, then the pair.
fn encode(rev: Rev, record: &Record, out: &mut BytesMut) {
    out.put_i64(rev.main);
    out.put_u8(b'_');
    out.put_u64(u64::from(rev.sub));
    if record.tombstone {
        out.put_u8(b't');
    }
    put_field_bytes(out, 1, &record.key);
    if !record.tombstone {
        put_field(out, 2, record.create);
        put_field(out, 3, rev.main);
        put_field(out, 4, record.version);
        put_field_bytes(out, 5, &record.value);
        put_field(out, 6, record.lease);
    }
}

/// Writes a protobuf varint field; zero is left out.
fn put_field(out: &mut BytesMut, number: u8, value: i64) {
    if value != 0 {
        out.put_u8(number << 3);
        put_u64(out, value as u64);
    }
}

/// Writes a protobuf bytes field; empty is left out.
fn put_field_bytes(out: &mut BytesMut, number: u8, value: &[u8]) {
    if !value.is_empty() {
        out.put_u8(number << 3 | 2);
        put_u64(out, value.len() as u64);
        out.put_slice(value);
    }
}
