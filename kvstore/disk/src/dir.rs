//! The data directory: its format, its lock, its layout.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::{
    error::DiskError,
    file::{Disk as _, RealDisk},
    rows_home::{RowsHome, RowsPointer},
};

/// The format this program writes. A change that an older program would misread
/// gets the next number.
///
/// 1: the rows are in `db`. 2: `ROWS` says where they are, and a log may begin anew.
/// 4: large rows are in segments beside the engine. What is of an older format is
/// taken over as it is. There is no 3: one flipped bit of that digit is a 1 or a 2.
pub const FORMAT: u32 = 4;

/// The first format with a `ROWS` file.
const FORMAT_WITH_POINTER: u32 = 2;

const VERSION_FILE: &str = "VERSION";
const LOCK_FILE: &str = "LOCK";
const FORMAT_NAME: &str = "keelson-store";

/// A data directory in use by this process until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    wal: PathBuf,
    rows: RowsPointer,
    /// Held for their locks, which end with the process however that ends: of the
    /// directory, and of the log's if that is elsewhere.
    locks: Vec<fs::File>,
}

impl Drop for DataDir {
    /// Gives the locks back by word. Closing the files is not enough: a child of this
    /// process that was forked and has not yet called `exec` holds copies of them
    /// for a moment, and with them the locks (flock(2)).
    fn drop(&mut self) {
        for lock in &self.locks {
            // Closing is next, and says nothing about its failure either.
            let _closing = lock.unlock();
        }
    }
}

impl DataDir {
    /// Opens a data directory, making it if there is none.
    ///
    /// The format is looked at before anything is touched.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        Self::open_with_log(path, None)
    }

    /// Opens a data directory whose log may be in a directory of its own.
    pub fn open_with_log(path: &Path, wal: Option<&Path>) -> Result<Self, DiskError> {
        check_format(path)?;
        let disk = RealDisk;
        disk.create_dir(path)
            .map_err(DiskError::io("make directory", path))?;
        let mut locks = vec![take_lock(&path.join(LOCK_FILE))?];
        // Another process may have made the directory before we held its lock.
        let format = check_format(path)?;
        let home = RowsHome::real(path);
        if format >= Some(FORMAT_WITH_POINTER) && home.pointer()?.is_none() {
            return Err(DiskError::NotOurs {
                dir: path.to_owned(),
                reason: "its ROWS file is missing".to_owned(),
            });
        }
        let rows = home.enter()?;
        if format != Some(FORMAT) {
            write_version(path)?;
        }
        let wal = wal.map_or_else(|| path.join("wal"), Path::to_owned);
        for part in [&wal, &home.path(&rows)] {
            disk.create_dir(part)
                .map_err(DiskError::io("make directory", part))?;
        }
        if !wal.starts_with(path) {
            locks.push(take_lock(&wal.join(LOCK_FILE))?);
        }
        disk.sync_dir(path)
            .map_err(DiskError::io("sync directory", path))?;
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            disk.sync_dir(parent)
                .map_err(DiskError::io("sync directory", parent))?;
        }
        Ok(Self {
            path: path.to_owned(),
            wal,
            rows,
            locks,
        })
    }

    /// Returns the directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where the log lives.
    pub fn wal(&self) -> PathBuf {
        self.wal.clone()
    }

    /// Returns where the rows live that counted when the directory was opened.
    pub fn rows(&self) -> PathBuf {
        self.home().path(&self.rows)
    }

    /// Returns the way to let other rows count.
    pub fn home(&self) -> RowsHome {
        RowsHome::real(&self.path)
    }
}

/// Says whether a store was ever made in a directory.
pub fn in_use(path: &Path) -> bool {
    path.join(VERSION_FILE).exists()
}

/// Returns the bytes of the files of the rows in a data directory. A file that goes
/// away meanwhile, or cannot be looked at, counts as nothing.
pub fn rows_on_disk(data_dir: &Path) -> u64 {
    let home = RowsHome::real(data_dir);
    match home.pointer() {
        Ok(Some(rows)) => bytes_under(&home.path(&rows)),
        _ => 0,
    }
}

fn bytes_under(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let sizes = entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_under(&entry.path()),
            Ok(found) => found.len(),
            Err(_gone) => 0,
        });
    sizes.sum()
}

/// Returns the format of a directory, none if it is not in use yet.
fn check_format(path: &Path) -> Result<Option<u32>, DiskError> {
    let file = path.join(VERSION_FILE);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_unused(path).map(|()| None);
        }
        Err(error) => return Err(DiskError::io("read", &file)(error)),
    };
    let not_ours = |reason: String| DiskError::NotOurs {
        dir: path.to_owned(),
        reason,
    };
    let found = match text.trim().split_once(' ') {
        Some((FORMAT_NAME, number)) => number.parse::<u32>(),
        _ => {
            return Err(not_ours(format!(
                "its {VERSION_FILE} file says {:?}",
                text.trim()
            )));
        }
    };
    let found = found.map_err(|error| not_ours(format!("its {VERSION_FILE} file: {error}")))?;
    if found == 0 {
        return Err(not_ours(format!("its {VERSION_FILE} file says version 0")));
    }
    if found > FORMAT {
        return Err(DiskError::NewerFormat {
            dir: path.to_owned(),
            found,
            known: FORMAT,
        });
    }
    Ok(Some(found))
}

