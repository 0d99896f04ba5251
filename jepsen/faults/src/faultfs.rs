//! A file system that can lie, lose and run out: in memory, mounted with FUSE.
//!
//! A member whose data lies here can have its power cut: what it wrote and did not
//! sync is gone when it is started again. Its syncs can fail or take long, and there
//! can be no room. What a sync promises is in [`tree`], and tested there; the mount
//! only passes on what the kernel asks.

mod serve;
#[cfg(test)]
mod tests;
mod tree;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng;

pub use self::tree::{Counts, Names, Unsynced};

use self::serve::{Served, lock};
use self::tree::Tree;
use crate::error::{Error, Result};
use crate::wait::until;

/// What is left when a disk is full: less than anything needs to grow by.
const LEFT_BYTES: u64 = 16 << 10;

#[derive(Debug)]
struct Disk {
    tree: Mutex<Tree>,
    sync_delay: Mutex<Duration>,
}

/// A mounted file system; unmounted and gone when dropped.
#[derive(Debug)]
pub struct FaultFs {
    disk: Arc<Disk>,
    folder: tempfile::TempDir,
    session: Option<fuser::BackgroundSession>,
}

impl FaultFs {
    /// Mounts an empty one.
    pub fn mount(names: Names) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("faultfs-").tempdir();
        let mut fs = Self {
            disk: Arc::new(Disk {
                tree: Mutex::new(Tree::new(names)),
                sync_delay: Mutex::default(),
            }),
            folder: folder.map_err(Error::io("a folder"))?,
            session: None,
        };
        fs.attach()?;
        Ok(fs)
    }

    fn attach(&mut self) -> Result<()> {
        let mut config = fuser::Config::default();
        config.mount_options = vec![
            fuser::MountOption::FSName("faultfs".to_owned()),
            fuser::MountOption::NoAtime,
        ];
        let served = Served(self.disk.clone());
        let session = fuser::spawn_mount(served, self.folder.path(), &config);
        let session = session.map_err(|e| Error::Missing("FUSE", e.to_string()))?;
        self.session = Some(session);
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        let path = self.path().to_owned();
        until("the file system to be unmounted", || {
            // Only one that is not busy any more goes; what is still written then
            // arrives before it does.
            let taken = rustix::mount::unmount(&path, rustix::mount::UnmountFlags::empty());
            taken.map_err(|e| e.to_string())
        })?;
        if let Some(session) = self.session.take() {
            // It ends by itself, since there is nothing left to serve. Caught within a
            // read, it hears that the connection was aborted: by this.
            match session.join() {
                Err(error) if error.kind() != ErrorKind::ConnectionAborted => {
                    return Err(Error::io("a FUSE session")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a folder in it for data.
    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Takes away what was not synced. Nobody may have a file open.
    pub fn cut_power(&mut self, unsynced: Unsynced, rng: &mut impl Rng) -> Result<()> {
        // Unmounted meanwhile, so that the kernel remembers nothing of it.
        self.detach()?;
        lock(&self.disk.tree).cut_power(unsynced, rng);
        self.attach()
    }

    /// Lets so many syncs fail from now on.
    pub fn fail_syncs(&self, times: u64) {
        lock(&self.disk.tree).ills.sync_errors = times;
    }

    /// Leaves no room for more.
    pub fn fill(&self) {
        let mut tree = lock(&self.disk.tree);
        tree.ills.room = Some(tree.taken_bytes() + LEFT_BYTES);
    }

    /// Makes every sync take so much longer.
    pub fn slow(&self, by: Duration) {
        *lock(&self.disk.sync_delay) = by;
    }

    /// Ends what is wrong with it; what is lost stays lost.
    pub fn heal(&self) {
        lock(&self.disk.tree).ills = tree::Ills::default();
        self.slow(Duration::ZERO);
    }

    /// Returns what happened to it so far.
    pub fn counts(&self) -> Counts {
        lock(&self.disk.tree).counts
    }
}

impl Drop for FaultFs {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // A mount that cannot be taken away now is detached by the session's own
            // end; its folder stays then.
            let _left_behind = session.umount_and_join();
        }
    }
}
