//! Large rows, in files of their own beside the engine.
//!
//! sled keeps sixteen rows in a page whatever their size, reads and writes such a
//! page whole, and does not count what lies outside its log when it bounds its
//! cache. So a block of history is not given to it: it is appended to a *segment*
//! here, synced, and the engine holds only where it lies (WiscKey, Lu et al.,
//! FAST 2016). Memory then does not depend on how much is read, and space comes
//! back by deleting files.
//!
//! ```text
//! segments   0: [....xxxx....xxxxxx]  1: [xxxxxxxxx..]  2: [.......   <- appended to
//!                . live, x dead           moved next         when full, 3 is begun
//! ```
//!
//! A segment of which half is dead is emptied: what lives in it is appended anew.
//! Its file goes once the engine has synced the new places.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use mvcc::backend::BackendError;
use rustix::{buffer::spare_capacity, io::Errno};

use crate::{
    error::DiskError,
    file::{Disk as _, RealDisk},
};

/// Rows from this size on are kept here.
pub(super) const LARGE_BYTES: usize = 1 << 10;

/// Bytes after which a segment is closed: an eighth of what lives in all of them, but
/// not less and not more than this. So much room may be lost, beside what thrift
/// allows, to the one that is still appended to.
const SEGMENT_BYTES_MIN: u64 = 4 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Bytes moved at a time; between two such slices a write-back gets its turn. The log's
/// next sync waits for one of them.
const MOVE_BYTES: u64 = 1 << 20;

/// Bytes of a [`Place`] in the engine.
const PLACE_BYTES: usize = 24;

/// Says where a row lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    segment: u64,
    offset: u64,
    len: u32,
    crc: u32,
}

impl Place {
    pub(super) fn encode(self) -> [u8; PLACE_BYTES] {
        let mut out = [0; PLACE_BYTES];
        out[..8].copy_from_slice(&self.segment.to_be_bytes());
        out[8..16].copy_from_slice(&self.offset.to_be_bytes());
        out[16..20].copy_from_slice(&self.len.to_be_bytes());
        out[20..].copy_from_slice(&self.crc.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (segment, rest) = bytes.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let crc = rest.try_into().ok()?;
        Some(Self {
            segment: u64::from_be_bytes(*segment),
            offset: u64::from_be_bytes(*offset),
            len: u32::from_be_bytes(*len),
            crc: u32::from_be_bytes(crc),
        })
    }
}

/// Is how much must be dead in a segment before it is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thrift {
    /// Half of it: the files take at most twice what lives in them, and no more is
    /// moved than comes free.
    Steady,
    /// A sixteenth, of the segments there were when somebody asked for it: those
    /// below this number.
    Strict { below: u64 },
}

impl Thrift {
    fn wastes(self, number: u64, segment: &Segment) -> bool {
        let dead = segment.bytes - segment.live;
        match self {
            Self::Steady => dead * 2 >= segment.bytes,
            Self::Strict { below } => number < below && dead * 16 >= segment.bytes,
        }
    }
}

#[derive(Debug)]
struct Segment {
    file: Arc<File>,
    path: PathBuf,
    bytes: u64,
    live: u64,
}

/// Is which row lies where.
#[derive(Debug, Default)]
struct Index {
    places: BTreeMap<Bytes, Place>,
    segments: BTreeMap<u64, Segment>,
    /// The one that is appended to, if one was begun since the start.
    open: Option<u64>,
}

/// Is the segment that is appended to.
#[derive(Debug)]
struct Open {
    number: u64,
    file: Arc<File>,
    path: PathBuf,
    bytes: u64,
    unsynced: bool,
}

/// Is the large rows of one engine.
#[derive(Debug)]
pub(super) struct Heap {
    dir: PathBuf,
    /// Held for moments only, for whoever reads a row may be the core.
    index: Mutex<Index>,
    /// Held while the disk is waited for. Taken before `index`.
    writer: Mutex<Option<Open>>,
}

impl Heap {
    /// Opens the segments in a directory, given what the engine says lies where.
    /// A segment nothing lies in is removed: a crash left it.
    pub(super) fn open(
        dir: &Path,
        places: impl Iterator<Item = Result<(Bytes, Vec<u8>), DiskError>>,
    ) -> Result<Self, DiskError> {
        let disk = RealDisk;
        disk.create_dir(dir)
            .map_err(DiskError::io("make directory", dir))?;
        let mut index = Index::default();
        for name in disk.list(dir).map_err(DiskError::io("list", dir))? {
            let path = dir.join(&name);
            let Some(number) = segment_number(&name) else {
                continue;
            };
            let file = File::open(&path).map_err(DiskError::io("open", &path))?;
            let meta = file.metadata().map_err(DiskError::io("look at", &path))?;
            let segment = Segment {
                file: Arc::new(file),
                path,
                bytes: meta.len(),
                live: 0,
            };
            index.segments.insert(number, segment);
        }
        for place in places {
            let (key, place) = place?;
            index.restore(dir, key, &place)?;
        }
        let heap = Self {
            dir: dir.to_owned(),
            index: Mutex::new(index),
            writer: Mutex::new(None),
        };
        heap.remove(&heap.empty())?;
        Ok(heap)
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        // It is changed in steps that cannot fail half-way.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether a row lies here.
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        self.lock().places.contains_key(key)
    }

