//! Views: the store as it is at one moment, to be read apart from it.
//!
//! ```text
//! under the lock                    on any thread, as long as it takes
//! let view = machine.view(now);     view.range(&request)
//! let facts = machine.facts();      view.hash_kv(revision)
//!                                   for change in view.history() { .. }
//! ```
//!
//! Taking one copies lists of pointers: the index and the block table share
//! their nodes, the tail its chunks. Whoever writes afterwards copies the nodes
//! it changes, each once per view. Nothing the view shows ever changes, whatever
//! is put, deleted, compacted or written back meanwhile.
//!
//! The one thing a view needs from the outside are the rows of its blocks. Rows
//! that compaction wants replaced stay as they are while a view taken before
//! needs them: the replacements wait in memory (for reads, and for later views,
//! they count at once), and once [`STAGED_BYTES_MAX`] wait, rewriting pauses.
//! Views taken later do not prolong the wait, so a stream of short ones cannot
//! starve compaction. One that is kept for too long is let go by
//! [`StateMachine::expire_views`]; reading a row through it then fails with
//! [`Error::Timeout`], and never shows something else.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::vec;

use bytes::Bytes;

use crate::auth::AuthImage;
use crate::backend::BackendError;
use crate::block::Record;
use crate::command::{Alarm, LeaseId, RangeRequest, TxnRequest};
use crate::error::Error;
use crate::hash::KvHash;
use crate::key_index::{KeyEntry, KeyIndex, Rev, Span};
use crate::machine::StateMachine;
use crate::membership::Membership;
use crate::records::Records;
use crate::response::{KeyValue, Pair, RangeEnd, RangeReply, TxnReply};

/// Bytes of replaced rows that may wait for views. Beyond it blocks are not
/// rewritten until the oldest of the views is gone.
pub const STAGED_BYTES_MAX: usize = 8 << 20;

/// Rows, replaced or emptied, that may wait for views; beyond it likewise.
pub(crate) const STAGED_ROWS_MAX: usize = 1_024;

/// Changes [`History`] reads at a time.
const HISTORY_CHANGES: usize = 1_024;

/// Bytes after which [`History`] stops reading ahead.
const HISTORY_BYTES: usize = 256 << 10;

/// Is the store at one moment. It is `Send`, and keeps memory that the store has
/// since replaced, so drop it when done.
pub struct View {
    index: KeyIndex,
    records: Records,
    revision: i64,
    compacted: i64,
    applied_index: u64,
    applied_term: u64,
}

/// Is a lease as it is replicated, without any clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseFact {
    /// The lease.
    pub id: LeaseId,
    /// The seconds granted.
    pub ttl: i64,
    /// The seconds left at the last checkpoint; 0 for none.
    pub remaining: i64,
}

/// Is the small part of the store, copied. Taken under the same lock as a
/// [`View`], it is of the same moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// The leases, ascending.
    pub leases: Vec<LeaseFact>,
    /// The alarms, by member and kind.
    pub alarms: Vec<Alarm>,
    /// Facts by name: whether the cluster goes back to an older version.
    pub meta: Vec<(String, Bytes)>,
    /// Users, roles and whether callers are checked.
    pub auth: AuthImage,
    /// Who the members are.
    pub membership: Membership,
}

/// Is one change of the history: a record of etcd's "key" bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The transaction's revision.
    pub main: i64,
    /// The place in the transaction.
    pub sub: u32,
    /// Whether it deleted the key; `kv` then has only the key.
    pub tombstone: bool,
    /// The pair written; `mod_revision` is `main` (0 with a tombstone).
    pub kv: KeyValue,
}

/// Keys a short answer may look at: some tenths of a millisecond.
const SHORT_KEYS: usize = 1_000;

/// Bytes of blocks a short answer may read from the tree: likewise.
const SHORT_BYTES: usize = 512 << 10;

/// Is what an answer may still cost.
#[derive(Debug)]
pub(crate) struct Budget {
    keys: Cell<usize>,
    bytes: Cell<usize>,
}

/// Returns what a short answer may cost.
pub(crate) fn short() -> Budget {
    Budget {
        keys: Cell::new(SHORT_KEYS),
        bytes: Cell::new(SHORT_BYTES),
    }
}

/// Is something to read from: the machine, or a view of it.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    budget: Option<&'a Budget>,
    pub(crate) index: &'a KeyIndex,
    pub(crate) records: &'a Records,
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
}

impl StateMachine {
    /// Takes a view of the present moment, `now` being the same clock that leases
    /// are told. It takes some microseconds, and a pointer for every 256 recent
    /// revisions.
    pub fn view(&mut self, now: Duration) -> View {
        let pin = self.pins.pin(now);
        View {
            index: self.index.clone(),
            records: self.values.records.freeze(pin),
            revision: self.revision,
            compacted: self.compacted,
            applied_index: self.applied_index,
            applied_term: self.applied_term,
        }
    }

    /// Copies what a view does not have: leases, alarms, users, members.
    pub fn facts(&self) -> Facts {
        Facts {
            leases: self.lessor.facts(),
            alarms: self.alarms(),
            auth: self.auth.image(),
            membership: self.membership.clone(),
            meta: self
                .meta
                .iter()
                .map(|(name, row)| (name.clone(), row.clone()))
                .collect(),
        }
    }

