//! The write-ahead log: segments of chained, checksummed records.
//!
//! ```text
//! wal/<number>-<index before its first entry>.wal
//!      Segment head | HardState | Entry | Entry | HardState | ... | zeros
//! ```
//!
//! A segment is made of zeros and synced before it is used, so that a write never
//! changes a file's size (1.5x faster here, and no metadata to lose). The head of
//! a segment is synced before the segment gets its name; hence every named
//! segment has a head, and every segment before the last is complete.
//!
//! Invariants:
//! - `offset` is where the next record goes; everything before it was handed to
//!   the system, everything before `writer.synced` is durable;
//! - the commit index never reaches beyond the entries before it, so no torn write
//!   can leave one that does;
//! - after a failed sync `file` is gone and every call answers [`DiskError::Closed`].

mod dump;
mod record;
mod replay;
mod reset;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::BufMut;
use member::{HardState, LogEntry, Recovered, encode_entry, encode_hard_state};

pub use self::{
    dump::{Dumped, DumpedRecord, dump},
    reset::Base,
};
use self::{
    record::{Kind, Writer},
    replay::{Replay, SegmentHead, SegmentName, low_half},
};
use crate::{
    error::DiskError,
    file::{Disk, File},
};

/// Size of one segment unless told otherwise: about two seconds of a busy log.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// Largest segment; offsets are 32 bits wide.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// How much of a new segment is filled with zeros at a time.
const ZERO_CHUNK: usize = 1 << 20;

/// Whose log it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: u64,
    /// The member.
    pub member_id: u64,
}

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whose log it is; another's is refused.
    pub identity: Identity,
    /// Size of one segment. A record that does not fit gets a larger one.
    pub segment_bytes: u64,
}

/// The end of the log that the last crash tore, and that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The segment.
    pub file: PathBuf,
    /// Where it was cut.
    pub offset: u64,
    /// How many bytes were dropped.
    pub bytes: u64,
    /// Where they were kept.
    pub copy: PathBuf,
    /// What was wrong with them.
    pub reason: String,
}

/// What a log said when it was opened.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Hard state and entries.
    pub recovered: Recovered,
    /// What was cut off.
    pub dropped: Option<Dropped>,
}

#[derive(Debug)]
struct Segment {
    name: SegmentName,
    size: u64,
    reach: Reach,
}

impl Segment {
    /// Reports whether an entry in it replaces one up to this index: then what was
    /// written before must stay as long as something from before is needed at all.
    fn replaces(&self, index: u64) -> bool {
        self.reach.lowest.is_some_and(|lowest| lowest <= index)
    }
}

/// How far back the entries of a segment go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reach {
    /// The lowest index of an entry in it, unless the log begins anew before that.
    lowest: Option<u64>,
    /// Whether the log begins anew in it: nothing before counts.
    anew: bool,
}

impl Reach {
    const ANEW: Self = Self {
        lowest: None,
        anew: true,
    };

    /// Takes in an entry of the segment.
    fn note(&mut self, index: u64) {
        if !self.anew {
            self.lowest = Some(self.lowest.map_or(index, |lowest| lowest.min(index)));
        }
    }
}

/// An open log.
#[derive(Debug)]
pub struct Wal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: Options,
    /// Oldest first; the last is written to.
    segments: Vec<Segment>,
    file: Option<Box<dyn File>>,
    writer: Writer,
    /// Where `buffer` will be written.
    offset: u64,
    buffer: Vec<u8>,
    /// Whether something was written since the last sync.
    dirty: bool,
    /// State as of the last record, for the head of the next segment.
    hard_state: HardState,
    last_index: u64,
    last_term: u64,
    spare: Option<Spare>,
    spare_under_way: bool,
    /// Whether making one failed since this segment began: then the log makes the
    /// next one itself, when it must.
    spare_failed: bool,
}

