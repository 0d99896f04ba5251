//! The rows behind the log: one tree, on a real disk or a simulated one.
//!
//! One atomic batch per write-back, an explicit flush before the log may forget what
//! a batch covers. Nothing of a request's path waits for it.

mod heap;
mod kept;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use mvcc::{
    WriteBack,
    backend::{Backend, BackendError, RowVisitor},
};

use self::{heap::Thrift, kept::Kept};
use crate::{error::DiskError, simulated::SimRows};

/// The rows of one member; clones share them. One thread writes.
#[derive(Clone, Debug)]
pub struct Rows {
    engine: Engine,
    path: PathBuf,
}

/// What keeps them.
#[derive(Clone, Debug)]
enum Engine {
    /// sled, and a heap of files.
    Real(Kept),
    /// A simulated disk: sled starts threads, and knows no disk but the machine's.
    Simulated(SimRows),
}

/// Says how far giving space back has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tidied {
    /// Some was moved together; there may be more to do.
    Some,
    /// There is nothing to do.
    All,
}

/// Is a defragmentation under way: what it began with.
#[derive(Clone, Copy, Debug)]
pub struct Defragmentation(Thrift);

impl Rows {
    /// Opens the rows, making them if there are none.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        Ok(Self {
            engine: Engine::Real(Kept::open(path)?),
            path: path.to_owned(),
        })
    }

    /// Takes the rows that a simulated disk keeps.
    pub(crate) fn simulated(rows: SimRows, path: &Path) -> Self {
        Self {
            engine: Engine::Simulated(rows),
            path: path.to_owned(),
        }
    }

    /// Puts one batch into the tree, all of it or nothing. Reads see it at once;
    /// it is durable after [`Rows::flush`].
    pub fn write(&self, batch: &WriteBack) -> Result<(), DiskError> {
        match &self.engine {
            Engine::Real(kept) => kept.write(batch),
            Engine::Simulated(rows) => rows
                .write(batch)
                .map_err(DiskError::io("write rows in", &self.path)),
        }
    }

    /// Makes every batch so far durable, and removes files it left empty.
    pub fn flush(&self) -> Result<(), DiskError> {
        match &self.engine {
            Engine::Real(kept) => kept.flush(),
            Engine::Simulated(rows) => rows.flush().map_err(|source| DiskError::Sync {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// Gives some space back that replaced rows took, if it is half of a file; it
    /// comes free with the next [`Rows::flush`]. Takes some tens of milliseconds.
    pub fn tidy(&self) -> Result<Tidied, DiskError> {
        match &self.engine {
            Engine::Real(kept) => kept.tidy(),
            Engine::Simulated(_) => Ok(Tidied::All),
        }
    }

    /// Begins to give back all space that the rows of now do not need.
    pub fn defragment(&self) -> Result<Defragmentation, DiskError> {
        match &self.engine {
            Engine::Real(kept) => kept.defragment(),
            Engine::Simulated(_) => Ok(Defragmentation(Thrift::Steady)),
        }
    }

    /// Gives some of it back, as [`Rows::tidy`] does.
    pub fn defragment_some(&self, under_way: Defragmentation) -> Result<Tidied, DiskError> {
        match &self.engine {
            Engine::Real(kept) => kept.defragment_some(under_way),
            Engine::Simulated(_) => Ok(Tidied::All),
        }
    }

    /// Returns the bytes the rows take on disk.
    pub fn size_on_disk(&self) -> u64 {
        match &self.engine {
            Engine::Real(kept) => kept.size_on_disk(),
            Engine::Simulated(rows) => rows.bytes(),
        }
    }
}

impl Backend for Rows {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        match &self.engine {
            Engine::Real(kept) => kept.get(key),
            Engine::Simulated(rows) => Ok(rows.get(key)),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        match &self.engine {
            Engine::Real(kept) => kept.scan(from, to, visit),
            Engine::Simulated(rows) => rows
                .range(from, to)
                .into_iter()
                .try_for_each(|(key, row)| visit(key, row)),
        }
    }
}
