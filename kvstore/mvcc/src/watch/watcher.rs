//! One watcher: what it wants, how far it has come, what waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::interest::Target;
use super::{WatchCreate, WatchReply};
use crate::key_index::Span;
use crate::response::{Event, EventKind};

/// Bounds what may wait for one watcher. Beyond either the watcher is taken off
/// the live path and reads what it missed from history when its stream is polled.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    /// The most events.
    pub events: usize,
    /// The most bytes of keys and values; one event always fits.
    pub bytes: usize,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            events: 1024,
            // With what frames a message, below the 4 MiB that gRPC clients take unasked.
            bytes: 2 << 20,
        }
    }
}

/// Is a watcher.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// The place of its stream in the hub.
    pub(crate) stream: u32,
    pub(crate) id: i64,
    pub(crate) target: Target,
    /// The start revision as asked for; progress below it is not reported.
    pub(crate) start: i64,
    /// The first revision not yet delivered or pending, where that is not
    /// simply "the next": before a future start, and when behind.
    pub(crate) next: i64,
    /// Whether events reach it as they happen; otherwise it reads history.
    pub(crate) synced: bool,
    pub(crate) pending: VecDeque<Arc<Event>>,
    pub(crate) pending_bytes: usize,
    /// Whether it is in its stream's list of those with something to say.
    pub(crate) ready: bool,
    pub(crate) progress_notify: bool,
    /// Whether no event was sent since the last progress interval began.
    pub(crate) quiet: bool,
    pub(crate) progress_due: bool,
    pub(crate) prev_kv: bool,
    pub(crate) puts: bool,
    pub(crate) deletes: bool,
    pub(crate) fragment: bool,
}

impl Watcher {
    /// Creates a watcher on a store at `revision`.
    pub(crate) fn new(
        stream: u32,
        id: i64,
        target: Target,
        c: &WatchCreate,
        revision: i64,
    ) -> Self {
        let next = if c.start_revision == 0 {
            revision + 1
        } else {
            c.start_revision
        };
        Self {
            stream,
            id,
            target,
            start: c.start_revision,
            next,
            synced: next > revision,
            pending: VecDeque::new(),
            pending_bytes: 0,
            ready: false,
            progress_notify: c.progress_notify,
            quiet: true,
            progress_due: false,
            prev_kv: c.prev_kv,
            puts: !c.filter_put,
            deletes: !c.filter_delete,
            fragment: c.fragment,
        }
    }

    pub(crate) fn span(&self) -> Span<'_> {
        match &self.target {
            Target::Key(key) => Span::One(key),
            Target::Range(from, to) => Span::Many(from, to.as_ref().map(Bytes::as_ref)),
        }
    }

    pub(crate) fn wants(&self, event: &Event) -> bool {
        let kind = match event.kind {
            EventKind::Put => self.puts,
            EventKind::Delete => self.deletes,
        };
        kind && event.kv.mod_revision >= self.next
    }

    /// Takes in a live event; returns whether it fitted. If not, the watcher is
    /// now behind and starts again, from history, at that event's revision.
    pub(crate) fn push(&mut self, event: &Arc<Event>, limits: WatchLimits) -> bool {
        let bytes = cost(event);
        let fits = self.pending.is_empty()
            || (self.pending.len() < limits.events && self.pending_bytes + bytes <= limits.bytes);
        if fits {
            self.pending.push_back(event.clone());
            self.pending_bytes += bytes;
            return true;
        }
        if mutants::planted(mutants::Bug::SlowWatcherLoses) {
            return true;
        }
        self.synced = false;
        self.next = event.kv.mod_revision;
        while let Some(last) = self.pending.back()
            && last.kv.mod_revision == self.next
        {
            self.pending_bytes -= cost(last);
            self.pending.pop_back();
        }
        false
    }

    /// Takes whole revisions off the pending events, about `max` events.
    pub(crate) fn take_pending(&mut self, max: usize) -> Vec<Arc<Event>> {
        if self.pending.len() <= max {
            self.pending_bytes = 0;
            return std::mem::take(&mut self.pending).into();
        }
        let mut upto = max.max(1);
        let last = self.pending[upto - 1].kv.mod_revision;
        while self
            .pending
            .get(upto)
            .is_some_and(|e| e.kv.mod_revision == last)
        {
            upto += 1;
        }
        let taken: Vec<_> = self.pending.drain(..upto).collect();
        self.pending_bytes -= taken.iter().map(|e| cost(e)).sum::<usize>();
        taken
    }

    /// Reports whether everything up to the store's revision was delivered.
    pub(crate) fn up_to_date(&self) -> bool {
        self.synced && self.pending.is_empty()
    }

    /// Builds the message that carries events.
    pub(crate) fn reply(&self, events: Vec<Arc<Event>>, revision: i64) -> WatchReply {
        WatchReply {
            watch_id: self.id,
            revision,
            fragment: self.fragment,
            prev_kv: self.prev_kv,
            events,
            ..WatchReply::default()
        }
    }
}

fn cost(event: &Event) -> usize {
    event.kv.key.len() + event.kv.value.len()
}
