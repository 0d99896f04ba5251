//! Files and folders in memory, each twice: as processes see it, and as it would be
//! found after a power cut. Pure: what decides over chance is passed in.
//!
//! What a sync makes durable follows ext4 with ordered data: the bytes and the size
//! of the file that is synced, and every change of names before it, since these
//! share one journal. A stricter reading of POSIX is there too ([`Names`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use rand::Rng;
use rustix::io::Errno;

/// Number of the folder that holds everything.
pub(super) const ROOT: u64 = 1;
/// How much is kept or lost as one.
pub(super) const PAGE_BYTES: usize = 4096;
/// What a disk writes as one.
const SECTOR_BYTES: usize = 512;

type Page = Arc<[u8; PAGE_BYTES]>;

/// What makes the names in a folder durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Any sync of anything, as on ext4.
    WithAnySync,
    /// Only a sync of the folder, as POSIX has it.
    FoldersOnly,
}

/// What becomes of bytes that were written and not synced, when power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// All are gone.
    Lost,
    /// Of each sector chance decides, as when a disk was busy writing.
    Torn,
}

/// What is wrong with the disk at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ills {
    /// How many more syncs fail; what they were to save is silently clean then.
    pub(super) sync_errors: u64,
    /// Most bytes all files may take.
    pub(super) room: Option<u64>,
}

/// A file: its bytes by page; a page that is missing is zeros.
#[derive(Clone, Debug, Default)]
struct File {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

impl File {
    fn resize(&mut self, size: u64) {
        if size < self.size {
            let (whole, rest) = split(size);
            self.pages.split_off(&(whole + u64::from(rest > 0)));
            if let Some(page) = self.pages.get_mut(&whole)
                && rest > 0
            {
                Arc::make_mut(page)[rest..].fill(0);
            }
        }
        self.size = size;
    }
}

#[derive(Clone, Debug)]
enum Body {
    File(File),
    Folder(BTreeMap<OsString, u64>),
}

#[derive(Debug)]
struct Node {
    live: Body,
    kept: Body,
    /// Pages of the file that were written since the last sync.
    dirty: BTreeSet<u64>,
    /// Whether its size differs, or its names.
    changed: bool,
    mode: u16,
    /// How many names it has, durable ones, and lookups of the kernel.
    links: u32,
    kept_links: u32,
    lookups: u64,
}

/// What can be asked of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) number: u64,
    pub(super) size: u64,
    pub(super) taken: u64,
    pub(super) folder: bool,
    pub(super) mode: u16,
    pub(super) links: u32,
}

/// What happened to this disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Syncs that did what they should.
    pub syncs: u64,
    /// Syncs that failed because they were told to.
    pub failed_syncs: u64,
    /// Writes that found no room.
    pub no_room: u64,
    /// Pages with unsynced bytes that power cuts took away, or tore.
    pub lost_pages: u64,
    /// Names that power cuts took away or brought back.
    pub lost_names: u64,
}

/// The whole disk.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    names: Names,
    taken_pages: u64,
    pub(super) ills: Ills,
    pub(super) counts: Counts,
}

type Answer<T> = Result<T, Errno>;

fn split(offset: u64) -> (u64, usize) {
    let page = PAGE_BYTES as u64;
    (offset / page, (offset % page) as usize)
}

