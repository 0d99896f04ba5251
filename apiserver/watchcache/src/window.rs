//! The last changes, in order: where a resumed watch reads what it missed, and
//! from which the state at a recent revision is rebuilt.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use imbl::Vector;
use meta::Object;

use crate::event::{Event, EventType};
use crate::selector::Selector;
use crate::snapshot::State;

/// The fewest changes kept (kube-apiserver `watch_cache_history.go`).
pub const CAPACITY_MIN: usize = 100;
/// The most changes kept; beyond it the oldest go, and a watch that would need
/// them is refused as too old.
pub const CAPACITY_MAX: usize = 102_400;
/// The most bytes of objects that changes keep, but for the last [`CAPACITY_MIN`] of
/// them: beyond it the oldest go, however young they are. Each counts what was before it
/// and what came after, though the one is mostly the other of an earlier change.
const BYTES_MAX: usize = 256 << 20;
/// A full window whose oldest change is younger than this doubles; one whose
/// newest quarter is older halves.
pub const FRESH_FOR: Duration = Duration::from_secs(75);
/// Every so many changes the state is kept whole (a shared copy, not a deep
/// one), so that rebuilding a past state undoes at most this many changes.
const CHECKPOINT_EVERY: u64 = if cfg!(test) { 4 } else { 64 };

/// A revision lies before what the window remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct TooOld {
    /// The revision asked for.
    pub asked: u64,
    /// The oldest revision that could have been served.
    pub oldest: u64,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Arc<str>,
    pub(crate) revision: u64,
    pub(crate) object: Option<Arc<Object>>,
    pub(crate) previous: Option<Arc<Object>>,
    pub(crate) at: Duration,
}

/// The changes after some revision that concern a selector; found while
/// iterating, in entries that are shared with the window.
#[derive(Debug)]
pub struct Missed {
    entries: Vector<Arc<Entry>>,
    next: usize,
    selector: Selector,
}

impl Missed {
    /// Nothing was missed.
    pub(crate) fn nothing() -> Self {
        Self {
            entries: Vector::new(),
            next: 0,
            selector: Selector::default(),
        }
    }
}

impl Iterator for Missed {
    type Item = (EventType, Arc<Event>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let e = self.entries.get(self.next)?;
            self.next += 1;
            let selected =
                |o: &Option<Arc<Object>>| o.as_ref().is_some_and(|o| self.selector.matches(o));
            if let Some(event_type) = EventType::of(selected(&e.previous), selected(&e.object)) {
                let event = Event::new(e.revision, e.object.clone(), e.previous.clone());
                return Some((event_type, Arc::new(event)));
            }
        }
    }
}

