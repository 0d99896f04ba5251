//! The rows behind the log, in sled.
//!
//! One tree, one atomic batch per write-back, an explicit flush before the log
//! may forget what a batch covers. sled 0.34.7 is pinned: its format is stable,
//! and over one tree it kept a consistent prefix in every kill test.
//! Nothing of a request's path waits for it.

use std::{
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use mvcc::{
    WriteBack,
    backend::{Backend, BackendError, RowVisitor},
};

use crate::error::DiskError;

/// sled's page cache. Reads of old revisions go through mvcc's own block cache,
/// so this one only has to hold the pages of a batch under way.
const CACHE_BYTES: u64 = 16 << 20;

/// The rows of one member; clones share them.
#[derive(Clone, Debug)]
pub struct Rows {
    db: sled::Db,
    path: PathBuf,
}

impl Rows {
    /// Opens the rows, making them if there are none.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            .mode(sled::Mode::LowSpace)
            .flush_every_ms(None);
        let db = config.open().map_err(|error| failed(path, &error))?;
        Ok(Self {
            db,
            path: path.to_owned(),
        })
    }

    /// Puts one batch into the tree, all of it or nothing. Reads see it at once;
    /// it is durable after [`Rows::flush`].
    pub fn write(&self, batch: &WriteBack) -> Result<(), DiskError> {
        let mut rows = sled::Batch::default();
        for (key, value) in &batch.rows {
            match value {
                Some(value) => rows.insert(key.as_ref(), value.as_ref()),
                None => rows.remove(key.as_ref()),
            }
        }
        self.db
            .apply_batch(rows)
            .map_err(|error| self.given_up(&error))
    }

    /// Makes every batch so far durable.
    pub fn flush(&self) -> Result<(), DiskError> {
        self.db
            .flush()
            .map(drop)
            .map_err(|error| self.given_up(&error))
    }

    /// Says why a write failed, and keeps the engine from being closed: it would
    /// flush first, and wait without end for the bytes that were never written
    /// (sled 0.34.7: Tree's drop, make_stable_inner). Its memory and its lock stay
    /// with the process, which has no use for it any more.
    fn given_up(&self, error: &sled::Error) -> DiskError {
        std::mem::forget(self.db.clone());
        failed(&self.path, error)
    }

    /// Returns the bytes the engine takes on disk.
    pub fn size_on_disk(&self) -> u64 {
        self.db.size_on_disk().unwrap_or(0)
    }
}

fn failed(path: &Path, error: &sled::Error) -> DiskError {
    if let sled::Error::Io(source) = error
        && source.kind() == io::ErrorKind::StorageFull
    {
        // The error is not ours to keep; its kind says all.
        return DiskError::io("write rows in", path)(source.kind().into());
    }
    DiskError::Rows {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

fn unreadable(error: &sled::Error) -> BackendError {
    BackendError::Io(error.to_string())
}

impl Backend for Rows {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        let row = self.db.get(key).map_err(|error| unreadable(&error))?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        let rows = if to.is_empty() {
            self.db.range(from..)
        } else {
            self.db.range(from..to)
        };
        for row in rows {
            let (key, value) = row.map_err(|error| unreadable(&error))?;
            visit(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(token: u64, rows: &[(&str, Option<&str>)]) -> WriteBack {
        let own = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        WriteBack {
            token,
            applied_index: token,
            applied_term: 1,
            revision: 1,
            rows: rows
                .iter()
                .map(|(key, value)| (own(key), value.map(own)))
                .collect(),
        }
    }

    #[test]
    fn rows_that_cannot_be_written_are_let_go_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Rows::open(dir.path()).unwrap();
        rows.write(&batch(1, &[("a", Some("1"))])).unwrap();
        // Where long values go, each in a file of its own.
        std::fs::remove_dir_all(dir.path().join("blobs")).unwrap();
        let long = "x".repeat(1 << 20);
        let refused = rows.write(&batch(2, &[("b", Some(&long))]));
        assert!(refused.is_err(), "a file in no directory was written");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(rows);
            tell.send(()).unwrap();
        });
        let closed = told.recv_timeout(std::time::Duration::from_secs(20));
        assert!(closed.is_ok(), "the engine is still being closed");
    }

    #[test]
    fn batches_are_read_back_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Rows::open(dir.path()).unwrap();
        rows.write(&batch(
            1,
            &[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))],
        ))
        .unwrap();
        rows.write(&batch(2, &[("b", None), ("c", Some("4"))]))
            .unwrap();
        rows.flush().unwrap();
        drop(rows);
        let rows = Rows::open(dir.path()).unwrap();
        assert_eq!(rows.get(b"b").unwrap(), None);
        let mut seen = Vec::new();
        rows.scan(b"a", b"", &mut |key, value| {
            seen.push((key, value));
            Ok(())
        })
        .unwrap();
        assert_eq!(
            seen,
            [("a".into(), "1".into()), ("c".into(), Bytes::from("4"))]
        );
        seen.clear();
        rows.scan(b"a", b"c", &mut |key, value| {
            seen.push((key, value));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen.len(), 1);
        assert!(rows.size_on_disk() > 0);
    }
}
