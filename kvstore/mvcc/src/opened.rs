//! Reading many revisions: each block from the tree once.
//!
//! Keys that are neighbours were either written one after the other or lie anywhere.
//! For the former the place of the one is where the next is looked for first. For the
//! latter most of the time goes into waiting for memory, so places are found and
//! touched some dozens at a time before anything is read there: those waits overlap.

use std::hint::black_box;

use crate::backend::BackendError;
use crate::block::{Block, Peek, Record};
use crate::block_cache::Keep;
use crate::key_index::Rev;
use crate::records::{Records, missing};

/// Places found before they are read.
const PLACES: usize = 64;

/// Reads revisions in any order.
pub(crate) struct Opened<'a> {
    records: &'a Records,
    /// In the order in which they were opened.
    blocks: Vec<(Span, Block)>,
    /// Where those are, by their first revisions.
    order: Vec<(Rev, usize)>,
    near_chunk: usize,
    near_block: usize,
}

/// The first and the last revision of a block.
#[derive(Clone, Copy)]
struct Span(Rev, Rev);

impl Span {
    fn has(self, rev: Rev) -> bool {
        self.0 <= rev && rev <= self.1
    }
}

/// Has the memory of some bytes brought near.
fn touch(bytes: &[u8]) -> u8 {
    const LINE: usize = 64;
    bytes
        .iter()
        .step_by(LINE)
        .fold(0, |sum, b| sum.wrapping_add(*b))
}

enum Place<'a> {
    Tail(&'a Record),
    /// Which of the blocks, and where in it.
    Block(usize, usize),
}

impl<'a> Opened<'a> {
    pub(crate) fn new(records: &'a Records) -> Self {
        Self {
            records,
            blocks: Vec::new(),
            order: Vec::new(),
            near_chunk: 0,
            near_block: 0,
        }
    }

    /// Looks at revisions that must exist, in the order they are given.
    pub(crate) fn each(
        &mut self,
        revs: impl IntoIterator<Item = Rev>,
        mut visit: impl FnMut(Rev, Peek<'_>),
    ) -> Result<(), BackendError> {
        let mut revs = revs.into_iter().peekable();
        let mut places = Vec::with_capacity(PLACES.min(revs.size_hint().0));
        while revs.peek().is_some() {
            for rev in revs.by_ref().take(PLACES) {
                places.push((rev, self.find(rev)?));
            }
            let touch = |(_, place): &(Rev, Place<'_>)| match place {
                Place::Tail(record) => touch(&record.value),
                Place::Block(block, at) => touch(self.blocks[*block].1.bytes_of(*at)),
            };
            black_box(places.iter().map(touch).fold(0, u8::wrapping_add));
            for (rev, place) in places.drain(..) {
                let peek = match place {
                    Place::Tail(record) => record.peek(),
                    Place::Block(block, at) => self.blocks[block].1.peek(at)?,
                };
                visit(rev, peek);
            }
        }
        Ok(())
    }

    /// Reads a revision that must exist.
    pub(crate) fn record(&mut self, rev: Rev) -> Result<Record, BackendError> {
        match self.find(rev)? {
            Place::Tail(record) => Ok(record.clone()),
            Place::Block(block, at) => self.blocks[block].1.record(at),
        }
    }

    fn find(&mut self, rev: Rev) -> Result<Place<'a>, BackendError> {
        let tail = &self.records.tail;
        if let Some(record) = tail.get_near(rev, &mut self.near_chunk) {
            return Ok(Place::Tail(record));
        }
        let near = self.blocks.get(self.near_block);
        if !near.is_some_and(|(span, _)| span.has(rev)) {
            self.near_block = self.block_of(rev)?;
        }
        let (_, block) = &self.blocks[self.near_block];
        let at = block.place(rev).ok_or_else(|| missing(rev))?;
        Ok(Place::Block(self.near_block, at))
    }

    /// Names the block of a revision, and opens it if it is not open.
    fn block_of(&mut self, rev: Rev) -> Result<usize, BackendError> {
        let after = self.order.partition_point(|(first, _)| *first <= rev);
        if let Some((_, at)) = after.checked_sub(1).and_then(|n| self.order.get(n))
            && self.blocks[*at].0.has(rev)
        {
            return Ok(*at);
        }
        let block = self.records.blocks.get_prev(&rev);
        let (first, info) = block.ok_or_else(|| missing(rev))?;
        let block = self.records.load(*first, info, Keep::IfRoom)?;
        self.order.insert(after, (*first, self.blocks.len()));
        self.blocks.push((Span(*first, info.last), block));
        Ok(self.blocks.len() - 1)
    }
}
