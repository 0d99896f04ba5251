//! The store of values, for whoever changes it: what was just written, what is
//! on its way to the tree, what compaction leaves of a block. Reading is in
//! `records`.
//!
//! ```text
//! blocks (closed) .............| open block ....| not yet written ...
//!            ^ tail begins anywhere left of `packed`
//!                              ^ packed         ^ written           ^ end
//! ```
//!
//! A write-back packs everything from `packed` on: full blocks are closed for
//! good, the rest becomes the open block, whose one row is replaced by the next
//! write-back until it is full. Compaction replaces closed blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use crate::backend::{Backend, BackendError};
use crate::block::{BlockInfo, Builder, Record, row_key};
use crate::block_cache::Keep;
use crate::compaction::LOOK_BYTES;
use crate::key_index::Rev;
use crate::key_list::KeyList;
use crate::machine::Config;
use crate::records::{Records, missing};
use crate::tail::Tail;
use crate::view::{STAGED_BYTES_MAX, STAGED_ROWS_MAX};

/// Rows of a batch.
pub(crate) type Rows = Vec<(Bytes, Option<Bytes>)>;

/// Is the store of values.
pub(crate) struct Values {
    pub(crate) records: Records,
    block_bytes: usize,
    stored_bytes: u64,
    dead_bytes: u64,
    /// Rows that compaction replaced (`Some`) or emptied (`None`), for the next batch.
    staged: BTreeMap<Rev, Option<Bytes>>,
    staged_bytes: usize,
    /// Closed blocks that are mostly garbage.
    wasteful: BTreeSet<Rev>,
    /// Positions at or after `packed` that compaction made unreachable.
    dead: Arc<BTreeSet<u64>>,
    packed: u64,
    written: u64,
    unwritten_bytes: usize,
    /// The row of the open block, if it has one.
    open_row: Option<Rev>,
    /// Whether that row holds records that died since it was written.
    open_dirty: bool,
}

/// Is what one write-back did, to be made true when the batch is in.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    closed: Vec<(Rev, BlockInfo)>,
    /// Replaced rows in the batch.
    replaced: Vec<Rev>,
    packed: u64,
    written: u64,
    written_bytes: usize,
    open_row: Option<Rev>,
}

/// Is what a batch packs, taken under the lock to be packed apart from it. While
/// it is, no record dies and none leaves the tail.
#[derive(Debug)]
pub(crate) struct Packing {
    tail: Tail,
    dead: Arc<BTreeSet<u64>>,
    block_bytes: usize,
    cut: u64,
    packed: u64,
    written: u64,
    open_row: Option<Rev>,
    open_dirty: bool,
    replaced: Vec<Rev>,
    rows: Rows,
}

impl Packing {
    /// Packs it.
    pub(crate) fn pack(self) -> (Rows, Packed) {
        let mut rows = Vec::new();
        let mut done = Packed {
            packed: self.packed,
            written: self.cut,
            open_row: self.open_row,
            ..Packed::default()
        };
        if self.cut > self.written || self.open_dirty {
            self.pack_records(&mut rows, &mut done);
        }
        rows.extend(self.rows);
        done.replaced = self.replaced;
        (rows, done)
    }

    fn pack_records(&self, rows: &mut Rows, done: &mut Packed) {
        let mut builder = Builder::default();
        let close = |builder: &mut Builder, rows: &mut Rows| {
            builder.finish().map(|(first, info, data)| {
                rows.push((row_key(first), Some(data)));
                (first, info)
            })
        };
        let records = self.tail.walk(self.packed);
        for (at, rev, record) in records.take_while(|r| r.0 < self.cut) {
            if at >= self.written {
                done.written_bytes += record.cost();
            }
            if !self.dead.contains(&at) {
                builder.push(rev, record);
            }
            if builder.bytes() >= self.block_bytes {
                done.closed.extend(close(&mut builder, rows));
            }
            if builder.is_empty() {
                done.packed = at + 1;
            }
        }
        done.open_row = close(&mut builder, rows).map(|(first, _)| first);
        if let Some(old) = self.open_row.map(row_key)
            && rows.iter().all(|(key, _)| *key != old)
        {
            rows.push((old, None));
        }
    }
}

