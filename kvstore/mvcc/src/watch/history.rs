//! The past of a range, for a watcher that starts there or fell behind.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::backend::BackendError;
use crate::block::Record;
use crate::key_index::{Rev, Span};
use crate::machine::StateMachine;
use crate::response::{Event, EventKind, KeyValue};

/// How many revisions one look may pass over in search of matching ones, so
/// that a watcher of rare keys does not hold up everyone.
const LOOK_MAX: usize = 20_000;

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
}

impl StateMachine {
    /// Reads the events of a range in revision order. Few keys are looked up
    /// through the index; for many the revisions are walked.
    pub(crate) fn past(&self, look: &Look<'_>) -> Result<Past, BackendError> {
        let revisions = (look.to - look.from + 1).max(0) as u64;
        let few = match look.span {
            Span::One(_) => true,
            Span::Many(..) => self.index.count(look.span) < revisions / 4,
        };
        if few {
            self.past_by_keys(look)
        } else {
            self.past_by_revisions(look)
        }
    }

    fn past_by_keys(&self, look: &Look<'_>) -> Result<Past, BackendError> {
        let mut found: Vec<Rev> = Vec::new();
        for (_, entry) in self.index.walk(look.span) {
            let marks = entry.since(look.from).take_while(|m| m.main <= look.to);
            found.extend(marks.filter(|m| look.wants(m.tombstone)).map(|m| m.rev()));
        }
        found.sort_unstable();
        let mut past = Past {
            events: Vec::new(),
            next: look.to + 1,
        };
        let mut bytes = 0;
        for rev in found {
            let ended = past
                .events
                .last()
                .is_some_and(|e| e.kv.mod_revision < rev.main);
            if ended && (past.events.len() >= look.events_max || bytes >= look.bytes_max) {
                past.next = rev.main;
                break;
            }
            let record = self.values.get(rev)?;
            bytes += record.key.len() + record.value.len();
            past.events.push(self.event_at(rev, record));
        }
        Ok(past)
    }

    fn past_by_revisions(&self, look: &Look<'_>) -> Result<Past, BackendError> {
        let mut past = Past {
            events: Vec::new(),
            next: look.to + 1,
        };
        let (mut seen, mut bytes) = (0, 0);
        self.values
            .scan(Rev::new(look.from, 0), look.to, &mut |rev, record| {
                let full = past.events.len() >= look.events_max || bytes >= look.bytes_max;
                if rev.sub == 0 && (full || seen >= LOOK_MAX) {
                    past.next = rev.main;
                    return ControlFlow::Break(());
                }
                seen += 1;
                if look.wants(record.tombstone) && look.span.contains(&record.key) {
                    bytes += record.key.len() + record.value.len();
                    past.events.push(self.event_at(rev, record.clone()));
                }
                ControlFlow::Continue(())
            })?;
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
