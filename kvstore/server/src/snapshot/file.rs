//! A snapshot file: a database, and the SHA-256 of it at the end.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
    path::Path,
};

use bbolt::Db;
use sha2::{Digest as _, Sha256};

use super::{
    Progress,
    error::{SnapshotError, hex},
};

/// Bytes of the hash.
pub(super) const HASH_BYTES: u64 = 32;

/// Bytes hashed at a time.
const HASH_CHUNK: usize = 1 << 20;

/// Reports whether a file of some size ends with a hash: a database alone is
/// whole sectors (etcd: hasChecksum).
pub(super) fn has_hash(size: u64) -> bool {
    size % 512 == HASH_BYTES
}

/// Opens a file.
pub(super) fn open(path: &Path) -> Result<(File, u64), SnapshotError> {
    let file = File::open(path).map_err(SnapshotError::io("open", path))?;
    let size = file.metadata().map_err(SnapshotError::io("open", path))?;
    Ok((file, size.len()))
}

/// Opens the database in a file.
pub(super) fn database(path: &Path, file: File) -> Result<Db<File>, SnapshotError> {
    Db::open(file).map_err(|source| SnapshotError::Database {
        path: path.to_owned(),
        source,
    })
}

/// Compares the hash at the end of a file with what comes before it.
pub(super) fn check_hash(
    path: &Path,
    file: &mut File,
    size: u64,
    progress: &mut Progress<'_>,
) -> Result<(), SnapshotError> {
    if !has_hash(size) {
        return Err(SnapshotError::NoHash(path.to_owned()));
    }
    let read = || SnapshotError::io("read", path);
    let database = size - HASH_BYTES;
    file.rewind().map_err(read())?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; HASH_CHUNK];
    let mut done = 0;
    while done < database {
        let take = HASH_CHUNK.min(usize::try_from(database - done).unwrap_or(HASH_CHUNK));
        file.read_exact(&mut chunk[..take]).map_err(read())?;
        hash.update(&chunk[..take]);
        done += take as u64;
        progress(done, database);
    }
    let mut expected = [0; HASH_BYTES as usize];
    file.read_exact(&mut expected).map_err(read())?;
    let found = hash.finalize();
    if found.as_slice() != expected {
        return Err(SnapshotError::Hash {
            path: path.to_owned(),
            expected: hex(&expected),
            found: hex(&found),
        });
    }
    Ok(())
}