impl Wal {
    /// Opens the log in `dir`, making one if there is none.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: Options,
    ) -> Result<(Self, Replayed), DiskError> {
        let names = replay::segments(&*disk, dir)?;
        let mut replay = Replay::default();
        let mut file = None;
        let mut segments = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let last = at + 1 == names.len();
            let opened = replay.segment(&*disk, dir, name, last, options.identity)?;
            let path = dir.join(name.file());
            let size = opened.len().map_err(DiskError::io("measure", &path))?;
            segments.push(Segment {
                name: name.clone(),
                size,
                reach: replay.reach,
            });
            file = Some(opened);
        }
        let recovered = replay.recovered;
        let last_term = recovered
            .entries
            .last()
            .map_or(recovered.base_term, |entry| entry.term);
        let mut wal = Self {
            disk,
            dir: dir.to_owned(),
            writer: Writer {
                segment: 0,
                chain: replay.chain.unwrap_or(0),
                synced: 0,
            },
            offset: replay.end as u64,
            segments,
            file,
            buffer: Vec::new(),
            dirty: false,
            hard_state: recovered.hard_state,
            last_index: recovered.last_index(),
            last_term,
            spare: None,
            spare_under_way: false,
            spare_failed: false,
            options,
        };
        wal.reopen_last()?;
        Ok((
            wal,
            Replayed {
                recovered,
                dropped: replay.dropped,
            },
        ))
    }

    /// Returns whose log is in `dir`, if there is one.
    pub fn identity(disk: &dyn Disk, dir: &Path) -> Result<Option<Identity>, DiskError> {
        replay::identity(disk, dir)
    }

    /// Makes the newest segment ready for more, or makes the first one.
    fn reopen_last(&mut self) -> Result<(), DiskError> {
        let (Some(segment), Some(file)) = (self.segments.last_mut(), self.file.as_mut()) else {
            return self.next_segment(0);
        };
        let path = self.dir.join(segment.name.file());
        self.writer.segment = low_half(segment.name.number);
        if segment.size < self.options.segment_bytes {
            // Somebody cut the file; give it its zeros back.
            fill_zeros(&mut **file, segment.size, self.options.segment_bytes)
                .map_err(DiskError::io("extend", &path))?;
            segment.size = self.options.segment_bytes;
        }
        // What was read may so far have been in the page cache only.
        file.sync_all()
            .map_err(|source| DiskError::Sync { path, source })?;
        self.writer.synced = narrow(self.offset);
        Ok(())
    }

    /// Queues a hard state and entries for the next [`Wal::flush`].
    ///
    /// A crash may leave any first part of what is queued, and none may say that
    /// something is committed that only the rest brings: the log may have other
    /// entries in those places, or none. So the commit index is written in two steps
    /// where it reaches into the entries.
    pub fn append(
        &mut self,
        hard_state: Option<&HardState>,
        entries: &[LogEntry],
    ) -> Result<(), DiskError> {
        let before = entries
            .first()
            .map_or(u64::MAX, |first| first.index.saturating_sub(1));
        if let Some(state) = hard_state {
            let commit = state.commit.min(before);
            self.append_hard_state(HardState { commit, ..*state })?;
        }
        for entry in entries {
            self.make_room(entry.data.len() + 32)?;
            self.writer.record(&mut self.buffer, Kind::Entry, |out| {
                encode_entry(entry, out)
            });
            if let Some(segment) = self.segments.last_mut() {
                segment.reach.note(entry.index);
            }
            self.last_index = entry.index;
            self.last_term = entry.term;
        }
        match hard_state {
            Some(state) if state.commit > before => self.append_hard_state(*state),
            _ => Ok(()),
        }
    }

    fn append_hard_state(&mut self, state: HardState) -> Result<(), DiskError> {
        self.make_room(64)?;
        self.writer
            .record(&mut self.buffer, Kind::HardState, |out| {
                encode_hard_state(&state, out)
            });
        self.hard_state = state;
        Ok(())
    }

    /// Queues a marker: everything up to `index` is in a snapshot, the log goes on
    /// behind it.
    pub fn append_snapshot(&mut self, index: u64, term: u64) -> Result<(), DiskError> {
        self.make_room(32)?;
        self.writer.record(&mut self.buffer, Kind::Snapshot, |out| {
            out.put_u64_le(index);
            out.put_u64_le(term);
        });
        if index >= self.last_index {
            self.last_index = index;
            self.last_term = term;
        }
        Ok(())
    }

    /// Writes what is queued; with `sync` it is durable when this returns, along
    /// with everything written before.
    pub fn flush(&mut self, sync: bool) -> Result<(), DiskError> {
        let path = self.path();
        let file = self.file.as_mut().ok_or(DiskError::Closed)?;
        if !self.buffer.is_empty() {
            let written = file.write_at(&self.buffer, self.offset);
            if let Err(source) = written {
                // Part of it may be there; what follows would not be found again.
                self.file = None;
                return Err(DiskError::io("write", &path)(source));
            }
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
            self.dirty = true;
        }
        if sync && self.dirty {
            if let Err(source) = file.sync_data() {
                self.file = None;
                return Err(DiskError::Sync { path, source });
            }
            self.dirty = false;
            self.writer.synced = narrow(self.offset);
        }
        Ok(())
    }

    /// Removes the segments that hold nothing behind `covered`, an index that the
    /// rows hold durably. Returns how many.
    pub fn release(&mut self, covered: u64) -> Result<usize, DiskError> {
        // The entry at `covered` itself is kept in reach: its term is asked for.
        let later = self.segments.iter().skip(1);
        let mut count = later
            .take_while(|next| next.name.last_index <= covered)
            .count();
        while count > 0 && !self.may_be_oldest(count) {
            count -= 1;
        }
        self.remove_older(count)
    }

    /// Reports whether the log can be read from a segment on: neither that one nor a
    /// later one replaces what was before it.
    fn may_be_oldest(&self, at: usize) -> bool {
        let behind = self.segments[at].name.last_index;
        !self.segments[at..]
            .iter()
            .any(|segment| segment.replaces(behind))
    }

    /// Removes the oldest segments; returns how many.
    fn remove_older(&mut self, count: usize) -> Result<usize, DiskError> {
        for _ in 0..count {
            let path = self.dir.join(self.segments[0].name.file());
            self.disk
                .remove(&path)
                .map_err(DiskError::io("remove", &path))?;
            self.segments.remove(0);
        }
        if count > 0 {
            self.sync_dir()?;
        }
        Ok(count)
    }

    /// Returns the hard state written last.
    pub fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Counts the segments on disk.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Returns the bytes of all segments on disk.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// Asks for the next segment to be made ahead of need, on any thread; hand the
    /// job back with [`Wal::offer_spare`]. Without it the log makes it itself.
    pub fn spare_wanted(&mut self) -> Option<SpareJob> {
        let half = self.segments.last()?.size / 2;
        let pointless = self.spare.is_some() || self.spare_under_way || self.spare_failed;
        if pointless || self.offset < half {
            return None;
        }
        self.spare_under_way = true;
        Some(SpareJob {
            disk: Arc::clone(&self.disk),
            path: self.dir.join("spare.tmp"),
            size: self.options.segment_bytes,
            made: None,
        })
    }

    /// Takes a spare segment that [`SpareJob::run`] made.
    pub fn offer_spare(&mut self, job: SpareJob) {
        self.spare_under_way = false;
        self.spare_failed = job.made.is_none();
        self.spare = job.made;
    }

    fn path(&self) -> PathBuf {
        self.segments.last().map_or_else(
            || self.dir.clone(),
            |segment| self.dir.join(segment.name.file()),
        )
    }

    /// Starts a new segment if a record with this payload does not fit this one.
    fn make_room(&mut self, payload: usize) -> Result<(), DiskError> {
        if self.file.is_none() {
            return Err(DiskError::Closed);
        }
        let size = self.segments.last().map_or(0, |segment| segment.size);
        let needed = record::size(payload) as u64;
        if self.offset + self.buffer.len() as u64 + needed <= size {
            return Ok(());
        }
        self.flush(true)?;
        self.next_segment(needed)
    }

    /// Starts a new segment. If there is no room for one, nothing has changed.
    fn next_segment(&mut self, needed: u64) -> Result<(), DiskError> {
        let name = SegmentName {
            number: self
                .segments
                .last()
                .map_or(1, |segment| segment.name.number + 1),
            last_index: self.last_index,
        };
        let size = self
            .options
            .segment_bytes
            .max(needed + 4096)
            .min(SEGMENT_BYTES_MAX);
        let mut spare = match self.spare.take().filter(|spare| spare.size >= size) {
            Some(spare) => spare,
            None => {
                // A job still under way writes to another name.
                let path = self.dir.join("next.tmp");
                make_spare(&*self.disk, &path, size)
                    .map_err(DiskError::io("make segment", &path))?
            }
        };
        let head = SegmentHead {
            identity: self.options.identity,
            number: name.number,
            hard_state: self.hard_state,
            last_index: self.last_index,
            last_term: self.last_term,
        };
        self.writer.segment = low_half(name.number);
        self.writer.synced = 0;
        self.buffer.clear();
        self.writer
            .record(&mut self.buffer, Kind::Segment, |out| head.encode(out));
        let path = self.dir.join(name.file());
        // A segment that got its name half-way is found and judged at the next start.
        self.file = None;
        spare
            .file
            .write_at(&self.buffer, 0)
            .map_err(DiskError::io("write", &spare.path))?;
        let synced = spare.file.sync_all();
        synced.map_err(|source| DiskError::Sync {
            path: spare.path.clone(),
            source,
        })?;
        self.disk
            .rename(&spare.path, &path)
            .map_err(DiskError::io("rename", &path))?;
        self.sync_dir()?;
        self.offset = self.buffer.len() as u64;
        self.writer.synced = narrow(self.offset);
        self.buffer.clear();
        self.dirty = false;
        self.spare_failed = false;
        self.file = Some(spare.file);
        self.segments.push(Segment {
            name,
            size: spare.size,
            reach: Reach::default(),
        });
        Ok(())
    }

    fn sync_dir(&mut self) -> Result<(), DiskError> {
        if mutants::planted(mutants::Bug::DirectoryNotSynced) {
            return Ok(());
        }
        self.disk.sync_dir(&self.dir).map_err(|source| {
            self.file = None;
            DiskError::Sync {
                path: self.dir.clone(),
                source,
            }
        })
    }
}