    /// Lets go of views taken before a time, so that compaction does not wait for
    /// them any more. Returns how many.
    pub fn expire_views(&mut self, taken_before: Duration) -> usize {
        self.pins.expire(taken_before)
    }

    /// Counts the views that are held.
    pub fn view_count(&mut self) -> usize {
        self.pins.count()
    }

    /// Answers a range if that takes little reading, wherever its keys are; if not,
    /// answers nothing: then [`View::range`] does, apart from the machine.
    pub fn range_if_short(&self, r: &RangeRequest) -> Result<Option<RangeReply>, Error> {
        let budget = short();
        let reading = self.reading().within(&budget);
        if_short(reading.range_at(r, self.revision))
    }

    /// Answers likewise, with pairs where they lie, in their order. What was visited
    /// is an answer only if the end of one is returned.
    pub fn range_each_if_short(
        &self,
        r: &RangeRequest,
        visit: impl FnMut(Pair<'_>),
    ) -> Result<Option<RangeEnd>, Error> {
        let budget = short();
        if_short(self.reading().within(&budget).range_each(r, visit))
    }

    /// Answers a txn that only reads, likewise.
    pub fn txn_readonly_if_short(&self, r: &TxnRequest) -> Result<Option<TxnReply>, Error> {
        let budget = short();
        if_short(self.reading().within(&budget).txn_readonly(r))
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading {
            budget: None,
            index: &self.index,
            records: &self.values.records,
            revision: self.revision,
            compacted: self.compacted,
        }
    }
}

impl View {
    /// Returns the revision of the store.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the compacted revision; -1 before the first compaction.
    pub fn compact_revision(&self) -> i64 {
        self.compacted
    }

    /// Returns the index of the last entry applied.
    pub fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Returns the term of the last entry applied.
    pub fn applied_term(&self) -> u64 {
        self.applied_term
    }

    /// Counts the live keys.
    pub fn key_count(&self) -> u64 {
        self.index.live_len()
    }

    /// Answers a range as [`StateMachine::range`] did at that moment.
    pub fn range(&self, r: &RangeRequest) -> Result<RangeReply, Error> {
        self.reading().range_at(r, self.revision)
    }

    /// Answers a range with pairs where they lie, in their order. What was visited is
    /// an answer only if the end of one is returned.
    pub fn range_each(
        &self,
        r: &RangeRequest,
        visit: impl FnMut(Pair<'_>),
    ) -> Result<RangeEnd, Error> {
        self.reading().range_each(r, visit)
    }

    /// Answers a txn as [`StateMachine::txn_readonly`] did at that moment.
    pub fn txn_readonly(&self, r: &TxnRequest) -> Result<TxnReply, Error> {
        self.reading().txn_readonly(r)
    }

    /// Hashes the history up to a revision, 0 for the view's own. Reads every
    /// value: time in proportion to the store, memory flat.
    pub fn hash_kv(&self, revision: i64) -> Result<KvHash, Error> {
        self.reading().hash_kv(revision)
    }

    /// Walks the history in revision order: exactly the changes etcd would have in
    /// its file once its compaction has finished. Those are all after the
    /// compacted revision; and of those up to it, per key, the one that is visible
    /// at it, or a deletion at it. Memory stays flat: some hundred KiB are read
    /// ahead. The walk ends after an error.
    pub fn history(&self) -> History<'_> {
        History {
            view: self,
            next: Some(HistoryCursor::default()),
            read: Vec::new().into_iter(),
        }
    }

    /// Reads a part of the history, from the beginning (the default cursor) or from
    /// where another part ended: at most so many changes, and about 256 KiB.
    /// Returns them and where to go on; nowhere at the end.
    pub fn history_part(
        &self,
        from: HistoryCursor,
        changes_max: usize,
    ) -> Result<(Vec<Change>, Option<HistoryCursor>), Error> {
        let mut part = Vec::new();
        let mut next = None;
        let mut bytes = 0;
        self.records.scan(from.0, i64::MAX, &mut |rev, record| {
            if part.len() >= changes_max.max(1) || bytes >= HISTORY_BYTES {
                next = Some(HistoryCursor(rev));
                return ControlFlow::Break(());
            }
            if self.counts(rev, record) {
                bytes += record.cost();
                part.push(Change::new(rev, record.clone()));
            }
            ControlFlow::Continue(())
        })?;
        Ok((part, next))
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading {
            budget: None,
            index: &self.index,
            records: &self.records,
            revision: self.revision,
            compacted: self.compacted,
        }
    }

    fn counts(&self, rev: Rev, record: &Record) -> bool {
        if rev.main > self.compacted {
            return true;
        }
        if record.tombstone {
            // Only etcd 3.5.16 and later keep it; a watch from there must see it.
            return rev.main == self.compacted;
        }
        let entry = self.index.get(&record.key);
        entry.is_some_and(|e| e.at(self.compacted) == Some(rev))
    }
}

impl<'a> Reading<'a> {
    pub(crate) fn within(self, budget: &'a Budget) -> Self {
        Self {
            budget: Some(budget),
            ..self
        }
    }

