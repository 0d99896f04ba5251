//! The newest revisions, in memory: those not yet in a block, and a window of
//! older ones kept because what was just written is what is read.
//!
//! Main revisions are dense here (every transaction that takes one changes
//! something). They are held in chunks of whole main revisions; a clone shares
//! the chunks, so freezing a view costs one pointer for each, and only the last
//! chunk is ever written to.
//!
//! ```text
//! chunks   [ 5 6 6 6 ][ 7 7 8 9 ][ 10 ]      first_main 5, 7, 10
//! position   0 1 2 3    4 5 6 7    8         end 9
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use crate::block::Record;
use crate::key_index::Rev;

/// Records after which a chunk is closed: what is copied at most when the tail
/// is written to after a view was taken (but for one transaction larger than it).
const CHUNK_RECORDS: usize = 256;

/// Parts of the window that a chunk may make up, since whole chunks are dropped.
const CHUNKS_PER_WINDOW: usize = 64;

/// Chunks dropped for each one begun, so that a large write-back is not followed
/// by one long turn of freeing what it covered.
const CHUNKS_DROPPED_MAX: usize = 4;

/// Is one main revision: where its records begin in the chunk, and the log entry
/// it came from.
#[derive(Debug, Clone, Copy)]
struct Group {
    at: usize,
    index: u64,
}

/// Holds whole main revisions, one after the other.
#[derive(Debug, Clone)]
struct Chunk {
    first_main: i64,
    start: u64,
    groups: Vec<Group>,
    records: Vec<Record>,
    bytes: usize,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    /// Returns the place in the chunk after a group's last record.
    fn group_end(&self, nth: usize) -> usize {
        self.groups
            .get(nth + 1)
            .map_or(self.records.len(), |g| g.at)
    }

    /// Returns the group of a main revision that is in the chunk.
    fn nth(&self, main: i64) -> Option<usize> {
        let nth = usize::try_from(main.checked_sub(self.first_main)?).ok()?;
        (nth < self.groups.len()).then_some(nth)
    }

    fn get(&self, rev: Rev) -> Option<&Record> {
        let nth = self.nth(rev.main)?;
        let at = self.groups[nth].at + rev.sub as usize;
        (at < self.group_end(nth)).then(|| &self.records[at])
    }

    /// Walks the records from a place in the chunk on.
    fn walk(&self, from: usize) -> impl Iterator<Item = (u64, Rev, &Record)> {
        let first = self.groups.partition_point(|g| g.at <= from);
        let groups = first.saturating_sub(1)..self.groups.len();
        groups.flat_map(move |nth| {
            let begin = self.groups[nth].at;
            let main = self.first_main + nth as i64;
            (begin.max(from)..self.group_end(nth)).map(move |at| {
                let rev = Rev::new(main, (at - begin) as u32);
                (self.start + at as u64, rev, &self.records[at])
            })
        })
    }
}

/// Holds a run of revisions. Positions count records since the process began
/// and never change, whatever is dropped in front.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    chunks: VecDeque<Arc<Chunk>>,
    next_main: i64,
    end: u64,
    bytes: usize,
    window: usize,
    /// Records before are in closed blocks and may be dropped.
    spare: u64,
}

