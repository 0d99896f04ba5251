//! A small file system of its own for one member, and what fills it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::until;

/// Its size: room for two preallocated segments of etcd's log, and some data.
const BYTES: u64 = 192 << 20;
/// What is left free when it is filled: less than anything needs to grow by.
const LEFT_BYTES: u64 = 64 << 10;

/// A mounted file system; unmounted when dropped.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one, or says why it cannot be and returns `None`.
    pub(crate) fn mount() -> Option<Self> {
        let disk = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        match disk.set_up() {
            Ok(()) => Some(disk),
            Err(why) => {
                eprintln!("cannot run: no file system can be mounted here ({why})");
                None
            }
        }
    }

    fn set_up(&self) -> Result<(), String> {
        let image = self.folder.path().join("image");
        let mount = self.path();
        fs::create_dir(&mount).unwrap();
        File::create(&image).and_then(|f| f.set_len(BYTES)).unwrap();
        // No blocks are held back for root, who runs this.
        run(
            "mkfs.ext4",
            &["-q", "-F", "-m", "0", "-O", "^has_journal"],
            &[&image],
        )?;
        run("mount", &["-o", "loop"], &[&image, &mount])
    }

    /// Returns where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&self) {
        self.fill_but(LEFT_BYTES);
    }

    /// Takes all the room but this much.
    pub(crate) fn fill_but(&self, left: u64) {
        let file = File::create(self.ballast()).unwrap();
        let mut step = BYTES;
        let mut taken = 0;
        let free = || {
            let found = rustix::fs::statvfs(self.path()).unwrap();
            found.f_bavail * found.f_frsize
        };
        loop {
            step = step.min(free().saturating_sub(left));
            if step < LEFT_BYTES {
                break;
            }
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file, flags, taken, step) {
                Ok(()) => taken += step,
                Err(rustix::io::Errno::NOSPC) => step /= 2,
                Err(other) => panic!("fallocate: {other}"),
            }
        }
        eprintln!("filled with {} MiB of nothing", taken >> 20);
    }

    /// Lets nothing be written until what is returned is dropped: whoever writes waits.
    pub(crate) fn freeze(&self) -> Frozen {
        let mount = self.path();
        run("fsfreeze", &["--freeze"], &[&mount]).unwrap();
        Frozen(mount)
    }

    /// Gives it back.
    pub(crate) fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

/// A file system that nothing can be written to.
pub(crate) struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        run("fsfreeze", &["--unfreeze"], &[&self.0]).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if is_mounted(&self.path()) {
            // A member that was just killed may still hold a file open.
            until("the file system to be unmounted", || {
                run("umount", &[], &[&self.path()])
            });
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|l| l.split(' ').nth(1) == path.to_str())
}

fn run(program: &str, flags: &[&str], paths: &[&Path]) -> Result<(), String> {
    let out = Command::new(program).args(flags).args(paths).output();
    let out = out.map_err(|e| format!("{program}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!(
        "{program}: {}",
        String::from_utf8_lossy(&out.stderr).trim()
    ))
}