impl Values {
    pub(crate) fn new(backend: Box<dyn Backend>, config: &Config, next_main: i64) -> Self {
        Self {
            records: Records::new(
                backend,
                Tail::new(next_main, config.window_bytes),
                config.block_cache_bytes,
            ),
            block_bytes: config.block_bytes,
            stored_bytes: 0,
            dead_bytes: 0,
            staged: BTreeMap::new(),
            staged_bytes: 0,
            wasteful: BTreeSet::new(),
            dead: Arc::default(),
            packed: 0,
            written: 0,
            unwritten_bytes: 0,
            open_row: None,
            open_dirty: false,
        }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.records.backend()
    }

    /// Registers a block found at open.
    pub(crate) fn restore_block(&mut self, first: Rev, info: BlockInfo) {
        self.insert_block(first, info);
    }

    /// Appends a change.
    pub(crate) fn push(&mut self, rev: Rev, index: u64, record: Record) {
        self.unwritten_bytes += record.cost();
        self.records.tail.push(rev, index, record);
    }

    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// Counts the bytes of rows that compaction replaced, not yet in a batch.
    pub(crate) fn staged_bytes(&self) -> usize {
        self.staged_bytes
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Estimates the bytes of closed blocks that compaction made unreachable.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.dead_bytes
    }

    // --- reading ---

    pub(crate) fn get(&self, rev: Rev) -> Result<Record, BackendError> {
        self.records.get(rev)
    }

    pub(crate) fn find(&self, rev: Rev) -> Result<Option<Record>, BackendError> {
        self.records.find(rev)
    }

    pub(crate) fn scan(
        &self,
        from: Rev,
        to: i64,
        visit: &mut dyn FnMut(Rev, &Record) -> ControlFlow<()>,
    ) -> Result<(), BackendError> {
        self.records.scan(from, to, visit)
    }

    // --- writing back ---

    /// Chooses where a batch of about `bytes_max` should end; see [`Tail::cut`].
    pub(crate) fn cut(&self, bytes_max: usize) -> (u64, Option<u64>) {
        if self.unwritten_bytes <= bytes_max {
            return (self.records.tail.end(), None);
        }
        self.records.tail.cut(self.written, bytes_max)
    }

    pub(crate) fn cut_at_index(&self, index: u64) -> u64 {
        self.records.tail.cut_at_index(index)
    }

    /// Returns the last main revision before a position, if it is held.
    pub(crate) fn main_before(&self, position: u64) -> Option<i64> {
        self.records.tail.main_at(position.checked_sub(1)?)
    }

    /// Reports whether compaction has changed rows that were written before.
    pub(crate) fn has_rewrites(&self) -> bool {
        self.has_staged() || self.open_dirty
    }

    /// Reports whether rows that compaction replaced or emptied wait for a batch.
    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Reports whether so many wait that others should not join them.
    pub(crate) fn staged_is_full(&self) -> bool {
        self.staged_bytes >= STAGED_BYTES_MAX || self.staged.len() >= STAGED_ROWS_MAX
    }

    pub(crate) fn open_is_dirty(&self) -> bool {
        self.open_dirty
    }

    /// Reports whether a batch, with or without the staged rows, leaves out what
    /// compaction made unreachable, and so must not be without that compaction
    /// itself.
    pub(crate) fn leaves_out(&self, staged: bool) -> bool {
        (staged && self.has_staged()) || !self.dead.is_empty()
    }

    /// Takes what the next batch packs: the records up to a position, with or
    /// without the staged rows.
    pub(crate) fn begin_pack(&mut self, cut: u64, staged: bool) -> Packing {
        let mut packing = Packing {
            tail: self.records.tail.clone(),
            dead: Arc::clone(&self.dead),
            block_bytes: self.block_bytes,
            cut: cut.max(self.written),
            packed: self.packed,
            written: self.written,
            open_row: self.open_row,
            open_dirty: std::mem::take(&mut self.open_dirty),
            replaced: Vec::new(),
            rows: Vec::new(),
        };
        if !staged {
            return packing;
        }
        self.staged_bytes = 0;
        for (first, row) in std::mem::take(&mut self.staged) {
            if row.is_some() {
                packing.replaced.push(first);
            }
            packing.rows.push((row_key(first), row));
        }
        packing
    }

    /// Makes a batch's work true: it is in the tree.
    pub(crate) fn written(&mut self, done: Packed) {
        for (first, info) in done.closed {
            self.insert_block(first, info);
        }
        self.packed = done.packed;
        self.written = done.written;
        self.unwritten_bytes -= done.written_bytes;
        self.open_row = done.open_row;
        for first in done.replaced {
            self.records.ahead.remove(&first);
        }
        let dead = Arc::make_mut(&mut self.dead).split_off(&self.packed);
        self.dead = Arc::new(dead);
        self.records.tail.may_drop(self.packed);
    }