    /// Walks the keys of a span that exist or existed, as far as the budget goes;
    /// [`Self::check_budget`] then tells whether that was far enough.
    pub(crate) fn walk(self, span: Span<'a>) -> impl Iterator<Item = (&'a Bytes, &'a KeyEntry)> {
        let budget = self.budget;
        self.index.walk(span).take_while(move |_| {
            budget.is_none_or(|budget| {
                let keys = budget.keys.get();
                budget.keys.set(keys.saturating_sub(1));
                keys > 0
            })
        })
    }

    pub(crate) fn check_budget(self) -> Result<(), BackendError> {
        match self.budget {
            Some(budget) if budget.keys.get() == 0 => Err(BackendError::TooMuch),
            _ => Ok(()),
        }
    }

    /// Checks that at least so many keys may be looked at.
    pub(crate) fn check_keys(self, keys: usize) -> Result<(), BackendError> {
        match self.budget {
            Some(budget) if budget.keys.get() <= keys => Err(BackendError::TooMuch),
            _ => Ok(()),
        }
    }

    /// Checks that the values of some changes may be read; a single one always may.
    pub(crate) fn spend_on(self, revs: &[Rev]) -> Result<(), BackendError> {
        let Some(budget) = self.budget.filter(|_| revs.len() > 1) else {
            return Ok(());
        };
        let mut left = budget.bytes.get();
        let mut last = None;
        for rev in revs {
            if let Some((first, bytes)) = self.records.block_to_read(*rev)
                && last.replace(first) != Some(first)
            {
                left = left.checked_sub(bytes).ok_or(BackendError::TooMuch)?;
            }
        }
        budget.bytes.set(left);
        Ok(())
    }
}

/// Answers nothing where the budget did not suffice.
pub(crate) fn if_short<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(Error::Storage(BackendError::TooMuch)) => Ok(None),
        answer => answer.map(Some),
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("revision", &self.revision)
            .field("compacted", &self.compacted)
            .field("applied_index", &self.applied_index)
            .finish_non_exhaustive()
    }
}

impl Change {
    fn new(rev: Rev, record: Record) -> Self {
        let (main, sub, tombstone) = (rev.main, rev.sub, record.tombstone);
        let kv = match tombstone {
            true => KeyValue {
                key: record.key,
                ..KeyValue::default()
            },
            false => record.into_kv(rev),
        };
        Self {
            main,
            sub,
            tombstone,
            kv,
        }
    }
}

/// Says where a walk through the history goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryCursor(Rev);

/// Walks the history of a view; see [`View::history`].
#[derive(Debug)]
pub struct History<'a> {
    view: &'a View,
    next: Option<HistoryCursor>,
    read: vec::IntoIter<Change>,
}

impl Iterator for History<'_> {
    type Item = Result<Change, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.read.len() == 0 {
            let from = self.next.take()?;
            match self.view.history_part(from, HISTORY_CHANGES) {
                Ok((part, next)) => {
                    self.read = part.into_iter();
                    self.next = next;
                }
                Err(error) => return Some(Err(error)),
            }
        }
        self.read.next().map(Ok)
    }
}

// --- what keeps rows in the tree ---

/// Keeps the rows a view needs, as long as it is held and not expired.
#[derive(Debug)]
pub(crate) struct Pin {
    expired: AtomicBool,
}

impl Pin {
    pub(crate) fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }
}

/// Is all views that are held, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    taken: Vec<Taken>,
    /// Counts the views taken.
    epoch: u64,
    /// How many had been taken when a row was last replaced.
    staged: u64,
}

#[derive(Debug)]
struct Taken {
    epoch: u64,
    at: Duration,
    pin: Weak<Pin>,
}

impl Pins {
    fn pin(&mut self, now: Duration) -> Arc<Pin> {
        self.sweep();
        let pin = Arc::new(Pin {
            expired: AtomicBool::new(false),
        });
        self.epoch += 1;
        self.taken.push(Taken {
            epoch: self.epoch,
            at: now,
            pin: Arc::downgrade(&pin),
        });
        pin
    }

    /// Notes that a row was replaced: views up to now need the old one.
    pub(crate) fn staged(&mut self) {
        self.staged = self.epoch;
    }

    /// Reports whether a view still needs one of the rows that were replaced.
    pub(crate) fn need_replaced(&self) -> bool {
        self.taken
            .iter()
            .take_while(|taken| taken.epoch <= self.staged)
            .any(|taken| taken.pin.strong_count() > 0)
    }

    fn expire(&mut self, before: Duration) -> usize {
        let mut expired = 0;
        self.taken.retain(|taken| {
            if taken.at >= before {
                return true;
            }
            if let Some(pin) = taken.pin.upgrade() {
                pin.expired.store(true, Ordering::Release);
                expired += 1;
            }
            false
        });
        expired
    }

    fn count(&mut self) -> usize {
        self.sweep();
        self.taken.len()
    }

    fn sweep(&mut self) {
        self.taken.retain(|taken| taken.pin.strong_count() > 0);
    }
}
