//! The hub: streams, their watchers, and the order of what they are told.

mod replies;
mod restored;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use self::replies::{NO_WATCH, compacted, progress, refusal};
use super::history::{EFFORT_MAX, Look, key_or_zero};
use super::interest::{Interest, Slot, Target};
use super::watcher::{WatchLimits, Watcher};
use super::{Polled, StreamId, WatchCreate, WatchReply};
use crate::backend::BackendError;
use crate::error::Error;
use crate::machine::StateMachine;
use crate::response::Event;

const EMPTY_RANGE: &str = "mvcc: watcher range is empty";
const DUPLICATE_ID: &str = "mvcc: duplicate watch ID provided on the WatchStream";

/// Holds every stream and watcher of one member.
#[derive(Debug, Default)]
pub struct WatchHub {
    /// The store's revision as last published.
    revision: i64,
    ids: BTreeMap<StreamId, u32>,
    streams: Vec<Option<Stream>>,
    free_streams: Vec<u32>,
    watchers: Vec<Option<Watcher>>,
    free_watchers: Vec<Slot>,
    interest: Interest,
    limits: WatchLimits,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    watchers: BTreeMap<i64, Slot>,
    /// Ids of watches that compaction ended. Like etcd, none of them is free until
    /// the client cancels it (`mvcc/watcher.go`: only Cancel forgets an id).
    ended: BTreeSet<i64>,
    /// The next id to try for a watch that did not bring one.
    next_id: i64,
    /// Confirmations and refusals, sent before any event.
    outbox: VecDeque<WatchReply>,
    /// Watchers with pending events or history to read, in turn.
    ready: VecDeque<Slot>,
    progress_requested: bool,
    /// Whether it was named by `publish` since it was polled last.
    told: bool,
}

impl Stream {
    /// Says whether an id is taken.
    fn uses(&self, id: i64) -> bool {
        self.watchers.contains_key(&id) || self.ended.contains(&id)
    }
}

