//! A small file system of its own for one member, and what fills it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, run};
use crate::wait::until;

/// Its size: room for two preallocated segments of etcd's log, and some data.
const BYTES: u64 = 192 << 20;
/// What is left free when it is filled: less than anything needs to grow by.
const LEFT_BYTES: u64 = 64 << 10;

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one.
    pub fn mount() -> Result<Self> {
        let folder = tempfile::tempdir().map_err(Error::io("a folder"))?;
        let disk = Self { folder };
        disk.set_up()
            .map_err(|e| Error::Missing("a file system of its own", e.to_string()))?;
        Ok(disk)
    }

    fn set_up(&self) -> Result<()> {
        let image = self.folder.path().join("image");
        let mount = self.path();
        fs::create_dir(&mount).map_err(Error::io("a folder"))?;
        File::create(&image)
            .and_then(|f| f.set_len(BYTES))
            .map_err(Error::io("an image"))?;
        // No blocks are held back for root, who runs this.
        let (image, mount) = (image.to_string_lossy(), mount.to_string_lossy());
        let flags = ["-q", "-F", "-m", "0", "-O", "^has_journal", &image];
        run("mkfs.ext4", &flags)?;
        run("mount", &["-o", "loop", &image, &mount]).map(drop)
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Takes all the room there is; returns how many bytes that was.
    pub fn fill(&self) -> Result<u64> {
        self.fill_but(LEFT_BYTES)
    }

    /// Takes all the room but this much.
    pub fn fill_but(&self, left: u64) -> Result<u64> {
        let file = File::create(self.ballast()).map_err(Error::io("the ballast"))?;
        let mut step = BYTES;
        let mut taken = 0;
        loop {
            let free = rustix::fs::statvfs(self.path());
            let free = free.map_err(|e| Error::io("statvfs")(e.into()))?;
            step = step.min((free.f_bavail * free.f_frsize).saturating_sub(left));
            if step < LEFT_BYTES {
                break;
            }
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file, flags, taken, step) {
                Ok(()) => taken += step,
                Err(rustix::io::Errno::NOSPC) => step /= 2,
                Err(other) => return Err(Error::io("fallocate")(other.into())),
            }
        }
        Ok(taken)
    }

    /// Lets nothing be written until what is returned is dropped: whoever writes waits.
    pub fn freeze(&self) -> Result<Frozen> {
        let mount = self.path();
        run("fsfreeze", &["--freeze", &mount.to_string_lossy()])?;
        Ok(Frozen(mount))
    }

    /// Gives it back.
    pub fn free(&self) -> Result<()> {
        fs::remove_file(self.ballast()).map_err(Error::io("the ballast"))
    }
}

/// A file system that nothing can be written to.
#[derive(Debug)]
pub struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        // Were it to stay frozen, whoever waits for it would say so.
        let _thawed = run("fsfreeze", &["--unfreeze", &self.0.to_string_lossy()]);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if is_mounted(&self.path()) {
            // A member that was just killed may still hold a file open. What never
            // can be unmounted is left to whoever looks after this machine.
            let mount = self.path();
            let _left_mounted = until("the file system to be unmounted", || {
                run("umount", &[&mount.to_string_lossy()]).map_err(|e| e.to_string())
            });
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|l| l.split(' ').nth(1) == path.to_str())
}
