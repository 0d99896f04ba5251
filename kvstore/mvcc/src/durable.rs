//! To the tree and back: batches out, the whole machine in again.
//!
//! A batch ends between two log entries. Everything an entry changed (values,
//! leases, alarms, the compacted revision, remembered proposal ids) is in one
//! batch together with that entry's index, so a tree is always the exact state
//! after some entry, and applying the log from there gives the rest.

use bytes::{BufMut, Bytes, BytesMut};

use crate::auth::AuthStore;
use crate::backend::{Backend, BackendError, WriteBack};
use crate::block::{Block, parse_row_key};
use crate::command::{Alarm, AlarmKind};
use crate::compaction::{Compaction, after};
use crate::dedupe::{Cut, Dedupe};
use crate::key_index::{KeyIndex, Rev, Span};
use crate::key_list::KeyList;
use crate::lessor::{Lessor, row_key};
use crate::machine::{Config, Durable, StateMachine};
use crate::membership::Membership;
use crate::values::{Packed, Packing, Rows, Values};
use crate::wire::{Reader, WireError, put_i64, put_u64, seal, unseal};

const STATE_VERSION: u8 = 1;
pub(crate) const STATE_KEY: &[u8] = b"s";

/// What a row beside the values counts as, whatever is in it: about what the tree
/// needs to take it in, which copies the rows around it, and keeps the copies until a
/// batch is whole.
const ROW_BYTES: usize = 1_024;

/// Is a change beside the values, waiting for its batch.
#[derive(Debug)]
pub(crate) enum Delta {
    Row(Bytes, Option<Bytes>),
    Compacted(i64),
}

/// Is the batch that is on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    ids: Cut,
    after: Durable,
    /// Keys of the values it removes.
    dug_up: Vec<KeyList>,
}

/// Is the next batch, still to be packed: the work of copying and checksumming,
/// for a thread where nobody waits.
#[derive(Debug)]
pub struct PackJob {
    packing: Packing,
    rows: Rows,
    after: Durable,
}

/// Is what the machine must be told once a batch is in the tree.
#[derive(Debug)]
pub struct Written {
    token: u64,
    packed: Packed,
}

impl PackJob {
    /// Packs the batch; returns it, and what to report when it is in.
    pub fn pack(self) -> (WriteBack, Written) {
        let (mut rows, packed) = self.packing.pack();
        rows.extend(self.rows);
        let after = self.after;
        let batch = WriteBack {
            token: after.token,
            applied_index: after.index,
            applied_term: after.term,
            revision: after.revision,
            rows,
        };
        let token = after.token;
        (batch, Written { token, packed })
    }
}

/// Returns what the state row says of a batch.
fn as_written(after: Durable) -> Durable {
    let back = u64::from(mutants::planted(mutants::Bug::AppliedAgain));
    Durable {
        index: after.index - back,
        ..after
    }
}

impl StateMachine {
    /// Takes what changed since the last batch for the next one, about `bytes_max`
    /// at most (one entry is never split). `None` when nothing changed or a batch
    /// is still on its way.
    pub fn take_writeback(&mut self, bytes_max: usize) -> Option<PackJob> {
        let staged = !self.pins.need_replaced();
        let changed = self.applied_index > self.durable.index
            || !self.pending.is_empty()
            || self.rewrites_ready();
        if self.flight.is_some() || !changed {
            return None;
        }
        let (mut position, next) = self.values.cut(bytes_max);
        let mut index = next.map_or(self.applied_index, |next| next - 1);
        if let Some(last) = self
            .last_of_rows(bytes_max / ROW_BYTES)
            .filter(|last| *last < index)
        {
            index = last;
            position = self.values.cut_at_index(index);
        }
        if self.values.leaves_out(staged) && index < self.compaction.index {
            index = self.compaction.index;
            position = self.values.cut_at_index(index);
        }
        let whole = index >= self.applied_index;
        let packing = self.values.begin_pack(position, staged);
        let mut rows = Vec::new();
        let mut after = Durable {
            token: self.durable.token + 1,
            index,
            term: self.term_of(index),
            revision: match whole {
                true => self.revision,
                false => self
                    .values
                    .main_before(position)
                    .unwrap_or(self.durable.revision),
            },
            compacted: self.durable.compacted,
        };
        self.drain_pending(&mut after, &mut rows);
        let ids = self.dedupe.cut(index);
        self.dedupe.rows(ids, &mut rows);
        rows.push((
            Bytes::from_static(STATE_KEY),
            Some(encode_state(&as_written(after), ids.to)),
        ));
        let dug_up = match staged {
            true => std::mem::take(&mut self.compaction.dug_up),
            false => Vec::new(),
        };
        self.flight = Some(Flight { ids, after, dug_up });
        Some(PackJob {
            packing,
            rows,
            after,
        })
    }

