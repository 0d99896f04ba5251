//! Blocks that were read lately, shared by the machine and its views.
//!
//! A compaction writes a block anew under the same first revision, and a view that is
//! older still wants what it was. The new one has fewer revisions or another last one,
//! so a block is known by its first, its last and their number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::block::{Block, BlockInfo};
use crate::key_index::Rev;

/// Whether a block that is read is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// In place of the one that was not read for longest.
    Yes,
    /// Where no other has to go: what is listed again and again stays, and one long
    /// list does not push out what is hot.
    IfRoom,
    No,
}

/// Keeps blocks up to a number of bytes; clones share them.
#[derive(Clone)]
pub(crate) struct BlockCache(Arc<Mutex<Kept>>);

/// Beyond its bytes the oldest goes, unless it was read since its last turn (second
/// chance).
struct Kept {
    slots: BTreeMap<Rev, Slot>,
    turns: VecDeque<Rev>,
    bytes: usize,
    bytes_max: usize,
}

struct Slot {
    block: Block,
    used: bool,
}

impl BlockCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept {
            slots: BTreeMap::new(),
            turns: VecDeque::new(),
            bytes: 0,
            bytes_max,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds(&self, first: Rev, info: &BlockInfo) -> bool {
        let kept = self.lock();
        let slot = kept.slots.get(&first);
        slot.is_some_and(|slot| slot.block.is(info))
    }

    pub(crate) fn get(&self, first: Rev, info: &BlockInfo) -> Option<Block> {
        let mut kept = self.lock();
        let slot = kept.slots.get_mut(&first)?;
        slot.block.is(info).then(|| {
            slot.used = true;
            slot.block.clone()
        })
    }

    pub(crate) fn insert(&self, first: Rev, block: &Block, keep: Keep) {
        let mut kept = self.lock();
        match keep {
            Keep::No => {}
            Keep::IfRoom if kept.bytes + block.bytes() > kept.bytes_max => {}
            Keep::IfRoom | Keep::Yes => kept.insert(first, block.clone()),
        }
    }

    /// Forgets a block that is no more, or not the same any more.
    pub(crate) fn remove(&self, first: Rev) {
        self.lock().remove(first);
    }
}

impl Kept {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Builder, Record};

    fn block(first: i64, count: i64) -> (Rev, BlockInfo, Block) {
        let mut builder = Builder::default();
        for n in first..first + count {
            let record = Record {
                key: "k".into(),
                value: vec![0; 1_000].into(),
                ..Record::default()
            };
            builder.push(Rev::new(n, 0), &record);
        }
        let (first, info, data) = builder.finish().unwrap();
        (first, info, Block::open(first, data).unwrap())
    }

    #[test]
    fn an_older_view_gets_no_newer_block() {
        let cache = BlockCache::new(1 << 20);
        let (first, before, _) = block(10, 5);
        let (_, after, rewritten) = block(10, 4);
        cache.insert(first, &rewritten, Keep::Yes);
        assert!(cache.get(first, &after).is_some());
        assert!(cache.get(first, &before).is_none());
        assert!(!cache.holds(first, &before));
        // What compaction counts as dead since does not make it another.
        let more_dead = BlockInfo { dead: 2, ..after };
        assert!(cache.holds(first, &more_dead));
    }

    #[test]
    fn a_list_takes_room_but_no_places() {
        let cache = BlockCache::new(12_000);
        let (hot, hot_info, block_of_hot) = block(0, 5);
        cache.insert(hot, &block_of_hot, Keep::Yes);
        let listed: Vec<_> = (1..4).map(|n| block(n * 10, 5)).collect();
        for (first, _, block) in &listed {
            cache.insert(*first, block, Keep::IfRoom);
        }
        let held = |n: usize| cache.holds(listed[n].0, &listed[n].1);
        assert!(cache.holds(hot, &hot_info) && held(0));
        assert!(!held(1) && !held(2));
        // Whoever reads points takes the place of what was only listed.
        assert!(cache.get(hot, &hot_info).is_some());
        cache.insert(listed[1].0, &listed[1].2, Keep::Yes);
        assert!(cache.holds(hot, &hot_info) && held(1) && !held(0));
    }
}
