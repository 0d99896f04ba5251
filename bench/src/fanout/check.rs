//! What one watcher must see: each write of each object once and in its order, and
//! every event at a higher version than the one before.

use super::order::Written;

/// One event that came, at so many microseconds after the epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) object: u32,
    pub(super) sequence: u32,
    pub(super) at: u32,
}

/// The stream of one watcher.
#[derive(Debug)]
pub(super) struct Checked {
    /// The number of the first object it sees.
    first: u32,
    /// The last write seen of each.
    last: Vec<u32>,
    pub(super) revision: u64,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) bytes: u64,
    pub(super) gaps: u64,
    pub(super) duplicates: u64,
    pub(super) backwards: u64,
    pub(super) strange: u64,
    /// How the server ended it, if it did.
    pub(super) ended: Option<String>,
}

impl Checked {
    /// Makes one that sees so many objects from the first on, after a revision.
    pub(super) fn new(first: u32, count: usize, base: u32, revision: u64) -> Self {
        Self {
            first,
            last: vec![base; count],
            revision,
            arrivals: Vec::new(),
            bytes: 0,
            gaps: 0,
            duplicates: 0,
            backwards: 0,
            strange: 0,
            ended: None,
        }
    }

    fn last_of(&mut self, object: u32) -> Option<&mut u32> {
        let at = object.checked_sub(self.first)?;
        self.last.get_mut(usize::try_from(at).ok()?)
    }

    /// Takes an event.
    pub(super) fn take(&mut self, object: u32, sequence: u32, revision: u64, at: u32) {
        if revision <= self.revision {
            self.backwards += 1;
        }
        self.revision = self.revision.max(revision);
        let Some(last) = self.last_of(object) else {
            self.strange += 1;
            return;
        };
        let passed_over = sequence.checked_sub(*last + 1);
        *last = sequence.max(*last);
        match passed_over {
            None => self.duplicates += 1,
            Some(missing) => {
                self.gaps += u64::from(missing);
                self.arrivals.push(Arrival {
                    object,
                    sequence,
                    at,
                });
            }
        }
    }

    /// Tells whether the last writes of all that it sees have come.
    pub(super) fn has_all(&self, ends: &[u32]) -> bool {
        let from = self.first as usize;
        let ends = ends.get(from..).unwrap_or_default();
        self.last.iter().zip(ends).all(|(last, end)| last >= end)
    }

    /// Counts as gaps what has not come of a watch that goes on.
    pub(super) fn close(&mut self, ends: &[u32]) {
        if self.ended.is_some() {
            return;
        }
        let from = self.first as usize;
        let ends = ends.get(from..).unwrap_or_default();
        let missing = self.last.iter().zip(ends);
        self.gaps += missing
            .map(|(last, end)| u64::from(end.saturating_sub(*last)))
            .sum::<u64>();
    }
}

/// When each write was sent and acknowledged, by object and number.
pub(super) struct Log {
    base: u32,
    writes: Vec<Vec<(u64, u64)>>,
}

impl Log {
    /// Sorts the writes, which of each object are in their order and without holes.
    pub(super) fn new(objects: usize, base: u32, written: &[Written]) -> Self {
        let mut writes = vec![Vec::new(); objects];
        for write in written {
            if let Some(of) = writes.get_mut(write.object as usize) {
                of.push((write.sent, write.acked));
            }
        }
        Self { base, writes }
    }

    /// Returns the number of the last write of each object.
    pub(super) fn ends(&self) -> Vec<u32> {
        let ends = self.writes.iter().map(|of| self.base + of.len() as u32);
        ends.collect()
    }

    /// Returns when a write was sent and acknowledged.
    pub(super) fn of(&self, arrival: &Arrival) -> Option<(u64, u64)> {
        let nth = arrival.sequence.checked_sub(self.base + 1)?;
        let of = self.writes.get(arrival.object as usize)?;
        of.get(usize::try_from(nth).ok()?).copied()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn written(object: u32, sequence: u32) -> Written {
        Written {
            object,
            sequence,
            sent: u64::from(sequence) * 10,
            acked: u64::from(sequence) * 10 + 5,
        }
    }

    #[test]
    fn a_whole_stream_is_whole() {
        let mut stream = Checked::new(0, 2, 100, 7);
        for (object, sequence, revision) in [(0, 101, 8), (1, 101, 9), (0, 102, 12)] {
            stream.take(object, sequence, revision, 0);
        }
        let log = Log::new(2, 100, &[written(0, 101), written(1, 101), written(0, 102)]);
        assert_eq!(log.ends(), [102, 101]);
        assert!(stream.has_all(&log.ends()));
        stream.close(&log.ends());
        assert_eq!(
            (stream.gaps, stream.duplicates, stream.backwards),
            (0, 0, 0)
        );
        assert_eq!(log.of(&stream.arrivals[2]), Some((1020, 1025)));
    }

    #[test]
    fn whatever_is_wrong_is_counted() {
        let mut stream = Checked::new(5, 1, 0, 7);
        stream.take(5, 1, 8, 0);
        stream.take(5, 4, 9, 0); // two are missing
        stream.take(5, 4, 10, 0); // once more
        stream.take(5, 5, 10, 0); // not above the last
        stream.take(6, 1, 11, 0); // nobody asked for it
        assert_eq!((stream.gaps, stream.duplicates), (2, 1));
        assert_eq!((stream.backwards, stream.strange), (1, 1));
        let ends = [0, 0, 0, 0, 0, 8, 1];
        assert!(!stream.has_all(&ends));
        stream.close(&ends);
        assert_eq!(stream.gaps, 5, "three never came");
    }

    #[test]
    fn a_watch_that_was_ended_misses_nothing_after_its_end() {
        let mut stream = Checked::new(0, 1, 0, 0);
        stream.take(0, 1, 1, 0);
        stream.ended = Some("ended".to_owned());
        stream.close(&[9]);
        assert_eq!(stream.gaps, 0);
    }
}
