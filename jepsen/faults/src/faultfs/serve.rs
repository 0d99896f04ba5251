//! What the kernel asks of a file system, answered from the tree.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::Disk;
use super::tree::{PAGE_BYTES, ROOT, Stat, Tree};

/// How long the kernel may remember what it was told: nobody else changes it.
const REMEMBER: Duration = Duration::from_secs(3600);
/// Where entries of a folder begin in its list, after itself and its parent.
const FIRST_ENTRY: u64 = 2;
/// What this disk says it holds.
const BLOCKS: u64 = 1 << 24;
/// `fallocate` that leaves the size alone (`FALLOC_FL_KEEP_SIZE`).
const KEEP_SIZE: i32 = 1;

pub(super) struct Served(pub(super) Arc<Disk>);

impl Served {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.0.tree)
    }

    fn sync(&self, number: INodeNo) -> Result<(), Errno> {
        // A slow disk keeps everybody waiting, not only who syncs.
        let slow = *lock(&self.0.sync_delay);
        if !slow.is_zero() {
            std::thread::sleep(slow);
        }
        self.tree().sync(number.0).map_err(errno)
    }
}

/// Whoever panicked with it left it whole: every change is one step.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn attr(stat: Stat) -> FileAttr {
    let then = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(stat.number),
        size: stat.size,
        blocks: stat.taken / 512,
        atime: then,
        mtime: then,
        ctime: then,
        crtime: then,
        kind: kind(stat.folder),
        perm: stat.mode,
        nlink: stat.links.max(1),
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: PAGE_BYTES as u32,
        flags: 0,
    }
}

fn kind(folder: bool) -> FileType {
    match folder {
        true => FileType::Directory,
        false => FileType::RegularFile,
    }
}

/// The bits of a mode that are kept.
fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

fn done(reply: ReplyEmpty, answer: Result<(), rustix::io::Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn entry(reply: ReplyEntry, answer: Result<Stat, rustix::io::Errno>) {
    match answer {
        Ok(stat) => reply.entry(&REMEMBER, &attr(stat), Generation(0)),
        Err(error) => reply.error(errno(error)),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.tree().look_up(parent.0, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.tree().forget(number.0, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree().stat(number.0) {
            Ok(stat) => reply.attr(&REMEMBER, &attr(stat)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.tree();
        let changed = mode
            .map_or(Ok(()), |mode| tree.chmod(number.0, permissions(mode)))
            .and_then(|()| size.map_or(Ok(()), |size| tree.resize(number.0, size)))
            .and_then(|()| tree.stat(number.0));
        match changed {
            Ok(stat) => reply.attr(&REMEMBER, &attr(stat)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.tree().make(parent.0, name, permissions(mode), true);
        entry(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.tree().remove(parent.0, name, false));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.tree().remove(parent.0, name, true));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.tree();
        if flags.contains(RenameFlags::RENAME_NOREPLACE)
            && tree.look_up(newparent.0, newname).is_ok()
        {
            return reply.error(Errno::EEXIST);
        }
        done(reply, tree.rename((parent.0, name), (newparent.0, newname)));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.tree().make(parent.0, name, permissions(mode), false) {
            Ok(stat) => reply.created(
                &REMEMBER,
                &attr(stat),
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.tree().read(number.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.tree().write(number.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.sync(number) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.sync(number) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = match self.tree().list(number.0) {
            Ok(listed) => listed,
            Err(error) => return reply.error(errno(error)),
        };
        for (at, name) in [(1, "."), (2, "..")] {
            if offset < at && reply.add(INodeNo(ROOT), at, FileType::Directory, name) {
                return reply.ok();
            }
        }
        // A place in the list is a number of a file, so that it stays what it is
        // while others are removed.
        for (number, name, folder) in listed {
            let at = number + FIRST_ENTRY;
            if offset < at && reply.add(INodeNo(number), at, kind(folder), name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let tree = self.tree();
        let taken = tree.taken_bytes() / PAGE_BYTES as u64;
        let blocks = tree.ills.room.map_or(BLOCKS, |r| r / PAGE_BYTES as u64);
        let free = blocks.saturating_sub(taken);
        let size = PAGE_BYTES as u32;
        reply.statfs(blocks, free, free, 1 << 20, 1 << 20, size, 255, size);
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.tree();
        let end = offset + length;
        if mode & !KEEP_SIZE != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        // Room is counted where it is written, but none is promised that is not there.
        if tree
            .ills
            .room
            .is_some_and(|room| tree.taken_bytes() + length > room)
        {
            tree.counts.no_room += 1;
            return reply.error(Errno::ENOSPC);
        }
        let grown = tree.stat(number.0).and_then(|stat| match mode {
            0 if stat.size < end => tree.resize(number.0, end),
            _ => Ok(()),
        });
        done(reply, grown);
    }
}