    /// Reads a row, if it lies here.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        let found = self.lock().find(key);
        // Read without the lock: a file that is removed meanwhile stays readable.
        found.map(|found| found.read(key)).transpose()
    }

    /// Names the first row at or after one, below another (an empty one is none).
    pub(super) fn first(&self, from: &[u8], to: &[u8]) -> Option<Bytes> {
        let index = self.lock();
        let (key, _) = index
            .places
            .range::<[u8], _>((
                std::ops::Bound::Included(from),
                std::ops::Bound::<&[u8]>::Unbounded,
            ))
            .next()?;
        (to.is_empty() || key.as_ref() < to).then(|| key.clone())
    }

    fn writer(&self) -> MutexGuard<'_, Option<Open>> {
        // What was appended and never settled is garbage, no more.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a row; it counts once [`Heap::settle`] is told its place.
    pub(super) fn append(&self, row: &[u8]) -> Result<Place, DiskError> {
        let len = u32::try_from(row.len()).map_err(|_long| DiskError::Rows {
            path: self.dir.clone(),
            reason: format!("a row of {} bytes", row.len()),
        })?;
        let mut writer = self.writer();
        let (full_at, next) = {
            let index = self.lock();
            (index.segment_bytes(), index.next_number())
        };
        if writer.as_ref().is_some_and(|open| open.bytes >= full_at)
            && let Some(full) = writer.take()
        {
            full.sync()?;
        }
        let open = match &mut *writer {
            Some(open) => open,
            none => none.insert(self.begin(next)?),
        };
        let offset = open.bytes;
        open.unsynced = true;
        open.file
            .write_all_at(row, offset)
            .map_err(DiskError::io("write", &open.path))?;
        open.bytes += u64::from(len);
        self.lock().grow(open.number, open.bytes);
        Ok(Place {
            segment: open.number,
            offset,
            len,
            crc: crc32fast::hash(row),
        })
    }

    /// Begins a segment.
    fn begin(&self, number: u64) -> Result<Open, DiskError> {
        let path = self.dir.join(segment_name(number));
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).map_err(DiskError::io("make", &path))?;
        RealDisk
            .sync_dir(&self.dir)
            .map_err(DiskError::io("sync directory", &self.dir))?;
        let file = Arc::new(file);
        let segment = Segment {
            file: Arc::clone(&file),
            path: path.clone(),
            bytes: 0,
            live: 0,
        };
        let mut index = self.lock();
        index.segments.insert(number, segment);
        index.open = Some(number);
        Ok(Open {
            number,
            file,
            path,
            bytes: 0,
            unsynced: false,
        })
    }

    /// Makes what was appended durable. Only then may the engine be told of it.
    pub(super) fn sync(&self) -> Result<(), DiskError> {
        match &mut *self.writer() {
            Some(open) if open.unsynced => {
                open.sync()?;
                open.unsynced = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Takes in what the engine has accepted: where rows lie now, or that they are
    /// gone from here.
    pub(super) fn settle(&self, rows: Vec<(Bytes, Option<Place>)>) {
        let mut index = self.lock();
        for (key, place) in rows {
            let old = match place {
                Some(place) => {
                    index.add_live(place, u64::wrapping_add);
                    index.places.insert(key, place)
                }
                None => index.places.remove(&key),
            };
            if let Some(old) = old {
                index.add_live(old, u64::wrapping_sub);
            }
        }
    }

    /// Chooses rows to move out of a wasteful segment, a slice of them, and reads
    /// them; none if no segment is.
    pub(super) fn to_move(&self, thrift: Thrift) -> Result<Vec<(Bytes, Bytes)>, DiskError> {
        let chosen = self.lock().choose(thrift);
        let read = |(key, found): (Bytes, Found)| match found.read(&key) {
            Ok(row) => Ok((key, row)),
            Err(error) => Err(DiskError::Rows {
                path: self.dir.clone(),
                reason: error.to_string(),
            }),
        };
        chosen.into_iter().map(read).collect()
    }

    /// Closes the segment that is appended to; returns the number that the next
    /// one will have.
    pub(super) fn close(&self) -> Result<u64, DiskError> {
        let mut writer = self.writer();
        if let Some(open) = writer.take() {
            open.sync()?;
        }
        let mut index = self.lock();
        index.open = None;
        Ok(index.next_number())
    }

    /// Names the segments nothing lies in.
    pub(super) fn empty(&self) -> Vec<u64> {
        let index = self.lock();
        let closed = index
            .segments
            .iter()
            .filter(|(number, segment)| segment.live == 0 && index.open != Some(**number));
        closed.map(|(number, _)| *number).collect()
    }

    /// Removes segments that were empty before the engine's last sync.
    pub(super) fn remove(&self, numbers: &[u64]) -> Result<(), DiskError> {
        for number in numbers {
            let removed = self.lock().segments.remove(number);
            let Some(segment) = removed else { continue };
            fs::remove_file(&segment.path).map_err(DiskError::io("remove", &segment.path))?;
        }
        Ok(())
    }

    /// Counts the bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().segments.values().map(|s| s.bytes).sum()
    }
}

/// Is a row to read, apart from the lock.
struct Found {
    file: Arc<File>,
    path: PathBuf,
    place: Place,
}

impl Found {
    fn read(&self, key: &[u8]) -> Result<Bytes, BackendError> {
        let place = self.place;
        let mut row = Vec::new();
        let read = read_exact_at(&self.file, place.offset, place.len as usize, &mut row);
        let at = || format!("{} at byte {}", self.path.display(), place.offset);
        match read {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(BackendError::Io(format!("cannot read {}: {error}", at())));
            }
            Ok(()) if crc32fast::hash(&row) == place.crc => {}
            _ => {
                let reason = format!("checksum mismatch in {}", at());
                return Err(BackendError::corrupt(key, reason));
            }
        }
        Ok(row.into())
    }
}

