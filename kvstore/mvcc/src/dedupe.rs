//! The ids of recent proposals, so that a second copy changes nothing.
//!
//! Raft may commit a proposal twice: one that was retried, or forwarded and sent
//! again to the next leader. Every member must then refuse the same copy, also one
//! that was restarted in between or began with a snapshot, so the ids are part of
//! the replicated state and are written with it, in pages.
//!
//! It is exact, however late a copy comes. Each proposal says the index that its
//! proposer had applied when it made it (`since`), so that every copy of it lies
//! behind that. One that lies more than [`WINDOW`] entries behind is refused without
//! being looked up; and of all others the first copy is within the window too:
//!
//! ```text
//! since < first copy < second copy <= since + WINDOW
//! ```
//!
//! so remembering the ids of the last [`WINDOW`] entries is enough.

use std::collections::{BTreeSet, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};

use crate::backend::BackendError;
use crate::error::Error;
use crate::values::Rows;
use crate::wire::{Reader, WireError, put_u64, seal, unseal};

/// How many entries behind its proposer's applied index a proposal may be committed,
/// and for how many its id is remembered: some seconds of a busy log, and 2.5 MB.
/// Later it is refused with [`Error::StaleProposal`].
pub const WINDOW: u64 = 65_536;

/// Ids in one row.
const PAGE: u64 = 512;

const ROW_VERSION: u8 = 1;

/// Remembers ids. They are numbered in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Dedupe {
    /// The number of the next id.
    next: u64,
    /// Recent ids with the log index they came at, up to `next`; longer than what
    /// is remembered while a write-back is behind.
    ring: VecDeque<(u64, u64)>,
    /// Those of `ring` from `forgotten` on.
    seen: BTreeSet<u64>,
    /// The number of the first id that is remembered.
    forgotten: u64,
    /// What the tree holds.
    durable: Cut,
    /// Rows of the form that knew no indexes, to be removed by the next batch.
    old_rows: Vec<Bytes>,
}

/// Is which ids belong to the state after some entry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cut {
    /// The number of the first that is still needed.
    pub(crate) from: u64,
    /// The number after the last.
    pub(crate) to: u64,
}

impl Dedupe {
    /// Takes in the proposal of an entry, or says why it must not be applied. Those
    /// with id 0 always may.
    pub(crate) fn admit(&mut self, id: u64, since: Option<u64>, index: u64) -> Result<(), Error> {
        if id == 0 {
            return Ok(());
        }
        if since.is_some_and(|since| index.saturating_sub(since) > WINDOW) {
            return Err(Error::StaleProposal);
        }
        self.forget(index);
        let twice = mutants::planted(mutants::Bug::ProposalTwice)
            || mutants::planted(mutants::Bug::AppliedAgain);
        if !self.seen.insert(id) && !twice {
            return Err(Error::DuplicateProposal);
        }
        self.ring.push_back((id, index));
        self.next += 1;
        Ok(())
    }

    /// Forgets the ids that no copy at an entry or behind it can have.
    fn forget(&mut self, index: u64) {
        while let Some((id, at)) = self.nth(self.forgotten)
            && at + WINDOW <= index
        {
            self.seen.remove(&id);
            self.forgotten += 1;
        }
    }

    /// Lists the ids that count after an entry, with the index each came at.
    pub(crate) fn recent(&self, index: u64) -> Vec<(u64, u64)> {
        let skip = usize::try_from(self.cut(index).from - self.base()).unwrap_or(usize::MAX);
        self.ring.iter().skip(skip).copied().collect()
    }

    /// Returns which ids belong to the state after an entry.
    pub(crate) fn cut(&self, index: u64) -> Cut {
        let upto = |index: u64| self.ring.partition_point(|(_, at)| *at <= index) as u64;
        let gone = index.checked_sub(WINDOW).map_or(0, upto);
        Cut {
            from: self.base() + gone,
            to: self.base() + upto(index),
        }
    }

    /// Adds the pages that hold the ids of a cut and are not yet written, and the
    /// removal of those no longer needed.
    pub(crate) fn rows(&self, cut: Cut, rows: &mut Rows) {
        let first = (self.durable.to / PAGE).max(cut.from / PAGE);
        for page in first..cut.to.div_ceil(PAGE) {
            let start = (page * PAGE).max(self.base());
            let ids = (start..cut.to.min((page + 1) * PAGE)).filter_map(|n| self.nth(n));
            rows.push((row_key(page), Some(row(start, ids))));
        }
        for page in self.durable.from / PAGE..cut.from / PAGE {
            if page * PAGE < self.durable.to {
                rows.push((row_key(page), None));
            }
        }
        rows.extend(self.old_rows.iter().map(|key| (key.clone(), None)));
    }