/// Refuses a directory without a version that already holds a store: etcd's
/// (`member`), or ours with its version lost.
fn check_unused(path: &Path) -> Result<(), DiskError> {
    for name in ["member", "wal", "db"] {
        if path.join(name).exists() {
            let reason = format!("it has {name:?} but no {VERSION_FILE} file");
            return Err(DiskError::NotOurs {
                dir: path.to_owned(),
                reason,
            });
        }
    }
    Ok(())
}

/// Fails if another process uses a data directory, or one of a newer format made
/// it; changes nothing. Only [`DataDir::open`] keeps it so.
pub fn check_usable(path: &Path) -> Result<(), DiskError> {
    check_format(path)?;
    let lock = path.join(LOCK_FILE);
    let Ok(file) = fs::File::open(&lock) else {
        // No lock to hold; what else is wrong with it, opening it says.
        return Ok(());
    };
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => Err(DiskError::Locked { lock }),
        _ => Ok(()),
    }
}

fn take_lock(path: &Path) -> Result<fs::File, DiskError> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(path).map_err(DiskError::io("open", path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Err(DiskError::Locked {
                lock: path.to_owned(),
            });
        }
        Err(fs::TryLockError::Error(error)) => return Err(DiskError::io("lock", path)(error)),
    }
    // The number is for people who find the lock; nothing depends on it.
    let note = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    note.map_err(DiskError::io("write", path))?;
    Ok(file)
}

fn write_version(path: &Path) -> Result<(), DiskError> {
    let temporary = path.join("VERSION.tmp");
    let file = path.join(VERSION_FILE);
    let write = || -> io::Result<()> {
        let mut out = fs::File::create(&temporary)?;
        writeln!(out, "{FORMAT_NAME} {FORMAT}")?;
        out.sync_all()?;
        fs::rename(&temporary, &file)?;
        RealDisk.sync_dir(path)
    };
    write().map_err(DiskError::io("write", &file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Base;

    #[test]
    fn a_second_user_is_told_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let held = DataDir::open(&path).unwrap();
        let error = DataDir::open(&path).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(path.join("LOCK").to_str().unwrap()),
            "{error}"
        );
        drop(held);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_newer_format_is_refused_and_nothing_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("VERSION"), "keelson-store 7\n").unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("version 7") && error.contains(&format!("knows {FORMAT}")),
            "{error}"
        );
        let names = RealDisk.list(dir.path()).unwrap();
        assert_eq!(names, ["VERSION"]);
    }

    #[test]
    fn an_older_format_is_taken_over_with_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("VERSION"), "keelson-store 1\n").unwrap();
        fs::create_dir(dir.path().join("db")).unwrap();
        fs::write(dir.path().join("db/conf"), "rows").unwrap();
        let opened = DataDir::open(dir.path()).unwrap();
        assert_eq!(opened.rows(), dir.path().join("db"));
        assert_eq!(fs::read(dir.path().join("db/conf")).unwrap(), b"rows");
        let version = fs::read_to_string(dir.path().join("VERSION")).unwrap();
        assert_eq!(version, format!("keelson-store {FORMAT}\n"));
    }

    #[test]
    fn other_rows_take_over_and_the_rest_is_removed_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let opened = DataDir::open(dir.path()).unwrap();
        let (first, given_up) = (opened.rows(), opened.home().fresh().unwrap());
        let new = opened.home().fresh().unwrap();
        assert_ne!(new, given_up);
        fs::write(new.join("conf"), "rows").unwrap();
        opened
            .home()
            .adopt(&new, Base { index: 7, term: 2 })
            .unwrap();
        assert_eq!(rows_on_disk(dir.path()), 4);
        drop(opened);
        let opened = DataDir::open(dir.path()).unwrap();
        assert_eq!(opened.rows(), new);
        assert!(!first.exists() && !given_up.exists());
        assert!(
            opened.home().fresh().unwrap() > new,
            "no name is used twice"
        );
    }

    #[test]
    fn a_bit_flipped_in_version_or_pointer_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path()).unwrap());
        for name in ["ROWS", "VERSION"] {
            let path = dir.path().join(name);
            let whole = fs::read(&path).unwrap();
            // All but the last newline of VERSION, which says nothing.
            for bit in 0..(whole.len() - usize::from(name == "VERSION")) * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                fs::write(&path, &bytes).unwrap();
                let error = DataDir::open(dir.path()).unwrap_err().to_string();
                let named = error.contains(name) || error.contains("format version");
                assert!(named, "bit {bit} of {name}: {error}");
            }
            fs::write(&path, whole).unwrap();
        }
        fs::remove_file(dir.path().join("ROWS")).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("ROWS file is missing"), "{error}");
    }

    #[test]
    fn somebody_elses_directory_is_refused_and_nothing_touched() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("member")).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("member"), "{error}");
        assert_eq!(RealDisk.list(dir.path()).unwrap(), ["member"]);
        fs::write(dir.path().join("VERSION"), "postgres 17").unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("postgres 17"), "{error}");
    }
}
