//! Which directory holds the rows: one small file, replaced whole.
//!
//! ```text
//! <data-dir>/ROWS     keelson-rows 1 <directory> <index> <term> <state> <crc32>
//! <data-dir>/db/      the first rows; db-1/, db-2/, ... those that snapshots brought
//! ```
//!
//! A member that fell behind gets all rows anew. They are written beside the old
//! ones, and [`install`] lets them take over in the one order that no crash spoils:
//!
//! 1. the new rows are complete and flushed (by whoever wrote them);
//! 2. the pointer names them, and the entry they are the state after;
//! 3. the log begins anew behind that entry;
//! 4. the pointer says that the log has done so.
//!
//! Before 2 a start finds the old rows and the old log. Between 2 and 4 it finds
//! new rows, and [`Wal::open_behind`] finishes 3 and 4. After 4 a log that does not
//! reach that entry has lost what was synced, and the member does not start.
//! Directories that the pointer does not name are removed at the next start.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use member::HardState;

use crate::{
    error::DiskError,
    file::{Disk, RealDisk},
    rows::Rows,
    wal::{Base, Wal},
};

const POINTER_FILE: &str = "ROWS";
const POINTER_NAME: &str = "keelson-rows";
const POINTER_FORMAT: &str = "1";
/// The directory of the first rows; the name of every other begins with it.
const FIRST_DIR: &str = "db";
/// More than any pointer takes.
const POINTER_BYTES_MAX: u64 = 4096;

/// Says which rows count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsPointer {
    /// The directory's name.
    pub dir: String,
    /// The entry that the rows were the state after when they came here.
    pub base: Base,
    /// Whether the log has begun behind that entry.
    pub settled: bool,
}

impl RowsPointer {
    /// Returns what a directory of rows that no snapshot brought begins with.
    fn first() -> Self {
        Self {
            dir: FIRST_DIR.to_owned(),
            base: Base::default(),
            settled: true,
        }
    }

    fn encode(&self) -> String {
        let state = if self.settled { "settled" } else { "new" };
        let Base { index, term } = self.base;
        let said = format!(
            "{POINTER_NAME} {POINTER_FORMAT} {} {index} {term} {state}",
            self.dir
        );
        format!("{said} {:08x}\n", crc32fast::hash(said.as_bytes()))
    }

    fn decode(text: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(text).map_err(|_error| "it is no text")?;
        let line = text.strip_suffix('\n').ok_or("its end is missing")?;
        let (said, crc) = line.rsplit_once(' ').ok_or("it has no checksum")?;
        if crc != format!("{:08x}", crc32fast::hash(said.as_bytes())) {
            return Err("checksum mismatch");
        }
        let words: Vec<_> = said.split(' ').collect();
        let [POINTER_NAME, POINTER_FORMAT, dir, index, term, state] = words[..] else {
            return Err("it is of a form this program does not know");
        };
        let number = |text: &str| text.parse().map_err(|_error| "a number is none");
        Ok(Self {
            dir: dir.to_owned(),
            base: Base {
                index: number(index)?,
                term: number(term)?,
            },
            settled: state == "settled",
        })
    }
}

/// The directories of rows within a data directory, one of which counts. Clones are
/// of the same.
#[derive(Clone, Debug)]
pub struct RowsHome {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl RowsHome {
    /// Returns those of a data directory.
    pub fn new(disk: Arc<dyn Disk>, data_dir: &Path) -> Self {
        Self {
            disk,
            dir: data_dir.to_owned(),
        }
    }

    pub(crate) fn real(data_dir: &Path) -> Self {
        Self::new(Arc::new(RealDisk), data_dir)
    }

