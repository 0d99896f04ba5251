//! A disk in memory that forgets, tears and fails as a real one may.
//!
//! A write is only in the page cache until its file is synced; a name is only in
//! the cache until its directory is synced; a batch of rows until they are flushed.
//! [`SimDisk::crash`] keeps what was synced and, of the rest, any subset of 512-byte
//! sectors, the first few changes of names, and the first few batches of rows: what
//! a file system and an engine that write in order may leave.
//!
//! [`SimDisk::cut_power`] ends whoever uses the disk before any of its operations:
//! it unwinds with a [`PowerCut`], which the simulator catches.

mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) use self::rows::SimRows;
use self::rows::Table;
use crate::{
    error::DiskError,
    file::{Disk, File},
    rows::Rows,
};

const SECTOR: usize = 512;

/// What unwinds through whoever uses a disk whose power is cut.
#[derive(Clone, Copy, Debug)]
pub struct PowerCut;

/// What a crash asks about: whether something that was not synced reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A sector of a file.
    Sector,
    /// The next change of a name; after one that did not, none does.
    Name,
    /// The next batch of rows; likewise.
    Batch,
}

#[derive(Debug, Default)]
struct Node {
    cached: Vec<u8>,
    durable: Vec<u8>,
    /// Where the two may differ.
    dirty: Option<Range<usize>>,
}

impl Node {
    fn of(bytes: Vec<u8>) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            durable: bytes.clone(),
            cached: bytes,
            dirty: None,
        }))
    }

    fn write(&mut self, bytes: &[u8], from: usize) {
        let to = from + bytes.len();
        if self.cached.len() < to {
            self.cached.resize(to, 0);
        }
        self.cached[from..to].copy_from_slice(bytes);
        self.dirty = Some(match self.dirty.take() {
            Some(dirty) => dirty.start.min(from)..dirty.end.max(to),
            None => from..to,
        });
    }

    fn sync(&mut self) {
        let Some(dirty) = self.dirty.take() else {
            return;
        };
        self.durable.resize(self.cached.len(), 0);
        self.durable[dirty.clone()].copy_from_slice(&self.cached[dirty]);
    }

    /// Returns what a crash leaves.
    fn survive(&self, keep: &mut impl FnMut(Keep) -> bool) -> Vec<u8> {
        let mut image = self.durable.clone();
        let Some(dirty) = self.dirty.clone() else {
            return image;
        };
        for sector in dirty.start / SECTOR..dirty.end.div_ceil(SECTOR) {
            let from = sector * SECTOR;
            let to = (from + SECTOR).min(self.cached.len());
            let cached = &self.cached[from..to];
            if image.get(from..to) != Some(cached) && keep(Keep::Sector) {
                if image.len() < to {
                    image.resize(to, 0);
                }
                image[from..to].copy_from_slice(cached);
            }
        }
        image
    }
}

type Names<T> = BTreeMap<PathBuf, Arc<Mutex<T>>>;

/// A change of a name that may not be on disk: what is there under it afterwards.
#[derive(Debug)]
struct Renamed {
    /// Old name and new of one step, which happens whole or not.
    now: Vec<(PathBuf, Option<Arc<Mutex<Node>>>)>,
}

#[derive(Debug, Default)]
struct State {
    names: Names<Node>,
    durable_names: Names<Node>,
    /// Changes of names since the directories were synced, oldest first.
    renamed: Vec<Renamed>,
    rows: Names<Table>,
    /// Rows that were removed, which a crash may bring back.
    removed_rows: Names<Table>,
    /// Counts down to a sync that fails.
    syncs_until_failure: Option<u64>,
    /// Counts down to an operation before which the power goes.
    until_cut: Option<u64>,
    /// Whether no file may grow.
    full: bool,
    syncs: u64,
    operations: u64,
}

impl State {
    fn rename(&mut self, now: Vec<(PathBuf, Option<Arc<Mutex<Node>>>)>) {
        for (path, node) in &now {
            match node {
                Some(node) => self.names.insert(path.clone(), Arc::clone(node)),
                None => self.names.remove(path),
            };
        }
        self.renamed.push(Renamed { now });
    }
}