impl Tail {
    /// Creates an empty tail whose first revision will be `next_main`. It keeps
    /// `window` bytes of records that could be dropped.
    pub(crate) fn new(next_main: i64, window: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            next_main,
            end: 0,
            bytes: 0,
            window,
            spare: 0,
        }
    }

    /// Appends a change; the first of a main revision opens its group.
    pub(crate) fn push(&mut self, rev: Rev, index: u64, record: Record) {
        if rev.sub == 0 {
            debug_assert_eq!(rev.main, self.next_main);
            self.next_main += 1;
            if self.last_is_full() {
                self.begin_chunk(rev.main);
            }
        }
        let Some(last) = self.chunks.back_mut() else {
            debug_assert!(false, "a transaction begins with sub 0");
            return;
        };
        let chunk = Arc::make_mut(last);
        if rev.sub == 0 {
            let at = chunk.records.len();
            chunk.groups.push(Group { at, index });
        }
        let cost = record.cost();
        chunk.bytes += cost;
        chunk.records.push(record);
        self.bytes += cost;
        self.end += 1;
    }

    fn last_is_full(&self) -> bool {
        self.chunks.back().is_none_or(|last| {
            last.records.len() >= CHUNK_RECORDS || last.bytes > self.window / CHUNKS_PER_WINDOW
        })
    }

    fn begin_chunk(&mut self, first_main: i64) {
        self.drop_spare();
        self.chunks.push_back(Arc::new(Chunk {
            first_main,
            start: self.end,
            groups: Vec::new(),
            records: Vec::new(),
            bytes: 0,
        }));
    }

    /// Returns the first main revision held (or to come).
    pub(crate) fn first_main(&self) -> i64 {
        self.chunks.front().map_or(self.next_main, |c| c.first_main)
    }

    /// Returns the position after the last record.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the chunk that holds a position, if any does.
    fn chunk_at(&self, at: u64) -> Option<(usize, &Chunk)> {
        let nth = self.chunks.partition_point(|c| c.start <= at);
        let nth = nth.checked_sub(1)?;
        let chunk = &*self.chunks[nth];
        (at < chunk.end()).then_some((nth, chunk))
    }

    /// Returns the chunk that holds a main revision, and its group there.
    fn chunk_of(&self, main: i64) -> Option<(&Chunk, usize)> {
        let nth = self.chunks.partition_point(|c| c.first_main <= main);
        let chunk = &*self.chunks[nth.checked_sub(1)?];
        Some((chunk, chunk.nth(main)?))
    }

    pub(crate) fn get(&self, rev: Rev) -> Option<&Record> {
        let nth = self.chunks.partition_point(|c| c.first_main <= rev.main);
        self.chunks[nth.checked_sub(1)?].get(rev)
    }

    /// Finds a record, likely in the chunk that `near` names; names the one it was in.
    pub(crate) fn get_near(&self, rev: Rev, near: &mut usize) -> Option<&Record> {
        let chunk = match self.chunks.get(*near) {
            Some(chunk) if chunk.nth(rev.main).is_some() => chunk,
            _ => {
                let after = self.chunks.partition_point(|c| c.first_main <= rev.main);
                *near = after.checked_sub(1)?;
                &self.chunks[*near]
            }
        };
        chunk.get(rev)
    }

    /// Returns the position of a revision held here.
    pub(crate) fn position(&self, rev: Rev) -> Option<u64> {
        let (chunk, nth) = self.chunk_of(rev.main)?;
        let at = chunk.groups[nth].at + rev.sub as usize;
        (at < chunk.group_end(nth)).then(|| chunk.start + at as u64)
    }

    /// Returns the main revision of the record at a position.
    pub(crate) fn main_at(&self, at: u64) -> Option<i64> {
        let (_, chunk) = self.chunk_at(at)?;
        let place = (at - chunk.start) as usize;
        let groups = chunk.groups.partition_point(|g| g.at <= place) as i64;
        Some(chunk.first_main + groups - 1)
    }

    /// Walks records from a position on.
    pub(crate) fn walk(&self, from: u64) -> impl Iterator<Item = (u64, Rev, &Record)> {
        let nth = match self.chunk_at(from) {
            Some((nth, _)) => nth,
            // Before the first chunk or after the last one.
            None if self.chunks.front().is_some_and(|c| from < c.start) => 0,
            None => self.chunks.len(),
        };
        self.chunks
            .range(nth..)
            .flat_map(move |c| c.walk(from.saturating_sub(c.start) as usize))
    }

    /// Returns the position of the first record at or after a revision.
    pub(crate) fn lower_bound(&self, rev: Rev) -> u64 {
        match self.chunk_of(rev.main) {
            Some((chunk, nth)) => {
                let at = chunk.groups[nth].at.saturating_add(rev.sub as usize);
                chunk.start + at.min(chunk.group_end(nth)) as u64
            }
            None if rev.main < self.first_main() => {
                self.chunks.front().map_or(self.end, |c| c.start)
            }
            None => self.end,
        }
    }

    /// Chooses where to cut a write-back: after the entry whose records, from
    /// `from` on, first reach `bytes_max`. Returns the position after it and the
    /// index of the first entry left out, if any.
    pub(crate) fn cut(&self, from: u64, bytes_max: usize) -> (u64, Option<u64>) {
        let mut bytes = 0;
        let begin = self.chunks.partition_point(|c| c.end() <= from);
        for (nth, chunk) in self.chunks.iter().enumerate().skip(begin) {
            if chunk.start >= from && bytes + chunk.bytes < bytes_max {
                bytes += chunk.bytes;
                continue;
            }
            for (at, _, record) in chunk.walk(from.saturating_sub(chunk.start) as usize) {
                bytes += record.cost();
                if bytes >= bytes_max {
                    return self.cut_after(nth, (at - chunk.start) as usize);
                }
            }
        }
        (self.end, None)
    }

    /// Cuts after the group that a place in a chunk belongs to.
    fn cut_after(&self, nth: usize, place: usize) -> (u64, Option<u64>) {
        let chunk = &self.chunks[nth];
        let next = chunk.groups.partition_point(|g| g.at <= place);
        if let Some(group) = chunk.groups.get(next) {
            return (chunk.start + group.at as u64, Some(group.index));
        }
        let index = self.chunks.get(nth + 1).map(|c| c.groups[0].index);
        (chunk.end(), index)
    }

    /// Returns the position after the last record of entries up to `index`.
    pub(crate) fn cut_at_index(&self, index: u64) -> u64 {
        let nth = self
            .chunks
            .partition_point(|c| c.groups.first().is_some_and(|g| g.index <= index));
        let Some(chunk) = nth.checked_sub(1).map(|nth| &self.chunks[nth]) else {
            return self.chunks.front().map_or(self.end, |c| c.start);
        };
        let group = chunk.groups.partition_point(|g| g.index <= index);
        let at = chunk
            .groups
            .get(group)
            .map_or(chunk.records.len(), |g| g.at);
        chunk.start + at as u64
    }

    /// Permits dropping the records before a position.
    pub(crate) fn may_drop(&mut self, upto: u64) {
        self.spare = upto;
        self.drop_spare();
    }

    /// Drops a few chunks in front while more than the window is held.
    fn drop_spare(&mut self) {
        for _ in 0..CHUNKS_DROPPED_MAX {
            let spare = self.chunks.front().is_some_and(|c| c.end() <= self.spare);
            if self.bytes <= self.window || !spare {
                break;
            }
            if let Some(gone) = self.chunks.pop_front() {
                self.bytes -= gone.bytes;
            }
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
    fn example(window: usize) -> Tail {
        let mut t = Tail::new(5, window);
        for (n, (main, subs)) in [(5, 1), (6, 3), (7, 2)].into_iter().enumerate() {
            for sub in 0..subs {
                t.push(Rev::new(main, sub), (n as u64 + 1) * 10, record(n as u8));
            }
        }
        t
    }

    #[test]
    fn finding() {
        // All in one chunk, and each main revision in one of its own.
        find(&example(1 << 20));
        find(&example(0));
    }

    fn find(t: &Tail) {
        assert_eq!(t.get(Rev::new(6, 2)), Some(&record(1)));
        assert_eq!(t.get(Rev::new(6, 3)), None);
        assert_eq!(t.get(Rev::new(4, 0)), None);
        assert_eq!(t.get(Rev::new(8, 0)), None);
        let mut near = 0;
        for (main, sub) in [(7, 1), (5, 0), (6, 2), (6, 3), (4, 0), (8, 0), (7, 0)] {
            let rev = Rev::new(main, sub);
            assert_eq!(t.get_near(rev, &mut near), t.get(rev));
        }
        assert_eq!((t.main_at(3), t.main_at(4)), (Some(6), Some(7)));
        assert_eq!(t.main_at(6), None);
        assert_eq!(t.lower_bound(Rev::new(6, u32::MAX)), 4);
        assert_eq!(t.lower_bound(Rev::new(2, 0)), 0);
        assert_eq!(t.lower_bound(Rev::new(9, 0)), 6);
        let walked: Vec<_> = t
            .walk(2)
            .map(|(at, rev, _)| (at, rev.main, rev.sub))
            .collect();
        assert_eq!(walked, [(2, 6, 1), (3, 6, 2), (4, 7, 0), (5, 7, 1)]);
        assert_eq!(t.walk(6).count(), 0);
    }

    #[test]
    fn cutting() {
        cut(&example(1 << 20));
        cut(&example(0));
    }

    fn cut(t: &Tail) {
        assert_eq!(t.cut(0, 1), (1, Some(20)));
        assert_eq!(t.cut(0, 150), (4, Some(30)));
        assert_eq!(t.cut(0, 100_000), (6, None));
        assert_eq!(t.cut_at_index(9), 0);
        assert_eq!(t.cut_at_index(25), 4);
    }

    #[test]
    fn dropping() {
        let mut t = example(0);
        t.may_drop(3);
        assert_eq!((t.first_main(), t.bytes()), (6, 500));
        t.may_drop(4);
        assert_eq!((t.first_main(), t.bytes()), (7, 200));
        assert_eq!(t.get(Rev::new(7, 1)), Some(&record(2)));
        t.may_drop(6);
        assert_eq!((t.first_main(), t.bytes(), t.end()), (8, 0, 6));
        t.push(Rev::new(8, 0), 40, record(9));
        assert_eq!(t.position(Rev::new(8, 0)), Some(6));

        let mut t = example(600);
        t.may_drop(6);
        assert_eq!(t.first_main(), 5, "the window holds them all");
    }

    #[test]
    fn a_clone_stays_as_it_was() {
        let mut t = example(1 << 20);
        let frozen = t.clone();
        t.push(Rev::new(8, 0), 40, record(9));
        t.may_drop(7);
        assert_eq!((frozen.end(), t.end()), (6, 7));
        assert_eq!(frozen.get(Rev::new(8, 0)), None);
        assert_eq!(frozen.walk(0).count(), 6);
    }
}
