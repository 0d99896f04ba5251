//! What waits to go to one peer: two lanes with limits, emptied a frame at a time.
//!
//! While a frame is on its way, what comes meanwhile gathers and makes the next:
//! batches grow with the load and nobody waits for a timer. Without a link nothing
//! is kept; raft says again what matters.

use std::{
    collections::VecDeque,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use proto::peer::Frame;
use tokio::sync::Notify;

use super::note::Note;

/// Most notes that wait for one peer. Beyond it they are dropped: raft is told and
/// tries again, a client hears that there are too many requests.
pub(crate) const QUEUE_NOTES_MAX: usize = 8_192;

/// Most bytes that wait for one peer; beyond it as above. As much as a leader may have
/// appended and not committed, which its log holds anyway: entries are shared with it.
/// A single note that is larger goes when nothing else waits.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// A frame takes notes until it has this many bytes, so that what is urgent does not
/// wait behind much.
pub(crate) const FRAME_BYTES: usize = 1 << 20;

/// Frames from this size on are probes too: the answer shows that the peer takes in
/// what it is sent, however slow the network.
const PROBE_BYTES: usize = 64 << 10;

/// Why a note was not taken; it will not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undelivered {
    /// There is no such peer.
    NoSuchPeer,
    /// There is no link to the peer at the moment.
    Down,
    /// Too much waits for the peer already.
    Full,
}

#[derive(Debug, Default)]
struct State {
    /// Counts links, so that what reads for an older one learns that it is over.
    link: u64,
    up: bool,
    urgent: VecDeque<Note>,
    bulk: VecDeque<Note>,
    bytes: usize,
    /// To be answered by the peer with the next frame, if not zero.
    probe: u64,
    last_probe: u64,
    /// Whether messages of raft were dropped and raft has not been told.
    lost: bool,
}

/// What there is to send.
enum Taken {
    Notes {
        notes: Vec<Note>,
        size: usize,
        probe: u64,
    },
    Nothing,
    /// The link that asks is not the one that is up.
    Over,
}

/// The queue of one peer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something waits to be sent.
    ready: Notify,
    /// Messages of raft were dropped.
    trouble: Notify,
}

impl Queue {
    /// Takes a note, unless there is no link or no room. Never waits.
    pub(super) fn push(&self, note: Note) -> Result<(), Undelivered> {
        let mut state = self.lock();
        let size = note.size();
        let waiting = state.urgent.len() + state.bulk.len();
        let full = waiting >= QUEUE_NOTES_MAX
            || waiting > 0 && state.bytes.saturating_add(size) > QUEUE_BYTES_MAX;
        if !state.up || full {
            if note.is_raft() {
                state.lost = true;
                self.trouble.notify_one();
            }
            return Err(match state.up {
                true => Undelivered::Full,
                false => Undelivered::Down,
            });
        }
        state.bytes += size;
        match note.is_bulk() {
            true => state.bulk.push_back(note),
            false => state.urgent.push_back(note),
        }
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Begins a link; returns its number.
    pub(super) fn open(&self) -> u64 {
        let mut state = self.lock();
        let state = &mut *state;
        state.link += 1;
        state.up = true;
        state.probe = 0;
        state.link
    }

    /// Ends the link, if there is one, and drops what waits.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        let (urgent, bulk) = (mem::take(&mut state.urgent), mem::take(&mut state.bulk));
        state.lost |= state.up || urgent.iter().chain(&bulk).any(Note::is_raft);
        state.bytes = 0;
        state.up = false;
        // Whoever reads for it must see that it is over.
        self.ready.notify_one();
    }

    /// Says, once, whether messages of raft were dropped.
    pub(super) fn take_lost(&self) -> bool {
        mem::take(&mut self.lock().lost)
    }

    /// Waits until messages of raft were dropped.
    pub(super) async fn trouble(&self) {
        self.trouble.notified().await;
    }

    /// Has the next frame, which goes at once, ask for an answer; returns the number
    /// that the answer will have.
    pub(super) fn probe(&self) -> u64 {
        let mut state = self.lock();
        state.last_probe += 1;
        state.probe = state.last_probe;
        let probe = state.probe;
        drop(state);
        self.ready.notify_one();
        probe
    }

    /// Waits for the next frame of a link; none when it is over.
    pub(super) async fn frame(&self, link: u64) -> Option<Frame> {
        loop {
            match self.take(link) {
                Taken::Notes { notes, size, probe } => {
                    let mut bytes = Vec::with_capacity(size);
                    for note in &notes {
                        note.encode(&mut bytes);
                    }
                    let notes = bytes.into();
                    return Some(Frame { notes, probe });
                }
                Taken::Over => {
                    // The wake-up may have been meant for the link that reads now.
                    self.ready.notify_one();
                    return None;
                }
                Taken::Nothing => self.ready.notified().await,
            }
        }
    }