    /// Notes that the ids of a cut are in the tree.
    pub(crate) fn written(&mut self, cut: Cut) {
        self.durable = cut;
        self.old_rows.clear();
        // Keep what is remembered, and the whole page being filled.
        let keep = cut.to.min(self.forgotten) / PAGE * PAGE;
        while self.base() < keep && self.ring.pop_front().is_some() {}
    }

    /// Takes in a row found at the start, pages in order.
    pub(crate) fn restore_row(&mut self, key: &[u8], row: Bytes) -> Result<(), BackendError> {
        let bad = |reason: String| BackendError::corrupt(key, reason);
        let body = unseal(row, ROW_VERSION).map_err(bad)?;
        let mut r = Reader::new(body);
        let mut read = || -> Result<(), WireError> {
            let start = r.u64()?;
            if self.ring.is_empty() {
                self.next = start;
            }
            let mut index = 0u64;
            while r.remaining() > 0 {
                let id = r.be64()?;
                index = index.checked_add(r.u64()?).ok_or(WireError::Overlong)?;
                self.ring.push_back((id, index));
                self.next += 1;
            }
            Ok(())
        };
        read().map_err(|e| bad(format!("{e:?}")))
    }

    /// Takes in a row of builds that remembered a number of ids, not of entries.
    pub(crate) fn restore_old_row(&mut self, key: &Bytes, row: &[u8]) -> Result<(), BackendError> {
        let (start, ids) = row
            .split_first_chunk::<8>()
            .ok_or_else(|| BackendError::corrupt(key, "shorter than its header"))?;
        let start = u64::from_be_bytes(*start);
        let ids = ids.as_chunks::<8>().0.iter();
        for (number, id) in (start..).zip(ids.map(|c| u64::from_be_bytes(*c))) {
            if self.ring.is_empty() {
                self.next = number;
            }
            if number == self.next {
                self.ring.push_back((id, 0));
                self.next += 1;
            }
        }
        self.old_rows.push(key.clone());
        Ok(())
    }

    /// Ends restoring: pages are in, `next` comes from the state row, as does the
    /// index applied.
    pub(crate) fn restored(&mut self, next: u64, index: u64) -> Result<(), BackendError> {
        if self.ring.is_empty() {
            self.next = next;
        }
        if self.next != next {
            let reason = format!("ids end at {}, not {next}", self.next);
            return Err(BackendError::corrupt(b"e", reason));
        }
        self.forgotten = self.base();
        self.seen = self.ring.iter().map(|(id, _)| *id).collect();
        self.durable = Cut {
            from: self.base(),
            to: self.next,
        };
        if !self.old_rows.is_empty() {
            // Where they came is not known; remembering them for longer does no harm.
            self.ring.iter_mut().for_each(|(_, at)| *at = index);
            self.durable.to = self.base();
        }
        Ok(())
    }

    fn base(&self) -> u64 {
        self.next - self.ring.len() as u64
    }

    fn nth(&self, number: u64) -> Option<(u64, u64)> {
        let at = usize::try_from(number.checked_sub(self.base())?).ok()?;
        self.ring.get(at).copied()
    }
}

/// Builds the rows of ids that are numbered from zero, for a new tree.
pub(crate) fn rows_of(ids: &[(u64, u64)]) -> impl Iterator<Item = (Bytes, Bytes)> {
    let pages = ids.chunks(PAGE as usize);
    (0..)
        .zip(pages)
        .map(|(page, ids)| (row_key(page), row(page * PAGE, ids.iter().copied())))
}

/// Builds a page: the number of its first id, then each id and how many entries it
/// came after the one before.
fn row(start: u64, ids: impl Iterator<Item = (u64, u64)>) -> Bytes {
    let mut body = BytesMut::with_capacity(PAGE as usize * 10);
    put_u64(&mut body, start);
    let mut before = 0;
    for (id, index) in ids {
        body.put_u64(id);
        put_u64(&mut body, index - before);
        before = index;
    }
    seal(ROW_VERSION, &body)
}

