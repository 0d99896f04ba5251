//! One agent per root directory.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::error::AgentError;

/// The exclusive right to a root directory, until it is dropped.
#[derive(Debug)]
pub(crate) struct RootLock {
    _file: File,
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
            Ok(()) => Ok(RootLock { _file: file }),
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