    fn insert_block(&mut self, first: Rev, info: BlockInfo) {
        self.stored_bytes += u64::from(info.bytes);
        if let Some(old) = self.records.blocks.insert(first, info) {
            self.stored_bytes -= u64::from(old.bytes);
        }
    }

    // --- compaction ---

    /// Notes that a revision can no longer be reached. Returns whether it is in a
    /// closed block, where it stays until that is rewritten. Not while a batch is
    /// on its way, for that batch may be closing the block the revision is in.
    pub(crate) fn mark_dead(&mut self, rev: Rev) -> bool {
        if let Some(at) = self.records.tail.position(rev)
            && at >= self.packed
        {
            Arc::make_mut(&mut self.dead).insert(at);
            self.open_dirty |= at < self.written;
            return false;
        }
        if let Some((first, info)) = self.records.blocks.get_prev_mut(&rev) {
            debug_assert!(info.dead < info.count, "a revision dies once");
            info.dead = (info.dead + 1).min(info.count);
            self.dead_bytes += info.record_bytes();
            if info.dead * 2 >= info.count {
                self.wasteful.insert(*first);
            }
        }
        true
    }

    /// Counts every closed block as wasteful of which an eighth is garbage.
    pub(crate) fn waste_nothing(&mut self) {
        let some = self.records.blocks.iter();
        let some = some.filter(|(_, info)| info.dead > 0 && info.dead * 8 >= info.count);
        self.wasteful.extend(some.map(|(first, _)| *first));
    }

    /// Rewrites one run of neighbouring blocks that are mostly garbage, and the
    /// small ones between them, looking at about `budget` records (at one block at
    /// least). Returns the
    /// keys of the values left out, or `None` if there was nothing to do.
    pub(crate) fn rewrite(
        &mut self,
        budget: usize,
        alive: &dyn Fn(&Bytes, Rev) -> bool,
    ) -> Result<Option<KeyList>, BackendError> {
        let Some(start) = self.wasteful.first().copied() else {
            return Ok(None);
        };
        let run = self.wasteful_run(start, budget);
        let mut builder = Builder::default();
        let mut fresh = Vec::new();
        let mut left_out = KeyList::default();
        for first in &run {
            let info = self.records.blocks.get(first);
            let info = info.ok_or_else(|| missing(*first))?;
            let block = self.records.load(*first, info, Keep::No)?;
            for at in 0..block.len() {
                let record = block.record(at)?;
                if alive(&record.key, block.rev(at)) {
                    builder.push(block.rev(at), &record);
                } else if !record.tombstone {
                    left_out.push(&record.key);
                }
                if builder.bytes() >= self.block_bytes {
                    fresh.extend(builder.finish());
                }
            }
        }
        fresh.extend(builder.finish());
        for first in run {
            self.drop_block(first);
        }
        for (first, info, data) in fresh {
            self.insert_block(first, info);
            self.stage(first, Some(data));
        }
        Ok(Some(left_out))
    }

    fn wasteful_run(&self, start: Rev, budget: usize) -> Vec<Rev> {
        let small = (self.block_bytes / 4) as u32;
        let mut seen = 0;
        self.records
            .blocks
            .range(start..)
            .take_while(|(first, info)| self.wasteful.contains(first) || info.bytes < small)
            .take_while(|(_, info)| {
                let within = seen < budget;
                seen += info.count as usize + info.bytes as usize / LOOK_BYTES;
                within
            })
            .map(|(first, _)| *first)
            .collect()
    }

    fn drop_block(&mut self, first: Rev) {
        if let Some(info) = self.records.blocks.remove(&first) {
            self.stored_bytes -= u64::from(info.bytes);
            self.dead_bytes = self
                .dead_bytes
                .saturating_sub(u64::from(info.dead) * info.record_bytes());
        }
        self.wasteful.remove(&first);
        self.records.uncache(first);
        self.stage(first, None);
    }

    fn stage(&mut self, first: Rev, row: Option<Bytes>) {
        self.staged_bytes += row.as_ref().map_or(0, Bytes::len);
        match &row {
            Some(data) => self.records.ahead.insert(first, data.clone()),
            None => self.records.ahead.remove(&first),
        };
        if let Some(Some(old)) = self.staged.insert(first, row) {
            self.staged_bytes -= old.len();
        }
    }
}
