//! When watch streams are told that there is something for them.
//!
//! Telling a stream costs the member's thread some ten microseconds whether it then
//! sends one event or twenty: its task is polled, a message is made, the kernel called.
//! So a large round begins not sooner after the one before than twice what that took,
//! and what happens meanwhile goes with it. After a quiet moment, and while streams are few, they are
//! told at once.

use std::{mem, time::Duration};

use mvcc::watch::StreamId;

/// What a round takes for each of its streams, and as long again for others.
const COST: Duration = Duration::from_micros(20);

/// Rounds of up to so many streams keep nobody waiting.
const FEW: usize = 16;

/// The longest pause between two rounds: as long may an event wait.
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// The streams to tell, and when.
#[derive(Debug, Default)]
pub(super) struct Fanout {
    streams: Vec<StreamId>,
    /// When the next round may be.
    due: Duration,
}

impl Fanout {
    /// Notes streams that have something to read.
    pub(super) fn add(&mut self, streams: &[StreamId]) {
        self.streams.extend_from_slice(streams);
    }

    /// Takes the streams to tell now, each once; none while the last round is too
    /// close.
    pub(super) fn take(&mut self, now: Duration) -> Vec<StreamId> {
        if self.streams.is_empty() || now < self.due {
            return Vec::new();
        }
        let mut streams = mem::take(&mut self.streams);
        streams.sort_unstable();
        streams.dedup();
        self.due = now + pause(streams.len());
        streams
    }

    /// Says when to ask again, if streams wait.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.streams.is_empty()).then_some(self.due)
    }
}

fn pause(streams: usize) -> Duration {
    match u32::try_from(streams) {
        Ok(_) if streams <= FEW => Duration::ZERO,
        Ok(streams) => (COST * streams).min(PAUSE_MAX),
        Err(_many) => PAUSE_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn few_are_told_at_once_and_each_once() {
        let mut fanout = Fanout::default();
        for round in 0..3 {
            fanout.add(&[2, 1]);
            fanout.add(&[2]);
            assert_eq!(fanout.take(MS * round), [1, 2]);
            assert_eq!(fanout.due(), None);
        }
        fanout.add(&[7]);
        assert_eq!(fanout.take(MS * 2), [7], "in the same moment too");
    }

    #[test]
    fn a_large_round_keeps_its_distance_from_the_last_one() {
        let many: Vec<StreamId> = (0..200).collect();
        let mut fanout = Fanout::default();
        fanout.add(&many);
        assert_eq!(fanout.take(MS * 10), many, "after a quiet moment at once");
        fanout.add(&many);
        fanout.add(&many);
        assert!(fanout.take(MS * 13).is_empty());
        assert_eq!(fanout.due(), Some(MS * 14));
        assert_eq!(fanout.take(MS * 14), many);
        assert_eq!(fanout.due(), None);
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_pause() {
        let many: Vec<StreamId> = (0..10_000).collect();
        let mut fanout = Fanout::default();
        fanout.add(&many);
        assert_eq!(fanout.take(Duration::ZERO).len(), many.len());
        fanout.add(&[1]);
        assert_eq!(fanout.due(), Some(PAUSE_MAX));
    }
}
