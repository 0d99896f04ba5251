//! The door to durable storage: what the machine reads at start and on a
//! cache miss, and the batches it hands out to be written.
//!
//! The machine never writes. It packs what changed into a [`WriteBack`], the
//! shell writes that as ONE atomic batch into ONE tree on a thread of its own,
//! and reports back. A batch carries the applied index it covers, so the rows
//! are always the exact state after some log entry and the log replays the rest.
//!
//! Rows, by first byte of the key:
//!
//! | key | value |
//! |---|---|
//! | `s` | applied index and term, revision, compacted revision |
//! | `b` main BE64 sub BE32 | a block of consecutive revisions (see `block`) |
//! | `l` id BE64 | a lease: seconds granted, seconds left at the last checkpoint |
//! | `a` member BE64 kind | an alarm |
//! | `e` page BE64 | ids of recent proposals (`d`: in builds before there were members) |
//! | `m` member BE64 | a member |
//! | `g` member BE64 | one that was removed |
//! | `c` | the cluster's id and raft's configuration |
//! | `u` user, `r` role, `w` | who may do what (see [`crate::auth`]) |
//! | `x` name | a fact by name: the downgrade |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

pub use crate::error::BackendError;

/// Receives rows during a scan.
pub type RowVisitor<'a> = dyn FnMut(Bytes, Bytes) -> Result<(), BackendError> + 'a;

/// Reads rows of the one tree. Calls are synchronous and short: a point read on
/// a cache miss, and one full scan at open.
pub trait Backend: Send {
    /// Makes another handle to the same rows, to be read on another thread.
    fn share(&self) -> Box<dyn Backend>;

    /// Reads one row.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError>;

    /// Visits every row with `from <= key < to` in ascending order; an empty
    /// `to` means to the end. Stops at the visitor's first error and returns it.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError>;
}

/// Is one atomic batch for the one tree: a pure value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBack {
    /// Numbers the batches of one run.
    pub token: u64,
    /// The log index the tree reflects once the batch is in.
    pub applied_index: u64,
    /// That entry's term.
    pub applied_term: u64,
    /// The store revision the tree reflects once the batch is in.
    pub revision: i64,
    /// Rows to put (`Some`) and to delete (`None`); no key occurs twice.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
}

impl WriteBack {
    /// Counts the bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.rows
            .iter()
            .map(|(k, v)| k.len() + v.as_ref().map_or(0, Bytes::len))
            .sum()
    }
}

/// Keeps rows in memory: the backend of tests and of an in-memory store.
/// Clones share the rows, so one clone can be read while another is written.
#[derive(Debug, Clone, Default)]
pub struct MemoryBackend {
    rows: Arc<Mutex<BTreeMap<Bytes, Bytes>>>,
}

impl MemoryBackend {
    /// Creates an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a batch.
    pub fn write(&self, batch: &WriteBack) {
        let mut rows = self.lock();
        for (key, value) in &batch.rows {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
    }

    /// Counts the rows.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Reports whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Sets one row, to plant damage in tests.
    pub fn set(&self, key: &[u8], value: Bytes) {
        self.lock().insert(Bytes::copy_from_slice(key), value);
    }

    /// Copies the rows as they are now: what a crash would leave.
    pub fn fork(&self) -> Self {
        let rows = self.lock().clone();
        Self {
            rows: Arc::new(Mutex::new(rows)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Bytes, Bytes>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for MemoryBackend {
    fn share(&self) -> Box<dyn Backend> {
        Box::new(self.clone())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, BackendError> {
        Ok(self.lock().get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut RowVisitor<'_>) -> Result<(), BackendError> {
        let rows = self.lock().clone();
        for (key, value) in rows.range(Bytes::copy_from_slice(from)..) {
            if !to.is_empty() && key.as_ref() >= to {
                break;
            }
            visit(key.clone(), value.clone())?;
        }
        Ok(())
    }
}
