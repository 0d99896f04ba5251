//! Why the data directory cannot be used.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Says why the data directory, or a file in it, cannot be used.
#[derive(Debug, Error)]
pub enum DiskError {
    /// The system refused something.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system is full.
    #[error(
        "cannot {action} {path}: no space left on its file system ({source}); free some there, or \
         move the data directory to a larger one"
    )]
    Full {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what was written to it.
    #[error("{file} is corrupt at byte {offset}: {reason}; refusing to start with damaged data")]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A newer program wrote the directory.
    #[error(
        "data directory {dir} has format version {found}, this program knows {known}; nothing was touched"
    )]
    NewerFormat {
        /// The directory.
        dir: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The directory holds something else.
    #[error("{dir} is not a data directory of this store: {reason}; nothing was touched")]
    NotOurs {
        /// The directory.
        dir: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Another process uses the directory.
    #[error("data directory is in use by another process: {lock} is locked")]
    Locked {
        /// The lock file.
        lock: PathBuf,
    },
    /// The directory belongs to another member or cluster.
    #[error(
        "{dir} belongs to member {found_member:x} of cluster {found_cluster:x}, not to member {member:x} of cluster {cluster:x}"
    )]
    OtherMember {
        /// The log's directory.
        dir: PathBuf,
        /// The member found.
        found_member: u64,
        /// Its cluster.
        found_cluster: u64,
        /// The member expected.
        member: u64,
        /// Its cluster.
        cluster: u64,
    },
    /// The log ends before the entry that the rows began with.
    #[error(
        "the log in {dir} ends at index {last}, but the rows in {rows} came after index {index} and it \
         went on from there: its end is lost"
    )]
    LogBehind {
        /// The log's directory.
        dir: PathBuf,
        /// Its last index.
        last: u64,
        /// The directory of the rows.
        rows: PathBuf,
        /// The index they came after.
        index: u64,
    },
    /// A sync failed; what was written since the last one may be gone.
    #[error("cannot sync {path}: {source}; the process must end")]
    Sync {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A sync failed before; nothing more may be written.
    #[error("the log is closed after a failed sync")]
    Closed,
    /// The engine of the rows refused something.
    #[error("rows in {path}: {reason}")]
    Rows {
        /// The engine's directory.
        path: PathBuf,
        /// What it said.
        reason: String,
    },
}

impl DiskError {
    /// Reports whether a file system was full: the member can come back once there
    /// is room, with everything that was acknowledged.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Makes a function that names action and path around a system error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full {
                action,
                path,
                source,
            },
            _ => Self::Io {
                action,
                path,
                source,
            },
        }
    }
}
