//! A log that begins anew, behind a snapshot.

use std::{path::Path, sync::Arc};

use bytes::BufMut;
use member::{HardState, Recovered, encode_hard_state};

use super::{Options, Reach, Replayed, Wal, record::Kind};
use crate::{error::DiskError, file::Disk, rows_home::RowsHome};

/// The entry that rows are the state after, and behind which a log begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

impl Base {
    /// Says whether a log reaches this entry or began behind it or a later one.
    fn is_in(self, log: &Recovered) -> bool {
        if self.index <= log.base_index {
            return self.index < log.base_index || self.term == log.base_term;
        }
        let at = usize::try_from(self.index - log.base_index - 1).unwrap_or(usize::MAX);
        log.entries
            .get(at)
            .is_some_and(|entry| entry.term == self.term)
    }
}

impl Wal {
    /// Opens the log that belongs to the rows of a home. One that was to begin anew
    /// behind them, and was kept from it by a crash, does so now; one that must have
    /// done so and does not reach them has lost its end.
    pub fn open_behind(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
        home: &RowsHome,
    ) -> Result<(Self, Replayed), DiskError> {
        let (mut wal, mut replayed) = Self::open(disk, dir, options)?;
        let Some(pointer) = home.pointer()? else {
            return Ok((wal, replayed));
        };
        let base = pointer.base;
        if pointer.settled {
            let last = replayed.recovered.last_index();
            return match base.is_in(&replayed.recovered) {
                true => Ok((wal, replayed)),
                false => Err(DiskError::LogBehind {
                    dir: dir.to_owned(),
                    last,
                    rows: home.path(&pointer),
                    index: base.index,
                }),
            };
        }
        if !base.is_in(&replayed.recovered) {
            wal.reset(base, None)?;
            replayed.recovered = Recovered {
                hard_state: wal.hard_state,
                base_index: base.index,
                base_term: base.term,
                entries: Vec::new(),
            };
        }
        home.settle()?;
        Ok((wal, replayed))
    }

    /// Begins anew: durably, whatever the log held is gone, it goes on behind `base`
    /// with this hard state, and older segments are removed. Without a hard state
    /// the term and vote stay what they are, as far as they can.
    pub fn reset(&mut self, base: Base, hard_state: Option<&HardState>) -> Result<(), DiskError> {
        let state = match hard_state {
            Some(state) => *state,
            None if self.hard_state.term >= base.term => self.hard_state,
            None => HardState {
                term: base.term,
                ..HardState::default()
            },
        };
        // Entries that are committed beyond it are yet to come.
        let state = HardState {
            commit: base.index,
            ..state
        };
        if !self.may_be_oldest(self.segments.len() - 1) {
            // Those before go below, and it could not be read without them.
            self.flush(true)?;
            self.next_segment(64)?;
        }
        self.make_room(64)?;
        if let Some(segment) = self.segments.last_mut() {
            segment.reach = Reach::ANEW;
        }
        // One record, so that a torn write leaves the old log or the new one.
        self.writer.record(&mut self.buffer, Kind::Base, |out| {
            out.put_u64_le(base.index);
            out.put_u64_le(base.term);
            encode_hard_state(&state, out);
        });
        self.hard_state = state;
        self.last_index = base.index;
        self.last_term = base.term;
        self.flush(true)?;
        self.remove_older(self.segments.len() - 1).map(drop)
    }
}