/// Reads so many bytes of a file into an empty buffer, which need not be zeroed for it.
fn read_exact_at(file: &File, from: u64, len: usize, into: &mut Vec<u8>) -> io::Result<()> {
    into.reserve_exact(len);
    while into.len() < len {
        let offset = from + into.len() as u64;
        match rustix::io::pread(file, spare_capacity(into), offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The buffer may have been made larger than was asked for.
    into.truncate(len);
    Ok(())
}

impl Open {
    fn sync(&self) -> Result<(), DiskError> {
        let failed = |source| DiskError::Sync {
            path: self.path.clone(),
            source,
        };
        self.file.sync_data().map_err(failed)
    }
}

impl Index {
    fn restore(&mut self, dir: &Path, key: Bytes, place: &[u8]) -> Result<(), DiskError> {
        let corrupt = |offset: u64, reason: &str| DiskError::Corrupt {
            file: dir.to_owned(),
            offset,
            reason: reason.to_owned(),
        };
        let place = Place::decode(place).ok_or_else(|| corrupt(0, "a place of odd length"))?;
        let Some(segment) = self.segments.get_mut(&place.segment) else {
            let reason = format!("segment {} is missing", segment_name(place.segment));
            return Err(corrupt(0, &reason));
        };
        let end = place.offset.checked_add(u64::from(place.len));
        if end.is_none_or(|end| end > segment.bytes) {
            return Err(DiskError::Corrupt {
                file: segment.path.clone(),
                offset: segment.bytes,
                reason: "it ends before a row that lies in it".to_owned(),
            });
        }
        segment.live += u64::from(place.len);
        self.places.insert(key, place);
        Ok(())
    }

    fn find(&self, key: &[u8]) -> Option<Found> {
        let place = *self.places.get(key)?;
        let segment = self.segments.get(&place.segment)?;
        Some(Found {
            file: Arc::clone(&segment.file),
            path: segment.path.clone(),
            place,
        })
    }

    fn add_live(&mut self, place: Place, change: impl Fn(u64, u64) -> u64) {
        if let Some(segment) = self.segments.get_mut(&place.segment) {
            segment.live = change(segment.live, u64::from(place.len));
        }
    }

    fn grow(&mut self, number: u64, bytes: u64) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.bytes = bytes;
        }
    }

    fn next_number(&self) -> u64 {
        let last = self.segments.last_key_value();
        last.map_or(0, |(last, _)| last + 1)
    }

    /// Returns the size at which a segment is full.
    fn segment_bytes(&self) -> u64 {
        let live: u64 = self.segments.values().map(|segment| segment.live).sum();
        (live / 8).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Chooses a slice of the segment with the most dead bytes.
    fn choose(&self, thrift: Thrift) -> Vec<(Bytes, Found)> {
        let open = self.open;
        let worst = self
            .segments
            .iter()
            .filter(|(number, segment)| {
                let candidate = open != Some(**number) && segment.live > 0;
                candidate && thrift.wastes(**number, segment)
            })
            .max_by_key(|(_, segment)| segment.bytes - segment.live)
            .map(|(number, _)| *number);
        let Some(worst) = worst else {
            return Vec::new();
        };
        let mut bytes = 0;
        let lies_there = |place: &Place| place.segment == worst;
        let rows = self.places.iter().filter(|(_, place)| lies_there(place));
        rows.take_while(|(_, place)| {
            let within = bytes < MOVE_BYTES;
            bytes += u64::from(place.len);
            within
        })
        .filter_map(|(key, _)| Some((key.clone(), self.find(key)?)))
        .collect()
    }
}

fn segment_name(number: u64) -> String {
    format!("{number:016x}.heap")
}

fn segment_number(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_suffix(".heap")?, 16).ok()
}
