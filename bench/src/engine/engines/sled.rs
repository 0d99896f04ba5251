//! sled 0.34.7 alone, set as the engine in use sets it: no thread that flushes, for
//! the store says when; the mode that spares space. Its `flush` is all there is: it ends
//! with `sync_file_range`, which promises nothing over a power cut. What crate `disk`
//! adds to it (syncs of the files) is left out.

use std::path::Path;

use bytes::Bytes;
use mvcc::backend::RowVisitor;
use mvcc::{Backend, BackendError, WriteBack};

use super::{CACHE_BYTES, Engine, unreadable};

#[derive(Clone)]
struct Sled(::sled::Db);

pub(super) fn open(folder: &Path) -> anyhow::Result<Box<dyn Engine>> {
    let config = ::sled::Config::new()
        .path(folder)
        .cache_capacity(CACHE_BYTES as u64)
        .mode(::sled::Mode::LowSpace)
        .flush_every_ms(None);
    Ok(Box::new(Sled(config.open()?)))
}

impl Engine for Sled {
    fn write(&self, batch: &WriteBack) -> anyhow::Result<()> {
        let mut rows = ::sled::Batch::default();
        for (key, row) in &batch.rows {
            match row {
                Some(row) => rows.insert(key.as_ref(), row.as_ref()),
                None => rows.remove(key.as_ref()),
            }
        }
        Ok(self.0.apply_batch(rows)?)
    }

    fn flush(&self) -> anyhow::Result<()> {
        self.0.flush()?;
        Ok(())
    }
}

impl Backend for Sled {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        let row = self.0.get(key).map_err(unreadable)?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        let rows = match to.is_empty() {
            true => self.0.range(from..),
            false => self.0.range(from..to),
        };
        for row in rows {
            let (key, row) = row.map_err(unreadable)?;
            visit(Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&row))?;
        }
        Ok(())
    }
}
