//! The ids of recent proposals, so that a second copy changes nothing.
//!
//! Raft may commit a proposal twice: one that was retried, or forwarded and
//! retried. Every member must then refuse the same copy, also one that was
//! restarted in between, so the ids are part of the replicated state and are
//! written with it, in pages of a ring.

use std::collections::{BTreeSet, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};

use crate::backend::BackendError;
use crate::values::Rows;

/// How many of the last proposals are remembered. A copy that arrives later
/// than this many others is applied again; retries are bounded by request
/// timeouts, in which far fewer fit.
pub(crate) const PROPOSALS_REMEMBERED: u64 = 8192;

const PAGE: u64 = 512;

/// Remembers ids.
#[derive(Debug, Default)]
pub(crate) struct Dedupe {
    /// The number of ids ever taken in; the next one's sequence number.
    next: u64,
    /// Recent ids with the log index they came at, up to `next`; longer than
    /// what is remembered while a write-back is behind.
    ring: VecDeque<(u64, u64)>,
    seen: BTreeSet<u64>,
    /// The sequence number up to which pages are written.
    written: u64,
}

impl Dedupe {
    /// Takes in an id; returns whether it is new. 0 always is.
    pub(crate) fn admit(&mut self, id: u64, index: u64) -> bool {
        if id == 0 {
            return true;
        }
        if !self.seen.insert(id) {
            return false;
        }
        self.ring.push_back((id, index));
        self.next += 1;
        if let Some(old) = self.next.checked_sub(PROPOSALS_REMEMBERED + 1)
            && let Some((id, _)) = self.nth(old)
        {
            self.seen.remove(&id);
        }
        true
    }

    /// Returns the sequence number after the last id up to a log index.
    pub(crate) fn cut(&self, index: u64) -> u64 {
        let upto = self.ring.partition_point(|(_, i)| *i <= index) as u64;
        self.base() + upto
    }

    /// Adds the pages that hold the ids up to `cut` and are not yet written,
    /// and the removal of those no longer needed.
    pub(crate) fn rows(&self, cut: u64, rows: &mut Rows) {
        let needed = |next: u64| next.saturating_sub(PROPOSALS_REMEMBERED) / PAGE;
        let mut page = (self.written / PAGE).max(needed(cut));
        while page * PAGE < cut {
            let start = (page * PAGE).max(self.base());
            let end = ((page + 1) * PAGE).min(cut);
            let mut row = BytesMut::with_capacity(((end - start) * 8 + 8) as usize);
            row.put_u64(start);
            for seq in start..end {
                row.put_u64(self.nth(seq).map_or(0, |(id, _)| id));
            }
            rows.push((row_key(page), Some(row.freeze())));
            page += 1;
        }
        for page in needed(self.written)..needed(cut) {
            if page * PAGE < self.written {
                rows.push((row_key(page), None));
            }
        }
    }

    /// Notes that the ids up to `cut` are in the tree.
    pub(crate) fn written(&mut self, cut: u64) {
        self.written = cut;
        // Keep what is remembered, and the whole page being filled.
        let keep = cut.min(self.next.saturating_sub(PROPOSALS_REMEMBERED)) / PAGE * PAGE;
        while self.base() < keep {
            self.ring.pop_front();
        }
    }

    pub(crate) fn restore_row(&mut self, key: &[u8], row: &[u8]) -> Result<(), BackendError> {
        let (start, ids) = row
            .split_first_chunk::<8>()
            .ok_or_else(|| BackendError::corrupt(key, "shorter than its header"))?;
        let start = u64::from_be_bytes(*start);
        let ids = ids
            .as_chunks::<8>()
            .0
            .iter()
            .map(|c| u64::from_be_bytes(*c));
        for (seq, id) in (start..).zip(ids) {
            if self.ring.is_empty() {
                self.next = seq;
            }
            if seq == self.next {
                self.ring.push_back((id, 0));
                self.next += 1;
            }
        }
        Ok(())
    }

    /// Ends restoring: pages are in, `next` comes from the state row.
    pub(crate) fn restored(&mut self, next: u64) -> Result<(), BackendError> {
        if self.next != next {
            return Err(BackendError::corrupt(
                b"d",
                format!("ids end at {}, not {next}", self.next),
            ));
        }
        self.written = next;
        let remembered = self.ring.iter().rev().take(PROPOSALS_REMEMBERED as usize);
        self.seen = remembered.map(|(id, _)| *id).collect();
        self.written(next);
        Ok(())
    }

    fn base(&self) -> u64 {
        self.next - self.ring.len() as u64
    }

    fn nth(&self, seq: u64) -> Option<(u64, u64)> {
        let at = usize::try_from(seq.checked_sub(self.base())?).ok()?;
        self.ring.get(at).copied()
    }
}

/// Builds the row key of a page.
fn row_key(page: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(b'd');
    key.put_u64(page);
    key.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_copy_is_refused_until_forgotten() {
        let mut d = Dedupe::default();
        assert!(d.admit(7, 1));
        assert!(!d.admit(7, 2));
        assert!(d.admit(0, 3) && d.admit(0, 4));
        for id in 100..100 + PROPOSALS_REMEMBERED - 1 {
            assert!(d.admit(id, id));
        }
        assert!(!d.admit(7, 0), "the 8192nd from the end is still known");
        assert!(d.admit(99, 0));
        assert!(d.admit(7, 0), "one more and it is not");
    }

    #[test]
    fn a_restart_at_any_moment_remembers_the_same() {
        let mut d = Dedupe::default();
        let mut tree = BTreeMap::new();
        let step = 333;
        for n in 1..30_000u64 {
            d.admit(n, n);
            if n % step != 0 {
                continue;
            }
            // The write-back lags behind by a hundred entries.
            let cut = d.cut(n - 100);
            assert_eq!(cut, n - 100);
            let mut rows = Rows::new();
            d.rows(cut, &mut rows);
            for (k, v) in rows {
                match v {
                    Some(v) => tree.insert(k, v),
                    None => tree.remove(&k),
                };
            }
            d.written(cut);
            let mut again = Dedupe::default();
            for (k, v) in &tree {
                again.restore_row(k, v).unwrap();
            }
            again.restored(cut).unwrap();
            let oldest = cut.saturating_sub(PROPOSALS_REMEMBERED) + 1;
            assert_eq!(
                again.seen.iter().copied().collect::<Vec<_>>(),
                (oldest..=cut).collect::<Vec<_>>()
            );
            assert!(tree.len() as u64 <= PROPOSALS_REMEMBERED / PAGE + 2);
            assert!(d.ring.len() as u64 <= PROPOSALS_REMEMBERED + PAGE + 100);
        }
    }
}