    /// Returns the last entry of a batch that is to have so many rows beside values, if
    /// there are more; an entry is never split.
    fn last_of_rows(&self, rows_max: usize) -> Option<u64> {
        let (too_many, _) = self.pending.get(rows_max.max(1))?;
        let (first, _) = self.pending.front()?;
        Some((too_many - 1).max(*first))
    }

    /// Returns the term of an entry applied since the last batch reported done.
    fn term_of(&self, index: u64) -> u64 {
        let upto = self.terms.partition_point(|(first, _)| *first <= index);
        self.terms
            .range(..upto)
            .next_back()
            .map_or(self.durable.term, |(_, term)| *term)
    }

    /// Moves the changes up to a batch's entry into it; of two to one row the
    /// later counts.
    fn drain_pending(&mut self, after: &mut Durable, rows: &mut Rows) {
        let mut latest = std::collections::BTreeMap::new();
        while self.pending.front().is_some_and(|(i, _)| *i <= after.index) {
            match self.pending.pop_front() {
                Some((_, Delta::Row(key, row))) => {
                    latest.insert(key, row);
                }
                Some((_, Delta::Compacted(revision))) => after.compacted = revision,
                None => {}
            }
        }
        rows.extend(latest);
    }

    /// Records that a batch is in the tree, so that what it covers may leave
    /// memory. Call it after the engine accepted the batch (reads see it);
    /// release the log only after the engine flushed it.
    pub fn writeback_done(&mut self, written: Written) {
        let token = written.token;
        let Some(flight) = self.flight.take_if(|f| f.after.token == token) else {
            return;
        };
        self.values.written(written.packed);
        self.compaction.gone.extend(flight.dug_up);
        self.dedupe.written(flight.ids);
        self.durable = flight.after;
        let known = self
            .terms
            .partition_point(|(first, _)| *first <= self.durable.index);
        self.terms.drain(..known);
    }

    /// Hashes what the store holds beside its keys: leases, alarms, users and roles.
    /// Two members that applied the same log have the same.
    pub fn hash_beside_keys(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        for id in self.lessor.ids() {
            crc.update(&row_key(id));
            crc.update(&self.lessor.row(id).unwrap_or_default());
        }
        for alarm in &self.alarms {
            crc.update(&alarm_key(*alarm));
        }
        for (key, row) in self.auth.image().rows() {
            crc.update(&key);
            crc.update(&row);
        }
        crc.finalize()
    }

    /// Counts the bytes that the next write-backs would bring to the tree.
    pub fn dirty_bytes(&self) -> usize {
        let staged = match self.pins.need_replaced() {
            true => 0,
            false => self.values.staged_bytes(),
        };
        self.values.unwritten_bytes() + staged + self.pending.len() * ROW_BYTES
    }

    /// Reports whether rows that compaction replaced or emptied wait for a
    /// write-back; until it is in, the tree still holds the garbage.
    pub fn has_rewrites(&self) -> bool {
        self.values.has_rewrites()
    }

    /// Reports whether a write-back would bring some of those rows to the tree, now
    /// that no view needs what they replace.
    pub fn rewrites_ready(&self) -> bool {
        let staged = self.values.has_staged() && !self.pins.need_replaced();
        staged || self.values.open_is_dirty()
    }

