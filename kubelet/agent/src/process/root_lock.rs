//! One agent per root directory.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::error::AgentError;

/// The exclusive right to a root directory, until it is dropped.
#[derive(Debug)]
pub(crate) struct RootLock {
    file: File,
}

impl Drop for RootLock {
    /// Gives the lock back by word. Closing the file is not enough: a child that
    /// was forked and has not yet called `exec` holds a copy of it for a moment,
    /// and with it the lock (flock(2)).
    fn drop(&mut self) {
        let _closing_is_next = flock(&self.file, FlockOperation::Unlock);
    }
}

impl RootLock {
    /// Makes the directory if needed and takes the lock, or says who has it.
    pub(crate) fn take(root: &Path) -> Result<Self, AgentError> {
        fs::create_dir_all(root).map_err(AgentError::file(root))?;
        let lock = root.join("kubelet.lock");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&lock)
            .map_err(AgentError::file(&lock))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(RootLock { file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(AgentError::RootInUse {
                root: root.to_owned(),
                lock,
            }),
            Err(error) => Err(AgentError::File {
                path: lock,
                source: error.into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_file_does_not_keep_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let lock = RootLock::take(root.path()).unwrap();
        let copy = lock.file.try_clone().unwrap();
        assert!(matches!(
            RootLock::take(root.path()),
            Err(AgentError::RootInUse { .. })
        ));
        drop(lock);
        RootLock::take(root.path()).unwrap();
        drop(copy);
    }
}
