//! The membership as rows.
//!
//! ```text
//! m<id BE64>  a member      g<id BE64>  one that is gone      c  cluster id, ConfState
//! ```
//!
//! Each is sealed ([`crate::wire::seal`]): a row that lies decides who votes.

use bytes::{BufMut, Bytes, BytesMut};

use super::codec::{member_info, put_member_info};
use super::{ConfState, Membership};
use crate::backend::BackendError;
use crate::codec::{CodecError, flag};
use crate::wire::{Reader, put_u64, seal, unseal};

const ROW_VERSION: u8 = 1;
const CLUSTER_KEY: &[u8] = b"c";

/// Names a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    Member(u64),
    Removed(u64),
    Cluster,
}

impl Row {
    fn key(self) -> Bytes {
        match self {
            Self::Member(id) => numbered(b'm', id),
            Self::Removed(id) => numbered(b'g', id),
            Self::Cluster => Bytes::from_static(CLUSTER_KEY),
        }
    }
}

fn numbered(kind: u8, id: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(kind);
    key.put_u64(id);
    key.freeze()
}

impl Membership {
    /// Returns all rows, for the first batch of a new tree.
    pub(crate) fn rows(&self) -> Vec<(Bytes, Bytes)> {
        if self.is_empty() {
            return Vec::new();
        }
        let members = self.members.keys().copied().map(Row::Member);
        let removed = self.removed.iter().copied().map(Row::Removed);
        members
            .chain(removed)
            .chain([Row::Cluster])
            .filter_map(|row| Some((row.key(), self.row(row)?)))
            .collect()
    }

    /// Returns a row's key and what it holds now, for the next batch.
    pub(super) fn keyed_row(&self, row: &Row) -> (Bytes, Option<Bytes>) {
        (row.key(), self.row(*row))
    }

    fn row(&self, row: Row) -> Option<Bytes> {
        let mut body = BytesMut::new();
        match row {
            Row::Member(id) => put_member_info(&mut body, self.members.get(&id)?),
            Row::Removed(id) => put_u64(&mut body, *self.removed.get(&id)?),
            Row::Cluster => {
                put_u64(&mut body, self.cluster_id);
                put_conf_state(&mut body, &self.conf_state);
            }
        }
        Some(seal(ROW_VERSION, &body))
    }

    /// Takes in a row found at the start.
    pub(crate) fn restore_row(&mut self, key: &Bytes, row: Bytes) -> Result<(), BackendError> {
        let bad = |reason: String| BackendError::corrupt(key, reason);
        let mut r = Reader::new(unseal(row, ROW_VERSION).map_err(bad)?);
        let found = match key.first() {
            Some(b'm') => member_info(&mut r).map(|member| {
                let row = Row::Member(member.id);
                self.members.insert(member.id, member);
                row
            }),
            Some(b'g') => r.u64().map_err(CodecError::from).map(|id| {
                self.removed.insert(id);
                Row::Removed(id)
            }),
            _ => self.restore_cluster(&mut r).map(|()| Row::Cluster),
        };
        let found = found.map_err(|error| bad(error.to_string()))?;
        if found.key() != key {
            return Err(bad("it belongs to another key".to_owned()));
        }
        match r.remaining() {
            0 => Ok(()),
            left => Err(bad(format!("{left} bytes too long"))),
        }
    }

    fn restore_cluster(&mut self, r: &mut Reader) -> Result<(), CodecError> {
        self.cluster_id = r.u64()?;
        self.conf_state = conf_state(r)?;
        Ok(())
    }
}

/// Appends a configuration.
pub(crate) fn put_conf_state(out: &mut BytesMut, c: &ConfState) {
    for ids in [&c.voters, &c.learners, &c.voters_outgoing, &c.learners_next] {
        put_u64(out, ids.len() as u64);
        for id in ids {
            put_u64(out, *id);
        }
    }
    out.put_u8(u8::from(c.auto_leave));
}

/// Reads a configuration.
pub(crate) fn conf_state(r: &mut Reader) -> Result<ConfState, CodecError> {
    let ids = |r: &mut Reader| crate::codec::list(r, |r| Ok(r.u64()?));
    Ok(ConfState {
        voters: ids(r)?,
        learners: ids(r)?,
        voters_outgoing: ids(r)?,
        learners_next: ids(r)?,
        auto_leave: flag(r)?,
    })
}
