//! The newest revisions, in memory: those not yet in a block, and a window of
//! older ones kept because what was just written is what is read.
//!
//! Main revisions are dense here (every transaction that takes one changes
//! something), so a revision is found by subtraction, not by search.

use std::collections::VecDeque;

use crate::block::Record;
use crate::key_index::Rev;

/// Is one main revision: where its records begin, and the log entry it came from.
#[derive(Debug, Clone, Copy)]
struct Group {
    start: u64,
    index: u64,
}

/// Holds a run of revisions. Positions count records since the process began
/// and never change, whatever is trimmed in front.
#[derive(Debug)]
pub(crate) struct Tail {
    first_main: i64,
    groups: VecDeque<Group>,
    base: u64,
    records: VecDeque<Record>,
    bytes: usize,
}

impl Tail {
    /// Creates an empty tail whose first revision will be `next_main`.
    pub(crate) fn new(next_main: i64) -> Self {
        Self {
            first_main: next_main,
            groups: VecDeque::new(),
            base: 0,
            records: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Appends a change; the first of a main revision opens its group.
    pub(crate) fn push(&mut self, rev: Rev, index: u64, record: Record) {
        if rev.sub == 0 {
            debug_assert_eq!(rev.main, self.first_main + self.groups.len() as i64);
            let start = self.end();
            self.groups.push_back(Group { start, index });
        }
        self.bytes += record.cost();
        self.records.push_back(record);
    }

    /// Returns the first main revision held (or to come).
    pub(crate) fn first_main(&self) -> i64 {
        self.first_main
    }

    /// Returns the position after the last record.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, rev: Rev) -> Option<&Record> {
        self.record(self.position(rev)?)
    }

    /// Returns the position of a revision held here.
    pub(crate) fn position(&self, rev: Rev) -> Option<u64> {
        let nth = usize::try_from(rev.main.checked_sub(self.first_main)?).ok()?;
        let group = self.groups.get(nth)?;
        let end = self.groups.get(nth + 1).map_or(self.end(), |g| g.start);
        let at = group.start + u64::from(rev.sub);
        (at < end).then_some(at)
    }

    /// Returns the record at a position.
    pub(crate) fn record(&self, at: u64) -> Option<&Record> {
        self.records
            .get(usize::try_from(at.checked_sub(self.base)?).ok()?)
    }

    /// Returns the revision at a position.
    pub(crate) fn rev_at(&self, at: u64) -> Option<Rev> {
        let nth = self
            .groups
            .partition_point(|g| g.start <= at)
            .checked_sub(1)?;
        let sub = u32::try_from(at - self.groups[nth].start).ok()?;
        (at < self.end()).then(|| Rev::new(self.first_main + nth as i64, sub))
    }

    /// Walks records from a position on.
    pub(crate) fn walk(&self, from: u64) -> impl Iterator<Item = (u64, Rev, &Record)> {
        let start = self.rev_at(from);
        let mut next = start.unwrap_or_default();
        let skip = from.saturating_sub(self.base) as usize;
        let records = self
            .records
            .iter()
            .skip(if start.is_some() { skip } else { usize::MAX });
        (from..).zip(records).map(move |(at, record)| {
            let rev = next;
            let nth = (rev.main - self.first_main) as usize;
            let group_ends = self.groups.get(nth + 1).is_some_and(|g| g.start == at + 1);
            next = if group_ends {
                Rev::new(rev.main + 1, 0)
            } else {
                Rev::new(rev.main, rev.sub + 1)
            };
            (at, rev, record)
        })
    }

    /// Returns the position of the first record at or after a revision.
    pub(crate) fn lower_bound(&self, rev: Rev) -> u64 {
        if rev.main < self.first_main {
            return self.base;
        }
        match self.groups.get((rev.main - self.first_main) as usize) {
            Some(group) => group.start + u64::from(rev.sub),
            None => self.end(),
        }
    }

    /// Chooses where to cut a write-back: after the entry whose records, from
    /// `from` on, first reach `bytes_max`. Returns the position after it and the
    /// index of the first entry left out, if any.
    pub(crate) fn cut(&self, from: u64, bytes_max: usize) -> (u64, Option<u64>) {
        let mut bytes = 0;
        for (at, _, record) in self.walk(from) {
            bytes += record.cost();
            if bytes >= bytes_max {
                let nth = self.groups.partition_point(|g| g.start <= at);
                if let Some(next) = self.groups.get(nth) {
                    return (next.start, Some(next.index));
                }
                break;
            }
        }
        (self.end(), None)
    }

    /// Returns the position after the last record of entries up to `index`.
    pub(crate) fn cut_at_index(&self, index: u64) -> u64 {
        let nth = self.groups.partition_point(|g| g.index <= index);
        self.groups.get(nth).map_or(self.end(), |g| g.start)
    }

    /// Drops whole main revisions in front while more than `window` bytes are
    /// held and their records lie before `upto`.
    pub(crate) fn trim(&mut self, window: usize, upto: u64) {
        while self.bytes > window {
            let end = match (self.groups.front(), self.groups.get(1)) {
                (None, _) => break,
                (Some(_), Some(next)) => next.start,
                (Some(_), None) => self.end(),
            };
            if end > upto {
                break;
            }
            while self.base < end {
                let Some(gone) = self.records.pop_front() else {
                    break;
                };
                self.bytes -= gone.cost();
                self.base += 1;
            }
            self.groups.pop_front();
            self.first_main += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn record(n: u8) -> Record {
        Record {
            value: Bytes::from(vec![n; 36]),
            ..Record::default()
        }
    }

    /// Revisions 5 (one change), 6 (three), 7 (two), of entries 10, 20, 30.
    fn example() -> Tail {
        let mut t = Tail::new(5);
        for (n, (main, subs)) in [(5, 1), (6, 3), (7, 2)].into_iter().enumerate() {
            for sub in 0..subs {
                t.push(Rev::new(main, sub), (n as u64 + 1) * 10, record(n as u8));
            }
        }
        t
    }

    #[test]
    fn finding() {
        let t = example();
        assert_eq!(t.get(Rev::new(6, 2)), Some(&record(1)));
        assert_eq!(t.get(Rev::new(6, 3)), None);
        assert_eq!(t.get(Rev::new(4, 0)), None);
        assert_eq!(t.get(Rev::new(8, 0)), None);
        assert_eq!(t.rev_at(4), Some(Rev::new(7, 0)));
        let walked: Vec<_> = t
            .walk(2)
            .map(|(at, rev, _)| (at, rev.main, rev.sub))
            .collect();
        assert_eq!(walked, [(2, 6, 1), (3, 6, 2), (4, 7, 0), (5, 7, 1)]);
        assert_eq!(t.walk(6).count(), 0);
    }

    #[test]
    fn cutting() {
        let t = example();
        assert_eq!(t.cut(0, 1), (1, Some(20)));
        assert_eq!(t.cut(0, 150), (4, Some(30)));
        assert_eq!(t.cut(0, 100_000), (6, None));
        assert_eq!(t.cut_at_index(9), 0);
        assert_eq!(t.cut_at_index(25), 4);
    }

    #[test]
    fn trimming() {
        let mut t = example();
        t.trim(0, 3);
        assert_eq!((t.first_main(), t.bytes()), (6, 500));
        t.trim(300, 6);
        assert_eq!((t.first_main(), t.bytes()), (7, 200));
        assert_eq!(t.get(Rev::new(7, 1)), Some(&record(2)));
        t.trim(0, 6);
        assert_eq!((t.first_main(), t.bytes(), t.end()), (8, 0, 6));
        t.push(Rev::new(8, 0), 40, record(9));
        assert_eq!(t.position(Rev::new(8, 0)), Some(6));
    }
}