    /// Reads the pointer, if there is one.
    pub fn pointer(&self) -> Result<Option<RowsPointer>, DiskError> {
        let path = self.dir.join(POINTER_FILE);
        let file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DiskError::io("open", &path)(error)),
        };
        let corrupt = |reason: &str| DiskError::Corrupt {
            file: path.clone(),
            offset: 0,
            reason: reason.to_owned(),
        };
        let len = file.len().map_err(DiskError::io("measure", &path))?;
        if len > POINTER_BYTES_MAX {
            return Err(corrupt("it is too long"));
        }
        let mut text = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_at(&mut text, 0)
            .map_err(DiskError::io("read", &path))?;
        RowsPointer::decode(&text).map(Some).map_err(corrupt)
    }

    /// Finds the rows that count, making the pointer if there was none, and removes
    /// all others. For the start: nobody may be writing some.
    pub fn enter(&self) -> Result<RowsPointer, DiskError> {
        let rows = match self.pointer()? {
            Some(rows) => rows,
            None => self.point_first()?,
        };
        let swept = self.sweep(&rows)?;
        if swept > 0 {
            tracing::info!(
                directories = swept,
                "removed rows that a snapshot was bringing or replaced"
            );
        }
        Ok(rows)
    }

    /// Opens rows in one of the directories.
    pub fn open_rows(&self, rows: &Path) -> Result<Rows, DiskError> {
        self.disk.open_rows(rows)
    }

    /// Points to the rows of a directory that has had no pointer so far.
    fn point_first(&self) -> Result<RowsPointer, DiskError> {
        let first = RowsPointer::first();
        self.point(&first)?;
        Ok(first)
    }

    /// Replaces the pointer.
    fn point(&self, pointer: &RowsPointer) -> Result<(), DiskError> {
        let (path, temporary) = (self.dir.join(POINTER_FILE), self.dir.join("ROWS.tmp"));
        let write = || {
            let mut file = self.disk.create(&temporary)?;
            file.write_at(pointer.encode().as_bytes(), 0)?;
            file.sync_all()?;
            self.disk.rename(&temporary, &path)?;
            self.disk.sync_dir(&self.dir)
        };
        write().map_err(DiskError::io("write", &path))
    }

    /// Returns where rows are.
    pub fn path(&self, pointer: &RowsPointer) -> PathBuf {
        self.dir.join(&pointer.dir)
    }

    /// Makes a directory for rows that a snapshot brings. Until [`install`] they do
    /// not count, and the next start removes them.
    pub fn fresh(&self) -> Result<PathBuf, DiskError> {
        let taken = self.dirs()?;
        let number = |name: &String| name.strip_prefix("db-")?.parse::<u64>().ok();
        let last = taken.iter().filter_map(number).max().unwrap_or(0);
        let path = self.dir.join(format!("{FIRST_DIR}-{}", last + 1));
        self.disk
            .create_dir(&path)
            .map_err(DiskError::io("make directory", &path))?;
        self.disk
            .sync_dir(&self.dir)
            .map_err(DiskError::io("sync directory", &self.dir))?;
        Ok(path)
    }

    /// Removes rows that nobody uses any more: those that were replaced, once the
    /// last handle on them is dropped, or new ones that were given up.
    pub fn remove(&self, rows: &Path) -> Result<(), DiskError> {
        self.disk
            .remove_dir(rows)
            .map_err(DiskError::io("remove", rows))
    }

    /// Removes all rows that do not count; nobody may be writing some. Returns how
    /// many directories there were.
    fn sweep(&self, pointer: &RowsPointer) -> Result<usize, DiskError> {
        let mut dirs = self.dirs()?;
        dirs.retain(|name| *name != pointer.dir);
        for name in &dirs {
            self.remove(&self.dir.join(name))?;
        }
        Ok(dirs.len())
    }

    fn dirs(&self) -> Result<Vec<String>, DiskError> {
        let names = self.disk.list(&self.dir);
        let mut names = names.map_err(DiskError::io("list", &self.dir))?;
        let numbered = |name: &str| {
            let number = name.strip_prefix("db-");
            number.is_some_and(|n| n.parse::<u64>().is_ok())
        };
        names.retain(|name| name == FIRST_DIR || numbered(name));
        Ok(names)
    }

    /// Notes that the rows at `rows`, complete and flushed, are the state after an
    /// entry, and that the log is to begin behind it.
    pub fn adopt(&self, rows: &Path, base: Base) -> Result<(), DiskError> {
        let name = rows.file_name().unwrap_or_default().to_string_lossy();
        self.point(&RowsPointer {
            dir: name.into_owned(),
            base,
            settled: false,
        })
    }

    /// Notes that the log begins behind the rows' entry.
    pub fn settle(&self) -> Result<(), DiskError> {
        match self.pointer()? {
            Some(pointer) if !pointer.settled => self.point(&RowsPointer {
                settled: true,
                ..pointer
            }),
            _ => Ok(()),
        }
    }
}

/// Lets rows that a snapshot brought, complete and flushed, take the place of those
/// in use, and the log begin behind them. Nothing that the snapshot promises may be
/// acknowledged before this returns. The old rows stay until [`RowsHome::remove`].
///
/// After an error the caller ends: the next start finds the old state, or the new
/// one and finishes.
pub fn install(
    home: &RowsHome,
    wal: &mut Wal,
    rows: &Path,
    base: Base,
    hard_state: Option<&HardState>,
) -> Result<(), DiskError> {
    home.adopt(rows, base)?;
    wal.reset(base, hard_state)?;
    home.settle()
}
