//! redb: a copy-on-write B-tree in one file.
//!
//! A write is a commit without durability, a flush an empty one with it, which makes
//! all before it durable: what its documentation advises for batches, and the same
//! two steps that the store takes. Neither two-phase commit nor quick repair is on, as
//! it comes: cheaper commits, and a walk over everything when it opens after a crash.

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ::redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};
use bytes::Bytes;
use mvcc::backend::RowVisitor;
use mvcc::{Backend, BackendError, WriteBack};

use super::{CACHE_BYTES, Engine, unreadable};

type Key = &'static [u8];

const ROWS: TableDefinition<'static, Key, Key> = TableDefinition::new("rows");

/// Only compaction takes it for itself, so that nobody reads meanwhile.
#[derive(Clone)]
struct Redb(Arc<RwLock<Database>>);

pub(super) fn open(folder: &Path) -> anyhow::Result<Box<dyn Engine>> {
    let db = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create(folder.join("rows.redb"))?;
    // A table that was never written cannot be read.
    let txn = db.begin_write()?;
    txn.open_table(ROWS)?;
    txn.commit()?;
    Ok(Box::new(Redb(Arc::new(RwLock::new(db)))))
}

impl Redb {
    fn db(&self) -> RwLockReadGuard<'_, Database> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn rows(&self) -> Result<ReadOnlyTable<Key, Key>, BackendError> {
        let txn = self.db().begin_read().map_err(unreadable)?;
        txn.open_table(ROWS).map_err(unreadable)
    }
}

impl Engine for Redb {
    fn write(&self, batch: &WriteBack) -> anyhow::Result<()> {
        let mut txn = self.db().begin_write()?;
        txn.set_durability(Durability::None)?;
        let mut table = txn.open_table(ROWS)?;
        for (key, row) in &batch.rows {
            match row {
                Some(row) => table.insert(key.as_ref(), row.as_ref())?,
                None => table.remove(key.as_ref())?,
            };
        }
        drop(table);
        Ok(txn.commit()?)
    }

    fn flush(&self) -> anyhow::Result<()> {
        Ok(self.db().begin_write()?.commit()?)
    }

    /// Moves everything to the front of the file and cuts it, in one go: what an
    /// operator could ask for, since nobody reads or writes meanwhile.
    fn tidy(&self) -> anyhow::Result<bool> {
        let mut db = self.0.write().unwrap_or_else(PoisonError::into_inner);
        db.compact()?;
        Ok(false)
    }
}

impl Backend for Redb {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        let row = self.rows()?.get(key).map_err(unreadable)?;
        Ok(row.map(|row| Bytes::copy_from_slice(row.value())))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        let to = match to.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Excluded(to),
        };
        let table = self.rows()?;
        let rows = table.range::<&[u8]>((Bound::Included(from), to));
        for row in rows.map_err(unreadable)? {
            let (key, row) = row.map_err(unreadable)?;
            let own = Bytes::copy_from_slice;
            visit(own(key.value()), own(row.value()))?;
        }
        Ok(())
    }
}
