//! A disk in memory that forgets, tears and fails as a real one may.
//!
//! A write is only in the page cache until its file is synced; a name is only in
//! the cache until its directory is synced. [`SimDisk::crash`] keeps what was
//! synced and, of the rest, any subset of 512-byte sectors.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::file::{Disk, File};

const SECTOR: usize = 512;

#[derive(Debug, Default)]
struct Node {
    cached: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, Arc<Mutex<Node>>>,
    durable_names: BTreeMap<PathBuf, Arc<Mutex<Node>>>,
    /// Counts down to a sync that fails.
    syncs_until_failure: Option<u64>,
    /// Whether no file may grow.
    full: bool,
    syncs: u64,
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

    /// Fills the disk, or makes room again: a write that makes a file longer fails.
    pub fn set_full(&self, full: bool) {
        lock(&self.0).full = full;
    }

    /// Counts the syncs of files so far.
    pub fn syncs(&self) -> u64 {
        lock(&self.0).syncs
    }

    /// Makes the disk a power failure leaves. `keep` is asked for every sector
    /// that was written but not synced, whether it reached the disk.
    pub fn crash(&self, mut keep: impl FnMut() -> bool) -> Self {
        let state = lock(&self.0);
        let mut after = State::default();
        for (path, node) in &state.durable_names {
            let node = lock(node);
            let mut image = node.durable.clone();
            let sectors = node.cached.len().max(image.len()).div_ceil(SECTOR);
            for sector in 0..sectors {
                let from = sector * SECTOR;
                let cached = node
                    .cached
                    .get(from..(from + SECTOR).min(node.cached.len()));
                let durable = image
                    .get(from..(from + SECTOR).min(image.len()))
                    .unwrap_or(&[]);
                let Some(cached) = cached else { continue };
                if cached != durable && keep() {
                    if image.len() < from + cached.len() {
                        image.resize(from + cached.len(), 0);
                    }
                    image[from..from + cached.len()].copy_from_slice(cached);
                }
            }
            let node = Arc::new(Mutex::new(Node {
                cached: image.clone(),
                durable: image,
            }));
            after.names.insert(path.clone(), Arc::clone(&node));
            after.durable_names.insert(path.clone(), node);
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// Copies the disk as it is in the cache: what SIGKILL leaves.
    pub fn fork(&self) -> Self {
        let state = lock(&self.0);
        let mut after = State::default();
        for (path, node) in &state.names {
            let bytes = lock(node).cached.clone();
            let node = Arc::new(Mutex::new(Node {
                cached: bytes.clone(),
                durable: bytes,
            }));
            after.names.insert(path.clone(), Arc::clone(&node));
            after.durable_names.insert(path.clone(), node);
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// Changes the bytes of a file behind everybody's back.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(node) = lock(&self.0).names.get(path) {
            let mut node = lock(node);
            change(&mut node.cached);
            node.durable = node.cached.clone();
        }
    }

    /// Copies the bytes of a file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        lock(&self.0)
            .names
            .get(path)
            .map(|node| lock(node).cached.clone())
    }
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Disk for SimDisk {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        let inside = state.names.keys().filter_map(|path| {
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
        lock(&self.0)
            .names
            .insert(path.to_owned(), Arc::clone(&node));
        Ok(Box::new(SimFile {
            disk: self.clone(),
            node,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        let node = state.names.remove(from).ok_or_else(missing)?;
        state.names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock(&self.0)
            .names
            .remove(path)
            .map(drop)
            .ok_or_else(missing)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        // A crash may bring it back, all of it.
        let mut state = lock(&self.0);
        state.names.retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        let inside = |path: &Path| path.parent() == Some(dir);
        state.durable_names.retain(|path, _| !inside(path));
        let names: Vec<_> = state
            .names
            .iter()
            .map(|(path, node)| (path.clone(), Arc::clone(node)))
            .collect();
        state
            .durable_names
            .extend(names.into_iter().filter(|(path, _)| inside(path)));
        Ok(())
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
        let full = lock(&self.disk.0).full;
        let mut node = lock(&self.node);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        if full && node.cached.len() < from + bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if node.cached.len() < from + bytes.len() {
            node.cached.resize(from + bytes.len(), 0);
        }
        node.cached[from..from + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let mut state = lock(&self.disk.0);
        let mut node = lock(&self.node);
        state.syncs += 1;
        match &mut state.syncs_until_failure {
            Some(0) => {
                state.syncs_until_failure = None;
                node.cached = node.durable.clone();
                return Err(io::Error::other("simulated sync failure"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        node.durable = node.cached.clone();
        Ok(())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
