//! Where a revision's value is, for whoever reads: in the tail, in a row that
//! waits to be written, in the cache, or in the tree.
//!
//! The machine has one of these and changes it; a view has a frozen one, which
//! shares all it can with the machine's and is read on another thread.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::backend::{Backend, BackendError};
use crate::block::{Block, BlockInfo, Peek, Record, row_key};
use crate::block_cache::{BlockCache, Keep};
use crate::key_index::Rev;
use crate::opened::Opened;
use crate::tail::Tail;
use crate::view::Pin;

/// Is the readable part of the store of values.
pub(crate) struct Records {
    backend: Box<dyn Backend>,
    pub(crate) tail: Tail,
    /// Closed blocks by their first revision.
    pub(crate) blocks: OrdMap<Rev, BlockInfo>,
    /// Rows that compaction replaced and that are not in the tree yet.
    pub(crate) ahead: OrdMap<Rev, Bytes>,
    cache: BlockCache,
    /// What keeps the rows of a frozen one in the tree.
    pin: Option<Arc<Pin>>,
}

impl Records {
    pub(crate) fn new(backend: Box<dyn Backend>, tail: Tail, cache_bytes: usize) -> Self {
        Self {
            backend,
            tail,
            blocks: OrdMap::new(),
            ahead: OrdMap::new(),
            cache: BlockCache::new(cache_bytes),
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
            cache: self.cache.clone(),
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
            Some((first, info)) if rev <= info.last => {
                self.load(*first, info, Keep::Yes)?.find(rev)
            }
            _ => Ok(None),
        }
    }

    /// Reads many revisions that must exist, in the order they are given.
    pub(crate) fn get_all(&self, revs: &[Rev]) -> Result<Vec<Record>, BackendError> {
        let mut opened = Opened::new(self);
        revs.iter().map(|rev| opened.record(*rev)).collect()
    }

    /// Looks at many revisions that must exist, in the order they are given.
    pub(crate) fn each(
        &self,
        revs: impl IntoIterator<Item = Rev>,
        visit: impl FnMut(Rev, Peek<'_>),
    ) -> Result<(), BackendError> {
        Opened::new(self).each(revs, visit)
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
            for (first, info) in self.blocks.range(start..tail_from) {
                let block = self.load(*first, info, Keep::No)?;
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
        let held = self.ahead.contains_key(first) || self.cache.holds(*first, info);
        (!held).then_some((*first, info.bytes as usize))
    }

    pub(crate) fn load(
        &self,
        first: Rev,
        info: &BlockInfo,
        keep: Keep,
    ) -> Result<Block, BackendError> {
        if let Some(block) = self.cache.get(first, info) {
            return Ok(block);
        }
        let data = match self.ahead.get(&first) {
            Some(data) => data.clone(),
            None => self.read_row(first)?,
        };
        let block = Block::open(first, data)?;
        self.cache.insert(first, &block, keep);
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
        self.cache.remove(first);
    }
}

pub(crate) fn missing(rev: Rev) -> BackendError {
    BackendError::corrupt(&row_key(rev), "a revision in the index is in no block")
}
