//! One transaction's changes: everything that takes a revision goes through here.
//!
//! A write takes the next main revision with its first change and numbers its
//! changes within it. A write that changes nothing takes none.

use std::sync::Arc;

use bytes::Bytes;

use crate::backend::BackendError;
use crate::block::Record;
use crate::command::{DeleteRangeRequest, LeaseId, PutRequest};
use crate::error::Error;
use crate::key_index::{KeyEntry, Rev, Span};
use crate::machine::StateMachine;
use crate::response::{DeleteReply, Event, EventKind, KeyValue, PutReply};

/// Is a transaction in progress. [`Write::end`] makes its revision the store's.
pub(crate) struct Write<'a> {
    pub(crate) machine: &'a mut StateMachine,
    index: u64,
    begin: i64,
    changes: u32,
    events: Vec<Arc<Event>>,
}

impl<'a> Write<'a> {
    /// Begins the transaction of a log entry.
    pub(crate) fn begin(machine: &'a mut StateMachine, index: u64) -> Self {
        Self {
            begin: machine.revision,
            machine,
            index,
            changes: 0,
            events: Vec::new(),
        }
    }

    /// Returns the revision as seen from inside: one up once something changed.
    pub(crate) fn current(&self) -> i64 {
        self.begin + i64::from(self.changes > 0)
    }

    /// Ends the transaction.
    pub(crate) fn end(self) -> Vec<Arc<Event>> {
        self.machine.revision = self.current();
        self.events
    }

    /// Checks what a put needs to find: its lease, and the key if it keeps
    /// something of it. The lease comes first, as in etcd.
    pub(crate) fn check_put(machine: &StateMachine, r: &PutRequest) -> Result<(), Error> {
        if r.lease != 0 && !machine.lessor.exists(r.lease) {
            return Err(Error::LeaseNotFound);
        }
        if (r.ignore_value || r.ignore_lease) && machine.index.live(&r.key).is_none() {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    /// Stores a value; [`Write::check_put`] has passed.
    pub(crate) fn put(&mut self, r: &PutRequest) -> Result<PutReply, BackendError> {
        let before = match r.prev_kv || r.ignore_value {
            true => self.present(&r.key)?,
            false => None,
        };
        let value = match &before {
            Some(before) if r.ignore_value => before.value.clone(),
            _ => r.value.clone(),
        };
        let rev = self.next_rev();
        let ignore_lease = r.ignore_lease;
        let done = self.machine.index.upsert(&r.key, |key, entry| {
            let old_lease = entry.lease;
            let lease = if ignore_lease { old_lease } else { r.lease };
            let previous = visible_before(entry, rev.main);
            entry.put(rev, lease);
            Changed {
                key: (lease != old_lease).then(|| key.clone()),
                create: entry.create,
                version: entry.version,
                old_lease,
                lease,
                previous,
            }
        });
        if let Some(key) = done.key {
            self.move_lease(key, done.old_lease, done.lease);
        }
        let record = Record {
            key: r.key.clone(),
            value,
            create: done.create,
            version: done.version,
            lease: done.lease,
            tombstone: false,
        };
        let kv = KeyValue {
            key: record.key.clone(),
            create_revision: record.create,
            mod_revision: rev.main,
            version: record.version,
            value: record.value.clone(),
            lease: record.lease,
        };
        self.record(rev, record, EventKind::Put, kv, done.previous);
        Ok(PutReply {
            revision: rev.main,
            prev_kv: before.filter(|_| r.prev_kv),
        })
    }

    /// Deletes a key or a range.
    pub(crate) fn delete_range(
        &mut self,
        r: &DeleteRangeRequest,
    ) -> Result<DeleteReply, BackendError> {
        let span = Span::new(&r.key, &r.range_end);
        let mut keys = Vec::new();
        let mut revs = Vec::new();
        for (key, entry) in self.machine.index.walk(span).filter(|(_, e)| e.is_live()) {
            keys.push(key.clone());
            revs.push(entry.latest.rev());
        }
        let prev_kvs = match r.prev_kv {
            true => revs
                .iter()
                .map(|rev| self.machine.key_value(*rev))
                .collect::<Result<_, _>>()?,
            false => Vec::new(),
        };
        for key in &keys {
            self.delete(key);
        }
        Ok(DeleteReply {
            revision: self.current(),
            deleted: keys.len() as i64,
            prev_kvs,
        })
    }

    /// Ends a lease and deletes its keys, in key order, in one revision.
    pub(crate) fn revoke(&mut self, id: LeaseId) -> Result<(), Error> {
        let keys = self.machine.lessor.revoke(id).ok_or(Error::LeaseNotFound)?;
        for key in &keys {
            self.delete(key);
        }
        Ok(())
    }

    /// Deletes one key, given as the index's own copy of it.
    fn delete(&mut self, key: &Bytes) {
        let rev = self.next_rev();
        let changed = self.machine.index.modify(key, |_, entry| {
            let done = (entry.lease, visible_before(entry, rev.main));
            entry.delete(rev);
            done
        });
        let (lease, previous) = changed.unwrap_or_default();
        if lease != 0 {
            self.machine.lessor.detach(lease, key);
        }
        let record = Record {
            key: key.clone(),
            tombstone: true,
            ..Record::default()
        };
        let kv = KeyValue {
            key: key.clone(),
            mod_revision: rev.main,
            ..KeyValue::default()
        };
        self.record(rev, record, EventKind::Delete, kv, previous);
    }

    fn record(
        &mut self,
        rev: Rev,
        record: Record,
        kind: EventKind,
        kv: KeyValue,
        previous: Option<Rev>,
    ) {
        self.machine.values.push(rev, self.index, record);
        self.events.push(Arc::new(Event::after(kind, kv, previous)));
        self.changes += 1;
    }

    fn move_lease(&mut self, key: Bytes, from: LeaseId, to: LeaseId) {
        if from != 0 {
            self.machine.lessor.detach(from, &key);
        }
        if to != 0 {
            self.machine.lessor.attach(to, key);
        }
    }

    fn present(&self, key: &[u8]) -> Result<Option<KeyValue>, BackendError> {
        match self.machine.index.live(key) {
            Some(entry) => self.machine.key_value(entry.latest.rev()).map(Some),
            None => Ok(None),
        }
    }

    fn next_rev(&self) -> Rev {
        Rev::new(self.begin + 1, self.changes)
    }
}

/// Is what a put learnt from the index.
struct Changed {
    /// The index's copy of the key, where the lease changed.
    key: Option<Bytes>,
    create: i64,
    version: i64,
    old_lease: LeaseId,
    lease: LeaseId,
    previous: Option<Rev>,
}

/// Finds what a reader at the revision before saw: the event's `prev_kv`.
fn visible_before(entry: &KeyEntry, main: i64) -> Option<Rev> {
    entry.at(main - 1)
}
