//! Rows on a real disk: small ones in sled, large ones in a heap beside it.
//!
//! One tree, one atomic batch per write-back, an explicit flush before the log
//! may forget what a batch covers. sled 0.34.7 is pinned: its format is stable,
//! and over one tree it kept a consistent prefix in every kill test. What it does
//! badly, large rows, it is not asked to do: see `heap`.
//! Nothing of a request's path waits for it.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use mvcc::{
    WriteBack,
    backend::{Backend, BackendError, RowVisitor},
};

use super::{
    Defragmentation, Tidied,
    heap::{Heap, LARGE_BYTES, Place, Thrift},
};
use crate::error::DiskError;

/// sled's page cache. Only places and small rows are in its pages.
const CACHE_BYTES: u64 = 16 << 20;

/// How long an engine that was dropped may take to be gone, and how often that is
/// looked at. Beyond it opening fails.
const CLOSING_MAX: Duration = Duration::from_secs(2);
const CLOSING_PAUSE: Duration = Duration::from_millis(5);

/// Begins the engine's key of the place of a large row; mvcc has no such row. A
/// large row under its own key is of format 1 or 2, and moves when it is replaced.
const PLACE_PREFIX: u8 = b'>';

/// The engine's files, in the directory of the rows (sled 0.34.7: `config.rs`).
const PAGES: &str = "db";
const SETTINGS: &str = "conf";
/// Where the heap is, in the directory of the rows.
const HEAP_DIR: &str = "heap";

/// The rows of one member; clones share them. One thread writes.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    db: sled::Db,
    /// The file all of the engine's pages are in.
    pages: Arc<File>,
    heap: Arc<Heap>,
    path: PathBuf,
}

impl Kept {
    /// Opens the rows, making them if there are none.
    pub(super) fn open(path: &Path) -> Result<Self, DiskError> {
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            .mode(sled::Mode::LowSpace)
            .flush_every_ms(None);
        let db = open_when_free(&config).map_err(|error| failed(path, &error))?;
        let places = db.scan_prefix([PLACE_PREFIX]).map(|row| match row {
            Ok((key, place)) => Ok((Bytes::copy_from_slice(&key[1..]), place.to_vec())),
            Err(error) => Err(failed(path, &error)),
        });
        let heap = Arc::new(Heap::open(&path.join(HEAP_DIR), places)?);
        let pages = Arc::new(sync_engine(path)?);
        Ok(Self {
            db,
            pages,
            heap,
            path: path.to_owned(),
        })
    }

    /// Puts one batch into the tree, all of it or nothing. Reads see it at once;
    /// it is durable after [`super::Rows::flush`].
    pub(super) fn write(&self, batch: &WriteBack) -> Result<(), DiskError> {
        self.take_in(batch).inspect_err(|_failed| self.give_up())
    }

    fn take_in(&self, batch: &WriteBack) -> Result<(), DiskError> {
        let mut rows = sled::Batch::default();
        let mut moved = Vec::new();
        for (key, value) in &batch.rows {
            match value {
                Some(value) if value.len() >= LARGE_BYTES => {
                    let place = self.heap.append(value)?;
                    rows.insert(place_key(key), &place.encode());
                    rows.remove(key.as_ref());
                    moved.push((key.clone(), Some(place)));
                    continue;
                }
                Some(value) => rows.insert(key.as_ref(), value.as_ref()),
                None => rows.remove(key.as_ref()),
            }
            if self.heap.holds(key) {
                rows.remove(place_key(key));
                moved.push((key.clone(), None));
            }
        }
        self.accept(rows, batch.rows.len(), moved)
    }

    /// Makes every batch so far durable, and removes files it left empty.
    pub(super) fn flush(&self) -> Result<(), DiskError> {
        let empty = self.heap.empty();
        self.db
            .flush()
            .map_err(|error| failed(&self.path, &error))
            .and_then(|_bytes| {
                // For the engine itself `sync_file_range` is enough, which promises
                // neither the file's size nor that the disk wrote what it took.
                let synced = self.pages.sync_data();
                synced.map_err(DiskError::io("sync", &self.path.join(PAGES)))
            })
            .and_then(|()| self.heap.remove(&empty))
            .inspect_err(|_failed| self.give_up())
    }

    /// Keeps the engine from being closed after a write failed: it would flush
    /// first, and wait without end for the bytes that were never written
    /// (sled 0.34.7: Tree's drop, make_stable_inner). Its memory and its lock stay
    /// with the process, which has no use for it any more.
    fn give_up(&self) {
        std::mem::forget(self.db.clone());
    }

