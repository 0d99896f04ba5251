//! The past of a range, for a watcher that starts there or fell behind.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::backend::BackendError;
use crate::block::Record;
use crate::key_index::{Rev, Span};
use crate::machine::StateMachine;
use crate::response::{Event, EventKind, KeyValue};

/// What one look may cost, counted in events that are in memory: some milliseconds,
/// so that a watcher of rare keys, or of what lies far back, does not hold up
/// everyone. The next look goes on.
pub(crate) const EFFORT_MAX: usize = 1_000;

/// Revisions passed over that cost as much as an event.
const PASSED_PER_EVENT: usize = 16;

/// Bytes of blocks read that cost as much as an event.
const BYTES_PER_EVENT: usize = 2 << 10;

/// How many keys one look may find through the index; a range with more of them
/// is read revision by revision.
const KEYS_MAX: usize = 1_000;

/// Is a question about the past.
pub(crate) struct Look<'a> {
    pub(crate) span: Span<'a>,
    /// The first main revision of interest.
    pub(crate) from: i64,
    /// The last one.
    pub(crate) to: i64,
    pub(crate) puts: bool,
    pub(crate) deletes: bool,
    /// Stop after the revision that brings the number of events to this.
    pub(crate) events_max: usize,
    /// Or their bytes to this.
    pub(crate) bytes_max: usize,
}

/// Is the answer: whole revisions, and where to look next.
pub(crate) struct Past {
    pub(crate) events: Vec<Event>,
    pub(crate) next: i64,
    /// What it cost, counted as [`EFFORT_MAX`] is.
    pub(crate) effort: usize,
}

/// Adds up what a look costs.
#[derive(Default)]
struct Effort {
    passed: usize,
    bytes_read: usize,
    events: usize,
}

impl Effort {
    fn total(&self) -> usize {
        self.events + self.passed / PASSED_PER_EVENT + self.bytes_read / BYTES_PER_EVENT
    }
}

impl StateMachine {
    /// Reads the events of a range in revision order. Few keys are looked up
    /// through the index; for many the revisions are walked. Neither way costs
    /// more for a long past than for a short one.
    pub(crate) fn past(&self, look: &Look<'_>) -> Result<Past, BackendError> {
        let revisions = usize::try_from(look.to - look.from + 1).unwrap_or(0);
        let keys_max = match look.span {
            Span::One(_) => 1,
            Span::Many(..) => KEYS_MAX.min(revisions / 4),
        };
        match self.past_by_keys(look, keys_max)? {
            Some(past) => Ok(past),
            None => self.past_by_revisions(look),
        }
    }

    /// Merges the changes of each key, which the index has in order; none if the
    /// range has too many keys, deleted ones included.
    fn past_by_keys(&self, look: &Look<'_>, keys_max: usize) -> Result<Option<Past>, BackendError> {
        let mut keys = Vec::new();
        let mut next = BinaryHeap::new();
        for (at, (_, entry)) in self.index.walk(look.span).enumerate() {
            if at == keys_max {
                return Ok(None);
            }
            let mut marks = entry
                .since(look.from)
                .take_while(|m| m.main <= look.to)
                .filter(|m| look.wants(m.tombstone))
                .filter(|m| !(m.tombstone && m.main == self.compacted && planted_loss()));
            if let Some(first) = marks.next() {
                next.push(Reverse((first.rev(), keys.len())));
                keys.push(marks);
            }
        }
        let mut effort = Effort {
            passed: keys.len(),
            ..Effort::default()
        };
        let mut past = Past {
            events: Vec::new(),
            next: look.to + 1,
            effort: 0,
        };
        let mut bytes = 0;
        while let Some(Reverse((rev, at))) = next.pop() {
            let ended = past
                .events
                .last()
                .is_some_and(|e| e.kv.mod_revision < rev.main);
            let full = effort.events >= look.events_max || bytes >= look.bytes_max;
            if ended && (full || effort.total() >= EFFORT_MAX) {
                past.next = rev.main;
                break;
            }
            next.extend(keys[at].next().map(|mark| Reverse((mark.rev(), at))));
            let read = self.values.records.block_to_read(rev);
            effort.bytes_read += read.map_or(0, |(_, bytes)| bytes);
            effort.events += 1;
            let record = self.values.get(rev)?;
            bytes += record.key.len() + record.value.len();
            past.events.push(self.event_at(rev, record));
        }
        past.effort = effort.total();
        Ok(Some(past))
    }

    fn past_by_revisions(&self, look: &Look<'_>) -> Result<Past, BackendError> {
        let mut past = Past {
            events: Vec::new(),
            next: look.to + 1,
            effort: 0,
        };
        let (mut effort, mut bytes) = (Effort::default(), 0);
        self.values
            .scan(Rev::new(look.from, 0), look.to, &mut |rev, record| {
                let full = effort.events >= look.events_max || bytes >= look.bytes_max;
                if rev.sub == 0 && (full || effort.total() >= EFFORT_MAX) {
                    past.next = rev.main;
                    return ControlFlow::Break(());
                }
                effort.passed += 1;
                effort.bytes_read += record.cost();
                if look.wants(record.tombstone) && look.span.contains(&record.key) {
                    effort.events += 1;
                    bytes += record.key.len() + record.value.len();
                    past.events.push(self.event_at(rev, record.clone()));
                }
                ControlFlow::Continue(())
            })?;
        past.effort = effort.total();
        Ok(past)
    }

    fn event_at(&self, rev: Rev, record: Record) -> Event {
        let previous = self.index.get(&record.key).and_then(|e| e.at(rev.main - 1));
        let mut kv = KeyValue {
            key: record.key,
            mod_revision: rev.main,
            ..KeyValue::default()
        };
        if record.tombstone {
            return Event::after(EventKind::Delete, kv, previous);
        }
        kv.create_revision = record.create;
        kv.version = record.version;
        kv.value = record.value;
        kv.lease = record.lease;
        Event::after(EventKind::Put, kv, previous)
    }

    /// Fills an event's `prev_kv`, once for all who share it.
    pub(crate) fn fill_prev(&self, event: &Event) -> Result<(), BackendError> {
        if event.prev.get().is_some() {
            return Ok(());
        }
        let found = match event.previous {
            Some(rev) => self.values.find(rev)?.map(|record| record.into_kv(rev)),
            None => None,
        };
        event.prev.get_or_init(|| found);
        Ok(())
    }
}

fn planted_loss() -> bool {
    mutants::planted(mutants::Bug::DeleteLostAtCompaction)
}

impl Look<'_> {
    fn wants(&self, tombstone: bool) -> bool {
        if tombstone { self.deletes } else { self.puts }
    }
}

/// Reads an empty key as the smallest one, as etcd's watch server does.
pub(crate) fn key_or_zero(key: Bytes) -> Bytes {
    if key.is_empty() {
        Bytes::from_static(b"\0")
    } else {
        key
    }
}