impl Entry {
    /// Returns how many bytes are kept for this change at most.
    fn bytes(&self) -> usize {
        let states = self.object.iter().chain(&self.previous);
        states.map(|object| object.body().len()).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Window {
    entries: Vector<Arc<Entry>>,
    /// How many bytes `entries` keep, and may keep.
    bytes: usize,
    bytes_max: usize,
    capacity: usize,
    bounds: (usize, usize),
    /// Every change after this revision is in `entries`.
    floor: u64,
    /// How many entries came before `entries[0]`.
    dropped: u64,
    /// (entries applied, the state then), oldest first.
    checkpoints: VecDeque<(u64, State)>,
    /// Whether past states are given out, and so kept.
    remembers: bool,
    /// How often the capacity grew and shrank.
    resized: (u64, u64),
}

impl Window {
    pub(crate) fn new(bounds: (usize, usize)) -> Self {
        Self {
            entries: Vector::new(),
            bytes: 0,
            bytes_max: BYTES_MAX,
            capacity: bounds.0,
            bounds,
            floor: 0,
            dropped: 0,
            checkpoints: VecDeque::new(),
            remembers: true,
            resized: (0, 0),
        }
    }

    /// Gives out past states, or ceases to.
    pub(crate) fn remember(&mut self, remembers: bool) {
        self.remembers = remembers;
        if !remembers {
            self.checkpoints.clear();
        }
    }

    /// Forgets how to get to states before a revision quickly.
    pub(crate) fn compact(&mut self, revision: u64) {
        let applied = self.dropped + self.position(revision) as u64;
        self.drop_checkpoints(applied);
    }

    /// Forgets everything; what follows begins after `revision`.
    pub(crate) fn reset(&mut self, revision: u64) {
        self.entries.clear();
        self.bytes = 0;
        self.checkpoints.clear();
        self.dropped = 0;
        self.floor = revision;
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns how often the capacity grew, and how often it shrank.
    pub(crate) fn resized(&self) -> (u64, u64) {
        self.resized
    }

    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn push(&mut self, entry: Entry, after: &State) {
        self.fit(entry.at);
        self.bytes += entry.bytes();
        while self.entries.len() >= self.capacity
            || (self.bytes > self.bytes_max && self.entries.len() >= self.bounds.0.max(1))
        {
            self.drop_oldest();
        }
        self.entries.push_back(Arc::new(entry));
        let applied = self.dropped + self.entries.len() as u64;
        if self.remembers && applied.is_multiple_of(CHECKPOINT_EVERY) {
            self.checkpoints.push_back((applied, after.clone()));
        }
    }

    /// Grows or shrinks a full window by the age of what it holds.
    fn fit(&mut self, now: Duration) {
        if self.entries.len() < self.capacity {
            return;
        }
        let older =
            |e: Option<&Arc<Entry>>| e.is_some_and(|e| now.saturating_sub(e.at) > FRESH_FOR);
        let newest_quarter = self.entries.len() - self.entries.len() / 4;
        let before = self.capacity;
        if !older(self.entries.front()) {
            self.capacity = (self.capacity * 2).min(self.bounds.1);
        } else if older(self.entries.get(newest_quarter)) {
            self.capacity = (self.capacity / 2).max(self.bounds.0);
        }
        self.resized.0 += u64::from(self.capacity > before);
        self.resized.1 += u64::from(self.capacity < before);
    }

    fn drop_oldest(&mut self) {
        if let Some(gone) = self.entries.pop_front() {
            self.bytes -= gone.bytes();
            self.floor = self.floor.max(gone.revision);
            self.dropped += 1;
        }
        self.drop_checkpoints(self.dropped);
    }

    fn drop_checkpoints(&mut self, before: u64) {
        while self.checkpoints.front().is_some_and(|(n, _)| *n < before) {
            self.checkpoints.pop_front();
        }
    }

    /// Counts the entries up to and including a revision.
    fn position(&self, revision: u64) -> usize {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.entries.get(middle) {
                Some(e) if e.revision <= revision => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// Returns every change after a revision that concerns a selector.
    pub(crate) fn after(&self, revision: u64, selector: Selector) -> Result<Missed, TooOld> {
        self.check(revision)?;
        Ok(Missed {
            entries: self.entries.clone(),
            next: self.position(revision),
            selector,
        })
    }

    /// Rebuilds the state at a revision from the nearest later one.
    pub(crate) fn state_at(&self, revision: u64, newest: &State) -> Result<State, TooOld> {
        self.check(revision)?;
        if !self.remembers {
            // Something later, as far as anybody can tell.
            let oldest = revision + 1;
            return Err(TooOld {
                asked: revision,
                oldest,
            });
        }
        let wanted = self.position(revision);
        let applied = self.dropped + wanted as u64;
        let next = self.checkpoints.partition_point(|(n, _)| *n < applied);
        let (mut state, end) = match self.checkpoints.get(next) {
            Some((n, state)) => (state.clone(), (n - self.dropped) as usize),
            None => (newest.clone(), self.entries.len()),
        };
        for entry in (wanted..end).rev().filter_map(|n| self.entries.get(n)) {
            match &entry.previous {
                Some(previous) => state.insert(entry.key.clone(), previous.clone()),
                None => state.remove(&*entry.key),
            };
        }
        Ok(state)
    }

    fn check(&self, asked: u64) -> Result<(), TooOld> {
        if asked < self.floor {
            return Err(TooOld {
                asked,
                oldest: self.floor,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use meta::ResourceVersion;

    use super::*;

    /// A change of an object of about so many bytes.
    fn change(revision: u64, bytes: usize) -> Entry {
        let padding = "x".repeat(bytes);
        let body = format!(r#"{{"metadata":{{"name":"a"}},"data":"{padding}"}}"#);
        let object = Object::decode(body.into(), ResourceVersion(revision), Vec::new());
        Entry {
            key: "a".into(),
            revision,
            object: Some(Arc::new(object.unwrap())),
            previous: None,
            at: Duration::ZERO,
        }
    }

    #[test]
    fn large_changes_are_kept_for_less_long() {
        const LARGE: usize = 1_000;
        let mut window = Window::new((4, 1_000));
        window.bytes_max = 16 * LARGE;
        for revision in 1..=100 {
            window.push(change(revision, LARGE), &State::default());
        }
        assert!(window.bytes <= window.bytes_max);
        assert!((14..=16).contains(&window.entries.len()));
        let floor = window.floor();
        assert_eq!(floor, 100 - window.entries.len() as u64);
        assert!(window.after(floor - 1, Selector::default()).is_err());
        // The fewest are kept whatever they take.
        for revision in 101..=110 {
            window.push(change(revision, 16 * LARGE), &State::default());
        }
        assert_eq!(window.entries.len(), 4);
        let sum: usize = window.entries.iter().map(|e| e.bytes()).sum();
        assert_eq!(window.bytes, sum);
        window.reset(110);
        assert_eq!(window.bytes, 0);
    }
}