    /// Gives some space back that replaced rows took, if it is half of a file; it
    /// comes free with the next [`super::Rows::flush`]. Takes some tens of milliseconds.
    pub(super) fn tidy(&self) -> Result<Tidied, DiskError> {
        self.move_some(Thrift::Steady)
    }

    /// Begins to give back all space that the rows of now do not need.
    pub(super) fn defragment(&self) -> Result<Defragmentation, DiskError> {
        let below = self.heap.close()?;
        Ok(Defragmentation(Thrift::Strict { below }))
    }

    /// Gives some of it back, as [`super::Rows::tidy`] does.
    pub(super) fn defragment_some(&self, under_way: Defragmentation) -> Result<Tidied, DiskError> {
        self.move_some(under_way.0)
    }

    fn move_some(&self, thrift: Thrift) -> Result<Tidied, DiskError> {
        self.try_move(thrift).inspect_err(|_failed| self.give_up())
    }

    fn try_move(&self, thrift: Thrift) -> Result<Tidied, DiskError> {
        let (mut places, mut moved) = (sled::Batch::default(), Vec::new());
        for (key, row) in self.heap.to_move(thrift)? {
            let place = self.heap.append(&row)?;
            places.insert(place_key(&key), &place.encode());
            moved.push((key, Some(place)));
        }
        if moved.is_empty() {
            return Ok(Tidied::All);
        }
        let count = moved.len();
        self.accept(places, count, moved)?;
        Ok(Tidied::Some)
    }

    /// Hands a batch to the engine once all it points to is durable.
    fn accept(
        &self,
        rows: sled::Batch,
        count: usize,
        moved: Vec<(Bytes, Option<Place>)>,
    ) -> Result<(), DiskError> {
        self.heap.sync()?;
        // Readers look into the heap first, so no row is ever in neither.
        let (come, gone) = moved.into_iter().partition(|(_, place)| place.is_some());
        self.heap.settle(come);
        let accepted = self.db.apply_batch(rows);
        accepted.map_err(|error| failed(&self.path, &error))?;
        collect_garbage(count);
        self.heap.settle(gone);
        Ok(())
    }

    /// Returns the bytes the rows take on disk.
    pub(super) fn size_on_disk(&self) -> u64 {
        self.db.size_on_disk().unwrap_or(0) + self.heap.bytes()
    }
}

/// Frees what the engine replaced in a batch of so many rows.
///
/// It copies a page for each row and leaves the old one to crossbeam's epochs, which
/// take in a little garbage each time somebody enters one. Whoever writes batches as
/// fast as he can makes it faster: half a million leases held 1.9 GB, and 0.15 GB with
/// this. `crossbeam-epoch` is of the engine's version, so this is its own garbage.
fn collect_garbage(rows: usize) {
    // Eight bags of some sixty pieces at a time; a row leaves several pieces. An epoch
    // must end twice before what was left in it goes.
    const ROWS_AT_A_TIME: usize = 64;
    const EPOCHS: usize = 8;
    for _ in 0..rows / ROWS_AT_A_TIME + EPOCHS {
        crossbeam_epoch::pin().flush();
    }
}

fn place_key(key: &[u8]) -> Vec<u8> {
    let mut place = Vec::with_capacity(1 + key.len());
    place.push(PLACE_PREFIX);
    place.extend_from_slice(key);
    place
}

/// Makes the engine's files, and that they are there, durable: it writes its settings
/// and makes its files without a sync. Returns the one with its pages.
fn sync_engine(path: &Path) -> Result<File, DiskError> {
    let sync = |path: &Path| {
        let file = File::open(path).map_err(DiskError::io("open", path))?;
        file.sync_all().map_err(DiskError::io("sync", path))?;
        Ok(file)
    };
    sync(&path.join(SETTINGS))?;
    let pages = sync(&path.join(PAGES))?;
    sync(path)?;
    if let Some(parent) = path.parent() {
        sync(parent)?;
    }
    Ok(pages)
}

/// Opens the engine, waiting for an earlier one of this process to be gone: its
/// threads give its lock back a moment after it was dropped (sled 0.34.7). Nobody
/// else can hold it, for the data directory is ours.
fn open_when_free(config: &sled::Config) -> Result<sled::Db, sled::Error> {
    let until = Instant::now() + CLOSING_MAX;
    loop {
        match config.open() {
            Err(sled::Error::Io(error))
                if error.to_string().contains("could not acquire lock")
                    && Instant::now() < until =>
            {
                thread::sleep(CLOSING_PAUSE);
            }
            opened => return opened,
        }
    }
}