/// Offsets stay below [`SEGMENT_BYTES_MAX`].
fn narrow(offset: u64) -> u32 {
    u32::try_from(offset).expect("a segment is at most 1 GiB")
}

#[derive(Debug)]
struct Spare {
    file: Box<dyn File>,
    path: PathBuf,
    size: u64,
}

/// The making of a segment ahead of need.
#[derive(Debug)]
pub struct SpareJob {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    size: u64,
    made: Option<Spare>,
}

impl SpareJob {
    /// Writes and syncs the zeros. A failure is only logged: the log will try
    /// itself when it needs the segment, and fail then if it must.
    pub fn run(&mut self) {
        match make_spare(&*self.disk, &self.path, self.size) {
            Ok(spare) => self.made = Some(spare),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot make a log segment ahead");
            }
        }
    }
}

fn make_spare(disk: &dyn Disk, path: &Path, size: u64) -> std::io::Result<Spare> {
    let mut file = disk.create(path)?;
    let filled = fill_zeros(&mut *file, 0, size).and_then(|()| file.sync_all());
    if let Err(error) = filled {
        // Half a segment is of no use, and the rows may need the room. If it cannot
        // be removed, the next start does.
        let _stays = disk.remove(path);
        return Err(error);
    }
    Ok(Spare {
        file,
        path: path.to_owned(),
        size,
    })
}

fn fill_zeros(file: &mut dyn File, from: u64, to: u64) -> std::io::Result<()> {
    let zeros = vec![0; ZERO_CHUNK];
    let mut at = from;
    while at < to {
        let len = usize::try_from(to - at)
            .unwrap_or(ZERO_CHUNK)
            .min(ZERO_CHUNK);
        file.write_at(&zeros[..len], at)?;
        at += len as u64;
    }
    Ok(())
}