    fn take(&self, link: u64) -> Taken {
        let mut state = self.lock();
        if state.link != link || !state.up {
            return Taken::Over;
        }
        if state.probe == 0 && state.urgent.is_empty() && state.bulk.is_empty() {
            return Taken::Nothing;
        }
        let (notes, size) = state.take();
        let mut probe = mem::take(&mut state.probe);
        if size >= PROBE_BYTES && probe == 0 {
            state.last_probe += 1;
            probe = state.last_probe;
        }
        Taken::Notes { notes, size, probe }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change leaves a queue that is fit to use; a panic undoes none.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the notes of one frame, what is urgent first.
    fn take(&mut self) -> (Vec<Note>, usize) {
        let mut notes = Vec::new();
        let mut size = 0;
        while size < FRAME_BYTES {
            let Some(note) = self.urgent.pop_front().or_else(|| self.bulk.pop_front()) else {
                break;
            };
            size += note.size();
            notes.push(note);
        }
        self.bytes = self.bytes.saturating_sub(size);
        (notes, size)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::peers::message::heartbeat;

    fn forward(id: u64, length: usize) -> Note {
        let data = Bytes::from(vec![0; length]);
        Note::Forward { id, data }
    }

    fn ids(frame: &Frame) -> Vec<u64> {
        let notes = Note::decode_all(frame.notes.clone()).unwrap();
        let id = |note: &Note| match note {
            Note::Forward { id, .. } => *id,
            Note::ReadAsk { attempt } => *attempt,
            other => panic!("{other:?}"),
        };
        notes.iter().map(id).collect()
    }

    #[tokio::test]
    async fn what_is_urgent_goes_first_and_the_rest_in_order() {
        let queue = Queue::default();
        let link = queue.open();
        for id in 1..=3 {
            queue.push(forward(id, 10)).unwrap();
        }
        for attempt in 10..=11 {
            queue.push(Note::ReadAsk { attempt }).unwrap();
        }
        let frame = queue.frame(link).await.unwrap();
        assert_eq!(ids(&frame), [10, 11, 1, 2, 3]);
        assert_eq!(frame.probe, 0);
    }

    #[tokio::test]
    async fn a_frame_has_its_size_and_a_large_one_asks_for_an_answer() {
        let queue = Queue::default();
        let link = queue.open();
        for id in 1..=5 {
            queue.push(forward(id, FRAME_BYTES / 2)).unwrap();
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            let frame = queue.frame(link).await.unwrap();
            seen.push((ids(&frame), frame.probe));
        }
        assert_eq!(
            seen,
            [(vec![1, 2], 1), (vec![3, 4], 2), (vec![5], 3)],
            "and each is counted"
        );
        assert_eq!(queue.lock().bytes, 0);
    }

    #[tokio::test]
    async fn a_probe_goes_without_notes_too() {
        let queue = Queue::default();
        let link = queue.open();
        let probe = queue.probe();
        let frame = queue.frame(link).await.unwrap();
        assert_eq!((frame.notes.len(), frame.probe), (0, probe));
    }

    #[test]
    fn both_limits_hold_and_raft_is_told() {
        let queue = Queue::default();
        queue.open();
        for attempt in 0..QUEUE_NOTES_MAX as u64 {
            queue.push(Note::ReadAsk { attempt }).unwrap();
        }
        let full = Err(Undelivered::Full);
        assert_eq!(queue.push(forward(1, 1)), full);
        assert!(!queue.take_lost(), "a forward is the client's to repeat");
        assert_eq!(queue.push(Note::Raft(Box::new(heartbeat(1, 2)))), full);
        assert!(queue.take_lost() && !queue.take_lost());

        let queue = Queue::default();
        queue.open();
        let huge = QUEUE_BYTES_MAX + 1;
        queue.push(forward(1, huge)).unwrap();
        assert_eq!(queue.push(forward(2, 1)), full, "alone it may be too large");
    }

    #[tokio::test]
    async fn without_a_link_nothing_is_kept() {
        let queue = Queue::default();
        let down = Err(Undelivered::Down);
        assert_eq!(queue.push(forward(1, 1)), down);
        let link = queue.open();
        queue.push(forward(2, 1)).unwrap();
        queue.close();
        assert_eq!(queue.frame(link).await, None);
        assert_eq!(queue.push(forward(3, 1)), down);
        assert!(queue.take_lost(), "what the link had taken may be lost");
        let next = queue.open();
        assert_eq!(queue.frame(link).await, None, "an older link stays over");
        queue.push(forward(4, 1)).unwrap();
        assert_eq!(ids(&queue.frame(next).await.unwrap()), [4]);
    }
}
