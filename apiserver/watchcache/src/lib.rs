//! The watch cache of one resource, as a value.
//!
//! The store is watched once per resource; what it says is [`ingest`]ed here,
//! and from here every list and every client's watch is served. The crate is
//! pure: it decides *what* each watcher must see ([`Dispatch`]), the driver in
//! `apiserver::storage` owns the queues, the clock and the sockets.
//!
//! Promises, numbered as in the property test (`src/model.rs`):
//! 1. a watcher sees every change that concerns it once, in revision order;
//! 2. ADDED, MODIFIED and DELETED follow from (now, before) × selector;
//! 3. DELETED shows the last content under the revision of the deletion;
//! 4. the state a watch begins with is the state at one revision;
//! 5. a snapshot at revision N is the store's state at N, or is refused;
//! 6. a bookmark's revision is reached: everything before it was dispatched;
//! 7. a start older than the window is refused, never served with a gap.
//!
//! [`ingest`]: Cacher::ingest

mod cacher;
mod event;
mod index;
#[cfg(test)]
mod model;
mod selector;
mod snapshot;
mod window;

pub use cacher::{Cacher, Change, Config, Dispatch, Initial, Start, Started, WatchSpec};
pub use event::{Event, EventType, Slot};
pub use index::WatcherId;
pub use selector::Selector;
pub use snapshot::Snapshot;
pub use window::{CAPACITY_MAX, CAPACITY_MIN, FRESH_FOR, TooOld};