fn failed(path: &Path, error: &sled::Error) -> DiskError {
    if let sled::Error::Io(source) = error
        && source.kind() == io::ErrorKind::StorageFull
    {
        // The error is not ours to keep; its kind says all.
        return DiskError::io("write rows in", path)(source.kind().into());
    }
    DiskError::Rows {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

fn unreadable(error: &sled::Error) -> BackendError {
    BackendError::Io(error.to_string())
}

impl Backend for Kept {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        if let Some(row) = self.heap.get(key)? {
            return Ok(Some(row));
        }
        let row = self.db.get(key).map_err(|error| unreadable(&error))?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        let rows = if to.is_empty() {
            self.db.range(from..)
        } else {
            self.db.range(from..to)
        };
        // Rows of the engine and of the heap, each in order, told in order.
        let mut large = self.heap.first(from, to);
        for row in rows {
            let (key, value) = row.map_err(|error| unreadable(&error))?;
            if key.first() == Some(&PLACE_PREFIX) {
                continue;
            }
            while let Some(before) = large.take_if(|large| large.as_ref() < key.as_ref()) {
                large = self.visit_large(before, to, visit)?;
            }
            // One that is on its way into the heap, or out of it, counts once.
            if large.as_deref() != Some(&*key) {
                visit(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value))?;
            }
        }
        while let Some(last) = large {
            large = self.visit_large(last, to, visit)?;
        }
        Ok(())
    }
}

impl Kept {
    /// Visits a row of the heap; names the next one.
    fn visit_large(
        &self,
        key: Bytes,
        to: &[u8],
        visit: &mut RowVisitor<'_>,
    ) -> Result<Option<Bytes>, BackendError> {
        let mut after = key.to_vec();
        after.push(0);
        if let Some(row) = self.heap.get(&key)? {
            visit(key, row)?;
        }
        Ok(self.heap.first(&after, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(token: u64, rows: &[(&str, Option<&str>)]) -> WriteBack {
        let own = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        WriteBack {
            token,
            applied_index: token,
            applied_term: 1,
            revision: 1,
            rows: rows
                .iter()
                .map(|(key, value)| (own(key), value.map(own)))
                .collect(),
        }
    }

    #[test]
    fn rows_that_cannot_be_written_are_let_go_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Kept::open(dir.path()).unwrap();
        rows.write(&batch(1, &[("a", Some("1"))])).unwrap();
        // Where long values go, each in a file of its own.
        std::fs::remove_dir_all(dir.path().join("blobs")).unwrap();
        // The engine is not given any, so this one goes past the door.
        let mut long = sled::Batch::default();
        long.insert("b", vec![b'x'; 1 << 20]);
        let refused = rows
            .accept(long, 1, Vec::new())
            .inspect_err(|_failed| rows.give_up());
        assert!(refused.is_err(), "a file in no directory was written");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(rows);
            tell.send(()).unwrap();
        });
        let closed = told.recv_timeout(std::time::Duration::from_secs(20));
        assert!(closed.is_ok(), "the engine is still being closed");
    }

