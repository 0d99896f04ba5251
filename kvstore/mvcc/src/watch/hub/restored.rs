//! The hub when a snapshot takes the place of the store it spoke for.

use super::WatchHub;
use crate::machine::StateMachine;
use crate::watch::StreamId;
use crate::watch::interest::Slot;

impl WatchHub {
    /// Goes on with a store that took the place of the one before, further on in the
    /// same history: nothing between the two was published. Watchers read it from
    /// history; those whose next revision is compacted there are told so when they
    /// are polled. What already waited for them stays in front. Returns the streams
    /// to poll.
    pub fn restored(&mut self, machine: &StateMachine) -> Vec<StreamId> {
        let next = self.revision + 1;
        self.revision = machine.revision();
        if mutants::planted(mutants::Bug::WatchGapAtSnapshot) {
            return self.ready();
        }
        let live = self.watchers.iter_mut().enumerate();
        for (slot, w) in live.filter_map(|(slot, w)| Some((slot as Slot, w.as_mut()?))) {
            // Behind already, or waiting for a revision still to come.
            if !w.synced || w.next > self.revision || next > self.revision {
                continue;
            }
            w.synced = false;
            w.next = w.next.max(next);
            self.interest.remove(&w.target, slot);
            if !w.ready
                && let Some(s) = &mut self.streams[w.stream as usize]
            {
                w.ready = true;
                s.ready.push_back(slot);
            }
        }
        self.ready()
    }
}