impl WatchHub {
    /// Creates a hub for a store at `revision`.
    pub fn new(revision: i64) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }

    /// Creates a hub with limits of one's own.
    pub fn with_limits(revision: i64, limits: WatchLimits) -> Self {
        Self {
            limits,
            ..Self::new(revision)
        }
    }

    /// Returns the store's revision as last published.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    // --- streams ---

    /// Opens a stream. Opening one twice is harmless.
    pub fn open_stream(&mut self, stream: StreamId) {
        if self.ids.contains_key(&stream) {
            return;
        }
        let opened = Some(Stream {
            id: stream,
            watchers: BTreeMap::new(),
            ended: BTreeSet::new(),
            next_id: 0,
            outbox: VecDeque::new(),
            ready: VecDeque::new(),
            progress_requested: false,
            told: false,
        });
        let at = insert(&mut self.streams, &mut self.free_streams, opened);
        self.ids.insert(stream, at);
    }

    /// Forgets a stream and its watchers.
    pub fn drop_stream(&mut self, stream: StreamId) {
        let Some(at) = self.ids.remove(&stream) else {
            return;
        };
        let Some(gone) = self.streams[at as usize].take() else {
            return;
        };
        self.free_streams.push(at);
        for slot in gone.watchers.into_values() {
            self.drop_watcher(slot);
        }
    }

    fn stream_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        let at = *self.ids.get(&stream)?;
        self.streams[at as usize].as_mut()
    }

    fn drop_watcher(&mut self, slot: Slot) {
        if let Some(gone) = self.watchers[slot as usize].take() {
            if gone.synced {
                self.interest.remove(&gone.target, slot);
            }
            self.free_watchers.push(slot);
        }
    }

    // --- what clients ask ---

    /// Creates a watch; the confirmation or refusal comes with the next poll,
    /// in front of everything about that id. Returns the id, -1 if refused.
    pub fn create(&mut self, stream: StreamId, create: WatchCreate) -> i64 {
        self.open_stream(stream);
        let at = self.ids[&stream];
        let revision = self.revision;
        let chosen = self.choose_id(at, &create);
        let Some(s) = self.streams[at as usize].as_mut() else {
            return NO_WATCH;
        };
        let (id, target) = match chosen {
            Ok(chosen) => chosen,
            Err(reason) => {
                s.outbox.push_back(refusal(revision, reason));
                return NO_WATCH;
            }
        };
        s.outbox.push_back(WatchReply {
            watch_id: id,
            revision,
            created: true,
            ..WatchReply::default()
        });
        let mut watcher = Watcher::new(at, id, target, &create, revision);
        watcher.ready = !watcher.synced;
        let (synced, target) = (watcher.synced, watcher.target.clone());
        let slot = insert(&mut self.watchers, &mut self.free_watchers, Some(watcher));
        s.watchers.insert(id, slot);
        if synced {
            self.interest.insert(&target, slot);
        } else {
            s.ready.push_back(slot);
        }
        id
    }

    /// Checks a creation and settles its id, in etcd's order (`watch.go`).
    fn choose_id(&mut self, at: u32, c: &WatchCreate) -> Result<(i64, Target), String> {
        if c.start_revision < 0 {
            return Err(Error::Compacted.to_string());
        }
        let key = key_or_zero(c.key.clone());
        let target = match c.range_end.as_ref() {
            [] => Target::Key(key),
            [0] => Target::Range(key, None),
            end if key.as_ref() >= end => return Err(EMPTY_RANGE.to_owned()),
            _ => Target::Range(key, Some(c.range_end.clone())),
        };
        let Some(s) = self.streams[at as usize].as_mut() else {
            return Err(Error::WatchCanceled.to_string());
        };
        if c.watch_id != 0 {
            return match s.uses(c.watch_id) {
                true => Err(DUPLICATE_ID.to_owned()),
                false => Ok((c.watch_id, target)),
            };
        }
        while s.uses(s.next_id) {
            s.next_id += 1;
        }
        s.next_id += 1;
        Ok((s.next_id - 1, target))
    }

    /// Queues a refusal for a creation the edge itself refuses (permission).
    pub fn refuse(&mut self, stream: StreamId, reason: String) {
        self.open_stream(stream);
        let revision = self.revision;
        if let Some(s) = self.stream_mut(stream) {
            s.outbox.push_back(refusal(revision, reason));
        }
    }

    /// Cancels a watch at the client's wish; the confirmation comes with the
    /// next poll. An unknown id gets no answer, as in etcd. Returns whether known.
    pub fn cancel(&mut self, stream: StreamId, watch_id: i64) -> bool {
        let revision = self.revision;
        let Some(s) = self.stream_mut(stream) else {
            return false;
        };
        let slot = s.watchers.remove(&watch_id);
        if slot.is_none() && !s.ended.remove(&watch_id) {
            return false;
        }
        s.ready.retain(|r| Some(*r) != slot);
        s.outbox.push_back(WatchReply {
            watch_id,
            revision,
            canceled: true,
            ..WatchReply::default()
        });
        if let Some(slot) = slot {
            self.drop_watcher(slot);
        }
        true
    }

    /// Asks for a progress reply (watch id -1). It comes after everything before
    /// it has been delivered and every watch of the stream is up to date; not at
    /// all for a stream without watches, or with one whose start is still in the
    /// future. While watches catch up, several requests get one reply.
    pub fn request_progress(&mut self, stream: StreamId) {
        let revision = self.revision;
        let Self {
            ids,
            streams,
            watchers,
            ..
        } = self;
        let at = ids.get(&stream).copied();
        let Some(s) = at.and_then(|at| streams[at as usize].as_mut()) else {
            return;
        };
        let (mut current, mut future) = (true, s.watchers.is_empty());
        for slot in s.watchers.values() {
            if let Some(w) = &watchers[*slot as usize] {
                current &= w.up_to_date();
                future |= revision < w.start;
            }
        }
        if future {
            return;
        }
        if current {
            // With nothing pending, whatever is sent next comes later.
            s.outbox.push_back(progress(revision));
        } else {
            s.progress_requested = true;
        }
    }

    /// Marks one progress interval of a stream as over; returns whether to poll it.
    /// Only watches that were quiet since the last call and are up to date get a
    /// reply (etcd: v3rpc/watch.go, `sendLoop`).
    pub fn progress_tick(&mut self, stream: StreamId) -> bool {
        let at = self.ids.get(&stream).copied();
        let Some(s) = at.and_then(|at| self.streams[at as usize].as_ref()) else {
            return false;
        };
        let mut due = false;
        for slot in s.watchers.values() {
            let Some(w) = &mut self.watchers[*slot as usize] else {
                continue;
            };
            if w.progress_notify && w.quiet && w.up_to_date() && self.revision >= w.start {
                w.progress_due = true;
                due = true;
            }
            w.quiet = true;
        }
        due
    }

    /// Counts the confirmations and refusals a stream has not been polled for. The
    /// shell reads no more requests while they are many.
    pub fn unconfirmed(&self, stream: StreamId) -> usize {
        let at = self.ids.get(&stream).copied();
        let stream = at.and_then(|at| self.streams[at as usize].as_ref());
        stream.map_or(0, |s| s.outbox.len())
    }

    // --- events ---

    /// Hands over the changes of one applied entry, after which the store is at
    /// `revision`. Call it for every `Applied`, before answering its proposer and
    /// before anything else is applied. Returns the streams to poll; one that was
    /// named and has not been polled yet is not named again.
    ///
    /// The pair before a change is looked up here for whoever wants it, since a
    /// compaction may take it before a slow watcher is served.
    pub fn publish(
        &mut self,
        events: &[Arc<Event>],
        revision: i64,
        machine: &StateMachine,
    ) -> Result<Vec<StreamId>, BackendError> {
        self.revision = revision;
        let mut told = Vec::new();
        for event in events {
            let mut behind = Vec::new();
            let mut prev_kv = false;
            let Self {
                interest,
                watchers,
                streams,
                limits,
                ..
            } = self;
            interest.each(&event.kv.key, |slot| {
                let Some(w) = &mut watchers[slot as usize] else {
                    return;
                };
                if !w.wants(event) {
                    return;
                }
                prev_kv |= w.prev_kv;
                if !w.push(event, *limits) {
                    behind.push(slot);
                }
                let Some(s) = &mut streams[w.stream as usize] else {
                    return;
                };
                if !w.ready {
                    w.ready = true;
                    s.ready.push_back(slot);
                }
                if !s.told {
                    s.told = true;
                    told.push(s.id);
                }
            });
            if prev_kv {
                machine.fill_prev(event)?;
            }
            for slot in behind {
                if let Some(w) = &self.watchers[slot as usize] {
                    self.interest.remove(&w.target, slot);
                }
            }
        }
        Ok(told)
    }

    /// Takes what a stream should send now, about `events_max` events at most
    /// (a revision is never split).
    pub fn poll(
        &mut self,
        stream: StreamId,
        machine: &StateMachine,
        events_max: usize,
    ) -> Result<Polled, BackendError> {
        let mut polled = Polled::default();
        let Some(at) = self.ids.get(&stream).copied() else {
            return Ok(polled);
        };
        let Some(s) = &mut self.streams[at as usize] else {
            return Ok(polled);
        };
        s.told = false;
        polled.replies.extend(s.outbox.drain(..));
        // One turn each at most, so that watchers share what may be sent.
        let mut turns = s.ready.len();
        let mut left = events_max.max(1);
        while turns > 0 && left > 0 {
            turns -= 1;
            let Some(slot) = self.next_ready(at) else {
                break;
            };
            let effort = self.serve(at, slot, machine, left, &mut polled.replies)?;
            left = left.saturating_sub(effort);
        }
        self.poll_progress(at, &mut polled.replies);
        polled.more = self.streams[at as usize]
            .as_ref()
            .is_some_and(|s| !s.ready.is_empty());
        Ok(polled)
    }

    fn next_ready(&mut self, at: u32) -> Option<Slot> {
        self.streams[at as usize].as_mut()?.ready.pop_front()
    }

    /// Serves one ready watcher; returns what that cost, counted in events.
    fn serve(
        &mut self,
        at: u32,
        slot: Slot,
        machine: &StateMachine,
        events_max: usize,
        replies: &mut Vec<WatchReply>,
    ) -> Result<usize, BackendError> {
        let Some(w) = &mut self.watchers[slot as usize] else {
            return Ok(0);
        };
        let (events, effort) = if !w.pending.is_empty() {
            (w.take_pending(events_max), 0)
        } else if w.synced {
            (Vec::new(), 0)
        } else if w.next < machine.compact_revision()
            && mutants::planted(mutants::Bug::WatchGapAtCompaction)
        {
            w.next = machine.compact_revision();
            (Vec::new(), 0)
        } else if w.next < machine.compact_revision() {
            replies.push(compacted(w.id, machine.compact_revision()));
            let id = w.id;
            if let Some(s) = &mut self.streams[at as usize] {
                s.watchers.remove(&id);
                s.ended.insert(id);
            }
            self.drop_watcher(slot);
            return Ok(0);
        } else {
            catch_up(
                w,
                slot,
                machine,
                self.revision,
                (events_max, self.limits.bytes),
                &mut self.interest,
            )?
        };
        w.ready = !w.up_to_date();
        let effort = effort.max(events.len());
        if !events.is_empty() {
            w.quiet = false;
            if w.prev_kv {
                events.iter().try_for_each(|e| machine.fill_prev(e))?;
            }
            let last = events.last().map_or(0, |e| e.kv.mod_revision);
            let revision = if w.ready { last } else { self.revision };
            replies.push(w.reply(events, revision));
        }
        if w.ready
            && let Some(s) = &mut self.streams[at as usize]
        {
            s.ready.push_back(slot);
        }
        Ok(effort)
    }

    /// Adds the progress replies that nothing stands before any more.
    fn poll_progress(&mut self, at: u32, replies: &mut Vec<WatchReply>) {
        let revision = self.revision;
        let Some(s) = &mut self.streams[at as usize] else {
            return;
        };
        let (mut current, mut future) = (true, s.watchers.is_empty());
        for slot in s.watchers.values() {
            let Some(w) = &mut self.watchers[*slot as usize] else {
                continue;
            };
            current &= w.up_to_date();
            future |= revision < w.start;
            if w.progress_due && w.up_to_date() {
                w.progress_due = false;
                if w.quiet {
                    replies.push(w.reply(Vec::new(), revision));
                }
            }
        }
        if s.progress_requested && (current || future) {
            s.progress_requested = false;
            if !future {
                replies.push(progress(revision));
            }
        }
    }

    /// Lists the streams with something to say; after a compaction, say.
    pub fn ready(&self) -> Vec<StreamId> {
        let says =
            |s: &&Stream| !s.ready.is_empty() || !s.outbox.is_empty() || s.progress_requested;
        self.streams
            .iter()
            .flatten()
            .filter(says)
            .map(|s| s.id)
            .collect()
    }

    /// Counts the watchers, for `etcd_debugging_mvcc_watcher_total`.
    pub fn watcher_count(&self) -> usize {
        self.watchers.iter().flatten().count()
    }

    /// Counts the watchers that read history, for `slow_watcher_total`.
    pub fn unsynced_count(&self) -> usize {
        self.watchers.iter().flatten().filter(|w| !w.synced).count()
    }

    /// Counts the events that wait for their watcher to be read, for
    /// `pending_events_total`.
    pub fn pending_count(&self) -> usize {
        self.watchers
            .iter()
            .flatten()
            .map(|w| w.pending.len())
            .sum()
    }

    /// Counts the streams, for `watch_stream_total`.
    pub fn stream_count(&self) -> usize {
        self.ids.len()
    }
}