impl Tree {
    pub(super) fn new(names: Names) -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            next: ROOT,
            names,
            taken_pages: 0,
            ills: Ills::default(),
            counts: Counts::default(),
        };
        let root = tree.add(Body::Folder(BTreeMap::new()), 0o755);
        if let Some(root) = tree.nodes.get_mut(&root) {
            (root.links, root.kept_links) = (1, 1);
        }
        tree
    }

    fn add(&mut self, live: Body, mode: u16) -> u64 {
        let number = self.next;
        self.next += 1;
        let kept = match live {
            Body::File(_) => Body::File(File::default()),
            Body::Folder(_) => Body::Folder(BTreeMap::new()),
        };
        let node = Node {
            live,
            kept,
            dirty: BTreeSet::new(),
            changed: false,
            mode,
            links: 0,
            kept_links: 0,
            lookups: 0,
        };
        self.nodes.insert(number, node);
        number
    }

    fn node(&mut self, number: u64) -> Answer<&mut Node> {
        self.nodes.get_mut(&number).ok_or(Errno::NOENT)
    }

    fn file(&mut self, number: u64) -> Answer<&mut File> {
        match &mut self.node(number)?.live {
            Body::File(file) => Ok(file),
            Body::Folder(_) => Err(Errno::ISDIR),
        }
    }

    fn folder(&mut self, number: u64) -> Answer<&mut BTreeMap<OsString, u64>> {
        match &mut self.node(number)?.live {
            Body::Folder(names) => Ok(names),
            Body::File(_) => Err(Errno::NOTDIR),
        }
    }

    pub(super) fn stat(&mut self, number: u64) -> Answer<Stat> {
        let node = self.node(number)?;
        let (size, taken, folder) = match &node.live {
            Body::File(file) => (file.size, (file.pages.len() * PAGE_BYTES) as u64, false),
            Body::Folder(names) => (names.len() as u64, 0, true),
        };
        Ok(Stat {
            number,
            size,
            taken,
            folder,
            mode: node.mode,
            links: node.links,
        })
    }

    /// Finds a name; the kernel remembers it until it forgets.
    pub(super) fn look_up(&mut self, folder: u64, name: &OsStr) -> Answer<Stat> {
        let number = *self.folder(folder)?.get(name).ok_or(Errno::NOENT)?;
        self.node(number)?.lookups += 1;
        self.stat(number)
    }

    pub(super) fn forget(&mut self, number: u64, times: u64) {
        if let Ok(node) = self.node(number) {
            node.lookups = node.lookups.saturating_sub(times);
        }
        self.sweep(number);
    }

    /// Makes a file or a folder.
    pub(super) fn make(
        &mut self,
        folder: u64,
        name: &OsStr,
        mode: u16,
        is_folder: bool,
    ) -> Answer<Stat> {
        if self.folder(folder)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let body = match is_folder {
            true => Body::Folder(BTreeMap::new()),
            false => Body::File(File::default()),
        };
        let number = self.add(body, mode);
        self.link(folder, name, number)?;
        self.node(number)?.lookups += 1;
        self.stat(number)
    }

    fn link(&mut self, folder: u64, name: &OsStr, number: u64) -> Answer<()> {
        self.folder(folder)?.insert(name.to_owned(), number);
        self.node(folder)?.changed = true;
        self.node(number)?.links += 1;
        Ok(())
    }

    fn unlink(&mut self, folder: u64, name: &OsStr) -> Answer<u64> {
        let number = self.folder(folder)?.remove(name).ok_or(Errno::NOENT)?;
        self.node(folder)?.changed = true;
        let node = self.node(number)?;
        node.links = node.links.saturating_sub(1);
        Ok(number)
    }

    /// Takes a name away; a folder must be empty.
    pub(super) fn remove(&mut self, folder: u64, name: &OsStr, is_folder: bool) -> Answer<()> {
        let number = *self.folder(folder)?.get(name).ok_or(Errno::NOENT)?;
        match (&self.node(number)?.live, is_folder) {
            (Body::Folder(names), true) if !names.is_empty() => return Err(Errno::NOTEMPTY),
            (Body::Folder(_), false) => return Err(Errno::ISDIR),
            (Body::File(_), true) => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.unlink(folder, name)?;
        self.sweep(number);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        (from, name): (u64, &OsStr),
        (to, new): (u64, &OsStr),
    ) -> Answer<()> {
        let number = *self.folder(from)?.get(name).ok_or(Errno::NOENT)?;
        let there = self.folder(to)?.get(new).copied();
        if there == Some(number) {
            return Ok(());
        }
        if let Some(there) = there {
            let is_folder = matches!(self.node(there)?.live, Body::Folder(_));
            self.remove(to, new, is_folder)?;
        }
        self.unlink(from, name)?;
        self.link(to, new, number)
    }

    /// Lists a folder by number.
    pub(super) fn list(&mut self, folder: u64) -> Answer<Vec<(u64, OsString, bool)>> {
        let names = self.folder(folder)?.clone();
        let mut listed: Vec<_> = names
            .into_iter()
            .map(|(name, number)| {
                let node = self.nodes.get(&number);
                let is_folder = node.is_some_and(|n| matches!(n.live, Body::Folder(_)));
                (number, name, is_folder)
            })
            .collect();
        listed.sort();
        Ok(listed)
    }

    pub(super) fn chmod(&mut self, number: u64, mode: u16) -> Answer<()> {
        self.node(number)?.mode = mode;
        Ok(())
    }

    pub(super) fn resize(&mut self, number: u64, size: u64) -> Answer<()> {
        let file = self.file(number)?;
        let pages = file.pages.len();
        let old = file.size;
        file.resize(size);
        let freed = (pages - file.pages.len()) as u64;
        self.taken_pages -= freed;
        let node = self.node(number)?;
        node.changed = true;
        // What was cut off comes back with a power cut unless this is synced.
        if size < old {
            let (first, _) = split(size);
            let last = split(old).0;
            node.dirty.extend(first..=last);
        }
        Ok(())
    }

    pub(super) fn read(&mut self, number: u64, offset: u64, length: usize) -> Answer<Vec<u8>> {
        let file = self.file(number)?;
        let end = file.size.min(offset.saturating_add(length as u64));
        let mut read = vec![0; end.saturating_sub(offset) as usize];
        let mut done = 0;
        while done < read.len() {
            let (page, within) = split(offset + done as u64);
            let part = (PAGE_BYTES - within).min(read.len() - done);
            if let Some(page) = file.pages.get(&page) {
                read[done..done + part].copy_from_slice(&page[within..within + part]);
            }
            done += part;
        }
        Ok(read)
    }

    /// Writes all of it, or nothing if there is no room.
    pub(super) fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) -> Answer<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        let (first, last) = (split(offset).0, split(end - 1).0);
        let file = self.file(number)?;
        let there = file.pages.range(first..=last).count() as u64;
        let new = last - first + 1 - there;
        let taken = (self.taken_pages + new) * PAGE_BYTES as u64;
        if new > 0 && self.ills.room.is_some_and(|room| taken > room) {
            self.counts.no_room += 1;
            return Err(Errno::NOSPC);
        }
        self.taken_pages += new;
        let file = self.file(number)?;
        let mut done = 0;
        while done < bytes.len() {
            let (page, within) = split(offset + done as u64);
            let part = (PAGE_BYTES - within).min(bytes.len() - done);
            let page = file.pages.entry(page);
            let page = page.or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + part].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
        file.size = file.size.max(end);
        let node = self.node(number)?;
        node.dirty.extend(first..=last);
        node.changed = true;
        Ok(())
    }

    /// Tells how many bytes files take.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_pages * PAGE_BYTES as u64
    }

    /// Makes a file durable, or a folder's names.
    pub(super) fn sync(&mut self, number: u64) -> Answer<()> {
        if self.ills.sync_errors > 0 {
            self.ills.sync_errors -= 1;
            self.counts.failed_syncs += 1;
            // As Linux does since 4.13: said once, and the pages are clean from then
            // on, though they are on no disk.
            let node = self.node(number)?;
            node.dirty.clear();
            return Err(Errno::IO);
        }
        self.counts.syncs += 1;
        let node = self.node(number)?;
        if let (Body::File(live), Body::File(kept)) = (&node.live, &mut node.kept) {
            for page in std::mem::take(&mut node.dirty) {
                match live.pages.get(&page) {
                    Some(bytes) => kept.pages.insert(page, bytes.clone()),
                    None => kept.pages.remove(&page),
                };
            }
            kept.size = live.size;
            node.changed = false;
        }
        match self.names {
            Names::FoldersOnly => self.keep_names(number),
            Names::WithAnySync => {
                let changed = self.nodes.iter();
                let changed = changed.filter(|(_, n)| n.changed).map(|(i, _)| *i);
                for folder in changed.collect::<Vec<_>>() {
                    self.keep_names(folder);
                }
            }
        }
        Ok(())
    }

    fn keep_names(&mut self, folder: u64) {
        let Some(node) = self.nodes.get_mut(&folder) else {
            return;
        };
        let (Body::Folder(live), Body::Folder(kept)) = (&node.live, &mut node.kept) else {
            return;
        };
        node.changed = false;
        let gone = std::mem::replace(kept, live.clone());
        let come: Vec<u64> = kept.values().copied().collect();
        for number in come {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.kept_links += 1;
            }
        }
        for number in gone.into_values() {
            if let Some(node) = self.nodes.get_mut(&number) {
                node.kept_links = node.kept_links.saturating_sub(1);
            }
            self.sweep(number);
        }
    }

    /// Lets go of what has no name, now or after a power cut, and is not open.
    fn sweep(&mut self, number: u64) {
        let Some(node) = self.nodes.get(&number) else {
            return;
        };
        if (node.links, node.kept_links, node.lookups) != (0, 0, 0) {
            return;
        }
        if let Some(node) = self.nodes.remove(&number)
            && let Body::File(file) = node.live
        {
            self.taken_pages -= file.pages.len() as u64;
        }
    }

    /// Leaves what a disk would have when power comes back. Nothing is open then.
    pub(super) fn cut_power(&mut self, unsynced: Unsynced, rng: &mut impl Rng) {
        for node in self.nodes.values_mut() {
            node.lookups = 0;
            match (&mut node.live, &node.kept) {
                (Body::Folder(live), Body::Folder(kept)) => {
                    let differ =
                        |(name, number): &(&OsString, &u64)| kept.get(*name) != Some(number);
                    let missing = kept.keys().filter(|name| !live.contains_key(*name)).count();
                    let lost = live.iter().filter(differ).count() + missing;
                    self.counts.lost_names += lost as u64;
                    *live = kept.clone();
                }
                (Body::File(live), Body::File(kept)) => {
                    self.counts.lost_pages += node.dirty.len() as u64;
                    *live = match unsynced {
                        Unsynced::Lost => kept.clone(),
                        Unsynced::Torn => tear(live, kept, &node.dirty, rng),
                    };
                    node.kept = Body::File(live.clone());
                }
                _ => {}
            }
            node.dirty.clear();
            node.changed = false;
            node.links = node.kept_links;
        }
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        for number in numbers {
            self.sweep(number);
        }
        let pages = self.nodes.values().map(|n| match &n.live {
            Body::File(file) => file.pages.len() as u64,
            Body::Folder(_) => 0,
        });
        self.taken_pages = pages.sum();
    }
}

/// Mixes what was written with what was there before, sector by sector.
fn tear(live: &File, kept: &File, dirty: &BTreeSet<u64>, rng: &mut impl Rng) -> File {
    let mut torn = kept.clone();
    for at in dirty {
        let Some(new) = live.pages.get(at) else {
            continue;
        };
        let mut page = kept.pages.get(at).map_or([0; PAGE_BYTES], |page| **page);
        let mut written = false;
        for sector in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
            if rng.random_bool(0.5) {
                written = true;
                page[sector..sector + SECTOR_BYTES]
                    .copy_from_slice(&new[sector..sector + SECTOR_BYTES]);
            }
        }
        if written {
            torn.pages.insert(*at, Arc::new(page));
        }
    }
    // The size is of the journal: there or not.
    if rng.random_bool(0.5) {
        torn.size = live.size;
    }
    let size = torn.size;
    torn.resize(size.max(kept.size.min(size)));
    let last = split(size.max(1) - 1).0;
    torn.pages.split_off(&(last + 1));
    torn
}