/// A simulated disk; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The content of a simulated disk stays usable after a test panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimDisk {
    /// Makes an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the sync after the next `after` ones fail. As on Linux, the pages it
    /// should have written are then thrown away and later syncs succeed.
    pub fn fail_sync(&self, after: u64) {
        lock(&self.0).syncs_until_failure = Some(after);
    }

    /// Lets the power go before the operation after the next `after` ones: whoever
    /// asks for it unwinds with a [`PowerCut`].
    pub fn cut_power(&self, after: u64) {
        lock(&self.0).until_cut = Some(after);
    }

    /// Takes back what is to fail.
    pub fn mend(&self) {
        let mut state = lock(&self.0);
        state.syncs_until_failure = None;
        state.until_cut = None;
        state.full = false;
    }

    /// Fills the disk, or makes room again: a write that makes a file longer fails.
    pub fn set_full(&self, full: bool) {
        lock(&self.0).full = full;
    }

    /// Counts the syncs of files so far.
    pub fn syncs(&self) -> u64 {
        lock(&self.0).syncs
    }

    /// Counts the operations so far that a power cut could have come before.
    pub fn operations(&self) -> u64 {
        lock(&self.0).operations
    }

    /// Makes the disk a power failure leaves. `keep` is asked about everything that
    /// was not synced, whether it reached the disk.
    pub fn crash(&self, mut keep: impl FnMut(Keep) -> bool) -> Self {
        let state = lock(&self.0);
        let mut names = state.durable_names.clone();
        for Renamed { now } in &state.renamed {
            if !keep(Keep::Name) {
                break;
            }
            for (path, node) in now {
                match node {
                    Some(node) => names.insert(path.clone(), Arc::clone(node)),
                    None => names.remove(path),
                };
            }
        }
        let mut after = State::default();
        for (path, node) in &names {
            let node = Node::of(lock(node).survive(&mut keep));
            after.names.insert(path.clone(), Arc::clone(&node));
            after.durable_names.insert(path.clone(), node);
        }
        let removed = state.removed_rows.iter().filter(|_| !keep(Keep::Name));
        let tables: Vec<_> = removed.chain(&state.rows).collect();
        for (path, table) in tables {
            let table = lock(table).survive(&mut keep);
            after.rows.insert(path.clone(), Arc::new(Mutex::new(table)));
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// Copies the disk as it is in the cache: what SIGKILL leaves.
    pub fn fork(&self) -> Self {
        let state = lock(&self.0);
        let mut after = State::default();
        for (path, node) in &state.names {
            let node = Node::of(lock(node).cached.clone());
            after.names.insert(path.clone(), Arc::clone(&node));
            after.durable_names.insert(path.clone(), node);
        }
        for (path, table) in &state.rows {
            let table = lock(table).survive(&mut |_| true);
            after.rows.insert(path.clone(), Arc::new(Mutex::new(table)));
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// Changes the bytes of a file behind everybody's back.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(node) = lock(&self.0).names.get(path) {
            let mut node = lock(node);
            change(&mut node.cached);
            node.durable = node.cached.clone();
            node.dirty = None;
        }
    }

    /// Copies the bytes of a file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        lock(&self.0)
            .names
            .get(path)
            .map(|node| lock(node).cached.clone())
    }

    /// Lists all files.
    pub fn files(&self) -> Vec<PathBuf> {
        lock(&self.0).names.keys().cloned().collect()
    }

    /// Notes an operation that a crash may come before.
    fn operate(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.0);
        state.operations += 1;
        match &mut state.until_cut {
            Some(0) => {
                state.until_cut = None;
                drop(state);
                std::panic::resume_unwind(Box::new(PowerCut));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        state
    }

    /// Counts a sync; says whether it fails.
    fn sync_fails(&self) -> bool {
        let mut state = self.operate();
        state.syncs += 1;
        match &mut state.syncs_until_failure {
            Some(0) => {
                state.syncs_until_failure = None;
                return true;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        false
    }
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

fn failed() -> io::Error {
    io::Error::other("simulated sync failure")
}

impl Disk for SimDisk {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        let paths = state.names.keys().chain(state.rows.keys());
        let inside = paths.filter_map(|path| {
            // A directory is there because something is in it.
            let first = path.strip_prefix(dir).ok()?.components().next()?;
            Some(first.as_os_str().to_string_lossy().into_owned())
        });
        Ok(inside.collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let node = lock(&self.0).names.get(path).cloned().ok_or_else(missing)?;
        Ok(Box::new(SimFile {
            disk: self.clone(),
            node,
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let node = Arc::new(Mutex::new(Node::default()));
        self.operate()
            .rename(vec![(path.to_owned(), Some(Arc::clone(&node)))]);
        Ok(Box::new(SimFile {
            disk: self.clone(),
            node,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.operate();
        let node = state.names.get(from).cloned().ok_or_else(missing)?;
        state.rename(vec![(from.to_owned(), None), (to.to_owned(), Some(node))]);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.operate();
        if !state.names.contains_key(path) {
            return Err(missing());
        }
        state.rename(vec![(path.to_owned(), None)]);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        // A crash may bring it back, all of it.
        let mut state = self.operate();
        state.names.retain(|name, _| !name.starts_with(path));
        // Whoever still has the rows open goes on with them, as with removed files.
        let state = &mut *state;
        let removed = state.rows.extract_if(.., |name, _| name.starts_with(path));
        state.removed_rows.extend(removed);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.operate();
        let inside = |path: &Path| path.parent() == Some(dir);
        state.durable_names.retain(|path, _| !inside(path));
        let names: Vec<_> = state
            .names
            .iter()
            .filter(|(path, _)| inside(path))
            .map(|(path, node)| (path.clone(), Arc::clone(node)))
            .collect();
        state.durable_names.extend(names);
        for renamed in &mut state.renamed {
            renamed.now.retain(|(path, _)| !inside(path));
        }
        state.renamed.retain(|renamed| !renamed.now.is_empty());
        state.removed_rows.retain(|path, _| !inside(path));
        Ok(())
    }

    fn open_rows(&self, dir: &Path) -> Result<Rows, DiskError> {
        let mut state = lock(&self.0);
        let table = Arc::clone(state.rows.entry(dir.to_owned()).or_default());
        Ok(Rows::simulated(SimRows::new(self.clone(), table), dir))
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    node: Arc<Mutex<Node>>,
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.node).cached.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let node = lock(&self.node);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = node.cached.get(from..from + buffer.len());
        let bytes = bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let full = self.disk.operate().full;
        let mut node = lock(&self.node);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        if full && node.cached.len() < from + bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        node.write(bytes, from);
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let fails = self.disk.sync_fails();
        let mut node = lock(&self.node);
        if fails {
            node.cached = node.durable.clone();
            node.dirty = None;
            return Err(failed());
        }
        node.sync();
        Ok(())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
