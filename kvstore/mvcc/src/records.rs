//! Where a revision's value is, for whoever reads: in the tail, in a row that
//! waits to be written, in the cache, or in the tree.
//!
//! The machine has one of these and changes it; a view has a frozen one, which
//! shares all it can with the machine's and is read on another thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::backend::{Backend, BackendError};
use crate::block::{Block, BlockInfo, Peek, Record, row_key};
use crate::key_index::Rev;
use crate::tail::Tail;
use crate::view::Pin;

/// Bytes of blocks a view keeps. It reads in the order of revisions wherever it
/// can, so it needs each block once.
const VIEW_CACHE_BYTES: usize = 4 << 20;

/// Is the readable part of the store of values.
pub(crate) struct Records {
    backend: Box<dyn Backend>,
    pub(crate) tail: Tail,
    /// Closed blocks by their first revision.
    pub(crate) blocks: OrdMap<Rev, BlockInfo>,
    /// Rows that compaction replaced and that are not in the tree yet.
    pub(crate) ahead: OrdMap<Rev, Bytes>,
    cache: RefCell<Cache>,
    /// What keeps the rows of a frozen one in the tree.
    pin: Option<Arc<Pin>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    /// A scan must not push hot blocks out.
    No,
}

impl Records {
    pub(crate) fn new(backend: Box<dyn Backend>, tail: Tail, cache_bytes: usize) -> Self {
        Self {
            backend,
            tail,
            blocks: OrdMap::new(),
            ahead: OrdMap::new(),
            cache: RefCell::new(Cache::new(cache_bytes)),
            pin: None,
        }
    }

