//! fjall: an LSM tree behind a journal; with large values in the tree, or in files of
//! their own beside it, as the engine in use has them.
//!
//! A batch goes to the journal as it is committed, a flush syncs the journal. It
//! compresses with lz4, as it comes.

use std::path::Path;

use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
use bytes::Bytes;
use mvcc::backend::RowVisitor;
use mvcc::{Backend, BackendError, WriteBack};

use super::{CACHE_BYTES, Engine, unreadable};

/// What is written before it becomes a file of the tree. It would be 64 MiB, beside a
/// cache that is a quarter of that.
const MEMTABLE_BYTES: u64 = 16 << 20;

/// The least that the journal can be limited to; it would be 512 MiB, most of what
/// takes space here.
const JOURNAL_BYTES: u64 = 64 << 20;

#[derive(Clone)]
struct Fjall {
    db: Database,
    rows: Keyspace,
}

pub(super) fn open(folder: &Path) -> anyhow::Result<Box<dyn Engine>> {
    open_with(folder, None)
}

pub(super) fn open_separated(folder: &Path) -> anyhow::Result<Box<dyn Engine>> {
    open_with(folder, Some(KvSeparationOptions::default()))
}

fn open_with(
    folder: &Path,
    separation: Option<KvSeparationOptions>,
) -> anyhow::Result<Box<dyn Engine>> {
    let db = Database::builder(folder)
        .cache_size(CACHE_BYTES as u64)
        .max_journaling_size(JOURNAL_BYTES)
        .open()?;
    let rows = db.keyspace("rows", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES)
            .with_kv_separation(separation)
    })?;
    Ok(Box::new(Fjall { db, rows }))
}

impl Engine for Fjall {
    fn write(&self, batch: &WriteBack) -> anyhow::Result<()> {
        let mut rows = self.db.batch();
        for (key, row) in &batch.rows {
            match row {
                Some(row) => rows.insert(&self.rows, key.as_ref(), row.as_ref()),
                None => rows.remove(&self.rows, key.as_ref()),
            }
        }
        Ok(rows.commit()?)
    }

    fn flush(&self) -> anyhow::Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    /// Merges the whole tree, in one go; its own threads merge unasked as well.
    fn tidy(&self) -> anyhow::Result<bool> {
        self.rows.rotate_memtable_and_wait()?;
        self.rows.major_compact()?;
        Ok(false)
    }
}

impl Backend for Fjall {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        let row = self.rows.get(key).map_err(unreadable)?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        let rows = match to.is_empty() {
            true => self.rows.range(from..),
            false => self.rows.range(from..to),
        };
        for row in rows {
            let (key, row) = row.into_inner().map_err(unreadable)?;
            visit(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&row))?;
        }
        Ok(())
    }
}
