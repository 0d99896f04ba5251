//! Rows on a simulated disk: one tree, atomic batches, durable once flushed.
//!
//! What sled promises over one tree, and no more: after a crash the rows are as
//! after some batch, none of those flushed missing.

use std::{
    collections::BTreeMap,
    io,
    ops::Bound,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use mvcc::WriteBack;

use super::{Keep, SimDisk, failed, lock};

type Row = (Bytes, Option<Bytes>);

/// The rows of one directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    cached: BTreeMap<Bytes, Bytes>,
    durable: BTreeMap<Bytes, Bytes>,
    /// Batches that were not flushed, oldest first.
    unflushed: Vec<Vec<Row>>,
}

fn put(rows: &mut BTreeMap<Bytes, Bytes>, batch: &[Row]) {
    for (key, row) in batch {
        match row {
            Some(row) => rows.insert(key.clone(), row.clone()),
            None => rows.remove(key),
        };
    }
}

impl Table {
    /// Returns what a crash leaves.
    pub(super) fn survive(&self, keep: &mut impl FnMut(Keep) -> bool) -> Self {
        let mut durable = self.durable.clone();
        for batch in &self.unflushed {
            if !keep(Keep::Batch) {
                break;
            }
            put(&mut durable, batch);
        }
        Self {
            cached: durable.clone(),
            durable,
            unflushed: Vec::new(),
        }
    }
}

/// Open rows; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct SimRows {
    disk: SimDisk,
    table: Arc<Mutex<Table>>,
}

impl SimRows {
    pub(super) fn new(disk: SimDisk, table: Arc<Mutex<Table>>) -> Self {
        Self { disk, table }
    }

    pub(crate) fn write(&self, batch: &WriteBack) -> io::Result<()> {
        if self.disk.operate().full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut table = lock(&self.table);
        put(&mut table.cached, &batch.rows);
        table.unflushed.push(batch.rows.clone());
        Ok(())
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        let fails = self.disk.sync_fails();
        let mut table = lock(&self.table);
        let table = &mut *table;
        if fails {
            table.unflushed.clear();
            table.cached = table.durable.clone();
            return Err(failed());
        }
        for batch in table.unflushed.drain(..) {
            put(&mut table.durable, &batch);
        }
        Ok(())
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Bytes> {
        lock(&self.table).cached.get(key).cloned()
    }

    /// Copies the rows with `from <= key < to`; an empty `to` is the end.
    pub(crate) fn range(&self, from: &[u8], to: &[u8]) -> Vec<(Bytes, Bytes)> {
        let to = match to {
            [] => Bound::Unbounded,
            to => Bound::Excluded(to),
        };
        lock(&self.table)
            .cached
            .range::<[u8], _>((Bound::Included(from), to))
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        let table = lock(&self.table);
        let sizes = table.cached.iter().map(|(key, row)| key.len() + row.len());
        sizes.sum::<usize>() as u64
    }
}