    /// Copies what is readable now, sharing everything but lists of pointers.
    pub(crate) fn freeze(&self, pin: Arc<Pin>) -> Self {
        Self {
            backend: self.backend.share(),
            tail: self.tail.clone(),
            blocks: self.blocks.clone(),
            ahead: self.ahead.clone(),
            cache: RefCell::new(Cache::new(VIEW_CACHE_BYTES)),
            pin: Some(pin),
        }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// Reads a revision that must exist.
    pub(crate) fn get(&self, rev: Rev) -> Result<Record, BackendError> {
        self.find(rev)?.ok_or_else(|| missing(rev))
    }

    /// Reads a revision that compaction may have taken.
    pub(crate) fn find(&self, rev: Rev) -> Result<Option<Record>, BackendError> {
        if let Some(record) = self.tail.get(rev) {
            return Ok(Some(record.clone()));
        }
        match self.blocks.get_prev(&rev) {
            Some((first, info)) if rev <= info.last => self.load(*first, Keep::Yes)?.find(rev),
            _ => Ok(None),
        }
    }

    /// Reads many revisions that must exist, in the order they are given.
    pub(crate) fn get_all(&self, revs: &[Rev]) -> Result<Vec<Record>, BackendError> {
        let mut opened = self.opened();
        let read = |rev: &Rev| match opened.find(*rev)? {
            Place::Tail(record) => Ok(record.clone()),
            Place::Block(block, at) => block.record(at),
        };
        revs.iter().map(read).collect()
    }

    /// Looks at many revisions that must exist, in the order they are given.
    pub(crate) fn each(
        &self,
        revs: impl IntoIterator<Item = Rev>,
        mut visit: impl FnMut(Rev, Peek<'_>),
    ) -> Result<(), BackendError> {
        let mut opened = self.opened();
        for rev in revs {
            let peek = match opened.find(rev)? {
                Place::Tail(record) => record.peek(),
                Place::Block(block, at) => block.peek(at)?,
            };
            visit(rev, peek);
        }
        Ok(())
    }

    fn opened(&self) -> Opened<'_> {
        Opened {
            records: self,
            blocks: Vec::new(),
            near_chunk: 0,
            near_block: 0,
        }
    }

    /// Visits the revisions from one on, ascending, up to and including main
    /// revision `to`, until told to stop.
    pub(crate) fn scan(
        &self,
        from: Rev,
        to: i64,
        visit: &mut dyn FnMut(Rev, &Record) -> ControlFlow<()>,
    ) -> Result<(), BackendError> {
        let tail_from = Rev::new(self.tail.first_main(), 0);
        if from < tail_from {
            let start = self
                .blocks
                .get_prev(&from)
                .map_or(from, |(first, _)| *first);
            for (first, _) in self.blocks.range(start..tail_from) {
                let block = self.load(*first, Keep::No)?;
                for at in block.lower_bound(from)..block.len() {
                    let rev = block.rev(at);
                    if rev.main > to {
                        return Ok(());
                    }
                    if rev >= tail_from {
                        break;
                    }
                    if visit(rev, &block.record(at)?).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        for (_, rev, record) in self.tail.walk(self.tail.lower_bound(from)) {
            if rev.main > to || visit(rev, record).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Guesses the bytes of a change's key and value without reading its block.
    pub(crate) fn guess_bytes(&self, rev: Rev) -> usize {
        if let Some(record) = self.tail.get(rev) {
            return record.key.len() + record.value.len();
        }
        let block = self.blocks.get_prev(&rev);
        block.map_or(0, |(_, info)| info.record_bytes() as usize)
    }

    /// Names the block that must be read from the tree for a revision, and its
    /// size; none if it is in memory.
    pub(crate) fn block_to_read(&self, rev: Rev) -> Option<(Rev, usize)> {
        if self.tail.get(rev).is_some() {
            return None;
        }
        let (first, info) = self.blocks.get_prev(&rev)?;
        let held = self.ahead.contains_key(first) || self.cache.borrow().holds(*first);
        (!held).then_some((*first, info.bytes as usize))
    }

    pub(crate) fn load(&self, first: Rev, keep: Keep) -> Result<Block, BackendError> {
        if let Some(block) = self.cache.borrow_mut().get(first) {
            return Ok(block);
        }
        let data = match self.ahead.get(&first) {
            Some(data) => data.clone(),
            None => self.read_row(first)?,
        };
        let block = Block::open(first, data)?;
        if keep == Keep::Yes {
            self.cache.borrow_mut().insert(first, block.clone());
        }
        Ok(block)
    }

    fn read_row(&self, first: Rev) -> Result<Bytes, BackendError> {
        let key = row_key(first);
        let row = self.backend.get(&key)?;
        // Asked after reading: a pin let go before the row was replaced is seen
        // let go by whoever read the replacement.
        if self.pin.as_ref().is_some_and(|pin| pin.is_expired()) {
            return Err(BackendError::Expired);
        }
        row.ok_or_else(|| BackendError::corrupt(&key, "the row is missing"))
    }

    /// Forgets a block that is no more, or not the same any more.
    pub(crate) fn uncache(&self, first: Rev) {
        self.cache.borrow_mut().remove(first);
    }
}

/// Reads many revisions in any order, each block from the tree once. Keys that are
/// neighbours were often written one after the other, so the place of the one is
/// where the next is looked for first.
struct Opened<'a> {
    records: &'a Records,
    /// By their first revisions, ascending.
    blocks: Vec<(Rev, Block)>,
    near_chunk: usize,
    near_block: usize,
}

enum Place<'a> {
    Tail(&'a Record),
    Block(&'a Block, usize),
}

impl Opened<'_> {
    /// Finds a revision that must exist.
    fn find(&mut self, rev: Rev) -> Result<Place<'_>, BackendError> {
        let tail = &self.records.tail;
        if let Some(record) = tail.get_near(rev, &mut self.near_chunk) {
            return Ok(Place::Tail(record));
        }
        if !self.is_near(rev) {
            self.near_block = self.open(rev)?;
        }
        let (_, block) = &self.blocks[self.near_block];
        let at = block.place(rev).ok_or_else(|| missing(rev))?;
        Ok(Place::Block(block, at))
    }

    fn is_near(&self, rev: Rev) -> bool {
        let near = self.blocks.get(self.near_block);
        near.is_some_and(|(first, block)| *first <= rev && rev <= block.rev(block.len() - 1))
    }

    /// Returns the place of the block of a revision.
    fn open(&mut self, rev: Rev) -> Result<usize, BackendError> {
        let block = self.records.blocks.get_prev(&rev);
        let (first, _) = block.ok_or_else(|| missing(rev))?;
        match self.blocks.binary_search_by_key(first, |(first, _)| *first) {
            Ok(at) => Ok(at),
            Err(at) => {
                let block = self.records.load(*first, Keep::No)?;
                self.blocks.insert(at, (*first, block));
                Ok(at)
            }
        }
    }
}

fn missing(rev: Rev) -> BackendError {
    BackendError::corrupt(&row_key(rev), "a revision in the index is in no block")
}

/// Keeps blocks that were read, up to a number of bytes. Beyond it the oldest
/// goes, unless it was read since its last turn (second chance).
struct Cache {
    slots: BTreeMap<Rev, Slot>,
    turns: VecDeque<Rev>,
    bytes: usize,
    bytes_max: usize,
}

struct Slot {
    block: Block,
    used: bool,
}

impl Cache {
    fn new(bytes_max: usize) -> Self {
        Self {
            slots: BTreeMap::new(),
            turns: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    fn holds(&self, first: Rev) -> bool {
        self.slots.contains_key(&first)
    }

    fn get(&mut self, first: Rev) -> Option<Block> {
        let slot = self.slots.get_mut(&first)?;
        slot.used = true;
        Some(slot.block.clone())
    }

    fn insert(&mut self, first: Rev, block: Block) {
        self.remove(first);
        self.bytes += block.bytes();
        self.slots.insert(first, Slot { block, used: false });
        self.turns.push_back(first);
        while self.bytes > self.bytes_max {
            let Some(turn) = self.turns.pop_front() else {
                break;
            };
            match self.slots.get_mut(&turn) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    self.turns.push_back(turn);
                }
                Some(_) => self.remove(turn),
                None => {}
            }
        }
    }

    fn remove(&mut self, first: Rev) {
        if let Some(slot) = self.slots.remove(&first) {
            self.bytes -= slot.block.bytes();
            self.turns.retain(|turn| *turn != first);
        }
    }
}
