//! Forgetting: at once for readers, a little at a time for memory and disk.
//!
//! The command only moves the compacted revision. Then, step by step, the
//! revisions between the last compaction and this one are visited: each makes
//! the older ones of its key unreachable, and is unreachable itself if it is a
//! tombstone below the compacted revision (one AT it stays, because a watch may
//! start there: etcd issue 19179), with nothing left under it. So the work is in proportion to what
//! happened since, not to what is stored. Blocks that became mostly garbage are
//! rewritten last, neighbours together.
//!
//! ```text
//! compacted 4, then 9:    revisions  ... 4 | 5  6  7  8  9 | 10 ...
//!                                    cursor ^------------> ^
//! ```
//!
//! A restart needs no memory of this: opening prunes by the compacted revision.
//! For that, of each key the newest revision at or below it must be in the tree
//! as long as any older one is. Values are rewritten block by block, in no order
//! among keys, so a tombstone waits until the values it hides are gone from the
//! tree: not only rewritten, for views may hold the rewritten rows back while the
//! tombstone's own block goes on to the tree.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::backend::BackendError;
use crate::error::Error;
use crate::key_index::{KeyEntry, Rev};
use crate::key_list::KeyList;
use crate::machine::{CompactStep, StateMachine};
use crate::values::Values;

/// Bytes of a value that cost about as much as looking at one more revision: large
/// values must not make a step long.
pub(crate) const LOOK_BYTES: usize = 1 << 10;

/// Is how far forgetting has come.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    /// Everything before is done.
    pub(crate) cursor: Rev,
    /// The log entry that asked for the present work: rows that lack what it
    /// made unreachable must not become durable before it does.
    pub(crate) index: u64,
    /// Revisions of keys forgotten since the start.
    pub(crate) forgotten: u64,
    /// Keys of the values left out of rows that wait for their batch, step by step:
    /// one long list would make some put wait while it grows. Their number is bounded
    /// by that of the rows.
    pub(crate) dug_up: Vec<KeyList>,
    /// Keys of values that are gone from the tree: their tombstones may follow.
    pub(crate) gone: VecDeque<KeyList>,
}

/// Returns the cursor of finished work.
pub(crate) fn after(compacted: i64) -> Rev {
    Rev::new(compacted, u32::MAX)
}

impl StateMachine {
    /// Moves the compacted revision.
    pub(crate) fn compact(&mut self, revision: i64, index: u64) -> Result<(), Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted);
        }
        if revision > self.revision {
            return Err(Error::FutureRevision);
        }
        // A tombstone that was kept at the old boundary must be looked at again.
        let boundary = Rev::new(self.compacted.max(0), 0);
        self.compaction.cursor = self.compaction.cursor.min(boundary);
        self.compaction.index = index;
        self.compacted = revision;
        Ok(())
    }

    /// Returns how many revisions of keys compaction has forgotten since the start,
    /// for `db_compaction_keys_total`.
    pub fn compacted_keys(&self) -> u64 {
        self.compaction.forgotten
    }

    /// Deletes some of what compaction made unreachable, looking at up to about
    /// `budget` revisions. The work ends up in the next write-back. Returns
    /// `Busy` while a batch is on its way: call it between `writeback_done` and
    /// the next `take_writeback`. Also when more can be done once the rows replaced
    /// so far are in the tree.
    pub fn compact_step(&mut self, budget: usize) -> Result<CompactStep, BackendError> {
        if self.flight.is_some() {
            return Ok(CompactStep::Busy);
        }
        let budget = budget.max(1);
        if self.compaction.cursor < after(self.compacted) {
            self.forget_some(budget)?;
            return Ok(CompactStep::More);
        }
        if !self.compaction.gone.is_empty() {
            self.forget_tombstones(budget);
            return Ok(CompactStep::More);
        }
        if self.values.staged_is_full() && self.pins.need_replaced() {
            return Ok(CompactStep::Busy);
        }
        let index = &self.index;
        let alive = |key: &Bytes, rev: Rev| index.get(key).is_some_and(|e| e.has(rev));
        let Some(dug_up) = self.values.rewrite(budget, &alive)? else {
            return Ok(match self.compaction.dug_up.is_empty() {
                true => CompactStep::Done,
                false => CompactStep::Busy,
            });
        };
        self.pins.staged();
        if !dug_up.is_empty() {
            self.compaction.dug_up.push(dug_up);
        }
        Ok(CompactStep::More)
    }

    /// Lets the next steps rewrite every block of which an eighth is garbage, not only
    /// those of which half is. Takes a millisecond for some ten thousand blocks.
    pub fn waste_nothing(&mut self) {
        self.values.waste_nothing();
    }

    /// Forgets the tombstones of some values that are gone from the tree.
    fn forget_tombstones(&mut self, budget: usize) {
        for _ in 0..budget {
            let Some(keys) = self.compaction.gone.front_mut() else {
                break;
            };
            let Some(key) = keys.pop() else {
                self.compaction.gone.pop_front();
                continue;
            };
            let (values, compacted) = (&mut self.values, self.compacted);
            let emptied = self.index.modify(key, |_, entry| {
                debug_assert!(entry.buried > 0, "a forgotten value is counted once");
                entry.buried = entry.buried.saturating_sub(1);
                forget_idle_tombstone(entry, values, compacted)
            });
            if emptied == Some(true) {
                self.index.remove(key);
            }
        }
    }

    fn forget_some(&mut self, budget: usize) -> Result<(), BackendError> {
        let mut seen = Vec::new();
        let mut looks = 0;
        self.values.scan(
            self.compaction.cursor,
            self.compacted,
            &mut |rev, record| {
                seen.push((rev, record.key.clone()));
                looks += 1 + record.cost() / LOOK_BYTES;
                match looks < budget {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            },
        )?;
        self.compaction.cursor = match seen.last() {
            Some((rev, _)) if looks >= budget => Rev::new(rev.main, rev.sub + 1),
            _ => after(self.compacted),
        };
        for (rev, key) in seen {
            self.forget_behind(rev, &key);
        }
        Ok(())
    }

    /// Forgets what one revision at or below the compacted one makes unreachable.
    fn forget_behind(&mut self, rev: Rev, key: &[u8]) {
        let (values, compacted) = (&mut self.values, self.compacted);
        let forgotten = &mut self.compaction.forgotten;
        let emptied = self.index.modify(key, |_, entry| {
            let gone = match entry.has(rev) {
                true => entry.forget_before(rev),
                false => Vec::new(),
            };
            *forgotten += gone.len() as u64;
            for mark in gone {
                let stays = values.mark_dead(mark.rev());
                entry.buried += u32::from(stays && !mark.tombstone);
            }
            forget_idle_tombstone(entry, values, compacted)
        });
        if emptied == Some(true) {
            self.index.remove(key);
        }
    }
}

/// Forgets the tombstone of a key when nothing is left under it; returns whether nothing
/// is left of the key.
fn forget_idle_tombstone(entry: &mut KeyEntry, values: &mut Values, compacted: i64) -> bool {
    let Some(rev) = entry.idle_tombstone(compacted) else {
        return false;
    };
    values.mark_dead(rev);
    entry.forget_oldest()
}