/// Builds the row key of a page.
fn row_key(page: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(b'e');
    key.put_u64(page);
    key.freeze()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_copy_is_refused_however_late_it_comes() {
        let mut d = Dedupe::default();
        assert_eq!(d.admit(7, Some(0), 1), Ok(()));
        assert_eq!(d.admit(0, Some(0), 2), Ok(()));
        assert_eq!(d.admit(0, None, 3), Ok(()));
        for index in 4..=WINDOW {
            let late = d.admit(7, Some(0), index);
            assert_eq!(late, Err(Error::DuplicateProposal), "at {index}");
        }
        assert_eq!(d.admit(7, Some(0), WINDOW + 1), Err(Error::StaleProposal));
        assert_eq!(d.admit(8, Some(0), WINDOW + 2), Err(Error::StaleProposal));
        assert_eq!(d.admit(8, Some(2), WINDOW + 2), Ok(()));
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut d = Dedupe::default();
        for index in 1..4 * WINDOW {
            d.admit(index, Some(index - 1), index).unwrap();
            if index % 999 == 0 {
                d.written(d.cut(index - 100));
            }
        }
        assert!(d.seen.len() as u64 <= WINDOW);
        assert!(d.ring.len() as u64 <= WINDOW + PAGE + 1100);
    }

    fn open(tree: &BTreeMap<Bytes, Bytes>, next: u64, index: u64) -> Dedupe {
        let mut d = Dedupe::default();
        for (key, row) in tree {
            match key[0] {
                b'e' => d.restore_row(key, row.clone()).unwrap(),
                _ => d.restore_old_row(key, row).unwrap(),
            }
        }
        d.restored(next, index).unwrap();
        d
    }

    fn write(d: &mut Dedupe, tree: &mut BTreeMap<Bytes, Bytes>, index: u64) -> Cut {
        let cut = d.cut(index);
        let mut rows = Rows::new();
        d.rows(cut, &mut rows);
        for (key, row) in rows {
            match row {
                Some(row) => tree.insert(key, row),
                None => tree.remove(&key),
            };
        }
        d.written(cut);
        cut
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// One member writes back now and then and lags by some entries; another is
        /// restarted from its tree, a third begins with its snapshot. All three
        /// refuse the same.
        #[test]
        fn a_restart_or_a_snapshot_at_any_moment_refuses_the_same(
            steps in proptest::collection::vec((1u64..30_000, 0u64..300), 1..12),
            copies in proptest::collection::vec((any::<prop::sample::Index>(), 0..WINDOW), 20),
        ) {
            let mut d = Dedupe::default();
            let mut tree = BTreeMap::new();
            let (mut index, mut cut, mut at) = (0, Cut::default(), 0);
            for (entries, lag) in steps {
                for _ in 0..entries {
                    index += 1;
                    // Every third entry has no id.
                    let id = if index % 3 == 0 { 0 } else { 1_000_000 + index };
                    prop_assert_eq!(d.admit(id, Some(index - 1), index), Ok(()));
                }
                // A write-back never goes back.
                at = at.max(index.saturating_sub(lag));
                cut = write(&mut d, &mut tree, at);
            }
            prop_assert!(tree.len() as u64 <= WINDOW / PAGE + 2);
            let mut again = open(&tree, cut.to, at);
            let replay = |d: &mut Dedupe| {
                for index in at + 1..=index {
                    let id = if index % 3 == 0 { 0 } else { 1_000_000 + index };
                    assert_eq!(d.admit(id, Some(index - 1), index), Ok(()));
                }
            };
            replay(&mut again);
            let recent = d.recent(index);
            let mut sent = open(&rows_of(&recent).collect(), recent.len() as u64, index);
            for (n, (copy, since)) in (index + 1..).zip(copies) {
                let id = 1_000_000 + copy.index(n as usize) as u64;
                let since = Some(n.saturating_sub(since));
                let want = d.admit(id, since, n);
                prop_assert_eq!(again.admit(id, since, n), want.clone());
                prop_assert_eq!(sent.admit(id, since, n), want);
            }
        }
    }

    /// The pages of builds that remembered 8192 ids and no indexes.
    #[test]
    fn the_older_form_is_taken_over() {
        let mut tree = BTreeMap::new();
        for page in 3..20u64 {
            let mut row = BytesMut::new();
            let start = (page * PAGE).max(1700);
            row.put_u64(start);
            (start..((page + 1) * PAGE).min(9800)).for_each(|number| row.put_u64(number + 5));
            let key = [&b"d"[..], &page.to_be_bytes()].concat();
            tree.insert(Bytes::from(key), row.freeze());
        }
        let mut d = open(&tree, 9800, 50_000);
        assert_eq!(d.admit(1705, None, 50_001), Err(Error::DuplicateProposal));
        assert_eq!(d.admit(1704, None, 50_002), Ok(()));
        let cut = write(&mut d, &mut tree, 50_002);
        assert!(
            tree.keys().all(|key| key[0] == b'e'),
            "the older form is gone"
        );
        let mut again = open(&tree, cut.to, 50_002);
        for id in [1704, 1705, 5000, 9804] {
            let copy = again.admit(id, None, 50_003);
            assert_eq!(copy, Err(Error::DuplicateProposal), "{id}");
        }
    }
}