    /// Returns the applied index of the last batch reported done.
    pub fn written_index(&self) -> u64 {
        self.durable.index
    }

    /// Rebuilds the machine from its rows. An empty backend gives a fresh store
    /// at revision 1 and applied index 0.
    pub fn open(backend: Box<dyn Backend>, config: Config) -> Result<Self, BackendError> {
        let state = backend.get(STATE_KEY)?.map(decode_state).transpose()?;
        let fresh = Durable {
            token: 0,
            index: 0,
            term: 0,
            revision: 1,
            compacted: -1,
        };
        let (durable, ids) = state.unwrap_or((fresh, 0));
        let mut machine = Self {
            values: Values::new(backend, &config, durable.revision + 1),
            config,
            index: KeyIndex::new(),
            lessor: Lessor::default(),
            alarms: Default::default(),
            auth: AuthStore::default(),
            meta: Default::default(),
            membership: Membership::default(),
            dedupe: Dedupe::default(),
            revision: durable.revision,
            compacted: durable.compacted,
            compaction: Compaction {
                cursor: after(durable.compacted),
                ..Compaction::default()
            },
            applied_index: durable.index,
            applied_term: durable.term,
            pending: Default::default(),
            terms: Default::default(),
            flight: None,
            pins: Default::default(),
            durable,
        };
        machine.restore_rows()?;
        machine.dedupe.restored(ids, durable.index)?;
        machine.auth.restored();
        machine.attach_leases();
        Ok(machine)
    }

    fn restore_rows(&mut self) -> Result<(), BackendError> {
        // The scan borrows the backend inside `values`, which restoring fills:
        // blocks are described first, dead records told afterwards.
        let mut loaded = Loaded::default();
        let mut parts = Parts {
            index: &mut self.index,
            lessor: &mut self.lessor,
            dedupe: &mut self.dedupe,
            alarms: &mut self.alarms,
            auth: &mut self.auth,
            meta: &mut self.meta,
            membership: &mut self.membership,
            compacted: self.compacted,
            revision: self.revision,
        };
        self.values.backend().scan(b"", b"", &mut |key, row| {
            parts.restore(&key, row, &mut loaded)
        })?;
        for (first, info) in loaded.blocks {
            self.values.restore_block(first, info);
        }
        for rev in loaded.dead {
            self.values.mark_dead(rev);
        }
        Ok(())
    }

    fn attach_leases(&mut self) {
        for (key, entry) in self.index.walk(Span::Many(b"", None)) {
            if entry.is_live() && entry.lease != 0 {
                self.lessor.attach(entry.lease, key.clone());
            }
        }
    }
}

/// Is what a scan finds for `Values`.
#[derive(Default)]
struct Loaded {
    blocks: Vec<(Rev, crate::block::BlockInfo)>,
    dead: Vec<Rev>,
}

/// Is the machine but for its values, borrowed during the scan.
struct Parts<'a> {
    index: &'a mut KeyIndex,
    lessor: &'a mut Lessor,
    dedupe: &'a mut Dedupe,
    alarms: &'a mut std::collections::BTreeSet<Alarm>,
    auth: &'a mut AuthStore,
    meta: &'a mut std::collections::BTreeMap<String, Bytes>,
    membership: &'a mut Membership,
    compacted: i64,
    revision: i64,
}