/// Events of the past at a time whose earlier pairs are looked up as well: each may
/// be in a block of its own.
const PREV_EVENTS_MAX: usize = 100;

/// Reads a stretch of history; at its end the watcher joins the live path. Returns
/// also what that cost.
fn catch_up(
    w: &mut Watcher,
    slot: Slot,
    machine: &StateMachine,
    revision: i64,
    (events_max, bytes_max): (usize, usize),
    interest: &mut Interest,
) -> Result<(Vec<Arc<Event>>, usize), BackendError> {
    let events_max = match w.prev_kv {
        true => events_max.min(PREV_EVENTS_MAX),
        false => events_max,
    };
    let past = machine.past(&Look {
        span: w.span(),
        from: w.next,
        to: revision,
        puts: w.puts,
        deletes: w.deletes,
        events_max,
        bytes_max,
    })?;
    w.next = past.next;
    if w.next > revision {
        w.synced = true;
        interest.insert(&w.target, slot);
    }
    let events: Vec<_> = past.events.into_iter().map(Arc::new).collect();
    let effort = match w.prev_kv {
        true => past.effort + events.len() * (EFFORT_MAX / PREV_EVENTS_MAX),
        false => past.effort,
    };
    Ok((events, effort))
}

/// Puts an item into the first free place.
fn insert<T>(items: &mut Vec<Option<T>>, free: &mut Vec<u32>, item: Option<T>) -> u32 {
    match free.pop() {
        Some(at) => {
            items[at as usize] = item;
            at
        }
        None => {
            items.push(item);
            (items.len() - 1) as u32
        }
    }
}