    #[test]
    fn batches_are_read_back_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Kept::open(dir.path()).unwrap();
        rows.write(&batch(
            1,
            &[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))],
        ))
        .unwrap();
        rows.write(&batch(2, &[("b", None), ("c", Some("4"))]))
            .unwrap();
        rows.flush().unwrap();
        drop(rows);
        let rows = Kept::open(dir.path()).unwrap();
        assert_eq!(rows.get(b"b").unwrap(), None);
        let mut seen = Vec::new();
        rows.scan(b"a", b"", &mut |key, value| {
            seen.push((key, value));
            Ok(())
        })
        .unwrap();
        assert_eq!(
            seen,
            [("a".into(), "1".into()), ("c".into(), Bytes::from("4"))]
        );
        seen.clear();
        rows.scan(b"a", b"c", &mut |key, value| {
            seen.push((key, value));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen.len(), 1);
        assert!(rows.size_on_disk() > 0);
    }

    fn large(fill: u8, len: usize) -> Bytes {
        vec![fill; len].into()
    }

    /// Writes one batch and makes it durable.
    fn put(rows: &Kept, changes: Vec<(&str, Option<Bytes>)>) {
        let own = |(key, row): (&str, Option<Bytes>)| (Bytes::from(key.to_owned()), row);
        let batch = WriteBack {
            token: 1,
            applied_index: 1,
            applied_term: 1,
            revision: 1,
            rows: changes.into_iter().map(own).collect(),
        };
        rows.write(&batch).unwrap();
        rows.flush().unwrap();
    }

    fn all(rows: &Kept) -> Vec<(Bytes, Bytes)> {
        let mut seen = Vec::new();
        rows.scan(b"", b"", &mut |key, row| {
            seen.push((key, row));
            Ok(())
        })
        .unwrap();
        seen
    }

    fn heap_files(dir: &Path) -> Vec<PathBuf> {
        let names = std::fs::read_dir(dir.join(HEAP_DIR)).unwrap();
        let mut paths: Vec<_> = names.map(|name| name.unwrap().path()).collect();
        paths.sort();
        paths
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
        /// Whatever grows, shrinks, goes, is moved or opened again: the rows are those
        /// of a map.
        #[test]
        fn the_rows_are_a_map(
            steps in proptest::collection::vec(
                (0..12_u8, 0..3_usize, proptest::prelude::any::<u8>(), 0..8_u8), 1..60),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut rows = Kept::open(dir.path()).unwrap();
            let mut model = std::collections::BTreeMap::new();
            for (key, size, fill, then) in steps {
                let key = format!("k{key:02}");
                let row = [None, Some(large(fill, 10)), Some(large(fill, 5_000))][size].clone();
                put(&rows, vec![(&key, row.clone())]);
                match row {
                    Some(row) => model.insert(key.into(), row),
                    None => model.remove(key.as_bytes()),
                };
                match then {
                    0 => {
                        drop(rows);
                        rows = Kept::open(dir.path()).unwrap();
                    }
                    1 => {
                        let order = rows.defragment().unwrap();
                        while rows.defragment_some(order).unwrap() == Tidied::Some {}
                        rows.flush().unwrap();
                    }
                    2 => while rows.tidy().unwrap() == Tidied::Some {},
                    _ => {}
                }
                let expected: Vec<_> = model.clone().into_iter().collect();
                proptest::prop_assert_eq!(all(&rows), expected);
            }
        }
    }

    #[test]
    fn space_comes_back_and_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Kept::open(dir.path()).unwrap();
        for nth in 0..64 {
            put(
                &rows,
                vec![(&format!("a{nth:02}"), Some(large(1, 100_000)))],
            );
        }
        // One of ten goes: too little to be tidied unasked.
        for nth in (0..64).step_by(10) {
            put(&rows, vec![(&format!("a{nth:02}"), None)]);
        }
        let order = rows.defragment().unwrap();
        let before = rows.heap.bytes();
        assert_eq!(rows.tidy().unwrap(), Tidied::All);
        let held = heap_files(dir.path());
        while rows.defragment_some(order).unwrap() == Tidied::Some {}
        rows.flush().unwrap();
        assert_eq!(rows.heap.bytes(), 57 * 100_000);
        assert!(rows.heap.bytes() < before);
        let left = heap_files(dir.path());
        assert!(held.iter().all(|old| !left.contains(old)), "{left:?}");
        assert_eq!(all(&rows).len(), 57);
        drop(rows);
        assert_eq!(all(&Kept::open(dir.path()).unwrap()).len(), 57);
    }

    #[test]
    fn a_large_row_of_an_older_format_is_read_and_moves() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Kept::open(dir.path()).unwrap();
        rows.db.insert("b1", vec![7; 2_000]).unwrap();
        assert_eq!(rows.get(b"b1").unwrap(), Some(large(7, 2_000)));
        put(&rows, vec![("b1", Some(large(8, 2_000)))]);
        assert_eq!(all(&rows), [("b1".into(), large(8, 2_000))]);
        put(&rows, vec![("b1", None)]);
        assert_eq!(all(&rows), []);
    }

    #[test]
    fn damage_names_the_file_and_the_byte() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Kept::open(dir.path()).unwrap();
        put(
            &rows,
            vec![("b1", Some(large(1, 2_000))), ("b2", Some(large(2, 2_000)))],
        );
        let [file] = &*heap_files(dir.path()) else {
            panic!("one segment");
        };
        let mut bytes = std::fs::read(file).unwrap();
        bytes[2_500] ^= 1;
        std::fs::write(file, &bytes).unwrap();
        assert_eq!(rows.get(b"b1").unwrap(), Some(large(1, 2_000)));
        let error = rows.get(b"b2").unwrap_err().to_string();
        let place = format!("{} at byte 2000", file.display());
        assert!(error.contains(&place), "{error}");
        // One that is too short is found before anything is read.
        drop(rows);
        std::fs::write(file, &bytes[..3_000]).unwrap();
        let error = Kept::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
    }

    #[test]
    fn what_a_crash_left_in_the_heap_goes() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Kept::open(dir.path()).unwrap();
        put(&rows, vec![("b1", Some(large(1, 2_000)))]);
        // Appended, and the engine never told.
        rows.heap.close().unwrap();
        rows.heap.append(&large(9, 9_000)).unwrap();
        drop(rows);
        let rows = Kept::open(dir.path()).unwrap();
        assert_eq!(rows.heap.bytes(), 2_000);
        assert_eq!(heap_files(dir.path()).len(), 1);
    }
}
