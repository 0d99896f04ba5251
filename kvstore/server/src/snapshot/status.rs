//! What a snapshot file holds, in numbers (etcdutl's `snapshot status`).

use std::path::Path;

use bbolt::{Db, ReadAt};
use mvcc::Crc32c;

use super::{Progress, error::SnapshotError, file, schema};

/// Pairs between two reports of progress.
const PAIRS_PER_REPORT: u64 = 1_024;

/// Describes a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// CRC-32C over the names of buckets, keys and values, in order.
    pub hash: u32,
    /// The last revision.
    pub revision: i64,
    /// The pairs of all buckets, as etcdutl 3.5 counts.
    pub total_key: u64,
    /// The bytes of the database.
    pub total_size: u64,
    /// The version of its schema; empty before etcd 3.6.
    pub version: String,
}

/// Reads a whole file, checks that it holds together and describes it. The hash
/// behind the database is not looked at, as etcdutl does not.
pub fn status(path: &Path, progress: &mut Progress<'_>) -> Result<SnapshotStatus, SnapshotError> {
    let (opened, _) = file::open(path)?;
    let db = file::database(path, opened)?;
    let broken = |source| SnapshotError::Database {
        path: path.to_owned(),
        source,
    };
    db.check().map_err(broken)?;
    let mut found = SnapshotStatus {
        hash: 0,
        revision: 0,
        total_key: 0,
        total_size: db.size(),
        version: String::new(),
    };
    let mut hash = Crc32c::new();
    let mut bytes = 0;
    for name in db.buckets().map_err(broken)? {
        hash.update(&name);
        let history = name == schema::KEY.as_bytes();
        let meta = name == schema::META.as_bytes();
        each_pair(&db, &name, &mut |key, value| {
            hash.update(key);
            hash.update(value);
            found.total_key += 1;
            if history {
                found.revision = schema::main_revision(key).ok_or(key.to_vec())?;
            }
            if meta && key == schema::STORAGE_VERSION {
                found.version = String::from_utf8_lossy(value).into_owned();
            }
            bytes += (key.len() + value.len()) as u64;
            if found.total_key.is_multiple_of(PAIRS_PER_REPORT) {
                progress(bytes, found.total_size);
            }
            Ok(())
        })
        .map_err(|failed| match failed {
            Failed::Read(source) => broken(source),
            Failed::Revision(key) => SnapshotError::Content {
                path: path.to_owned(),
                bucket: schema::KEY,
                reason: format!("key {key:02x?} is not a revision"),
            },
        })?;
    }
    found.hash = hash.finish();
    Ok(found)
}

enum Failed {
    Read(bbolt::ReadError),
    Revision(Vec<u8>),
}

type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Vec<u8>> + 'a;

fn each_pair<R: ReadAt>(db: &Db<R>, name: &[u8], visit: &mut Visit<'_>) -> Result<(), Failed> {
    let Some(mut entries) = db.bucket(name).map_err(Failed::Read)? else {
        return Ok(());
    };
    while let Some(entry) = entries.next_entry().map_err(Failed::Read)? {
        visit(entry.key, entry.value).map_err(Failed::Revision)?;
    }
    Ok(())
}
