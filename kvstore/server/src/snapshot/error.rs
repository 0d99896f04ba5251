//! What can go wrong with a snapshot, each in one line for the person who asked.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Says why a snapshot could not be saved, read or restored.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// A flag does not make sense.
    #[error("{0}")]
    Flag(String),
    /// The directory to restore into is in use (etcdutl's words).
    #[error("data-dir {0:?} not empty or could not be read")]
    DataDirInUse(PathBuf),
    /// An earlier restore was interrupted, or another is under way.
    #[error("{0:?} is left from an interrupted restore, or one that runs; remove it first")]
    Unfinished(PathBuf),
    /// A file or directory could not be used.
    #[error("cannot {what} {path:?}: {source}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file ends without a hash (etcdutl's words, and why).
    #[error(
        "snapshot missing hash but --skip-hash-check=false; {0:?} is truncated, or was copied \
         from a data directory"
    )]
    NoHash(PathBuf),
    /// The hash is another's.
    #[error("expected sha256 {expected}, got {found}; {path:?} was changed or truncated")]
    Hash {
        /// The file.
        path: PathBuf,
        /// What the file says.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The file is no database, or damaged.
    #[error("snapshot {path:?}: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: bbolt::ReadError,
    },
    /// Something in the database is not what etcd would have there.
    #[error("snapshot {path:?}, bucket {bucket:?}: {reason}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The bucket.
        bucket: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The flags do not name a member, or it could not be written down.
    #[error(transparent)]
    Start(#[from] crate::StartError),
    /// The new data directory could not be written.
    #[error(transparent)]
    Disk(#[from] disk::DiskError),
    /// The member did not give a snapshot.
    #[error("{endpoint}: {reason}")]
    Member {
        /// Who was asked.
        endpoint: String,
        /// What it said.
        reason: String,
    },
    /// What the member sent is not whole.
    #[error("{endpoint}: the snapshot arrived damaged: expected sha256 {expected}, got {found}")]
    Arrived {
        /// Who was asked.
        endpoint: String,
        /// What the member says.
        expected: String,
        /// What came.
        found: String,
    },
}

impl SnapshotError {
    /// Adds what was to be done with which file.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}

/// Writes bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