impl Parts<'_> {
    fn restore(
        &mut self,
        key: &Bytes,
        row: Bytes,
        loaded: &mut Loaded,
    ) -> Result<(), BackendError> {
        match key.first() {
            // Read before all others.
            Some(b's') if key == STATE_KEY => Ok(()),
            Some(b'b') => self.restore_block(key, row, loaded),
            Some(b'l') => self.lessor.restore_row(key, row),
            Some(b'e') => self.dedupe.restore_row(key, row),
            Some(b'd') => self.dedupe.restore_old_row(key, &row),
            Some(b'u' | b'r' | b'w') => self.auth.restore_row(key, row),
            Some(b'm' | b'g' | b'c') => self.membership.restore_row(key, row),
            Some(b'a') => {
                let alarm = parse_alarm_key(key)
                    .ok_or_else(|| BackendError::corrupt(key, "not an alarm"))?;
                self.alarms.insert(alarm);
                Ok(())
            }
            Some(b'x') => {
                let name = std::str::from_utf8(&key[1..]);
                let name = name.map_err(|e| BackendError::corrupt(key, e.to_string()))?;
                self.meta.insert(name.to_owned(), row);
                Ok(())
            }
            _ => Err(BackendError::corrupt(key, "no row is named so")),
        }
    }

    fn restore_block(
        &mut self,
        key: &Bytes,
        row: Bytes,
        loaded: &mut Loaded,
    ) -> Result<(), BackendError> {
        let first =
            parse_row_key(key).ok_or_else(|| BackendError::corrupt(key, "not a revision"))?;
        let block = Block::open(first, row)?;
        let ordered = loaded
            .blocks
            .last()
            .is_none_or(|(_, info)| info.last < first);
        if !ordered || block.info().last.main > self.revision {
            return Err(BackendError::corrupt(key, "revisions out of order"));
        }
        loaded.blocks.push((first, block.info()));
        let mut last = None;
        for at in 0..block.len() {
            let rev = block.rev(at);
            if last.replace(rev).is_some_and(|last| last >= rev) {
                return Err(BackendError::corrupt(key, "revisions out of order"));
            }
            let record = block.record(at)?;
            let compacted = self.compacted;
            let (gone, idle) = self.index.upsert(&record.key, |_, entry| {
                let (create, version, lease) = (record.create, record.version, record.lease);
                entry.restore(rev, record.tombstone, create, version, lease);
                if rev.main > compacted {
                    return (Vec::new(), None);
                }
                let gone = entry.forget_before(rev);
                entry.buried += gone.iter().filter(|mark| !mark.tombstone).count() as u32;
                (gone, entry.idle_tombstone(compacted))
            });
            loaded.dead.extend(gone.iter().map(|mark| mark.rev()));
            if let Some(rev) = idle {
                self.index.remove(&record.key);
                loaded.dead.push(rev);
            }
        }
        Ok(())
    }
}

// --- rows ---

/// Encodes the state row; `ids` counts the proposals remembered.
pub(crate) fn encode_state(d: &Durable, ids: u64) -> Bytes {
    let mut body = BytesMut::with_capacity(64);
    put_u64(&mut body, d.index);
    put_u64(&mut body, d.term);
    put_i64(&mut body, d.revision);
    put_i64(&mut body, d.compacted);
    put_u64(&mut body, ids);
    seal(STATE_VERSION, &body)
}

pub(crate) fn decode_state(row: Bytes) -> Result<(Durable, u64), BackendError> {
    let bad = |reason: String| BackendError::corrupt(STATE_KEY, reason);
    let body = unseal(row, STATE_VERSION).map_err(bad)?;
    let mut r = Reader::new(body);
    let mut read = || -> Result<(Durable, u64), WireError> {
        let durable = Durable {
            token: 0,
            index: r.u64()?,
            term: r.u64()?,
            revision: r.i64()?,
            compacted: r.i64()?,
        };
        Ok((durable, r.u64()?))
    };
    read().map_err(|e| bad(format!("{e:?}")))
}

/// Builds the row key of an alarm.
pub(crate) fn alarm_key(a: Alarm) -> Bytes {
    let mut key = BytesMut::with_capacity(10);
    key.put_u8(b'a');
    key.put_u64(a.member);
    key.put_u8(a.kind as u8);
    key.freeze()
}

fn parse_alarm_key(key: &[u8]) -> Option<Alarm> {
    let (member, kind) = key.get(1..)?.split_first_chunk::<8>()?;
    let [kind] = kind else { return None };
    Some(Alarm {
        member: u64::from_be_bytes(*member),
        kind: AlarmKind::from_i32(i32::from(*kind))?,
    })
}

/// Builds the row key of a shell's own row.
pub(crate) fn meta_key(name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + name.len());
    key.put_u8(b'x');
    key.put_slice(name.as_bytes());
    key.freeze()
}
