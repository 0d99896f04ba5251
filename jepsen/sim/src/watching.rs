//! Clients that watch, and what they hold against the one history: every change they
//! asked for, once, in order, whole revisions, whatever stream it comes by; progress
//! that is true; an end by compaction only where it is one (etcd tests/robustness:
//! filter, ordered, unique, atomic, reliable, resumable, bookmarkable, prev-kv).

use std::{pin::Pin, sync::Arc, task::Waker};

use bytes::Bytes;
use futures::Stream as _;
use kvserver::WatchStream;
use mvcc::{
    Event, EventKind,
    watch::{WatchCreate, WatchReply},
};

use crate::{
    ops::Flag,
    truth::{Truth, covers, describe, same},
};

/// A client that watches.
pub(crate) struct Watcher {
    /// The keys.
    pub(crate) key: Bytes,
    pub(crate) end: Bytes,
    pub(crate) puts: bool,
    pub(crate) deletes: bool,
    pub(crate) prev_kv: bool,
    /// Everything before is behind it: the first revision it waits for. None until it
    /// knows from where on it watches.
    pub(crate) next: Option<i64>,
    /// The machine that it is connected to.
    pub(crate) host: usize,
    pub(crate) stream: Option<Live>,
    /// Replies with events so far.
    pub(crate) heard: u64,
    /// The place of the stream that serves it among all there were.
    pub(crate) recorded: usize,
}

/// A stream that is open.
pub(crate) struct Live {
    pub(crate) stream: WatchStream,
    pub(crate) flag: Arc<Flag>,
}

/// What a reply means for the watcher.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It goes on.
    On,
    /// The stream is over; it opens another.
    Over,
}

impl Watcher {
    /// Makes what to ask for.
    pub(crate) fn create(&self, from: i64) -> WatchCreate {
        WatchCreate {
            key: self.key.clone(),
            range_end: self.end.clone(),
            start_revision: from,
            progress_notify: true,
            prev_kv: self.prev_kv,
            filter_put: !self.puts,
            filter_delete: !self.deletes,
            ..WatchCreate::default()
        }
    }

    /// Takes the next reply, if there is one; the stream's end is `Some(None)`.
    pub(crate) fn poll(&mut self) -> Option<Option<WatchReply>> {
        let live = self.stream.as_mut()?;
        let waker = Waker::from(Arc::clone(&live.flag));
        let mut context = std::task::Context::from_waker(&waker);
        match Pin::new(&mut live.stream).poll_next(&mut context) {
            std::task::Poll::Ready(reply) => Some(reply),
            std::task::Poll::Pending => None,
        }
    }

    fn wants(&self, event: &Event) -> bool {
        let kind = match event.kind {
            EventKind::Put => self.puts,
            EventKind::Delete => self.deletes,
        };
        kind && covers(&self.key, &self.end, &event.kv.key)
    }

    fn expected(&self, truth: &Truth, revision: i64) -> Vec<Arc<Event>> {
        let events = truth.at(revision).map_or(&[][..], |known| &known.events);
        let wanted = events.iter().filter(|event| self.wants(event));
        wanted.cloned().collect()
    }

    /// Returns the first revision in a stretch that holds something for it.
    fn missed(&self, truth: &Truth, from: i64, to: i64) -> Option<i64> {
        (from.max(2)..=to).find(|revision| {
            let events = truth.at(*revision).map_or(&[][..], |known| &known.events);
            events.iter().any(|event| self.wants(event))
        })
    }

    /// Takes a reply in; an error says which guarantee it breaks.
    pub(crate) fn take(&mut self, truth: &Truth, reply: &WatchReply) -> Result<Then, String> {
        if reply.revision > truth.revision() {
            return Err(format!(
                "bookmarkable: a reply of revision {}, the newest is {}",
                reply.revision,
                truth.revision()
            ));
        }
        if reply.canceled {
            return self.cancelled(truth, reply);
        }
        if reply.created {
            // From now on: after the revision that the confirmation names.
            self.next.get_or_insert(reply.revision + 1);
            return Ok(Then::On);
        }
        let Some(next) = self.next else {
            return Err("ordered: events before the confirmation".to_owned());
        };
        if reply.events.is_empty() {
            return self.progress(truth, next, reply.revision);
        }
        self.heard += 1;
        self.events(truth, next, reply)?;
        Ok(Then::On)
    }

    fn cancelled(&mut self, truth: &Truth, reply: &WatchReply) -> Result<Then, String> {
        let compacted = reply.compact_revision;
        if compacted == 0 {
            return Err(format!("cancelled for nothing: {:?}", reply.cancel_reason));
        }
        let next = self.next.unwrap_or(i64::MAX);
        if compacted > truth.compacted() || next >= compacted {
            return Err(format!(
                "resumable: cancelled at {next} for compaction at {compacted}, the log compacted \
                 at {}",
                truth.compacted()
            ));
        }
        self.next = Some(compacted);
        Ok(Then::Over)
    }

    fn progress(&mut self, truth: &Truth, next: i64, revision: i64) -> Result<Then, String> {
        if let Some(missed) = self.missed(truth, next, revision) {
            return Err(format!(
                "bookmarkable: progress to {revision} before the changes of {missed}"
            ));
        }
        self.next = Some(next.max(revision + 1));
        Ok(Then::On)
    }

    fn events(&mut self, truth: &Truth, mut next: i64, reply: &WatchReply) -> Result<(), String> {
        let parts = reply
            .events
            .chunk_by(|a, b| a.kv.mod_revision == b.kv.mod_revision);
        for part in parts {
            let revision = part[0].kv.mod_revision;
            if revision < next {
                return Err(format!(
                    "unique: changes of {revision} again or out of order, {next} was next"
                ));
            }
            if let Some(missed) = self.missed(truth, next, revision - 1) {
                return Err(format!(
                    "reliable: changes of {revision}, those of {missed} are missing"
                ));
            }
            let expected = self.expected(truth, revision);
            if !same(&expected, part) {
                return Err(format!(
                    "atomic: revision {revision} is {}, the log says {}",
                    describe(part),
                    describe(&expected)
                ));
            }
            if self.prev_kv {
                self.check_previous(truth, part, revision)?;
            }
            next = revision + 1;
        }
        self.next = Some(next);
        Ok(())
    }

    fn check_previous(
        &self,
        truth: &Truth,
        events: &[Arc<Event>],
        revision: i64,
    ) -> Result<(), String> {
        for event in events {
            let (got, known) = (event.prev_kv(), truth.get(&event.kv.key, revision - 1));
            // Compaction may have taken it; what it must not be is another.
            if got.is_some() && got != known {
                return Err(format!("prev-kv: {got:?}, the log says {known:?}"));
            }
        }
        Ok(())
    }

    /// Says whether nothing is left for it to hear.
    pub(crate) fn is_done(&self, truth: &Truth) -> bool {
        let Some(next) = self.next else { return false };
        self.missed(truth, next, truth.revision()).is_none()
    }
}
